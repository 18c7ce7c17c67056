"""Layers on the kernel: routes of every layer, hosts that choose among them unseen, and what
becomes of both when links die."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise

import pytest

from tests.daemons.fatpaths.layer_choice import Choice, Start
from weft.daemons.core import registry
from weft.daemons.fatpaths.scheme import BY_CUT, Trigger
from weft.daemons.routing.route_addresses import in_layer, tagged
from weft.daemons.routing.selection import below, flow_hash, mix
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.data_plane.layer_program import LayerCounts, LayerProgram
from weft.testbed.linux import clock, fib, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.ping import ping
from weft.testbed.measure.reordering import Reordering
from weft.testbed.measure.traceroute import trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.traffic import flows, mptcp, tcp
from weft.testbed.traffic.flows import Flow
from weft.topologies import build
from weft.topologies.core.address import Prefix, dotted
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel
TOPOLOGY = build("slimfly:q=3,p=1")  # 18 hosts and routers
LAYERS, SEED = 4, 7
SPEC = f"fatpaths:layers={LAYERS},rho=0.7"
FAST, SLOW = (LinkSpec(rate_bps=rate * Mbps, queue_packets=20) for rate in (200, 10))
SRC, DST = 0, 17  # two hops apart
PAIRS = [(src, dst) for src in range(18) for dst in range(18) if src != dst]
OFF = {"layers": LAYERS, "gap_us": 1, "ecn_percent": 1, "ecn_rounds": 1}


@contextmanager
def brought_up(scheme: str, link: LinkSpec) -> Iterator[RunningNetwork]:
    network = RunningNetwork.create(TOPOLOGY, link, scheme=scheme, packed=1)
    try:
        yield network
    finally:
        network.down()


@pytest.fixture(scope="module")
def fast() -> Iterator[RunningNetwork]:
    with brought_up(SPEC, FAST) as net:
        yield net


@pytest.fixture(scope="module")
def slow() -> Iterator[RunningNetwork]:
    with brought_up(f"{SPEC},ecn=5", SLOW) as net:
        yield net


@pytest.fixture
def change() -> Iterator[Callable[..., LayerProgram]]:
    """Let the hosts of a network choose as is said, until the test ends."""
    opened: list[LayerProgram] = []

    def to(net: RunningNetwork, **settings: int) -> LayerProgram:
        opened.append(LayerProgram.open(net))
        opened[-1].set(OFF | settings)
        return opened[-1]

    yield to
    for program in opened:
        program.set(registry.rule(SPEC.split(",")[0]).hosts)
        program.close()


@contextmanager
def udp(net: RunningNetwork, host: int) -> Iterator[socket.socket]:
    with netns.inside(net.netns(host)):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        yield sender


def since(program: LayerProgram, before: LayerCounts) -> LayerCounts:
    now = program.counters()
    packets = tuple(a - b for a, b in zip(now.packets, before.packets, strict=True))
    return LayerCounts(packets, *(a - b for a, b in zip(now[1:], before[1:], strict=True)))


def sent_by(net: RunningNetwork) -> dict[tuple[int, int], int]:
    """Packets that switches put into the queue of each port."""
    with DataPlane.open(net) as plane:
        return {where: counted.packets for where, counted in plane.counters().items()}


def port_to(node: int, after: int) -> int:
    return next(port for port, peer, *_ in TOPOLOGY.ports(node) if peer == after)


def test_maps_and_kernels_hold_one_route_for_each_layer_and_router(fast: RunningNetwork) -> None:
    paths, options = registry.checked(TOPOLOGY, SPEC)
    with DataPlane.open(fast) as plane:
        maps = {node: groups.table() for node, groups in plane.groups.items()}
    layered = [
        tagged(Prefix(10 << 24 | router << 8, 24), layer)
        for layer in range(LAYERS)
        for router in range(18)
    ]
    for node, table in maps.items():
        with fast.at(node) as opened:
            routes = fib.routes(opened)
        assert {
            prefix: tuple(index for index, _ in hops) for prefix, hops in routes.items()
        } == table
        own = Prefix(TOPOLOGY.naming.address(node - 18) & ~0xFF, 24)
        wanted = {
            prefix for prefix in layered if prefix.network & 0xFFFFFF != own.network & 0xFFFFFF
        }
        assert wanted <= table.keys()
        assert all(len(table[prefix]) == 1 for prefix in wanted)
        assert len(table) == (LAYERS + 1) * 18
    assert {way.layer for way in paths.path(TOPOLOGY, options, SRC, DST)} == set(range(LAYERS))


def test_a_packet_takes_the_path_of_its_layer(fast: RunningNetwork) -> None:
    scheme, options = registry.checked(TOPOLOGY, SPEC)
    ways = scheme.path(TOPOLOGY, options, SRC, DST)
    assert len({way.nodes for way in ways}) > 1
    with udp(fast, SRC) as sender, udp(fast, DST) as receiver:
        receiver.bind(("", 9000))
        receiver.settimeout(5.0)
        for way in ways:
            before = sent_by(fast)
            address = dotted(in_layer(TOPOLOGY.naming.address(DST), way.layer or 0))
            sender.sendto(b"here", (address, 9000))
            _, who = receiver.recvfrom(100)
            assert who[0] == dotted(TOPOLOGY.naming.address(SRC))
            took = {where for where, packets in sent_by(fast).items() if packets > before[where]}
            hops = zip(way.nodes[1:], way.nodes[2:], strict=False)
            assert took == {(node, port_to(node, after)) for node, after in hops}


@pytest.mark.parametrize("settings", [
    {"start": Start.RANDOM, "trigger": Trigger.GAP, "gap_us": 1},
    {"start": Start.TURN, "trigger": Trigger.CUT, "choice": Choice.LEAST},
    {"layers": 0},
])  # fmt: skip
def test_applications_see_plain_addresses(
    fast: RunningNetwork, change: Callable[..., LayerProgram], settings: dict[str, int]
) -> None:
    """ping, long packets in fragments, traceroute, and TCP, from wherever to wherever."""
    program = change(fast, **settings)
    before = program.counters()
    assert ping(fast, PAIRS, retries=2).lost == ()
    assert ping(fast, [(SRC, DST)], size_bytes=1400, count=3, retries=2).lost == ()
    name = fast.run.namespace("h0")
    command = [
        "ip",
        "netns",
        "exec",
        name,
        "ping",
        "-n",
        "-c",
        "2",
        "-i",
        "0.1",
        "-s",
        "4000",
        "10.0.17.0",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "2 received" in said
    assert "DIFFERENT" not in said
    # of a path that changes with every packet nothing is seen
    program.set(program.settings() | {"gap_us": 1 << 24})
    (route,) = trace(fast, [(SRC, DST)])
    assert route.nodes[-1] == DST
    assert not route.reason
    table = flows.run(
        fast,
        [Flow(0.0, SRC, DST, 300_000)],
        flows.FlowOptions(deadline_s=20.0, congestion_control="reno"),
    )
    assert table.unfinished == 0
    left = since(program, before).packets
    assert (
        (sum(left) > 0)
        == (sum(packets > 0 for packets in left) > 1)
        == (settings.get("layers") != 0)
    )


def test_an_error_quotes_the_address_that_was_sent_to_and_draws_another_layer(
    fast: RunningNetwork, change: Callable[..., LayerProgram]
) -> None:
    program = change(fast, start=Start.RANDOM)
    with udp(fast, SRC) as sender:
        sender.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR
        sender.settimeout(5.0)
        sender.connect(("10.0.17.0", 9))
        sender.send(b"port")  # which nobody listens at: it says nothing of the path
        with pytest.raises(ConnectionRefusedError):
            sender.recv(100)
        assert program.counters().errors == 0
        with netns.inside(fast.netns(SRC)):
            other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with other:
            other.setsockopt(socket.IPPROTO_IP, 11, 1)
            other.settimeout(5.0)
            other.connect(("10.0.17.9", 9))  # no such host: its router refuses
            other.send(b"host")
            with pytest.raises(OSError, match=r"route to host|unreachable"):
                other.recv(100)
    assert program.counters().errors >= 1


def test_a_gap_draws_another_layer(
    fast: RunningNetwork, change: Callable[..., LayerProgram]
) -> None:
    program = change(fast, trigger=Trigger.GAP, gap_us=1)
    before = program.counters()
    with udp(fast, SRC) as sender:
        for _ in range(200):
            clock.sleep(2e-6)  # under the virtual clock sending takes no time
            sender.sendto(b"x" * 100, ("10.0.17.0", 9001))
    counts = since(program, before)
    assert counts.gaps >= 199
    assert all(packets > 10 for packets in counts.packets[:LAYERS])
    program.set(OFF | {"trigger": Trigger.GAP, "gap_us": 1 << 24})
    before = program.counters()
    with udp(fast, SRC) as sender:
        for _ in range(200):
            sender.sendto(b"x" * 100, ("10.0.17.0", 9001))
    counts = since(program, before)
    assert counts.gaps == 0
    assert counts.packets[0] >= 200


def test_flows_between_two_hosts_take_layers_in_turn(
    fast: RunningNetwork, change: Callable[..., LayerProgram]
) -> None:
    program = change(fast, start=Start.TURN)
    taken = []
    with udp(fast, DST) as receiver:
        receiver.bind(("", 9002))
        for _ in range(2 * LAYERS):
            before = program.counters()
            with udp(fast, SRC) as sender:
                for _ in range(10):
                    sender.sendto(b"x", ("10.0.17.0", 9002))
            counts = since(program, before)
            assert (counts.flows, sum(counts.packets), max(counts.packets)) == (1, 10, 10)
            taken.append(counts.packets.index(10))
    assert all((layer + 1) % LAYERS == after for layer, after in pairwise(taken))


def test_subflows_of_multipath_tcp_take_layers_in_turn(
    fast: RunningNetwork, change: Callable[..., LayerProgram]
) -> None:
    """As many layers as there are subflows.  How many join is the kernel's affair: now and then it
    refuses one."""
    try:
        mptcp.check()
    except ValueError as lacks:
        pytest.skip(str(lacks))
    program = change(fast, start=Start.TURN)
    wanted = [Flow(0.0, SRC, DST, 6_000_000)]
    for _ in range(5):
        before = program.counters()
        table = flows.run(
            fast,
            wanted,
            flows.FlowOptions(
                deadline_s=20.0,
                congestion_control="reno",
                transport=f"mptcp:subflows={LAYERS}",
            ),
        )
        assert table.unfinished == 0
        used = sum(packets > 0 for packets in since(program, before).packets)
        (tcp,) = (result.tcp for result in table.results)
        assert tcp
        assert min(tcp.subflows, LAYERS) <= used <= LAYERS
        if tcp.subflows > 1:
            return
    pytest.fail("no subflow joined any of five connections")


@pytest.mark.parametrize(("trigger", "counter"), [(Trigger.CUT, "cuts"), (Trigger.ECN, "echoes")])
def test_congestion_draws_another_layer(
    slow: RunningNetwork, change: Callable[..., LayerProgram], trigger: Trigger, counter: str
) -> None:
    """Two flows to one host: queues of 20 packets overflow, or are marked from 5 on."""
    program = change(
        slow, trigger=trigger, choice=Choice.LEAST if trigger == Trigger.ECN else Choice.RANDOM
    )
    tcp.tune(slow, {"ipv4/tcp_ecn": "1" if trigger == Trigger.ECN else "0"})
    wanted = [Flow(0.0, src, DST, 700_000) for src in (SRC, 3)]
    for active in (True, False):
        program.set(program.settings() | {"trigger": trigger if active else Trigger.NONE})
        before = program.counters()
        table = flows.run(
            slow, wanted, flows.FlowOptions(deadline_s=20.0, congestion_control="reno")
        )
        assert table.unfinished == 0
        counts = since(program, before)
        assert (getattr(counts, counter) > 0) == active
        assert sum(counts[2:]) == getattr(counts, counter)
        assert active or counts.packets[0] == sum(counts.packets)


def ask(net: RunningNetwork, src: int, dst: int, times: int) -> None:
    """Send a message of 30 kB that often over one connection, each when the last is answered."""
    with netns.inside(net.netns(dst)):
        listener = socket.create_server((dotted(TOPOLOGY.naming.address(dst)), 0))
    with netns.inside(net.netns(src)):
        client = socket.create_connection(listener.getsockname(), timeout=20.0)
    server, _ = listener.accept()
    with listener, client, server:
        for _ in range(times):
            client.sendall(bytes(30_000))
            got = 0
            while got < 30_000:
                got += len(server.recv(30_000))
            server.sendall(b"!")
            assert client.recv(1) == b"!"


def test_a_drained_flow_draws_another_layer_and_none_of_its_packets_is_late(
    slow: RunningNetwork, change: Callable[..., LayerProgram]
) -> None:
    """Flowcut's rule, between hosts whose paths differ by three hops."""
    src, dst = 14, 12
    scheme, options = registry.checked(TOPOLOGY, SPEC)
    hops = [len(way.nodes) for way in scheme.path(TOPOLOGY, options, src, dst)]
    assert max(hops) - min(hops) == 3
    program = change(slow, trigger=Trigger.DRAINED, start=Start.RANDOM)
    before = program.counters()
    with Reordering(slow) as watched:
        ask(slow, src, dst, times=40)
    counts = since(program, before)
    assert counts.drains >= 39  # before each message but the first, and within long ones
    assert sum(counts[2:]) == counts.drains
    assert all(counts.packets[:LAYERS])
    assert watched.table.total("received") > 40 * 20
    assert watched.table.total("late") == 0


