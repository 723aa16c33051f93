"""What one trigger has seen of its job's use, the next one knows; and nothing of it harms a task."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from airflow_provider_raytenant.ray_api.use_watch import UseTold
from airflow_provider_raytenant.triggers import task as task_module
from airflow_provider_raytenant.triggers.task import OwnTask
from airflow_provider_raytenant.triggers.usage import use_told

LOG = logging.getLogger(__name__)
USAGE = {"submission_id": "j", "peak": {"cpus": 4.0}, "samples": 2}


class XComs(dict[str, Any]):
    """The XComs of the task; ``broken`` is what Airflow says instead of an answer."""

    broken: Exception | None = None

    async def aset(self, key: str, value: Any, **where: Any) -> None:
        if self.broken:
            raise self.broken
        assert where == {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1}
        self[key] = json.loads(json.dumps(value))

    async def aget_one(self, *, key: str, **where: Any) -> Any:
        if self.broken:
            raise self.broken
        assert where == {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1}
        return self.get(key)


@pytest.fixture
def xcoms(monkeypatch: pytest.MonkeyPatch) -> XComs:
    stored = XComs()
    monkeypatch.setattr(task_module, "XCom", stored)
    return stored


def told(submission_id: str = "j") -> UseTold:
    return use_told(OwnTask("d", "r", "t", -1), submission_id, LOG)


async def load(of: UseTold) -> Any:
    assert of.load is not None
    return await of.load()


async def test_the_next_trigger_of_the_same_try_gets_what_this_one_kept(xcoms: XComs) -> None:
    first = told()
    assert await load(first) is None
    assert first.save is not None
    await first.save(USAGE)
    assert xcoms == {"raytenant_usage": USAGE}
    assert await load(told()) == USAGE
    assert await load(told("another-try")) is None
    for other in ("nonsense", {"submission_id": "j", "run_seconds": 1.5}):
        xcoms["raytenant_usage"] = other
        assert await load(told()) is None


async def test_xcoms_that_are_away_harm_nothing(xcoms: XComs) -> None:
    xcoms.broken = ConnectionError("the API server is away")
    of = told()
    assert of.save is not None
    await of.save(USAGE)
    assert await load(of) is None
    assert xcoms == {}


def test_under_dag_test_nothing_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    of = use_told(None, "j", LOG)
    assert (of.load, of.save) == (None, None)
    of.warn("held up to 4 CPUs")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "held up to 4 CPUs")
    ]
