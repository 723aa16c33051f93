"""Where a task's ``pip`` or ``uv`` packages may come from.

Ray writes the packages line by line into a requirements file and hands the options to ``pip install`` as
they are (``ray/_private/runtime_env/pip.py`` and ``uv.py``, 2.60), with the node's own environment: a line
may hold options, name a file of the node, or have ``${AWS_SECRET_ACCESS_KEY}`` filled in. So only lines and
options whose meaning is known pass; all others are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SOURCE_ALLOWED: Final = "an address such as https://pkgs.example.org/simple, without password, '..' or query"

_SOURCE_OPTIONS = frozenset(
    {"--index-url", "-i", "--extra-index-url", "--find-links", "-f", "--index", "--default-index"}
)
_VALUE_OPTIONS = frozenset(
    {
        "--index-strategy",
        "--link-mode",
        "--no-binary",
        "--only-binary",
        "--prerelease",
        "--progress-bar",
        "--resolution",
        "--retries",
        "--timeout",
        "--upgrade-strategy",
    }
)
_FLAGS = frozenset(
    {
        "--compile-bytecode",
        "--disable-pip-version-check",
        "--force-reinstall",
        "--no-build",
        "--no-build-isolation",
        "--no-cache",
        "--no-cache-dir",
        "--no-color",
        "--no-compile",
        "--no-deps",
        "--no-index",
        "--no-input",
        "--pre",
        "--prefer-binary",
        "--quiet",
        "--require-hashes",
        "--upgrade",
        "--verbose",
        "-U",
        "-q",
        "-v",
    }
)
_URL = re.compile(
    r"([a-z][a-z0-9+.-]*)://([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(:\d{1,5})?"
    r"(/[a-z0-9._~/@+=!-]*)?(#[a-z0-9._=&:-]*)?",
    re.IGNORECASE,
)
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?: ?\[[A-Za-z0-9._, -]*\])?"
_VERSIONS = r"(?: ?(?:===|==|~=|!=|<=|>=|<|>) ?[A-Za-z0-9._*+!-]+ ?,?)+"
_MARKER = r"(?: ?;[A-Za-z0-9_.\"'<>=!~(), *+-]*)?"
_PLAIN = re.compile(rf"({_NAME})(?: ?\({_VERSIONS} ?\)|{_VERSIONS})?{_MARKER}")
_DIRECT = re.compile(rf"(?:{_NAME} ?@ ?)?([^ ;]+://[^ ;]+)(?: {_MARKER})?")
# pip takes a line that ends like this for a file of the node, if there is one.
_FILE = re.compile(r"\.(?:whl|egg|zip|tar|tgz|tbz2?|txz|tlz|gz|bz2|xz|lzma|txt|in|toml|py)$", re.IGNORECASE)
_HASH = re.compile(r"--hash=[a-z0-9]+:[0-9a-f]+")
_VERSION_OF_TOOL = re.compile(rf"{_VERSIONS}")
_VALUE = re.compile(r"[A-Za-z0-9:,._-]*")
_LONGEST = 2000


@dataclass(frozen=True)
class Source:
    """A place that packages come from; it covers what lies below it by path segments."""

    scheme: str
    host: str
    segments: tuple[str, ...]

    @classmethod
    def parse(cls, url: object) -> Source:
        """From ``https://host/path`` or ``git+https://host/repository@revision`` (the revision is left out).

        :raises ValueError: saying what was found and what is allowed.
        """
        match = _URL.fullmatch(url) if isinstance(url, str) and len(url) <= _LONGEST else None
        if match is None:
            raise ValueError(f"found {url!r}; allowed: {SOURCE_ALLOWED}")
        scheme, path = match[1].lower(), match[4] or ""
        # Before the revision is cut off: uv resolves '..' first.
        if path.startswith("//") or any(part in ("", ".", "..") for part in _parts(path)):
            raise ValueError(f"found {url!r}; allowed: {SOURCE_ALLOWED}")
        if "+" in scheme and "@" in path:
            # The last one, as pip and uv do it: what stands before is the repository.
            path = path.rpartition("@")[0]
        segments = _parts(path)
        port = "" if match[3] in (":443" if scheme.endswith("https") else ":80", None) else match[3]
        return cls(scheme, match[2].lower() + port, segments)

    def covers(self, other: Source) -> bool:
        """Whether ``other`` is this place or lies below it."""
        same = (self.scheme, self.host) == (other.scheme, other.host)
        return same and other.segments[: len(self.segments)] == self.segments


def _parts(path: str) -> tuple[str, ...]:
    inner = path.removeprefix("/").removesuffix("/")
    return tuple(inner.split("/")) if inner else ()


def checked_source(url: str) -> str:
    """``url`` itself, once it is one that a rule can name.

    :raises ValueError: saying what was found and what is allowed.
    """
    Source.parse(url)
    return url


def sources_of(env: Mapping[str, Any]) -> list[Source]:
    """Every address that the packages and options of a (tenant's own) runtime environment name."""
    found = []
    for installer in ("pip", "uv"):
        for line in _lines(env.get(installer)):
            for word in re.findall(r"[^\s=,;]+://[^\s,;]+", line):
                try:
                    found.append(Source.parse(word))
                except ValueError:
                    continue
    return found


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _lines(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _lines(inner)


def refused(installer: str, value: Any, allowed: Iterable[Source]) -> Iterator[tuple[str, str]]:
    """What in ``pip`` or ``uv`` names another source, or what nobody knows: key path and text.

    :param value: a list of requirements, or a dict with ``packages``, as ``runtime_env.checked`` leaves it.
    """
    sources = list(allowed)
    whole = value if isinstance(value, Mapping) else {"packages": value}
    for index, line in enumerate(whole["packages"]):
        if not _line_is_good(line, sources):
            yield f"{installer}.packages[{index}]", line
    options_key = "pip_install_options" if installer == "pip" else "uv_pip_install_options"
    options = whole.get(options_key, [])
    if not _is_texts(options) or not _options_are_good(options, sources):
        yield f"{installer}.{options_key}", str(options)
    version = whole.get(f"{installer}_version", "==1")
    if not isinstance(version, str) or not _matches(_VERSION_OF_TOOL, version):
        yield f"{installer}.{installer}_version", str(version)
    check = whole.get(f"{installer}_check", False)
    if not isinstance(check, bool):
        yield f"{installer}.{installer}_check", str(check)
    known = {"packages", options_key, f"{installer}_version", f"{installer}_check"}
    for key in whole:
        if key not in known:
            yield f"{installer}.{key}", "an unknown key"


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _is_tame(text: str) -> bool:
    """No other line, no continuation, nothing that pip or uv fills in from the node's environment."""
    return len(text) <= _LONGEST and not re.search(r"[^\x20-\x7e]|[\\$]", text)


def _matches(pattern: re.Pattern[str], text: str) -> bool:
    return _is_tame(text) and pattern.fullmatch(text) is not None


def _line_is_good(line: str, sources: list[Source]) -> bool:
    if not _is_tame(line):
        return False
    words = re.sub(r"(^|\s+)#.*$", "", line).split()
    if not words:
        return True
    if words[0].startswith("-"):
        return _options_are_good(words, sources)
    end = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    return _requirement_is_good(" ".join(words[:end]), sources) and all(
        _HASH.fullmatch(word) for word in words[end:]
    )


def _requirement_is_good(requirement: str, sources: list[Source]) -> bool:
    direct = _DIRECT.fullmatch(requirement)
    if direct:
        return _is_allowed(direct[1], sources)
    # Its extras and marker do not make a file's name another.
    package = re.sub(r"\[.*\]", "", requirement.partition(";")[0]).strip()
    return _PLAIN.fullmatch(requirement) is not None and not _FILE.search(package)


def _options_are_good(words: Sequence[str], sources: list[Source]) -> bool:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not _is_tame(word):
            return False
        if word in _FLAGS:
            continue
        name, given, value = word.partition("=")
        if name not in _SOURCE_OPTIONS and name not in _VALUE_OPTIONS:
            return False
        if not given:
            if not rest:
                return False
            value = rest.pop(0)
        if not (_is_allowed(value, sources) if name in _SOURCE_OPTIONS else _matches(_VALUE, value)):
            return False
    return True


def _is_allowed(url: str, sources: list[Source]) -> bool:
    try:
        wanted = Source.parse(url)
    except ValueError:
        return False
    return any(source.covers(wanted) for source in sources)