@pytest.mark.parametrize("silent", [False, True])
def test_layers_go_on_when_a_link_dies(
    fast: RunningNetwork, change: Callable[..., LayerProgram], silent: bool
) -> None:
    change(fast, start=Start.RANDOM)
    scheme, options = registry.checked(TOPOLOGY, SPEC)
    way = scheme.path(TOPOLOGY, options, SRC, DST)[1].nodes
    link = TOPOLOGY.link_name(TOPOLOGY.link_between(way[1], way[2]))
    fast.fail(link, silent=silent)
    near = TOPOLOGY.naming.name(way[1])

    def detours() -> int:
        status = control.status(fast.run.directory, near)["protocol"]
        return sum(layer["detours"] for layer in status["layers"])

    wait_until("the layers leave the link", lambda: detours() > 0)
    wait_until("every pair answers", lambda: not ping(fast, PAIRS, timeout_s=0.3).lost)
    fast.restore(link)
    wait_until("the layers come back", lambda: detours() == 0)
    fast.wait_until_converged()
    assert ping(fast, PAIRS, retries=2).lost == ()


def test_acknowledgements_leave_a_dead_layer() -> None:
    """One direction of a link dies by which all acknowledgements go, and no daemon notices."""
    with brought_up(f"{SPEC},dead=100", FAST) as net, closing(LayerProgram.open(net)) as program:
        scheme, options = registry.checked(TOPOLOGY, SPEC)
        back = scheme.path(TOPOLOGY, options, DST, SRC)[0].nodes
        link = TOPOLOGY.link_name(TOPOLOGY.link_between(back[1], back[2]))
        tcp.tune(net, {"ipv4/tcp_rto_min_us": "10000"})
        after = {}
        for trigger in (Trigger.CUT, BY_CUT):
            program.set(OFF | {"trigger": trigger})
            before = program.counters()
            table = flows.run(
                net,
                [Flow(0.0, SRC, DST, None)],
                flows.FlowOptions(
                    deadline_s=1.0,
                    congestion_control="reno",
                    warm_up_s=0.2,
                    at_warm_up=lambda: net.fail(
                        link, silent=True, only_to=TOPOLOGY.naming.name(back[2])
                    ),
                    open_before=True,
                ),
            )
            net.restore(link)
            after[trigger] = table.results[0].received_bytes
            repeats = since(program, before).repeats
            assert (repeats > 0) == (trigger == BY_CUT)
    assert after[BY_CUT] > 20 * after[Trigger.CUT]


