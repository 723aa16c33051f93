from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from airflow_provider_raytenant.local.errors import NotReady, ServiceDied
from airflow_provider_raytenant.local.processes import (
    Service,
    kill_service,
    scope_pids,
    start_service,
    stop_scope,
    stop_service,
    stop_services,
    wait_until,
)

SLEEP = "import time; time.sleep(300)"
# A parent, a child in a session of its own, whose own child has lost its parent: out of tree and session.
DAEMON = f"""
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
    os._exit(0)
subprocess.Popen([sys.executable, "-c", {SLEEP!r}])
os.wait()
print("ready", flush=True)
time.sleep(300)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(300)
"""


def start(tmp_path: Path, program: str, scope: str | None = None) -> Service:
    return start_service("probe", [sys.executable, "-c", program], log=tmp_path / "probe.log", scope=scope)


def started(tmp_path: Path, program: str, scope: str | None = None) -> Service:
    service = start(tmp_path, program, scope)
    wait_until(lambda: "ready" in service.tail(), timeout=20, what="the probe", service=service)
    return service


def test_stop_ends_children_and_what_left_tree_and_session(tmp_path: Path) -> None:
    service = started(tmp_path, DAEMON)
    pids = scope_pids(service.mark)
    assert len(pids) == 3
    assert len({os.getsid(pid) for pid in pids}) == 2

    stop_service(service)

    assert not service.running
    assert scope_pids(service.mark) == []


def test_what_a_dead_service_left_behind_is_ended(tmp_path: Path) -> None:
    service = started(tmp_path, DAEMON)
    os.kill(service.pid, signal.SIGKILL)
    wait_until(lambda: not service.running, timeout=5, what="the end")
    assert len(scope_pids(service.mark)) == 2

    stop_service(service)

    assert scope_pids(service.mark) == []


def test_sigkill_follows_when_sigterm_is_ignored(tmp_path: Path) -> None:
    service = started(tmp_path, STUBBORN)
    begun = time.monotonic()

    stop_service(service, timeout=0.5)

    assert not service.running
    assert time.monotonic() - begun >= 0.5


def test_a_recycled_pid_is_not_killed(tmp_path: Path) -> None:
    service = start(tmp_path, SLEEP)
    other = dataclasses.replace(service, started=service.started - 1, mark="service/another")
    try:
        assert not other.running
        stop_service(other)
        kill_service(other)
        assert service.running
    finally:
        stop_service(service)


def test_a_service_is_found_again_from_its_json(tmp_path: Path) -> None:
    service = Service.from_json(start(tmp_path, SLEEP).to_json())
    assert service.running

    stop_services([service])

    assert not service.running


def test_a_scope_is_ended_as_a_whole_and_only_it(tmp_path: Path) -> None:
    mine = [start(tmp_path, SLEEP, "scope-1"), started(tmp_path, DAEMON, "scope-1")]
    other = start(tmp_path, SLEEP, "scope-10")
    try:
        stop_scope("scope-1")

        assert not any(service.running for service in mine)
        assert scope_pids("scope-1") == []
        assert other.running
    finally:
        stop_service(other)


def test_waiting_ends_at_once_with_the_log_when_the_service_dies(tmp_path: Path) -> None:
    service = start(tmp_path, "print('no such option'); raise SystemExit(2)")

    with pytest.raises(ServiceDied, match="no such option"):
        wait_until(lambda: False, timeout=30, what="the probe", service=service)


def test_waiting_is_bounded() -> None:
    with pytest.raises(NotReady, match=r"the moon: not within 0\.3 s") as caught:
        wait_until(lambda: False, timeout=0.3, what="the moon")

    assert caught.value.what == "the moon"
