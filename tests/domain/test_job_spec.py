from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_raytenant.domain.job_spec import (
    Placement,
    TryIdentity,
    checked_archive,
    checked_entrypoint,
    checked_metadata,
    job_env_vars,
    job_request,
    place,
    runner_entrypoint,
)
from airflow_provider_raytenant.domain.resources import Resources, Workers
from airflow_provider_raytenant.exceptions import PolicyError, RequestError
from airflow_provider_raytenant.runner import arguments
from tests.domain.helpers import GIB, make_cluster, make_tenant, seeded

CPU_SLOT = {"cpus": 1, "memory": "4GiB"}
GPU_SLOT = {"gpus": 1, "cpus": 8, "memory": "64GiB"}
IDENTITY = TryIdentity("prod", "acme", "etl", "manual__1", "load", -1, 2, "0197-uuid")


@pytest.mark.parametrize(
    ("driver", "workers", "pool", "slots"),
    [
        (Resources(1), None, "ray.acme", 1),
        (Resources(0.5), None, "ray.acme", 1),
        (Resources(1, 5 * GIB), None, "ray.acme", 2),
        (Resources(1), Workers(4, num_cpus=2, memory="4GiB"), "ray.acme", 9),
        (Resources(1), Workers(4, num_cpus=0.1, memory="8GiB"), "ray.acme", 8),
        (Resources(1, gpus=1), None, "ray.acme.gpu", 1),
        (Resources(1), Workers(2, num_gpus=1), "ray.acme.gpu", 2),
        (Resources(1), Workers(4, num_gpus=0.25), "ray.acme.gpu", 1),
        (Resources(9, gpus=0.5), None, "ray.acme.gpu", 2),
    ],
)
def test_a_job_queues_in_the_pool_of_its_group_with_the_slots_of_its_footprint(
    driver: Resources, workers: Workers | None, pool: str, slots: int
) -> None:
    placement = place(make_tenant(), make_cluster(), driver, workers)
    assert (placement.pool, placement.slots) == (pool, slots)
    assert placement.footprint == driver + (workers.total if workers else Resources())
    assert placement.worker == (workers.each if workers else None)


@pytest.mark.parametrize(
    ("selector", "gpus", "group"),
    [
        ({}, 0, "cpu"),
        ({"kind": "big"}, 0, "big"),
        ({"kind": "in(big,small)"}, 0, "big"),
        ({"kind": "a100"}, 1, "a100"),
        ({"kind": "a100"}, 0, "a100"),
        ({"kind": "unheard-of"}, 0, "cpu"),
        ({"kind": "unheard-of"}, 1, "gpu"),
        ({"zone": "1"}, 0, "big"),
        # A label that groups share must not hide the GPUs from the slots.
        ({"zone": "1"}, 1, "a100"),
        ({"kind": "big"}, 1, "gpu"),
    ],
)
def test_a_group_is_chosen_by_the_label_selector_and_by_gpus(
    selector: dict[str, str], gpus: int, group: str
) -> None:
    groups = {
        "cpu": {"slot": CPU_SLOT},
        "gpu": {"slot": GPU_SLOT},
        "big": {"slot": CPU_SLOT, "labels": {"kind": "big", "zone": "1"}},
        "a100": {"slot": GPU_SLOT, "labels": {"kind": "a100", "zone": "1"}},
    }
    placement = place(make_tenant(), make_cluster(groups=groups), Resources(1, gpus=gpus), None, selector)
    assert placement.group == group
    assert placement.pool == ("ray.acme" if group == "cpu" else f"ray.acme.{group}")


def test_a_driver_without_cpus_is_refused_with_the_reason() -> None:
    with pytest.raises(RequestError, match=r"num_cpus: found 0; allowed: more than 0 .*pins .* to the head"):
        place(make_tenant(), make_cluster(), Resources(0, GIB), Workers(4))


