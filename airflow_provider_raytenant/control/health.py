"""The controller's health as Airflow metrics: whatever ``[metrics]`` sends them to (StatsD, OpenTelemetry).

=================================  =======  ==============================================================
``raytenant.sync.age``             gauge    seconds since the pools were last made what they should be
``raytenant.sync.failures``        counter  rounds in which the database gave no answer
``raytenant.clusters.silent``      gauge    clusters without an answer: their pools stay as they are
``raytenant.pools.refused``        gauge    pools that had to be left as they are
``raytenant.pools.over_occupied``  gauge    pools whose tasks hold more than the size: they drain
``raytenant.slots.over_occupied``  gauge    slots that are to drain
``raytenant.demand.slots``         gauge    slots that waiting tasks ask for
``raytenant.demand.capped``        gauge    waiting tasks that ask for more than their pool can ever have
=================================  =======  ==============================================================
"""

from __future__ import annotations

import time
from typing import Final

from airflow.sdk.observability import stats

from airflow_provider_raytenant.domain.pool_rows import Change, PoolPlan

_PREFIX: Final = "raytenant."


class Health:
    """Tells what each round of the pools came to; the first age counts from when this was made."""

    def __init__(self) -> None:
        self._synced_at = time.monotonic()

    def synced(self, plan: PoolPlan, silent: int) -> None:
        """A round went well.

        :param silent: clusters without an answer.
        """
        self._synced_at = time.monotonic()
        draining = [pool.drains for pool in plan.pools if pool.drains]
        for name, value in {
            "clusters.silent": silent,
            "pools.refused": sum(pool.change is Change.REFUSED for pool in plan.pools),
            "pools.over_occupied": len(draining),
            "slots.over_occupied": sum(draining),
            "demand.slots": sum(pool.waiting for pool in plan.pools),
            "demand.capped": sum(pool.capped for pool in plan.pools),
        }.items():
            stats.gauge(_PREFIX + name, value)
        self._tell_age()

    def failed(self) -> None:
        """A round failed: the last sync grows older."""
        stats.incr(_PREFIX + "sync.failures")
        self._tell_age()

    def _tell_age(self) -> None:
        stats.gauge(_PREFIX + "sync.age", round(time.monotonic() - self._synced_at, 3))


def send_metrics() -> None:
    """Let this process send metrics where ``[metrics]`` says, as the scheduler does."""
    from airflow.configuration import conf
    from airflow.observability.metrics import stats_utils

    stats.initialize(
        factory=stats_utils.get_stats_factory(),
        export_legacy_names=conf.getboolean("metrics", "legacy_names_on"),
    )
