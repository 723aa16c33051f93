"""What a task may ask for where its tenant's rules say nothing."""

from __future__ import annotations

from typing import Final, Literal, get_args

EnvironmentKey = Literal[
    "conda",
    "config",
    "env_vars",
    "excludes",
    "pip",
    "py_executable",
    "py_modules",
    "uv",
    "worker_process_setup_hook",
    "working_dir",
]
"""Keys of Ray's runtime environment that the rule ``runtime_env`` may name; ``image_uri`` has its own."""

EVERY_KEY: Final = get_args(EnvironmentKey)

KEYS: Final[tuple[EnvironmentKey, ...]] = (
    "config",
    "env_vars",
    "excludes",
    "pip",
    "py_modules",
    "uv",
    "worker_process_setup_hook",
    "working_dir",
)
"""All but those that reach outside: conda takes any channel, py_executable any program of the node."""

DENIED_ENV: Final = (
    # Other credentials, or another S3, than the job is given.
    "AWS_*",
    # Ray's own settings: addresses, tokens, plugins, hooks that it imports.
    "RAY_*",
    "__RAY_*",
    # Code that is loaded before the job's own, in each of its processes and in the installer's.
    "LD_*",
    "DYLD_*",
    "PYTHON*",
    "PATH",
    "HOME",
    "BASH_ENV",
    "BASH_FUNC_*",
    "ENV",
    "IFS",
    # Where packages come from: Ray runs pip, uv and git with these.
    "PIP_*",
    "UV_*",
    "CONDA_*",
    "GIT_*",
    "NETRC",
    "*_PROXY",
    "SSL_CERT_*",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)
ALLOWED_ENV: Final = (
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "PYTHONUNBUFFERED",
    "PYTHONHASHSEED",
    "PYTHONFAULTHANDLER",
    "PYTHONOPTIMIZE",
    "PYTHONUTF8",
)
"""Names that :data:`DENIED_ENV` would catch and that do no harm."""

DENIED_RESOURCES: Final = r"node:.*|.+_group_(\d+_)?[0-9a-f]{20,}"
"""Ray's own: ``node:<address>`` pins to one node, ``CPU_group_<id>`` is another's placement group."""

DENIED_LABELS: Final = ("ray.io/node-id",)
