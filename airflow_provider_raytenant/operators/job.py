"""The operator that DAG authors use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import get_merged_defaults
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_raytenant.domain.lifecycle import OUTAGE_BUDGET, QUEUE_TIMEOUT
from airflow_provider_raytenant.domain.outcome import FAILURE_KEY, Outcome
from airflow_provider_raytenant.domain.resources import Workers
from airflow_provider_raytenant.domain.rules import check_secrets
from airflow_provider_raytenant.domain.secrets import Secret, checked_secrets
from airflow_provider_raytenant.domain.tenants import RoleCredentials
from airflow_provider_raytenant.domain.usage import USAGE_KEY, OnOveruse, checked_on_overuse
from airflow_provider_raytenant.exceptions import (
    JobFailedError,
    PackageLostError,
    RayTenantError,
    RequestError,
)
from airflow_provider_raytenant.links.dashboard import RayJobLink
from airflow_provider_raytenant.operators.scheduling import for_scheduler
from airflow_provider_raytenant.operators.sizing import SIZING_ARGUMENTS, SizedPartial, Sizing, size
from airflow_provider_raytenant.priority import live_first
from airflow_provider_raytenant.runner.ending import EXIT_JOB_TIMEOUT, EXIT_NO_TICKET, EXIT_RESULT_REFUSED

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

    from airflow_provider_raytenant.operators.wait import WaitedJob

__all__ = ["RayTenantJobOperator", "Secret", "Workers"]

CLAIM_MARGIN = 60
"""Seconds before the end of its credentials in which a job is no longer to begin."""


class RayTenantJobOperator(BaseOperator):
    """Runs the task as a Ray Job of one tenant.

    ``pool`` and ``pool_slots`` come from the footprint (driver and workers) and the tenant file, so that
    Airflow's scheduler queues what the tenant's share of the cluster cannot hold yet. The task defers;
    its trigger submits the job, follows it, copies its output into the task's log and ends the task.

    Example::

        RayTenantJobOperator(
            task_id="train",
            tenant="acme",
            entrypoint=["python", "train.py", "{{ ds }}"],
            num_cpus=1,
            memory="2GiB",
            workers=Workers(count=4, num_cpus=2, memory="4GiB"),
            working_dir="train_job",
            pip=["pandas==2.2.3"],
            env_vars={"MODEL": "ridge"},
            job_timeout=timedelta(hours=1),
        )

    :param tenant: a tenant of the tenant file, ``"acme"``.
    :param entrypoint: a string for the shell, ``"cd src && python x.py > out.txt"``, or a list that is
        executed as it is, ``["python", "x.py", "{{ ds }}"]``. (templated)
    :param num_cpus: CPUs of the driver, ``0.5``. Default 1; never 0, since Ray would pin it to the head.
    :param num_gpus: GPUs of the driver, ``1``. Default 0.
    :param memory: memory that Ray reserves for the driver, ``"2GiB"`` or bytes. Default: none reserved.
    :param resources: custom resources of the driver, ``{"fpga": 1}``.
    :param label_selector: labels of the node for the driver, ``{"zone": "in(a,b)"}``.
    :param workers: what the job's own tasks and actors will use at a time,
        ``Workers(count=4, num_cpus=2, memory="4GiB")``. Ray does not hold a job to it.
    :param working_dir: where the job starts: a folder beside the DAG file, ``"train_job"``, or an archive
        below the tenant's prefix, ``"s3://lake/tenants/acme/code/train.zip"``. Default: a private empty
        folder. (templated)
    :param py_modules: Python packages to import, folders or archives as above, ``["shared_code"]``.
        (templated)
    :param pip: requirements, ``["pandas==2.2.3"]``; they win over the tenant's own by package. (templated)
    :param env_vars: environment of driver and workers, ``{"MODEL": "ridge"}``. Ray shows it to everybody
        on the cluster: nothing secret belongs here. (templated)
    :param secrets: environment variables of driver and workers whose values stand in Airflow's secrets
        backends, ``{"DB_PASSWORD": Secret.variable("acme_db_password")}``. They are looked up when the job is
        submitted, appear nowhere in Ray or Airflow, and are masked in the job's output. The tenant's rule
        ``secrets`` says which names it may use.
    :param runtime_env: any other key of Ray's runtime environment, ``{"excludes": ["*.csv"]}``. (templated)
    :param metadata: shown with the job on Ray's dashboard, ``{"owner": "ann"}``. (templated)
    :param job_timeout: seconds or a timedelta that the entrypoint may run, ``timedelta(hours=1)``. Default:
        no limit. The task's ``execution_timeout``, which counts from its own start, is kept too, although
        Airflow itself does not keep it while a task is deferred.
    :param queue_timeout: seconds or a timedelta that the job may wait in Ray for its environment and for
        resources, ``timedelta(minutes=5)``. Default 840 s, below Ray's own 900 s; the failure is retryable.
    :param outage_budget: seconds or a timedelta without a sound answer from Ray after which the task fails
        (retryable), ``timedelta(minutes=30)``. Default 600 s. The job is not affected by an outage.
    :param skip_on_exit_code: exit codes of the entrypoint that mark the task skipped, ``99`` or ``[98, 99]``.
        Default: none.
    :param on_overuse: what to do when the job's tasks and actors hold more in Ray than the footprint says:
        ``"warn"`` in the task's log (default) or ``"ignore"``, which does not look. What counts is what Ray
        reserves: a process that uses more than it asked Ray for is not seen. The peak stands in the log and
        in the XCom ``raytenant_usage``, beside the seconds that the entrypoint ran; a job that ends within
        some seconds may have no peak, and with ``do_xcom_push=False`` it then has no such XCom.
    :param poll_interval: longest time between two looks at the job, in seconds. Default 5.
    :param deferrable: wait in the triggerer (default) or, with ``False``, on the worker.
    :param pool: another pool than the tenant's, where its rules allow it.
    :param pool_slots: more slots than the footprint takes; needed where ``expand()`` maps the footprint.

    :raises RequestError: an argument is wrong (when the DAG is parsed, as far as it can be known there).
    """

    template_fields = (
        "entrypoint",
        "working_dir",
        "py_modules",
        "pip",
        "env_vars",
        "runtime_env",
        "metadata",
    )
    template_fields_renderers = {
        "entrypoint": "bash",
        "env_vars": "json",
        "runtime_env": "json",
        "metadata": "json",
    }
    operator_extra_links = (RayJobLink(),)
    ui_color = "#e6f2fb"

    def __init__(
        self,
        *,
        tenant: str,
        entrypoint: str | Sequence[str],
        num_cpus: float = 1,
        num_gpus: float = 0,
        memory: str | int | None = None,
        resources: Mapping[str, float] | None = None,
        label_selector: Mapping[str, str] | None = None,
        workers: Workers | None = None,
        working_dir: str | None = None,
        py_modules: Sequence[str] | None = None,
        pip: Sequence[str] | Mapping[str, Any] | None = None,
        env_vars: Mapping[str, str] | None = None,
        secrets: Mapping[str, Secret] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        job_timeout: timedelta | float | None = None,
        queue_timeout: timedelta | float = QUEUE_TIMEOUT,
        outage_budget: timedelta | float = OUTAGE_BUDGET,
        skip_on_exit_code: int | Sequence[int] | None = None,
        on_overuse: str = OnOveruse.WARN,
        poll_interval: timedelta | float = 5.0,
        deferrable: bool = True,
        pool: str | None = None,
        pool_slots: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.sizing = size(
            tenant,
            pool=pool,
            pool_slots=pool_slots,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            memory=memory,
            resources=resources,
            workers=workers,
            label_selector=label_selector,
        )
        super().__init__(pool=self.sizing.pool, pool_slots=self.sizing.pool_slots, **kwargs)
        self.weight_rule = live_first(self.weight_rule)
        self.tenant = tenant
        self.entrypoint = entrypoint
        self.label_selector = label_selector
        self.working_dir = working_dir
        self.py_modules = py_modules
        self.pip = pip
        self.env_vars = env_vars
        self.secrets = checked_secrets(secrets)
        check_secrets(self.sizing.view.tenant, self.secrets)
        self.runtime_env = runtime_env
        self.metadata = metadata
        self.job_timeout = None if job_timeout is None else _seconds("job_timeout", job_timeout)
        self.queue_timeout = _within_life(self.sizing, _seconds("queue_timeout", queue_timeout))
        self.outage_budget = _seconds("outage_budget", outage_budget)
        self.skip_on_exit_code = _exit_codes(skip_on_exit_code)
        self.on_overuse = checked_on_overuse(on_overuse)
        self.poll_interval = _seconds("poll_interval", poll_interval)
        self.deferrable = deferrable
        self.job_page = ""
        self.killed = False
        self._waits_for: WaitedJob | None = None

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """As :meth:`BaseOperator.partial`, with pool and slots computed.

        Mapped tasks take both from here only; without it they would land in ``default_pool``.
        """
        dag = kwargs.get("dag") or _current_dag()
        defaults, _ = get_merged_defaults(
            dag=dag,
            task_group=kwargs.get("task_group") or _current_task_group(dag),
            task_params=None,
            task_default_args=kwargs.get("default_args"),
        )
        known = {**defaults, **kwargs}
        if known.get("tenant") is None:
            raise RequestError(
                "tenant: found nothing in partial(); allowed: the name of a tenant, since it names the pool"
            )
        given = {name: known[name] for name in ("pool", "pool_slots", *SIZING_ARGUMENTS) if name in known}
        sizing = size(known["tenant"], **given)
        kwargs |= {"pool": sizing.pool, "pool_slots": sizing.pool_slots}
        plain = super().partial(**kwargs)
        plain.kwargs |= for_scheduler(plain.kwargs, defaults)
        plain._expand_called = True  # The one that is returned warns by itself if it is never mapped.
        return SizedPartial(
            operator_class=plain.operator_class,
            kwargs=plain.kwargs,
            params=plain.params,
            slots_given=known.get("pool_slots") is not None,
        )

    def execute(self, context: Context) -> Any:
        """Check and prepare everything, submit nothing, and hand over to the trigger."""
        from airflow_provider_raytenant.operators.prepare import prepare
        from airflow_provider_raytenant.operators.wait import run_here

        if not self.deferrable:
            with self._telling(context):
                outcome = run_here(self, context)
            return self._finish(context, outcome)
        with self._telling(context):
            prepared = prepare(self, context)
        self.job_page = prepared.endpoint.job_page(prepared.submission_id)
        self.log.info("Ray job %s: %s", prepared.submission_id, self.job_page)
        # `defer` raises: it never comes back.
        return self.defer(trigger=prepared.trigger(), method_name=self.execute_complete.__name__)

    def execute_complete(self, context: Context, event: Any) -> Any:
        """The end of a task that needs a worker for it.

        :param event: what the trigger found; a plain text under ``dag.test()`` of some Airflow versions.
        """
        if not isinstance(event, Mapping):
            if event == "success":
                return None
            raise JobFailedError(f"the Ray job failed (its trigger said {event!r}); its output is above")
        outcome = Outcome.from_json(event)
        if isinstance(outcome.error, PackageLostError):
            # The trigger came too late for what Ray keeps for ten minutes. The try is still the same.
            self.log.info("%s; preparing the job once more.", outcome.error)
            return self.execute(context)
        return self._finish(context, outcome)

    def _finish(self, context: Context, outcome: Outcome) -> Any:
        if outcome.usage is not None:
            context["ti"].xcom_push(USAGE_KEY, dict(outcome.usage))
        if outcome.skipped:
            raise AirflowSkipException("the exit code of the job's entrypoint skips the task")
        if outcome.error is not None:
            self._fail(context, outcome)
        return outcome.result

    @contextmanager
    def _telling(self, context: Context) -> Iterator[None]:
        """What fails before there is an outcome is told in the same way as a job that failed."""
        try:
            yield
        except RayTenantError as error:
            self._fail(context, Outcome("", error=error))

    def _fail(self, context: Context, outcome: Outcome) -> NoReturn:
        """Fail with the failure in an XCom, and without burning retries where they cannot help."""
        context["ti"].xcom_push(FAILURE_KEY, outcome.failure())
        if outcome.error is None or not outcome.retryable:
            raise AirflowFailException(str(outcome.error)) from outcome.error
        raise outcome.error

    def wait_for(self, job: WaitedJob) -> None:
        """Remember the job that this worker waits for: ``on_kill`` stops it."""
        self.job_page = job.endpoint.job_page(job.submission_id)
        self._waits_for = job
        self.log.info("Ray job %s: %s", job.submission_id, self.job_page)

    def on_kill(self) -> None:
        """Stop the job of a task that waits on its worker, or keep it from being submitted."""
        self.killed = True
        if self._waits_for is not None:
            from airflow_provider_raytenant.operators.wait import stop_here

            stop_here(self._waits_for, self.log)


def _current_dag() -> Any:
    from airflow.sdk.definitions._internal.contextmanager import DagContext

    return DagContext.get_current()


def _current_task_group(dag: Any) -> Any:
    from airflow.sdk.definitions._internal.contextmanager import TaskGroupContext

    return TaskGroupContext.get_current(dag) if dag else None


def _seconds(name: str, value: timedelta | float) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds < 1e9:
        raise RequestError(f"{name}: found {value!r}; allowed: seconds above 0, or a timedelta")
    return float(seconds)


def _within_life(sizing: Sizing, queue_timeout: float) -> float:
    """The time that a job may wait, which is over before its ticket's address is."""
    credentials = sizing.view.tenant.credentials
    if not isinstance(credentials, RoleCredentials):
        return queue_timeout
    longest = credentials.duration - CLAIM_MARGIN
    if queue_timeout > longest:
        raise RequestError(
            f"queue_timeout: found {queue_timeout:g} s; allowed for tenant {sizing.view.tenant.name}: "
            f"at most {longest} s, since a job claims its credentials when it starts, and they are valid for "
            f"{credentials.duration} s (credentials.duration of the tenant file)"
        )
    return queue_timeout


def _exit_codes(value: int | Sequence[int] | None) -> list[int]:
    codes = [] if value is None else [value] if isinstance(value, int) else value
    ours = (EXIT_RESULT_REFUSED, EXIT_NO_TICKET, EXIT_JOB_TIMEOUT)
    good = isinstance(codes, (list, tuple, set, frozenset)) and all(
        isinstance(code, int) and not isinstance(code, bool) and 0 < code < 256 and code not in ours
        for code in codes
    )
    if not good:
        raise RequestError(
            f"skip_on_exit_code: found {value!r}; allowed: exit codes from 1 to 255, other than the runner's "
            f"own {', '.join(map(str, ours))}"
        )
    return sorted(codes)
