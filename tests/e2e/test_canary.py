"""A secret is used, and printed, by a job; it is looked for everywhere, while the job runs and afterwards."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from cryptography.fernet import Fernet
from psycopg2 import sql

from stack.deployment import CLUSTER_RAY
from stack.stack import Stack
from tests.e2e.runs import finish, jobs, log, start, until

FOLDER = "tenants/acme/canary"
KINDS = (
    *("actors", "tasks", "workers", "nodes", "objects", "runtime_envs", "placement_groups", "cluster_events"),
)
PATHS = (
    "/api/jobs/",
    *(f"/api/v0/{kind}?limit=10000&detail=1" for kind in KINDS),
    "/api/v0/tasks/summarize",
    "/nodes?view=summary",
    "/api/cluster_status",
)
LOOK_INTO_STORE = """
import json, sys
import ray
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_list
needles = [each.encode() for each in json.load(sys.stdin)]
ray.init(log_to_driver=False, logging_level="ERROR")
token = json.loads(sys.argv[1]).encode()
found, looked = [], 0
for space in (None, b"job", b"fun", b"session", b"dashboard", b"cluster", b"healthcheck", b"usage_stats"):
    for key in _internal_kv_list(b"", namespace=space):
        looked += 1
        value = (_internal_kv_get(key, namespace=space) or b"").replace(token, b"")
        found += [key.decode(errors="replace") for needle in needles if needle in value or needle in key]
print(json.dumps({"found": found, "looked": looked}))
"""


class Canaries:
    """Secret values by name, and where any of them was found."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    @property
    def address_part(self) -> str:
        """What the address of a claim says of the session that signed it."""
        return "X-Amz-Security-Token=" + urllib.parse.quote(self.values["token"], safe="")

    @property
    def needles(self) -> list[str]:
        return [form for value in self.values.values() for form in forms(value)]

    def without_address(self, data: bytes) -> bytes:
        """The address of a claim names the session that signed it. Without its key that opens nothing, and
        the address itself is tried below; anywhere else the token must not be.
        """
        return data.replace(self.address_part.encode(), b"")

    def found_in(self, where: str, content: str | bytes) -> list[str]:
        data = content if isinstance(content, bytes) else content.encode(errors="replace")
        data = self.without_address(data)
        return [
            f"{name} in {where}"
            for name, value in self.values.items()
            if any(form.encode() in data for form in forms(value))
        ]


def forms(value: str) -> set[str]:
    """As it is, and as it may be written by others."""
    raw = value.encode()
    return {
        value,
        json.dumps(value)[1:-1],
        urllib.parse.quote(value, safe=""),
        urllib.parse.quote_plus(value),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        raw.hex(),
    }


def everywhere(stack: Stack, canaries: Canaries, job: dict[str, Any]) -> list[str]:
    """Where a canary is."""
    name = job["submission_id"]
    found: list[str] = []
    for path in (*PATHS, f"/api/jobs/{name}", f"/api/jobs/{name}/logs"):
        found += canaries.found_in(f"Ray's answer to {path}", json.dumps(stack.ray.api("GET", path)))
    found += in_store(stack, canaries)
    looked = 0
    for folder in (*(node.temp_dir for node in stack.ray.nodes), stack.directory / "ray", stack.airflow.home):
        for path in files(folder):
            looked += 1
            found += canaries.found_in(str(path), path.read_bytes())
    assert looked > 20
    for table, row in rows(stack):
        found += canaries.found_in(f"table {table}", row)
    for row in trigger_arguments(stack):
        found += canaries.found_in("a trigger's arguments", row)
    return sorted(set(found))


