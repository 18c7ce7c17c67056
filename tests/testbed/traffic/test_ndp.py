"""Messages over the purified transport on real hosts and switches."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.daemons.transport.packets import Ack, Data, encode
from weft.daemons.transport.endpoint import Parameters
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import netns
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import ndp
from weft.testbed.traffic.ndp import NdpMessage
from weft.topologies import build
from weft.topologies.core.address import dotted
from weft.topologies.core.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=50 * Mbps, queue_packets=250, trim_packets=8)
PARAMETERS = Parameters(rate_bps=50 * Mbps, timeout_ns=100_000_000)


class Handle:
    """As much of a network as is asked before anything is sent."""

    topology = build("star:n=3")


@pytest.mark.parametrize(
    "message",
    [
        NdpMessage(0, 1, 1, 5),
        NdpMessage(0, 3, 1, 5),
        NdpMessage(0, 0, 3, 5),
        NdpMessage(0, 0, 1, 0),
        NdpMessage(-1, 0, 1, 5),
    ],
)
def test_messages_that_cannot_be_are_refused(message: NdpMessage) -> None:
    with pytest.raises(ValueError, match="messages: NdpMessage"):
        ndp.check(Handle(), [message], PARAMETERS)  # type: ignore[arg-type]


def test_layers_are_first_octets() -> None:
    assert list(ndp.octets(1)) == [10]
    assert list(ndp.octets(3)) == [64, 65, 66]


@pytest.mark.kernel
def test_links_without_a_rate_cannot_pace(network: Callable[..., RunningNetwork]) -> None:
    with pytest.raises(ValueError, match="paces packets by the rate of links"):
        ndp.parameters_of(network("star:n=2", None))


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("mtu_bytes", "size_bytes", "frames"), [(1500, 40_000, 28), (8986, 120_000, 14)]
)
def test_incast_fills_the_link_and_loses_nothing(
    network: Callable[..., RunningNetwork], mtu_bytes: int, size_bytes: int, frames: int
) -> None:
    one = network("star:n=13", replace(LINK, mtu_bytes=mtu_bytes), "rps")
    parameters = ndp.parameters_of(one)
    assert (parameters.rate_bps, parameters.frame_bytes) == (50 * Mbps, mtu_bytes + 14)
    with PortCounterReader(one) as counters, DataPlane.open(one) as plane:
        before = counters.snapshot()
        found = ndp.run(
            one,
            [NdpMessage(0.0, src, 0, size_bytes) for src in range(1, 13)],
            parameters,
            deadline_s=10,
        )
        ports = counters.snapshot().since(before).ports.values()
        trimmed = sum(port.trimmed for port in plane.counters().values())
    assert found.undelivered == []
    assert {result.failed for result in found.results} == {None}
    assert (found.garbage, found.unknown, found.corrupt, found.unsent, found.unread) == (
        0,
        0,
        0,
        0,
        0,
    )
    assert (found.counters.duplicates, found.counters.strange, found.counters.refused) == (0, 0, 0)
    assert sum(port.queue_drops + port.header_drops + port.unexplained_drops for port in ports) == 0
    assert found.counters.headers >= trimmed > 12
    assert found.counters.data == 12 * frames
    # on a machine that stood still for a timeout, the rest holds nevertheless
    if not found.counters.timeouts:
        assert found.counters.retransmissions == found.counters.headers == trimmed


@pytest.mark.kernel
def test_lost_headers_are_asked_after(network: Callable[..., RunningNetwork]) -> None:
    one = network(
        "star:n=13",
        LinkSpec(rate_bps=50 * Mbps, queue_packets=250, trim_packets=8, header_packets=4),
        "rps",
    )
    with PortCounterReader(one) as counters:
        result = ndp.run(
            one,
            [NdpMessage(0.0, src, 0, 20_000) for src in range(1, 13)],
            ndp.parameters_of(one),
            deadline_s=10,
        )
        lost = sum(port.header_drops for port in counters.snapshot().ports.values())
    assert result.undelivered == []
    assert lost > 10
    # one question may find that several headers of its message were lost
    assert result.counters.timeouts > 10
    assert result.counters.data == 12 * 14


@pytest.mark.kernel
def test_a_host_that_cannot_be_reached_is_given_up_with_the_reason(
    network: Callable[..., RunningNetwork],
) -> None:
    one = network("star:n=3", LINK, "rps")
    one.fail("h0-r0", silent=True)
    parameters = Parameters(rate_bps=50 * Mbps, timeout_ns=10_000_000, attempts=3)
    result = ndp.run(
        one,
        [NdpMessage(0.0, 1, 0, 50_000), NdpMessage(0.0, 1, 2, 50_000)],
        parameters,
        deadline_s=10,
    )
    lost, arrived = result.results
    assert arrived.delivered_s is not None
    assert arrived.failed is None
    assert lost.delivered_s is None
    assert lost.failed is not None
    assert result.undelivered == [lost.failed]
    assert lost.failed.startswith("host 0 has not answered for")
    assert lost.failed.endswith("35 of 35 packets not acknowledged")


@pytest.mark.kernel
def test_garbage_and_messages_that_the_run_does_not_have_are_counted_and_left(
    network: Callable[..., RunningNetwork],
) -> None:
    one = network("star:n=3", LINK, "rps")
    with netns.inside(one.netns(2)):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stop = threading.Event()
    garbage = (b"", b"n", bytes(22), b"\x6e\x01" + bytes(60), encode(Ack(0, 0, 200, 0)))
    # flow 0 is another host's
    unknown = [encode(Data(flow, 0, 0, 8, 1450 << 24, 1450)) for flow in (0, 1, 1 << 31)]

    def send() -> None:
        while not stop.wait(0.001):
            for payload in (*garbage, *unknown):
                sender.sendto(payload, (dotted(one.topology.naming.address(0)), ndp.PORT))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        result = ndp.run(
            one, [NdpMessage(0.0, 1, 0, 100_000)], ndp.parameters_of(one), deadline_s=10
        )
    finally:
        stop.set()
        thread.join()
        sender.close()
    assert result.undelivered == []
    assert result.garbage >= 5
    assert result.unknown >= 3


@pytest.mark.kernel
def test_messages_move_between_fatpaths_layers(network: Callable[..., RunningNetwork]) -> None:
    """Four hosts of one router send to four of another, which one link joins; other layers have
    other paths.  Of 416 packets seven layers leave some 60 to that link, and retransmissions."""
    one = network("complete:n=6,p=4", LINK, "fatpaths:layers=7,rho=0.4,trigger=none")
    messages = [NdpMessage(0.0, host, 4 + host, 150_000) for host in range(4)]
    direct = one.ifindex(24, next(port for port, peer, *_ in one.topology.ports(24) if peer == 25))
    carried = {}
    for layers in (1, 7):
        with PortCounterReader(one) as counters:
            before = counters.snapshot()
            parameters = ndp.parameters_of(one, layers=layers)
            result = ndp.run(one, messages, parameters, deadline_s=10, first_flow=100 * layers)
            carried[layers] = counters.snapshot().since(before).ports[direct].sent_bytes
        assert result.undelivered == []
        assert result.counters.data == 4 * 104
    assert carried[1] > 4 * 150_000
    assert carried[7] < 0.75 * carried[1]


@pytest.mark.kernel
def test_the_loop_ends_at_its_deadline(network: Callable[..., RunningNetwork]) -> None:
    one = network("star:n=2", LINK, "rps")
    result = ndp.run(
        one,
        [NdpMessage(0.0, 1, 0, 50_000_000), NdpMessage(9.0, 0, 1, 1)],
        ndp.parameters_of(one),
        deadline_s=0.2,
    )
    assert result.undelivered == ["deadline reached", "deadline reached"]
    assert result.results[0].began_s is not None
    assert result.results[1].began_s is None
