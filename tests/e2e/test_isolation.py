"""Two tenants at once: each job sees its own packages, environment, folder and storage only."""

from __future__ import annotations

from typing import Any

from stack.stack import Stack
from tests.e2e.runs import WAIT, ended, finish, jobs, log, start, until


def seen(stack: Stack, tenant: str, run_id: str) -> dict[str, Any]:
    value: dict[str, Any] = stack.api.xcom(f"whoami_{tenant}", run_id, "whoami")
    return value


def test_two_tenants_at_once_see_their_own_and_nothing_of_the_other(stack: Stack) -> None:
    gate = stack.directory / "gate"
    runs = {
        tenant: start(stack, f"whoami_{tenant}", conf={"gate": str(gate)}) for tenant in ("acme", "globex")
    }

    def both_run() -> bool:
        found = [jobs(stack, run_id, f"whoami_{tenant}") for tenant, run_id in runs.items()]
        return all(own and own[0]["status"] == "RUNNING" for own in found)

    until(both_run, "two jobs that run at the same time", WAIT)
    gate.touch()
    for tenant, run_id in runs.items():
        assert finish(stack, f"whoami_{tenant}", run_id) == "success", log(
            stack, f"whoami_{tenant}", run_id, "whoami"
        )
    acme, globex = (seen(stack, tenant, run_id) for tenant, run_id in runs.items())

    assert (acme["humanize"], globex["humanize"]) == ("4.9.0", "4.12.0")
    assert (acme["code"], globex["code"]) == ("red", "blue")
    assert (acme["region"], globex["region"]) == ("eu", "us")
    assert acme["cwd"] != globex["cwd"]
    assert "only_globex.txt" in globex["files"]
    assert "only_globex.txt" not in acme["files"]
    for own, other, view in (("acme", "globex", acme), ("globex", "acme", globex)):
        env = view["env"]
        assert env["RAYTENANT_TENANT"] == own
        assert env["RAYTENANT_STORAGE"].endswith(f"/tenants/{own}")
        assert env["RAYTENANT_DAG_ID"] == f"whoami_{own}"
        assert env["RAYTENANT_RUN_ID"] == runs[own]
        assert (env["RAYTENANT_TASK_ID"], env["RAYTENANT_TRY_NUMBER"]) == ("whoami", "1")
        assert f"PROBE_{own.upper()}" in env
        assert f"PROBE_{other.upper()}" not in env
        assert view["objects"] == [f"tenants/{own}/whoami.txt"]

    # The two really were on the cluster at the same time.
    spans = [jobs(stack, run_id, f"whoami_{tenant}")[0] for tenant, run_id in runs.items()]
    assert max(job["start_time"] for job in spans) < min(job["end_time"] for job in spans)


def test_nothing_of_the_token_or_the_storage_keys_stands_in_what_ray_shows(
    stack: Stack, started: dict[str, str]
) -> None:
    run_id, state = ended(stack, started, "result")
    assert state == "success"
    shown = str(jobs(stack, run_id, "result"))
    assert "raytenant.tenant" in shown
    assert stack.ray.token
    assert stack.ray.token not in shown
    assert stack.s3 is not None
    assert stack.s3.secret_key not in shown


def test_another_tenants_prefix_out_of_a_template_is_refused_before_anything_is_submitted(
    stack: Stack, started: dict[str, str]
) -> None:
    run_id, state = ended(stack, started, "foreign")
    assert state == "failed"
    text = log(stack, "foreign", run_id, "thief")
    assert "working_dir: found 's3://raytenant/tenants/acme/code.zip'" in text
    assert "below s3://raytenant/tenants/globex" in text
    assert jobs(stack, run_id, "foreign") == []
    assert stack.api.task_instance("foreign", run_id, "thief")["try_number"] == 1


def test_a_sibling_of_the_own_prefix_is_refused_too(stack: Stack) -> None:
    run_id = start(stack, "foreign", conf={"code": "s3://raytenant/tenants/globex2/code.zip"})
    assert finish(stack, "foreign", run_id) == "failed"
    assert jobs(stack, run_id, "foreign") == []
