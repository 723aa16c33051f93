"""A Ray cluster and an S3 server on this machine, for a laptop, the demo and the tests.

Nothing here imports Airflow or Ray: Ray's nodes run from their own environment, and this process only
starts them, asks them over HTTP and ends them. The verbs are in ``laptop``; the parts stand alone.
"""

from __future__ import annotations
