"""What is running, on disk, so that another process can look at it and end it.

The file holds keys and is readable to its owner only. It is written before anything is started: its
``scope`` then finds what a starter left behind that was killed half-way.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_raytenant.local.errors import StateUnreadable
from airflow_provider_raytenant.local.ray_cluster import RayCluster
from airflow_provider_raytenant.local.s3_server import S3Server

FILE_NAME = "state.json"
VERSION = 1


@dataclass(frozen=True)
class LocalState:
    """The services of one directory; ``scope`` marks all their processes."""

    scope: str
    ray: RayCluster | None = None
    s3: S3Server | None = None


def read_state(directory: Path) -> LocalState | None:
    """The state of ``directory``, None where nothing is up; raises ``StateUnreadable``."""
    path = directory / FILE_NAME
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        if data["version"] != VERSION:
            raise StateUnreadable(path, f"is of version {data['version']}, this program reads {VERSION}")
        return LocalState(
            data["scope"],
            RayCluster.from_json(data["ray"]) if data["ray"] else None,
            S3Server.from_json(data["s3"]) if data["s3"] else None,
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StateUnreadable(path, f"is damaged ({error!r}); it was written by `up`") from error


def write_state(directory: Path, state: LocalState) -> None:
    """Replace the state of ``directory`` in one step."""
    content = {
        "version": VERSION,
        "scope": state.scope,
        "ray": state.ray.to_json() if state.ray else None,
        "s3": state.s3.to_json() if state.s3 else None,
    }
    new = directory / f"{FILE_NAME}.new"
    new.unlink(missing_ok=True)
    # Created with its final mode: no moment in which others can read the keys.
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=2)
    new.replace(directory / FILE_NAME)


def remove_state(directory: Path) -> None:
    """Forget the state; fine if there is none."""
    (directory / FILE_NAME).unlink(missing_ok=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Make ``directory`` if need be and keep other starters and stoppers out of it meanwhile."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
