from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jobkit import result, storage

JOBS = Path(__file__).parents[2] / "dags" / "jobs"


class Client:
    """One bucket of an S3 client."""

    class exceptions:  # botocore's name
        class NoSuchKey(Exception):
            pass

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        if (Bucket, Key) not in self.objects:
            raise self.exceptions.NoSuchKey
        return {"Body": io.BytesIO(self.objects[Bucket, Key])}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str) -> None:
        self.objects[Bucket, Key] = Body


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(storage, "_client", lambda: client)
    return client


@pytest.mark.parametrize("prefix", ["s3://lake/tenants/acme", "s3://lake/tenants/acme/"])
def test_a_url_lies_under_the_tenants_prefix(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setenv("RAYTENANT_STORAGE", prefix)
    assert storage.url("delays/2013-01-01.json") == "s3://lake/tenants/acme/delays/2013-01-01.json"


def test_what_is_written_can_be_read(client: Client) -> None:
    storage.write_json("s3://lake/a/b.json", {"late": None})
    assert json.loads(storage.read("s3://lake/a/b.json")) == {"late": None}


def test_a_missing_object_is_named(client: Client) -> None:
    with pytest.raises(FileNotFoundError, match="s3://lake/no/such"):
        storage.read("s3://lake/no/such")


@pytest.mark.parametrize("address", ["https://lake/x", "s3://lake", "s3://lake/", "s3:///x", "x"])
def test_what_is_no_object_is_refused(client: Client, address: str) -> None:
    with pytest.raises(ValueError, match="expected s3://bucket/key"):
        storage.read(address)


def test_nan_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        storage.write_json("s3://lake/x", {"mean": float("nan")})
    assert not client.objects


def test_the_result_goes_to_the_file_that_the_runner_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAYTENANT_RESULT_PATH", str(tmp_path / "result.json"))
    result.hand_back({"rows": 842})
    assert json.loads((tmp_path / "result.json").read_text()) == {"rows": 842}


def test_the_result_is_printed_when_a_job_is_run_by_hand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAYTENANT_RESULT_PATH", raising=False)
    result.hand_back({"rows": 842})
    assert json.loads(capsys.readouterr().out) == {"rows": 842}


@pytest.mark.parametrize("job", ["acme_delays/delays", "globex_model/train"])
def test_loading_a_job_loads_no_ray(job: str) -> None:
    """The pure part of a job can be tested where there is no cluster."""
    folder, script = job.split("/")
    path = [str(JOBS / folder), str(JOBS)]
    code = f"import sys; sys.path[:0] = {path}; import {script}; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
