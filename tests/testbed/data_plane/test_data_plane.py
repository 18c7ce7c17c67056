"""The data plane on real switches: packet in, packet out; counts over uplinks; pings, failures,
changes of scheme."""

from __future__ import annotations

import ctypes
import errno
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from weft.daemons.core import registry
from weft.daemons.core.scheme import SelectionRule
from weft.daemons.load_balancing.scheme import balancing
from weft.daemons.routing import selection
from weft.testbed.data_plane import plane_program
from weft.testbed.data_plane.data_plane import DataPlane, PortCounts
from weft.testbed.data_plane.plane_program import CANDIDATES, GROUP, READERS
from weft.testbed.linux import libbpf, netlink, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.linux.interface import IFINFO, IFLA_MTU
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.measure.ping import ping
from weft.testbed.measure.traceroute import trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.plan.network_plan import mac
from weft.testbed.runs.network_handle import all_pairs
from weft.testbed.traffic import flows
from weft.testbed.traffic.flows import Flow
from weft.topologies.core.failures import fail_links
from weft.topologies.core.family import IntegerParameter
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel
CLOS = "clos:n=2,r=2,m=4"
LEAF, SRC, DST = 4, 0, 3  # e0, h0 on its port 0, h3 behind e1
UPLINKS = range(2, 6)
SLOW = LinkSpec(rate_bps=8_000, queue_packets=250)
FAST = LinkSpec(rate_bps=50 * Mbps, queue_packets=250)
OK, STOLEN = 0, 4
IP_MTU_DISCOVER, IP_PMTUDISC_DONT, IP_PMTUDISC_DO = 10, 0, 2


class RunOptions(ctypes.Structure):
    """struct bpf_test_run_opts of libbpf."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_char_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_char_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


class Fabric:
    """A Clos network and its data plane, with packets that are put in at e0, at port 0 if nothing
    else is said."""

    def __init__(self, network: RunningNetwork, plane: DataPlane, program: int) -> None:
        self.network, self.plane, self.program = network, plane, program

    def put_in(self, packet: bytes, port: int = 0, node: int = LEAF) -> tuple[int, bytes]:
        """Return the program's result for a packet from a port, and the packet after it."""
        out = ctypes.create_string_buffer(2048)
        # struct __sk_buff up to ifindex
        context = bytes(40) + struct.pack("=I", self.network.ifindex(node, port))
        options = RunOptions(
            sz=ctypes.sizeof(RunOptions),
            data_in=packet,
            data_size_in=len(packet),
            data_out=ctypes.addressof(out),
            data_size_out=len(out),
            ctx_in=context,
            ctx_size_in=len(context),
            repeat=1,
        )

        def work() -> None:
            netns.enter(self.network.netns(node))
            assert libbpf.library().bpf_prog_test_run_opts(self.program, ctypes.byref(options)) == 0

        netns.in_thread(work)
        return options.retval, out.raw[: options.data_size_out]

    def uplinks(self, since: dict[tuple[int, int], PortCounts]) -> list[int]:
        """Packets over each of e0's uplinks."""
        now = self.plane.counters()
        return [now[LEAF, port].packets - since[LEAF, port].packets for port in UPLINKS]

    def fill(self, port: int, packets: int, node: int = LEAF, payload_bytes: int = 1400) -> None:
        """Let `packets` wait at a port, of e0 unless another switch is named."""
        dev = f"{self.network.topology.naming.name(node)}-eth{port}"
        with netns.inside(self.network.netns(node)):
            sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        with sender:
            sender.bind((dev, 0))
            for _ in range(packets + 4):  # some are sent ahead of the rate
                sender.send(mac(0, 0) + mac(1, 0) + b"\x88\xb5" + bytes(payload_bytes))


@pytest.fixture(scope="module")
def slow() -> Iterator[Fabric]:
    """Links so slow that what waits at them stays there."""
    yield from fabric(SLOW)


@pytest.fixture(scope="module")
def fast() -> Iterator[Fabric]:
    yield from fabric(FAST)


