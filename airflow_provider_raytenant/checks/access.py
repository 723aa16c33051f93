"""How the dashboard is reached: encrypted, and not without a secret."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from airflow_provider_raytenant.checks.finding import Finding, failure, ok, warning
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint


def on_loopback(address: str) -> bool:
    """Whether what is sent to an address stays on this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def judge_transport(endpoint: RayEndpoint) -> Finding:
    """TLS, which Ray's dashboard itself has none of: a proxy in front ends it."""
    if not endpoint.address.startswith("https://"):
        if on_loopback(endpoint.address):
            return ok("TLS", f"{endpoint.address} stays on this machine")
        return warning(
            "TLS",
            f"{endpoint.address} is not encrypted: the token and every job's request can be read on the way",
            "Put a proxy that ends TLS before the dashboard, and name its https address in the connection.",
        )
    if not endpoint.verify:
        return warning(
            "TLS",
            f"{endpoint.address}: the certificate is not checked, so anybody may answer in its place",
            "Take `verify` out of the connection's extra; name a CA of your own in `ca_file`.",
        )
    return ok("TLS", f"{endpoint.address}, certificate checked")


def judge_authentication(endpoint: RayEndpoint, refused: bool) -> Finding:
    """Whether it is on.

    :param refused: whether a request without token, headers and client certificate was refused.
    """
    if refused:
        return ok("authentication", "a request without the connection's secrets is refused")
    found = "off: whoever reaches the dashboard runs code as any tenant"
    if endpoint.token:
        found = (
            "off, though the connection has a token: whoever reaches the dashboard runs code as any tenant"
        )
    judge = warning if on_loopback(endpoint.address) else failure
    return judge(
        "authentication",
        found,
        "Start every node of the cluster with RAY_AUTH_MODE=token, and put the token into the connection.",
    )
