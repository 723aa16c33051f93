"""Merging a tenant's base runtime environment with a task's, and refusing what Ray would swallow.

The rules: ``env_vars`` by key and ``pip`` by package, the task wins; ``py_modules`` one after the
other, and so the options of ``pip install`` and ``uv pip install``; everything else replaced. ``pip``,
``uv`` and ``conda`` exclude each other. Ray ignores an unknown key without a word (measured on 2.60), so an
unknown key is an error here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

KNOWN_KEYS: Final = frozenset(
    {
        "conda",
        "config",
        "env_vars",
        "excludes",
        "image_uri",
        "pip",
        "py_executable",
        "py_modules",
        "uv",
        "worker_process_setup_hook",
        "working_dir",
    }
)
"""The keys of a job's runtime environment (``ray/runtime_env/runtime_env.py``, 2.60)."""

EXCLUSIVE: Final = ("pip", "uv", "conda")
RESERVED_ENV_PREFIX: Final = "RAYTENANT_"

_INSTALL_OPTIONS: Final = {"pip": "pip_install_options", "uv": "uv_pip_install_options"}
_NO_CACHE: Final = {"pip": "--no-cache-dir", "uv": "--no-cache"}
_INSTALLER_KEYS: Final[Mapping[str, Mapping[str, type]]] = {
    "pip": {"packages": list, "pip_check": bool, "pip_version": str, "pip_install_options": list},
    "uv": {"packages": list, "uv_check": bool, "uv_version": str, "uv_pip_install_options": list},
}
"""What a dict may hold (``ray/_private/runtime_env/validation.py``, 2.60)."""

_INSTALLER_VARIABLES: Final = ("PIP_", "UV_")

