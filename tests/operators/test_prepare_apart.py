"""Where a job of a tenant goes, and whose folders it has."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_raytenant.exceptions import (
    PolicyError,
)
from tests.operators.test_prepare import FakeTask, folder, made

pytestmark = pytest.mark.usefixtures("no_cluster")


def test_dedicated_nodes_are_asked_for_and_those_of_others_kept_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_RAY_PLAIN", '{"conn_type": "ray", "host": "http://other:8265"}')
    own = made(tenant="soylent", label_selector={"zone": "a"})
    assert own.request["entrypoint_label_selector"] == {"team": "soylent", "zone": "a"}
    variables = own.request["runtime_env"]["env_vars"]
    assert variables["RAYTENANT_TASK_OPTIONS"] == '{"label_selector": {"team": "soylent"}}'
    # ... and another cluster is another connection.
    assert (own.ray_conn_id, own.endpoint.address) == ("ray_plain", "http://other:8265")
    common = made(tenant="initech").request
    assert common["entrypoint_label_selector"] == {"team": "!soylent"}
    by_resource = made(tenant="tyrell").request
    assert by_resource["entrypoint_resources"] == {"tyrell_node": 0.001}
    shared = made(tenant="acme").request
    assert "entrypoint_label_selector" not in shared
    assert "RAYTENANT_TASK_OPTIONS" not in shared["runtime_env"]["env_vars"]


def test_a_selector_that_leads_to_anothers_nodes_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(PolicyError, match="label_selector: found"):
        made(tenant="initech", label_selector={"team": "soylent"})
    with pytest.raises(PolicyError, match="the tenant's own nodes, label team=soylent"):
        made(tenant="soylent", label_selector={"team": "initech"})


def test_no_two_tries_share_a_working_directory(tmp_path: Path, no_cluster: list[Any]) -> None:
    folder(tmp_path / "code")
    first = made(tmp_path, working_dir="code")
    again = made(tmp_path, working_dir="code")
    second = made(
        tmp_path, FakeTask(id="0197aaaa-0000-7000-8000-000000000002", try_number=2), working_dir="code"
    )
    uris = [prepared.request["runtime_env"]["working_dir"] for prepared in (first, again, second)]
    assert uris[0] == uris[1] != uris[2]
    assert "--copy-cwd" not in first.request["entrypoint"]


def test_a_large_folder_or_an_archive_is_sent_once_and_copied_by_each_try(
    tmp_path: Path, no_cluster: list[Any]
) -> None:
    (folder(tmp_path / "code") / "model.bin").write_bytes(random.Random(1).randbytes(300_000))
    first = made(tmp_path, working_dir="code").request
    other = FakeTask(id="0197aaaa-0000-7000-8000-000000000002")
    second = made(tmp_path, other, working_dir="code").request
    assert first["runtime_env"]["working_dir"] == second["runtime_env"]["working_dir"]
    archive = made(working_dir="s3://lake/tenants/acme/code.zip").request
    for request in (first, second, archive):
        assert "--copy-cwd" in request["entrypoint"]
        assert "--private-cwd" not in request["entrypoint"]
