"""Trying a tenant's role: whether it is to be had, does what it should, and reaches nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.domain.storage_prefix import StoragePrefix
from airflow_provider_raytenant.exceptions import RayTenantError
from airflow_provider_raytenant.storage.aws import asking, aws_connection
from airflow_provider_raytenant.storage.credentials import Credentials, assume

_CONTENT = b"raytenant doctor"


@dataclass(frozen=True)
class Trial:
    """What came of it.

    :param trouble: why the role cannot be had, or does not reach the tenant's own prefix.
    :param reached: what of others it reached, in words; it should be empty.
    :param probe_url: the presigned URL of an object without a secret, for nodes to try; good for a
        quarter of an hour at most, and until :meth:`TicketOffice.withdraw`.
    """

    trouble: str = ""
    reached: tuple[str, ...] = ()
    probe_url: str = ""


def try_role(access: Access) -> Trial:
    """Assume the role for the tenant's prefix; write, read and list there, and try what it must not reach.

    Nothing of anybody else's is changed: only reads and listings are tried outside. Blocks.
    """
    try:
        credentials = assume(access)
        client = aws_connection(access.aws_conn_id).s3(credentials)
        prefix = StoragePrefix.parse(access.prefix)
        with asking(f"{access.prefix} cannot be used with the role"):
            client.put_object(Bucket=prefix.bucket, Key=access.ticket_key, Body=_CONTENT)
            client.get_object(Bucket=prefix.bucket, Key=access.ticket_key)["Body"].read()
            client.list_objects_v2(Bucket=prefix.bucket, Prefix=prefix.folder, MaxKeys=1)
        return Trial(
            reached=tuple(_reached(client, prefix, access, credentials)),
            probe_url=_probe_url(access, credentials),
        )
    except RayTenantError as error:
        return Trial(trouble=str(error))


def _reached(client: Any, prefix: StoragePrefix, access: Access, credentials: Credentials) -> list[str]:
    from botocore.exceptions import BotoCoreError, ClientError

    path = prefix.folder
    again = ("assuming the role anew, whole", lambda: _assume_again(access, credentials))
    sibling = f"{path[:-1]}-raytenant-doctor/"
    attempts = (
        (f"listing the siblings of {path}", lambda: _list(client, prefix.bucket, path[:-1])),
        (f"listing {sibling}", lambda: _list(client, prefix.bucket, sibling)),
        ("listing the whole bucket", lambda: _list(client, prefix.bucket, "")),
        (f"reading below {sibling}", lambda: client.get_object(Bucket=prefix.bucket, Key=f"{sibling}x")),
    )
    reached = []
    # A whole bucket has no neighbour in it.
    for what, attempt in (again, *(attempts if path else ())):
        try:
            attempt()
        except ClientError as error:
            # "No such key" is an answer too: of a server that would have given the object.
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 403:
                continue
        except BotoCoreError:
            continue
        reached.append(what)
    return reached


def _assume_again(access: Access, credentials: Credentials) -> None:
    sts = aws_connection(access.aws_conn_id).sts_of(credentials)
    sts.assume_role(RoleArn=access.role_arn, RoleSessionName=access.session_name)


def _list(client: Any, bucket: str, prefix: str) -> None:
    client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)


def _probe_url(access: Access, credentials: Credentials) -> str:
    signer = aws_connection(access.aws_conn_id).s3(credentials, access.node_endpoint_url)
    place = {"Bucket": access.bucket, "Key": access.ticket_key}
    return str(signer.generate_presigned_url("get_object", Params=place, ExpiresIn=900))
