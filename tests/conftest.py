"""A home for Airflow, before anything imports it, that is not the user's own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest

if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="raytenant-tests-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The end-to-end tests come last: their stack lives to the end, and would slow everything after them."""
    items.sort(key=lambda item: "tests/e2e/" in item.nodeid)
