from __future__ import annotations

import pytest

from airflow_provider_raytenant.domain.pool_owner import owner_of
from tests.domain.helpers import make_cluster, make_file, make_tenant

FILE = make_file(
    make_cluster(),
    make_tenant("acme", limit={"cpu": 20}, large_from=8, backfill={"limit": 6}),
    make_tenant("globex", limit=4, backfill={"limit": 6}),
    make_tenant("initech"),
)


@pytest.mark.parametrize(
    ("pool", "tenant", "limit"),
    [
        ("ray.acme", "acme", 20),
        ("ray.acme.gpu", "acme", None),
        ("ray.acme.large", "acme", 20),
        ("ray.acme.backfill", "acme", 6),
        ("ray.globex.backfill", "globex", 4),
        ("ray.initech", "initech", None),
        # The file has no such pool (any more); tasks may still be in it.
        ("ray.initech.large", "initech", None),
    ],
)
def test_a_pool_has_an_owner_and_the_limit_that_the_file_sets(
    pool: str, tenant: str, limit: int | None
) -> None:
    found = owner_of(FILE, pool)
    assert found is not None
    assert (found.tenant.name, found.limit) == (tenant, limit)


@pytest.mark.parametrize("pool", ["default_pool", "ray.nobody", "ray.initech.fpga", "ray"])
def test_what_no_tenant_has_has_no_owner(pool: str) -> None:
    assert owner_of(FILE, pool) is None
