"""Reading the tenant file (``[raytenant] config_file``): whole for the platform, in part for a DAG.

:func:`load` refuses a wrong file whole and names every problem: what the CLI and the controller use.
:func:`view` needs only one tenant and its cluster to be right: what a DAG parse uses, so that one
team's typo does not break thirty teams' DAGs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

from airflow_provider_raytenant.domain import runtime_env
from airflow_provider_raytenant.domain.dedication import distinct
from airflow_provider_raytenant.domain.file_parts import checked_name
from airflow_provider_raytenant.domain.storage_prefix import StoragePrefix
from airflow_provider_raytenant.domain.tenants import (
    Autoscale,
    Cluster,
    DedicatedNodes,
    FileShape,
    Tenant,
    TenantDefaults,
    TenantFile,
)
from airflow_provider_raytenant.exceptions import Problem, TenantFileError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Model = TypeVar("_Model", bound=BaseModel)
_TOP_LEVEL = tuple(FileShape.model_fields)
NO_SUCH_TENANT = "no such tenant"
"""What :func:`view` found where the file does not name the tenant."""


@dataclass(frozen=True)
class TenantView:
    """One tenant with its cluster: all that an operator needs."""

    deployment: str
    tenant: Tenant
    cluster: Cluster
    dedicated: tuple[DedicatedNodes, ...] = ()
    """The dedicated nodes of this cluster, in the order of the file: this tenant's and those of others."""


@dataclass(frozen=True)
class _Text:
    """The file's content before any check: plain YAML data, and where a key stands twice."""

    file: str
    data: Mapping[str, Any]
    duplicates: tuple[Problem, ...]


def config_file() -> str:
    """The path that ``[raytenant] config_file`` names.

    :raises TenantFileError: nothing is configured.
    """
    from airflow.sdk.configuration import conf

    path = conf.get("raytenant", "config_file", fallback="")
    if not path:
        allowed = "the absolute path of the tenant file, the same in every component"
        raise TenantFileError("airflow.cfg", [Problem("[raytenant] config_file", "nothing", allowed)])
    return str(path)


def load(file: str) -> TenantFile:
    """The whole file.

    :param file: its path, for example ``/opt/airflow/raytenant.yaml``.
    :raises TenantFileError: naming every problem with its key path.
    """
    text = _read(file)
    problems = list(text.duplicates)
    shape = _validated(FileShape, text.data, "", problems)
    if shape is None:
        raise TenantFileError(file, sorted(set(problems)))
    tenants = {}
    for name, own in shape.tenants.items():
        tenant = _tenant(name, shape.defaults, own, problems)
        if tenant is not None:
            problems += _cluster_problems(tenant, shape.clusters)
            if tenant.nodes is not None:
                problems += _autoscale_problems(f"tenants.{name}.nodes", tenant.nodes.autoscale)
            tenants[name] = tenant
    problems += _overlaps(tenants)
    for name, cluster in shape.clusters.items():
        problems += _autoscale_problems(f"clusters.{name}", cluster.autoscale)
    if problems:
        raise TenantFileError(file, sorted(set(problems)))
    return TenantFile(deployment=shape.deployment, clusters=shape.clusters, tenants=tenants)


def view(file: str, tenant: str) -> TenantView:
    """One tenant and its cluster, whatever the rest of the file looks like.

    :param file: the file's path.
    :param tenant: a key of its ``tenants``.
    :raises TenantFileError: the file cannot be read, or this tenant or its cluster is wrong.
    """
    stat = _stat(file)
    return _cached_view(file, tenant, stat.st_mtime_ns, stat.st_size, stat.st_ino)


