"""Asks one cluster what there is to ask; every question has its time-out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from airflow_provider_raytenant.checks.access import judge_authentication, judge_transport
from airflow_provider_raytenant.checks.finding import Finding, failure, ok, warning
from airflow_provider_raytenant.checks.node_report import judge_report, judge_s3, start_timeout_of
from airflow_provider_raytenant.checks.nodes import judge_head, judge_nodes
from airflow_provider_raytenant.checks.probe import Report, run_probe, wants_s3
from airflow_provider_raytenant.checks.ray_version import judge_version
from airflow_provider_raytenant.checks.start_timeout import judge_start_timeout, seen_in_records
from airflow_provider_raytenant.checks.tenant import forget_roles, judge_credentials, try_roles
from airflow_provider_raytenant.control.clusters import endpoint_of_connection
from airflow_provider_raytenant.control.threads import ask
from airflow_provider_raytenant.database.connections import read_type
from airflow_provider_raytenant.domain.capacity import Node
from airflow_provider_raytenant.domain.tenants import Cluster, Tenant
from airflow_provider_raytenant.exceptions import (
    ConnectionConfigError,
    DatabaseUnavailableError,
    RayAuthError,
    RayRequestError,
    RayTenantError,
    RayUnavailableError,
)
from airflow_provider_raytenant.hooks.ray import RayHook
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint

TIMEOUT: Final = 5.0
ATTEMPTS: Final = 2
JOB_PATIENCE: Final = 60.0

_ADDRESS_ADVICE: Final = (
    "Name the dashboard's address in the connection, and see that it can be reached from here."
)


@dataclass
class ClusterLook:
    """What was found, in order; ``nodes`` is ``None`` where the cluster gave none."""

    name: str
    findings: list[Finding] = field(default_factory=list)
    nodes: list[Node] | None = None

    def add(self, *findings: Finding, tenant: str | None = None) -> None:
        """Lines of this cluster, or of a tenant of it."""
        self.findings += [replace(finding, cluster=self.name, tenant=tenant) for finding in findings]


async def look_at_cluster(
    name: str,
    cluster: Cluster,
    deployment: str,
    tenants: Mapping[str, Tenant],
    *,
    job_patience: float | None = JOB_PATIENCE,
) -> ClusterLook:
    """Everything about a cluster but its tenants' pools.

    :param tenants: those of its tenants that are looked at.
    :param job_patience: seconds that the doctor's job may take; ``None``: there is none.
    """
    look = ClusterLook(name)
    report = None
    roles = await try_roles(tenants)
    urls = {tenant: trial.probe_url for tenant, (_, trial) in roles.items() if trial.probe_url}
    endpoint = await _connection(look, cluster.ray_conn_id)
    if endpoint is not None:
        look.add(judge_transport(endpoint))
        try:
            async with RayClient(endpoint, timeout=TIMEOUT, attempts=ATTEMPTS) as client:
                if await _dashboard(look, client):
                    report = await _inside(look, client, cluster, deployment, tenants, job_patience, urls)
        except ConnectionConfigError as error:
            look.add(failure("connection", str(error), "Correct the connection's certificate files."))
    await forget_roles(roles)
    for tenant in tenants.values():
        trial = roles[tenant.name][1] if tenant.name in roles else None
        look.add(judge_credentials(tenant, trial), tenant=tenant.name)
        if report is not None and not report.trouble and (wants_s3(tenant) or tenant.name in urls):
            look.add(judge_s3(tenant.name, tenant.storage or "", report), tenant=tenant.name)
    return look


async def _connection(look: ClusterLook, conn_id: str) -> RayEndpoint | None:
    try:
        endpoint = await endpoint_of_connection(conn_id)
        kind = await ask(lambda: read_type(conn_id))
    except ConnectionConfigError as error:
        look.add(
            failure("connection", str(error), f"Make {conn_id} right: it needs type ray and an address.")
        )
        return None
    except DatabaseUnavailableError as error:
        look.add(failure("connection", str(error), "Look at Airflow's database."))
        return None
    if kind == RayHook.conn_type:
        look.add(ok("connection", f"{conn_id}, of type ray"))
    else:
        look.add(
            warning(
                "connection",
                f"{conn_id} is of type {kind or 'none'}",
                "Give it the type ray, whose form checks what is put in.",
            )
        )
    return endpoint


async def _dashboard(look: ClusterLook, client: RayClient) -> bool:
    """Whether a Ray dashboard answers, and lets us in."""
    try:
        version = str((await client.version()).get("ray_version") or "")
    except RayAuthError as error:
        look.add(failure("dashboard", str(error), "Put the cluster's token into the connection's password."))
        return False
    except RayTenantError as error:
        look.add(failure("dashboard", str(error), _ADDRESS_ADVICE))
        return False
    if not version:
        what = f"{client.endpoint.address} answers, but not as a Ray dashboard"
        look.add(failure("dashboard", what, _ADDRESS_ADVICE))
        return False
    look.add(judge_version(version))
    return True


async def _inside(
    look: ClusterLook,
    client: RayClient,
    cluster: Cluster,
    deployment: str,
    tenants: Mapping[str, Tenant],
    job_patience: float | None,
    urls: Mapping[str, str],
) -> Report | None:
    """Jobs API, authentication, nodes, and the doctor's job; its report."""
    seen = None
    try:
        look.add(judge_authentication(client.endpoint, await refuses_strangers(client.endpoint)))
    except RayTenantError as error:
        look.add(failure("authentication", str(error), _ADDRESS_ADVICE))
    try:
        listing = await client.listing()
        seen = seen_in_records(listing.jobs.values())
        look.add(ok("jobs API", f"answers; jobs on record: {len(listing.jobs)}"))
    except RayTenantError as error:
        look.add(failure("jobs API", str(error), "Look at the log of the head's dashboard."))
        return None
    try:
        look.nodes = await client.nodes()
        look.add(judge_head(look.nodes), *judge_nodes(cluster, look.nodes))
    except RayTenantError as error:
        look.add(failure("nodes", str(error), "Look at the log of the head's dashboard."))
    report = None
    if job_patience is not None and look.nodes:
        try:
            report = await run_probe(client, deployment, tenants, job_patience, urls)
            look.add(*judge_report(report))
            seen = start_timeout_of(report) or seen
        except RayTenantError as error:
            look.add(failure("jobs", str(error), "Look at the log of the head's dashboard."))
    look.add(judge_start_timeout(seen))
    return report


async def refuses_strangers(endpoint: RayEndpoint) -> bool:
    """Whether a request that brings nothing of the connection's secrets gets no answer from Ray.

    :raises RayUnavailableError: nobody answered it.
    """
    bare = replace(endpoint, token=None, headers={}, client_cert=None, client_key=None)
    async with RayClient(bare, timeout=TIMEOUT, attempts=ATTEMPTS) as stranger:
        try:
            await stranger.nodes()
        except (RayAuthError, RayRequestError):
            return True
        except RayUnavailableError as error:
            # A proxy may send to its login page, or end the connection for want of a certificate.
            if 300 <= error.details.get("status", 0) < 400 or endpoint.client_cert:
                return True
            raise
    return False