def test_the_kernels_own_table_forwards_layers_too_and_first_layers_follow_the_seed() -> None:
    spec = f"{SPEC},forwarding=kernel,start=random,trigger=none,seed={SEED}"
    with brought_up(spec, FAST) as net:
        assert ping(net, PAIRS, retries=2).lost == ()
        assert sum(sent_by(net).values()) == 0
        with closing(LayerProgram.open(net)) as program:
            packets = program.counters().packets[:LAYERS]
            layers = {key: layer for key, layer in program.layers_of_flows().items() if key[4] == 1}
        assert min(packets) > len(PAIRS) / LAYERS
        assert len(layers) == len(PAIRS)
        for key, layer in layers.items():  # ICMP has no ports
            word = mix(flow_hash(SEED, key.source, key.destination, 0, key[4]), 0)
            assert layer == below(word, LAYERS)
        wanted = [Flow(0.0, SRC, DST, 300_000)]
        assert (
            flows.run(
                net, wanted, flows.FlowOptions(deadline_s=20.0, congestion_control="reno")
            ).unfinished
            == 0
        )


def test_hosts_and_switches_change_to_another_scheme_while_it_runs(fast: RunningNetwork) -> None:
    with closing(LayerProgram.open(fast)) as program:
        for spec, layers in (
            ("fatpaths:layers=2,trigger=cut,start=turn", 2),
            ("letflow", 0),
            (SPEC.split(",")[0], 4),
        ):
            fast.change_scheme(spec)
            before = program.counters()
            assert ping(fast, PAIRS, retries=2).lost == ()
            packets = since(program, before).packets
            assert program.settings()["layers"] == layers
            assert (sum(packets[:layers]), sum(packets[layers:])) == (sum(packets), 0)
            assert fast.status()["layers"]["packets"] == list(program.counters().packets[:layers])
    with pytest.raises(
        ValueError, match="daemons of this run have routes in 4 layers; take the run down"
    ):
        fast.change_scheme("fatpaths:layers=5")


def test_fatpaths_is_refused_where_others_route(network: Callable[..., RunningNetwork]) -> None:
    net = network("slimfly:q=3,p=1", FAST, "ecmp")
    with pytest.raises(
        ValueError,
        match="fatpaths needs the routes of its own daemons, and those of ecmp route here",
    ):
        net.change_scheme("fatpaths")
    assert net.status()["layers"] is None
