"""S3 prefixes of tenants: what a prefix is, what lies below it, when two overlap.

Everything here compares path segments, never text: ``tenants/a`` and ``tenants/ab`` are strangers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ALLOWED = "s3://bucket/prefix without '..', '.', empty segments, and characters such as %, * and $"

# The last two have a meaning in a policy.
_REFUSED = re.compile(r"[%\\?#\x00-\x1f\x7f*$]")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True)
class StoragePrefix:
    """A bucket and the path segments below it.

    Object stores do not normalise ``..`` or ``//``, but tools between us and them may; so such
    addresses are refused instead of being interpreted.
    """

    bucket: str
    segments: tuple[str, ...]

    @classmethod
    def parse(cls, url: str) -> StoragePrefix:
        """From ``s3://bucket/prefix``; a trailing slash makes no difference.

        :raises ValueError: saying what was found and what is allowed.
        """
        wrong = ValueError(f"found {url!r}; allowed: {ALLOWED}")
        if not isinstance(url, str) or not url.startswith("s3://"):
            raise wrong
        bucket, _, path = url.removeprefix("s3://").partition("/")
        if not _BUCKET.fullmatch(bucket):
            raise wrong
        segments = tuple(path.removesuffix("/").split("/")) if path else ()
        if any(s in ("", ".", "..") or re.search(_REFUSED, s) for s in segments):
            raise wrong
        return cls(bucket, segments)

    @property
    def folder(self) -> str:
        """What the keys below it begin with: ``tenants/a/``; empty for a whole bucket."""
        return "".join(f"{segment}/" for segment in self.segments)

    def contains(self, other: StoragePrefix) -> bool:
        """Whether ``other`` is this prefix or lies below it."""
        own = len(self.segments)
        return self.bucket == other.bucket and other.segments[:own] == self.segments

    def overlaps(self, other: StoragePrefix) -> bool:
        """Whether an object could belong to both."""
        return self.contains(other) or other.contains(self)

    def __str__(self) -> str:
        return "s3://" + "/".join((self.bucket, *self.segments))
