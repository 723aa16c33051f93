"""From a rendered operator to a request that is ready to be submitted: all that ``execute`` does.

Apart from the operator's module, so that importing an operator in a DAG does not import an HTTP client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airflow.sdk import BaseOperator

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.dedication import misfit_of
from airflow_provider_raytenant.domain.job_spec import (
    Placement,
    TryIdentity,
    checked_entrypoint,
    checked_metadata,
    job_request,
    runner_entrypoint,
    with_worker_hook,
)
from airflow_provider_raytenant.domain.lifecycle import Limits, outage_pause
from airflow_provider_raytenant.domain.rules import check_origin, check_secrets
from airflow_provider_raytenant.domain.status import LIVE
from airflow_provider_raytenant.domain.tenants import RoleCredentials
from airflow_provider_raytenant.exceptions import (
    DoesNotFitError,
    RayUnavailableError,
    RequestError,
    RetryableError,
)
from airflow_provider_raytenant.hooks.ray import RayHook
from airflow_provider_raytenant.operators.environment import job_environment
from airflow_provider_raytenant.operators.held import HeldJob
from airflow_provider_raytenant.operators.secrets import refuse_secrets
from airflow_provider_raytenant.operators.texts import refuse_broken_texts
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from airflow_provider_raytenant.ray_api.packages import (
    Package,
    ensure_uploaded,
)
from airflow_provider_raytenant.ray_api.stopping import stop_job
from airflow_provider_raytenant.ray_api.tickets import issue_ticket, ticket_package
from airflow_provider_raytenant.ray_api.watch import WatchSettings
from airflow_provider_raytenant.runner.arguments import LARGEST_RESULT_MAX_BYTES
from airflow_provider_raytenant.tenant_file import TenantView

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_raytenant.operators.job import RayTenantJobOperator
    from airflow_provider_raytenant.triggers.job import RayTenantJobTrigger

DEFAULT_RESULT_BYTES = 64 * 1024

NODES_JOIN_WITHIN: Final = 60.0
"""Seconds after the start of a head in which its nodes may still be to come."""

_LOG: Final = logging.getLogger("airflow.task")
_T = TypeVar("_T")

OLDER_TRY_PATIENCE = 300.0
"""Seconds to see a running job of an older try end."""

OLDER_TRY_WAITING = 20.0
"""Seconds to see one end that waits in Ray, which its environment may let happen; then the loss of its ticket
is enough, since Ray may take note of its stop only after a quarter of an hour."""


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
    access: Access | None = None

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
            watch=self.settings.to_json(),
            resume_on_worker=self.resume_on_worker,
            retries_left=self.retries_left,
            push_result=self.push_result,
            access=self.access.to_json() if self.access else None,
        )


def prepare(operator: RayTenantJobOperator, context: Context, *, keep: str | None = None) -> Prepared:
    """Check the rendered arguments, put the job's code on the cluster, stop jobs of older tries.

    :param keep: the submission id of an older try's job that this one goes on with.
    :raises TerminalError: something is wrong that a retry cannot mend; nothing was submitted.
    :raises RetryableError: Ray gave no sound answer.
    """
    view, placement = operator.sizing.view, operator.sizing.placement
    if operator.sizing.tiny is not None:
        operator.log.warning("%s", operator.sizing.tiny)
    check_origin(view.tenant, *_origin(context))
    refuse_broken_texts(operator)
    identity = _identity(view, context)
    settings = _watch_settings(operator)
    deadline = settings.limits.of_runner
    env, packages, copy_cwd = job_environment(operator, view, context, identity.submission_id)
    env["py_modules"].append(ticket_package(identity.submission_id).uri)
    access = _access(operator, view, identity.submission_id)
    if access is not None:
        env = with_worker_hook(env)
    entrypoint = runner_entrypoint(
        checked_entrypoint(operator.entrypoint),
        ticket=identity.submission_id,
        private_cwd="working_dir" not in env,
        copy_cwd=copy_cwd,
        job_timeout=deadline[1] if deadline else None,
        result_max_bytes=_result_max_bytes(),
    )
    request = job_request(
        identity=identity,
        placement=placement,
        entrypoint=entrypoint,
        runtime_env=env,
        storage=str(view.tenant.prefix) if view.tenant.prefix else None,
        metadata=checked_metadata(operator.metadata),
        adoptable=not operator.deferrable,
    )
    hook = RayHook(view.cluster.ray_conn_id)
    # Reading the connection makes its token known to the masker, which is asked next.
    endpoint = hook.endpoint()
    refuse_secrets(request)
    patience = operator.outage_budget
    ti: Any = context["ti"]
    note = HeldJob(context, operator.log)
    if ti.try_number > 1:
        older = _noted_job(note, {keep, identity.submission_id})
        through_outages(lambda: _stop_older_tries(endpoint, identity, keep, older, operator.log), patience)
    # From here on a try that comes after this one knows of its job, whoever submits it and when.
    note.write(keep or identity.submission_id)
    through_outages(lambda: _make_ready(endpoint, operator, view, placement, identity, packages), patience)
    return Prepared(
        endpoint=endpoint,
        ray_conn_id=hook.ray_conn_id,
        request=request,
        settings=settings,
        resume_on_worker=_needs_worker(operator),
        retries_left=ti.try_number <= (ti.max_tries or 0),
        push_result=bool(operator.do_xcom_push),
        access=access,
    )


def _access(operator: RayTenantJobOperator, view: TenantView, submission_id: str) -> Access | None:
    """What the job is to be granted; ``None`` for a tenant without credentials of its own."""
    check_secrets(view.tenant, operator.secrets)
    credentials, prefix = view.tenant.credentials, view.tenant.prefix
    if not isinstance(credentials, RoleCredentials) or prefix is None:
        return None
    return Access(
        aws_conn_id=credentials.aws_conn_id,
        role_arn=credentials.role_arn,
        prefix=str(prefix),
        submission_id=submission_id,
        duration=credentials.duration,
        node_endpoint_url=credentials.node_endpoint_url,
        secrets=operator.secrets,
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
        await _see_that_it_fits(client, operator.log, view, placement)
        await issue_ticket(client, identity.submission_id)
        uploads = await ensure_uploaded(client, packages)
        if uploads:
            operator.log.info("Uploaded %d of the job's %d packages.", uploads, len(packages))


async def _see_that_it_fits(client: RayClient, log: Any, view: TenantView, placement: Placement) -> None:
    """Fail at once where no node can ever hold the job; but nodes come back some time after their head.

    :raises DoesNotFitError: with the numbers.
    """
    told = False
    while True:
        nodes = await client.nodes()
        reason = _misfit(view, placement, nodes)
        if reason is None:
            return
        if not _is_starting(nodes):
            raise DoesNotFitError(reason)
        if not told:
            log.info("%s; its head was just started, so its nodes may be to come.", reason)
        told = True
        await asyncio.sleep(2.0)


def _misfit(view: TenantView, placement: Placement, nodes: list[Node]) -> str | None:
    wanted = [("driver", placement.driver, placement.selector)]
    if placement.worker is not None:
        wanted.append(("worker", placement.worker, {}))
    for role, need, selector in wanted:
        reason = misfit_of(view.tenant.nodes, view.dedicated, need, selector, view.cluster, nodes)
        if reason:
            return f"a {role} of this job {reason} in cluster {view.tenant.cluster}"
    return None


def _is_starting(nodes: list[Node]) -> bool:
    """Whether the head is younger than :data:`NODES_JOIN_WITHIN`; its clock and ours may differ a little."""
    starts = [node.started_at for node in nodes if node.is_head and node.started_at is not None]
    return any(abs(time.time() - start) < NODES_JOIN_WITHIN for start in starts)


def _noted_job(note: HeldJob, known: Collection[str | None]) -> str | None:
    """The job that an older try was about, by its own note: Ray need not know it yet."""
    stored = note.read()
    found = stored.get("submission_id") if isinstance(stored, Mapping) else None
    return found if isinstance(found, str) and found not in known else None


async def _stop_older_tries(
    endpoint: RayEndpoint, identity: TryIdentity, keep: str | None, noted: str | None, log: Any
) -> None:
    """A new try starts clean: a clear can overtake the end of the try before, and even its submit."""
    async with RayClient(endpoint) as client:
        jobs = (await client.listing()).jobs.values()
        older = {
            job.submission_id: f"Stopping job {job.submission_id} of an older try of this task."
            for job in jobs
            if job.submission_id != keep and job.status in LIVE and identity.is_older_try(job.metadata)
        }
        if noted is not None:
            older.setdefault(noted, "")
        for submission_id, told in older.items():
            if told:
                log.info("%s", told)
            if not await stop_job(
                client, submission_id, patience=OLDER_TRY_PATIENCE, waiting=OLDER_TRY_WAITING
            ):
                raise RetryableError(
                    f"job {submission_id} of an older try does not end; not starting another"
                )


def through_outages(ask: Callable[[], Coroutine[Any, Any, _T]], patience: float) -> _T:
    """The answer of Ray, asked for again while it gives none that is sound.

    :param ask: may be called again and again without harm.
    :param patience: seconds to go on for.
    :raises RayUnavailableError: there was no sound answer for so long.
    """
    begun: float | None = None
    while True:
        try:
            return asyncio.run(ask())
        except RayUnavailableError as error:
            now = time.monotonic()
            if begun is None:
                begun = now
                _LOG.warning("%s. Trying for %g s.", error, patience)
            if now - begun > patience:
                raise
            time.sleep(outage_pause(now - begun))


def _origin(context: Context) -> tuple[str | None, str | None]:
    """The DAG's bundle and its team; ``None`` for what Airflow does not say."""
    ti: Any = context["ti"]
    run: Any = context.get("dag_run")
    return getattr(getattr(ti, "bundle_instance", None), "name", None), getattr(run, "team_name", None)


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


