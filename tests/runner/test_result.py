"""The result file: what is handed back and what is refused."""

from __future__ import annotations

import json

import pytest

from airflow_provider_raytenant.runner.result import ResultRefused, read_result
from airflow_provider_raytenant.runner.strict_json import StrictJSONError, loads


@pytest.mark.parametrize(
    "value", [{"auc": 0.93, "name": "ž🐎", "n": [1, None, True, "", {}]}, None, [], 0, "x" * 9000]
)
def test_a_result_comes_back(run, value):
    job = run("--shell", 'printf %s "$VALUE" > "$RAYTENANT_RESULT_PATH"', VALUE=json.dumps(value))
    assert job.process.returncode == 0
    assert job.record["result"] == value
    assert job.lines == []
    assert list(job.temporary.iterdir()) == []


def test_no_file_no_result(run):
    record = run(
        "--shell", 'test ! -e "$RAYTENANT_RESULT_PATH" && stat -c %a "${RAYTENANT_RESULT_PATH%/*}"'
    ).record
    assert not {"result", "result_error"} & set(record)


def test_the_directory_is_private(run):
    assert run(
        "--shell", 'stat -c %a "${RAYTENANT_RESULT_PATH%/*}"; ls -A "${RAYTENANT_RESULT_PATH%/*}"'
    ).lines == ["700"]


def test_a_failed_job_has_no_result(run):
    job = run("--shell", 'echo nonsense > "$RAYTENANT_RESULT_PATH"; exit 3')
    assert job.process.returncode == 3
    assert set(job.record) == {"v", "outcome", "exit_code", "signal", "seconds"}


@pytest.mark.parametrize(
    ("script", "expected", "words"),
    [
        (": > $R", {"kind": "not_json", "line": 1, "column": 1}, ["empty"]),
        (
            "printf '{\"a\":\\n  nope}' > $R",
            {"kind": "not_json", "line": 2, "column": 3},
            ["line 2 column 3"],
        ),
        ("printf '\\377' > $R", {"kind": "not_json", "offset": 0}, ["not UTF-8 at byte 0"]),
        (
            'printf \'{"scores":[{},1,{},{"auc":NaN}]}\' > $R',
            {"kind": "not_finite", "place": "$.scores[3].auc"},
            [],
        ),
        ("printf '[-Infinity]' > $R", {"kind": "not_finite", "place": "$[0]"}, ["-Infinity"]),
        ("printf '{\"a b\":1e999}' > $R", {"kind": "not_finite", "place": '$["a b"]'}, ["Infinity"]),
        ("printf '%0101d' 0 > $R", {"kind": "too_large", "bytes": 101, "max_bytes": 100}, ["101", "100"]),
        ("mkdir $R", {"kind": "unreadable"}, ["a directory"]),
        ("mkfifo $R", {"kind": "unreadable"}, ["regular file"]),
        ("ln -s /no/such $R", {"kind": "unreadable"}, ["link"]),
    ],
)
def test_a_refused_result(run, script, expected, words):
    job = run("--result-max-bytes", "100", "--shell", f'R="$RAYTENANT_RESULT_PATH"; {script}')
    assert job.process.returncode == 65
    error = job.record["result_error"]
    message = error.pop("message")
    assert error == expected
    assert job.lines == [f"raytenant: {message}"]
    for word in [*words, *(str(value) for key, value in expected.items() if key == "place")]:
        assert word in message
    assert (job.record["outcome"], job.record["exit_code"]) == ("exited", 65)
    assert list(job.temporary.iterdir()) == []


def test_exactly_the_limit_is_allowed(run, tmp_path):
    job = run("--result-max-bytes", "4", "--shell", 'printf 1234 > "$RAYTENANT_RESULT_PATH"')
    assert job.record["result"] == 1234
    path = tmp_path / "endless"
    path.symlink_to("/dev/zero")
    with pytest.raises(ResultRefused) as caught:
        read_result(str(path), 10)
    assert caught.value.kind == "unreadable"


def test_a_file_larger_than_it_says_is_not_read_whole():
    # Files of /proc say 0 bytes.
    with pytest.raises(ResultRefused) as caught:
        read_result("/proc/self/status", 10)
    assert caught.value.details == {"bytes": 11, "max_bytes": 10}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[" * 100_000, "nested more than 200 levels deep"),
        (b"[" * 201 + b"1" + b"]" * 201, "nested more than 200 levels deep"),
        (b'{"a":["\\ud800"]}', "half a surrogate pair in the text at $.a[0]"),
        (b'{"\\ud800":1}', 'half a surrogate pair in the text at $["\\ud800"]'),
        (b"9" * 5000, "not usable as JSON"),
        (b"\xef\xbb\xbf{}", "not JSON at line 1 column 1"),
        ("{}".encode("utf-16"), "not UTF-8 at byte 0"),
        (b"{} {}", "not JSON at line 1 column 4"),
    ],
)
def test_stricter_than_pythons_json(data, message):
    with pytest.raises(StrictJSONError) as caught:
        loads(data)
    assert str(caught.value).startswith(message)
    assert caught.value.kind == "not_json"


def test_the_first_offence_is_named():
    with pytest.raises(StrictJSONError, match=r"at \$\.a\[1\]"):
        loads(b'{"a": [1, NaN, {"b": NaN}], "c": NaN}')
    assert loads(b"[" * 200 + b"]" * 200)
