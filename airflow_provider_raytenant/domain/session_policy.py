"""The session policy that narrows a role to one tenant's prefix.

A session has what its role and its policy both allow. So the role may reach all tenants, and each try still
reaches its own.
"""

from __future__ import annotations

import json
from typing import Final

from airflow_provider_raytenant.domain.storage_prefix import StoragePrefix

OBJECT_ACTIONS: Final = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)
LIST_ACTIONS: Final = ("s3:ListBucket", "s3:ListBucketMultipartUploads")


def session_policy(prefix: StoragePrefix, partition: str = "aws") -> str:
    """The policy as JSON: read, write and delete below the prefix, list below it, nothing else.

    A listing has to name the prefix with its slash: without it, it would show the names of siblings
    (``tenants/a`` begins ``tenants/ab/...`` too).

    :param partition: of the role's ARN: ``aws``, ``aws-cn``, ...
    """
    bucket = f"arn:{partition}:s3:::{prefix.bucket}"
    path = prefix.folder
    lists = {
        "Effect": "Allow",
        "Action": list(LIST_ACTIONS),
        "Resource": [bucket],
        **({"Condition": {"StringLike": {"s3:prefix": [f"{path}*"]}}} if path else {}),
    }
    objects = {"Effect": "Allow", "Action": list(OBJECT_ACTIONS), "Resource": [f"{bucket}/{path}*"]}
    # A role may be open to whoever asks for it: a session that assumed it anew would have the whole of it.
    again = {"Effect": "Deny", "Action": ["sts:*", "iam:*"], "Resource": ["*"]}
    return json.dumps({"Version": "2012-10-17", "Statement": [objects, lists, again]}, separators=(",", ":"))
