"""Issuing, renewing and withdrawing, against a storage that counts requests and refuses what has expired."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.exceptions import (
    ConnectionConfigError,
    SecretNotFoundError,
    StorageDeniedError,
    StorageUnavailableError,
)
from airflow_provider_raytenant.storage import aws, grants
from airflow_provider_raytenant.storage.grants import JobGrant
from airflow_provider_raytenant.storage.tickets import TicketOffice
from tests.fakes.short_lived_s3 import ShortLivedS3


def fetched(url: str, method: str = "GET") -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
        body: bytes = answer.read()
    return body


def test_a_ticket_costs_two_requests_and_carries_what_a_job_needs(s3: ShortLivedS3, access: Access) -> None:
    url = TicketOffice(access).issue({"DSN": "postgres://x"})
    assert s3.requests == ["POST AssumeRole", f"PUT lake/{access.ticket_key}"]

    ticket = json.loads(fetched(url))
    key = next(iter(s3.sessions))
    assert ticket["submission_id"] == access.submission_id
    assert ticket["secrets"] == {"DSN": "postgres://x"}
    assert (ticket["endpoint_url"], ticket["region"]) == (s3.url, "us-east-1")
    assert (ticket["credentials"]["AccessKeyId"], ticket["credentials"]["Version"]) == (key, 1)

    fetched(ticket["remove_url"], "DELETE")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetched(url)


def test_a_renewal_lies_where_the_ticket_said_and_holds_no_secret(s3: ShortLivedS3, access: Access) -> None:
    office = TicketOffice(access)
    ticket = json.loads(fetched(office.issue({"DSN": "postgres://x"})))
    office.renew()
    renewed = json.loads(fetched(ticket["renewed_url"]))
    assert renewed["credentials"]["AccessKeyId"] == list(s3.sessions)[1]
    assert "secrets" not in renewed
    # The next one is signed by these credentials, not by those that die first.
    assert list(s3.sessions)[1] in renewed["renewed_url"]


def test_what_is_left_is_withdrawn_at_once(s3: ShortLivedS3, access: Access) -> None:
    office = TicketOffice(access)
    office.issue({})
    office.renew()
    assert len(s3.objects) == 2
    office.withdraw()
    assert s3.objects == {}
    # Whoever stops a job of somebody else's has no credentials yet.
    TicketOffice(access).withdraw()
    assert s3.requests[-2:] == ["POST AssumeRole", "POST lake?delete"]


def test_nodes_get_the_address_that_they_know(s3: ShortLivedS3, access: Access) -> None:
    inside = replace(access, node_endpoint_url="http://s3.internal:9000")
    url = TicketOffice(inside).issue({})
    assert url.startswith("http://s3.internal:9000/lake/")
    ticket = json.loads(s3.objects[f"lake/{access.ticket_key}"])
    assert ticket["endpoint_url"] == "http://s3.internal:9000"
    assert ticket["remove_url"].startswith("http://s3.internal:9000/")


def test_a_connection_that_is_not_there_is_not_replaced_by_the_rights_of_this_process(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ambient")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ambient")
    with pytest.raises(ConnectionConfigError, match="aws_conn_id: found 'aws_none', which is not defined"):
        TicketOffice(replace(access, aws_conn_id="aws_none")).issue({})


def test_a_refusal_is_for_ever_and_an_outage_is_not(
    s3: ShortLivedS3, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(aws._TIMEOUTS, "retries", {"total_max_attempts": 1})
    s3.answers_nothing = True
    with pytest.raises(StorageUnavailableError, match="role arn:aws:iam::000000000000:role/tenant-jobs"):
        TicketOffice(access).issue({})
    s3.answers_nothing = False
    s3.life = -1
    with pytest.raises(StorageDeniedError, match=r"cannot be written to bucket lake.*ExpiredToken"):
        TicketOffice(access).issue({})


# -- the grant around a job's life ---------------------------------------------------------------------


class Told(list[str]):
    """Notes, and a lookup that gives nothing."""

    def grant(self, access: Access, patience: float = 20.0) -> JobGrant:
        return JobGrant(access, dict, self.append, patience)


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)


async def test_credentials_are_renewed_in_the_middle_of_their_life(s3: ShortLivedS3, access: Access) -> None:
    s3.life = 4
    grant = Told().grant(access)
    await grant.issue()

    async def job() -> str:
        await until(lambda: len(s3.sessions) == 3)
        return "ended"

    assert await grant.while_it_runs(job()) == "ended"
    lives = [each.expires for each in s3.sessions.values()]
    # Each came while the one before was good for some time.
    assert all(later - earlier < s3.life for earlier, later in pairwise(lives))
    assert s3.objects == {}
    assert s3.refused == []


async def test_whoever_takes_over_renews_though_it_issued_nothing(
    s3: ShortLivedS3, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "UNKNOWN_LIFE", 0.05)

    async def job() -> None:
        await until(lambda: f"lake/{access.renewed_key}" in s3.objects)

    await Told().grant(access).while_it_runs(job())


async def test_a_watch_that_is_cancelled_leaves_the_ticket_alone(s3: ShortLivedS3, access: Access) -> None:
    grant = Told().grant(access)
    await grant.issue()
    watch = asyncio.create_task(grant.while_it_runs(asyncio.Event().wait()))
    await asyncio.sleep(0)
    watch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watch
    assert list(s3.objects) == [f"lake/{access.ticket_key}"]


async def test_an_outage_is_waited_for_and_told_once(
    s3: ShortLivedS3, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(aws._TIMEOUTS, "retries", {"total_max_attempts": 1})
    monkeypatch.setattr(grants, "outage_pause", lambda passed: 0.01)
    s3.answers_nothing = True
    told = Told()
    issue = asyncio.create_task(told.grant(access).issue())
    await until(lambda: told)
    s3.answers_nothing = False
    assert (await issue).startswith(s3.url)
    assert len(told) == 1
    assert "Trying for 20 s" in told[0]


async def test_an_outage_beyond_the_patience_is_a_failure_to_be_tried_again(
    s3: ShortLivedS3, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(aws._TIMEOUTS, "retries", {"total_max_attempts": 1})
    s3.answers_nothing = True
    with pytest.raises(StorageUnavailableError):
        await Told().grant(access, patience=0.0).issue()


async def test_a_secret_that_is_not_there_ends_it_before_any_request(
    s3: ShortLivedS3, access: Access
) -> None:
    def lookup() -> dict[str, str]:
        raise SecretNotFoundError("secrets: found variable acme_x, which Airflow does not know")

    with pytest.raises(SecretNotFoundError):
        await JobGrant(access, lookup, print, 1.0).issue()
    assert s3.requests == []


async def test_a_withdrawal_that_fails_is_told_and_harms_nobody(
    s3: ShortLivedS3, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(aws._TIMEOUTS, "retries", {"total_max_attempts": 1})
    told = Told()
    s3.answers_nothing = True
    await told.grant(access).withdraw()
    assert len(told) == 1
    assert "expire by themselves" in told[0]
