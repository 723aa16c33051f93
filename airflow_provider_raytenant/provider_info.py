"""What Airflow reads about this provider. It is imported by every ``airflow`` process: no other import."""

from __future__ import annotations

from typing import Any

_PACKAGE = "airflow_provider_raytenant"


def get_provider_info() -> dict[str, Any]:
    """Connection type, CLI, links, plugin and configuration of the provider."""
    return {
        "package-name": "airflow-provider-raytenant",
        "name": "Ray tenants",
        "description": "Each task as an isolated Ray Job of one tenant, queued by Airflow pools.",
        "integrations": [
            {"integration-name": "Ray", "external-doc-url": "https://docs.ray.io/", "tags": ["software"]}
        ],
        "operators": [{"integration-name": "Ray", "python-modules": [f"{_PACKAGE}.operators.job"]}],
        "hooks": [{"integration-name": "Ray", "python-modules": [f"{_PACKAGE}.hooks.ray"]}],
        "triggers": [{"integration-name": "Ray", "python-modules": [f"{_PACKAGE}.triggers.job"]}],
        "connection-types": [_connection_type()],
        "extra-links": [f"{_PACKAGE}.links.dashboard.RayJobLink"],
        "plugins": [{"name": "raytenant", "plugin-class": f"{_PACKAGE}.plugin.RayTenantPlugin"}],
        "cli": [f"{_PACKAGE}.cli.definition.get_raytenant_commands"],
        "config": {
            "raytenant": {"description": "Settings of the Ray tenants provider.", "options": _options()}
        },
    }


def _options() -> dict[str, Any]:
    return {
        "config_file": {
            "description": (
                "Absolute path of the tenant file, the same in scheduler, dag-processor, workers "
                "and wherever `airflow raytenant` runs. The triggerer does not need it."
            ),
            "version_added": "0.1.0",
            "type": "string",
            "example": "/opt/airflow/raytenant.yaml",
            "default": "",
        },
        "result_max_bytes": {
            "description": (
                "Largest JSON result in bytes that a job may hand back as its task's XCom. A larger one "
                "fails the task with an error that names both sizes."
            ),
            "version_added": "0.1.0",
            "type": "integer",
            "example": "262144",
            "default": "65536",
        },
        "log_max_bytes": {
            "description": (
                "Bytes of a job's output that are copied into its task's log. Of longer output the last "
                "lines follow at the job's end, with a link to all of it on Ray's dashboard. Read by "
                "triggerers, and by workers for tasks that do not defer."
            ),
            "version_added": "0.1.0",
            "type": "integer",
            "example": "104857600",
            "default": "20971520",
        },
        "live_logs": {
            "description": (
                "Jobs of one cluster whose output a triggerer copies while they run. The output of the "
                "others is copied when one of these has ended, or at their own end."
            ),
            "version_added": "0.1.0",
            "type": "integer",
            "example": "300",
            "default": "100",
        },
    }


def _connection_type() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    return {
        "connection-type": "ray",
        "hook-class-name": f"{_PACKAGE}.hooks.ray.RayHook",
        "hook-name": "Ray",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "login", "port", "extra"],
            "relabeling": {"host": "Dashboard address", "password": "Token"},
            "placeholders": {"host": "http://ray-head:8265", "password": "the token of RAY_AUTH_MODE=token"},
        },
        "conn-fields": {
            "public_address": {
                "label": "Address for browsers",
                "description": "The dashboard as people reach it, for links. Default: the address above.",
                "schema": text,
            },
            "headers": {
                "label": "Extra headers",
                "description": 'A JSON object, sent with every request: {"X-Proxy-Key": "..."}',
                "schema": {"type": ["string", "null"], "format": "password"},
            },
            "verify": {
                "label": "Verify the certificate",
                "description": "Switch off only for a test.",
                "schema": {"type": ["boolean", "null"], "default": True},
            },
            "ca_file": {
                "label": "CA file",
                "description": "Path of a PEM bundle to verify the dashboard's certificate with.",
                "schema": text,
            },
            "client_cert": {
                "label": "Client certificate",
                "description": "Path of a PEM certificate to show to the dashboard or its proxy.",
                "schema": text,
            },
            "client_key": {
                "label": "Client key",
                "description": "Path of the certificate's key, where it is not in the same file.",
                "schema": text,
            },
        },
    }
