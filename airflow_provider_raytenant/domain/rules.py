"""The rules of a tenant, held against what a task asks for.

What is known when a DAG is parsed (:func:`check_request`) is checked there, the rest once templates are
rendered and before anything is submitted. Every breach is a :class:`PolicyError` that names the rule, what
was found and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from airflow_provider_raytenant.domain import rule_defaults
from airflow_provider_raytenant.domain.package_sources import Source, refused, sources_of
from airflow_provider_raytenant.domain.quantities import format_count, format_memory
from airflow_provider_raytenant.domain.resources import Resources, Workers
from airflow_provider_raytenant.domain.secrets import Secret
from airflow_provider_raytenant.domain.tenants import RoleCredentials, Rules, Tenant
from airflow_provider_raytenant.exceptions import PolicyError

_USERINFO = re.compile(r"://[^/\s@]*@")
_LONGEST_SHOWN = 300


def check_request(
    tenant: Tenant,
    driver: Resources,
    workers: Workers | None = None,
    label_selector: Mapping[str, str] | None = None,
) -> None:
    """The rules ``resources``, ``largest`` and ``label_selector``: known when a DAG is parsed.

    :raises PolicyError: a breach.
    """
    for role, need in (("", driver), *([("workers ", workers.each)] if workers else [])):
        for name in need.custom:
            if not _resource_allowed(tenant.rules, name):
                _breach(tenant, "resources", f"{role}resources", name, _resources_allowed(tenant.rules))
        _check_largest(tenant, role, need)
    for label, condition in (label_selector or {}).items():
        if not _label_allowed(tenant.rules, label, condition):
            found = f"{label}: {condition}"
            _breach(tenant, "label_selector", "label_selector", found, _labels_allowed(tenant.rules))


def check_environment(tenant: Tenant, env: Mapping[str, Any]) -> None:
    """The rules ``runtime_env``, ``image_uri``, ``env_vars`` and ``pip_index`` for a task's environment.

    The tenant's own environment in the file is the platform's word and is held to none of them.

    :param env: the task's, with its templates rendered, as :func:`runtime_env.checked` leaves it.
    :raises PolicyError: a breach.
    """
    rules = tenant.rules
    keys = set(rules.runtime_env) | ({"image_uri"} if rules.image_uri else set())
    for key in env:
        if key not in keys:
            rule = "image_uri" if key == "image_uri" else "runtime_env"
            _breach(tenant, rule, "runtime_env", key, ", ".join(sorted(keys)) or "no key")
    if "log_files" in env.get("config", {}):
        # Ray's agent opens them for writing, wherever on the node they lie.
        _breach(
            tenant, "runtime_env", "runtime_env.config", "log_files", "setup_timeout_seconds, eager_install"
        )
    for name in env.get("env_vars", {}):
        _check_variable(tenant, "env_vars", name)
    sources = [*map(Source.parse, rules.pip_index), *sources_of(tenant.runtime_env)]
    for installer in ("pip", "uv"):
        for key, found in refused(installer, env[installer], sources) if installer in env else ():
            named = ", ".join(rules.pip_index) or "none beside the tenant's own"
            allowed = f"requirements such as pandas==2.2.3 and plain options; sources: {named}"
            _breach(tenant, "pip_index", key, found, allowed)


def check_secrets(tenant: Tenant, secrets: Mapping[str, Secret]) -> None:
    """The rule ``secrets``, and ``env_vars`` for the variables that they fill.

    :raises PolicyError: a breach, or the tenant has no way for a secret to travel.
    """
    for name, secret in secrets.items():
        key = f"secrets[{name!r}]"
        if not any(fnmatchcase(secret.name, pattern) for pattern in tenant.rules.secrets):
            allowed = ", ".join(tenant.rules.secrets) or "none"
            _breach(tenant, "secrets", key, str(secret), allowed)
        _check_variable(tenant, key, name)
    if secrets and not isinstance(tenant.credentials, RoleCredentials):
        raise PolicyError(
            f"secrets: found {', '.join(secrets)}; allowed for tenant {tenant.name}: none, since they travel "
            "through its storage, which needs credentials: {aws_conn_id, role_arn} in the tenant file",
            rule="credentials",
        )


def _check_variable(tenant: Tenant, key: str, name: str) -> None:
    rules = tenant.rules.env_vars
    if _like(name, rules.deny) and not _like(name, rules.allow):
        denied = f"names other than {', '.join(rules.deny)}"
        but = f", or {', '.join(rules.allow)}" if rules.allow else ""
        _breach(tenant, "env_vars", key, name, denied + but)


def check_origin(tenant: Tenant, bundle: str | None, team: str | None) -> None:
    """The rules ``bundles`` and ``teams``: whose DAGs may use the tenant.

    :param bundle: the name of the DAG's bundle; ``None`` where Airflow does not say it.
    :param team: the team of the DAG's run; ``None`` where ``[core] multi_team`` is off.
    :raises PolicyError: a breach; where a rule is set, what Airflow does not say is one.
    """
    rules = tenant.rules
    for rule, what, found, allowed in (
        ("bundles", "the DAG's bundle", bundle, rules.bundles),
        ("teams", "the DAG's team", team, rules.teams),
    ):
        if allowed is None:
            continue
        if found is None or not any(fnmatchcase(found, pattern) for pattern in allowed):
            _breach(tenant, rule, what, found or "none", ", ".join(allowed) or "none")


def _check_largest(tenant: Tenant, role: str, need: Resources) -> None:
    largest = tenant.rules.largest
    if largest is None:
        return
    for argument, asked, most, shown in (
        ("num_cpus", need.cpus, largest.cpus, format_count),
        ("memory", need.memory, largest.memory, format_memory),
        ("num_gpus", need.gpus, largest.gpus, format_count),
    ):
        if most is not None and asked > most:
            write: Any = shown
            _breach(tenant, "largest", role + argument, write(asked), f"at most {write(most)}")


def _resource_allowed(rules: Rules, name: str) -> bool:
    if rules.resources is None:
        return re.fullmatch(rule_defaults.DENIED_RESOURCES, name, re.DOTALL) is None
    return any(fnmatchcase(name, pattern) for pattern in rules.resources)


def _resources_allowed(rules: Rules) -> str:
    if rules.resources is None:
        return "custom resources other than Ray's own (node:..., ..._group_...)"
    return ", ".join(rules.resources) or "none"


def _label_allowed(rules: Rules, label: str, condition: str) -> bool:
    if rules.label_selector is None:
        return label.strip() not in rule_defaults.DENIED_LABELS
    values = [
        value
        for pattern, values in rules.label_selector.items()
        if fnmatchcase(label, pattern)
        for value in values
    ]
    return all(any(fnmatchcase(choice, value) for value in values) for choice in _choices(condition))


def _choices(condition: str) -> list[str]:
    """The values that a selector may be met by; what is negated may be met by any (``*``)."""
    text = condition.strip()
    if text.startswith("!"):
        return ["*"]
    if text.startswith("in(") and text.endswith(")"):
        return [choice.strip() for choice in text[3:-1].split(",")]
    return [text]


def _labels_allowed(rules: Rules) -> str:
    if rules.label_selector is None:
        return f"labels other than {', '.join(rule_defaults.DENIED_LABELS)}"
    parts = [f"{label}: {' or '.join(values) or 'none'}" for label, values in rules.label_selector.items()]
    return ", ".join(parts) or "none"


def _like(name: str, patterns: Iterable[str]) -> bool:
    """In any case: nodes under Windows make no difference, and a name is not worth a loophole."""
    return any(fnmatchcase(name.upper(), pattern.upper()) for pattern in patterns)


def _breach(tenant: Tenant, rule: str, key: str, found: str, allowed: str) -> NoReturn:
    shown = _USERINFO.sub("://***@", found)
    if len(shown) > _LONGEST_SHOWN:
        shown = shown[:_LONGEST_SHOWN] + "..."
    raise PolicyError(
        f"{key}: found {shown!r}; allowed for tenant {tenant.name}: {allowed} "
        f"(rule {rule} of the tenant file)",
        rule=rule,
        found=shown,
        allowed=allowed,
    )
