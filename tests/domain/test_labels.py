from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.labels import Condition, combined, matches
from tests.domain.helpers import seeded


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a", "a", "a"),
        ("a", "in(a,b)", "a"),
        ("a", "!b", "a"),
        ("in(a,b,c)", "!b", "in(a,c)"),
        ("in(a,b)", "in(b,c)", "b"),
        ("!a", "!b", "!in(a,b)"),
        ("!in(a,b)", "!b", "!in(a,b)"),
        ("a", "b", None),
        ("a", "!a", None),
        ("in(a, b)", "!in(b,a)", None),
    ],
)
def test_two_conditions_become_one_that_asks_for_both(one: str, other: str, both: str | None) -> None:
    found = Condition.parse(one).and_(Condition.parse(other))
    assert (found and str(found)) == both
    reverse = Condition.parse(other).and_(Condition.parse(one))
    assert reverse == found


def test_what_stands_alone_is_taken_over_as_it_is_written() -> None:
    assert combined([{"zone": " in(b, a)"}, {"team": "acme"}, {}]) == {"zone": " in(b, a)", "team": "acme"}
    assert combined([]) == {}


def test_what_no_label_can_be_is_an_error_with_both_conditions() -> None:
    with pytest.raises(ValueError, match=r"^no label team is both 'acme' and 'in\(b,c\)'$"):
        combined([{"team": "acme"}, {"zone": "1", "team": "in(b,c)"}])


_values = st.sampled_from(["a", "b", "c", "d"])
_conditions = st.builds(Condition, st.frozensets(_values, min_size=1), st.booleans()).map(str)
_selectors = st.lists(st.dictionaries(st.sampled_from(["x", "y"]), _conditions), max_size=4)


@seeded
@given(_selectors, st.dictionaries(st.sampled_from(["x", "y"]), _values))
def test_a_combined_selector_holds_for_the_nodes_that_all_of_them_hold_for(
    selectors: list[dict[str, str]], labels: dict[str, str]
) -> None:
    holds = all(matches(selector, labels) for selector in selectors)
    try:
        assert matches(combined(selectors), labels) is holds
    except ValueError:
        assert not holds
