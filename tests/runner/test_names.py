"""Names that stand on both sides, since the runner and the domain may not know each other."""

from __future__ import annotations

from airflow_provider_raytenant.domain import access, job_spec
from airflow_provider_raytenant.runner import ticket, worker


def test_both_sides_mean_the_same() -> None:
    assert access.CLAIM_VARIABLE == ticket.CLAIM_VARIABLE
    assert job_spec.OWN_HOOK_VARIABLE == worker.OWN_HOOK_VARIABLE
    assert f"{job_spec.RUNNER_MODULE}.worker.{worker.setup.__name__}" == job_spec.WORKER_HOOK
