from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from airflow_provider_raytenant.domain.file_parts import NAME_ALLOWED, Amount, checked_name
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.storage_prefix import StoragePrefix
from airflow_provider_raytenant.domain.tenants import (
    Autoscale,
    Cluster,
    PoolKind,
    RoleCredentials,
    Rules,
    TenantDefaults,
)
from tests.domain.helpers import GIB, make_cluster, make_tenant


@pytest.mark.parametrize("name", ["a", "acme", "a-b_c9", "0", "a" * 50])
def test_a_name_that_is_good_as_a_pool_and_a_folder_is_taken(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "A", "a.b", "a b", "a/b", "-a", "a-", "_a", "a_", "é", "a\n", "a" * 51, "..", 1, None, True, ["a"]],
)
def test_any_other_name_is_refused(name: object) -> None:
    with pytest.raises(ValueError, match="found") as error:
        checked_name(name)
    assert str(error.value) == f"found {name!r}; allowed: {NAME_ALLOWED}"


@pytest.mark.parametrize(
    ("value", "group", "guarantee", "limit"),
    [
        (5, "cpu", 5, 5),
        (5, "gpu", 0, None),
        ({"gpu": 2}, "gpu", 2, 2),
        ({"gpu": 2}, "cpu", 0, None),
        ({"cpu": 0}, "cpu", 0, 0),
        ({}, "cpu", 0, None),
    ],
)
def test_a_share_is_about_the_first_group_unless_it_names_another(
    value: Any, group: str, guarantee: int, limit: int | None
) -> None:
    tenant = make_tenant(guarantee=value, limit=value)
    assert tenant.share("guarantee", group, "cpu") == guarantee
    assert tenant.share("limit", group, "cpu") == limit


def test_a_tenant_without_shares_has_no_guarantee_no_limit_and_weight_one() -> None:
    tenant = make_tenant()
    assert (tenant.share("guarantee", "cpu", "cpu"), tenant.share("limit", "cpu", "cpu")) == (0, None)
    assert tenant.weight == 1


@pytest.mark.parametrize(("group", "pool"), [("cpu", "ray.acme"), ("gpu", "ray.acme.gpu")])
def test_a_pools_name_tells_tenant_and_group(group: str, pool: str) -> None:
    assert make_tenant().pool(group, "cpu") == pool


def test_pools_of_their_own_for_large_requests_and_backfills_exist_where_they_are_enabled() -> None:
    assert make_tenant().pools("cpu", "cpu") == {PoolKind.MAIN: "ray.acme"}
    tenant = make_tenant(large_from={"gpu": 2}, backfill={"limit": 6})
    assert tenant.pools("cpu", "cpu") == {PoolKind.MAIN: "ray.acme", PoolKind.BACKFILL: "ray.acme.backfill"}
    assert tenant.pools("gpu", "cpu") == {
        PoolKind.MAIN: "ray.acme.gpu",
        PoolKind.LARGE: "ray.acme.gpu.large",
        PoolKind.BACKFILL: "ray.acme.gpu.backfill",
    }
    assert (tenant.backfill_limit("cpu", "cpu"), tenant.backfill_limit("gpu", "cpu")) == (6, None)


@pytest.mark.parametrize(
    ("large_from", "slots", "kind"),
    [(None, 99, "main"), (8, 7, "main"), (8, 8, "large"), ({"cpu": 2}, 3, "large"), ({"gpu": 2}, 3, "main")],
)
def test_a_large_request_is_one_of_so_many_slots(large_from: Any, slots: int, kind: str) -> None:
    assert make_tenant(large_from=large_from).kind_for(slots, "cpu", "cpu") == kind


