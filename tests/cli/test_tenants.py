from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import airflow_provider_raytenant
from airflow_provider_raytenant.cli import tenants
from airflow_provider_raytenant.cli.output import one_clear_error, print_rows
from airflow_provider_raytenant.exceptions import RequestError
from tests.domain.helpers import DESIGN_EXAMPLE, changed, example_data

SHIPPED = Path(airflow_provider_raytenant.__file__).parent / "raytenant.schema.json"


@pytest.fixture
def example(tmp_path: Path) -> str:
    """The path of the design's example."""
    file = tmp_path / "raytenant.yaml"
    file.write_text(DESIGN_EXAMPLE)
    return str(file)


def _printed(capsys: pytest.CaptureFixture[str], command: Callable[[Any], None], **arguments: Any) -> str:
    command(Namespace(**arguments))
    out, err = capsys.readouterr()
    assert err == ""
    return out


def _refused(capsys: pytest.CaptureFixture[str], command: Callable[[Any], None], **arguments: Any) -> str:
    """What stands on standard error of a command that ends with exit code 1 and prints nothing."""
    with pytest.raises(SystemExit) as end:
        command(Namespace(**arguments))
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (1, "")
    assert "Traceback" not in err
    return err


def test_a_right_file_is_called_right_on_one_line(capsys: pytest.CaptureFixture[str], example: str) -> None:
    assert _printed(capsys, tenants.validate, file=example) == (
        f"{example} is right: deployment prod-eu, 2 tenants, 1 cluster.\n"
    )


def test_one_tenant_and_two_clusters_are_counted_as_such(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = changed("tenants.globex", ...)
    data["clusters"]["other"] = data["clusters"]["shared"]
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    assert _printed(capsys, tenants.validate, file=str(file)).endswith("prod-eu, 1 tenant, 2 clusters.\n")


@pytest.mark.parametrize("command", [tenants.validate, tenants.list_tenants])
def test_a_wrong_file_ends_with_every_problem_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: Callable[[Any], None]
) -> None:
    file = tmp_path / "a.yaml"
    data = changed("tenants.acme.weight", -1)
    data["clusters"]["shared"]["usable"] = "0%"
    file.write_text(yaml.safe_dump(data))
    assert _refused(capsys, command, file=str(file), output="json").splitlines() == [
        f"{file}: clusters.shared.usable: found '0%'; allowed: a share above 0 and up to 1: 90% or 0.9",
        f"{file}: tenants.acme.weight: found -1; allowed: a number above 0 and below 1000000",
    ]


def test_the_configured_file_is_read_where_none_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    monkeypatch.setenv("AIRFLOW__RAYTENANT__CONFIG_FILE", example)
    assert _printed(capsys, tenants.validate, file=None).startswith(f"{example} is right")


def test_without_a_configured_file_the_option_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__RAYTENANT__CONFIG_FILE", "")
    assert _refused(capsys, tenants.validate, file=None).startswith(
        "airflow.cfg: [raytenant] config_file: found nothing; allowed: the absolute path of the tenant file"
    )


ROWS = [
    ("acme", "shared/cpu", "2", 16, "16 CPU + 64GiB", 128, "128 CPU + 512GiB", "s3://lake/tenants/acme"),
    ("acme", "shared/gpu", "2", 0, "-", None, "all there is", "s3://lake/tenants/acme"),
    ("globex", "shared/cpu", "1", 8, "8 CPU + 32GiB", None, "all there is", "s3://lake/tenants/globex"),
    ("globex", "shared/gpu", "1", 0, "-", None, "all there is", "s3://lake/tenants/globex"),
]
COLUMNS = ("tenant", "group", "weight", "guarantee", "that is", "limit", "at most", "storage")


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_the_list_for_programs_has_a_row_for_each_tenant_and_group(
    capsys: pytest.CaptureFixture[str], example: str, output: str, read: Callable[[str], Any]
) -> None:
    printed = read(_printed(capsys, tenants.list_tenants, file=example, output=output))
    assert printed == [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_the_list_for_people_has_a_line_of_80_columns_for_each_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, example: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = _printed(capsys, tenants.list_tenants, file=example, output="table").splitlines()
    assert 70 < max(map(len, lines)) <= 80
    # All but the storage, for which there is no room.
    shown = [["-" if value is None else str(value) for value in row[:-1]] for row in ROWS]
    assert [re.split(" {2,}", line.strip()) for line in lines] == [list(COLUMNS[:-1]), *shown]


def test_a_long_name_folds_and_loses_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = "abcdefghij" * 5
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(changed("tenants", {name: {}})))
    lines = _printed(capsys, tenants.list_tenants, file=str(file), output="table").splitlines()
    assert max(map(len, lines)) <= 80
    # The first column, a row for each of the two groups.
    width = lines[0].index("group")
    assert "".join(line[:width].strip() for line in lines[1:]) == name * 2


