"""Connections of type ``ray``: what they may hold, and what the test button says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import tenacity
from airflow.sdk import Connection

from airflow_provider_raytenant.exceptions import ConnectionConfigError
from airflow_provider_raytenant.hooks.ray import KNOWN_EXTRAS, RayHook, endpoint_of
from airflow_provider_raytenant.ray_api import client as client_module
from airflow_provider_raytenant.ray_api.client import RayClient
from tests.fakes import faults
from tests.fakes.ray_server import GIB, FakeRay, node

TOKEN = "a-token-that-nobody-may-see"


def connection(extra: Any = None, **fields: Any) -> Connection:
    text = extra if extra is None or isinstance(extra, str) else json.dumps(extra)
    return Connection(
        conn_id="ray_shared", conn_type="ray", **{"host": "http://head:8265", **fields}, extra=text
    )


def from_uri(uri: str) -> Connection:
    return Connection.from_uri(uri, conn_id="ray_shared")


def test_the_smallest_connection() -> None:
    endpoint = endpoint_of(connection())

    assert endpoint.address == "http://head:8265"
    assert endpoint.public_address == ""
    assert endpoint.token is None
    assert endpoint.headers == {}
    assert endpoint.verify is True
    assert (endpoint.ca_file, endpoint.client_cert, endpoint.client_key) == (None, None, None)


def test_a_connection_with_everything() -> None:
    extra = {
        "public_address": "https://ray.example/p/",
        "headers": {"X-Proxy": "1"},
        "verify": False,
        "ca_file": "/ca.pem",
        "client_cert": "/cert.pem",
        "client_key": "/key.pem",
    }
    assert set(extra) == set(KNOWN_EXTRAS)
    endpoint = endpoint_of(connection(extra, host=" https://head/ray/ ", password=f"{TOKEN}\n"))

    assert endpoint.address == "https://head/ray"
    assert endpoint.public_address == "https://ray.example/p"
    assert endpoint.token == TOKEN
    assert endpoint.headers == {"X-Proxy": "1"}
    assert endpoint.verify is False
    assert (endpoint.ca_file, endpoint.client_cert, endpoint.client_key) == (
        "/ca.pem",
        "/cert.pem",
        "/key.pem",
    )


def test_empty_fields_of_the_form_are_none() -> None:
    extra = dict.fromkeys(KNOWN_EXTRAS, "") | {"verify": None}
    assert endpoint_of(connection(extra, password="")) == endpoint_of(connection())


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"host": "head"}, "http://head"),
        ({"host": "head", "port": 8265}, "http://head:8265"),
        ({"host": "head", "port": 8265, "schema": "https"}, "https://head:8265"),
        ({"host": "head:8265"}, "http://head:8265"),
        ({"host": "http://head", "port": 8265}, "http://head:8265"),
        ({"host": "http://head:8265", "port": 8265}, "http://head:8265"),
        ({"host": "http://head/ray", "port": 8265}, "http://head:8265/ray"),
        ({"host": "http://[::1]", "port": 8265}, "http://[::1]:8265"),
        ({"host": "https://proxy:8443/ray/prod"}, "https://proxy:8443/ray/prod"),
    ],
)
def test_host_port_and_scheme(fields: dict[str, Any], address: str) -> None:
    assert endpoint_of(connection(**fields)).address == address


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("ray://head:8265", "http://head:8265"),
        (f"ray://:{TOKEN}@head:8265", "http://head:8265"),
        ("ray://head:8265/https", "https://head:8265"),
        ("ray://http://head:8265", "http://head:8265"),
        (f"ray://https://:{TOKEN}@proxy:8443/ray", "https://proxy:8443/ray"),
        ("ray://https://proxy/ray%2Fprod", "https://proxy/ray/prod"),
    ],
)
def test_uris(uri: str, address: str) -> None:
    endpoint = endpoint_of(from_uri(uri))

    assert endpoint.address == address
    assert endpoint.token == (TOKEN if TOKEN in uri else None)


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "http://head:8265"},
        {"host": "head", "port": 8265},
        {"host": "https://proxy:8443/ray/prod", "password": "a/b:c@d?e#f"},
        {"host": "http://head", "port": 8265, "extra": {"headers": {"X": "1"}, "verify": False}},
    ],
)
def test_a_connection_survives_airflows_way_over_a_uri(fields: dict[str, Any]) -> None:
    whole = connection(**fields)
    assert endpoint_of(from_uri(whole.get_uri())) == endpoint_of(whole)


@pytest.mark.parametrize(
    ("verify", "expected"),
    [(True, True), (False, False), (None, True), ("true", True), ("False", False), ("", True)],
)
def test_verify(verify: Any, expected: bool) -> None:
    assert endpoint_of(connection({"verify": verify})).verify is expected


def test_verify_in_a_uri() -> None:
    assert endpoint_of(from_uri("ray://head:8265/https?verify=false")).verify is False


@pytest.mark.parametrize("headers", [{"X-A": "1"}, '{"X-A": "1"}', ' {"X-A": "1"} '])
def test_headers(headers: Any) -> None:
    assert endpoint_of(connection({"headers": headers})).headers == {"X-A": "1"}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown extra": (
        {"extra": {"verfy": True}},
        "extra 'verfy': found an unknown key; allowed: public_address, headers, verify, ca_file, "
        "client_cert, client_key",
    ),
    "verify is text": ({"extra": {"verify": "maybe"}}, "verify: found 'maybe'; allowed: true or false"),
    "verify is a number": ({"extra": {"verify": 0}}, "verify: found 0; allowed: true or false"),
    "headers are no JSON": ({"extra": {"headers": "X-A: s3cret"}}, "headers: found no JSON; allowed: {"),
    "headers are a list": ({"extra": {"headers": ["s3cret"]}}, "headers: found something else; allowed: {"),
    "headers are an empty list": ({"extra": {"headers": []}}, "headers: found something else; allowed: {"),
    "headers are JSON text of a list": (
        {"extra": {"headers": '["s3cret"]'}},
        "headers: found something else",
    ),
    "a header is no text": (
        {"extra": {"headers": {"s3cret": 1}}},
        "headers: found something else; allowed: {",
    ),
    "a header of two lines": (
        {"extra": {"headers": {"X-A": "s3cret\r\nX-B: 2"}}},
        "headers: found a control character; allowed: {",
    ),
    "a token of two lines": (
        {"password": "s3cret\nX-B: 2"},
        "password: found a control character; allowed: the cluster's token",
    ),
    "ca_file is no text": ({"extra": {"ca_file": 7}}, "ca_file: found 7; allowed: text"),
    "client_cert is no text": ({"extra": {"client_cert": []}}, "client_cert: found []; allowed: text"),
    "no host": ({"host": None}, "host: found nothing; allowed: the dashboard's address"),
    "blank host": ({"host": "  "}, "host: found nothing; allowed: the dashboard's address"),
    "ftp": ({"host": "ftp://head"}, "host: found 'ftp://head'; allowed: http://host:8265 or https://"),
    "ftp as schema": ({"host": "head", "schema": "ftp"}, "host: found 'ftp://head'; allowed: http://"),
    "Ray Client's address": ({"host": "ray://head:10001"}, "host: found 'ray://head:10001'; allowed: http"),
    "query": ({"host": "http://head:8265?a=s3cret"}, "host: found 'http://head:8265?...'; allowed: http"),
    "password in the address": (
        {"host": "http://user:s3cret@head:8265"},
        "host: found '...@head:8265'; allowed: http",
    ),
    "password without a scheme": ({"host": "user:s3cret@head"}, "host: found '...@head'; allowed: http"),
    "port is no number": ({"host": "http://head:port"}, "host: found no address; allowed: http"),
    "public_address": ({"extra": {"public_address": "ray.example"}}, "public_address: found 'ray.example';"),
    "password in public_address": (
        {"extra": {"public_address": "https://a:s3cret@ray.example"}},
        "public_address: found '...@ray.example'; allowed: http",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_connections(wrong: str) -> None:
    fields, text = WRONG[wrong]
    with pytest.raises(ConnectionConfigError) as caught:
        endpoint_of(connection(**fields))

    assert str(caught.value).startswith(f"connection ray_shared: {text}")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("extra", ['["verify"]', '"text"', "7", "{not json"])
def test_an_extra_that_is_no_object(extra: str) -> None:
    with pytest.raises(ConnectionConfigError, match=r"extra: found .*; allowed: a JSON object"):
        endpoint_of(connection(extra))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        client_module, "wait_random_exponential", lambda **_options: tenacity.wait_fixed(0.005)
    )


@pytest.fixture
async def fake() -> AsyncIterator[FakeRay]:
    async with FakeRay(token=TOKEN) as server:
        yield server


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``connect(**fields)`` puts a connection into the environment and gives its hook."""

    def put(**fields: Any) -> RayHook:
        monkeypatch.setenv("AIRFLOW_CONN_RAY_SHARED", json.dumps({"conn_type": "ray", **fields}))
        return RayHook("ray_shared")

    return put


