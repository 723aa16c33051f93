"""Packages that a task may ask for: what passes, and every way around that is known."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_raytenant.domain.package_sources import Source, checked_source, refused, sources_of

INDEX = "https://pkgs.example.org/simple"
REPOSITORIES = "git+https://git.example.org/acme"


def keys(value: Any, *allowed: str, installer: str = "pip") -> list[str]:
    return [key for key, _ in refused(installer, value, map(Source.parse, allowed))]


@pytest.mark.parametrize(
    "line",
    [
        "pandas",
        "pandas==2.2.3",
        "Pandas >= 2, <3",
        "pandas (>=2,<3)",
        "torch[cuda,extra]==2.1.0+cu121",
        "torch [cuda] ~= 2.0",
        "a==1!2.0.*",
        "zope.interface>=5",
        "a; python_version < '3.12' and sys_platform == \"linux\"",
        "a>=1 ; (extra == 'x' or os_name != 'nt')",
        "a==1 --hash=sha256:0123456789abcdef --hash=sha256:ff",
        "# a comment of a file",
        "a==1  # why",
        "--pre",
        "--prefer-binary",
        "--no-binary :all:",
        "--only-binary=numpy,scipy",
    ],
)
def test_plain_requirements_pass(line: str) -> None:
    assert keys([line]) == []


ELSEWHERE = [
    # options
    "--index-url https://evil.example.com/simple",
    "--index-url=https://evil.example.com/simple",
    "-i https://evil.example.com/simple",
    "-ihttps://evil.example.com/simple",
    "--extra-index-url https://evil.example.com/simple",
    "--extra-index-url=https://evil.example.com/simple",
    "--extra-index https://evil.example.com/simple",
    "--find-links https://evil.example.com",
    "-f /tmp/wheels",
    "--find-links=file:///tmp/wheels",
    "  --index-url https://evil.example.com/simple",
    "--INDEX-URL https://evil.example.com/simple",
    "--trusted-host pkgs.example.org",
    "--pre --index-url https://evil.example.com/simple",
    "--index-url",
    "--no-binary",
    # files of the node
    "-r /etc/passwd",
    "-r requirements.txt",
    "-c https://evil.example.com/constraints.txt",
    "-e git+https://evil.example.com/a.git",
    "--requirement=/etc/passwd",
    "./a",
    "/tmp/a.whl",
    "a.whl",
    "a-1-py3-none-any.whl",
    "a.tar.gz",
    "A.ZIP",
    "a.zip[x]",
    "a.whl [x] ; python_version > '3'",
    "../a",
    "~/a",
    "file:///tmp/a.whl",
    "a @ file:///tmp/a.whl",
    "a @ /tmp/a.whl",
    # direct addresses
    "https://evil.example.com/a.whl",
    "a @ https://evil.example.com/a.whl",
    "a@https://evil.example.com/a.whl",
    "a[x] @ https://evil.example.com/a.whl ; python_version > '3'",
    "git+https://evil.example.com/a.git",
    "GIT+HTTPS://evil.example.com/a.git",
    "a @ git+ssh://git@evil.example.com/a.git@main",
    "hg+http://evil.example.com/a",
    "git+file:///srv/a",
    # other lines, and what pip and uv fill in from the node's environment
    "a\n--index-url https://evil.example.com/simple",
    "a\r--index-url https://evil.example.com/simple",
    "a\x0b--index-url https://evil.example.com/simple",
    "a\x85--index-url https://evil.example.com/simple",
    "a\u2028--index-url https://evil.example.com/simple",
    "a \\",
    "${OPTIONS}",
    "a @ https://pkgs.example.org/simple/${AWS_SECRET_ACCESS_KEY}",
    "$OPTIONS",
    "a\t--index-url\thttps://evil.example.com/simple",
    "a --index-url https://evil.example.com/simple",
    "a --global-option=x",
    "a --config-settings=x=y",
    "a==1 --hash=sha256:ff --index-url=https://evil.example.com/simple",
    'a "--index-url=https://evil.example.com/simple"',
    # nonsense
    "a b",
    "==1",
    "é",
    "a" * 3000,
]


@pytest.mark.parametrize("line", ELSEWHERE)
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_another_source_is_refused_however_it_is_written(line: str, installer: str) -> None:
    allowed = (INDEX, REPOSITORIES)
    assert keys(["pandas", line], *allowed, installer=installer) == [f"{installer}.packages[1]"]
    assert keys({"packages": [line]}, *allowed, installer=installer) == [f"{installer}.packages[0]"]


@pytest.mark.parametrize(
    "line",
    [
        f"--index-url {INDEX}",
        f"--index-url={INDEX}/",
        f"-i {INDEX}",
        f"--extra-index-url {INDEX}/team",
        f"--index-url {INDEX} --pre",
        "--index-url HTTPS://PkGs.example.org:443/simple",
        f"a @ {INDEX}/a/a-1-py3-none-any.whl",
        f"a @ {INDEX}/a/a.whl#sha256=ff ; python_version > '3'",
        f"{INDEX}/a/a.whl",
        f"{REPOSITORIES}/a.git",
        f"a @ {REPOSITORIES}/a.git@v1.0#egg=a",
    ],
)
def test_an_allowed_source_may_be_named_and_what_lies_below_it(line: str) -> None:
    assert keys([line], INDEX, REPOSITORIES) == []
    assert keys([line]) == ["pip.packages[0]"]


@pytest.mark.parametrize(
    "url",
    [
        "http://pkgs.example.org/simple",
        "https://pkgs.example.org/simple2",
        "https://pkgs.example.org/",
        "https://pkgs.example.org:8443/simple",
        "https://pkgs.example.org.evil.example.com/simple",
        "https://evil.example.com/pkgs.example.org/simple",
        "https://pkgs.example.org@evil.example.com/simple",
        "https://u:p@pkgs.example.org/simple",
        "https://pkgs.example.org/simple/../evil",
        "https://pkgs.example.org/simple/%2e%2e/evil",
        "https://pkgs.example.org/simple//../evil",
        "https://pkgs.example.org//simple",
        "https://pkgs.example.org/simple?x=https://evil.example.com",
        "https://pkgs.example.org/simple,https://evil.example.com",
        "https://pkgs.example.org\\@evil.example.com/simple",
        "//pkgs.example.org/simple",
        "evil=https://pkgs.example.org/simple",
        f"git+{INDEX}",
    ],
)
def test_what_only_looks_like_an_allowed_source_is_refused(url: str) -> None:
    for line in (f"--index-url {url}", f"--extra-index-url={url}", f"a @ {url}"):
        assert keys([line], INDEX) == ["pip.packages[0]"]
    assert keys({"packages": [], "pip_install_options": ["--index-url", url]}, INDEX) == [
        "pip.pip_install_options"
    ]


@pytest.mark.parametrize("revision", ["x/../../evil.git", "x/../../evil.git@v1"])
def test_a_revision_hides_no_other_repository(revision: str) -> None:
    # pip and uv take what stands behind the last @ for the revision; uv resolves '..' before that.
    assert keys([f"{REPOSITORIES}@{revision}"], REPOSITORIES) == ["pip.packages[0]"]


def test_what_stands_behind_the_last_at_sign_only_is_the_revision() -> None:
    assert keys([f"{REPOSITORIES}@x/evil.git@v1"], REPOSITORIES) == ["pip.packages[0]"]
    assert keys([f"{REPOSITORIES}/a.git@feature/x"], f"{REPOSITORIES}/a.git") == []


@pytest.mark.parametrize(
    ("installer", "more", "key"),
    [
        ("pip", {"pip_install_options": ["--index-url=https://evil.example.com"]}, "pip_install_options"),
        ("pip", {"pip_install_options": ["-r", "/etc/passwd"]}, "pip_install_options"),
        ("pip", {"pip_install_options": ["evil-package"]}, "pip_install_options"),
        ("pip", {"pip_install_options": ["--target", "/usr/lib"]}, "pip_install_options"),
        ("pip", {"pip_install_options": ["--proxy=http://evil.example.com"]}, "pip_install_options"),
        ("pip", {"pip_install_options": ["--log", "/tmp/x"]}, "pip_install_options"),
        ("pip", {"pip_install_options": "--no-deps"}, "pip_install_options"),
        ("pip", {"pip_install_options": [["--no-deps"]]}, "pip_install_options"),
        ("pip", {"pip_install_options": None}, "pip_install_options"),
        ("pip", {"pip_version": " @ https://evil.example.com/pip.whl"}, "pip_version"),
        ("pip", {"pip_version": "-evil==1"}, "pip_version"),
        ("pip", {"pip_version": 24}, "pip_version"),
        ("pip", {"pip_check": "no"}, "pip_check"),
        ("pip", {"uv_version": "==1"}, "uv_version"),
        ("pip", {"options": []}, "options"),
        ("uv", {"uv_pip_install_options": ["--index", "https://evil.example.com"]}, "uv_pip_install_options"),
        ("uv", {"uv_pip_install_options": ["--default-index=$EVIL"]}, "uv_pip_install_options"),
        ("uv", {"uv_version": "x @ https://evil.example.com/uv.whl"}, "uv_version"),
        ("uv", {"pip_install_options": []}, "pip_install_options"),
    ],
)
def test_the_options_beside_the_packages_are_held_to_the_same(
    installer: str, more: dict[str, Any], key: str
) -> None:
    assert keys({"packages": ["a"], **more}, INDEX, installer=installer) == [f"{installer}.{key}"]


def test_plain_options_beside_the_packages_pass() -> None:
    pip = {
        "packages": ["a"],
        "pip_check": True,
        "pip_version": "==24.0",
        "pip_install_options": ["--no-deps", "--timeout", "30", "--index-url", INDEX, "-U"],
    }
    uv = {
        "packages": ["a"],
        "uv_version": "==0.9",
        "uv_pip_install_options": ["--no-cache", f"--index={INDEX}"],
    }
    assert keys(pip, INDEX) == []
    assert keys(uv, INDEX, installer="uv") == []


def test_the_addresses_of_the_tenants_own_environment_are_found() -> None:
    env = {
        "pip": {
            "packages": ["a", "b @ https://one.example.org/b.whl"],
            "pip_install_options": ["--index-url=https://two.example.org/simple", "--no-deps"],
        },
        "uv": ["--extra-index-url https://three.example.org", "-f https://u:p@four.example.org"],
    }
    assert [source.host for source in sources_of(env)] == [
        "one.example.org",
        "two.example.org",
        "three.example.org",
    ]
    assert sources_of({}) == []


@pytest.mark.parametrize(
    "url", ["", "pkgs.example.org", "https://", "https://u:p@h/x", "https://h/../x", "s 3://x"]
)
def test_a_rule_names_a_whole_address(url: str) -> None:
    with pytest.raises(ValueError, match="allowed: an address such as"):
        checked_source(url)
