"""The policy that narrows a role to one prefix."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.domain.secrets import Secret
from airflow_provider_raytenant.domain.session_policy import session_policy
from airflow_provider_raytenant.domain.storage_prefix import StoragePrefix

ROLE = "arn:aws-cn:iam::000000000000:role/jobs"


def test_objects_below_the_prefix_and_listings_that_name_it_with_its_slash() -> None:
    policy = session_policy(StoragePrefix.parse("s3://lake/tenants/a"), "aws-cn")
    objects, lists, again = json.loads(policy)["Statement"]
    assert objects["Resource"] == ["arn:aws-cn:s3:::lake/tenants/a/*"]
    assert lists["Resource"] == ["arn:aws-cn:s3:::lake"]
    assert lists["Condition"] == {"StringLike": {"s3:prefix": ["tenants/a/*"]}}
    assert {objects["Effect"], lists["Effect"]} == {"Allow"}
    # A session must not get rid of its policy by assuming the role once more.
    assert (again["Effect"], again["Action"]) == ("Deny", ["sts:*", "iam:*"])


def test_a_whole_bucket_is_a_prefix_too() -> None:
    objects, lists, _ = json.loads(session_policy(StoragePrefix.parse("s3://lake")))["Statement"]
    assert objects["Resource"] == ["arn:aws:s3:::lake/*"]
    assert "Condition" not in lists


@pytest.mark.parametrize("url", ["s3://lake/tenants/*", "s3://lake/a*b", "s3://lake/${aws:userid}"])
def test_no_prefix_has_a_meaning_of_its_own_in_a_policy(url: str) -> None:
    with pytest.raises(ValueError, match="characters such as"):
        StoragePrefix.parse(url)


@given(st.lists(st.text(min_size=1, max_size=12), max_size=4))
def test_every_prefix_that_is_allowed_makes_a_policy_that_sts_takes(segments: list[str]) -> None:
    try:
        prefix = StoragePrefix.parse("/".join(["s3://lake", *segments]))
    except ValueError:
        return
    policy = session_policy(prefix)
    json.loads(policy)
    # STS takes 2048 characters of a policy.
    assert len(policy) < 2048


@given(
    st.text(
        min_size=2, max_size=120, alphabet=st.characters(categories=("Ll", "Lu", "Nd"), max_codepoint=126)
    )
)
def test_an_access_travels_in_a_triggers_arguments(name: str) -> None:
    access = Access("aws", ROLE, "s3://lake/a", name, secrets={"A": Secret.variable("acme_a")})
    assert Access.from_json(json.loads(json.dumps(access.to_json()))) == access
    assert 2 <= len(access.session_name) <= 64
    assert access.ticket_key == f"a/.raytenant/tickets/{name}.json"
    assert "arn:aws-cn:s3:::lake/a/*" in access.policy
