"""The tenant file as data: clusters with their groups and slots, tenants with their shares.

Shapes and checks only; reading YAML is the business of :mod:`airflow_provider_raytenant.tenant_file`.
Every wrong value says what was found and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from airflow_provider_raytenant.domain import access, rule_defaults, runtime_env
from airflow_provider_raytenant.domain.file_parts import (
    Amount,
    Count,
    Fraction,
    FullAmount,
    Lifetime,
    Memory,
    Name,
    Part,
    PerGroup,
    PerGroupFrom2,
    Weight,
    positive,
)
from airflow_provider_raytenant.domain.package_sources import checked_source
from airflow_provider_raytenant.domain.quantities import format_count, format_memory
from airflow_provider_raytenant.domain.resources import Resources
from airflow_provider_raytenant.domain.storage_prefix import StoragePrefix

RESERVED_GROUPS = ("large", "backfill")


class PoolKind(StrEnum):
    """What a pool of a tenant is for."""

    MAIN = "main"
    LARGE = "large"
    """Requests from ``large_from`` slots on. Among small ones they starve: Airflow passes over a task that
    does not fit its pool, and starts the smaller ones behind it."""

    BACKFILL = "backfill"
    """Tasks of backfill runs, where Airflow's cluster policy moves them there."""


class Slot(FullAmount):
    """What one slot of a group is: CPU and memory (and GPUs) together."""


class Group(Part):
    """A kind of nodes with its own slot, told apart by labels or by having GPUs."""

    slot: Slot
    labels: dict[str, str] = Field(default_factory=dict)


class Autoscale(Part):
    """What an autoscaling cluster may grow to; Ray does not tell it over HTTP."""

    max: Amount
    largest_node: FullAmount | None = None


class Cluster(Part):
    """A Ray cluster behind one Airflow connection of type ``ray``."""

    ray_conn_id: Annotated[str, Field(min_length=1)]
    usable: Fraction = 1.0
    reserve: Amount = Field(default_factory=Amount)
    autoscale: Autoscale | None = None
    groups: Annotated[dict[Name, Group], Field(min_length=1)]

    @field_validator("groups")
    @classmethod
    def _no_reserved_names(cls, groups: dict[str, Group]) -> dict[str, Group]:
        for name in groups:
            if name in RESERVED_GROUPS:
                raise ValueError(f"found {name!r}; allowed: names other than {', '.join(RESERVED_GROUPS)}")
        return groups

    @property
    def default_group(self) -> str:
        """The first group of the file: the one that numbers without a group's name are about."""
        return next(iter(self.groups))


_LABEL_PATTERN = r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?"
_RESOURCES_OF_RAY = ("CPU", "GPU", "memory", "object_store_memory")
_LABEL_KEY_PATTERN = rf"([a-z0-9.-]{{1,253}}/)?{_LABEL_PATTERN}"
_LABEL_ALLOWED = "letters, digits, '-', '_' and '.', a letter or digit first and last, at most 63"


