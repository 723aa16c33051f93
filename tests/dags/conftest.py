"""The jobs' folders on the path, as Ray puts them there: each `working_dir`, and the parent of `jobkit`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "dags" / "jobs"

for folder in (ROOT, JOBS, JOBS / "acme_delays", JOBS / "globex_model"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
