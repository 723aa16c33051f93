"""Folders as Ray packages: zipped reproducibly, named by their content, uploaded once.

Ray keeps a package for as long as a job uses it; a look at it pins it for ten minutes more, an
upload does not (measured on 2.60). So an upload is followed by a look.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from airflow_provider_raytenant.domain.job_spec import RUNNER_MODULE
from airflow_provider_raytenant.exceptions import RequestError
from airflow_provider_raytenant.ray_api.client import RayClient

MAX_BYTES: Final = 100 * 1024**2
"""Above this a folder belongs into storage: Ray keeps packages in the memory of the head."""

_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", ".git", ".hg", ".svn", ".venv", "node_modules"})
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_RUNNER_FOLDER: Final = Path(__file__).parent.parent / "runner"


@dataclass(frozen=True)
class Package:
    """A zipped folder. ``uri`` is ``gcs://_ray_pkg_<hash>.zip``, what a runtime environment names."""

    uri: str
    content: bytes

    def own_of(self, submission_id: str) -> Package:
        """The same content under a name of this job's own: nobody else gets its folder."""
        name = hashlib.sha256(f"{self.uri}\0{submission_id}".encode()).hexdigest()[:40]
        return Package(f"gcs://_ray_pkg_{name}.zip", self.content)


def folder_package(folder: Path, *, owner: str, below: str = "", excludes: Iterable[str] = ()) -> Package:
    """The package of a folder.

    :param folder: its path.
    :param owner: the tenant. It is part of the name, because Ray unpacks a package once a node and
        every job that names it shares the folder: two tenants with the same code must not.
    :param below: a folder inside the package to put everything in; a Python package needs its name.
    :param excludes: patterns as in ``.gitignore``.
    :raises RequestError: there is no such folder, nothing is in it, or it is too large.
    """
    if not folder.is_dir():
        raise RequestError(
            f"found no folder {str(folder)!r}; allowed: a folder beside the DAG file, or an s3:// archive"
        )
    digest = hashlib.sha256(f"{owner}\0{below}\0".encode())
    buffer = io.BytesIO()
    total = count = 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, name in _files(folder, excludes):
            data = path.read_bytes()
            total, count = total + len(data), count + 1
            if total > MAX_BYTES:
                raise RequestError(
                    f"found more than {MAX_BYTES} bytes in {str(folder)!r}; allowed: smaller folders, "
                    "or an archive below the tenant's prefix"
                )
            # Only the bit that matters to a reader goes in: a checkout's umask must not change the name.
            mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
            digest.update(f"{name}\0{mode}\0{len(data)}\0".encode() + data)
            entry = zipfile.ZipInfo(f"{below}/{name}" if below else name, _EPOCH)
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    if not count:
        raise RequestError(f"found no file in {str(folder)!r}; allowed: a folder with the job's code")
    return Package(f"gcs://_ray_pkg_{digest.hexdigest()[:40]}.zip", buffer.getvalue())


def runner_package(owner: str) -> Package:
    """The runner as a package for one tenant."""
    return folder_package(_RUNNER_FOLDER, owner=owner, below=RUNNER_MODULE)


async def ensure_uploaded(client: RayClient, packages: Iterable[Package]) -> int:
    """Put on the cluster what is not there, and pin all of it; the number of uploads."""
    uploads = 0
    for package in packages:
        if not await client.has_package(package.uri):
            await client.put_package(package.uri, package.content)
            await client.has_package(package.uri)
            uploads += 1
    return uploads


def _files(folder: Path, excludes: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Files below the folder with their names inside the package, always in the same order."""
    import pathspec

    ignored = pathspec.GitIgnoreSpec.from_lines(excludes)
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            path = Path(root, name)
            relative = path.relative_to(folder).as_posix()
            if path.suffix != ".pyc" and path.is_file() and not ignored.match_file(relative):
                yield path, relative
