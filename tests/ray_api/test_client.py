"""What the client gives, asks and refuses when every request goes well, or goes wrong for good."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_raytenant.domain.status import JobStatus
from airflow_provider_raytenant.exceptions import (
    JobNotFoundError,
    RayAuthError,
    RayRequestError,
    RayUnavailableError,
)
from airflow_provider_raytenant.ray_api.client import RayClient
from airflow_provider_raytenant.ray_api.endpoint import RayEndpoint
from tests.fakes import faults
from tests.fakes.ray_server import HEAD, FakeRay, node

MIB = 1024**2


async def collect(client: RayClient, submission_id: str, **options: int) -> bytes:
    return b"".join([piece async for piece in client.log_file(submission_id, HEAD, **options)])


async def test_a_record_is_read_into_our_words(fake: FakeRay, client: RayClient) -> None:
    job = fake.add_job("j", entrypoint="python x.py", metadata={"raytenant.tenant": "acme"})
    job.run()
    job.end("FAILED", exit_code=-9, error_type="JOB_SUPERVISOR_ACTOR_DIED", message="it died")

    found = await client.job("j")

    assert (found.submission_id, found.status, found.exit_code) == ("j", JobStatus.FAILED, -9)
    assert (found.message, found.error_type) == ("it died", "JOB_SUPERVISOR_ACTOR_DIED")
    assert found.metadata == {"raytenant.tenant": "acme"}
    assert found.entrypoint == "python x.py"
    assert (found.start_time, found.end_time) == (1_700_000_000_000, 1_700_000_001_000)


async def test_the_list_holds_jobs_of_the_jobs_api_only(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("one")
    fake.add_job("two").run()

    found = {job.submission_id: job.status for job in await client.jobs()}

    assert found == {"one": JobStatus.PENDING, "two": JobStatus.RUNNING}


async def test_nodes_are_alive_ones_with_their_totals(fake: FakeRay, client: RayClient) -> None:
    fake.nodes = [
        node("head", cpus=0, memory=64 * MIB, head=True),
        node("work", cpus=2.5, memory=512 * MIB, GPU=1.0, tpu_slice=2.0, object_store_memory=9.0),
        node("gone", cpus=8, memory=512 * MIB, state="DEAD"),
    ]

    head, work = await client.nodes()

    assert head.is_head
    assert not work.is_head
    assert (work.total.cpus, work.total.memory, work.total.gpus) == (2.5, 512 * MIB, 1)
    assert dict(work.total.custom) == {"tpu_slice": 2.0}
    assert work.labels["ray.io/node-id"] == work.node_id


async def test_more_nodes_than_a_page_of_ray_are_read(fake: FakeRay, client: RayClient) -> None:
    fake.nodes = [node(f"n{number}", cpus=1, memory=MIB) for number in range(250)]

    assert len(await client.nodes()) == 250


async def test_stop_and_delete_tell_what_ray_says(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("j").run()

    assert await client.stop("j") is True
    assert await client.stop("j") is False
    assert await client.delete("j") is True
    with pytest.raises(JobNotFoundError):
        await client.delete("j")


async def test_a_package_is_absent_then_present(fake: FakeRay, client: RayClient) -> None:
    uri, content = "gcs://_ray_pkg_0a1b.zip", bytes(range(256)) * 5000

    assert not await client.has_package(uri)
    await client.put_package(uri, content)

    assert await client.has_package(uri)
    assert fake.packages == {uri: content}


async def test_the_log_as_text_and_as_it_is(fake: FakeRay, client: RayClient) -> None:
    job = fake.add_job("j")
    assert await client.logs("j") == ""
    text = "".join(f"{number} äöü 日本 🚀\r\n" for number in range(100)) + "x" * 300_000 + "\n\n\rlast"
    job.write(text)
    job.end()

    assert await client.logs("j") == text.replace("\r\n", "\n").replace("\r", "\n")
    assert await collect(client, "j") == text.encode()
    assert await collect(client, "j", lines=2) == b"\n\rlast"


async def test_a_log_that_is_too_long_is_not_read_to_its_end(fake: FakeRay, client: RayClient) -> None:
    fake.add_job("j").write("x" * 300_000)

    assert len(await client.logs("j", largest=400_000)) == 300_000
    with pytest.raises(RayRequestError, match="more than 200000 bytes"):
        await client.logs("j", largest=200_000)


async def test_a_log_file_that_cannot_be_read(fake: FakeRay, client: RayClient) -> None:
    job = fake.add_job("j")
    job.run()
    with pytest.raises(RayUnavailableError, match="file is not found"):
        await collect(client, "nope")
    fake.fail(
        "GET",
        "/api/v0/logs/file",
        *(faults.drop, faults.drop, faults.dribble(3, 5, broken=True)),
        *(faults.answer("<html>log in</html>", "text/html"), faults.status(429, "Max number of calls")),
    )
    job.write("hello\n")
    for text in ("cannot be reached", "cannot be reached", "gave no log file", "429: Max number"):
        with pytest.raises(RayUnavailableError, match=text):
            await collect(client, "j")
    assert await collect(client, "j") == b"hello\n"


@pytest.mark.parametrize("call", ["job", "stop", "delete", "logs"])
async def test_an_unknown_job_is_asked_for_once(fake: FakeRay, client: RayClient, call: str) -> None:
    with pytest.raises(JobNotFoundError, match="does not know this job") as caught:
        await getattr(client, call)("nope")

    assert caught.value.details == {"status": 404}
    assert len(fake.seen) == 1


async def test_a_404_that_is_not_rays_is_no_missing_job(fake: FakeRay, client: RayClient) -> None:
    fake.fail("GET", "/api/jobs/j", faults.status(404, "default backend - 404"))

    with pytest.raises(RayRequestError, match=r"refused /api/jobs/j \(404\): default backend"):
        await client.job("j")


@pytest.mark.parametrize(
    ("token", "status", "text"),
    [(None, 401, "wants a token .401.: the connection has none"), ("another", 403, "refuses")],
)
async def test_a_wrong_token_is_refused_once(
    fake: FakeRay, endpoint: RayEndpoint, token: str | None, status: int, text: str
) -> None:
    async with RayClient(replace(endpoint, token=token)) as client:
        for call in (
            client.version(),
            client.nodes(),
            client.job("j"),
            client.submit({"submission_id": "j"}),
        ):
            with pytest.raises(RayAuthError, match=text) as caught:
                await call
            assert caught.value.details == {"status": status}

    assert len(fake.seen) == 4
    assert fake.jobs == {}


async def test_whether_a_token_is_wanted(fake: FakeRay, client: RayClient) -> None:
    assert await client.wants_token()
    fake.token = None
    assert not await client.wants_token()
    assert "Authorization" not in fake.seen[-1].headers

    fake.outage(faults.drop)
    with pytest.raises(RayUnavailableError, match="cannot be reached"):
        await client.wants_token()


async def test_every_request_names_us_and_brings_the_headers(fake: FakeRay, endpoint: RayEndpoint) -> None:
    headers = {"X-Proxy": "1", "user-agent": "Mozilla/5.0", "authorization": "Basic of-the-proxy"}
    fake.add_job("j").end()
    async with RayClient(replace(endpoint, headers=headers)) as client:
        await client.submit({"submission_id": "k", "entrypoint": "true"})
        await client.put_package("gcs://p.zip", b"1")
        await collect(client, "j")

    assert len(fake.seen) == 3
    for seen in fake.seen:
        sent = {name.lower(): text for name, text in seen.headers.items()}
        assert sent["user-agent"] == "airflow-provider-raytenant"
        assert sent["x-proxy"] == "1"
        assert sent["authorization"] == f"Bearer {endpoint.token}"


async def test_headers_alone_may_bring_the_token(fake: FakeRay, endpoint: RayEndpoint) -> None:
    headers = {"X-Ray-Authorization": f"Bearer {endpoint.token}"}

    async with RayClient(replace(endpoint, token=None, headers=headers)) as client:
        assert await client.jobs() == []


async def test_a_path_prefix_is_part_of_every_request() -> None:
    async with FakeRay(prefix="/some/prefix") as fake, RayClient(RayEndpoint(fake.address)) as client:
        await client.submit({"submission_id": "j", "entrypoint": "true"})
        fake.jobs["j"].write("hello")
        fake.jobs["j"].end()
        assert (await client.job("j")).status is JobStatus.SUCCEEDED
        assert await collect(client, "j") == b"hello"
        assert [job.submission_id for job in await client.jobs()] == ["j"]


async def test_a_redirect_is_not_followed(fake: FakeRay, client: RayClient) -> None:
    goal = "https://login.example/start"
    fake.outage(faults.status(301, "", Location=f"{goal}?state=secret#secret"))

    with pytest.raises(RayUnavailableError, match=f"answered 301 and sends to {goal};") as caught:
        await client.submit({"submission_id": "j", "entrypoint": "true"})

    assert "secret" not in str(caught.value)
    assert "/api/jobs/" not in fake.calls("GET")


@pytest.mark.parametrize(
    ("text", "method", "problem"),
    [
        ("[]", "version", "no JSON object"),
        ('"x"', "stop", "no JSON object"),
        ("[]", "delete", "no JSON object"),
        ("[1]", "logs", "no JSON object"),
        ("{}", "jobs", "no list of jobs"),
        ("[7]", "jobs", "no JSON object"),
        ('[{"type": "SUBMISSION"}]', "jobs", "no sound job record"),
        ('{"submission_id": "j", "status": "DANCING"}', "job", "no sound job record.*DANCING"),
        ("[]", "job", "no sound job record"),
        ("null", "job", "no sound job record"),
        ("{}", "nodes", "no sound list of nodes"),
        ('{"data": {"result": {"result": [{"state": "ALIVE"}]}}}', "nodes", "no sound list of nodes"),
        ("<html>log in</html>", "version", "gave no JSON for /api/version"),
    ],
)
async def test_an_answer_of_another_kind_is_no_sound_answer(
    fake: FakeRay, client: RayClient, text: str, method: str, problem: str
) -> None:
    fake.outage(faults.answer(text))
    arguments = ["j"] if method in ("stop", "delete", "logs", "job") else []

    with pytest.raises(RayUnavailableError, match=problem):
        await getattr(client, method)(*arguments)


async def test_it_says_how_it_is_to_be_used(endpoint: RayEndpoint) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await RayClient(endpoint).version()
