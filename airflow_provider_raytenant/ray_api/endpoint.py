"""Where a Ray dashboard is and how to speak to it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from airflow_provider_raytenant.exceptions import ConnectionConfigError

ADDRESS_ALLOWED = "http://host:8265 or https://host/prefix, without query, user or password"


@dataclass(frozen=True)
class RayEndpoint:
    """A dashboard's address and what requests to it need.

    :param address: ``http://head:8265``; a path prefix of a proxy is kept.
    :param public_address: the same for people's browsers; default: ``address``.
    :param token: the cluster's token (``RAY_AUTH_MODE=token``).
    :param headers: extra headers of every request, for a proxy in front.
    :param verify: whether to check the server's certificate.
    :param ca_file: a CA bundle to check it with.
    :param client_cert: a client certificate (PEM), and ``client_key`` where the key is apart.
    """

    address: str
    public_address: str = ""
    token: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify: bool = True
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None

    def url(self, path: str) -> str:
        """The address of an API path that starts with a slash."""
        return self.address + path

    def job_page(self, submission_id: str) -> str:
        """The job's page on the dashboard, for a browser."""
        return f"{self.public_address or self.address}/#/jobs/{quote(submission_id, safe='')}"

    def request_headers(self) -> dict[str, str]:
        """Headers of every request.

        The user agent must not look like a browser's: Ray answers such requests with redacted
        env_vars, and with 405 where they change something (measured on 2.60).
        """
        ours = {"User-Agent": "airflow-provider-raytenant"}
        if self.token:
            ours["Authorization"] = f"Bearer {self.token}"
        names = {name.lower() for name in ours}
        return {**{name: text for name, text in self.headers.items() if name.lower() not in names}, **ours}

    def ssl(self) -> ssl.SSLContext | bool:
        """What aiohttp's ``ssl`` argument takes.

        :raises ConnectionConfigError: a certificate file cannot be used.
        """
        if not self.ca_file and not self.client_cert:
            return self.verify
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.client_cert:
                context.load_cert_chain(self.client_cert, self.client_key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(filter(None, (self.ca_file, self.client_cert, self.client_key)))
            raise ConnectionConfigError(
                f"certificate files: found {files} ({error}); allowed: readable PEM files"
            ) from None
        return context


def checked_address(name: str, address: str) -> str:
    """``address`` without a trailing slash.

    :raises ConnectionConfigError: naming the field, what was found and what is allowed.
    """
    try:
        parts = urlsplit(address)
        bad = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:  # brackets that do not fit, a port that is no number
        raise ConnectionConfigError(f"{name}: found no address; allowed: {ADDRESS_ALLOWED}") from None
    if bad or parts.query or parts.fragment or "@" in parts.netloc:
        raise ConnectionConfigError(
            f"{name}: found {_without_secrets(address)!r}; allowed: {ADDRESS_ALLOWED}"
        )
    return address.rstrip("/")


def _without_secrets(address: str) -> str:
    """The address with dots for user, password, query and fragment."""
    _, at, rest = address.rpartition("@")
    shown = re.split(r"[?#]", rest)[0]
    return ("...@" if at else "") + shown + ("?..." if shown != rest else "")