async def pressed(hook: RayHook) -> tuple[bool, str]:
    """What the test button gives: Airflow calls it in a thread without an event loop."""
    return await asyncio.to_thread(hook.test_connection)


async def test_the_hook_reads_airflows_connection(connect: Any) -> None:
    hook = connect(host="http://head:8265/", password=TOKEN, extra={"headers": {"X-A": "1"}})

    assert hook.endpoint() == await hook.aendpoint()
    assert hook.endpoint().token == TOKEN
    assert hook.endpoint().headers == {"X-A": "1"}
    client = hook.get_conn()
    assert isinstance(client, RayClient)
    assert client.endpoint.address == "http://head:8265"


async def test_the_hook_reads_a_uri(monkeypatch: pytest.MonkeyPatch, fake: FakeRay) -> None:
    place = fake.address.removeprefix("http://")
    monkeypatch.setenv("AIRFLOW_CONN_RAY_SHARED", f"ray://:{TOKEN}@{place}")

    assert (await pressed(RayHook("ray_shared")))[0]


def test_the_default_connection() -> None:
    assert RayHook().ray_conn_id == RayHook.default_conn_name == "ray_default"


async def test_the_button_tells_what_is_there(fake: FakeRay, connect: Any) -> None:
    fake.nodes = [
        node("head", cpus=0, memory=GIB, head=True),
        node("one", cpus=7.5, memory=3 * GIB),
        node("two", cpus=8, memory=4 * GIB, GPU=2.0),
        node("gone", cpus=8, memory=4 * GIB, state="DEAD"),
    ]
    good, text = await pressed(connect(host=fake.address, password=TOKEN))

    assert good
    assert text == "Ray 2.60.0, authentication on, 3 nodes, 15.5 CPU, 8GiB memory, 2 GPU"


