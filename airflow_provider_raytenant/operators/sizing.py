"""Pool and slots of a task, known when its DAG is parsed: for ``__init__`` and ``partial()`` alike."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import attrs
from airflow.sdk.definitions.mappedoperator import OperatorPartial

from airflow_provider_raytenant import tenant_file
from airflow_provider_raytenant.domain.job_spec import Placement, place, tiny_words
from airflow_provider_raytenant.domain.resources import Workers, request
from airflow_provider_raytenant.domain.rules import check_request
from airflow_provider_raytenant.domain.tenants import PoolKind
from airflow_provider_raytenant.exceptions import PolicyError, RequestError, TinyRequestWarning
from airflow_provider_raytenant.tenant_file import TenantView

FOOTPRINT_ARGUMENTS: Final = ("num_cpus", "num_gpus", "memory", "resources", "workers")
SIZING_ARGUMENTS: Final = (*FOOTPRINT_ARGUMENTS, "label_selector")
NEVER_MAPPED: Final = ("tenant", "label_selector", "pool", "pool_slots")


@dataclass(frozen=True)
class Sizing:
    """Where a task queues, and the part of the tenant file that says so."""

    view: TenantView
    placement: Placement
    pool: str
    pool_slots: int
    tiny: str | None = None
    """What to say of a request that is too small for a cluster."""


def size(
    tenant: Any,
    *,
    pool: str | None = None,
    pool_slots: int | None = None,
    num_cpus: Any = 1,
    num_gpus: Any = 0,
    memory: Any = None,
    resources: Mapping[str, Any] | None = None,
    workers: Workers | None = None,
    label_selector: Mapping[str, str] | None = None,
) -> Sizing:
    """Pool and slots from the footprint and the tenant file.

    :raises TenantFileError: the file, this tenant or its cluster is wrong.
    :raises RequestError: an argument is wrong; a :class:`PolicyError` where the tenant's rules forbid it.
    """
    if not isinstance(tenant, str) or not tenant:
        raise RequestError(f"tenant: found {tenant!r}; allowed: the name of a tenant of the tenant file")
    if workers is not None and not isinstance(workers, Workers):
        raise RequestError(
            f"workers: found {workers!r}; allowed: Workers(count=4, num_cpus=2, memory='4GiB')"
        )
    _check_selector(label_selector)
    view = tenant_file.view(tenant_file.config_file(), tenant)
    try:
        driver = request("", num_cpus, memory, num_gpus, resources)
    except ValueError as error:
        raise RequestError(str(error)) from None
    check_request(view.tenant, driver, workers, label_selector)
    _check_slots(pool_slots)
    placement = place(
        view.tenant, view.cluster, driver, workers, label_selector, view.dedicated, pool_slots=pool_slots
    )
    own = _pools_to_name(view, placement)
    if pool is not None and pool not in own and pool not in view.tenant.rules.pools:
        allowed = ", ".join((*own, *view.tenant.rules.pools))
        raise PolicyError(
            f"pool: found {pool!r}; allowed for tenant {tenant}: {allowed} "
            "(leave it out, also of default_args)",
            rule="pools",
        )
    # Another pool, where the tenant may name one, has slots of its own meaning.
    slots = _slots(placement, pool_slots, ours=pool is None or pool in own)
    tiny = tiny_words(view.tenant, placement.footprint)
    if tiny is not None:
        # Past this function, the operator's own, and the wrapper that Airflow puts around that.
        warnings.warn(tiny, TinyRequestWarning, stacklevel=4)
    return Sizing(view, placement, pool or placement.pool, slots, tiny)


def _pools_to_name(view: TenantView, placement: Placement) -> list[str]:
    """The tenant's pools that a task of this placement may name: where it queues anyway, or as a backfill."""
    pools = view.tenant.pools(placement.group, view.cluster.default_group)
    return [placement.pool, *(pools[kind] for kind in pools if kind is PoolKind.BACKFILL)]


def _check_slots(pool_slots: Any) -> None:
    whole = isinstance(pool_slots, int) and not isinstance(pool_slots, bool)
    if pool_slots is not None and not (whole and pool_slots >= 1):
        raise RequestError(f"pool_slots: found {pool_slots!r}; allowed: a whole number of at least 1")


def _slots(placement: Placement, pool_slots: int | None, *, ours: bool) -> int:
    if pool_slots is None:
        return placement.slots
    if pool_slots < placement.slots and ours:
        raise RequestError(
            f"pool_slots: found {pool_slots}; allowed: at least {placement.slots}, "
            f"which the footprint of {placement.footprint} takes (leave it out)"
        )
    return pool_slots


def _check_selector(selector: Any) -> None:
    if selector is None:
        return
    texts = isinstance(selector, Mapping) and all(
        isinstance(part, str) for pair in selector.items() for part in pair
    )
    if not texts:
        raise RequestError(
            f"label_selector: found {selector!r}; allowed: a dict of label to condition, both texts"
        )


@attrs.define(kw_only=True, repr=False)
class SizedPartial(OperatorPartial):
    """What ``partial()`` returns: refuses to map what would change the footprint behind the pool's back."""

    slots_given: bool = False

    def expand(self, **mapped_kwargs: Any) -> Any:
        """Map over these arguments.

        :raises RequestError: one of them decides over pool or slots.
        """
        self._check_mapped(mapped_kwargs)
        return super().expand(**mapped_kwargs)

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> Any:
        """Map over dicts of arguments; what comes out of an XCom is checked when the task runs.

        :raises RequestError: ``strict=False`` would let a mapped task override its pool and tenant.
        """
        if not strict:
            self._expand_called = True
            raise RequestError("strict: found False in expand_kwargs(); allowed: True, for the pool's sake")
        if not hasattr(kwargs, "operator"):
            for item in kwargs if isinstance(kwargs, (list, tuple)) else ():
                self._check_mapped(item if isinstance(item, Mapping) else {})
        return super().expand_kwargs(kwargs, strict=strict)

    def _check_mapped(self, mapped: Mapping[str, Any]) -> None:
        try:
            for name in NEVER_MAPPED:
                if name in mapped:
                    raise RequestError(
                        f"{name}: found in expand(); allowed: in partial() only, "
                        "since one pool serves all mapped tasks"
                    )
            for name in FOOTPRINT_ARGUMENTS:
                if name in mapped and not self.slots_given:
                    raise RequestError(
                        f"{name}: found in expand(); allowed: with an explicit pool_slots in partial(), "
                        "large enough for the largest of the mapped tasks"
                    )
        except RequestError:
            self._expand_called = True  # Else its destructor warns of a task that was never mapped.
            raise