def files(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        for path in (Path(root, name) for name in names):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 64 * 1024**2:
                yield path


def in_store(stack: Stack, canaries: Canaries) -> list[str]:
    """In Ray's internal key-value store: what any job may read there."""
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AIRFLOW"))},
        "RAY_ADDRESS": f"127.0.0.1:{stack.ray.gcs_port}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": stack.ray.token or "",
    }
    answer = subprocess.run(
        [str(CLUSTER_RAY.with_name("python")), "-c", LOOK_INTO_STORE, json.dumps(canaries.address_part)],
        input=json.dumps(canaries.needles),
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    seen = json.loads(answer.stdout.splitlines()[-1])
    assert seen["looked"] > 5
    return [f"Ray's store, key {key}" for key in seen["found"]]


def rows(stack: Stack) -> Iterator[tuple[str, str]]:
    """All of Airflow's database, each row as text."""
    with psycopg2.connect(plain(stack.postgres.url)) as connection, connection.cursor() as cursor:
        cursor.execute("select tablename from pg_tables where schemaname = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        assert "xcom" in tables
        for table in tables:
            cursor.execute(sql.SQL("select t::text from {} t").format(sql.Identifier(table)))
            for (row,) in cursor.fetchall():
                yield table, row


def trigger_arguments(stack: Stack) -> list[str]:
    """What triggers have in the database: in plain text, or encrypted with Airflow's own key."""
    fernet = Fernet(stack.airflow.env["AIRFLOW__CORE__FERNET_KEY"].encode())

    def read(text: str) -> str:
        return text if text.startswith("{") else fernet.decrypt(text.encode()).decode()

    with psycopg2.connect(plain(stack.postgres.url)) as connection, connection.cursor() as cursor:
        cursor.execute("select kwargs from trigger")
        return [read(text) for (text,) in cursor.fetchall()]


def plain(url: str) -> str:
    """Without SQLAlchemy's driver."""
    scheme, _, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}://{rest}"


@pytest.fixture
def canaries(stack: Stack) -> Canaries:
    """In Airflow's database, as a platform team would put them there."""
    made = {name: f"canary-{name}-{uuid.uuid4().hex}" for name in ("variable", "password")}
    # Not by `airflow variables set`: Airflow keeps the command lines of its CLI.
    stack.api.call("POST", "/variables", {"key": "acme_canary", "value": made["variable"]})
    stack.api.create_connection(
        "acme_canary_dsn", "postgres", host="db", login="acme", password=made["password"]
    )
    return Canaries(made)


def test_a_secret_is_found_nowhere(stack: Stack, canaries: Canaries) -> None:
    assert stack.s3 is not None
    client, bucket = stack.s3.client(), stack.s3.bucket

    def there(name: str) -> bool:
        return bool(client.list_objects_v2(Bucket=bucket, Prefix=f"{FOLDER}/{name}").get("KeyCount"))

    run_id = start(stack, "canary")
    try:
        until(lambda: there("keys.json"), "the job has printed its secrets", 120)
    except AssertionError:
        log(stack, "canary", run_id, "sing")
        raise
    keys = json.loads(client.get_object(Bucket=bucket, Key=f"{FOLDER}/keys.json")["Body"].read())
    canaries.values.update(keys)
    (job,) = jobs(stack, run_id, "canary")
    assert len(trigger_arguments(stack)) > 0
    assert everywhere(stack, canaries, job) == []

    client.put_object(Bucket=bucket, Key=f"{FOLDER}/go", Body=b"")
    assert finish(stack, "canary", run_id) == "success", log(stack, "canary", run_id, "sing")
    assert everywhere(stack, canaries, job) == []

    # It had them, all the same.
    result: Any = stack.api.xcom("canary", run_id, "sing")
    assert result["driver"] == result["worker"]
    assert result["driver"]["CANARY"] == hashlib.sha256(canaries.values["variable"].encode()).hexdigest()
    assert result["printed"] == "***"
    assert "singing" in log(stack, "canary", run_id, "sing")
    # Addresses that Ray shows open nothing.
    for address in addresses(job):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address, timeout=10)
        assert refused.value.code in (403, 404)


def addresses(job: dict[str, Any]) -> list[str]:
    """Every address in a job's record that is signed."""
    found = [text for text in texts(job) if "X-Amz-Signature" in text]
    assert found
    return found


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
