"""What a tenant's jobs may reach: by the tenant file, and by trying it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from airflow_provider_raytenant.checks.finding import Finding, failure, ok
from airflow_provider_raytenant.control.threads import ask
from airflow_provider_raytenant.database.connections import read_uri
from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.domain.tenants import RoleCredentials, Tenant
from airflow_provider_raytenant.exceptions import RayTenantError
from airflow_provider_raytenant.storage.tickets import TicketOffice
from airflow_provider_raytenant.storage.trial import Trial, try_role

_ROLE_ADVICE = (
    "See that the connection may assume the role, and that the role may read, write and list the bucket."
)
_NARROW_ADVICE = "Use a storage whose STS keeps to session policies: here each tenant has the whole role."


def judge_credentials(tenant: Tenant, trial: Trial | None = None) -> Finding:
    """Which credentials its jobs have.

    :param trial: what came of trying its role, where it has one.
    """
    if isinstance(tenant.credentials, RoleCredentials) and tenant.storage is not None:
        role = tenant.credentials.role_arn
        if trial is None:
            return ok("credentials", f"of {role}, narrowed to its prefix; not tried")
        if trial.trouble:
            return failure("credentials", trial.trouble, _ROLE_ADVICE)
        if trial.reached:
            what = f"of {role}, not narrowed: {', '.join(trial.reached)} works"
            return failure("credentials", what, _NARROW_ADVICE)
        return ok("credentials", f"of {role}, narrowed to its prefix: others are refused")
    if tenant.credentials == "node" and tenant.storage is not None:
        return ok("credentials", "the nodes' own, which reach every prefix")
    return ok("credentials", "none: the tenant has no storage")


async def try_roles(tenants: Mapping[str, Tenant]) -> dict[str, tuple[Access, Trial]]:
    """The roles of those tenants that have one, tried one after the other."""
    trials = {}
    for name, tenant in tenants.items():
        access = _access(tenant)
        if access is not None:
            try:
                await ask(partial(_make_known, access.aws_conn_id))
                trial = await ask(partial(try_role, access))
            except RayTenantError as error:
                trial = Trial(trouble=str(error))
            trials[name] = (access, trial)
    return trials


async def forget_roles(trials: Mapping[str, tuple[Access, Trial]]) -> None:
    """Remove what the trials have written; what cannot be removed harms nobody."""
    for access, trial in trials.values():
        if trial.probe_url:
            try:
                await ask(TicketOffice(access).withdraw)
            except RayTenantError:
                continue


def _access(tenant: Tenant) -> Access | None:
    role = tenant.credentials
    if not isinstance(role, RoleCredentials) or tenant.storage is None:
        return None
    name = f"raytenant-doctor-{uuid.uuid4().hex[:16]}"
    access = Access(role.aws_conn_id, role.role_arn, str(tenant.prefix), name)
    return replace(access, duration=role.duration, node_endpoint_url=role.node_endpoint_url)


def _make_known(conn_id: str) -> None:
    """Let this process's hooks find a connection: they would ask an API server, and a command has none."""
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    if variable not in os.environ:
        os.environ[variable] = read_uri(conn_id)
