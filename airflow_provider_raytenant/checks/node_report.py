"""What the doctor's job told of the nodes: Python, packages, S3, Ray's start time-out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from airflow_provider_raytenant.checks.finding import Finding, failure, ok, warning
from airflow_provider_raytenant.checks.probe import Report

OLDEST_PYTHON = (3, 10)
"""The runner's: see ``per-file-target-version`` of the project."""


def start_timeout_of(report: Report) -> float | None:
    """Ray's start time-out in seconds, where a node has it in its environment: nodes are started alike."""
    for node in report.nodes.values():
        try:
            return float(node.start_timeout or "")
        except ValueError:
            continue
    return None


def judge_report(report: Report) -> Iterator[Finding]:
    """Whether a job runs at all, and what its Python is and has."""
    if report.trouble:
        yield _judge_trouble(report)
        return
    silent = report.asked - len(report.nodes)
    if silent:
        yield warning(
            "jobs",
            f"a job runs, but {silent} of {report.asked} nodes did not answer it in time",
            "Look at these nodes on Ray's dashboard.",
        )
    else:
        yield ok("jobs", f"a job ran, and looked at {report.asked} of {_nodes(report.alive)}")
    yield _judge_python(report)
    yield _judge_packages(report)


def judge_s3(tenant: str, url: str, report: Report) -> Finding:
    """Whether the nodes reach a tenant's prefix."""
    answers = [node.s3[tenant] for node in report.nodes.values() if tenant in node.s3]
    troubles = Counter(text for text in answers if text not in ("", "no boto3"))
    if troubles:
        worst, _ = troubles.most_common(1)[0]
        return failure(
            "S3",
            f"{url} cannot be reached on {sum(troubles.values())} of {_nodes(len(answers))}: {worst}",
            "Give the nodes credentials and an address with which they reach it.",
        )
    tried = answers.count("")
    if tried:
        return ok("S3", f"{url} can be reached on {tried} of {_nodes(len(answers))}")
    why = "the nodes have no boto3" if answers else "no node told of it"
    return warning("S3", f"{url} was not tried: {why}", "Install boto3 on the nodes, or try it with a job.")


def _judge_trouble(report: Report) -> Finding:
    if report.waited:
        return warning(
            "jobs",
            f"{report.trouble}: the cluster is full, or makes no progress",
            "Try again when it is less busy, or look at its nodes on Ray's dashboard.",
        )
    return failure("jobs", report.trouble, "Look at the job's output, and at the nodes' own logs.")


def _judge_python(report: Report) -> Finding:
    versions = {name: node.python for name, node in report.nodes.items()}
    old = sorted(
        {text for text in [report.driver_python, *versions.values()] if _number(text) < OLDEST_PYTHON}
    )
    if old:
        return failure(
            "Python", f"{', '.join(old)} is too old for the runner", "Use images with Python 3.10 or newer."
        )
    minors = {_number(text) for text in versions.values()} | {_number(report.driver_python)}
    if len(minors) > 1:
        return failure(
            "Python",
            f"differs: `python` is {report.driver_python}, the nodes have {_amounts(versions)}",
            "Use one Python for all nodes, first in PATH: what a job pickles is read with another one.",
        )
    return ok("Python", f"{report.driver_python} on all nodes that were looked at")


def _judge_packages(report: Report) -> Finding:
    missing = Counter(name for node in report.nodes.values() for name in node.missing)
    if missing:
        names = ", ".join(
            f"{name} on {count} of {_nodes(len(report.nodes))}" for name, count in missing.items()
        )
        return warning(
            "packages", f"missing: {names}", "Install them on the nodes: a job's `pip` does not work there."
        )
    return ok("packages", "the nodes have what a job's `pip` needs")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _amounts(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{text} ({count})" for text, count in Counter(versions.values()).most_common())


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