def _label_key(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(_LABEL_KEY_PATTERN, value):
        raise ValueError(f"found {value!r}; allowed: a label: {_LABEL_ALLOWED}")
    return value


def _label_value(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(_LABEL_PATTERN, value):
        raise ValueError(f"found {value!r}; allowed: a label's value, no condition: {_LABEL_ALLOWED}")
    return value


LabelKey = Annotated[
    str,
    BeforeValidator(_label_key),
    WithJsonSchema({"type": "string", "pattern": f"^{_LABEL_KEY_PATTERN}$"}),
]
LabelValue = Annotated[
    str, BeforeValidator(_label_value), WithJsonSchema({"type": "string", "pattern": f"^{_LABEL_PATTERN}$"})
]


class DedicatedNodes(Part):
    """Nodes that are a tenant's alone: those with a label, or those that offer a custom resource.

    One label, since no selector of Ray's could keep the others off nodes that only two labels tell apart.
    """

    label: dict[LabelKey, LabelValue] | None = None
    resource: str | None = None
    autoscale: Autoscale | None = None
    """What these nodes may grow to; the cluster's own ``autoscale`` is about the nodes that all share."""

    @model_validator(mode="after")
    def _one_mark(self) -> Self:
        found = {key: getattr(self, key) for key in ("label", "resource") if getattr(self, key) is not None}
        if len(found) != 1 or (self.label is not None and len(self.label) != 1):
            raise ValueError(f"found {found}; allowed: label: {{team: acme}}, or resource: acme_node")
        if self.resource is not None and (not self.resource.strip() or self.resource in _RESOURCES_OF_RAY):
            raise ValueError(f"resource: found {self.resource!r}; allowed: the name of a custom resource")
        return self

    def holds(self, labels: Mapping[str, str], custom: Mapping[str, float]) -> bool:
        """Whether a node with these labels and custom resources is one of them."""
        if self.resource is not None:
            return custom.get(self.resource, 0.0) > 0
        return all(labels.get(key) == value for key, value in (self.label or {}).items())

    def is_same(self, other: DedicatedNodes) -> bool:
        """Whether both are about the same nodes: tenants that name the same share them."""
        return (self.label, self.resource) == (other.label, other.resource)

    def __str__(self) -> str:
        if self.resource is not None:
            return f"resource {self.resource}"
        return "label " + ", ".join(f"{key}={value}" for key, value in (self.label or {}).items())


class RoleCredentials(Part):
    """Credentials of a role, for each try anew and narrowed to the tenant's prefix.

    They are had through an Airflow AWS connection, which needs the right to assume the role and no other.
    """

    aws_conn_id: Annotated[str, Field(min_length=1)]
    role_arn: Annotated[str, Field(pattern=r"^arn:[\w-]+:iam::\d{12}:role/.+$")]
    duration: Lifetime = access.DEFAULT_SECONDS
    """How long they are valid (``1h``); jobs that run longer get new ones in time."""
    node_endpoint_url: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+/?$")] | None = None
    """Where nodes find S3, if elsewhere than Airflow does, ``http://s3.internal:9000``."""


Pattern = Annotated[str, Field(min_length=1)]
PackageSource = Annotated[str, AfterValidator(checked_source)]


class Largest(Part):
    """The largest single request, of a driver or of one worker; what is not named has no limit."""

    cpus: Count | None = None
    memory: Memory | None = None
    gpus: Count | None = None


class EnvVarNames(Part):
    """Names that a task may not set in ``env_vars``, as patterns; ``allow`` wins."""

    deny: list[Pattern] = Field(default_factory=lambda: list(rule_defaults.DENIED_ENV))
    allow: list[Pattern] = Field(default_factory=lambda: list(rule_defaults.ALLOWED_ENV))


class Rules(Part):
    """What a tenant's jobs may ask for. A list of names takes patterns (``acme_*``).

    A tenant's own rules lie on the defaults' rule by rule (:meth:`Part.over`).
    """

    pools: list[Pattern] = Field(default_factory=list)
    """Other pools that its tasks may name, for example ``[default_pool]``; no patterns here."""
    runtime_env: list[rule_defaults.EnvironmentKey] = Field(default_factory=lambda: list(rule_defaults.KEYS))
    """Keys of Ray's runtime environment that a task may use, as arguments too."""
    pip_index: list[PackageSource] = Field(default_factory=list)
    """Addresses that a task's ``pip`` and ``uv`` may name, and all below them."""
    secrets: list[Pattern] = Field(default_factory=list)
    """Airflow variables and connections that its tasks' ``secrets`` may name; none by default."""
    image_uri: Annotated[bool, Field(strict=True)] = False
    """Whether a task may name a container image."""
    env_vars: EnvVarNames = Field(default_factory=EnvVarNames)
    resources: list[Pattern] | None = None
    """Custom resources; ``None`` is any but Ray's own."""
    label_selector: dict[Pattern, list[Pattern]] | None = None
    """Labels and their values; ``None`` is any but the id of a node."""
    largest: Largest | None = None
    bundles: list[Pattern] | None = None
    """DAG bundles that may use the tenant; ``None`` is any."""
    teams: list[Pattern] | None = None
    """Airflow teams that may use the tenant, where ``[core] multi_team`` is on; ``None`` is any."""


class BackfillShare(Part):
    """The pool for a tenant's backfills, which shares with its other pools what the tenant gets."""

    weight: Weight = 0.25
    """Beside 1 of the tenant's main pool, and 1 of the one for large requests."""
    limit: PerGroup | None = None
    """The most slots that backfills may hold; none by default."""


class TinySize(Part):
    """An amount of CPU, of memory, or of both."""

    cpus: Annotated[Count, AfterValidator(positive)] | None = None
    memory: Annotated[Memory, AfterValidator(positive)] | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.cpus is None and self.memory is None:
            raise ValueError("found nothing; allowed: {cpus: 0.5, memory: 256MiB}, or one of the two")
        return self

    def holds(self, footprint: Resources) -> bool:
        """Whether a footprint is below this in all that is named; never one with GPUs or custom resources."""
        cpus, memory = self.cpus, self.memory
        small = (cpus is None or footprint.cpus < cpus) and (memory is None or footprint.memory < memory)
        return small and not footprint.gpus and not footprint.custom

    def __str__(self) -> str:
        cpus = [] if self.cpus is None else [f"{format_count(self.cpus)} CPU"]
        return ", ".join([*cpus, *([] if self.memory is None else [format_memory(self.memory)])])


class Tiny(Part):
    """Requests that are too small for a job on the cluster, and what becomes of them."""

    below: TinySize
    action: Literal["warn", "refuse"] = "warn"


class TenantDefaults(Part):
    """Values for every tenant that does not set its own."""

    cluster: Name | None = None
    storage: str | None = None
    credentials: Literal["node"] | RoleCredentials | None = None
    guarantee: PerGroup = 0
    weight: Weight = 1.0
    limit: PerGroup | None = None
    large_from: PerGroupFrom2 | None = None
    """Slots from which on a request queues in a pool of its own kind, so that small ones cannot starve it."""
    backfill: BackfillShare | None = None
    """The pool for backfills; without it they queue behind live tasks in the same pools."""
    tiny: Tiny | None = None
    """What is better run without a cluster, ``{below: {cpus: 0.5, memory: 256MiB}, action: refuse}``."""
    nodes: DedicatedNodes | None = None
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    rules: Rules = Field(default_factory=Rules)

    @field_validator("runtime_env")
    @classmethod
    def _checked_runtime_env(cls, env: dict[str, Any]) -> dict[str, Any]:
        return runtime_env.checked(env)


class Tenant(TenantDefaults):
    """One tenant, with the defaults filled in."""

    name: str = Field(exclude=True)
    cluster: Name

    @model_validator(mode="after")
    def _shares_agree(self) -> Self:
        if self.storage is not None and self.credentials is None:
            raise ValueError(
                "credentials: found nothing beside storage; allowed: node, or {aws_conn_id, role_arn}"
            )
        if isinstance(self.limit, int) and isinstance(self.guarantee, int) and self.guarantee > self.limit:
            raise ValueError(f"guarantee: found {self.guarantee}; allowed: at most the limit of {self.limit}")
        return self

    @property
    def prefix(self) -> StoragePrefix | None:
        """The tenant's own S3 prefix."""
        return None if self.storage is None else StoragePrefix.parse(self.storage)

    def share(self, kind: Literal["guarantee", "limit"], group: str, default_group: str) -> int | None:
        """The tenant's guarantee or limit in slots of a group; ``None`` is no limit."""
        none = 0 if kind == "guarantee" else None
        return _of_group(getattr(self, kind), group, default_group, none)

    def pool(self, group: str, default_group: str, kind: PoolKind = PoolKind.MAIN) -> str:
        """The name of the tenant's pool for a group: ``ray.acme``, ``ray.acme.gpu.large``."""
        own = [] if group == default_group else [group]
        return ".".join(["ray", self.name, *own, *([] if kind is PoolKind.MAIN else [kind])])

    def pools(self, group: str, default_group: str) -> dict[PoolKind, str]:
        """The pools that the tenant has for a group."""
        kinds = [PoolKind.MAIN]
        if self.large_slots(group, default_group) is not None:
            kinds.append(PoolKind.LARGE)
        if self.backfill is not None:
            kinds.append(PoolKind.BACKFILL)
        return {kind: self.pool(group, default_group, kind) for kind in kinds}

    def large_slots(self, group: str, default_group: str) -> int | None:
        """Slots from which on a request of a group is a large one; ``None``: none is."""
        return _of_group(self.large_from, group, default_group, None)

    def backfill_limit(self, group: str, default_group: str) -> int | None:
        """The most slots of a group for backfills; ``None`` is no limit."""
        limit = self.backfill.limit if self.backfill is not None else None
        return _of_group(limit, group, default_group, None)

    def kind_for(self, slots: int, group: str, default_group: str) -> PoolKind:
        """Where a request of so many slots queues, if it is no backfill's."""
        large = self.large_slots(group, default_group)
        return PoolKind.MAIN if large is None or slots < large else PoolKind.LARGE


def _of_group(
    value: int | Mapping[str, int] | None, group: str, default_group: str, none: int | None
) -> int | None:
    """A number is about the default group."""
    if isinstance(value, Mapping):
        return value.get(group, none)
    return value if group == default_group else none


class TenantFile(Part):
    """The whole file, every tenant with the defaults filled in."""

    deployment: Name
    clusters: dict[Name, Cluster]
    tenants: dict[Name, Tenant]

    def tenants_of(self, cluster: str) -> list[Tenant]:
        """The tenants of a cluster, in the order of the file."""
        return [tenant for tenant in self.tenants.values() if tenant.cluster == cluster]


class FileShape(Part):
    """The file as it is written: what the JSON schema for editors describes."""

    deployment: Name
    defaults: TenantDefaults = Field(default_factory=TenantDefaults)
    clusters: Annotated[dict[Name, Cluster], Field(min_length=1)]
    tenants: Annotated[dict[Name, TenantDefaults], Field(min_length=1)]
