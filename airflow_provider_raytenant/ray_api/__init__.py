"""The only place that speaks to Ray: its documented REST API, never ``import ray``."""