def test_gpus_where_no_group_has_any_are_refused_with_the_groups() -> None:
    groups = {"cpu": {"slot": CPU_SLOT}, "big": {"slot": CPU_SLOT, "labels": {"kind": "big"}}}
    with pytest.raises(RequestError, match=r"num_gpus: found 1\.5; allowed: 0, .*\(groups: cpu, big\)"):
        place(
            make_tenant(),
            make_cluster(groups=groups),
            Resources(1),
            Workers(3, num_gpus=0.5),
            {"kind": "big"},
        )


@pytest.mark.parametrize(
    ("limit", "driver", "slots", "most"),
    [
        (8, Resources(9), 9, 8),
        ({"cpu": 8, "gpu": 1}, Resources(1, 33 * GIB), 9, 8),
        ({"gpu": 1}, Resources(1, gpus=2), 2, 1),
        ({"gpu": 0}, Resources(1, gpus=1), 1, 0),
    ],
)
def test_a_footprint_above_the_limit_is_refused_with_the_numbers(
    limit: Any, driver: Resources, slots: int, most: int
) -> None:
    with pytest.raises(PolicyError) as error:
        place(make_tenant(limit=limit), make_cluster(), driver)
    assert error.value.details == {"rule": "limit", "slots": slots, "limit": most}
    for part in (
        "tenant acme",
        f"asks for {slots} slots of group ",
        str(driver),
        "a slot is",
        f"limit is {most}",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("limit", "driver"),
    [(8, Resources(8)), (8, Resources(1, gpus=99)), ({"gpu": 1}, Resources(99)), (None, Resources(999))],
)
def test_a_footprint_at_the_limit_or_in_a_group_without_one_is_placed(limit: Any, driver: Resources) -> None:
    assert place(make_tenant(limit=limit), make_cluster(), driver).slots >= 8


# -- the runner's command line -------------------------------------------------------------------

_awkward = st.text(
    st.sampled_from(list("a -'\"\\$`\n\t!*;|&<>(){}~#%=é")), min_size=1, max_size=12
)  # what shells trip over


@seeded
@given(_awkward, st.booleans(), st.none() | st.floats(0.1, 10**6))
def test_a_string_reaches_the_runner_as_it_was_written(text: str, cwd: bool, timeout: float | None) -> None:
    command = runner_entrypoint(text, private_cwd=cwd, job_timeout=timeout, result_max_bytes=65536)
    assert shlex.split(command)[:4] == ["exec", "python", "-m", "raytenant_runner"]
    options = arguments.parse(shlex.split(command)[4:])
    assert options.command == ["/bin/sh", "-c", "--", text]
    assert (options.private_cwd, options.result_max_bytes) == (cwd, 65536)
    assert options.job_timeout == (None if timeout is None else pytest.approx(timeout, rel=1e-5))


@seeded
@given(st.lists(_awkward | st.just(""), min_size=1, max_size=4))
def test_a_list_reaches_the_runner_item_by_item(items: list[str]) -> None:
    command = runner_entrypoint(items, private_cwd=False, result_max_bytes=10)
    assert shlex.split(command)[4:] == ["--result-max-bytes", "10", "--", *items]
    assert arguments.parse(shlex.split(command)[4:]).command == items


@pytest.mark.parametrize(
    ("entrypoint", "options", "end"),
    [
        ("echo $HOME", {}, "--shell 'echo $HOME'"),
        (["echo", "$HOME"], {}, "-- echo '$HOME'"),
        (["--shell"], {}, "-- --shell"),
        (
            "a",
            {"private_cwd": True, "job_timeout": 90},
            "--private-cwd --job-timeout 90 --result-max-bytes 7 --shell a",
        ),
    ],
)
def test_the_command_is_what_people_would_write(entrypoint: Any, options: dict[str, Any], end: str) -> None:
    made = runner_entrypoint(entrypoint, **{"private_cwd": False, "result_max_bytes": 7, **options})
    assert made.startswith("exec python -m raytenant_runner --")
    assert made.endswith(end)


