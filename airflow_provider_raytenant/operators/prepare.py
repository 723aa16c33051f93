"""From a rendered operator to a request that is ready to be submitted: all that ``execute`` does.

Apart from the operator's module, so that importing an operator in a DAG does not import an HTTP client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk._shared.secrets_masker import redact

from airflow_provider_raytenant.domain import runtime_env as envs
from airflow_provider_raytenant.domain.capacity import misfit
from airflow_provider_raytenant.domain.job_spec import (
    Placement,
    TryIdentity,
    checked_archive,
    checked_entrypoint,
    checked_metadata,
    job_request,
    runner_entrypoint,
)
from airflow_provider_raytenant.domain.outcome import Outcome
from airflow_provider_raytenant.domain.status import LIVE
from airflow_provider_raytenant.exceptions import DoesNotFitError, PolicyError, RequestError, RetryableError
from airflow_provider_raytenant.hooks.ray import RayHook
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.packages import (
    Package,
    ensure_uploaded,
    folder_package,
    runner_package,
)
from airflow_provider_raytenant.ray_api.watch import JobWatch, WatchSettings, stop_job
from airflow_provider_raytenant.tenant_file import TenantView

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_raytenant.operators.job import RayTenantJobOperator
    from airflow_provider_raytenant.triggers.job import RayTenantJobTrigger

DEFAULT_RESULT_BYTES = 64 * 1024


@dataclass(frozen=True)
class Prepared:
    """A request that is ready, and what the one who submits it needs. Nothing in it is secret."""

    endpoint: RayEndpoint
    ray_conn_id: str
    request: dict[str, Any]
    settings: WatchSettings
    resume_on_worker: bool
    retries_left: bool
    push_result: bool

    @property
    def submission_id(self) -> str:
        """The id of the job to come."""
        return str(self.request["submission_id"])

    def trigger(self) -> RayTenantJobTrigger:
        """The trigger that submits it."""
        from airflow_provider_raytenant.triggers.job import RayTenantJobTrigger

        return RayTenantJobTrigger(
            ray_conn_id=self.ray_conn_id,
            request=self.request,
            poll_interval=self.settings.poll_interval,
            job_timeout=self.settings.job_timeout,
            resume_on_worker=self.resume_on_worker,
            retries_left=self.retries_left,
            push_result=self.push_result,
        )


def prepare(operator: RayTenantJobOperator, context: Context) -> Prepared:
    """Check the rendered arguments, put the job's code on the cluster, stop jobs of older tries.

    :raises TerminalError: something is wrong that a retry cannot mend; nothing was submitted.
    :raises RetryableError: Ray gave no sound answer.
    """
    view, placement = operator.sizing.view, operator.sizing.placement
    identity = _identity(view, context)
    env, packages = _runtime_env(operator, view)
    entrypoint = runner_entrypoint(
        checked_entrypoint(operator.entrypoint),
        private_cwd="working_dir" not in env,
        job_timeout=operator.job_timeout,
        result_max_bytes=_result_max_bytes(),
    )
    request = job_request(
        identity=identity,
        placement=placement,
        entrypoint=entrypoint,
        runtime_env=env,
        storage=str(view.tenant.prefix) if view.tenant.prefix else None,
        metadata=checked_metadata(operator.metadata),
        label_selector=operator.label_selector,
    )
    _refuse_secrets(request)
    hook = RayHook(view.cluster.ray_conn_id)
    endpoint = hook.endpoint()
    asyncio.run(_make_ready(endpoint, operator, view, placement, identity, packages))
    ti: Any = context["ti"]
    return Prepared(
        endpoint=endpoint,
        ray_conn_id=hook.ray_conn_id,
        request=request,
        settings=WatchSettings(operator.poll_interval or 5.0, operator.job_timeout),
        resume_on_worker=_needs_worker(operator),
        retries_left=ti.try_number <= (ti.max_tries or 0),
        push_result=bool(operator.do_xcom_push),
    )


def run_here(prepared: Prepared, log: Any) -> Outcome:
    """Submit and wait in this process (``deferrable=False``)."""

    async def run() -> Outcome:
        async with RayClient(prepared.endpoint) as client:
            watch = JobWatch(
                client,
                prepared.request,
                prepared.settings,
                emit=lambda line: log.info("%s", line),
                note=lambda text: log.info("%s", text),
            )
            return await watch.run()

    return asyncio.run(run())


def stop_here(prepared: Prepared, log: Any) -> None:
    """Stop the job from ``on_kill`` of a worker."""

    async def stop() -> bool:
        async with RayClient(prepared.endpoint) as client:
            return await stop_job(client, prepared.submission_id)

    ended = asyncio.run(stop())
    log.info(
        "Job %s %s", prepared.submission_id, "has ended." if ended else "was told to stop, but still lives."
    )


async def _make_ready(
    endpoint: RayEndpoint,
    operator: RayTenantJobOperator,
    view: TenantView,
    placement: Placement,
    identity: TryIdentity,
    packages: list[Package],
) -> None:
    async with RayClient(endpoint) as client:
        nodes = await client.nodes()
        wanted = [("driver", placement.driver, operator.label_selector or {})]
        if placement.worker is not None:
            wanted.append(("worker", placement.worker, {}))
        for role, need, selector in wanted:
            reason = misfit(need, selector, view.cluster, nodes)
            if reason:
                raise DoesNotFitError(f"a {role} of this job {reason} in cluster {view.tenant.cluster}")
        if identity.try_number > 1:
            await _stop_older_tries(client, identity, operator.log)
        uploads = await ensure_uploaded(client, packages)
        if uploads:
            operator.log.info("Uploaded %d of the job's %d packages.", uploads, len(packages))


async def _stop_older_tries(client: RayClient, identity: TryIdentity, log: Any) -> None:
    """A new try starts clean: a clear can overtake the end of the try before."""
    for job in await client.jobs():
        if job.status in LIVE and identity.is_older_try(job.metadata):
            log.info("Stopping job %s of an older try of this task.", job.submission_id)
            if not await stop_job(client, job.submission_id):
                raise RetryableError(
                    f"job {job.submission_id} of an older try does not end; not starting another"
                )


def _identity(view: TenantView, context: Context) -> TryIdentity:
    ti: Any = context["ti"]
    return TryIdentity(
        deployment=view.deployment,
        tenant=view.tenant.name,
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=ti.map_index if ti.map_index is not None else -1,
        try_number=ti.try_number,
        ti_id=str(ti.id),
    )


def _runtime_env(operator: RayTenantJobOperator, view: TenantView) -> tuple[dict[str, Any], list[Package]]:
    """The merged environment with every folder replaced by its package, and these packages."""
    try:
        env = envs.merge(view.tenant.runtime_env, _task_env(operator))
    except ValueError as error:
        raise RequestError(str(error)) from None
    tenant, beside = view.tenant, _dag_folder(operator)
    excludes = env.pop("excludes", ())
    packages = [runner_package(tenant.name)]
    if "working_dir" in env:
        location = env["working_dir"]
        if _is_url(location):
            env["working_dir"] = checked_archive("working_dir", location, tenant)
        else:
            folder = _named("working_dir", beside / location, tenant.name, "", excludes)
            packages.append(folder)
            env["working_dir"] = folder.uri
    modules = []
    for index, location in enumerate(env.get("py_modules", [])):
        argument = f"py_modules[{index}]"
        if _is_url(location):
            modules.append(checked_archive(argument, location, tenant))
        else:
            path = beside / location
            package = _named(argument, path, tenant.name, path.name, excludes)
            packages.append(package)
            modules.append(package.uri)
    # Ray puts later modules before earlier ones on the path: the runner comes last to be found first.
    env["py_modules"] = [*modules, packages[0].uri]
    return env, packages


def _task_env(operator: RayTenantJobOperator) -> dict[str, Any]:
    """The task's arguments as one runtime environment; each key may be given one way only."""
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


