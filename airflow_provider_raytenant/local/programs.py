"""Find the programs that are started, and the environment they are started in."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from airflow_provider_raytenant.local.errors import ProgramMissing
from airflow_provider_raytenant.local.processes import MARK

# Without bytecode files every one of Ray's or Airflow's processes compiles some thousand modules anew,
# which doubles the time to start; some container images switch them off.
_NEVER_INHERITED = ("PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", MARK)
_LOOPBACK = "127.0.0.1,localhost,::1"


def find_program(name: str, hint: str) -> Path:
    """Return the program ``name`` from beside this interpreter, else from PATH.

    Raises ``ProgramMissing`` with ``hint`` if it is in neither place.
    """
    found = installed_program(name)
    if found is None:
        raise ProgramMissing(name, hint)
    return found


def installed_program(name: str) -> Path | None:
    """Like ``find_program``, but None where the program is missing."""
    # Not resolved: the interpreter of a virtual environment is a link to one that lives elsewhere.
    beside = Path(sys.executable).parent
    found = shutil.which(name, path=str(beside)) or shutil.which(name)
    return Path(found) if found else None


def inherited_environment(
    extra: Mapping[str, str] | None = None,
    *,
    path_first: Path | None = None,
    drop: Iterable[str] = (),
    drop_prefixes: Iterable[str] = (),
) -> dict[str, str]:
    """This process's environment as a service should see it, with ``extra`` on top.

    ``path_first`` is put in front of PATH. What is named by ``drop`` or begins with one of
    ``drop_prefixes`` is left out, as are things that only make sense for this process. Requests to
    loopback are kept away from proxies.
    """
    without = {*_NEVER_INHERITED, *drop}
    prefixes = tuple(drop_prefixes)
    environment = {
        key: value for key, value in os.environ.items() if key not in without and not key.startswith(prefixes)
    }
    if path_first is not None:
        environment["PATH"] = os.pathsep.join([str(path_first), environment.get("PATH", os.defpath)])
    for key in ("NO_PROXY", "no_proxy"):
        environment[key] = ",".join(filter(None, [environment.get(key), _LOOPBACK]))
    environment.update(extra or {})
    return environment
