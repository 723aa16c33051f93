"""The commands of ``airflow raytenant``. Imported on every ``airflow`` call: the work is imported late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand, lazy_load_command, positive_int

if TYPE_CHECKING:
    from airflow.cli.cli_config import CLICommand

_PACKAGE = "airflow_provider_raytenant.cli"

ARG_FILE = Arg(
    ("--file",), help="the tenant file; default: [raytenant] config_file of the configuration", metavar="PATH"
)
ARG_OUTPUT = Arg(
    ("-o", "--output"),
    help="how to print: table, json or yaml",
    choices=("table", "json", "yaml"),
    default="table",
)
ARG_DRY_RUN = Arg(("--dry-run",), help="print what would change, and change nothing", action="store_true")
ARG_DIRECTORY = Arg(
    ("--directory",), help="where state and logs are; default: ~/.raytenant/local", metavar="PATH"
)
ARG_CPUS = Arg(
    ("--cpus",),
    help="CPUs that Ray offers; default: those of this machine",
    type=positive_int(allow_zero=False),
)
ARG_MEMORY = Arg(("--memory",), help="memory that Ray offers, like 8GiB; default: 4GiB")
ARG_RAY = Arg(
    ("--ray",), help="the ray program to start; default: the one beside this Python", metavar="PATH"
)
ARG_TOKEN = Arg(("--token",), help="ask for this token (RAY_AUTH_MODE=token); default: no authentication")
ARG_CONN_ID = Arg(
    ("--conn-id",), help="the Airflow connection to write; default: ray_local", default="ray_local"
)
ARG_TENANT = Arg(("--tenant",), help="only this tenant's jobs")
ARG_ALL = Arg(("--all",), help="jobs that have ended, too", action="store_true")
ARG_JOB = Arg(
    ("submission_id",),
    help="a submission id, or the beginning of an id that `jobs list` shows",
    metavar="JOB",
)
ARG_JOBS = Arg(
    ("submission_ids",),
    help="submission ids, or beginnings of ids that `jobs list` shows",
    metavar="JOB",
    nargs="+",
)
ARG_OLDER_THAN = Arg(
    ("--older-than",),
    help="delete records of jobs that ended longer ago: 90s, 30m, 12h, 7d; default: 7d",
    default="7d",
)
ARG_SINCE = Arg(("--since",), help="how far to look back: 90s, 30m, 12h, 7d; default: 30d", default="30d")
ARG_USAGE_TENANT = Arg(("--tenant",), help="only this tenant's usage")
ARG_BY = Arg(
    ("--by",), help="a row for each tenant, or for each DAG", choices=("tenant", "dag"), default="tenant"
)
ARG_INTERVAL = Arg(("--interval",), help="seconds between two rounds; default: 5", default="5")
ARG_ONCE = Arg(
    ("--once",), help="one round and out; exit code 1 if something went wrong", action="store_true"
)
ARG_CLUSTER = Arg(("--cluster",), help="only this cluster and its tenants")
ARG_DOCTOR_TENANT = Arg(("--tenant",), help="only this tenant and its cluster")
ARG_NAME = Arg(
    ("name",),
    help="a cluster or a tenant; where both have that name, cluster:NAME or tenant:NAME",
    metavar="CLUSTER|TENANT",
)
ARG_NO_JOBS = Arg(("--no-jobs",), help="leave out what needs a tiny job on each cluster", action="store_true")
ARG_DAG_ID = Arg(("dag_id",), help="the id of the DAG", metavar="DAG_ID")
ARG_RUN_ID = Arg(
    ("run_id",), help="the id of the run, like scheduled__2026-12-01T00:00:00+00:00", metavar="RUN_ID"
)
ARG_TASK_ID = Arg(("task_id",), help="the id of the task", metavar="TASK_ID")
ARG_MAP_INDEX = Arg(("--map-index",), help="which instance of a mapped task", type=int, metavar="N")
ARG_STRICT = Arg(("--strict",), help="exit code 1 for a warning, too", action="store_true")


def get_raytenant_commands() -> list[CLICommand]:
    """The command group for Airflow's parser."""
    return [
        GroupCommand(
            name="raytenant",
            help="Run tasks as Ray Jobs of tenants",
            subcommands=(
                GroupCommand(name="tenants", help="The tenant file", subcommands=_tenants()),
                GroupCommand(name="pools", help="The pools of the tenants", subcommands=_pools()),
                GroupCommand(name="jobs", help="The Ray jobs of the tenants", subcommands=_jobs()),
                ActionCommand(
                    name="controller",
                    help="Keep the pools right and sweep the clusters, until SIGTERM",
                    func=lazy_load_command(f"{_PACKAGE}.controller.controller"),
                    args=(ARG_FILE, ARG_INTERVAL, ARG_ONCE, ARG_OLDER_THAN),
                ),
                ActionCommand(
                    name="pause",
                    help="Let nothing new start on a cluster, or of a tenant; what runs goes on to its end",
                    func=lazy_load_command(f"{_PACKAGE}.pauses.pause"),
                    args=(ARG_NAME, ARG_FILE),
                ),
                ActionCommand(
                    name="resume",
                    help="End a pause",
                    func=lazy_load_command(f"{_PACKAGE}.pauses.resume"),
                    args=(ARG_NAME, ARG_FILE),
                ),
                ActionCommand(
                    name="doctor",
                    help="Try what clusters, tenants and Airflow need; exit code 1 if something fails",
                    func=lazy_load_command(f"{_PACKAGE}.doctor.doctor"),
                    args=(ARG_FILE, ARG_CLUSTER, ARG_DOCTOR_TENANT, ARG_NO_JOBS, ARG_STRICT, ARG_OUTPUT),
                ),
                ActionCommand(
                    name="usage",
                    help="Show slot-hours, waits and use by tenant or DAG, and tasks too small for a job",
                    func=lazy_load_command(f"{_PACKAGE}.usage.usage"),
                    args=(ARG_FILE, ARG_SINCE, ARG_USAGE_TENANT, ARG_BY, ARG_OUTPUT),
                ),
                ActionCommand(
                    name="explain",
                    help="Say why a task waits, and what has to happen",
                    func=lazy_load_command(f"{_PACKAGE}.explain.explain"),
                    args=(ARG_DAG_ID, ARG_RUN_ID, ARG_TASK_ID, ARG_MAP_INDEX, ARG_FILE, ARG_OUTPUT),
                ),
                GroupCommand(name="local", help="A Ray cluster on this machine", subcommands=_local()),
            ),
        )
    ]