@lru_cache(maxsize=1024)
def _cached_view(file: str, name: str, *_stat_key: int) -> TenantView:
    text = _read(file)
    known = text.data.get("tenants")
    if not isinstance(known, Mapping) or name not in known:
        names = (
            ", ".join(sorted(map(str, known))) if isinstance(known, Mapping) and known else "none is defined"
        )
        raise TenantFileError(file, [Problem(f"tenants.{name}", NO_SUCH_TENANT, names)])
    problems: list[Problem] = []
    raw_defaults = text.data.get("defaults", {})
    defaults = _validated(TenantDefaults, raw_defaults, "defaults", problems)
    own = _validated(TenantDefaults, known[name], f"tenants.{name}", problems)
    tenant = _tenant(name, defaults, own, problems) if defaults and own else None
    clusters: dict[str, Cluster] = {}
    if tenant is not None:
        raw_clusters = text.data.get("clusters")
        raw = raw_clusters.get(tenant.cluster) if isinstance(raw_clusters, Mapping) else None
        if isinstance(raw_clusters, Mapping) and tenant.cluster in raw_clusters:
            cluster = _validated(Cluster, raw, f"clusters.{tenant.cluster}", problems)
            if cluster is not None:
                clusters[tenant.cluster] = cluster
        if not problems:
            problems += _cluster_problems(tenant, clusters)
    deployment = text.data.get("deployment")
    for path, value in (("deployment", deployment), (f"tenants.{name}", name)):
        try:
            checked_name(value)
        except ValueError as error:
            problems.append(_problem(path, str(error), value))
    concerned = ("deployment", "defaults", f"tenants.{name}", *(f"clusters.{c}" for c in clusters))
    problems += [d for d in text.duplicates if _below(d.key_path, concerned) or d.key_path in _TOP_LEVEL]
    if problems or tenant is None:
        raise TenantFileError(file, sorted(set(problems)))
    dedicated = _dedicated(known, defaults or TenantDefaults(), tenant.cluster)
    return TenantView(cast("str", deployment), tenant, clusters[tenant.cluster], dedicated)


def _dedicated(
    tenants: Mapping[Any, Any], defaults: TenantDefaults, cluster: str
) -> tuple[DedicatedNodes, ...]:
    """Whose nodes a tenant of this cluster has to keep off; another tenant's mistake is not its business."""
    found: list[DedicatedNodes | None] = []
    for values in tenants.values():
        values = values if isinstance(values, Mapping) else {}
        if values.get("cluster", defaults.cluster) != cluster:
            continue
        if "nodes" not in values:
            found.append(defaults.nodes)
        elif isinstance(values["nodes"], Mapping):
            found.append(_validated(DedicatedNodes, values["nodes"], "", []))
    return tuple(distinct(found))


def _below(key_path: str, roots: tuple[str, ...]) -> bool:
    return any(key_path == root or key_path.startswith(root + ".") for root in roots)


def _stat(file: str) -> os.stat_result:
    try:
        return Path(file).stat()
    except OSError as error:
        raise TenantFileError(
            file, [Problem("(file)", error.strerror or str(error), "a readable file")]
        ) from None