def _dag_folder(operator: RayTenantJobOperator) -> Path:
    dag = operator.get_dag()
    fileloc = getattr(dag, "fileloc", None)
    return Path(fileloc).parent if fileloc else Path.cwd()


def _result_max_bytes() -> int:
    from airflow.sdk.configuration import conf

    return int(conf.getint("raytenant", "result_max_bytes", fallback=DEFAULT_RESULT_BYTES))


def _needs_worker(operator: RayTenantJobOperator) -> bool:
    """Whether the end of the task needs a worker: a trigger's end skips these without a word."""
    mails = bool(operator.email) and (operator.email_on_failure or operator.email_on_retry)
    return bool(operator.outlets or operator.on_success_callback or mails)


def _refuse_secrets(request: Mapping[str, Any]) -> None:
    """Ray shows the request to everyone on the cluster and Airflow stores it in plain text.

    What Airflow's secrets masker knows as a secret (a connection's password, a sensitive variable that
    a template read) must not be in it.
    """
    shown = {key: value for key, value in request.items() if key != "submission_id"}
    for path, text in _texts(shown, ""):
        if redact(text) != text:
            raise PolicyError(
                f"{path}: found a value that Airflow knows as a secret; allowed: values that everyone "
                "on the cluster may see (Ray shows them)",
                rule="secrets",
            )


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{index}]")


__all__ = ["Prepared", "prepare", "run_here", "stop_here"]
