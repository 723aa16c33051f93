"""``airflow raytenant tenants``: the tenant file, checked and shown."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_raytenant import tenant_file
from airflow_provider_raytenant.cli.output import console, one_clear_error, print_rows
from airflow_provider_raytenant.domain.tenants import FileShape, TenantFile
from airflow_provider_raytenant.domain.wording import count


def read(args: Any) -> tuple[str, TenantFile]:
    """The file that the arguments or the configuration name, and its content."""
    path = args.file or tenant_file.config_file()
    return path, tenant_file.load(path)


@one_clear_error
def validate(args: Any) -> None:
    """Check the whole file: exit code 0, or 1 with every problem."""
    path, file = read(args)
    tenants, clusters = count(len(file.tenants), "tenant"), count(len(file.clusters), "cluster")
    console().print(f"{path} is right: deployment {file.deployment}, {tenants}, {clusters}.", soft_wrap=True)


@one_clear_error
def list_tenants(args: Any) -> None:
    """A row for each tenant and group: guarantee and limit in slots, and what that is."""
    _, file = read(args)
    rows = []
    for tenant in file.tenants.values():
        cluster = file.clusters[tenant.cluster]
        for name, group in cluster.groups.items():
            guarantee = tenant.share("guarantee", name, cluster.default_group) or 0
            limit = tenant.share("limit", name, cluster.default_group)
            slot = group.slot.resources
            rows.append(
                {
                    "tenant": tenant.name,
                    "group": f"{tenant.cluster}/{name}",
                    "weight": f"{tenant.weight:g}",
                    "guarantee": guarantee,
                    "that is": str(slot.times(guarantee)) if guarantee else "-",
                    "limit": limit,
                    "at most": "all there is" if limit is None else str(slot.times(limit)),
                    "storage": tenant.storage,
                }
            )
    if args.output == "table":
        # A table of 80 columns has no room for it; `validate` has seen that it is right.
        rows = [{key: value for key, value in row.items() if key != "storage"} for row in rows]
    print_rows(rows, args.output, numbers=("weight", "guarantee", "limit"))


@one_clear_error
def schema(args: Any) -> None:
    """The JSON schema of the file."""
    print(json.dumps(file_schema(), indent=2))


def file_schema() -> dict[str, Any]:
    """The JSON schema of the tenant file, as it is shipped in ``raytenant.schema.json``."""
    described = FileShape.model_json_schema()
    _close_patterns(described)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described, "title": "raytenant.yaml"}


def _close_patterns(part: Any) -> None:
    """Keys that fit no pattern (a tenant's wrong name) are wrong; pydantic leaves them open."""
    if isinstance(part, dict) and "patternProperties" in part:
        part["additionalProperties"] = False
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _close_patterns(inner)
