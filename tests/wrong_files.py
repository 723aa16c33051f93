"""What can be wrong in a tenant file: changes of the design's example, and the problem that each gives."""

from __future__ import annotations

from typing import Any

from airflow_provider_raytenant.domain.file_parts import NAME_ALLOWED
from airflow_provider_raytenant.domain.quantities import COUNT_ALLOWED, MEMORY_ALLOWED

TENANT_KEYS = (
    "cluster, storage, credentials, guarantee, weight, limit, large_from, backfill, "
    "tiny, nodes, runtime_env, rules"
)
SLOTS = "a whole number of slots, at least 0"
OWN_PREFIX = "a prefix of its own for each tenant"

WRONG: list[tuple[str, Any, str, str]] = [
    # path, value; found, allowed
    ("oops", 1, "an unknown key", "deployment, defaults, clusters, tenants"),
    ("defaults.oops", 1, "an unknown key", TENANT_KEYS),
    ("defaults.credentials.oops", 1, "an unknown key", "aws_conn_id, role_arn"),
    ("tenants.acme.nodes", {}, "{}", "label: {team: acme}, or resource: acme_node"),
    ("tenants.acme.nodes.labels", {"team": "acme"}, "an unknown key", "label, resource, autoscale"),
    ("tenants.acme.nodes.label.team", "!globex", "'!globex'", "a label's value, no condition: letters"),
    ("tenants.acme.nodes.resource", "GPU", "'GPU'", "the name of a custom resource"),
    ("clusters.shared.oops", 1, "an unknown key", "ray_conn_id, usable, reserve, autoscale, groups"),
    ("clusters.shared.reserve.cpu", 1, "an unknown key", "cpus, memory, gpus"),
    ("clusters.shared.autoscale.min", 1, "an unknown key", "max, largest_node"),
    ("clusters.shared.autoscale.max.x", 1, "an unknown key", "cpus, memory, gpus"),
    ("clusters.shared.groups.cpu.oops", 1, "an unknown key", "slot, labels"),
    ("clusters.shared.groups.cpu.slot.cpu", 1, "an unknown key", "cpus, memory, gpus"),
    ("tenants.acme.oops", 1, "an unknown key", TENANT_KEYS),
    ("tenants.acme.runtime_env.pips", [], "an unknown key", "conda, config, env_vars, "),
    # units and numbers
    ("clusters.shared.groups.cpu.slot.memory", "4Gib", "'4Gib'", MEMORY_ALLOWED),
    ("clusters.shared.reserve.memory", "32G", "'32G'", MEMORY_ALLOWED),
    ("clusters.shared.reserve.cpus", "8", "'8'", COUNT_ALLOWED),
    ("clusters.shared.reserve.cpus", 10**400, "1000", COUNT_ALLOWED),
    ("clusters.shared.groups.cpu.slot.cpus", 0, "0", "more than 0"),
    ("clusters.shared.groups.cpu.slot.memory", 0, "0", "more than 0"),
    ("clusters.shared.usable", "0%", "'0%'", "a share above 0 and up to 1"),
    ("clusters.shared.usable", 90, "90", "a share above 0 and up to 1"),
    ("tenants.acme.weight", 0, "0", "a number above 0 and below 1000000"),
    ("tenants.acme.weight", "2", "'2'", "a number above 0"),
    ("tenants.acme.weight", float("nan"), "nan", "a number above 0"),
    ("defaults.weight", -1, "-1", "a number above 0"),
    ("tenants.acme.guarantee", -1, "-1", f"{SLOTS}; or a valid dictionary"),
    ("tenants.acme.guarantee", 1.5, "1.5", SLOTS),
    ("tenants.acme.limit", True, "True", SLOTS),
    # names
    ("deployment", "Prod EU", "'Prod EU'", NAME_ALLOWED),
    ("deployment", None, "None", NAME_ALLOWED),
    ("tenants.Acme", {}, "'Acme'", NAME_ALLOWED),
    ("defaults.cluster", "A B", "'A B'", NAME_ALLOWED),
    # what is missing
    ("deployment", ..., "nothing", "a value; this key is required"),
    ("clusters", ..., "nothing", "a value; this key is required"),
    ("tenants", ..., "nothing", "a value; this key is required"),
    ("clusters.shared.ray_conn_id", ..., "nothing", "a value; this key is required"),
    ("clusters.shared.groups", ..., "nothing", "a value"),
    ("clusters.shared.groups.cpu.slot", ..., "nothing", "a value"),
    ("clusters.shared.groups.cpu.slot.cpus", ..., "nothing", "a value"),
    ("clusters.shared.groups.cpu.slot.memory", ..., "nothing", "a value"),
    ("clusters.shared.autoscale.max", ..., "nothing", "a value"),
    ("clusters.shared.autoscale.largest_node.memory", ..., "nothing", "a value"),
    # shapes
    ("tenants", [], "[]", "a valid dictionary"),
    ("tenants", {}, "{}", "Dictionary should have at least 1 item"),
    ("clusters.shared.groups", {}, "{}", "Dictionary should have at least 1 item"),
    ("clusters.shared.ray_conn_id", "", "''", "String should have at least 1 character"),
    ("tenants.globex", None, "None", f"a mapping with the keys {TENANT_KEYS}"),
    ("defaults", "x; allowed: found y", "'x; allowed: found y'", "a mapping with the keys"),
    ("tenants.acme.weight", "a: found b", "'a: found b'", "a number above 0"),
    # storage and credentials
    ("defaults.credentials", "nodes", "'nodes'", "'node'; or a mapping with the keys aws_conn_id, role_arn"),
    ("defaults.credentials.role_arn", "role/x", "'role/x'", "String should match pattern"),
    ("defaults.credentials.aws_conn_id", "", "''", "String should have at least 1 character"),
    ("defaults.credentials.aws_conn_id", ..., "nothing", "a value"),
    ("tenants.acme.storage", "s3://lake/../x", "'s3://lake/../x'", "s3://bucket/prefix"),
    ("tenants.acme.storage", "/mnt/{tenant}", "'/mnt/acme'", "s3://bucket/prefix"),
    ("tenants.acme.storage", 1, "1", "a valid string"),
    (
        "tenants.globex.storage",
        "s3://lake/tenants/acme",
        "s3://lake/tenants/acme, which overlaps s3://lake/tenants/acme of tenant acme",
        OWN_PREFIX,
    ),
    (
        "tenants.globex.storage",
        "s3://lake/tenants/acme/x/",
        "s3://lake/tenants/acme/x, which overlaps s3://lake/tenants/acme of tenant acme",
        OWN_PREFIX,
    ),
    (
        "tenants.globex.storage",
        "s3://lake",
        "s3://lake, which overlaps s3://lake/tenants/acme of tenant acme",
        OWN_PREFIX,
    ),
    # what has to agree
    ("tenants.acme.cluster", "other", "'other'", "shared"),
    ("tenants.acme.guarantee", 129, "129", "at most the limit of 128"),
    ("tenants.acme.guarantee", {"cpu": 129}, "129 slots of cpu", "at most the limit of 128"),
    ("tenants.acme.large_from", 1, "1", "a whole number of slots, at least 2"),
    ("tenants.acme.large_from", "8", "'8'", "a whole number of slots, at least 2"),
    ("tenants.acme.backfill", True, "True", "a mapping with the keys weight, limit"),
    ("tenants.acme.backfill.weight", 0, "0", "a number above 0"),
    ("tenants.acme.backfill.guarantee", 1, "an unknown key", "weight, limit"),
    ("defaults.tiny.below", {}, "nothing", "{cpus: 0.5, memory: 256MiB}, or one of the two"),
    ("defaults.tiny.below.cpus", 0, "0", "more than 0"),
    ("defaults.tiny.action", "refuse it", "'refuse it'", "'warn' or 'refuse'"),
    # runtime environments
    ("tenants.acme.runtime_env.uv", ["a"], "together with pip", "one of pip, uv, conda"),
    ("tenants.acme.runtime_env.env_vars.N", 1, "1", "text (quote it: '1')"),
    ("tenants.acme.runtime_env.env_vars.RAYTENANT_X", "1", "a reserved name", "names without RAYTENANT_"),
    # rules
    ("tenants.acme.rules.largest.cpu", 1, "an unknown key", "cpus, memory, gpus"),
    ("tenants.acme.rules.largest.memory", "9Gib", "'9Gib'", MEMORY_ALLOWED),
    ("tenants.acme.rules.image_uri", "some", "'some'", "a valid boolean"),
    ("tenants.acme.rules.bundles", "acme", "'acme'", "a valid list"),
    ("tenants.acme.rules.image_uri", 1, "1", "a valid boolean"),
    ("defaults.rules.label_selector.zone", "a", "'a'", "a valid list"),
    ("defaults.rules.env_vars", ["AWS_*"], "['AWS_*']", "a mapping with the keys deny, allow"),
]

