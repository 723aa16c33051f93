"""Private directories for one job, gone when it is over."""

from __future__ import annotations

import os


class PrivateDirectories:
    """Makes fresh empty directories of mode 0700 and removes them all.

    They are made under $TMPDIR, or where that does not work under /tmp or /var/tmp.

    Made by hand rather than with tempfile, whose import would add 15 ms to the start of each job.
    """

    def __init__(self) -> None:
        # Absolute at once: the runner changes its directory later.
        self._parents = [os.path.abspath(os.environ.get("TMPDIR") or "/tmp"), "/tmp", "/var/tmp"]
        self._made: list[str] = []

    def make(self, purpose: str) -> str:
        """A new directory `raytenant-<purpose>-<random>`, as an absolute path. Raises OSError."""
        name = f"raytenant-{purpose}-{os.urandom(8).hex()}"
        problem = OSError()
        for parent in self._parents:
            path = os.path.join(parent, name)
            try:
                os.mkdir(path, 0o700)
            except OSError as error:
                problem = error
            else:
                self._made.append(path)
                return path
        raise problem

    def remove(self) -> None:
        """Remove them with all they hold. What cannot be removed stays: the job's end matters more."""
        os.chdir("/")  # not every system removes a directory in use
        for path in self._made:
            try:
                os.rmdir(path)
            except OSError:
                _remove_tree(path)
        self._made.clear()


def _remove_tree(path: str) -> None:
    # Here and not on top, since most jobs leave nothing behind.
    import shutil

    # A job may have made directories read-only (Go's module cache is), which would keep their files.
    for folder, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(folder, name)
            if not os.path.islink(inner):
                try:
                    os.chmod(inner, 0o700)
                except OSError:
                    continue
    shutil.rmtree(path, ignore_errors=True)
