"""Hiding secret values in what a running Python process prints and logs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .masking import Mask


class MaskedStream:
    """A text stream whose writes pass through a mask; all else is the wrapped stream's own.

    Each write is masked by itself: a value that is printed in two writes shows, as does what is written to
    `buffer`, to the file descriptor, or by other programs.

    Pickled, it is no more than a name: the other process gets the stream that it has itself, and no secrets.
    """

    def __init__(self, name: str, stream: object, mask: Mask) -> None:
        """Name: `stdout` or `stderr`."""
        self.__dict__["masked_name"] = name
        self.__dict__["masked_stream"] = stream
        self.__dict__["mask"] = mask

    def write(self, text: str) -> int:
        """Write the text with values hidden. Returns its length as it was given, in characters."""
        stream = self.__dict__["masked_stream"]
        # Anything but a text is for the stream to refuse.
        stream.write(self.__dict__["mask"].mask_text(text) if isinstance(text, str) else text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return _stream_of_sys, (self.__dict__["masked_name"],)

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["masked_stream"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__["masked_stream"], name, value)


def mask_streams(mask: Mask) -> None:
    """Let `print`, `logging` and tracebacks of this process pass through the mask, from now on.

    Wraps `sys.stdout` and `sys.stderr`, and gives the wrapped streams to log handlers that were made before
    and write to one of them. May be called again: the streams then take the new mask.

    Meant for a `worker_process_setup_hook` of Ray (2.60): a worker sets its streams before it runs the hook,
    and prints through them what its log monitor needs to tell tasks apart.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, MaskedStream):
            stream.__dict__["mask"] = mask
        elif stream is not None:  # pythonw and some daemons have none
            masked = MaskedStream(name, stream, mask)
            setattr(sys, name, masked)
            _hand_to_handlers((stream, getattr(sys, f"__{name}__")), masked)


def _stream_of_sys(name: str) -> object:
    return getattr(sys, name)


def _hand_to_handlers(streams: tuple[object, ...], masked: MaskedStream) -> None:
    logging = sys.modules.get("logging")  # a process that has not loaded it has no handlers
    if logging is None:
        return
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = [handler for logger in loggers for handler in getattr(logger, "handlers", ())]
    for handler in handlers:
        # Handlers of another kind that have a `stream` need not have `setStream`.
        if isinstance(handler, logging.StreamHandler) and any(handler.stream is one for one in streams):
            handler.setStream(masked)