def _tenants() -> tuple[ActionCommand, ...]:
    return (
        ActionCommand(
            name="validate",
            help="Check the tenant file",
            func=lazy_load_command(f"{_PACKAGE}.tenants.validate"),
            args=(ARG_FILE,),
        ),
        ActionCommand(
            name="list",
            help="Show tenants, their shares in slots, and what that is in CPU and memory",
            func=lazy_load_command(f"{_PACKAGE}.tenants.list_tenants"),
            args=(ARG_FILE, ARG_OUTPUT),
        ),
        ActionCommand(
            name="schema",
            help="Print the JSON schema of the tenant file, for editors",
            func=lazy_load_command(f"{_PACKAGE}.tenants.schema"),
            args=(),
        ),
    )


def _pools() -> tuple[ActionCommand, ...]:
    return (
        ActionCommand(
            name="plan",
            help="Show the pools, what they should be, and why; exit code 1 if something cannot be so",
            func=lazy_load_command(f"{_PACKAGE}.pools.plan"),
            args=(ARG_FILE, ARG_OUTPUT),
        ),
        ActionCommand(
            name="sync",
            help="Make the pools what the cluster and the tenant file say",
            func=lazy_load_command(f"{_PACKAGE}.pools.sync"),
            args=(ARG_FILE, ARG_DRY_RUN, ARG_OUTPUT),
        ),
    )


def _jobs() -> tuple[ActionCommand, ...]:
    return (
        ActionCommand(
            name="list",
            help="Show live jobs by tenant, the tasks they belong to, and which are orphans",
            func=lazy_load_command(f"{_PACKAGE}.jobs.list_jobs"),
            args=(ARG_FILE, ARG_TENANT, ARG_ALL, ARG_OUTPUT),
        ),
        ActionCommand(
            name="show",
            help="Show everything about one job",
            func=lazy_load_command(f"{_PACKAGE}.jobs.show"),
            args=(ARG_JOB, ARG_FILE, ARG_OUTPUT),
        ),
        ActionCommand(
            name="stop",
            help="Stop jobs of this deployment and see them end; their tasks fail",
            func=lazy_load_command(f"{_PACKAGE}.jobs.stop"),
            args=(ARG_JOBS, ARG_FILE),
        ),
        ActionCommand(
            name="sweep",
            help="Stop orphans and delete old records, once; the controller does it all the time",
            func=lazy_load_command(f"{_PACKAGE}.jobs.sweep"),
            args=(ARG_FILE, ARG_DRY_RUN, ARG_OLDER_THAN, ARG_OUTPUT),
        ),
    )


def _local() -> tuple[ActionCommand, ...]:
    return (
        ActionCommand(
            name="up",
            help="Start Ray (and an S3 server, if one is installed); write a connection and a tenant file",
            func=lazy_load_command(f"{_PACKAGE}.local.up"),
            args=(ARG_DIRECTORY, ARG_CPUS, ARG_MEMORY, ARG_RAY, ARG_TOKEN, ARG_CONN_ID),
        ),
        ActionCommand(
            name="down",
            help="Stop what `up` started",
            func=lazy_load_command(f"{_PACKAGE}.local.down"),
            args=(ARG_DIRECTORY,),
        ),
        ActionCommand(
            name="status",
            help="Show what runs",
            func=lazy_load_command(f"{_PACKAGE}.local.status"),
            args=(ARG_DIRECTORY,),
        ),
    )