WRONG_ELSEWHERE: list[tuple[str, Any, str, str, str]] = [
    # path, value; the problem's key path, found, allowed
    (
        "tenants.acme.rules.pip_index",
        ["https://u:p@h/simple"],
        "tenants.acme.rules.pip_index.0",
        "'https://u:p@h/simple'",
        "an address such as https://",
    ),
    (
        "tenants.acme.rules.runtime_env",
        ["image_uri"],
        "tenants.acme.rules.runtime_env.0",
        "'image_uri'",
        "'conda'",
    ),
    (
        "tenants.acme.rules.resources",
        [""],
        "tenants.acme.rules.resources.0",
        "''",
        "String should have at least",
    ),
    ("tenants.acme.rules", {"oops": 1}, "tenants.acme.rules.oops", "an unknown key", "pools"),
    ("tenants.acme.limit", {"cpu": "9"}, "tenants.acme.limit.cpu", "'9'", SLOTS),
    ("tenants", {"a.b": {}}, "tenants.a.b", "'a.b'", NAME_ALLOWED),
    (
        "clusters.shared.groups",
        {"G": {"slot": {"cpus": 1, "memory": 1}}},
        "clusters.shared.groups.G",
        "'G'",
        NAME_ALLOWED,
    ),
    (
        "clusters.shared.groups.large",
        {"slot": {"cpus": 1, "memory": 1}},
        "clusters.shared.groups",
        "'large'",
        "names other than large, backfill",
    ),
    (
        "defaults.cluster",
        ...,
        "tenants.acme.cluster",
        "nothing",
        "the name of a cluster, here or in defaults",
    ),
    (
        "defaults.credentials",
        ...,
        "tenants.acme.credentials",
        "nothing beside storage",
        "node, or {aws_conn_id, role_arn}",
    ),
    (
        "clusters.shared.groups.cpu.labels",
        {"a": 1},
        "clusters.shared.groups.cpu.labels.a",
        "1",
        "a valid string",
    ),
    (
        "defaults.storage",
        "s3://lake/all",
        "tenants.globex.storage",
        "s3://lake/all, which overlaps",
        OWN_PREFIX,
    ),
    (
        "tenants.acme.guarantee",
        {"tpu": 1},
        "tenants.acme.guarantee.tpu",
        "no such group",
        "the groups of cluster shared: cpu, gpu",
    ),
    (
        "tenants.acme.limit",
        {"tpu": 1},
        "tenants.acme.limit.tpu",
        "no such group",
        "the groups of cluster shared: cpu, gpu",
    ),
    (
        "tenants.acme.limit",
        {"cpu": 15},
        "tenants.acme.guarantee",
        "16 slots of cpu",
        "at most the limit of 15",
    ),
    (
        "tenants.acme.large_from",
        {"tpu": 2},
        "tenants.acme.large_from.tpu",
        "no such group",
        "the groups of cluster shared: cpu, gpu",
    ),
    ("defaults.tiny", {"action": "warn"}, "defaults.tiny.below", "nothing", "a value; this key is required"),
    (
        "tenants.acme.backfill.limit",
        {"tpu": 2},
        "tenants.acme.backfill.limit.tpu",
        "no such group",
        "the groups of cluster shared: cpu, gpu",
    ),
    ("defaults.limit", 7, "tenants.globex.guarantee", "8", "at most the limit of 7"),
    (
        "clusters.shared.autoscale.largest_node.cpus",
        257,
        "clusters.shared.autoscale.largest_node",
        "257 CPU + 64GiB",
        "at most autoscale.max: 256 CPU + 1TiB",
    ),
    (
        "clusters.shared.autoscale",
        {"max": {"cpus": 9}},
        "clusters.shared.autoscale.max",
        "9 CPU",
        "cpus and memory together, or neither",
    ),
    (
        "defaults.runtime_env",
        {"conda": "x"},
        "tenants.acme.runtime_env.conda",
        "together with pip",
        "one of pip, uv, conda",
    ),
]
