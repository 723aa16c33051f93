"""The ways in which a secret value may stand in a log."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator

# Airflow's masker has the same bound ([logging] min_length_masked_secret, 5 by default): what is shorter
# stands in half of all lines, and hiding it would destroy the output.
MIN_BYTES = 5
MIN_LINE_CHARACTERS = 8
_MIME_COLUMNS = 76  # base64(1), base64.encodebytes and RFC 2045 break lines there
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")  # RFC 3986


def forms(value: str) -> set[bytes]:
    """All that is looked for to hide this value.

    The value without white space around it, and of a value of several lines each line of 8 characters or
    more: as it is (UTF-8), escaped as JSON, as `repr`, as `ascii` and as the `repr` of bytes write it, as a
    shell quotes it inside single quotes, and as URLs do (`quote` with and without a safe slash,
    `quote_plus`). The whole value, with and without white space around it, also as base64, standard and
    URL-safe, with and without padding, and broken into lines of 76.

    Empty for a value shorter than 5 bytes without white space around it.

    Not looked for: the base64 of something that holds the value among other things, hex, compressed output,
    other letters' case, and a value that is printed in pieces with something between them.
    """
    bare = value.strip()
    if len(encode(bare)) < MIN_BYTES:
        return set()
    lines = {line.strip() for line in value.splitlines() if len(line.strip()) >= MIN_LINE_CHARACTERS}
    found = {form for text in {bare} | lines for form in _written(text)}
    found.update(form for text in {bare, value} for form in _base64(text))
    return found


def encode(text: str) -> bytes:
    """UTF-8, also of what is no valid Unicode; `decode` is the way back."""
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    """What `encode` got. Raises UnicodeDecodeError."""
    return data.decode("utf-8", "surrogatepass")


def _written(text: str) -> Iterator[bytes]:
    data = encode(text)
    yield data
    for escaped in (json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text), ascii(text)):
        yield encode(escaped[1:-1])
    yield repr(data)[2:-1].encode("ascii")
    yield encode(text.replace("'", "'\\''"))  # bash
    yield encode(text.replace("'", "'\"'\"'"))  # dash, shlex.quote
    strict = _url_quoted(data)
    for quoted in (strict, strict.replace("%2F", "/"), strict.replace("%20", "+")):
        yield quoted.encode("ascii")
        yield re.sub("%..", lambda match: match[0].lower(), quoted).encode("ascii")


def _url_quoted(data: bytes) -> str:
    # As urllib.parse.quote, whose import would add some 10 ms to the start of each job.
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in data)


def _base64(text: str) -> Iterator[bytes]:
    standard = binascii.b2a_base64(encode(text), newline=False)
    for whole in (standard, standard.translate(bytes.maketrans(b"+/", b"-_"))):
        yield whole
        yield whole.rstrip(b"=")
    lines = [standard[start : start + _MIME_COLUMNS] for start in range(0, len(standard), _MIME_COLUMNS)]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= MIN_LINE_CHARACTERS)
