from __future__ import annotations

import pytest

from airflow_provider_raytenant.domain.demand import Demand
from airflow_provider_raytenant.domain.pool_sizes import Claim, size_pools


@pytest.mark.parametrize(
    ("claim", "slots", "why"),
    [
        (Claim("a"), 10, "guarantee 0, weight 1; 10 of headroom"),
        (Claim("a", 4, 2.5, 6), 6, "guarantee 4, weight 2.5, limit 6; 6 of headroom"),
        (Claim("a", occupied=3), 10, "guarantee 0, weight 1; 7 of headroom; 3 borrowed"),
        (
            Claim("a", 4, occupied=3, demand=Demand((1,))),
            10,
            "guarantee 4, weight 1; 1 waits for 1 slot, 1 free for that; 6 of headroom",
        ),
        (
            Claim("a", 4, occupied=9, demand=Demand((2, 2), 90)),
            8,
            "guarantee 4, weight 1; 2 wait for 4 slots, the first for 1m 30s, none is free; "
            "4 borrowed; drains 1",
        ),
        (
            Claim("a", 4, limit=6, occupied=8, demand=Demand((2, 7))),
            6,
            "guarantee 4, weight 1, limit 6; 1 waits for 2 slots, none is free; 1 asks for more than 6; "
            "2 borrowed; drains 2",
        ),
        (
            Claim("a", occupied=2, uncounted=3, demand=Demand((4,))),
            7,
            "guarantee 0, weight 1; 1 waits for 4 slots, 4 free for that; 1 of headroom; 9 borrowed; "
            "3 held by jobs whose task is over",
        ),
        # More than there is: Airflow is told nothing below zero.
        (
            Claim("a", uncounted=12),
            0,
            "guarantee 0, weight 1; 10 borrowed; drains 2; 12 held by jobs whose task is over",
        ),
    ],
)
def test_what_decided_is_said_in_words(claim: Claim, slots: int, why: str) -> None:
    size = size_pools(10, [claim])["a"]
    assert (size.slots, size.why) == (slots, why)
    assert size.most == (10 if claim.limit is None else claim.limit)


def test_who_borrowed_drains_as_far_as_another_lacks() -> None:
    rich = Claim("rich", 4, occupied=10, demand=Demand((1,) * 50))
    back = Claim("back", 4, demand=Demand((1, 1, 1)))
    sizes = size_pools(10, [rich, back])
    assert {name: size.slots for name, size in sizes.items()} == {"rich": 7, "back": 0}
    assert sizes["rich"].why.endswith("3 borrowed; drains 3")


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [(10.0, {"rich": 9, "poor": 0}), (3600.0, {"rich": 6, "poor": 2})],
    ids=["short jobs", "long jobs"],
)
def test_where_jobs_run_for_hours_a_minute_in_line_is_no_starving(
    seconds: float, sizes: dict[str, int]
) -> None:
    """Everyone is first for minutes there: slots would go to who waits longest, not to who holds least."""
    rich = Claim("rich", occupied=8, demand=Demand((1,) * 9, 300.0, held=((1, seconds),) * 8))
    poor = Claim("poor", demand=Demand((2,) * 9, 200.0))
    assert {name: size.slots for name, size in size_pools(10, [rich, poor]).items()} == sizes
