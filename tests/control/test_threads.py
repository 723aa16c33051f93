from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from airflow_provider_raytenant.control import threads
from airflow_provider_raytenant.control.threads import ask
from airflow_provider_raytenant.exceptions import DatabaseUnavailableError, RequestError


async def test_the_answer_of_another_thread_comes_back() -> None:
    assert await ask(threading.get_ident) != threading.get_ident()


async def test_an_error_of_ours_comes_back_as_it_is() -> None:
    def fail() -> None:
        raise RequestError("x: found 1; allowed: 2")

    with pytest.raises(RequestError, match="found 1"):
        await ask(fail)


async def test_any_other_error_comes_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # The thread shows its traceback as well.
    shown = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: shown.set())
    with pytest.raises(ZeroDivisionError):
        await ask(lambda: 1 / 0)
    assert shown.wait(10)


async def test_what_does_not_answer_is_left_behind_and_only_so_many_are() -> None:
    over = threading.Event()
    try:
        for _ in range(threads._MOST_CALLS):
            with pytest.raises(DatabaseUnavailableError, match=r"no answer within 0\.01 s"):
                await ask(lambda: over.wait(60), patience=0.01)
        with pytest.raises(DatabaseUnavailableError, match="16 earlier calls still wait"):
            await ask(lambda: over.wait(60))
    finally:
        over.set()
    # The answers that came too late make room again.
    deadline = time.monotonic() + 10
    while True:
        try:
            assert await ask(lambda: 7) == 7
            break
        except DatabaseUnavailableError:
            assert time.monotonic() < deadline


def test_a_call_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    code = (
        "import asyncio, threading\n"
        "from airflow_provider_raytenant.control.threads import ask\n"
        "async def main():\n"
        "    call = asyncio.create_task(ask(threading.Event().wait))\n"
        "    await asyncio.sleep(0.1)\n"
        "    call.cancel()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
