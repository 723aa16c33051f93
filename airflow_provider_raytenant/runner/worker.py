"""What runs in each of a job's Ray worker processes before its first task: it gives them what the driver has.

On the driver's node the files of the runner are there. Elsewhere a task of the job's own fetches the grant
from there: nobody else can ask for it in this way, and Ray keeps no arguments and no small results anywhere
but in the two processes. So neither an address nor a key that others could use ever stands in Ray, and a node
that joins days later is served like the first.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from .grant import PARENTS, PLACE_VARIABLE, GrantFiles, remove_left_behind, values_to_mask
from .masking import Mask
from .renewal import Renewal
from .ticket import CLAIM_VARIABLE, SUBMISSION_ID_VARIABLE
from .worker_output import mask_streams

OWN_HOOK_VARIABLE = "RAYTENANT_SETUP_HOOK"
# The job's own `worker_process_setup_hook`: Ray takes one only.

_FETCH_SECONDS = 60.0
_FETCH_ATTEMPTS = 3


def setup() -> None:
    """Ray calls this. Raises what makes the worker useless: Ray starts another then."""
    submission_id = os.environ[SUBMISSION_ID_VARIABLE]
    files = GrantFiles.find(submission_id)
    if files is not None:
        grant = files.read()
        mask = Mask(values_to_mask(grant))
    else:
        files, grant, mask = _from_afar(submission_id)
    _apply(files, grant)
    mask_streams(mask)
    own = os.environ.get(OWN_HOOK_VARIABLE)
    if own:
        _function(own)()


def _from_afar(submission_id: str) -> tuple[GrantFiles, dict[str, object], Mask]:
    remove_left_behind()
    grant = _fetched(submission_id)
    # One directory a process: whoever comes and goes on this node, none waits for another.
    files = GrantFiles.make(f"{submission_id}-{os.getpid()}")
    files.write(grant)
    mask = Mask(values_to_mask(grant))

    def fetch(_: dict[str, object]) -> dict[str, object] | None:
        try:
            return _fetched(submission_id)
        except RuntimeError:  # it is asked for again
            return None

    Renewal(files, grant, fetch, told=lambda renewed: mask.add(values_to_mask(renewed))).start()
    return files, grant, mask


def _apply(files: GrantFiles, grant: dict[str, object]) -> None:
    environment = dict(os.environ)
    environment.pop(CLAIM_VARIABLE, None)
    files.apply(environment, grant)
    for variable in os.environ.keys() - environment.keys():
        del os.environ[variable]
    os.environ.update(environment)


def _fetched(submission_id: str) -> dict[str, object]:
    """The grant from the driver's node. Raises RuntimeError."""
    problem: Exception | None = None
    for attempt in range(_FETCH_ATTEMPTS):
        if attempt:
            time.sleep(attempt)
        # A thread of its own: Ray counts what the first thread submits, and ends a worker that submitted
        # something before its first task (seen with 2.60).
        answers: list[dict[str, object] | Exception] = []
        thread = threading.Thread(target=_ask_driver, args=(submission_id, answers), daemon=True)
        thread.start()
        thread.join(2 * _FETCH_SECONDS)
        answer = answers[0] if answers else TimeoutError("no answer")
        if isinstance(answer, dict):
            return answer
        problem = answer
    raise RuntimeError(f"raytenant: no credentials from the job's driver: {problem}")


def _ask_driver(submission_id: str, answers: list[dict[str, object] | Exception]) -> None:
    try:
        # By name, as everything of Ray's here: a worker has it, while Airflow's side never imports it.
        ray: Any = importlib.import_module("ray")
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        node = _driver_node(submission_id)
        task: Any = ray.remote(num_cpus=0, max_retries=3)(_reader()).options(
            name="raytenant: credentials of the job",
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node, soft=False),
            # Ray knows no environment to inherit before a worker's first task, and dies looking for it
            # (seen with 2.60): so one is given, which is ready at once and has no hook.
            runtime_env={"env_vars": {"RAYTENANT_READS_FOR": submission_id}},
        )
        text = ray.get(task.remote(submission_id, PLACE_VARIABLE, PARENTS), timeout=_FETCH_SECONDS)
        answers.append(json.loads(text))
    except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits for it
        answers.append(error)


def _driver_node(submission_id: str) -> str:
    """The node of the job's driver, from Ray's own record of the job."""
    kv: Any = importlib.import_module("ray.experimental.internal_kv")
    record = kv._internal_kv_get(f"_ray_internal_job_info_{submission_id}".encode(), namespace=b"job")
    node = json.loads(record or b"{}").get("driver_node_id")
    if not node:
        raise RuntimeError(f"Ray does not know where the driver of job {submission_id} runs")
    return str(node)


def _reader() -> Callable[[str, str, tuple[str, ...]], str]:
    """A function that carries all it needs: the process that runs it has none of the job's packages."""

    def read(submission_id: str, place_variable: str, parents: tuple[str, ...]) -> str:
        import os

        own = os.environ.get(place_variable)
        for parent in (own,) if own else parents:
            path = os.path.join(parent, f"raytenant-access-{os.getuid()}-{submission_id}", "grant.json")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    return file.read()
        raise RuntimeError("the job has ended, or its runner has")

    read.__module__ = "__main__"
    return read


def _function(path: str) -> Callable[[], object]:
    module, _, name = path.rpartition(".")
    function: Callable[[], object] = getattr(importlib.import_module(module), name)
    return function
