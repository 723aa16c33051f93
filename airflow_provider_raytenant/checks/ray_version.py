"""The cluster's Ray: tried, untried, or known to make trouble with the jobs API."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from airflow_provider_raytenant.checks.finding import Finding, failure, ok, warning

TRIED: Final = (2, 60)
_TRIED: Final = ".".join(map(str, TRIED))


@dataclass(frozen=True)
class Trouble:
    """What is wrong with every version before ``before`` (major, minor)."""

    before: tuple[int, int]
    what: str
    fatal: bool = False


# Numbers are issues and pull requests of ray-project/ray. The version is the first release after the merge.
TROUBLES: Final = (
    # Closed by 56296, merged in September 2025: a ping without an end kept the start time-out from coming.
    Trouble((2, 50), "a job that fits nowhere may stay PENDING for ever (ray#55133)", fatal=True),
    # Its documentation (59299) says since when there is token authentication.
    Trouble((2, 52), "it has no token authentication (ray#59299)", fatal=True),
    # 58662 asks for it, 59735 of January 2026 has it; an unknown field of a request is answered with 400.
    Trouble((2, 54), "it refuses jobs with a label selector (ray#59735)"),
    # GHSA-q5fh-2hc8-f6rq: a page in somebody's browser may delete jobs.
    Trouble((2, 54), "web pages may delete its jobs (CVE-2026-27482)"),
)


def judge_version(version: str) -> Finding:
    """What is known of a version such as ``2.60.0``."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        return warning(
            "Ray version", f"{version!r} is no version that is known", f"Run Ray {_TRIED}, which was tried."
        )
    number = (int(match[1]), int(match[2]))
    troubles = [trouble for trouble in TROUBLES if number < trouble.before]
    if troubles:
        judge = failure if any(trouble.fatal for trouble in troubles) else warning
        return judge(
            "Ray version",
            f"{version}: " + "; ".join(trouble.what for trouble in troubles),
            f"Run Ray {_TRIED} on every node of the cluster.",
        )
    if number == TRIED:
        return ok("Ray version", f"{version}, tried with this provider")
    age = "older" if number < TRIED else "newer"
    return warning(
        "Ray version",
        f"{version} is {age} than {_TRIED}, with which this provider was tried",
        f"Run Ray {_TRIED}, or try it with your own DAGs before you rely on it.",
    )
