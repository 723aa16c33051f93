"""From a DAG author's arguments and the tenant file to the request that goes to Ray.

The first half (:func:`place`) is known when a DAG is parsed: footprint, group, slots and pool.
The second half (:func:`job_request`) is made when the task runs: identity, runtime environment,
wrapped entrypoint. Nothing here is secret and nothing here speaks to anyone.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from airflow_provider_raytenant.domain.access import CLAIM_VARIABLE
from airflow_provider_raytenant.domain.dedication import Sets, driver_selector, task_options, token
from airflow_provider_raytenant.domain.labels import matches
from airflow_provider_raytenant.domain.resources import Resources, Workers, slots_for
from airflow_provider_raytenant.domain.storage_prefix import StoragePrefix
from airflow_provider_raytenant.domain.submission_id import submission_id
from airflow_provider_raytenant.domain.tenants import Cluster, Tenant
from airflow_provider_raytenant.exceptions import PolicyError, RequestError

METADATA_PREFIX: Final = "raytenant."
ADOPTABLE_KEY: Final = METADATA_PREFIX + "adoptable"
"""In the metadata of a job that its task's next try may go on with."""

RUNNER_MODULE: Final = "raytenant_runner"
HOOK_KEY: Final = "worker_process_setup_hook"
WORKER_HOOK: Final = f"{RUNNER_MODULE}.worker.setup"
OWN_HOOK_VARIABLE: Final = "RAYTENANT_SETUP_HOOK"
ARCHIVES: Final = (".zip", ".tar.gz", ".tgz", ".whl")


@dataclass(frozen=True)
class Placement:
    """Where a job queues: its ``pool`` and how many ``slots`` of ``group`` its footprint takes."""

    pool: str
    slots: int
    group: str
    driver: Resources
    workers: Resources
    worker: Resources | None
    selector: Mapping[str, str] = field(default_factory=dict)
    """The driver's label selector: the task's own, and what dedicated nodes ask for."""
    task_options: Mapping[str, Any] = field(default_factory=dict)
    """What the job's own tasks and actors have to ask for, for dedicated nodes' sake."""

    @property
    def footprint(self) -> Resources:
        """All that the job will use: its driver and its workers."""
        return self.driver + self.workers


@dataclass(frozen=True)
class TryIdentity:
    """Which try of which task a job belongs to."""

    deployment: str
    tenant: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    ti_id: str

    @property
    def submission_id(self) -> str:
        """The id of this try's job."""
        return submission_id(
            deployment=self.deployment,
            tenant=self.tenant,
            dag_id=self.dag_id,
            task_id=self.task_id,
            try_number=self.try_number,
            ti_id=self.ti_id,
        )

    def metadata(self) -> dict[str, str]:
        """The same as metadata of a Ray job (text to text)."""
        return {METADATA_PREFIX + name: str(value) for name, value in asdict(self).items()}

    def is_older_try(self, metadata: Mapping[str, str]) -> bool:
        """Whether a job with this metadata belongs to another try of the same task of the same run."""
        own = self.metadata()
        same = ("deployment", "dag_id", "run_id", "task_id", "map_index")
        return all(metadata.get(METADATA_PREFIX + n) == own[METADATA_PREFIX + n] for n in same) and (
            metadata.get(METADATA_PREFIX + "ti_id") != self.ti_id
        )


def place(
    tenant: Tenant,
    cluster: Cluster,
    driver: Resources,
    workers: Workers | None = None,
    label_selector: Mapping[str, str] | None = None,
    dedicated: Sets = (),
    *,
    pool_slots: int | None = None,
) -> Placement:
    """Group, slots and pool of a job.

    :param dedicated: the nodes of the cluster that are dedicated to tenants, this one or others.
    :param pool_slots: slots that its task holds, where these are more than the footprint takes.
    :raises RequestError: the driver asks for no CPU (Ray would pin it to the head), or for GPUs that
        no group has.
    :raises PolicyError: the footprint is above the tenant's limit or, where these are refused, a tiny one, or
        the label selector asks for nodes that are not the tenant's.
    """
    if driver.cpus <= 0:
        raise RequestError(
            f"num_cpus: found {driver.cpus:g}; allowed: more than 0 "
            "(Ray pins a driver without CPUs to the head)"
        )
    total = workers.total if workers else Resources()
    footprint = driver + total
    selector = driver_selector(tenant.name, tenant.nodes, dedicated, label_selector)
    own_label = (tenant.nodes.label if tenant.nodes else None) or {}
    group = _group_of_request(cluster, footprint, {**(label_selector or {}), **own_label})
    slots = slots_for(footprint, cluster.groups[group].slot.resources)
    limit = tenant.share("limit", group, cluster.default_group)
    if limit is not None and slots > limit:
        raise PolicyError(
            f"tenant {tenant.name}: asks for {slots} slots of group {group} "
            f"({footprint}; a slot is {cluster.groups[group].slot.resources}); its limit is {limit}",
            rule="limit",
            slots=slots,
            limit=limit,
        )
    _refuse_tiny(tenant, footprint)
    kind = tenant.kind_for(max(slots, pool_slots or 0), group, cluster.default_group)
    pool = tenant.pool(group, cluster.default_group, kind)
    driver += Resources(custom=_missing(token(tenant.nodes), driver))
    options = task_options(tenant.name, tenant.nodes, dedicated)
    return Placement(pool, slots, group, driver, total, workers.each if workers else None, selector, options)


