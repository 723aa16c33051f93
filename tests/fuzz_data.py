"""Odd data for the fuzz: whatever YAML or a template may bring, and texts that mean something somewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

SUSPICIOUS = st.sampled_from(
    [
        "",
        " ",
        "\0",
        "\ud800",
        "../..",
        "/etc",
        ".",
        "~",
        "s3://lake/tenants/globex/x.zip",
        "s3://lake/tenants/acme/x.zip",
        "s3://lake/tenants/acme/../globex/x.zip",
        "gcs://_ray_pkg_0123456789abcdef.zip",
        "file:///etc/passwd",
        "https://u:p@example.org/x",
        "git+https://example.org/a.git@x",
        "--index-url=https://evil.example.com",
        "-r /etc/passwd",
        "a\n--index-url https://evil.example.com",
        "${HOME}",
        "pandas==2.2.3",
        "in(a,b)",
        "!in(",
        "1GiB",
        "-1GiB",
        "9" * 400,
        "a" * 5000,
        "node",
        "acme",
        "none",
        "*",
        "[",
        "{{ ds }}",
        "RAYTENANT_X",
        "LD_PRELOAD",
    ]
)
TEXTS = st.one_of(SUSPICIOUS, st.text(max_size=8))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.sampled_from([10**30, -(10**30), 2**63]),
    st.floats(),
    TEXTS,
    st.binary(max_size=3),
    st.just(datetime(2026, 1, 1, tzinfo=UTC)),
)


def nested(keys: st.SearchStrategy[Any], leaves: st.SearchStrategy[Any] = SCALARS) -> st.SearchStrategy[Any]:
    """Lists and dicts in each other, with these keys and leaves."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(keys, inner, max_size=3),
            st.tuples(inner),
        ),
        max_leaves=5,
    )
