"""Ray tasks that stay inside the footprint which a DAG declares.

Ray caps no job: entrypoint resources bound the driver alone, and its tasks take whatever CPUs are free. The
job itself must not have more tasks in flight than the DAG declared workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")

# Per task, in bytes: the `memory` of a worker in the example DAGs.
WORKER_MEMORY = 512 * 1024**2


def at_most(
    workers: int, function: Callable[..., Result], items: Iterable[Any], *shared: Any
) -> list[Result]:
    """`function(item, *shared)` for each item as tasks of one CPU, at most `workers` in flight.

    Results come in the order of the items. Each of `shared` is put into the object store once.
    """
    import ray  # noqa: TID251 - a job's own code, on the cluster

    task = ray.remote(num_cpus=1, memory=WORKER_MEMORY)(function)
    kept = [ray.put(value) for value in shared]
    results: dict[int, Result] = {}
    flying: dict[Any, int] = {}

    def land_one() -> None:
        [done], _ = ray.wait(list(flying), num_returns=1)
        results[flying.pop(done)] = ray.get(done)

    for place, item in enumerate(items):
        if len(flying) == workers:
            land_one()
        flying[task.remote(item, *kept)] = place
    while flying:
        land_one()
    return [results[place] for place in sorted(results)]