_CONFIG_KEYS: Final = {"setup_timeout_seconds", "eager_install", "log_files"}
_HOOK = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PACKAGE_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*?)\s*(?:\[|[<>=!~;@\s]|$)")


def checked(env: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``env`` in its normal form, once every key and shape is right.

    ``pip`` and ``uv`` become a list, or a dict with ``packages`` where options come along;
    ``env_vars`` is str to str.

    :raises ValueError: starting with the key path, then what was found and what is allowed.
    """
    unknown = sorted(set(env) - KNOWN_KEYS, key=str)
    if unknown:
        raise ValueError(f"{unknown[0]}: found an unknown key; allowed: {', '.join(sorted(KNOWN_KEYS))}")
    result = dict(env)
    if "env_vars" in result:
        result["env_vars"] = _checked_env_vars(result["env_vars"])
    for installer in ("pip", "uv"):
        if installer in result:
            result[installer] = _checked_packages(installer, result[installer])
    if "excludes" in result:
        result["excludes"] = _strings("excludes", result["excludes"])
    if "py_modules" in result:
        result["py_modules"] = _strings("py_modules", result["py_modules"])
    if "working_dir" in result and not (isinstance(result["working_dir"], str) and result["working_dir"]):
        raise ValueError(
            f"working_dir: found {result['working_dir']!r}; allowed: a folder or an s3:// archive"
        )
    _check_others(result)
    _refuse_two_installers(result)
    return result


def merge(base: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """The tenant's ``base`` with the task's on top, by the rules of this module.

    :raises ValueError: either is wrong, or together they name two of pip, uv and conda.
    """
    base, task = checked(base), checked(task)
    result = {**base, **task}
    if "env_vars" in base and "env_vars" in task:
        result["env_vars"] = {**base["env_vars"], **task["env_vars"]}
    if "py_modules" in base and "py_modules" in task:
        result["py_modules"] = [*base["py_modules"], *task["py_modules"]]
    for installer in ("pip", "uv"):
        if installer in base and installer in task:
            result[installer] = _merge_packages(installer, base[installer], task[installer])
    _refuse_two_installers(result)
    return result


def apart(env: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """``env`` so that the packages Ray installs for it are shared with no other owner.

    On each node Ray keeps one installed environment for each content of ``pip``, ``uv`` or ``conda``,
    whatever index the packages came from: an index may stand in an env_var. So ``owner`` goes into that
    content, as a comment, which pip and uv skip, or as the name of a conda environment, for which Ray
    uses a path anyway; and with it the installer's own env_vars, for another index is another
    environment. Options that leave out Ray's default against a download cache, which all tenants of a
    node would share, get it back.

    :param owner: who alone may use it, for example ``prod-eu/acme``; no line break in it.
    """
    result = dict(env)
    settings = {
        name: value
        for name, value in env.get("env_vars", {}).items()
        if name.upper().startswith(_INSTALLER_VARIABLES)
    }
    mark = f"raytenant: for {owner} alone"
    if settings:
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        mark += f", settings {digest[:16]}"
    for installer in ("pip", "uv"):
        if installer in env:
            result[installer] = _marked(installer, env[installer], f"# {mark}")
    if isinstance(env.get("conda"), Mapping):
        # One that is named by a text is there already: the platform made it, for everybody.
        result["conda"] = {**env["conda"], "name": re.sub(r"[^A-Za-z0-9]+", "-", mark)}
    return result


def _marked(installer: str, value: Any, comment: str) -> Any:
    packages, options = _packages_of(value)
    if not packages:
        return value
    key, no_cache = _INSTALL_OPTIONS[installer], _NO_CACHE[installer]
    if key in options and no_cache not in options[key]:
        options[key] = [*options[key], no_cache]
    marked = [comment, *packages]
    return {"packages": marked, **options} if options else marked


def package_key(requirement: str) -> str:
    """What makes two requirement lines the same package: the normalised name, else the whole line."""
    match = _PACKAGE_NAME.match(requirement.strip())
    return re.sub(r"[-_.]+", "-", match[1]).lower() if match else requirement.strip()


def _merge_packages(installer: str, base: Any, task: Any) -> Any:
    base_packages, base_options = _packages_of(base)
    task_packages, task_options = _packages_of(task)
    overridden = {package_key(line) for line in task_packages}
    packages = [line for line in base_packages if package_key(line) not in overridden] + task_packages
    options = {**base_options, **task_options}
    key = _INSTALL_OPTIONS[installer]
    if key in base_options and key in task_options:
        # So a task's --pre keeps the tenant's index; of two that exclude each other the later counts.
        options[key] = [*base_options[key], *task_options[key]]
    return {"packages": packages, **options} if options else packages


def _packages_of(value: Any) -> tuple[list[str], dict[str, Any]]:
    if isinstance(value, Mapping):
        return list(value["packages"]), {key: v for key, v in value.items() if key != "packages"}
    return list(value), {}


def _checked_packages(installer: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _strings(installer, value)
    if "packages" not in value:
        raise ValueError(
            f"{installer}: found no 'packages' in {dict(value)!r}; allowed: a list, or a dict with it"
        )
    known = _INSTALLER_KEYS[installer]
    result = dict(value)
    for key, found in value.items():
        if key not in known:
            raise ValueError(f"{installer}.{key}: found an unknown key; allowed: {', '.join(known)}")
        if known[key] is list:
            result[key] = _strings(f"{installer}.{key}", found)
        elif not isinstance(found, known[key]):
            allowed = "true or false" if known[key] is bool else "a text"
            raise ValueError(f"{installer}.{key}: found {found!r}; allowed: {allowed}")
    return result


def _check_others(env: Mapping[str, Any]) -> None:
    """The shapes of what is handed to Ray as it is: Ray takes a wrong one and fails the job with it."""
    for key in ("image_uri", "py_executable"):
        if key in env and not (isinstance(env[key], str) and env[key].strip()):
            raise ValueError(f"{key}: found {env[key]!r}; allowed: a text")
    hook = env.get("worker_process_setup_hook", "a.b")
    if not isinstance(hook, str) or not _HOOK.fullmatch(hook):
        raise ValueError(
            f"worker_process_setup_hook: found {hook!r}; allowed: a function by name: package.module.function"
        )
    config = env.get("config", {})
    if not isinstance(config, Mapping) or not set(config) <= _CONFIG_KEYS:
        raise ValueError(f"config: found {config!r}; allowed: a dict of {', '.join(sorted(_CONFIG_KEYS))}")
    seconds = config.get("setup_timeout_seconds", -1)
    whole = isinstance(seconds, int) and not isinstance(seconds, bool)
    if not whole or not (seconds == -1 or 0 < seconds < 10**6):
        raise ValueError(
            f"config.setup_timeout_seconds: found {seconds!r}; allowed: whole seconds, or -1 for no limit"
        )
    if not isinstance(config.get("eager_install", True), bool):
        raise ValueError(f"config.eager_install: found {config['eager_install']!r}; allowed: true or false")
    _strings("config.log_files", config.get("log_files", []))
    if "conda" in env and not (isinstance(env["conda"], (str, Mapping)) and _is_json(env["conda"])):
        raise ValueError(f"conda: found {env['conda']!r}; allowed: the name of an environment, or its dict")


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _checked_env_vars(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"env_vars: found {value!r}; allowed: a dict of name to text")
    for name, text in value.items():
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            raise ValueError(
                f"env_vars: found the name {name!r}; allowed: letters, digits and _, no digit first"
            )
        if name.startswith(RESERVED_ENV_PREFIX):
            raise ValueError(
                f"env_vars.{name}: found a reserved name; allowed: names without {RESERVED_ENV_PREFIX}"
            )
        if not isinstance(text, str):
            raise ValueError(f"env_vars.{name}: found {text!r}; allowed: text (quote it: '{text}')")
    return dict(value)


def _strings(key: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{key}: found {value!r}; allowed: a list of texts")
    for item in value:
        if not isinstance(item, str) or not item.strip():
            raise ValueError(f"{key}: found {item!r}; allowed: a list of texts")
    return list(value)


def _refuse_two_installers(env: Mapping[str, Any]) -> None:
    named = [key for key in EXCLUSIVE if env.get(key)]
    if len(named) > 1:
        raise ValueError(
            f"{named[1]}: found together with {named[0]}; allowed: one of {', '.join(EXCLUSIVE)}"
        )
