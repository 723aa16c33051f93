"""The job's result, which becomes the XCom of its Airflow task."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def hand_back(value: Any) -> None:
    """Writes `value` as JSON to the file in RAYTENANT_RESULT_PATH; prints it when the job is run by hand."""
    text = json.dumps(value, allow_nan=False)
    path = os.environ.get("RAYTENANT_RESULT_PATH")
    if path:
        Path(path).write_text(text, encoding="utf-8")
    else:
        print(text)