@pytest.mark.parametrize(
    ("below", "footprint", "tiny"),
    [
        ({"cpus": 0.5}, Resources(0.4, 9 * GIB), True),
        ({"cpus": 0.5}, Resources(0.5), False),
        ({"memory": "256MiB"}, Resources(8, 0), True),
        ({"cpus": 0.5, "memory": "256MiB"}, Resources(0.1, 128 * 1024**2), True),
        ({"cpus": 0.5, "memory": "256MiB"}, Resources(0.1, 256 * 1024**2), False),
        ({"cpus": 0.5}, Resources(0.1, gpus=0.1), False),
        ({"cpus": 0.5}, Resources(0.1, custom={"fpga": 1}), False),
    ],
)
def test_a_tiny_request_is_below_all_that_is_named(
    below: dict[str, Any], footprint: Resources, tiny: bool
) -> None:
    found = make_tenant(tiny={"below": below}).tiny
    assert found is not None
    assert found.action == "warn"
    assert found.below.holds(footprint) is tiny


@pytest.mark.parametrize(
    ("storage", "prefix"), [(None, None), ("s3://lake/acme/", StoragePrefix("lake", ("acme",)))]
)
def test_a_tenants_prefix_is_its_storage(storage: str | None, prefix: StoragePrefix | None) -> None:
    assert make_tenant(storage=storage, credentials="node").prefix == prefix


def test_the_first_group_of_the_file_is_the_default() -> None:
    slot = {"slot": {"cpus": 1, "memory": 1}}
    assert make_cluster(groups={"z": slot, "a": slot}).default_group == "z"


def test_amounts_become_resources() -> None:
    amount = Amount.model_validate({"cpus": 1, "memory": "4GiB", "gpus": 0.5})
    assert amount.resources == Resources(1, 4 * GIB, 0.5)
    assert Amount().resources == Resources()


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        (make_tenant(), "limit", 9),
        (make_cluster(), "usable", 0.1),
        (Amount(), "cpus", 2.0),
        (Rules(), "pools", []),
    ],
)
def test_a_part_cannot_be_changed(part: Any, key: str, value: object) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(part, key, value)


def test_a_runtime_environment_is_brought_into_its_normal_form() -> None:
    assert TenantDefaults.model_validate({"runtime_env": {"pip": ("a",)}}).runtime_env == {"pip": ["a"]}


@pytest.mark.parametrize("name", ["large", "backfill"])
def test_names_of_pools_to_come_are_no_groups(name: str) -> None:
    with pytest.raises(ValidationError, match=f"found '{name}'; allowed: names other than large, backfill"):
        make_cluster(groups={name: {"slot": {"cpus": 1, "memory": 1}}})


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (Amount, {"cpu": 1}, "cpu: found an unknown key; allowed: cpus, memory, gpus"),
        (Amount, [1], "found [1]; allowed: a mapping with the keys cpus, memory, gpus"),
        (Autoscale, {"max": {}, "largest_node": {}}, "Field required"),
        (Autoscale, {"max": {}, "largest_node": {"cpus": 0, "memory": 1}}, "found 0; allowed: more than 0"),
        (Cluster, {"ray_conn_id": "", "groups": {}}, "at least 1"),
    ],
)
def test_a_wrong_part_is_refused(model: Any, data: object, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        model.model_validate(data)
    assert message in str(error.value)


ROLE = {"aws_conn_id": "aws", "role_arn": "arn:aws:iam::000000000000:role/jobs"}


@pytest.mark.parametrize(("written", "seconds"), [("15m", 900), ("1h", 3600), (5400, 5400), ("12h", 43200)])
def test_how_long_credentials_live(written: object, seconds: int) -> None:
    assert RoleCredentials.model_validate({**ROLE, "duration": written}).duration == seconds


@pytest.mark.parametrize("written", ["14m", "13h", 899, "1 hour", True, 3600.0, None, [], "-1h"])
def test_what_sts_would_not_give_is_refused(written: object) -> None:
    with pytest.raises(ValidationError, match="allowed: 15m to 12h, as 90m or as seconds"):
        RoleCredentials.model_validate({**ROLE, "duration": written})


@pytest.mark.parametrize("url", ["s3.internal:9000", "ftp://s3", "http://user:pw@s3", "http://s3/?x=1"])
def test_nodes_find_s3_at_an_address_without_secrets(url: str) -> None:
    with pytest.raises(ValidationError, match="should match pattern"):
        RoleCredentials.model_validate({**ROLE, "node_endpoint_url": url})
