"""Where a dashboard is and what requests to it bring along."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from airflow_provider_raytenant.exceptions import ConnectionConfigError
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint, checked_address


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("http://head:8265", "http://head:8265"),
        ("http://head:8265/", "http://head:8265"),
        ("https://proxy.example/ray/prod//", "https://proxy.example/ray/prod"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("http://[::1]:8265", "http://[::1]:8265"),
    ],
)
def test_good_addresses(address: str, kept: str) -> None:
    assert checked_address("host", address) == kept


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("ftp://head:8265", "'ftp://head:8265'"),
        ("ray://head:10001", "'ray://head:10001'"),
        ("head:8265", "'head:8265'"),
        ("http://", "'http://'"),
        ("http://:8265", "'http://:8265'"),
        ("http://head:8265?x=1", "'http://head:8265?...'"),
        ("http://head:8265/a#/jobs", "'http://head:8265/a?...'"),
        ("http://head:0", "'http://head:0'"),
        ("http://head:eight", "no address"),
        ("http://head:82650", "no address"),
        ("http://[::1:8265", "no address"),
        ("", "''"),
    ],
)
def test_wrong_addresses(address: str, shown: str) -> None:
    with pytest.raises(ConnectionConfigError) as caught:
        checked_address("host", address)

    assert str(caught.value).startswith(f"host: found {shown}; allowed: http://host:8265 or https://")


@pytest.mark.parametrize(
    "address",
    [
        "http://user:s3cret@head:8265",
        "http://s3cret@head:8265",
        "http://:s3cret@head",
        "ftp://user:s3cret@head",
        "user:s3cret@head",
        "http://user:s3/cret@head",
        "http://user:s3#cret@head",
        "http://user:s3?cret@head",
        "http://head:8265?token=s3cret",
        "http://head:8265/#s3cret",
        "http://user:s3cret@[::1",
    ],
)
def test_no_error_shows_what_may_be_secret(address: str) -> None:
    with pytest.raises(ConnectionConfigError) as caught:
        checked_address("host", address)

    assert "s3" not in str(caught.value)
    assert "cret" not in str(caught.value)


def test_urls() -> None:
    plain = RayEndpoint("http://head:8265")
    proxied = RayEndpoint("http://head:8265/ray", public_address="https://ray.example/p")

    assert plain.url("/api/version") == "http://head:8265/api/version"
    assert proxied.url("/api/version") == "http://head:8265/ray/api/version"
    assert plain.job_page("acme-1") == "http://head:8265/#/jobs/acme-1"
    assert proxied.job_page("a/b c") == "https://ray.example/p/#/jobs/a%2Fb%20c"


def test_headers_of_ours_stand_above_others() -> None:
    headers = {"X-A": "1", "USER-AGENT": "Mozilla/5.0", "authorization": "Basic x"}

    assert RayEndpoint("http://h", headers=headers).request_headers() == {
        "X-A": "1",
        "authorization": "Basic x",
        "User-Agent": "airflow-provider-raytenant",
    }
    assert RayEndpoint("http://h", headers=headers, token="t").request_headers() == {
        "X-A": "1",
        "User-Agent": "airflow-provider-raytenant",
        "Authorization": "Bearer t",
    }


def test_certificates_are_verified_unless_told_otherwise() -> None:
    assert RayEndpoint("https://h").ssl() is True
    assert RayEndpoint("https://h", verify=False).ssl() is False


@pytest.fixture
def ca_file() -> str:
    path = ssl.get_default_verify_paths().cafile
    certifi = pytest.importorskip("certifi")
    return path or str(certifi.where())


def test_a_ca_file_is_used(ca_file: str) -> None:
    context = RayEndpoint("https://h", ca_file=ca_file).ssl()

    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_ca_file_without_verification(ca_file: str) -> None:
    context = RayEndpoint("https://h", ca_file=ca_file, verify=False).ssl()

    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("field", ["ca_file", "client_cert"])
@pytest.mark.parametrize("content", [None, "no PEM at all"], ids=["missing", "no PEM"])
def test_a_file_that_cannot_be_used(tmp_path: Path, field: str, content: str | None) -> None:
    path = tmp_path / "some.pem"
    if content is not None:
        path.write_text(content)
    endpoint = RayEndpoint("https://h", **{field: str(path)})  # type: ignore[arg-type]

    with pytest.raises(ConnectionConfigError, match=f"found {path} .*allowed: readable PEM files"):
        endpoint.ssl()
