from __future__ import annotations

import socket

import pytest

from airflow_provider_raytenant.local import ports
from airflow_provider_raytenant.local.errors import NoFreePort


def test_ports_are_distinct_free_and_outside_the_range_of_ray_workers() -> None:
    found = [*ports.free_ports(30), *ports.free_ports(30), ports.free_port()]

    assert len(set(found)) == 61
    assert not [port for port in found if 10_002 <= port <= 19_999]
    for port in found:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    taken, free = ports.free_ports(2)
    monkeypatch.setattr(ports, "_given", set())
    monkeypatch.setattr(ports, "_candidates", lambda low, high: [taken, free])
    with socket.socket() as listener:
        listener.bind((address, taken))
        listener.listen()

        assert ports.free_port() == free
        with pytest.raises(NoFreePort, match="found no 1 free port"):
            ports.free_port()


def test_a_port_with_offset_leaves_both_free_for_its_owner() -> None:
    port = ports.free_port_with_offset(10_000)

    assert port >= 20_000
    assert port + 10_000 <= 32_767
    for each in (port, port + 10_000):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", each))


def test_worker_ranges_follow_each_other_and_do_not_run_out() -> None:
    ranges = [ports.free_worker_range(600) for _ in range(40)]

    assert ranges[0] != ranges[1]
    assert all(low >= 10_002 and high == low + 599 and high <= 19_999 for low, high in ranges)
