"""What Airflow's plugin manager reads. Every component imports it: it has to stay light."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_raytenant.links.dashboard import RayJobLink
from airflow_provider_raytenant.plugin import reprocessed
from airflow_provider_raytenant.priority import STRATEGIES


class RayTenantPlugin(AirflowPlugin):
    """Makes the link to the job known to the web server, and to the scheduler what its tasks weigh."""

    name = "raytenant"
    operator_extra_links = [RayJobLink()]
    priority_weight_strategies = list(STRATEGIES)
    listeners = [reprocessed]