async def test_the_button_on_an_open_cluster(fake: FakeRay, connect: Any) -> None:
    fake.token = None

    assert await pressed(connect(host=fake.address)) == (
        True,
        "Ray 2.60.0, authentication off, 1 node, 2 CPU, 1GiB memory",
    )


async def test_the_button_without_a_token(fake: FakeRay, connect: Any) -> None:
    assert await pressed(connect(host=fake.address)) == (
        False,
        f"Ray at {fake.address} wants a token (401): the connection has none",
    )


async def test_the_button_with_a_wrong_token(fake: FakeRay, connect: Any) -> None:
    assert await pressed(connect(host=fake.address, password="s3cret")) == (
        False,
        f"Ray at {fake.address} refuses the connection's token (403)",
    )


async def test_the_button_when_nobody_listens(connect: Any) -> None:
    good, text = await pressed(connect(host="http://127.0.0.1:1", password=TOKEN))

    assert not good
    assert text.startswith("Ray at http://127.0.0.1:1 cannot be reached: ")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (faults.status(404, "no such page"), "this is no Ray dashboard, or its path is another: "),
        (faults.answer("{}"), "{address} answers, but not as a Ray dashboard"),
        (faults.answer("<html>welcome</html>"), "Ray at {address} gave no JSON for /api/version"),
        (
            faults.status(302, "", Location="https://login.example/?s=s3cret"),
            "Ray at {address} answered 302 and",
        ),
        (faults.status(502), "Ray at {address} answered 502: <html>"),
    ],
    ids=["404", "other JSON", "a web page", "a login page", "a proxy without Ray"],
)
async def test_the_button_on_something_else(fake: FakeRay, connect: Any, fault: Any, text: str) -> None:
    fake.outage(fault)
    good, said = await pressed(connect(host=fake.address, password=TOKEN))

    assert not good
    assert said.startswith(text.format(address=fake.address))
    assert "s3cret" not in said
    assert len(said) < 500


async def test_the_button_when_the_dashboard_goes_away_meanwhile(fake: FakeRay, connect: Any) -> None:
    fake.fail("GET", "/api/v0/nodes", faults.passes, *[faults.drop] * 20)
    good, text = await pressed(connect(host=fake.address, password=TOKEN))

    assert not good
    assert "cannot be reached" in text


async def test_the_button_on_a_wrong_connection(connect: Any, tmp_path: Any) -> None:
    good, text = await pressed(connect(host="http://head:8265", extra={"verfy": True}))
    assert not good
    assert "extra 'verfy'" in text

    missing = str(tmp_path / "ca.pem")
    good, text = await pressed(connect(host="https://127.0.0.1:1", extra={"ca_file": missing}))
    assert not good
    assert f"certificate files: found {missing}" in text
