"""The hostile job: tries everything, and hands back what came of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from attack_kit import cluster, storage


def main() -> None:
    rows = [attempt.row() for kind in (storage, cluster) for attempt in kind.attempts()]
    Path(os.environ["RAYTENANT_RESULT_PATH"]).write_text(json.dumps(rows))


main()