def fabric(link: LinkSpec) -> Iterator[Fabric]:
    from weft.topologies import build

    network = RunningNetwork.create(build(CLOS), link, scheme="static")
    try:
        with DataPlane.load(network, "rps", seed=1) as plane:
            plane.attach()
            assert plane._program is not None
            yield Fabric(network, plane, plane._program)
    finally:
        network.down()


def set_mtu(network: RunningNetwork, node: int, port: int, mtu: int) -> None:
    """As `ip link set mtu` does, at one end of a link."""
    body = IFINFO.pack(0, 0, network.ifindex(node, port), 0, 0) + netlink.u32(IFLA_MTU, mtu)
    with network.at(node) as namespace:
        namespace.request(
            [netlink.NetlinkMessage(netlink.RTM_NEWLINK, 0, body, f"ip link set mtu {mtu}")]
        )


def checksum(header: bytes) -> int:
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(
    *,
    ttl: int = 64,
    fragment: int = 0,
    ports: tuple[int, int] = (1000, 2000),
    src: int = 10 << 24,
    dst: int | None = None,
    to: bytes | None = None,
    options: bytes = b"",
    protocol: int = 17,
    tos: int = 0,
    id_: int = 7,
) -> bytes:
    """An Ethernet frame from h0, or the address `src`, to h3, or to the address `dst`."""
    address = 10 << 24 | 1 << 8 | 1 if dst is None else dst
    length = 20 + len(options) + 20
    first = struct.pack(
        ">BBHHHBB", 0x45 + len(options) // 4, tos, length, id_, fragment, ttl, protocol
    )
    rest = struct.pack(">II", src, address) + options
    header = first + struct.pack(">H", checksum(first + b"\0\0" + rest)) + rest
    return (
        (to or mac(LEAF, 0))
        + mac(0, 0)
        + b"\x08\x00"
        + header
        + struct.pack(">HH", *ports)
        + bytes(16)
    )


def test_a_packet_is_rewritten_and_its_time_to_live_is_less(slow: Fabric) -> None:
    without = int.from_bytes(packet(id_=0)[24:26], "big")
    carrying = [
        (64, (without - wanted) % 0xFFFF) for wanted in (0xFEFF, 0xFFFF, 0xFEFE, 0xFF00, 0x0001)
    ]
    for ttl, id_ in [(64, 7), (2, 7), (255, 0), *carrying]:
        frame = packet(ttl=ttl, id_=id_)
        action, got = slow.put_in(frame)
        assert action == STOLEN  # redirected as a clone, since a test packet has a socket
        assert got[6:10] == mac(LEAF, 0)[:4]
        assert got[10:12] in [mac(LEAF, port)[4:] for port in UPLINKS]
        spine = LEAF + 2 + got[11] - UPLINKS[0]
        assert got[:6] == mac(spine, 0)
        assert got[22] == ttl - 1
        assert checksum(got[14:34]) == 0
        assert got[26:] == frame[26:]


@pytest.mark.parametrize(
    "frame",
    [
        packet(ttl=1),
        packet(fragment=0x2000),
        packet(fragment=100),
        packet(options=b"\x07\x03\x04\x00"),
        packet(dst=172 << 24 | 17 << 16),
        packet(dst=11 << 24),
        packet(to=mac(9, 9)),
        packet()[:12] + b"\x08\x06" + packet()[14:],
        packet()[:12] + b"\x86\xdd" + packet()[14:],
        packet()[:14] + b"\x65" + packet()[15:],
    ],
    ids=[
        "ttl 1",
        "fragment",
        "last fragment",
        "options",
        "own address",
        "no route",
        "other host's",
        "ARP",
        "IPv6",
        "v6",
    ],
)
def test_what_it_does_not_understand_is_left_to_the_kernel_untouched(
    slow: Fabric, frame: bytes
) -> None:
    assert slow.put_in(frame) == (OK, frame)