def test_text_that_looks_like_markup_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"why": "[red]x[/red]", "n": None}], "table")
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["why", "n"],
        ["[red]x[/red]", "-"],
    ]


@pytest.mark.parametrize(("output", "printed"), [("table", ""), ("json", "[]\n"), ("yaml", "[]\n")])
def test_no_rows_are_an_empty_list(capsys: pytest.CaptureFixture[str], output: str, printed: str) -> None:
    print_rows([], output)
    assert capsys.readouterr().out == printed


def test_numbers_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"a": "x", "n": 1}, {"a": "y", "n": 100}], "table", numbers=("n",))
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == ["a    n", "x    1", "y  100"]


def test_only_our_own_errors_become_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(args: Namespace) -> None:
        raise args.error

    assert _refused(capsys, one_clear_error(fail), error=RequestError("cpus: found x")) == "cpus: found x\n"
    with pytest.raises(ZeroDivisionError):
        one_clear_error(fail)(Namespace(error=ZeroDivisionError()))


# -- the JSON schema -------------------------------------------------------------------------------


def test_the_shipped_schema_is_the_one_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    # When this fails: airflow raytenant tenants schema > airflow_provider_raytenant/raytenant.schema.json
    assert SHIPPED.read_text() == _printed(capsys, tenants.schema)
    assert json.loads(SHIPPED.read_text()) == tenants.file_schema()
    Draft202012Validator.check_schema(tenants.file_schema())


def _validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(SHIPPED.read_text()))


def test_the_designs_example_is_right_by_the_schema() -> None:
    assert list(_validator().iter_errors(example_data())) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("tenants.acme.limit", {"cpu": 128, "gpu": 2}),
        ("tenants.acme.limit", None),
        ("defaults.credentials", "node"),
        ("clusters.shared.groups.cpu.slot.memory", 4 * 1024**3),
        ("clusters.shared.usable", 0.9),
        ("defaults", ...),
    ],
)
def test_other_right_files_are_right_by_the_schema(path: str, value: Any) -> None:
    assert list(_validator().iter_errors(changed(path, value))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("deployment", ...),
        ("deployment", "Prod EU"),
        ("tenants", {}),
        ("tenants.Acme", {}),
        ("tenants.acme.oops", 1),
        ("tenants.acme.weight", 0),
        ("tenants.acme.guarantee", -1),
        ("tenants.acme.limit", {"C P U": 1}),
        ("tenants.acme.limit", 1.5),
        ("clusters.shared.oops", 1),
        ("clusters.shared.ray_conn_id", ...),
        ("clusters.shared.usable", 2),
        ("clusters.shared.usable", "90"),
        ("clusters.shared.groups", {}),
        ("clusters.shared.groups.cpu.slot.memory", "4Gib"),
        ("clusters.shared.groups.cpu.slot.memory", ...),
        ("clusters.shared.autoscale.largest_node.memory", ...),
        ("defaults.credentials", "nodes"),
        ("defaults.credentials.role_arn", "role/x"),
    ],
)
def test_wrong_files_are_wrong_by_the_schema(path: str, value: Any) -> None:
    errors = list(_validator().iter_errors(changed(path, value)))
    assert errors
    # ... at the place that was changed, or above it.
    assert all(path.startswith(".".join(map(str, error.absolute_path))) for error in errors)
