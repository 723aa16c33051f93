"""Pool and slots at parse time: from the footprint and the tenant file, and no way around them."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, TaskGroup

from airflow_provider_raytenant.exceptions import (
    PolicyError,
    RequestError,
    TenantFileError,
    TinyRequestWarning,
)
from airflow_provider_raytenant.operators.job import RayTenantJobOperator, Secret, Workers


def make(**kwargs: Any) -> RayTenantJobOperator:
    return RayTenantJobOperator(**{"task_id": "t", "tenant": "acme", "entrypoint": "true", **kwargs})


@pytest.mark.parametrize(
    ("arguments", "pool", "slots"),
    [
        ({}, "ray.acme", 1),
        ({"num_cpus": 2.5}, "ray.acme", 3),
        ({"memory": "3GiB"}, "ray.acme", 3),
        ({"memory": "3GB"}, "ray.acme", 3),
        ({"num_cpus": 0.5, "workers": Workers(count=3, num_cpus=0.5)}, "ray.acme", 2),
        ({"workers": Workers(count=4, num_cpus=2, memory="512MiB")}, "ray.acme", 9),
        ({"workers": Workers(count=2, num_cpus=1, memory="4GiB")}, "ray.acme", 8),
        ({"num_gpus": 1, "tenant": "globex"}, "ray.globex.gpu", 1),
        ({"num_gpus": 1, "memory": "40GiB", "tenant": "globex"}, "ray.globex.gpu", 3),
        ({"num_cpus": 9, "label_selector": {"size": "big"}, "tenant": "globex"}, "ray.globex.big", 2),
        ({"num_cpus": 7, "tenant": "sized"}, "ray.sized", 7),
        ({"num_cpus": 8, "tenant": "sized"}, "ray.sized.large", 8),
        ({"num_cpus": 8, "tenant": "sized", "pool": "ray.sized.large"}, "ray.sized.large", 8),
        ({"num_cpus": 2, "tenant": "sized", "pool_slots": 9}, "ray.sized.large", 9),
        ({"num_gpus": 9, "tenant": "sized"}, "ray.sized.gpu", 9),
        ({"num_cpus": 2, "tenant": "sized", "pool": "ray.sized.backfill"}, "ray.sized.backfill", 2),
        ({"pool_slots": 5}, "ray.acme", 5),
        ({"pool": "ray.acme"}, "ray.acme", 1),
        ({"tenant": "globex", "pool": "hers"}, "hers", 1),
        ({"tenant": "globex", "pool": "hers", "pool_slots": 1, "num_cpus": 4}, "hers", 1),
    ],
)
def test_pool_and_slots_come_from_the_footprint(arguments: dict[str, Any], pool: str, slots: int) -> None:
    task = make(**arguments)
    assert (task.pool, task.pool_slots) == (pool, slots)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"pool": "default_pool"}, PolicyError, ["pool: found 'default_pool'", "ray.acme"]),
        ({"tenant": "globex", "pool": "his"}, PolicyError, ["'his'", "ray.globex, hers"]),
        ({"tenant": "sized", "pool": "ray.sized.large"}, PolicyError, ["ray.sized, ray.sized.backfill"]),
        (
            {"tenant": "sized", "num_cpus": 9, "pool": "ray.sized"},
            PolicyError,
            ["ray.sized.large, ray.sized.b"],
        ),
        ({"pool": "ray.acme.backfill"}, PolicyError, ["allowed for tenant acme: ray.acme (leave"]),
        (
            {"tenant": "sized", "num_cpus": 2, "pool": "ray.sized.backfill", "pool_slots": 1},
            RequestError,
            ["pool_slots: found 1", "at least 2"],
        ),
        (
            {"tenant": "strict", "num_cpus": 0.25},
            PolicyError,
            [
                "tenant strict: a footprint of 0.25 CPU is below its tiny size of 0.5 CPU",
                "plain Airflow task",
            ],
        ),
        ({"num_cpus": 17}, PolicyError, ["asks for 17 slots", "its limit is 16"]),
        ({"workers": Workers(count=17, num_cpus=1)}, PolicyError, ["asks for 18 slots", "its limit is 16"]),
        ({"pool_slots": 2, "num_cpus": 3}, RequestError, ["pool_slots: found 2", "at least 3"]),
        ({"pool_slots": 0}, RequestError, ["pool_slots: found 0"]),
        ({"pool_slots": True}, RequestError, ["pool_slots: found True"]),
        ({"num_cpus": 0}, RequestError, ["num_cpus: found 0", "more than 0"]),
        ({"num_cpus": -1}, RequestError, ["num_cpus: found -1"]),
        ({"num_cpus": "two"}, RequestError, ["num_cpus: found 'two'"]),
        ({"memory": "2Gib"}, RequestError, ["memory: found '2Gib'", "4GiB"]),
        ({"memory": -5}, RequestError, ["memory: found -5"]),
        ({"num_gpus": float("nan")}, RequestError, ["num_gpus: found nan"]),
        ({"resources": {"CPU": 1}}, RequestError, ["resources: found 'CPU'"]),
        ({"resources": ["fpga"]}, RequestError, ["resources: found ['fpga']"]),
        ({"resources": {"fpga": "x"}}, RequestError, ["resources['fpga']: found 'x'"]),
        ({"workers": 4}, RequestError, ["workers: found 4", "Workers(count=4"]),
        ({"label_selector": "big"}, RequestError, ["label_selector: found 'big'"]),
        ({"label_selector": {"size": 1}}, RequestError, ["label_selector"]),
        ({"tenant": "initech", "num_gpus": 1}, RequestError, ["num_gpus: found 1", "groups: cpu"]),
        ({"tenant": ""}, RequestError, ["tenant: found ''"]),
        (
            {"tenant": "umbrella"},
            TenantFileError,
            ["tenants.umbrella", "acme, globex, initech, noded, ruled"],
        ),
        (
            {"tenant": "scoped", "queue_timeout": 3600},
            RequestError,
            ["queue_timeout: found 3600 s", "at most 3540 s", "credentials.duration"],
        ),
        (
            {"secrets": {"A": Secret.variable("acme_a")}},
            PolicyError,
            ["secrets['A']", "variable acme_a", "tenant acme: none", "rule secrets"],
        ),
        ({"secrets": {"A": "hunter2"}}, RequestError, ["secrets['A']: found a str", "Secret.variable"]),
        ({"secrets": "hunter2"}, RequestError, ["secrets: found a str"]),
        (
            {"tenant": "scoped", "secrets": {"AWS_SECRET_ACCESS_KEY": Secret.variable("scoped_x")}},
            PolicyError,
            ["AWS_SECRET_ACCESS_KEY", "rule env_vars"],
        ),
        (
            {"tenant": "scoped", "secrets": {"A": Secret.connection("globex_x")}},
            PolicyError,
            ["connection globex_x", "scoped_*", "rule secrets"],
        ),
        (
            {"tenant": "noded", "secrets": {"A": Secret.variable("noded_a")}},
            PolicyError,
            ["secrets: found A", "tenant noded: none", "role_arn"],
        ),
        ({"job_timeout": 0}, RequestError, ["job_timeout: found 0"]),
        ({"on_overuse": "x"}, RequestError, ["on_overuse: found 'x'; allowed: ignore, warn"]),
        ({"job_timeout": "1h"}, RequestError, ["job_timeout: found '1h'"]),
        ({"poll_interval": None}, RequestError, ["poll_interval: found None"]),
    ],
)
def test_a_wrong_argument_is_one_clear_error(
    arguments: dict[str, Any], error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        make(**arguments)
    for word in words:
        assert word in str(caught.value)


def test_a_tiny_request_warns_where_it_is_not_refused() -> None:
    with pytest.warns(TinyRequestWarning, match="below its tiny size of 0.5 CPU, 256MiB") as warned:
        make(tenant="sized", num_cpus=0.25)
    assert [warning.filename for warning in warned] == [__file__]
    with pytest.warns(TinyRequestWarning):
        partial(tenant="sized", num_cpus=0.25).expand(entrypoint=["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", TinyRequestWarning)
        make(tenant="sized", num_cpus=0.25, memory="1GiB")
        make(tenant="strict", num_cpus=0.25, workers=Workers(count=1, num_cpus=1))


def test_mapped_tasks_queue_as_large_as_they_are() -> None:
    mapped = partial(tenant="sized", num_cpus=4, workers=Workers(count=4)).expand(entrypoint=["a", "b"])
    assert (mapped.pool, mapped.pool_slots) == ("ray.sized.large", 8)
    unmapped = make(tenant="sized", num_cpus=2, pool="ray.sized.large", pool_slots=8)
    assert unmapped.sizing.placement.pool == "ray.sized.large"


def test_workers_say_which_of_their_arguments_is_wrong() -> None:
    with pytest.raises(ValueError, match="Workers count: found 0"):
        Workers(count=0)
    with pytest.raises(ValueError, match="Workers memory: found '4Gib'"):
        Workers(count=1, memory="4Gib")


def test_default_args_do_not_escape_the_pool() -> None:
    with (
        DAG(
            "d",
            schedule=None,
            start_date=datetime(2026, 1, 1, tzinfo=UTC),
            default_args={"pool": "default_pool"},
        ),
        pytest.raises(PolicyError, match="leave it out, also of default_args"),
    ):
        make()


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"num_cpus": 3}, "largest"),
        ({"workers": Workers(count=1, num_cpus=3)}, "largest"),
        ({"resources": {"tpu": 1}}, "resources"),
        ({"workers": Workers(count=1, resources={"tpu": 1})}, "resources"),
        ({"label_selector": {"zone": "b"}}, "label_selector"),
    ],
)
def test_the_rules_that_can_be_known_are_checked_when_the_dag_is_parsed(
    arguments: dict[str, Any], rule: str
) -> None:
    for build in (make, partial):
        with pytest.raises(PolicyError) as caught:
            build(tenant="ruled", **arguments)
        assert caught.value.details["rule"] == rule


def test_a_task_within_the_rules_is_made() -> None:
    assert make(
        tenant="ruled", num_cpus=2, resources={"fpga": 1}, label_selector={"zone": "in(a)"}
    ).pool_slots


def test_default_args_may_name_the_tenant_and_the_size() -> None:
    defaults = {"tenant": "globex", "num_cpus": 3}
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), default_args=defaults):
        task = RayTenantJobOperator(task_id="t", entrypoint="true")
        mapped = RayTenantJobOperator.partial(task_id="m").expand(entrypoint=["a", "b"])
    assert (task.pool, task.pool_slots) == ("ray.globex", 3)
    assert (mapped.pool, mapped.pool_slots) == ("ray.globex", 3)


def test_a_task_groups_default_args_count_for_mapped_tasks_too() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with (
        DAG("d", schedule=None, start_date=start),
        TaskGroup("g", default_args={"tenant": "globex", "num_cpus": 8}),
    ):
        mapped = RayTenantJobOperator.partial(task_id="m").expand(entrypoint=["a", "b"])
    assert (mapped.pool, mapped.pool_slots) == ("ray.globex", 8)


def test_expand_kwargs_cannot_override_what_partial_said() -> None:
    with pytest.raises(RequestError, match="strict: found False"):
        partial(entrypoint="true").expand_kwargs([{"memory": "1GiB"}], strict=False)


def partial(**kwargs: Any) -> Any:
    return RayTenantJobOperator.partial(**{"task_id": "t", "tenant": "acme", **kwargs})


def test_mapped_tasks_hold_the_slots_of_their_footprint() -> None:
    mapped = partial(num_cpus=2, workers=Workers(count=2, num_cpus=1)).expand(entrypoint=["a", "b"])
    assert (mapped.pool, mapped.pool_slots) == ("ray.acme", 4)


@pytest.mark.parametrize("name", ["num_cpus", "num_gpus", "memory", "resources", "workers"])
def test_mapping_the_footprint_needs_explicit_slots(name: str) -> None:
    with pytest.raises(
        RequestError, match=rf"{name}: found in expand\(\); allowed: with an explicit pool_slots"
    ):
        partial(entrypoint="true").expand(**{name: [1, 2]})
    with pytest.raises(RequestError, match=f"{name}: found in expand"):
        partial(entrypoint="true").expand_kwargs([{name: 1}])
    mapped = partial(entrypoint="true", pool_slots=4).expand(**{name: [1, 2]})
    assert (mapped.pool, mapped.pool_slots) == ("ray.acme", 4)


@pytest.mark.parametrize("name", ["tenant", "label_selector", "pool", "pool_slots"])
def test_what_decides_over_the_pool_cannot_be_mapped(name: str) -> None:
    given = {} if name == "tenant" else {"tenant": "acme"}
    if name == "tenant":
        with pytest.raises(RequestError, match="tenant: found nothing in partial"):
            RayTenantJobOperator.partial(task_id="t", entrypoint="true", **given)
    else:
        with pytest.raises(RequestError, match=rf"{name}: found in expand\(\)"):
            partial(entrypoint="true").expand(**{name: ["a", "b"]})


def test_a_mapped_task_that_outgrows_its_slots_is_refused_when_it_is_made() -> None:
    with pytest.raises(RequestError, match="pool_slots: found 2; allowed: at least 3"):
        make(pool="ray.acme", pool_slots=2, num_cpus=3)


def test_a_refused_expand_does_not_warn_of_a_task_that_was_never_mapped() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RequestError):
            partial(entrypoint="true").expand(num_cpus=[1, 2])


def test_a_typo_of_another_tenant_breaks_only_its_own_dags(tenants: Path) -> None:
    tenants.write_text(tenants.read_text() + "  hooli: {limit: many}\n")
    assert make().pool == "ray.acme"
    with pytest.raises(TenantFileError, match=r"tenants\.hooli\.limit: found 'many'"):
        make(tenant="hooli")


def test_a_changed_file_counts_for_the_next_task(tenants: Path) -> None:
    assert make(num_cpus=8).pool_slots == 8
    tenants.write_text(tenants.read_text().replace("limit: 16", "limit: 4"))
    with pytest.raises(PolicyError, match="its limit is 4"):
        make(num_cpus=8)


def test_without_a_configured_file_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__RAYTENANT__CONFIG_FILE")
    with pytest.raises(TenantFileError, match=r"\[raytenant\] config_file: found nothing"):
        make()