def tiny_words(tenant: Tenant, footprint: Resources) -> str | None:
    """What to say of a footprint that is better run without a cluster; ``None`` where it is not."""
    if tenant.tiny is None or not tenant.tiny.below.holds(footprint):
        return None
    return (
        f"tenant {tenant.name}: a footprint of {footprint} is below its tiny size of {tenant.tiny.below}: "
        "starting a job costs more than that; run it as a plain Airflow task"
    )


def _refuse_tiny(tenant: Tenant, footprint: Resources) -> None:
    words = tiny_words(tenant, footprint)
    if words is not None and tenant.tiny is not None and tenant.tiny.action == "refuse":
        raise PolicyError(f"{words}, or declare what it really uses", rule="tiny")


def _missing(custom: Mapping[str, float], driver: Resources) -> dict[str, float]:
    """What of these custom resources the driver does not ask for by itself."""
    return {name: amount for name, amount in custom.items() if not driver.custom.get(name)}


def _group_of_request(cluster: Cluster, footprint: Resources, selector: Mapping[str, str]) -> str:
    for name, group in cluster.groups.items():
        # Labels that groups share (a zone) must not put a GPU job where no slot counts its GPUs.
        fits = group.slot.gpus or not footprint.gpus
        # What the selector asks for beyond the group's own labels is not the group's business.
        pinned = {key: selector[key] for key in group.labels if key in selector}
        if fits and pinned and matches(pinned, group.labels):
            return name
    if not footprint.gpus:
        return cluster.default_group
    for name, group in cluster.groups.items():
        if group.slot.gpus:
            return name
    raise RequestError(
        f"num_gpus: found {footprint.gpus:g}; allowed: 0, since no group of the cluster has GPUs in its slot "
        f"(groups: {', '.join(cluster.groups)})"
    )


def runner_entrypoint(
    entrypoint: str | Sequence[str],
    *,
    ticket: str | None = None,
    private_cwd: bool,
    copy_cwd: bool = False,
    job_timeout: float | None = None,
    result_max_bytes: int,
) -> str:
    """The shell command that Ray gets: the runner around the entrypoint.

    A string goes verbatim to ``sh -c``, a list is executed as it is. ``ticket`` is the submission id without
    whose ticket nothing starts. Ray runs the command through a
    shell; ``exec`` keeps that shell from standing between Ray's signals and the runner.

    >>> runner_entrypoint(["python", "a b.py"], private_cwd=False, result_max_bytes=65536)
    "exec python -m raytenant_runner --result-max-bytes 65536 -- python 'a b.py'"
    """
    command = ["python", "-m", RUNNER_MODULE]
    if ticket is not None:
        command += ["--ticket", ticket]
    if private_cwd:
        command.append("--private-cwd")
    if copy_cwd:
        command.append("--copy-cwd")
    if job_timeout is not None:
        command += ["--job-timeout", f"{job_timeout:g}"]
    command += ["--result-max-bytes", str(result_max_bytes)]
    command += ["--shell", entrypoint] if isinstance(entrypoint, str) else ["--", *entrypoint]
    return "exec " + shlex.join(command)


def job_env_vars(identity: TryIdentity, storage: str | None) -> dict[str, str]:
    """What every process of the job finds in its environment, in driver and workers alike."""
    names = {
        "RAYTENANT_TENANT": identity.tenant,
        "RAYTENANT_DAG_ID": identity.dag_id,
        "RAYTENANT_RUN_ID": identity.run_id,
        "RAYTENANT_TASK_ID": identity.task_id,
        "RAYTENANT_MAP_INDEX": str(identity.map_index),
        "RAYTENANT_TRY_NUMBER": str(identity.try_number),
        "RAYTENANT_SUBMISSION_ID": identity.submission_id,
    }
    return names if storage is None else {**names, "RAYTENANT_STORAGE": storage}


