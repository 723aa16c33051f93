"""Small DAGs that the end-to-end tests run: each shows one promise of the operator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Asset, task

from airflow_provider_raytenant import RayTenantJobOperator, Workers

START = datetime(2013, 1, 1, tzinfo=UTC)
SLEEPER = ["python", "-c", "import time; print('asleep', flush=True); time.sleep(300)"]
QUICK = {"poll_interval": 1.0, "memory": "256MiB"}


def whoami(tenant: str, version: str) -> None:
    """A job that tells what it sees of itself."""
    RayTenantJobOperator(
        task_id="whoami",
        tenant=tenant,
        entrypoint=["python", "-m", "probe_kit.whoami"],
        working_dir=f"{tenant}_code",
        py_modules=["probe_kit"],
        pip=[f"humanize=={version}"],
        env_vars={
            f"PROBE_{tenant.upper()}": "{{ ds_nodash if ds_nodash is defined else 'none' }}",
            "PROBE_GATE": "{{ dag_run.conf.get('gate', '') }}",
        },
        metadata={"owner": tenant},
        **QUICK,
    )


with DAG("whoami_acme", schedule=None, start_date=START):
    whoami("acme", "4.9.0")

with DAG("whoami_globex", schedule=None, start_date=START):
    whoami("globex", "4.12.0")

with DAG("result", schedule=None, start_date=START):
    # A string goes to the shell verbatim; without a working_dir the job starts in an empty folder.
    made = RayTenantJobOperator(
        task_id="make",
        tenant="acme",
        entrypoint="""printf '{"files": %s, "quoted": "%s"}' "$(ls -A | wc -l)" "a  b" \\
            > "$RAYTENANT_RESULT_PATH" """,
        **QUICK,
    )

    @task
    def use(value: dict[str, object]) -> object:
        """Downstream gets a dict, not a text."""
        return value["quoted"]

    use(made.output)

with DAG("fails", schedule=None, start_date=START):
    RayTenantJobOperator(
        task_id="exit3",
        tenant="acme",
        entrypoint="echo before the end; exit 3",
        retries=1,
        retry_delay=timedelta(seconds=1),
        **QUICK,
    )

with DAG("bad_result", schedule=None, start_date=START):
    RayTenantJobOperator(
        task_id="nan",
        tenant="acme",
        entrypoint='echo \'{"auc": [1, NaN]}\' > "$RAYTENANT_RESULT_PATH"',
        retries=3,
        retry_delay=timedelta(seconds=1),
        **QUICK,
    )

with DAG("times_out", schedule=None, start_date=START):
    RayTenantJobOperator(
        task_id="sleeper", tenant="acme", entrypoint=SLEEPER, job_timeout=timedelta(seconds=2), **QUICK
    )

with DAG("sleeps", schedule=None, start_date=START):
    RayTenantJobOperator(task_id="sleeper", tenant="acme", entrypoint=SLEEPER, **QUICK)

with DAG("skips", schedule=None, start_date=START):
    RayTenantJobOperator(
        task_id="skip", tenant="acme", entrypoint="echo nothing to do; exit 99", skip_on_exit_code=99, **QUICK
    )

with DAG("bad_pip", schedule=None, start_date=START):
    # Found out by pip on the node: no retry can mend it.
    RayTenantJobOperator(
        task_id="setup",
        tenant="acme",
        entrypoint="true",
        pip=["raytenant-there-is-no-such-package==1.0"],
        retries=3,
        retry_delay=timedelta(seconds=1),
        **QUICK,
    )

with DAG("outlives", schedule=None, start_date=START):
    RayTenantJobOperator(
        task_id="sleeper",
        tenant="acme",
        entrypoint=SLEEPER,
        execution_timeout=timedelta(seconds=12),
        **QUICK,
    )

with DAG("outlets", schedule=None, start_date=START):
    RayTenantJobOperator(
        task_id="produce",
        tenant="globex",
        entrypoint="echo 41 > $RAYTENANT_RESULT_PATH",
        outlets=[Asset("raytenant://probe")],
        **QUICK,
    )

with DAG("maps_over", schedule=None, start_date=START):
    parts = RayTenantJobOperator(
        task_id="parts", tenant="globex", entrypoint='echo "[1, 2, 3]" > $RAYTENANT_RESULT_PATH', **QUICK
    )

    @task
    def double(part: int) -> int:
        """One mapped task for each part that the job named."""
        return 2 * part

    double.expand(part=parts.output)

with DAG("waits", schedule=None, start_date=START):
    RayTenantJobOperator(task_id="sleeper", tenant="globex", entrypoint=SLEEPER, deferrable=False, **QUICK)

with DAG("on_worker", schedule=None, start_date=START):
    RayTenantJobOperator(
        task_id="wait",
        tenant="globex",
        entrypoint="echo on the worker; echo 42 > $RAYTENANT_RESULT_PATH",
        deferrable=False,
        **QUICK,
    )

with DAG("foreign", schedule=None, start_date=START):
    RayTenantJobOperator(
        task_id="thief",
        tenant="globex",
        entrypoint="true",
        working_dir="{{ dag_run.conf.get('code', 's3://raytenant/tenants/acme/code.zip') }}",
        retries=3,
        **QUICK,
    )

with DAG("too_big", schedule=None, start_date=START):
    # Allowed, since acme has no limit, but no pool of this cluster will ever hold it.
    RayTenantJobOperator(task_id="giant", tenant="acme", entrypoint="true", memory="64GiB")

with DAG("fits_nowhere", schedule=None, start_date=START):
    RayTenantJobOperator(
        task_id="fpga", tenant="acme", entrypoint="true", resources={"fpga": 1}, retries=3, **QUICK
    )

with DAG("mapped", schedule=None, start_date=START):
    RayTenantJobOperator.partial(
        task_id="each", tenant="acme", workers=Workers(count=2, num_cpus=0.5, memory="256MiB"), **QUICK
    ).expand(entrypoint=["echo 1 > $RAYTENANT_RESULT_PATH", "echo 2 > $RAYTENANT_RESULT_PATH"])
