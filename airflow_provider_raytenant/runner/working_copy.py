"""A job's own copy of its working directory.

Ray unpacks a working directory once a node, and all jobs that name it share the folder.
"""

from __future__ import annotations

import os


def move_into_copy(target: str, environment: dict[str, str]) -> None:
    """Copy the current directory into `target`, an empty folder, and make that the current directory.

    `environment` is changed in place: PWD, and what of PYTHONPATH lay in the old directory, where Ray put it,
    lies in the new one. Links stay links. This process goes on importing from where it did.

    Raises OSError.
    """
    # Here and not on top: most jobs need no copy, and this takes 10 ms.
    import shutil

    source = os.getcwd()
    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    except shutil.Error as error:
        # One line instead of a list of all files.
        raise OSError(f"cannot copy {source}: {error.args[0][0][2]}") from None
    os.chmod(target, 0o700)  # and not the mode of the source
    os.chdir(target)
    environment["PWD"] = target
    if "PYTHONPATH" in environment:
        entries = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(_moved(entry, source, target) for entry in entries)


def _moved(entry: str, source: str, target: str) -> str:
    """The entry of PYTHONPATH inside `target` if it lies in `source`."""
    if not entry:  # the current directory, whatever that is
        return entry
    real = os.path.realpath(entry)
    if real == source:
        return target
    if real.startswith(source.rstrip("/") + "/"):
        return os.path.join(target, os.path.relpath(real, source))
    return entry
