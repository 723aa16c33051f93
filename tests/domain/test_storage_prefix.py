from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.storage_prefix import ALLOWED, StoragePrefix
from tests.domain.helpers import seeded

_segment = st.text(st.sampled_from("ab-_.= é~"), min_size=1, max_size=3).filter(
    lambda s: s not in (".", "..")
)
_prefix = st.builds(
    StoragePrefix, st.sampled_from(["lake", "lake-2"]), st.lists(_segment, max_size=4).map(tuple)
)


@pytest.mark.parametrize(
    ("url", "bucket", "segments"),
    [
        ("s3://lake", "lake", ()),
        ("s3://lake/", "lake", ()),
        ("s3://lake/tenants/a", "lake", ("tenants", "a")),
        ("s3://lake/tenants/a/", "lake", ("tenants", "a")),
        ("s3://my.lake-2/a..b/.hidden/x=1", "my.lake-2", ("a..b", ".hidden", "x=1")),
    ],
)
def test_an_address_is_a_bucket_and_segments(url: str, bucket: str, segments: tuple[str, ...]) -> None:
    prefix = StoragePrefix.parse(url)
    assert (prefix.bucket, prefix.segments) == (bucket, segments)
    assert str(prefix) == url.removesuffix("/")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "lake/a",
        "s3:/lake/a",
        "S3://lake/a",
        "s3a://lake/a",
        "https://lake/a",
        " s3://lake/a",
        "s3://",
        "s3:///a",
        "s3://La/a",
        "s3://l/a",
        "s3://-lake/a",
        "s3://la_ke/a",
        f"s3://{'a' * 64}/a",
        "s3://lake@x/a",
        "s3://lake:80/a",
        "s3://lake?x/a",
        "s3://lake/..",
        "s3://lake/a/../b",
        "s3://lake/a/..",
        "s3://lake/.",
        "s3://lake/a/./b",
        "s3://lake//",
        "s3://lake//a",
        "s3://lake/a//b",
        "s3://lake/a//",
        "s3://lake/a%2e%2e/b",
        "s3://lake/%2e%2e/b",
        "s3://lake/a%2Fb",
        "s3://lake/a\\b",
        "s3://lake/..\\b",
        "s3://lake/a?b",
        "s3://lake/a#b",
        "s3://lake/a\nb",
        "s3://lake/a\x00",
        "s3://lake/\x7f",
    ],
)
def test_an_address_that_a_tool_could_read_otherwise_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="found") as error:
        StoragePrefix.parse(url)
    assert str(error.value) == f"found {url!r}; allowed: {ALLOWED}"


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="found None; allowed"):
        StoragePrefix.parse(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "contains", "overlaps"),
    [
        ("s3://lake/tenants/a", "s3://lake/tenants/a", True, True),
        ("s3://lake/tenants/a", "s3://lake/tenants/a/", True, True),
        ("s3://lake/tenants/a", "s3://lake/tenants/a/x", True, True),
        ("s3://lake/tenants/a/x", "s3://lake/tenants/a", False, True),
        ("s3://lake/tenants/a", "s3://lake/tenants/ab", False, False),
        ("s3://lake/tenants/ab", "s3://lake/tenants/a", False, False),
        ("s3://lake/tenants/a", "s3://lake/tenants/A", False, False),
        ("s3://lake", "s3://lake/tenants/a", True, True),
        ("s3://lake", "s3://lake-2/tenants/a", False, False),
        ("s3://lake/a", "s3://pond/a", False, False),
    ],
)
def test_segments_are_compared_not_text(one: str, other: str, contains: bool, overlaps: bool) -> None:
    left, right = StoragePrefix.parse(one), StoragePrefix.parse(other)
    assert left.contains(right) is contains
    assert left.overlaps(right) is right.overlaps(left) is overlaps


@seeded
@given(_prefix, _prefix, _segment)
def test_an_object_below_both_means_that_they_overlap(
    one: StoragePrefix, two: StoragePrefix, name: str
) -> None:
    below = StoragePrefix(one.bucket, (*one.segments, name))
    assert one.contains(one)
    assert one.contains(below)
    assert not below.contains(one)
    assert one.overlaps(two) is (one.contains(two) or two.contains(one))
    # By text, with the slash that ends a segment.
    assert one.contains(two) is f"{two}/".startswith(f"{one}/")
    if two.contains(below):
        assert one.overlaps(two)


@seeded
@given(_prefix)
def test_an_address_comes_back_from_its_text(prefix: StoragePrefix) -> None:
    assert StoragePrefix.parse(str(prefix)) == prefix
