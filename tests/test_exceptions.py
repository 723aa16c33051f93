from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from airflow_provider_raytenant import exceptions
from airflow_provider_raytenant.exceptions import (
    Problem,
    RayTenantError,
    RetryableError,
    TenantFileError,
    TerminalError,
)

CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(exceptions, inspect.isclass)
    if issubclass(kind, RayTenantError)
}


def _made(kind: type[RayTenantError]) -> RayTenantError:
    if issubclass(kind, TenantFileError):
        return kind("/etc/raytenant.yaml", [Problem("a.b", "1", "2"), Problem("a.c", "3", "4")])
    return kind("it broke", status=503, nested={"a": [1]})


def _drawn_parents() -> dict[str, str]:
    """Parent by class, read from the tree in the module's docstring by its indentation."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (exceptions.__doc__ or "").splitlines():
        match = re.match(r"^[ │]*(?:[├└]── )?([A-Z]\w+Error)\b", line)
        if match:
            column = match.start(1)
            above = [(c, name) for c, name in above if c < column]
            parents[match[1]] = above[-1][1] if above else "Exception"
            above.append((column, match[1]))
    return parents


def test_the_tree_of_the_docstring_is_the_tree_of_the_classes() -> None:
    assert len(CLASSES) > 20
    assert _drawn_parents() == {
        name: kind.__base__.__name__ for name, kind in CLASSES.items() if kind.__base__
    }


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_an_error_says_in_its_class_whether_a_retry_may_help(kind: type[RayTenantError]) -> None:
    marks = [mark for mark in (TerminalError, RetryableError) if issubclass(kind, mark)]
    assert len(marks) == (0 if kind is RayTenantError else 1)


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_crosses_a_process_border_with_its_attributes(
    kind: type[RayTenantError], protocol: int
) -> None:
    error = _made(kind)
    for back in (pickle.loads(pickle.dumps(error, protocol)), copy.deepcopy(error)):
        assert type(back) is kind
        assert str(back) == str(error) != ""
        assert (back.message, back.details, back.args) == (error.message, error.details, error.args)
        assert vars(back) == vars(error)


def test_details_are_for_programs_and_the_message_for_people() -> None:
    error = RetryableError("it broke", status=503)
    assert (str(error), error.details) == ("it broke", {"status": 503})


def test_a_wrong_file_names_it_on_a_line_for_each_problem() -> None:
    error = TenantFileError("/a.yaml", [Problem("x.y", "'1'", "a number"), Problem("z", "nothing", "a name")])
    assert str(error) == (
        "/a.yaml: x.y: found '1'; allowed: a number\n/a.yaml: z: found nothing; allowed: a name"
    )
    assert (error.file, len(error.problems)) == ("/a.yaml", 2)
