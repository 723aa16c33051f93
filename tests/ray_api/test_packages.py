"""Folders as packages: the same folder gives the same package, whatever else differs."""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_provider_raytenant.exceptions import RayUnavailableError, RequestError
from airflow_provider_raytenant.ray_api import packages as packages_module
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.packages import (
    Package,
    ensure_uploaded,
    folder_package,
    runner_package,
)
from tests.fakes import faults
from tests.fakes.ray_server import FakeRay

FILES = {"main.py": "print(1)\n", "lib/__init__.py": "", "lib/data/table.csv": "a,b\n1,2\n", "zeta.txt": "z"}


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def entries(package: Package) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(package.content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "code", FILES)


def test_the_name_is_what_ray_takes(folder: Path) -> None:
    assert re.fullmatch(r"gcs://_ray_pkg_[0-9a-f]{40}\.zip", folder_package(folder, owner="acme").uri)


def test_the_zip_holds_the_files_in_order(folder: Path) -> None:
    held = entries(folder_package(folder, owner="acme"))

    assert held == {name: text.encode() for name, text in FILES.items()}
    assert list(held) == ["main.py", "zeta.txt", "lib/__init__.py", "lib/data/table.csv"]


def test_below_puts_everything_into_a_folder(folder: Path) -> None:
    plain = folder_package(folder, owner="acme")
    below = folder_package(folder, owner="acme", below="mylib")

    assert list(entries(below)) == [f"mylib/{name}" for name in entries(plain)]
    assert below.uri != plain.uri


def test_mtime_umask_and_order_do_not_matter(tmp_path: Path, folder: Path) -> None:
    before = os.umask(0o077)
    try:
        other = write(tmp_path / "another-place", dict(reversed(FILES.items())))
    finally:
        os.umask(before)
    for number, path in enumerate(sorted(other.rglob("*"))):
        os.utime(path, (10**9 + number, 10**9 + number))
    (other / "main.py").chmod(0o666)

    assert folder_package(other, owner="acme") == folder_package(folder, owner="acme")


def test_the_same_folder_twice(folder: Path) -> None:
    assert folder_package(folder, owner="acme") == folder_package(folder, owner="acme")


def test_a_path_relative_or_with_a_slash_is_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = folder_package(folder, owner="acme")
    monkeypatch.chdir(folder)

    assert folder_package(Path(), owner="acme") == whole
    monkeypatch.chdir(folder.parent)
    assert folder_package(Path("./code/"), owner="acme") == whole


def test_whatever_matters_changes_the_name(folder: Path) -> None:
    uris = [folder_package(folder, owner="acme").uri, folder_package(folder, owner="globex").uri]
    uris.append(folder_package(folder, owner="acme", below="x").uri)
    uris.append(folder_package(folder, owner="acme", excludes=["zeta.txt"]).uri)
    (folder / "zeta.txt").chmod(0o755)
    uris.append(folder_package(folder, owner="acme").uri)
    (folder / "zeta.txt").write_text("Z")
    uris.append(folder_package(folder, owner="acme").uri)
    (folder / "zeta.txt").rename(folder / "eta.txt")
    uris.append(folder_package(folder, owner="acme").uri)

    assert len(set(uris)) == len(uris)


def test_content_cannot_pass_for_another_layout(tmp_path: Path) -> None:
    """Lengths are part of the name: a file that spells out the next one is not two files."""
    two = write(tmp_path / "two", {"a": "1", "b": "2"})
    one = write(tmp_path / "one", {"a": "1b\0" + str(0o644) + "\x001\x002"})

    assert folder_package(two, owner="acme").uri != folder_package(one, owner="acme").uri