def job_request(
    *,
    identity: TryIdentity,
    placement: Placement,
    entrypoint: str,
    runtime_env: Mapping[str, Any],
    storage: str | None,
    metadata: Mapping[str, str],
    adoptable: bool = False,
) -> dict[str, Any]:
    """The body of ``POST /api/jobs/``, with only the fields that say something.

    The footprint goes into the metadata, since Ray gives entrypoint resources back to nobody.
    ``adoptable``: the worker waits for the job, and should it die, the next try may go on with the job.
    """
    own = {
        **identity.metadata(),
        METADATA_PREFIX + "pool": placement.pool,
        METADATA_PREFIX + "slots": str(placement.slots),
        METADATA_PREFIX + "footprint": json.dumps(placement.footprint.to_json(), sort_keys=True),
    }
    if adoptable:
        own[ADOPTABLE_KEY] = "true"
    env_vars = {**runtime_env.get("env_vars", {}), **job_env_vars(identity, storage)}
    if placement.task_options:
        env_vars["RAYTENANT_TASK_OPTIONS"] = json.dumps(placement.task_options, sort_keys=True)
    request: dict[str, Any] = {
        "submission_id": identity.submission_id,
        "entrypoint": entrypoint,
        "runtime_env": {**runtime_env, "env_vars": env_vars},
        "metadata": {**metadata, **own},
        "entrypoint_num_cpus": placement.driver.cpus,
    }
    if placement.driver.gpus:
        request["entrypoint_num_gpus"] = placement.driver.gpus
    if placement.driver.memory:
        request["entrypoint_memory"] = placement.driver.memory
    if placement.driver.custom:
        request["entrypoint_resources"] = dict(placement.driver.custom)
    if placement.selector:
        request["entrypoint_label_selector"] = dict(placement.selector)
    return request


def with_claim(request: Mapping[str, Any], address: str) -> dict[str, Any]:
    """The request as it is submitted for a job that was granted something.

    The address is added no sooner: Airflow keeps what a trigger has in its arguments.
    """
    env = request["runtime_env"]
    env_vars = {**env.get("env_vars", {}), CLAIM_VARIABLE: address}
    return {**request, "runtime_env": {**env, "env_vars": env_vars}}


def with_worker_hook(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """The environment of a job whose Ray workers, too, are to have what it was granted.

    Ray takes one hook only, so the runner's calls the job's own.
    """
    env = {**runtime_env, HOOK_KEY: WORKER_HOOK}
    if HOOK_KEY in runtime_env:
        env["env_vars"] = {**runtime_env.get("env_vars", {}), OWN_HOOK_VARIABLE: runtime_env[HOOK_KEY]}
    return env


def checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """The DAG author's metadata: text to text, and none of our own names.

    :raises RequestError: saying which key, what was found and what is allowed.
    """
    if metadata is not None and not isinstance(metadata, Mapping):
        raise RequestError(f"metadata: found {metadata!r}; allowed: a dict of text to text")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise RequestError(f"metadata[{key!r}]: found {value!r}; allowed: text to text")
        if key.startswith(METADATA_PREFIX):
            raise RequestError(
                f"metadata[{key!r}]: found a reserved name; allowed: names without {METADATA_PREFIX}"
            )
    return dict(metadata or {})


def checked_entrypoint(entrypoint: Any) -> str | list[str]:
    """The entrypoint: a non-empty string for the shell, or a list of texts to execute.

    :raises RequestError: saying what was found and what is allowed.
    """
    if isinstance(entrypoint, str) and entrypoint.strip() and "\0" not in entrypoint:
        return entrypoint
    texts = isinstance(entrypoint, (list, tuple)) and all(
        isinstance(part, str) and "\0" not in part for part in entrypoint
    )
    if texts and entrypoint and entrypoint[0]:
        return list(entrypoint)
    raise RequestError(
        f"entrypoint: found {entrypoint!r}; allowed: a shell command, or a list of texts to execute"
    )


def checked_archive(argument: str, url: str, tenant: Tenant) -> str:
    """An archive that Ray may fetch for this tenant: one below the tenant's own prefix.

    Ray fetches it with the node's credentials, which reach every prefix; so this check is the wall.

    :raises PolicyError: it lies elsewhere.
    :raises RequestError: it is no archive address.
    """
    try:
        archive = StoragePrefix.parse(url)
    except ValueError as error:
        raise RequestError(f"{argument}: {error}") from None
    if tenant.prefix is None or not tenant.prefix.contains(archive) or archive == tenant.prefix:
        own = f"below {tenant.prefix}" if tenant.prefix else "none, since the tenant has no storage"
        raise PolicyError(
            f"{argument}: found {url!r}; allowed for tenant {tenant.name}: {own}", rule="storage"
        )
    if not url.endswith(ARCHIVES):
        raise RequestError(f"{argument}: found {url!r}; allowed: an archive: {', '.join(ARCHIVES)}")
    return str(archive)
