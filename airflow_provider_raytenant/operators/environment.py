"""The job's runtime environment from the task's arguments and the tenant's: folders become packages.

What a template may name is walled in here: archives lie below the tenant's prefix, folders below the DAG's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_raytenant.domain import runtime_env as envs
from airflow_provider_raytenant.domain.job_spec import checked_archive
from airflow_provider_raytenant.domain.rules import check_environment
from airflow_provider_raytenant.domain.tenants import RoleCredentials, Tenant
from airflow_provider_raytenant.exceptions import PolicyError, RequestError
from airflow_provider_raytenant.operators.secrets import refuse_secrets
from airflow_provider_raytenant.ray_api.packages import Package, folder_package, runner_package

LARGEST_OWN_BYTES: Final = 256 * 1024
"""Size of a zipped working directory up to which each try has a package of its own: the head keeps packages
in memory while their jobs live."""

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_raytenant.operators.job import RayTenantJobOperator
    from airflow_provider_raytenant.tenant_file import TenantView


def job_environment(
    operator: RayTenantJobOperator, view: TenantView, context: Context, submission_id: str
) -> tuple[dict[str, Any], list[Package], bool]:
    """The merged environment with every folder replaced by its package, and these packages.

    Ray gives one folder a node to all jobs that name the same working directory. A small one is therefore
    named by the try and is the try's own on every node, cleared away by Ray itself. To send a large one for
    every try would cost too much, and an archive has the one name that it has: then the last part of the
    answer says that the runner has to copy it for the driver.
    """
    try:
        raw = _task_env(operator)
        # First, since every other refusal shows what it found.
        refuse_secrets({"runtime_env": raw})
        task = envs.checked(raw)
        check_environment(view.tenant, task)
        env = envs.merge(view.tenant.runtime_env, task)
    except ValueError as error:
        raise RequestError(str(error)) from None
    if "image_uri" in env:
        # Read in Ray 2.60: it allows `config` and `env_vars` beside an image, and nothing else.
        raise RequestError(
            f"image_uri: found {env['image_uri']!r}; allowed: none yet, since Ray 2.60 takes no package, and "
            "so no runner, beside an image"
        )
    env = envs.apart(env, f"{view.deployment}/{view.tenant.name}")
    tenant, roots = view.tenant, _roots(operator, context)
    excludes = env.pop("excludes", ())
    packages = [runner_package(tenant.name)]
    copy_cwd = False
    if "working_dir" in env:
        location = env["working_dir"]
        if _is_url(location):
            env["working_dir"], copy_cwd = _archive("working_dir", location, tenant), True
        else:
            path = _local_folder("working_dir", location, roots)
            folder = _named("working_dir", path, tenant.name, "", excludes)
            copy_cwd = len(folder.content) > LARGEST_OWN_BYTES
            if not copy_cwd:
                folder = folder.own_of(submission_id)
            packages.append(folder)
            env["working_dir"] = folder.uri
    modules = []
    for index, location in enumerate(env.get("py_modules", [])):
        argument = f"py_modules[{index}]"
        if _is_url(location):
            modules.append(_archive(argument, location, tenant))
        else:
            path = _local_folder(argument, location, roots)
            package = _named(argument, path, tenant.name, path.name, excludes)
            packages.append(package)
            modules.append(package.uri)
    # Ray keeps their order on Python's path: no module of the job's can stand in for the runner.
    env["py_modules"] = [packages[0].uri, *modules]
    return env, packages, copy_cwd


def _archive(argument: str, location: str, tenant: Tenant) -> str:
    url = checked_archive(argument, location, tenant)
    if isinstance(tenant.credentials, RoleCredentials):
        raise RequestError(
            f"{argument}: found {location!r}; allowed for tenant {tenant.name}: folders beside the DAG file, "
            "since Ray fetches an archive with the rights of the node, and not with the tenant's own"
        )
    return url


def _task_env(operator: RayTenantJobOperator) -> dict[str, Any]:
    """The task's arguments as one runtime environment; each key may be given one way only."""
    if not isinstance(operator.runtime_env, Mapping | None):
        raise RequestError(f"runtime_env: found {operator.runtime_env!r}; allowed: a dict of Ray's keys")
    env = dict(operator.runtime_env or {})
    for key in ("working_dir", "py_modules", "pip", "env_vars"):
        value = getattr(operator, key)
        if value is None:
            continue
        if key in env:
            raise RequestError(f"{key}: found both as an argument and in runtime_env; allowed: one of them")
        env[key] = value
    return env


def _named(argument: str, folder: Path, owner: str, below: str, excludes: Any) -> Package:
    try:
        return folder_package(folder, owner=owner, below=below, excludes=excludes)
    except RequestError as error:
        raise RequestError(f"{argument}: {error}") from None


def _is_url(location: str) -> bool:
    return "://" in location


def _roots(operator: RayTenantJobOperator, context: Context) -> list[Path]:
    """The folders that a job's code may come from: the DAG file's, and its bundle's."""
    fileloc = getattr(operator.get_dag(), "fileloc", None)
    roots = [Path(fileloc).parent if fileloc else Path.cwd()]
    bundle = getattr(getattr(context["ti"], "bundle_instance", None), "path", None)
    if bundle is not None:
        roots.append(Path(bundle))
    return [root.resolve() for root in roots]


def _local_folder(argument: str, location: str, roots: list[Path]) -> Path:
    """A folder beside the DAG file; nowhere else on the worker, whatever a template says."""
    try:
        path = (roots[0] / location).resolve()
        path.is_dir()
    except (OSError, RuntimeError) as error:
        # A name that is too long, a folder that may not be looked into; links that go round.
        reason = error.strerror if isinstance(error, OSError) else "links that go round"
        raise RequestError(f"{argument}: found {location[:100]!r} ({reason}); allowed: a folder") from None
    if not any(path.is_relative_to(root) for root in roots):
        raise PolicyError(
            f"{argument}: found {location!r}, which is {path}; allowed: folders below {roots[-1]}",
            rule="folders",
        )
    return path
