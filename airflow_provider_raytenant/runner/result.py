"""The result: what a successful entrypoint left at `$RAYTENANT_RESULT_PATH`."""

from __future__ import annotations

import os
import stat

from .strict_json import StrictJSONError, loads

RESULT_PATH_VARIABLE = "RAYTENANT_RESULT_PATH"


class ResultRefused(Exception):
    """There is a file, but no result that can be handed back.

    kind: `too_large`, `not_json`, `not_finite` or `unreadable`.
    details: numbers and places the message names, e.g. `{"bytes": 70000, "max_bytes": 65536}`.
    """

    def __init__(self, kind: str, message: str, **details: object) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details

    def record(self) -> dict[str, object]:
        """The value of `result_error` in the end record: kind, message and the details."""
        return {"kind": self.kind, "message": str(self), **self.details}


def read_result(path: str, max_bytes: int) -> dict[str, object]:
    """Read the result file, strictly (see `strict_json`).

    Returns `{"result": value}`, or an empty dict when there is no file: a result may itself be null.

    Raises ResultRefused.
    """
    try:
        # Without O_NONBLOCK a named pipe in the file's place would hold the job for ever.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if os.path.islink(path):
            raise ResultRefused("unreadable", "the result is a link to a file that does not exist") from None
        return {}
    except OSError as error:
        raise ResultRefused("unreadable", f"the result cannot be read: {error.strerror}") from None
    try:
        data = _read(file, max_bytes)
    except OSError as error:
        raise ResultRefused("unreadable", f"the result cannot be read: {error.strerror}") from None
    finally:
        os.close(file)
    if not data:
        raise ResultRefused("not_json", "the result file is empty, not JSON", line=1, column=1)
    try:
        return {"result": loads(data)}
    except StrictJSONError as error:
        raise ResultRefused(error.kind, f"the result is refused: {error}", **error.details) from None


def _read(file: int, max_bytes: int) -> bytes:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "something else"
        raise ResultRefused("unreadable", f"the result must be a regular file; {what} is in its place")
    size = status.st_size
    data = bytearray()
    # A process left behind may still append to it: never read more than one byte too many.
    while size <= max_bytes and (part := os.read(file, max_bytes + 1 - len(data))):
        data += part
        size = max(size, len(data))
    if size > max_bytes:
        raise ResultRefused(
            "too_large",
            f"the result is {size} bytes, more than the {max_bytes} allowed",
            bytes=size,
            max_bytes=max_bytes,
        )
    return bytes(data)