def _watch_settings(operator: RayTenantJobOperator) -> WatchSettings:
    """How the job is to be watched. ``execution_timeout`` counts from now: `execute` has just begun."""
    execution = operator.execution_timeout.total_seconds() if operator.execution_timeout else None
    return WatchSettings(
        limits=Limits(
            queue_timeout=operator.queue_timeout,
            job_timeout=operator.job_timeout,
            execution_timeout=execution,
            outage_budget=operator.outage_budget,
            poll_interval=operator.poll_interval,
        ),
        prepared_at=time.time(),
        skip_on=operator.skip_on_exit_code,
        needs_result=bool(operator.do_xcom_push),
        on_overuse=operator.on_overuse,
    )


def _result_max_bytes() -> int:
    from airflow.sdk.configuration import conf

    size = int(conf.getint("raytenant", "result_max_bytes", fallback=DEFAULT_RESULT_BYTES))
    if not 0 < size <= LARGEST_RESULT_MAX_BYTES:
        raise RequestError(
            f"[raytenant] result_max_bytes: found {size}; allowed: 1 to {LARGEST_RESULT_MAX_BYTES} bytes"
        )
    return size


def _needs_worker(operator: RayTenantJobOperator) -> bool:
    """Whether the end of the task needs a worker: a trigger's end skips these without a word."""
    mails = bool(operator.email) and (operator.email_on_failure or operator.email_on_retry)
    return bool(
        operator.outlets
        or operator.on_success_callback
        or mails
        or getattr(operator, "multiple_outputs", False)
        or getattr(operator, "returns_dag_result", False)
        or getattr(operator, "_post_execute_hook", None)
        or type(operator).post_execute is not BaseOperator.post_execute
        # The number of mapped tasks downstream is written by a worker, beside the result.
        or (operator.get_dag() is not None and next(iter(operator.iter_mapped_dependants()), None))
    )