@pytest.mark.parametrize(
    ("frame", "counts"),
    [
        (packet(fragment=0x2000), 1),
        (packet(fragment=100), 1),
        (packet(options=b"\x07\x03\x04\x00"), 1),
        (packet(fragment=0x2000, dst=172 << 24 | 17 << 16), 0),
        (packet(fragment=0x2000, dst=11 << 24), 0),
        (packet(fragment=0x2000, ttl=1), 0),
        (packet(), 0),
    ],
    ids=["fragment", "last fragment", "options", "to the switch", "no route", "ttl 1", "whole"],
)
def test_what_the_kernel_sends_on_in_the_schemes_place_is_counted(
    slow: Fabric, frame: bytes, counts: int
) -> None:
    for spec, expected in (("rps", counts), ("ecmp", 0)):
        slow.plane.set_scheme(spec)
        before, total = slow.plane.counters()[LEAF, 0].bypassed, slow.plane.bypassed()
        slow.put_in(frame)
        assert slow.plane.counters()[LEAF, 0].bypassed - before == expected
        assert slow.plane.bypassed() - total == expected


def test_a_packet_that_is_longer_than_its_port_takes_is_left_to_the_kernel(slow: Fabric) -> None:
    """Also where the MTU was set by hand after the program was loaded; the others go on as
    before."""
    set_mtu(slow.network, LEAF, UPLINKS[3], 400)
    long = packet() + bytes(400)
    try:
        slow.plane.set_scheme("dmodk")
        before = slow.plane.bypassed()
        assert slow.put_in(long) == (OK, long)
        assert slow.plane.bypassed() - before == 1
        assert slow.put_in(packet() + bytes(14 + 400 - len(packet())))[0] == STOLEN
        # by another uplink
        assert slow.put_in(packet(dst=10 << 24 | 1 << 8) + bytes(400))[0] == STOLEN
    finally:
        set_mtu(slow.network, LEAF, UPLINKS[3], 1500)
    assert slow.put_in(long)[0] == STOLEN


def test_a_port_that_there_is_not_is_never_sent_to(slow: Fabric) -> None:
    """Whatever a group says: index 0 is no port."""
    slow.plane.set_scheme("rr")
    groups = slow.plane._source.map("groups", "=I", GROUP.format)
    kept = {group: groups[group,] for group in set(slow.plane.groups[LEAF]._of.values())}
    try:
        for group in kept:
            groups[group,] = (4, *[0] * CANDIDATES)
        frame = packet()
        assert slow.put_in(frame) == (OK, frame)
    finally:
        for group, value in kept.items():
            groups[group,] = value


