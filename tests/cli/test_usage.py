"""``airflow raytenant usage``: what it prints for people and for programs, and what it refuses."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_provider_raytenant.cli import usage as module
from airflow_provider_raytenant.domain.usage_report import Span, Try

NOW = datetime(2026, 12, 1, 12, 30, 15, 5, UTC)
FILE = """\
deployment: prod
defaults: {cluster: shared}
clusters:
  shared:
    ray_conn_id: ray_shared
    groups:
      cpu: {slot: {cpus: 1, memory: 4GiB}}
      gpu: {slot: {gpus: 1, cpus: 8, memory: 64GiB}}
tenants: {acme: {}, globex: {}, idle: {}}
"""


class Clock(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        assert tz is UTC
        return NOW


class Tries:
    """Stands for Airflow's database."""

    def __init__(self) -> None:
        self.rows: list[Try] = []
        self.span: Span | None = None

    def add(self, pool: str, dag: str, task: str, hours: float, wait: float, **more: Any) -> None:
        queued = NOW - timedelta(hours=hours + 1)
        ended = queued + timedelta(hours=hours)
        known = {"slots": 1, "dag_id": dag, "task_id": task, "usage": None, **more}
        scheduled = queued - timedelta(seconds=wait)
        self.rows.append(Try(pool, scheduled=scheduled, queued=queued, started=queued, ended=ended, **known))

    def read(self, pools: Collection[str], span: Span) -> Iterator[Try]:
        self.span = span
        return (one for one in self.rows if one.pool in pools)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    made = Tries()
    monkeypatch.setattr(module, "read_tries", made.read)
    monkeypatch.setattr(module, "datetime", Clock)
    return made


@pytest.fixture
def month(tries: Tries) -> Tries:
    """What two tenants did."""
    peak = {"peak": {"cpus": 2}, "run_seconds": 7100}
    tries.add("ray.acme", "acme_daily_delays", "statistics", hours=2, wait=5, slots=4, usage=peak)
    tries.add("ray.acme.large", "acme_daily_delays", "statistics", hours=3, wait=600, slots=8)
    for _ in range(3):
        tries.add("ray.acme", "notify", "send", hours=4 / 3600, wait=1, usage={"run_seconds": 0.5})
    tries.add("ray.acme.gpu", "carriers", "embed", hours=1.5, wait=0, slots=2)
    tries.add("ray.globex", "globex_delay_model", "train", hours=24, wait=60, slots=3)
    return tries


def run(tmp_path: Path, **arguments: Any) -> None:
    file = tmp_path / "raytenant.yaml"
    file.write_text(FILE)
    known = {"file": str(file), "since": "30d", "tenant": None, "by": "tenant", "output": "table"}
    module.usage(Namespace(**{**known, **arguments}))


def test_by_tenant_the_largest_of_each_group_comes_first(
    month: Tries, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "Slots held since 2026-11-01 12:30 UTC (30d)",
        "",
        "tenant  group       slot-hours  tries  mean wait  worst  used  known",
        "globex  shared/cpu       72.00      1         1m     1m     -     0%",
        "acme    shared/cpu       32.00      5      2m 1s    10m   50%    25%",
        "acme    shared/gpu        3.00      1         0s     0s     -     0%",
        "",
        "used: the part of the slot-hours that the jobs' peaks in Ray would have needed;",
        "known: the part of the slot-hours for which there is a peak.",
        "",
        "Better off as plain Airflow tasks: under 10 s of work, more beside it (medians)",
        "tenant  task         tries  work  rest  slots",
        "acme    notify.send      3  0.5s  3.5s      1",
    ]
    assert month.span == Span(NOW - timedelta(days=30), NOW)


def test_by_dag_each_tenants_dags_stand_below_it(
    month: Tries, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, by="dag", tenant="acme")
    assert [line[:32].rstrip() for line in capsys.readouterr().out.splitlines()[2:8]] == [
        "tenant, dag          slot-hours",
        "acme, shared/cpu          32.00",
        "  acme_daily_delays       32.00",
        "  notify                   0.00",
        "acme, shared/gpu           3.00",
        "  carriers                 3.00",
    ]


@pytest.mark.parametrize("by", ["tenant", "dag"])
def test_it_has_room_in_80_columns(
    tries: Tries, tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    for _ in range(3):
        usage = {"peak": {"cpus": 1}, "run_seconds": 0.1}
        tries.add("ray.acme", "q" * 60, "z" * 60, hours=600, wait=90_000, slots=9999, usage=usage)
    run(tmp_path, by=by)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    # Figures are never cut.
    assert all(figure in out for figure in ("17998200.00", "1d 1h", "100%", "0.1s", "9999"))
    # Nor are names.
    assert (out.count("q"), out.count("z")) == (120 if by == "dag" else 60, 60)


@pytest.mark.parametrize(("output", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_for_programs_there_are_raw_numbers(
    month: Tries,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    output: str,
    parse: Callable[[str], Any],
) -> None:
    run(tmp_path, output=output, tenant="acme", since="12h")
    answer = parse(capsys.readouterr().out)
    assert (answer["since"], answer["until"]) == ("2026-12-01T00:30:15+00:00", "2026-12-01T12:30:15+00:00")
    assert answer["usage"] == [
        {
            "tenant": "acme",
            "group": "shared/cpu",
            "slot_hours": 32 + 3 * 4 / 3600,
            "tries": 5,
            "mean_wait_seconds": (5 + 600 + 3) / 5,
            "worst_wait_seconds": 600.0,
            "used": 0.5,
            "used_known": pytest.approx(8 / (32 + 3 * 4 / 3600)),
        },
        {
            "tenant": "acme",
            "group": "shared/gpu",
            "slot_hours": 3.0,
            "tries": 1,
            "mean_wait_seconds": 0.0,
            "worst_wait_seconds": 0.0,
            "used": None,
            "used_known": 0.0,
        },
    ]
    assert answer["better_as_plain_tasks"] == [
        {
            "tenant": "acme",
            "dag_id": "notify",
            "task_id": "send",
            "tries": 3,
            "median_work_seconds": 0.5,
            "median_rest_seconds": 3.5,
            "slots": 1,
        }
    ]
    run(tmp_path, output=output, by="dag", tenant="acme")
    rows = parse(capsys.readouterr().out)["usage"]
    assert [(row["dag_id"], row["tries"]) for row in rows] == [
        ("acme_daily_delays", 2),
        ("notify", 3),
        ("carriers", 1),
    ]


def test_nothing_held_says_so(tries: Tries, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, since="7d")
    assert capsys.readouterr().out == (
        "No slot of the tenants' pools was held since 2026-11-24 12:30 UTC (7d).\n"
    )
    run(tmp_path, output="json")
    answer = json.loads(capsys.readouterr().out)
    assert (answer["usage"], answer["better_as_plain_tasks"]) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            {"since": "3 weeks"},
            "--since: found '3 weeks'; allowed: a whole number with a unit: 90s, 30m, 12h, 7d",
        ),
        ({"tenant": "acne"}, "--tenant: found 'acne'; allowed: acme, globex, idle"),
    ],
)
def test_what_is_wrong_is_one_clear_error(
    tries: Tries, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: dict[str, Any], error: str
) -> None:
    with pytest.raises(SystemExit) as end:
        run(tmp_path, **arguments)
    assert end.value.code == 1
    assert capsys.readouterr() == ("", f"{error}\n")
    assert tries.span is None
