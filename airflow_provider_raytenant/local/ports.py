"""Free TCP ports for services that must be told their port in advance.

The ports come from 20000 to 32767: above 10002-19999, which Ray's workers use, and below the range from
which Linux takes ports for outgoing connections, so that no connection made between the asking and the
service's start can take one away. Whether a port is free is asked from the kernel, by binding it.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from contextlib import ExitStack

from airflow_provider_raytenant.local.errors import NoFreePort

LOWEST, HIGHEST = 20_000, 32_767
RAY_WORKERS_LOWEST, RAY_WORKERS_HIGHEST = 10_002, 19_999
SEAWEED_GRPC_OFFSET = 10_000

# Processes that look for ports at the same time begin at different places.
_STRIDE = 64

_lock = threading.Lock()
_given: set[int] = set()
_turn = itertools.count(os.getpid())


def free_port() -> int:
    """Return one free port."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return ``count`` different free ports, none of which this process has given out before.

    Raises ``NoFreePort`` if there are not as many.
    """
    with _lock, ExitStack() as held:
        found: list[int] = []
        for port in _candidates(LOWEST, HIGHEST):
            if port not in _given and _hold(port, held):
                found.append(port)
                if len(found) == count:
                    _given.update(found)
                    return found
    raise NoFreePort(count, LOWEST, HIGHEST)


def free_port_with_offset(offset: int = SEAWEED_GRPC_OFFSET) -> int:
    """Return a port that is free together with ``port + offset``; neither is given out again.

    SeaweedFS opens its gRPC port at the HTTP port + 10000 where it cannot be told another one.
    """
    with _lock, ExitStack() as held:
        for port in _candidates(LOWEST, HIGHEST - offset):
            pair = {port, port + offset}
            if not pair & _given and all(_hold(each, held) for each in pair):
                _given.update(pair)
                return port
    raise NoFreePort(2, LOWEST, HIGHEST)


def free_worker_range(size: int = 600) -> tuple[int, int]:
    """Return the first and the last of ``size`` consecutive ports for the workers of one Ray node.

    The range lies inside the one that Ray itself uses by default. A node needs a port for each worker
    process, and so for each live job two at least: its supervisor and its driver. Ranges are not kept
    apart for ever, as there are few: a node looks whether a port is free before it gives it to a worker.
    """
    blocks = (RAY_WORKERS_HIGHEST - RAY_WORKERS_LOWEST + 1) // size
    for _ in range(blocks):
        low = RAY_WORKERS_LOWEST + next(_turn) % blocks * size
        with ExitStack() as held:
            if all(_hold(port, held, lingering=True) for port in range(low, low + size)):
                return low, low + size - 1
    raise NoFreePort(size, RAY_WORKERS_LOWEST, RAY_WORKERS_HIGHEST)


def _candidates(low: int, high: int) -> list[int]:
    """All ports from ``low`` to ``high``, beginning at a place that belongs to this process."""
    start = os.getpid() * _STRIDE % (high - low + 1)
    ports = list(range(low, high + 1))
    return ports[start:] + ports[:start]


def _hold(port: int, held: ExitStack, *, lingering: bool = False) -> bool:
    """Bind ``port`` on all addresses, since some services listen on all; False if it is taken.

    With ``lingering``, ports of connections that were closed a moment ago count as free.
    """
    probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    if lingering:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("", port))
    except OSError:
        return False
    return True