# -- identity and request ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "older"),
    [
        ({"ti_id": "other", "try_number": 1}, True),
        ({"ti_id": "other", "try_number": 2}, True),
        ({"ti_id": "other", "tenant": "globex"}, True),
        ({}, False),
        ({"try_number": 1}, False),
        ({"ti_id": "other", "deployment": "test"}, False),
        ({"ti_id": "other", "dag_id": "elt"}, False),
        ({"ti_id": "other", "run_id": "manual__2"}, False),
        ({"ti_id": "other", "task_id": "store"}, False),
        ({"ti_id": "other", "map_index": 0}, False),
    ],
)
def test_an_older_try_is_another_try_of_the_same_task_of_the_same_run(
    other: dict[str, Any], older: bool
) -> None:
    assert IDENTITY.is_older_try(replace(IDENTITY, **other).metadata()) is older


@pytest.mark.parametrize("missing", ["deployment", "dag_id", "run_id", "task_id", "map_index"])
def test_a_job_whose_metadata_is_not_whole_is_nobodys_older_try(missing: str) -> None:
    metadata = replace(IDENTITY, ti_id="other").metadata()
    del metadata[f"raytenant.{missing}"]
    assert not IDENTITY.is_older_try(metadata)
    assert not IDENTITY.is_older_try({})


def _request(**values: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "identity": IDENTITY,
        "placement": Placement("ray.acme", 3, "cpu", Resources(1), Resources(2, GIB), Resources(1)),
        "entrypoint": "exec x",
        "runtime_env": {},
        "storage": None,
        "metadata": {},
    }
    return job_request(**{**arguments, **values})


def test_a_plain_request_has_only_the_fields_that_say_something() -> None:
    assert _request() == {
        "submission_id": IDENTITY.submission_id,
        "entrypoint": "exec x",
        "entrypoint_num_cpus": 1,
        "runtime_env": {"env_vars": job_env_vars(IDENTITY, None)},
        "metadata": {
            "raytenant.deployment": "prod",
            "raytenant.tenant": "acme",
            "raytenant.dag_id": "etl",
            "raytenant.run_id": "manual__1",
            "raytenant.task_id": "load",
            "raytenant.map_index": "-1",
            "raytenant.try_number": "2",
            "raytenant.ti_id": "0197-uuid",
            "raytenant.pool": "ray.acme",
            "raytenant.slots": "3",
            "raytenant.footprint": '{"cpus": 3, "memory": 1073741824}',
        },
    }


def test_a_full_request_has_every_field_and_can_be_sent_as_json() -> None:
    driver = Resources(0.5, 2 * GIB, 1, {"tpu": 2})
    request = _request(placement=Placement("p", 1, "gpu", driver, Resources(), None, {"zone": "a"}))
    assert json.loads(json.dumps(request)) == request
    assert {key: value for key, value in request.items() if key.startswith("entrypoint_")} == {
        "entrypoint_num_cpus": 0.5,
        "entrypoint_num_gpus": 1,
        "entrypoint_memory": 2 * GIB,
        "entrypoint_resources": {"tpu": 2},
        "entrypoint_label_selector": {"zone": "a"},
    }
    assert Resources.from_json(json.loads(request["metadata"]["raytenant.footprint"])) == driver


def test_our_environment_and_metadata_win_and_the_callers_stay_their_own() -> None:
    env = {"pip": ["a"], "env_vars": {"A": "1", "RAYTENANT_TENANT": "globex"}}
    metadata = {"team": "blue", "raytenant.tenant": "globex"}
    request = _request(runtime_env=env, metadata=metadata, storage="s3://lake/acme")
    assert request["runtime_env"] == {
        "pip": ["a"],
        "env_vars": {
            "A": "1",
            "RAYTENANT_TENANT": "acme",
            "RAYTENANT_DAG_ID": "etl",
            "RAYTENANT_RUN_ID": "manual__1",
            "RAYTENANT_TASK_ID": "load",
            "RAYTENANT_MAP_INDEX": "-1",
            "RAYTENANT_TRY_NUMBER": "2",
            "RAYTENANT_SUBMISSION_ID": request["submission_id"],
            "RAYTENANT_STORAGE": "s3://lake/acme",
        },
    }
    assert (request["metadata"]["team"], request["metadata"]["raytenant.tenant"]) == ("blue", "acme")
    assert env["env_vars"] == {"A": "1", "RAYTENANT_TENANT": "globex"}


