"""What Airflow's plugin manager reads. Every component imports it: it has to stay light."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_raytenant.links.dashboard import RayJobLink


class RayTenantPlugin(AirflowPlugin):
    """Makes the link to the job known to the web server."""

    name = "raytenant"
    operator_extra_links = [RayJobLink()]