def test_the_executable_bit_travels(folder: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    content = folder_package(folder, owner="acme").content

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert modes["run.sh"] == stat.S_IFREG | 0o755
    assert modes["main.py"] == stat.S_IFREG | 0o644


@pytest.mark.parametrize(
    "skipped",
    [
        "__pycache__/x.py",
        "lib/__pycache__/x.py",
        ".git/config",
        ".venv/bin/python",
        "node_modules/a/b.js",
        "lib/old.pyc",
        ".hg/x",
        ".svn/x",
    ],
)
def test_what_is_no_code_is_left_out(folder: Path, skipped: str) -> None:
    without = folder_package(folder, owner="acme")
    write(folder, {skipped: "junk"})

    assert folder_package(folder, owner="acme") == without


def test_hidden_files_and_linked_ones_go_along(tmp_path: Path, folder: Path) -> None:
    write(folder, {".env.example": "A=1"})
    (tmp_path / "shared.py").write_text("shared = 1")
    (folder / "linked.py").symlink_to(tmp_path / "shared.py")
    (folder / "dangling.py").symlink_to(tmp_path / "nowhere.py")
    held = entries(folder_package(folder, owner="acme"))

    assert held[".env.example"] == b"A=1"
    assert held["linked.py"] == b"shared = 1"
    assert "dangling.py" not in held


@pytest.mark.parametrize(
    ("excludes", "left"),
    [
        (["*.csv"], ["main.py", "zeta.txt", "lib/__init__.py"]),
        (["lib/"], ["main.py", "zeta.txt"]),
        (["*", "!main.py"], ["main.py"]),
        (["/zeta.txt", "data"], ["main.py", "lib/__init__.py"]),
        (["# a comment", ""], ["main.py", "zeta.txt", "lib/__init__.py", "lib/data/table.csv"]),
    ],
)
def test_excludes_are_those_of_gitignore(folder: Path, excludes: list[str], left: list[str]) -> None:
    assert list(entries(folder_package(folder, owner="acme", excludes=excludes))) == left


def test_binary_and_odd_names(tmp_path: Path) -> None:
    files = {"a b/ä 日本.bin": bytes(range(256)), "-x": b"", "we'ird\"": b"1"}
    assert entries(folder_package(write(tmp_path / "odd", files), owner="acme")) == files


def test_a_missing_folder(tmp_path: Path, folder: Path) -> None:
    for path in (tmp_path / "nowhere", folder / "main.py"):
        with pytest.raises(RequestError, match=f"found no folder '{path}'"):
            folder_package(path, owner="acme")


def test_an_empty_folder(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty" / "deeper").mkdir(parents=True)
    with pytest.raises(RequestError, match="found no file in"):
        folder_package(tmp_path / "empty", owner="acme")
    with pytest.raises(RequestError, match="found no file in"):
        folder_package(folder, owner="acme", excludes=["*"])


def test_a_folder_that_is_too_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(len(text) for text in FILES.values())
    monkeypatch.setattr(packages_module, "MAX_BYTES", size)
    folder_package(folder, owner="acme")

    monkeypatch.setattr(packages_module, "MAX_BYTES", size - 1)
    with pytest.raises(RequestError, match=f"found more than {size - 1} bytes in '{folder}'"):
        folder_package(folder, owner="acme")


def test_the_runner_is_importable_by_its_name() -> None:
    held = entries(runner_package("acme"))

    assert {"raytenant_runner/__init__.py", "raytenant_runner/__main__.py"} <= set(held)
    assert all(name.startswith("raytenant_runner/") and name.endswith(".py") for name in held)
    assert runner_package("acme") == runner_package("acme")
    assert runner_package("acme").uri != runner_package("globex").uri


async def test_only_what_is_missing_is_uploaded(fake: FakeRay, client: RayClient) -> None:
    there, missing = Package("gcs://a.zip", b"a"), Package("gcs://b.zip", b"b")
    fake.packages = {there.uri: there.content}

    assert await ensure_uploaded(client, [there, missing]) == 1
    assert fake.packages == {there.uri: b"a", missing.uri: b"b"}
    # An upload does not pin a package, a look does.
    assert fake.calls() == [
        "GET /api/packages/gcs/a.zip",
        "GET /api/packages/gcs/b.zip",
        "PUT /api/packages/gcs/b.zip",
        "GET /api/packages/gcs/b.zip",
    ]
    assert await ensure_uploaded(client, [there, missing]) == 0


async def test_an_upload_that_fails_is_told(fake: FakeRay, client: RayClient) -> None:
    fake.fail("PUT", "/api/packages/gcs/a.zip", *[faults.status(502)] * 4)

    with pytest.raises(RayUnavailableError, match="answered 502"):
        await ensure_uploaded(client, [Package("gcs://a.zip", b"a")])
