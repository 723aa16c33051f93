"""What `execute` makes of a tenant with a role, and of secrets: references, and nothing secret."""

from __future__ import annotations

import json

import pytest

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.domain.job_spec import WORKER_HOOK, with_claim
from airflow_provider_raytenant.exceptions import RequestError
from airflow_provider_raytenant.operators.job import Secret
from tests.operators.test_prepare import made

pytestmark = pytest.mark.usefixtures("no_cluster")

SECRETS = {"KEY": Secret.variable("scoped_key"), "DSN": Secret.connection("scoped_dsn")}


def test_a_tenant_with_a_role_gets_an_access_by_reference() -> None:
    prepared = made(tenant="scoped", secrets=SECRETS)
    assert prepared.access == Access(
        aws_conn_id="aws",
        role_arn="arn:aws:iam::000000000000:role/jobs",
        prefix="s3://lake/tenants/scoped",
        submission_id=prepared.submission_id,
        secrets=SECRETS,
    )
    _, arguments = prepared.trigger().serialize()
    assert Access.from_json(json.loads(json.dumps(arguments["access"]))) == prepared.access


def test_its_workers_get_the_hook_and_the_jobs_own_is_called_by_it() -> None:
    plain = made(tenant="scoped").request["runtime_env"]
    assert plain["worker_process_setup_hook"] == WORKER_HOOK
    assert "RAYTENANT_SETUP_HOOK" not in plain["env_vars"]
    own = made(tenant="scoped", runtime_env={"worker_process_setup_hook": "mine.start"}).request[
        "runtime_env"
    ]
    assert own["worker_process_setup_hook"] == WORKER_HOOK
    assert own["env_vars"]["RAYTENANT_SETUP_HOOK"] == "mine.start"


def test_a_tenant_without_a_role_gets_neither() -> None:
    prepared = made()
    assert prepared.access is None
    assert "worker_process_setup_hook" not in prepared.request["runtime_env"]


def test_the_address_is_added_for_the_submit_alone() -> None:
    request = made(tenant="scoped", env_vars={"A": "1"}).request
    submitted = with_claim(request, "http://s3/x?X-Amz-Signature=1")
    assert submitted["runtime_env"]["env_vars"]["RAYTENANT_CLAIM"] == "http://s3/x?X-Amz-Signature=1"
    assert "RAYTENANT_CLAIM" not in request["runtime_env"]["env_vars"]
    assert submitted["runtime_env"]["env_vars"]["A"] == "1"


def test_what_ray_would_fetch_with_the_nodes_rights_is_refused() -> None:
    with pytest.raises(RequestError, match="folders beside the DAG file, since Ray fetches an archive"):
        made(tenant="scoped", working_dir="s3://lake/tenants/scoped/code.zip")