def test_flowlets_of_one_switch_are_no_others(slow: Fabric) -> None:
    slow.plane.set_scheme("letflow:gap_us=1000000")
    flowlets = slow.plane._source.map("flowlets", "=I", "=QII")
    room = 1 << plane_program.flowlet_bits(len(slow.plane.switches))

    def used_slots() -> set[int]:
        return {slot for (slot,) in flowlets if flowlets[slot,][0]}

    before = used_slots()
    for source in range(50):
        slow.put_in(packet(ports=(source, 80)))
    new = used_slots() - before
    assert len(new) > 40
    assert {slot // room for slot in new} == {0}  # e0 is the first switch


def test_a_flow_keeps_the_port_that_its_hash_says(slow: Fabric) -> None:
    seed = slow.plane.set_scheme("vlb", seed=5)[LEAF]
    for source in range(40):
        frame = packet(ports=(source, 80), protocol=6 if source % 2 else 17)
        before = slow.plane.counters()
        slow.put_in(frame)
        raw = [int.from_bytes(frame[at : at + 4], sys.byteorder) for at in (26, 30, 34)]
        expected = selection.below(selection.flow_hash(seed, *raw, frame[23]), 4)
        assert slow.uplinks(before) == [int(i == expected) for i in range(4)]


def test_d_mod_k_takes_the_digit_of_the_destination(slow: Fabric) -> None:
    slow.plane.set_scheme("dmodk")
    for host in (0, 1):
        before = slow.plane.counters()
        slow.put_in(packet(dst=10 << 24 | 1 << 8 | host))
        assert slow.uplinks(before) == [int(i == 2 + host) for i in range(4)]  # hosts 2 and 3


def test_queues_are_seen_by_the_schemes_that_ask(slow: Fabric) -> None:
    """h3's default is uplink 3, where ten packets are made to wait; after that two more at uplink
    0."""
    plane, network = slow.plane, slow.network
    default = UPLINKS[3]

    def waits(port: int) -> int:
        with PortCounterReader(network) as counters:
            return counters.snapshot().ports[network.ifindex(LEAF, port)].waiting_packets

    def over(spec: str, count: int = 40) -> list[int]:
        plane.set_scheme(spec)
        before = plane.counters()
        for _ in range(count):
            slow.put_in(packet())
        return slow.uplinks(before)

    slow.fill(default, 60)
    queue = waits(default)
    assert queue >= 55
    assert over("ttc:delta=200") == [0, 0, 0, 40]
    assert over("ttc:delta=200000,load=bytes") == [0, 0, 0, 40]
    moved = plane.counters()[LEAF, default].moved
    assert over("ttc:delta=2")[3] < 40
    assert plane.counters()[LEAF, default].moved == moved
    assert sum(plane.counters()[LEAF, port].moved for port in UPLINKS) > 0
    for spec in ("jsq", "micro", "drill", "drill:d=1,m=1"):
        found = over(spec)
        assert found[3] <= (1 if spec == "drill:d=1,m=1" else 0), (spec, found)


def test_marking_begins_where_it_was_asked_to(slow: Fabric) -> None:
    plane, port = slow.plane, UPLINKS[3]
    slow.fill(port, 30)
    capable = packet(tos=2)
    plane.set_scheme("dmodk:ecn=1000")
    assert slow.put_in(capable)[1][15] == 2
    plane.set_scheme("dmodk:ecn=10")
    _, got = slow.put_in(capable)
    assert got[15] == 3
    assert checksum(got[14:34]) == 0
    assert slow.put_in(packet(tos=0))[1][15] == 0  # not capable: not marked
    assert plane.counters()[LEAF, port].marked == 1


@pytest.mark.parametrize(
    "spec",
    [
        spec
        for spec in sorted({*registry.with_data_plane(), "vlb:per=packet"} - {"lbsp"})
        if not registry.rule(spec).has_detours  # not on a Clos network: test_detours.py
    ],
)
def test_pings_and_traceroutes_work_through_every_scheme(fast: Fabric, spec: str) -> None:
    fast.plane.set_scheme(spec)
    assert ping(fast.network, all_pairs(fast.network), count=4, retries=2).lost == ()
    (route,) = trace(fast.network, [(SRC, DST)])
    assert route.reason is None
    assert [route.nodes[i] for i in (0, 1, 3, 4)] == [SRC, LEAF, LEAF + 1, DST]
    assert route.nodes[2] in range(LEAF + 2, LEAF + 6)


def test_packets_spread_as_each_scheme_says(fast: Fabric) -> None:
    def over(spec: str) -> list[int]:
        fast.plane.set_scheme(spec)
        before = fast.plane.counters()
        table = ping(fast.network, [(SRC, DST)], count=200, interval_ms=0.5)
        ports = fast.uplinks(before)
        assert sum(ports) == sum(result.sent for result in table.pings) == 200
        return ports

    assert over("rr") == [50] * 4
    assert over("dmodk") == [0, 0, 0, 200]
    assert sorted(over("vlb"))[:3] == [0] * 3
    assert min(over("rps")) > 20
    assert min(over("vlb:per=packet")) > 20
    assert min(over("jsq")) > 20  # all empty: ties are broken at random
    assert min(over("micro")) > 20
    fast.plane.set_scheme("ecmp")
    before = fast.plane.counters()
    assert not ping(fast.network, [(SRC, DST)], count=10).lost
    assert fast.uplinks(before) == [0] * 4  # the kernel's own


@pytest.mark.parametrize(("spec", "polarised"), [("ecmp", False), ("ecmp:seeds=same", True)])
def test_choices_at_two_tiers_depend_on_each_other_only_with_the_same_seeds(
    network: Callable[..., RunningNetwork], spec: str, polarised: bool
) -> None:
    """A packet's hash, which it brings along from its sender, would have each aggregation switch
    use one uplink."""
    net = network("fattree:k=4", FAST)
    naming = net.topology.naming
    ups = [net.ifindex(naming.node(name), port) for name in ("a0.0", "a0.1") for port in (2, 3)]
    with DataPlane.load(net, spec, seed=1) as plane, PortCounterReader(net) as counters:
        plane.attach()
        plane.follow(net.topology)
        before = counters.snapshot()
        wanted = [Flow(0.002 * number, number % 4, 4 + number % 12, 1000) for number in range(160)]
        assert not flows.run(
            net, wanted, flows.FlowOptions(deadline_s=20.0, congestion_control="reno")
        ).unfinished
        sent = counters.snapshot().since(before)
    counts = [sent.ports[index].sent_packets for index in ups]
    if polarised:
        assert min(counts[0], counts[3]) > 40
        assert max(counts[1:3]) < 10  # the network's own packets
    else:
        assert min(counts) > 40


def test_a_silent_failure_is_repaired_by_one_write(fast: Fabric) -> None:
    fast.plane.set_scheme("rr")
    pairs = [(SRC, DST), (1, 2)]
    fast.network.fail("e0-c1", silent=True)
    try:
        lossy = ping(fast.network, pairs, count=8, timeout_s=0.3)
        assert 0 < lossy.lost_fraction < 1
        for switch in (LEAF, LEAF + 1):
            failed = fast.network.ifindex(switch, UPLINKS[1])
            routes = fast.plane.groups[switch].table().items()
            fast.plane.groups[switch].set(
                {prefix: [port for port in ports if port != failed] for prefix, ports in routes}
            )
        assert ping(fast.network, pairs, count=40).lost_fraction == 0
    finally:
        fast.network.restore("e0-c1")
    before = fast.plane.counters()
    fast.plane.follow(fast.network.topology)
    assert ping(fast.network, pairs, count=40).lost_fraction == 0
    assert min(fast.uplinks(before)) > 0


def test_routes_follow_the_links_that_live(fast: Fabric) -> None:
    """c1 loses e1: nobody at e0 may use it for e1's hosts, neither the program nor the kernel."""
    topology = fast.network.topology
    fast.network.fail("e1-c1")
    try:
        fast.plane.follow(fail_links(topology, [topology.link("e1-c1")]))
        for spec in ("rps", "ecmp"):
            fast.plane.set_scheme(spec)
            table = ping(fast.network, all_pairs(fast.network), count=20)
            assert table.lost_fraction == 0, spec
    finally:
        fast.network.restore("e1-c1")
        fast.plane.follow(topology)


def test_a_running_fabric_changes_its_scheme_from_another_process_without_loss(
    fast: Fabric,
) -> None:
    """`open` finds the maps by the filter alone, as another process would."""
    with DataPlane.open(fast.network) as other:
        assert {node: of.table() for node, of in other.groups.items()} == {
            node: of.table() for node, of in fast.plane.groups.items()
        }
        assert other.queue_reader == fast.plane.queue_reader
        lost = 0.0
        for spec in ("rr", "ecmp", "drill", "ttc", "dmodk", "letflow:gap_us=100", "rps"):
            other.set_scheme(spec)
            lost += ping(
                fast.network, [(SRC, DST), (DST, SRC)], count=20, interval_ms=1
            ).lost_fraction
        assert lost == 0
        before = fast.plane.counters()
        other.set_scheme("rr")
        ping(fast.network, [(SRC, DST)], count=8)
        assert fast.uplinks(before) == [2] * 4


def test_tcp_fills_a_queue_that_is_not_its_own(network: Callable[..., RunningNetwork]) -> None:
    """A packet keeps its sender's socket across namespaces; unless it is let go of, TCP holds back
    at some 100 packets of its own and nothing is ever lost."""
    net = network(CLOS, LinkSpec(rate_bps=20 * Mbps, queue_packets=300))
    with ExitStack() as stack:
        plane = stack.enter_context(DataPlane.load(net, "dmodk"))
        plane.attach()
        with netns.inside(net.netns(DST)):
            listener = stack.enter_context(socket.create_server(("10.0.1.1", 5001)))
        pairs = []
        for sender in (0, 1):  # two, for one is held back by its own link
            with netns.inside(net.netns(sender)):
                near = stack.enter_context(socket.create_connection(("10.0.1.1", 5001), timeout=10))
            pairs.append((near, stack.enter_context(listener.accept()[0])))
        for end in (end for pair in pairs for end in pair):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        counters = stack.enter_context(PortCounterReader(net))

        def drop_count() -> int:
            for near, far in pairs:
                with suppress(BlockingIOError):
                    near.send(bytes(1 << 18))
                with suppress(BlockingIOError):
                    far.recv(1 << 20)
            return counters.snapshot().ports[net.ifindex(LEAF, UPLINKS[3])].queue_drops

        wait_until("a drop at e0's uplink", drop_count)


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader != "kfunc"])
def test_the_variants_for_older_kernels_load_and_forward(
    reader: str,
    network: Callable[..., RunningNetwork],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    net = network(CLOS, SLOW)  # on which what waits at a port stays there
    refused = tmp_path / "refused.bpf.o"
    refused.write_text("no program")
    monkeypatch.setattr(plane_program, "READERS", {"kfunc": refused, reader: READERS[reader]})
    with DataPlane.load(net, "rr") as plane:
        assert plane.queue_reader == reader
        plane.attach()
        assert not ping(net, all_pairs(net), count=4).lost
        if reader == "none":
            for spec in ("ttc", "drill", "jsq", "rr:ecn=20"):
                with pytest.raises(ValueError, match="this kernel does not show its queues"):
                    plane.set_scheme(spec)
        else:
            fabric_ = Fabric(net, plane, plane._program or 0)
            plane.set_scheme("jsq")
            fabric_.fill(UPLINKS[3], 60)
            before = plane.counters()
            for _ in range(12):
                fabric_.put_in(packet())
            assert fabric_.uplinks(before)[3] == 0


@pytest.mark.uml("sch_netem")
def test_a_full_kernel_whichever_it_is_forwards_by_every_scheme_that_it_can(
    network: Callable[..., RunningNetwork],
) -> None:
    """Debian's User-Mode Linux has no BTF, cannot seed its multipath hash, and wants packets
    aligned."""
    net = network("clos:n=1,r=2,m=2", FAST)
    with DataPlane.load(net, "rr") as plane:
        plane.attach()
        blind = plane.queue_reader == "none"
        for spec in ("rr", "ecmp", "rps") if blind else ("rr", "ecmp", "drill", "ttc"):
            plane.set_scheme(spec)
            assert not ping(net, [(0, 1), (1, 0)], count=4, retries=1).lost


def test_a_link_whose_mtu_was_reduced_by_hand_loses_nothing_silently(
    network: Callable[..., RunningNetwork],
) -> None:
    """A packet that is too long leaves in fragments, or its sender hears of the MTU."""
    net = network(CLOS, FAST)
    with DataPlane.load(net, "dmodk") as plane, ExitStack() as stack:
        plane.attach()
        for number, port in enumerate(UPLINKS):  # all, for what is left to the kernel takes any
            set_mtu(net, LEAF, port, 600)
            set_mtu(net, LEAF + 2 + number, 0, 600)
        ends = []
        for host in (SRC, DST):
            with netns.inside(net.netns(host)):
                ends.append(stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        near, far = ends
        far.bind(("10.0.1.1", 5001))
        far.settimeout(5.0)
        near.connect(("10.0.1.1", 5001))
        near.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
        near.send(bytes(1200))
        assert len(far.recv(2000)) == 1200
        assert plane.bypassed() > 0
        near.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)

        def is_refused() -> bool:
            try:
                near.send(bytes(1200))
            except OSError as error:
                return error.errno == errno.EMSGSIZE
            return False

        wait_until("the sender knows the MTU", is_refused)


LAST_RULE = "\tOWN /* of another package: choose() */\n"
LAST_CASE = "\tcase OWN:\n"
NEW_RULE = "\tcase NTH:\n\t\treturn settings->number % choice->n;\n"


def test_a_new_rule_is_a_case_with_its_parameters_and_a_kind(
    network: Callable[..., RunningNetwork],
    compiled: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Three files: select.h, select.bpf.c and load_balancing/scheme.py, whose table has one entry
    more here."""
    for source in [*libbpf.DIRECTORY.glob("select*.[ch]"), *libbpf.DIRECTORY.glob("*.h")]:
        shutil.copy(source, tmp_path)
    numbers, program = tmp_path / "select.h", tmp_path / "select.bpf.c"
    text = numbers.read_text()
    assert text.count(LAST_RULE) == 1
    numbers.write_text(text.replace(LAST_RULE, "\tOWN,\n\tNTH = 99\n"))
    text = program.read_text()
    assert text.count(LAST_CASE) == 1
    text = text.replace(LAST_CASE, NEW_RULE + LAST_CASE)
    program.write_text(text.replace("\t__u32 gap_us;", "\t__u32 number;\n\t__u32 gap_us;"))
    for name in ("select.bpf.c", "select_blind.bpf.c"):
        compiled(tmp_path / name)
    number = IntegerParameter(meaning="which", least=0, default=0)
    nth = balancing(
        "nth", "the uplink with a number", "nowhere", SelectionRule(99), {"number": number}
    )
    known = {**registry.schemes(), "nth": nth}
    monkeypatch.setattr(registry, "schemes", lambda: known)
    monkeypatch.setattr(libbpf, "DIRECTORY", tmp_path)
    net = network(CLOS, SLOW)
    with DataPlane.load(net, "nth:number=2") as plane:
        plane.attach()
        fabric_ = Fabric(net, plane, plane._program or 0)
        for number in (2, 1):
            plane.set_scheme(f"nth:number={number}")
            before = plane.counters()
            fabric_.put_in(packet())
            assert fabric_.uplinks(before) == [int(i == number) for i in range(4)]


@pytest.mark.parametrize("spec", ["ttc", "drill", "micro", "jsq", "rr:ecn=20"])
def test_a_scheme_that_compares_queues_is_refused_where_there_are_none(
    network: Callable[..., RunningNetwork], spec: str
) -> None:
    net = network("star:n=2", None)
    with pytest.raises(ValueError, match="links without a rate have none; give them a rate"):
        DataPlane.load(net, spec)
    with DataPlane.load(net, "rr") as plane:
        with pytest.raises(ValueError, match="links without a rate have none; give them a rate"):
            plane.set_scheme(spec)
        plane.set_scheme(spec, empty_queues=True)


@pytest.mark.parametrize(("topology", "spec", "said"), [
    (CLOS, "lbsp", "LBSP needs a fat-tree of three tiers"),
    ("fattree:k=4", "lbsp:groups=4", "groups must be a power of two from 2 to k/2 = 2, got 4"),
])  # fmt: skip
def test_lbsp_is_refused_where_it_cannot_part_the_paths(
    network: Callable[..., RunningNetwork], topology: str, spec: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        DataPlane.load(network(topology, None), spec)


def test_what_cannot_be_is_refused_in_one_line(network: Callable[..., RunningNetwork]) -> None:
    net = network("dcell:n=3,k=1", None)
    with pytest.raises(ValueError, match="is no switch fabric"):
        DataPlane.load(net, "ttc")
    with pytest.raises(ValueError, match="did you mean ttc"):
        DataPlane.load(net, "ttcc")