# -- what a DAG author writes --------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [None, {}, {"team": "blue", "rayte": "x"}])
def test_metadata_of_texts_is_copied(metadata: dict[str, str] | None) -> None:
    checked = checked_metadata(metadata)
    assert checked == (metadata or {})
    assert checked is not metadata


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"n": 1}, "metadata['n']: found 1; allowed: text to text"),
        ({1: "n"}, "metadata[1]: found 'n'; allowed: text to text"),
        ({"n": None}, "metadata['n']: found None; allowed: text to text"),
        (
            {"raytenant.tenant": "x"},
            "metadata['raytenant.tenant']: found a reserved name; allowed: names without raytenant.",
        ),
        (["a"], "metadata: found ['a']; allowed: a dict of text to text"),
        ("", "metadata: found ''; allowed: a dict of text to text"),
    ],
)
def test_wrong_metadata_is_refused(metadata: Any, message: str) -> None:
    with pytest.raises(RequestError) as error:
        checked_metadata(metadata)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("python a.py", "python a.py"),
        (["python", ""], ["python", ""]),
        (("a", "b"), ["a", "b"]),
        (" a\nb ", " a\nb "),
    ],
)
def test_an_entrypoint_is_a_command_or_a_list_of_texts(written: Any, read: Any) -> None:
    assert checked_entrypoint(written) == read


@pytest.mark.parametrize(
    "written", ["", " \n", "a\0b", [], [""], ["a\0"], ["a", 1], [None], None, 1, {"a": "b"}, b"a", {"a"}]
)
def test_any_other_entrypoint_is_refused(written: Any) -> None:
    with pytest.raises(RequestError) as error:
        checked_entrypoint(written)
    assert str(error.value) == (
        f"entrypoint: found {written!r}; allowed: a shell command, or a list of texts to execute"
    )


ACME = make_tenant(storage="s3://lake/tenants/acme", credentials="node")


@pytest.mark.parametrize("end", [".zip", ".tar.gz", ".tgz", ".whl"])
def test_an_archive_below_the_tenants_own_prefix_is_let_through(end: str) -> None:
    url = f"s3://lake/tenants/acme/code/a{end}"
    assert checked_archive("working_dir", url, ACME) == url


@pytest.mark.parametrize(
    "url",
    ["s3://lake/tenants/globex/a.zip", "s3://lake/tenants/acme2/a.zip", "s3://lake/tenants/acm/a.zip",
     "s3://lake/tenants/a.zip", "s3://pond/tenants/acme/a.zip", "s3://lake/tenants/acme"],
)  # fmt: skip
def test_an_archive_elsewhere_is_forbidden(url: str) -> None:
    with pytest.raises(PolicyError) as error:
        checked_archive("working_dir", url, ACME)
    assert str(error.value) == (
        f"working_dir: found {url!r}; allowed for tenant acme: below s3://lake/tenants/acme"
    )
    assert error.value.details == {"rule": "storage"}


def test_a_tenant_without_storage_has_no_archives() -> None:
    with pytest.raises(PolicyError, match="allowed for tenant acme: none, since the tenant has no storage"):
        checked_archive("working_dir", "s3://lake/tenants/acme/a.zip", make_tenant())


@pytest.mark.parametrize(
    "url",
    ["s3://lake/tenants/acme/../globex/a.zip", "s3://lake/tenants/acme/%2e%2e/globex/a.zip",
     "s3://lake/tenants/acme//a.zip", "https://lake/tenants/acme/a.zip", "gs://lake/tenants/acme/a.zip", "",
     "s3://lake/tenants/acme/a.txt", "s3://lake/tenants/acme/a.zip/", "s3://lake/tenants/acme/a.zip?x"],
)  # fmt: skip
def test_what_is_no_plain_archive_address_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match=r"^py_modules: found .*; allowed: ") as error:
        checked_archive("py_modules", url, ACME)
    assert not isinstance(error.value, PolicyError)
