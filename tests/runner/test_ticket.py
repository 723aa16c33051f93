"""Nothing starts without the try's ticket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_raytenant.runner.ticket import FILE, FOLDER, NoTicket, claim


def put(place: Path, content: object, name: str = "j") -> Path:
    """A ticket below a folder of Python's path."""
    folder = place / name / FOLDER
    folder.mkdir(parents=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / FILE).write_text(text)
    return folder


def test_a_good_ticket_is_taken_once(run, tmp_path):
    folder = put(tmp_path, {"submission_id": "j", "valid": True})
    job = run("--ticket", "j", "--", "echo", "ran", also_path=str(folder.parent))
    assert (job.process.returncode, job.lines) == (0, ["ran"])
    assert not folder.exists()

    again = run("--ticket", "j", "--", "echo", "ran again", also_path=str(folder.parent))
    assert again.process.returncode == 77
    assert "ran again" not in again.lines


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"submission_id": "j", "valid": False}, "was stopped before it started"),
        ({"submission_id": "other", "valid": True}, "has no ticket"),
        ({"submission_id": "j"}, "was stopped before it started"),
        ("{", "has no ticket"),
        ("[]", "has no ticket"),
    ],
)
def test_another_ticket_starts_nothing(run, tmp_path, content, said):
    folder = put(tmp_path, content)
    job = run("--ticket", "j", "--shell", "touch started", also_path=str(folder.parent))
    assert job.process.returncode == 77
    assert not (job.work / "started").exists()
    assert any(said in line for line in job.lines)
    assert job.record == {
        "v": 1,
        "outcome": "no_ticket",
        "exit_code": 77,
        "signal": None,
        "seconds": 0.0,
    }


def test_no_ticket_at_all(run):
    job = run("--ticket", "j", "--shell", "touch started")
    assert job.process.returncode == 77
    assert not (job.work / "started").exists()


def test_every_folder_of_the_path_is_looked_into(tmp_path):
    put(tmp_path, {"submission_id": "other", "valid": True}, "first")
    own = put(tmp_path, {"submission_id": "j", "valid": True}, "second")
    claim("j", [str(tmp_path / "none"), str(tmp_path / "first"), str(tmp_path / "second")])
    assert not own.exists()
    assert (tmp_path / "first" / FOLDER / FILE).exists()
    with pytest.raises(NoTicket, match="has no ticket"):
        claim("j", [str(tmp_path / "first"), str(tmp_path / "second")])
