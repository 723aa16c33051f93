"""``airflow raytenant local``: a Ray cluster (and S3) on this machine, ready for a first DAG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_provider_raytenant.cli.output import complain, console, one_clear_error
from airflow_provider_raytenant.domain.quantities import format_memory, parse_memory
from airflow_provider_raytenant.exceptions import RayTenantError, RequestError
from airflow_provider_raytenant.local import laptop, s3_server
from airflow_provider_raytenant.local.errors import LocalError

BUCKET = s3_server.DEFAULT_BUCKET
_TENANT_FILE = "raytenant.yaml"


@one_clear_error
def up(args: Any) -> None:
    """Start what is not up, write the connection, and a tenant file where there is none."""
    directory = _directory(args)
    with_s3 = s3_server.s3_installed()
    try:
        stack = laptop.up(
            directory,
            cpus=args.cpus,
            memory=_memory(args.memory),
            ray_binary=Path(args.ray).absolute() if args.ray else None,
            token=args.token,
            with_s3=with_s3,
            progress=lambda text: console().print(f"{text} ..."),
        )
    except (LocalError, OSError) as error:
        raise RayTenantError(str(error)) from error
    if stack.already_running:
        console().print("It is up already, with the sizes of its own start.")
    _write_connection(args.conn_id, stack.ray.dashboard_url, stack.ray.token)
    file = _write_tenant_file(stack.directory, args.conn_id, stack.s3 is not None)
    console().print(f"Ray:         {stack.ray.dashboard_url}", soft_wrap=True)
    if stack.s3 is not None:
        console().print(f"S3:          {stack.s3.endpoint_url}  (bucket {BUCKET})", soft_wrap=True)
    console().print(f"Connection:  {args.conn_id}")
    console().print(f"Tenant file: {file}", soft_wrap=True)
    console().print(f"\nNext:\n  export AIRFLOW__RAYTENANT__CONFIG_FILE={file}", soft_wrap=True)
    console().print("  airflow raytenant pools sync")


@one_clear_error
def down(args: Any) -> None:
    """Stop it; nothing to stop is fine."""
    try:
        stopped = laptop.down(_directory(args))
    except (LocalError, OSError) as error:
        raise RayTenantError(str(error)) from error
    console().print("Stopped." if stopped.was_up else "Nothing was up.")


@one_clear_error
def status(args: Any) -> None:
    """Exit code 0 if all of it answers, 1 if not."""
    now = laptop.status(_directory(args))
    if now.dashboard_url is None:
        console().print("Nothing is up.")
        raise SystemExit(1)
    nodes = f", {len(now.nodes)} node{'' if len(now.nodes) == 1 else 's'}" if now.nodes else ""
    console().print(f"Ray: {now.dashboard_url} {'answers' if now.dashboard_answers else 'is silent'}{nodes}")
    if now.s3_url is not None:
        console().print(f"S3:  {now.s3_url} {'answers' if now.s3_answers else 'is silent'}")
    console().print(f"{len(now.pids)} processes, state and logs in {now.directory}", soft_wrap=True)
    if not now.up:
        raise SystemExit(1)


def _directory(args: Any) -> Path:
    return Path(args.directory) if args.directory else laptop.DEFAULT_DIRECTORY


def _memory(text: str | None) -> int:
    if text is None:
        return laptop.DEFAULT_MEMORY
    try:
        return parse_memory(int(text) if text.isdigit() else text)
    except ValueError as error:
        raise RequestError(f"--memory: {error}") from None


def _write_connection(conn_id: str, address: str, token: str | None) -> None:
    from airflow_provider_raytenant.database.connections import write_ray_connection

    if not write_ray_connection(conn_id, address, token):
        complain(
            f"connection {conn_id} exists and is not of type ray: it stays as it is (--conn-id names another)"
        )
        raise SystemExit(1)


def _write_tenant_file(directory: Path, conn_id: str, with_storage: bool) -> Path:
    """A starter file, unless there is one: what people wrote into it is theirs."""
    file = directory / _TENANT_FILE
    if not file.exists():
        storage = (
            f"  storage: s3://{BUCKET}/tenants/{{tenant}}\n  credentials: node\n" if with_storage else ""
        )
        file.write_text(_STARTER.format(conn_id=conn_id, storage=storage, slot=format_memory(512 * 1024**2)))
    return file


_STARTER = """\
# Who the tenants are, and what each may use. `airflow raytenant tenants validate` checks it.
deployment: local
defaults:
  cluster: local
{storage}clusters:
  local:
    ray_conn_id: {conn_id}
    groups:
      cpu: {{slot: {{cpus: 1, memory: {slot}}}}}
tenants:
  acme:
    guarantee: 1
    weight: 2
  globex:
    guarantee: 1
"""
