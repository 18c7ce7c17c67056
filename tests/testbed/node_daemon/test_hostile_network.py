"""A hostile process at the end of a link cannot harm daemons on the real kernel."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from unittest import mock

import pytest

from tests.fuzz.hostile_messages import Campaign, network_for, schemes
from weft.daemons.core import wire
from weft.testbed.linux import clock, fib, netns, tc_filters
from weft.testbed.linux.clock import wait_until
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control, daemon_files, sealed_channel
from weft.testbed.node_daemon.sealed_channel import (
    AHEAD_NS,
    FORGED,
    FUTURE,
    REPLAYED,
    Sealed,
    SequenceRow,
    row_words,
)
from weft.testbed.node_daemon.sockets import FRAME_BYTES, ROUTINE, URGENT
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel
SPEC = "dcell:n=3,k=1"
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
DEAD_HELLOS = 50
PATIENT = f"dr:hello_ms=20,dead={DEAD_HELLOS}"  # a stall of the machine for less costs no neighbour
ETH_P_IP, HEADERS_BYTES = 0x0800, 28
PORT_UNREACHABLE = (3, 3)
HOSTILE_PACKETS, MOST_GROWTH_BYTES = 20_000, 10_000_000


@pytest.fixture
def routed_net(network: Callable[..., RunningNetwork]) -> RunningNetwork:
    return network(SPEC, LINK, PATIENT)


def losses(network: RunningNetwork) -> int:
    return sum(row.losses for row in network.rows().values())


def node_status(network: RunningNetwork, node: str) -> dict[str, object]:
    return control.status(network.run.directory, node)


@contextmanager
def stranger_socket(
    network: RunningNetwork, node: int, port: int, kind: int = socket.SOCK_DGRAM, protocol: int = 0
) -> Iterator[socket.socket]:
    """A socket of no daemon that sends by a node's port, as a neighbour does."""
    with netns.inside(network.netns(node)), socket.socket(socket.AF_INET, kind, protocol) as sender:
        sender.setsockopt(
            socket.SOL_SOCKET, socket.SO_BINDTODEVICE, network.plan.ends[node][port].dev.encode()
        )
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
        yield sender


def overheard(network: RunningNetwork, node: int, port: int) -> bytes:
    """A routine message that comes in at a node's port."""
    with (
        netns.inside(network.netns(node)),
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP)) as listener,
    ):
        listener.bind((network.plan.ends[node][port].dev, ETH_P_IP))
        listener.settimeout(5.0)
        while True:
            packet, (_, _, kind, *_) = listener.recvfrom(FRAME_BYTES)
            if kind != socket.PACKET_OUTGOING and packet[16:20] == socket.inet_aton(ROUTINE[0]):
                return packet[HEADERS_BYTES:]


def pace(seconds: float, per_s: int) -> Iterator[None]:
    """So many times a second, for so long."""
    began_s = clock.monotonic()
    for number in range(int(seconds * per_s)):
        clock.sleep(max(0.0, began_s + number / per_s - clock.monotonic()))
        yield


def wait_for_hellos(network: RunningNetwork, count: int = DEAD_HELLOS + 10) -> None:
    """Return when every daemon has ticked that often: dead neighbours have been noticed."""
    before = {node: row.ticks for node, row in network.rows().items()}
    wait_until(
        "hellos",
        lambda: all(row.ticks >= before[node] + count for node, row in network.rows().items()),
        every_s=0.01,
    )


def test_forged_and_repeated_messages_change_nothing_and_floods_pass(
    routed_net: RunningNetwork,
) -> None:
    incarnation = 2**62
    hello = wire.hello_body(0, incarnation, 30, 0, ((3, 1),)) + wire.SEQUENCE.pack(2**32 - 1)
    heard = int(str(node_status(routed_net, "h3")["received"]))
    with stranger_socket(routed_net, 0, 1) as sender:
        for _ in pace(0.4, 2500):
            sender.sendto(hello, URGENT)
            sender.sendto(b"\x77\x01\x01\x00", ROUTINE)
    wait_for_hellos(routed_net)
    assert losses(routed_net) == 0
    # its filter lets none of them to the daemon
    assert int(str(node_status(routed_net, "h3")["received"])) < heard + 1000


