"""A job with a claim: credentials and secrets are there while it runs, for it alone, and fresh."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_raytenant.domain.access import Access
from airflow_provider_raytenant.runner import grant as grant_module
from airflow_provider_raytenant.runner.grant import GrantFiles, remove_left_behind
from airflow_provider_raytenant.storage import aws
from airflow_provider_raytenant.storage.tickets import TicketOffice
from tests.fakes.short_lived_s3 import ShortLivedS3

ROLE = "arn:aws:iam::000000000000:role/tenant-jobs"
NAME = "acme-d-t-try1-runner-test"
ACCESS = Access("aws_short", ROLE, "s3://lake/tenants/acme", NAME)
# What a node may have of its own, and no job of a tenant with a role may use.
NODE = {
    "AWS_ACCESS_KEY_ID": "of-the-node",
    "AWS_SECRET_ACCESS_KEY": "of-the-node",
    "AWS_PROFILE": "node",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "RAYTENANT_SUBMISSION_ID": NAME,
}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ShortLivedS3]:
    with ShortLivedS3(60.0) as server:
        monkeypatch.setenv("AIRFLOW_CONN_AWS_SHORT", server.connection())
        aws.forget("aws_short")
        yield server
        aws.forget("aws_short")


@pytest.fixture
def office(s3: ShortLivedS3) -> TicketOffice:
    return TicketOffice(ACCESS)


def directories() -> list[Path]:
    return [
        path for parent in grant_module.PARENTS for path in Path(parent).glob(f"raytenant-access-*{NAME}*")
    ]


def test_the_entrypoint_finds_its_credentials_and_secrets_and_no_others(run, s3, office):
    url = office.issue({"DB_PASSWORD": "tiger-in-the-night"})
    code = (
        "import json, os, subprocess as s, shlex;"
        "c = open(os.environ['AWS_CONFIG_FILE']).read().split(' = ', 1)[1];"
        "k = json.loads(s.check_output(shlex.split(c)));"
        "e = dict(os.environ); e['DB_PASSWORD'] = e['DB_PASSWORD'][::-1];"
        "print(json.dumps({'key': k['AccessKeyId'], 'env': e}))"
    )
    job = run("--", "python", "-c", code, RAYTENANT_CLAIM=url, **NODE)
    assert job.process.returncode == 0, job.text
    seen = json.loads(job.lines[0])
    env = seen["env"]
    assert seen["key"] == next(iter(s3.sessions))
    assert env["DB_PASSWORD"][::-1] == "tiger-in-the-night"
    assert (env["AWS_ENDPOINT_URL"], env["AWS_REGION"]) == (s3.url, "us-east-1")
    assert env["AWS_EC2_METADATA_DISABLED"] == "true"
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "RAYTENANT_CLAIM"} & set(env)
    # Nothing is left, neither in the storage nor on the node.
    assert s3.objects == {}
    assert directories() == []


def test_what_was_granted_is_hidden_in_output_and_result(run, s3, office):
    url = office.issue({"DB_PASSWORD": "tiger-in-the-night"})
    code = (
        "import json, os;"
        "g = json.load(open(os.path.dirname(os.environ['AWS_CONFIG_FILE']) + '/grant.json'));"
        "print('password', os.environ['DB_PASSWORD']); print('key', g['credentials']['SecretAccessKey']);"
        "open(os.environ['RAYTENANT_RESULT_PATH'], 'w').write(json.dumps({'p': os.environ['DB_PASSWORD']}))"
    )
    job = run("--", "python", "-c", code, RAYTENANT_CLAIM=url, **NODE)
    assert job.lines == ["password ***", "key ***"]
    assert job.record["result"] == {"p": "***"}


def test_files_are_for_their_owner_alone_and_gone_however_the_job_ends(start, office, until):
    url = office.issue({"A": "secret-value"})
    job = start("--shell", "echo started; sleep 100", RAYTENANT_CLAIM=url, **NODE)
    job.wait_for_line("started")
    (folder,) = directories()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    os.killpg(job.process.pid, 15)
    job.wait()
    assert directories() == []


def test_a_ticket_serves_once(run, s3, office):
    url = office.issue({})
    assert run("--", "true", RAYTENANT_CLAIM=url, **NODE).process.returncode == 0
    again = run("--shell", "touch started", RAYTENANT_CLAIM=url, **NODE)
    assert again.process.returncode == 77
    assert again.record["outcome"] == "no_claim"
    assert not (again.work / "started").exists()
    assert any("somebody has claimed it before" in line for line in again.lines)


def test_a_ticket_whose_time_is_over_starts_nothing(run, s3, office):
    url = office.issue({})
    s3.sessions = {key: type(each)(0.0, each.prefix) for key, each in s3.sessions.items()}
    job = run("--shell", "touch started", RAYTENANT_CLAIM=url, **NODE)
    assert (job.process.returncode, job.record["outcome"]) == (77, "no_claim")
    assert not (job.work / "started").exists()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"credentials": 1}', b"\xff", b'{"credentials": {}}']
)
def test_what_is_no_ticket_starts_nothing(run, s3, office, content):
    url = office.issue({})
    s3.objects[f"lake/{ACCESS.ticket_key}"] = content
    job = run("--", "true", RAYTENANT_CLAIM=url, **NODE)
    assert (job.process.returncode, job.record["outcome"]) == (77, "no_claim")


def test_an_address_that_is_none_starts_nothing_and_is_not_shown(run):
    job = run("--", "true", RAYTENANT_CLAIM="no-address-with-a-signature-9f", **NODE)
    assert (job.process.returncode, job.record["outcome"]) == (77, "no_claim")
    assert "signature-9f" not in job.text


def test_a_ticket_that_cannot_be_removed_starts_nothing(run, s3, office):
    url = office.issue({})
    ticket = json.loads(s3.objects[f"lake/{ACCESS.ticket_key}"])
    ticket["remove_url"] = ticket["remove_url"].replace("tenants/acme", "tenants/other")
    s3.objects[f"lake/{ACCESS.ticket_key}"] = json.dumps(ticket).encode()
    job = run("--shell", "touch started", RAYTENANT_CLAIM=url, **NODE)
    assert job.process.returncode == 77
    assert not (job.work / "started").exists()


def test_credentials_are_fresh_while_it_runs(start, s3, office, until):
    s3.life = 6.0
    url = office.issue({"A": "kept"})
    # The id of a key is no secret, and is not hidden.
    show = 'grep -o "SHORT[0-9a-f]*" "$(dirname $AWS_CONFIG_FILE)/credentials.json"'
    job = start("--shell", f"while sleep 0.1; do {show}; done", RAYTENANT_CLAIM=url, **NODE)
    until(lambda: next(iter(s3.sessions)) in job.text, "the first credentials")

    def third_is_there() -> bool:
        # Written again and again, as the trigger would in time: the runner looks when it finds it right.
        office.renew()
        return sum(key in job.text for key in s3.sessions) >= 3

    until(third_is_there, "the third credentials")
    grant = json.loads((directories()[0] / "grant.json").read_text())
    assert grant["secrets"] == {"A": "kept"}
    assert s3.refused == []


def test_the_end_of_credentials_is_told_once(start, s3, office, until):
    s3.life = 6.0
    url = office.issue({})
    job = start("--shell", "sleep 100", RAYTENANT_CLAIM=url, **NODE)
    until(lambda: "have expired" in job.text, "the line about it")
    office.renew()
    until(lambda: any("GET" in each and "renewed" in each for each in s3.requests), "another look")
    assert job.text.count("have expired") == 1


# -- files -------------------------------------------------------------------------------------------------


@pytest.fixture
def parent(tmp_path, monkeypatch):
    monkeypatch.setattr(grant_module, "PARENTS", (str(tmp_path),))
    return tmp_path


def test_only_what_a_dead_process_left_is_removed(parent):
    GrantFiles.make("mine")
    dead = Path(GrantFiles.make("dead").path)
    (dead / "owner").write_text(json.dumps([2**22 + 1, "1"]))
    recycled = Path(GrantFiles.make("recycled").path)
    (recycled / "owner").write_text(json.dumps([os.getpid(), "1"]))
    strange = parent / f"raytenant-access-{os.getuid()}-strange"
    strange.mkdir()
    remove_left_behind()
    assert sorted(path.name.rpartition("-")[2] for path in parent.iterdir()) == ["mine", "strange"]


def test_a_new_one_takes_the_place_of_the_old(parent):
    first = GrantFiles.make("job")
    first.write({"credentials": {"Expiration": "x"}, "secrets": {"A": "1"}})
    second = GrantFiles.make("job")
    assert second.path == first.path
    assert GrantFiles.find("job") is None
    second.write({"credentials": {}})
    found = GrantFiles.find("job")
    assert found is not None
    assert found.read() == {"credentials": {}}
    second.remove()
    assert list(parent.iterdir()) == []


def test_where_it_cannot_be_made_the_next_place_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(grant_module, "PARENTS", (str(tmp_path / "none"), str(tmp_path)))
    assert GrantFiles.make("job").path.startswith(str(tmp_path))
    shutil.rmtree(tmp_path)
    with pytest.raises(OSError, match="No such file"):
        GrantFiles.make("job")