def _read(file: str) -> _Text:
    try:
        content = Path(file).read_text(encoding="utf-8")
        node = yaml.compose(content, Loader=_Loader)
        data = yaml.load(content, Loader=_Loader)
    except OSError as error:
        raise TenantFileError(
            file, [Problem("(file)", error.strerror or str(error), "a readable file")]
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: not UTF-8, a date such as 2024-13-45, a number of thousands of digits.
        found = " ".join(str(error).split())
        raise TenantFileError(file, [Problem("(file)", found, "well-formed YAML in UTF-8")]) from None
    if not isinstance(data, Mapping):
        allowed = f"a mapping with the keys {', '.join(_TOP_LEVEL)}"
        raise TenantFileError(file, [Problem("(file)", repr(data), allowed)])
    return _Text(file, data, tuple(_duplicates(node, ())))


def _duplicates(node: Any, path: tuple[str, ...], above: tuple[int, ...] = ()) -> Iterator[Problem]:
    """Keys that stand twice in one mapping: YAML would silently keep the last. Loops, too."""
    if id(node) in above:
        yield Problem(".".join(path), "an alias of a part that it lies in", "aliases without loops")
        return
    above = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            here = (*path, name)
            if name in first_lines:
                found = f"the key twice, in lines {first_lines[name]} and {line}"
                yield Problem(".".join(here), found, "each key once")
            first_lines.setdefault(name, line)
            yield from _duplicates(value, here, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _duplicates(value, (*path, str(index)), above)


def _tenant(
    name: str, defaults: TenantDefaults, own: TenantDefaults, problems: list[Problem]
) -> Tenant | None:
    """The tenant with the defaults filled in and ``{tenant}`` replaced in its storage."""
    values = {key: getattr(defaults, key) for key in defaults.model_fields_set}
    values |= {key: getattr(own, key) for key in own.model_fields_set}
    values["rules"] = own.rules.over(defaults.rules)
    path = f"tenants.{name}"
    try:
        values["runtime_env"] = runtime_env.merge(defaults.runtime_env, own.runtime_env)
    except ValueError as error:
        problems.append(_problem(f"{path}.runtime_env", str(error), None))
        return None
    if values.get("cluster") is None:
        problems.append(Problem(f"{path}.cluster", "nothing", "the name of a cluster, here or in defaults"))
        return None
    if values.get("storage") is not None:
        values["storage"] = values["storage"].replace("{tenant}", name)
        try:
            StoragePrefix.parse(values["storage"])
        except ValueError as error:
            problems.append(_problem(f"{path}.storage", str(error), None))
            return None
    return _validated(Tenant, {**values, "name": name}, path, problems)


def _cluster_problems(tenant: Tenant, clusters: Mapping[str, Cluster]) -> Iterator[Problem]:
    path = f"tenants.{tenant.name}"
    cluster = clusters.get(tenant.cluster)
    if cluster is None:
        names = ", ".join(sorted(clusters)) or "the clusters of this file"
        yield Problem(f"{path}.cluster", repr(tenant.cluster), names)
        return
    by_group = {kind: getattr(tenant, kind) for kind in ("guarantee", "limit", "large_from")}
    by_group["backfill.limit"] = tenant.backfill.limit if tenant.backfill is not None else None
    for kind, value in by_group.items():
        for group in value if isinstance(value, Mapping) else ():
            if group not in cluster.groups:
                groups = f"the groups of cluster {tenant.cluster}: {', '.join(cluster.groups)}"
                yield Problem(f"{path}.{kind}.{group}", "no such group", groups)
    for group in cluster.groups:
        guarantee = tenant.share("guarantee", group, cluster.default_group) or 0
        limit = tenant.share("limit", group, cluster.default_group)
        if limit is not None and guarantee > limit:
            yield Problem(
                f"{path}.guarantee", f"{guarantee} slots of {group}", f"at most the limit of {limit}"
            )


def _autoscale_problems(path: str, scale: Autoscale | None) -> Iterator[Problem]:
    if scale is not None and scale.largest_node is not None:
        node, most = scale.largest_node.resources, scale.max.resources
        if not node.fits_in(most):
            yield Problem(f"{path}.autoscale.largest_node", str(node), f"at most autoscale.max: {most}")
    if scale is not None and bool(scale.max.cpus) != bool(scale.max.memory):
        # One of the two alone is no slot: the pools of a cluster scaled to zero would be empty.
        found = str(scale.max.resources)
        yield Problem(f"{path}.autoscale.max", found, "cpus and memory together, or neither")


def _overlaps(tenants: Mapping[str, Tenant]) -> Iterator[Problem]:
    """Pairs of tenants whose S3 prefixes share objects: one would read the other's data."""
    prefixes = [(name, tenant.prefix) for name, tenant in tenants.items()]
    for (one, left), (other, right) in combinations(prefixes, 2):
        if left is not None and right is not None and left.overlaps(right):
            found = f"{right}, which overlaps {left} of tenant {one}"
            yield Problem(f"tenants.{other}.storage", found, "a prefix of its own for each tenant")


def _validated(model: type[_Model], data: Any, path: str, problems: list[Problem]) -> _Model | None:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        seen: dict[str, Problem] = {}
        for detail in error.errors(include_url=False):
            problem = _problem(_key_path(path, data, detail), _message(detail), detail.get("input"))
            known = seen.setdefault(problem.key_path, problem)
            # A union reports each of its branches: one problem that allows either says the same.
            if problem.allowed not in known.allowed:
                either = f"{known.allowed}; or {problem.allowed}"
                seen[problem.key_path] = Problem(known.key_path, known.found, either)
        problems += seen.values()
        return None


def _message(detail: Any) -> str:
    return str(detail.get("ctx", {}).get("error", detail["msg"]))


def _key_path(root: str, data: Any, detail: Any) -> str:
    """The dotted path of an error, without the names of union branches that pydantic puts in."""
    keys = [root] if root else []
    for step in detail["loc"]:
        inside = data[step] if isinstance(data, Mapping) and step in data else None
        is_index = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if inside is not None or is_index or (isinstance(data, Mapping) and step in data):
            keys.append(str(step))
            data = data[step]
    if detail["type"] == "missing":
        keys.append(str(detail["loc"][-1]))
    return ".".join(keys) or "(file)"


def _problem(path: str, message: str, found: Any) -> Problem:
    """A :class:`Problem` from ``[key: ]found X; allowed: Y`` or from pydantic's own words."""
    head, allowed_mark, allowed = message.rpartition("; allowed: ")
    if not allowed_mark:
        if message == "Field required":
            return Problem(path, "nothing", "a value; this key is required")
        return Problem(path, repr(found), message.removeprefix("Input should be "))
    # What was found may itself hold these words, so the first place that can be right is.
    match = re.fullmatch(r"(?:(.*?): )??found (.*)", head, re.DOTALL)
    if match is None:
        return Problem(path, head, allowed)
    if match[1]:
        path = f"{path}.{match[1]}" if path != "(file)" else match[1]
    return Problem(path, match[2], allowed)
