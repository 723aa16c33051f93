from __future__ import annotations

from pathlib import Path

import pytest

from tests.local.local_helpers import REPOSITORY


@pytest.fixture(scope="session")
def ray_binary() -> Path:
    """The cluster's own small environment where there is one, else whatever ``ray`` is installed."""
    from airflow_provider_raytenant.local.ray_cluster import find_ray

    own = REPOSITORY / ".venv-cluster" / "bin" / "ray"
    return own if own.is_file() else find_ray()