def test_what_a_neighbour_said_is_believed_once(routed_net: RunningNetwork) -> None:
    frame = overheard(routed_net, 3, 1)
    with stranger_socket(routed_net, 0, 1) as sender:
        for _ in range(20):
            sender.sendto(frame, ROUTINE)
        changed = bytes([*frame[:-1], frame[-1] ^ 1])
        sender.sendto(changed, ROUTINE)
    wait_until("they were refused", lambda: routed_net.rows()[3].refused >= 21)
    assert node_status(routed_net, "h3")["refused"] == {"replayed": 20, "forged": 1}
    assert losses(routed_net) == 0


def forge(network: RunningNetwork, node: int, port: int, number: int) -> bytes:
    """Return a message in the name of `node` that carries `number`, of a process that has the run's
    key."""
    interface = daemon_files.read_daemons(network.run.directory).interfaces[node].ports[port]
    own = SequenceRow(memoryview(bytearray(8 * row_words([1]))).cast("Q"), {port: [node]})
    memory, sent, _ = own.at(port)
    memory[sent] = number - 1
    with mock.patch.object(clock, "monotonic_ns", return_value=0):
        return Sealed(
            node, port, interface.link, sealed_channel.read_keys(network.run.directory), own
        ).seal(bytes(4))


def test_one_message_of_a_process_that_has_the_key_ends_no_adjacency(
    routed_net: RunningNetwork,
) -> None:
    """Neither at once, nor after a new key, nor after both daemons were started again; and replays
    are refused."""
    recorded = overheard(routed_net, 3, 1)
    with stranger_socket(routed_net, 0, 1) as sender:
        for _ in range(3):
            sender.sendto(forge(routed_net, 0, 1, 2**64 - 1), ROUTINE)
            sender.sendto(forge(routed_net, 0, 1, clock.monotonic_ns() + AHEAD_NS // 2), ROUTINE)
        wait_until(
            "three were refused", lambda: node_status(routed_net, "h3")["refused"] == {FUTURE: 3}
        )
        wait_for_hellos(routed_net)
        assert losses(routed_net) == 0

        for name in ("h0", "h3"):
            control.restart(routed_net.run.directory, name)
            routed_net.wait_until_converged()
        sender.sendto(recorded, ROUTINE)
        wait_until(
            "a replay was refused", lambda: REPLAYED in node_status(routed_net, "h3")["refused"]
        )  # type: ignore[operator]

        routed_net.rekey()
        before = losses(routed_net)
        for frame in (recorded, forge(routed_net, 0, 1, 2**64 - 1)):
            sender.sendto(frame, ROUTINE)
        wait_until("one was refused", lambda: FUTURE in node_status(routed_net, "h3")["refused"])  # type: ignore[operator]
        wait_for_hellos(routed_net)
        routed_net.wait_until_converged()
        assert losses(routed_net) == before
        assert FORGED not in node_status(routed_net, "h3")["refused"], (
            "the filter drops what the old key sealed"
        )  # type: ignore[operator]


def test_errors_that_anybody_may_send_about_its_hellos_cost_a_daemon_none(
    routed_net: RunningNetwork,
) -> None:
    source, dev = routed_net.plan.address(3).to_bytes(4, "big"), routed_net.plan.ends[3][1].dev
    with netns.inside(routed_net.netns(3)), open("/proc/thread-self/net/udp") as file:
        ends = [line.split()[1:3] for line in file.readlines()[1:]]
    groups = [
        (socket.inet_aton(group)[::-1].hex().upper(), group) for group, _ in (ROUTINE, URGENT)
    ]
    connected = [
        (int(local.split(":")[1], 16), group)
        for local, far in ends
        for address, group in groups
        if far == f"{address}:{tc_filters.CONTROL_PORT:04X}"
    ]
    assert connected, (dev, ends)
    with stranger_socket(routed_net, 0, 1, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sender:
        for _ in pace(0.5, 1000):
            for port, group in connected:
                inner = struct.pack(
                    ">BBHHHBBH4s4s", 0x45, 0, 36, 0, 0, 255, 17, 0, source, socket.inet_aton(group)
                )
                body = inner + struct.pack(">HHHH", port, tc_filters.CONTROL_PORT, 16, 0) + bytes(8)
                message = struct.pack(">BBHI", *PORT_UNREACHABLE, 0, 0) + body
                total = sum(struct.unpack(f">{len(message) // 2}H", message))
                total = (total & 0xFFFF) + (total >> 16)
                message = (
                    message[:2]
                    + struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
                    + message[4:]
                )
                sender.sendto(message, (socket.inet_ntoa(source), 0))
    wait_for_hellos(routed_net)
    assert node_status(routed_net, "h3")["dropped"] == {}
    assert losses(routed_net) == 0


def test_a_key_is_replaced_under_way_and_a_daemon_that_starts_has_the_new_one(
    routed_net: RunningNetwork,
) -> None:
    before = (routed_net.run.directory / "key").read_text()
    for _ in range(2):
        routed_net.rekey()
        wait_for_hellos(routed_net)
    assert (routed_net.run.directory / "key").read_text() != before
    assert losses(routed_net) == 0
    assert sum(row.refused for row in routed_net.rows().values()) == 0
    control.kill(routed_net.run.directory, "h1")
    wait_until("its neighbours noticed", lambda: losses(routed_net) >= 3)
    control.start(routed_net.run.directory, "h1")
    routed_net.wait_until_converged()


def test_an_experiment_may_do_without() -> None:
    with closing(
        RunningNetwork.create(build(SPEC), LINK, scheme="dr", authenticated=False)
    ) as network:
        try:
            with pytest.raises(ValueError, match="no key to replace"):
                network.rekey()
            with stranger_socket(network, 0, 1) as sender:
                for _ in range(5):
                    sender.sendto(b"no\0nsense", URGENT)
            wait_until(
                "all were read", lambda: node_status(network, "h3")["protocol"]["garbage"] == 5
            )  # type: ignore[index]
        finally:
            network.down()


def state(network: RunningNetwork) -> dict[int, tuple[object, ...]]:
    """Return what hostile packets must not change: processes, neighbours and routes of daemons."""
    states = {}
    for node, row in network.rows().items():
        with network.at(node) as netlink:
            routes = fib.routes(netlink)
        states[node] = (row.pid, row.deaths, row.packets_failed, row.losses, routes)
    return states


def resident_bytes(network: RunningNetwork) -> dict[int, int]:
    """Return the memory of each daemon's process."""
    pids = {row.pid for row in network.rows().values() if row.pid}
    pages = {pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids}
    return {pid: count * resource.getpagesize() for pid, count in pages.items()}


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("scheme", schemes())
def test_hostile_messages_of_each_scheme_change_nothing(
    network: Callable[..., RunningNetwork], scheme: str, times: int | None
) -> None:
    """One in 100 is a sealed message of the sender's own daemon, replayed, most with a bit changed.

    More: --times 1000000.
    """
    routed = network(network_for(scheme), None, scheme)
    routed.wait_until_converged()
    links = routed.topology.links.tolist()
    daemons = routed.rows().keys()
    sender, sender_port, target, port = next(
        ends for ends in links if {ends[0], ends[2]} <= daemons
    )
    draw = Random(f"1 {scheme}")
    campaign = Campaign(scheme, draw)
    recorded = [overheard(routed, target, port) for _ in range(20)]
    before = state(routed)
    before_bytes = resident_bytes(routed)
    with stranger_socket(routed, sender, sender_port) as hostile:
        for number in range(times or HOSTILE_PACKETS):
            payload = campaign._changed(draw.choice(campaign.kept), target)[:1200]
            if number % 100 == 0:
                frame = bytearray(draw.choice(recorded))
                if draw.random() < 0.8:
                    frame[draw.randrange(len(frame))] ^= 1 << draw.randrange(8)
                payload = bytes(frame)
            hostile.sendto(payload, URGENT)
    wait_for_hellos(routed)
    routed.wait_until_converged()
    assert state(routed) == before
    growths = {
        pid: count - before_bytes.get(pid, 0) for pid, count in resident_bytes(routed).items()
    }
    assert max(growths.values()) < MOST_GROWTH_BYTES
