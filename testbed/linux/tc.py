"""LinkSpec -> queueing disciplines, packed, read back, and compared.

A shaped port is  root htb 1: -> class 1:10 (rate) -> pfifo (exactly queue_packets).  HTB rather
than TBF, 130 ns a packet dearer, because what is addressed to 1:0 goes ahead of the queue,
unshaped: the routing daemons' few packets, which would otherwise wait behind 250 data packets and
count as lost.  Real routers give their control plane a queue too.

Where switches trim, two classes borrow from one of the rate (1:10 for data, 1:20 for headers), in
turn: ten headers for each packet of data where both wait, so that a header waits for one packet at
the most.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.testbed.linux import clock, netlink
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.link import LinkSpec

TCMSG = struct.Struct("=BxxxiIII")
RATESPEC = struct.Struct("=BBHhHI")
ROOT = 0xFFFFFFFF
CLSACT, INGRESS_HOOK, EGRESS_HOOK = 0xFFFFFFF1, 0xFFFFFFF2, 0xFFFFFFF3
HTB, DATA, FIFO, NETEM = 0x10000, 0x10010, 0x100000, 0x20000
LINK, HEADERS, HEADER_FIFO = 0x10001, 0x10020, 0x200000
HEADER_PRIORITY = HEADERS  # SO_PRIORITY that sends a local packet to the class of headers
HEADER_BYTES, HEADER_SHARE = 64, 10  # of a header; how many go for each packet of data
# SO_PRIORITY that sends a local packet to 1:0; setting it needs CAP_NET_ADMIN
CONTROL_PRIORITY = HTB
BURST_US = 1000
LEAST_BURST_FRAMES = 2
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_HTB_PARMS, TCA_HTB_INIT, TCA_HTB_DIRECT_QLEN, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 2, 5, 6, 7
LINKLAYER_ETHERNET = 1
OWN_BPS = 8  # the least rate that HTB knows
TCA_NETEM_RATE, TCA_NETEM_RATE64, TCA_NETEM_LATENCY64 = 6, 8, 10
# longer than any packet, and long enough for times that are exact to a nanosecond
HOP_CELL_BYTES = 1 << 20
TICK_NS = 64  # unit of a burst on the wire: PSCHED_SHIFT is 6
CONTROL_PORT = 6330  # UDP port of the routing daemons
SO_ATTACH_FILTER = 26
TC_ACT_UNSPEC, TC_ACT_SHOT = 0xFFFFFFFF, 2
BLACKHOLE_PRIORITY, ALTERING_PRIORITY, DELAY_PRIORITY = 1, 2, 10
# of a delay after which filters see the packet: ahead of all but the filter that drops packets
SEEN_DELAY_PRIORITY = 3
DELAYED_MARK = 1 << 31  # on a packet that has been delayed at this node
TCA_BPF_OPS_LEN, TCA_BPF_OPS, TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT = 4, 5, 8, 1


def burst_bytes(rate_bps: int, frame_bytes: int) -> int:
    """What may leave at once: two of the longest frames, or 1 ms worth of the rate if that is more.

    A token bucket must hold a frame; and a timer that fires late, as on a busy machine, costs rate
    unless the bucket holds what was due meanwhile.  Under a virtual clock no timer is late.
    """
    least = LEAST_BURST_FRAMES * frame_bytes
    if clock.is_virtual():
        return least
    return max(least, rate_bps * BURST_US // 8_000_000)


def burst_ns(rate_bps: int, frame_bytes: int) -> int:
    """The burst as the kernel holds it: how long it takes at that rate, in whole ticks."""
    return (
        burst_bytes(rate_bps, frame_bytes) * 1_000_000_000 // (rate_bps // 8) // TICK_NS * TICK_NS
    )


def shape(
    ifindex: int, dev: str, link: LinkSpec, *, burst: int | None = None
) -> list[NetlinkMessage]:
    """The changes that give device `ifindex`, called `dev`, the rate and the queue of `link`.

    burst: bytes that may leave at once, if not burst_bytes().
    """
    init = netlink.attribute(TCA_HTB_INIT, struct.pack("=5I", 3, 10, DATA & 0xFFFF, 0, 0))
    init += netlink.u32(TCA_HTB_DIRECT_QLEN, 1000)
    root = f"tc qdisc add dev {dev} root handle 1: htb default 10 direct_qlen 1000"
    messages = [
        qdisc(ifindex, ROOT, HTB, "htb", init, root),
        *classes(ifindex, dev, link, burst=burst),
    ]
    messages.append(_fifo(ifindex, dev, DATA, FIFO, link.queue_packets))
    if link.trim_packets:
        messages.append(_fifo(ifindex, dev, HEADERS, HEADER_FIFO, link.header_packets))
    return messages


def classes(
    ifindex: int, dev: str, link: LinkSpec, *, burst: int | None = None
) -> list[NetlinkMessage]:
    """The classes among the changes of shape().

    Where switches trim, the rate is that of 1:1, and its classes borrow it, in turn by their
    quanta.  By a rate of its own a class sends when the link has not caught up yet; HTB asks for
    one, which is so small that a packet a minute goes by it, and the first.
    """
    burst = burst_bytes(link.rate_bps, link.frame_bytes) if burst is None else burst
    if not link.trim_packets:
        return [_class(ifindex, dev, HTB, DATA, link.rate_bps, link.rate_bps, burst)]
    return [
        _class(ifindex, dev, HTB, LINK, link.rate_bps, link.rate_bps, burst),
        _class(ifindex, dev, LINK, DATA, OWN_BPS, link.rate_bps, burst, quantum=link.frame_bytes),
        _class(
            ifindex,
            dev,
            LINK,
            HEADERS,
            OWN_BPS,
            link.rate_bps,
            burst,
            quantum=HEADER_SHARE * HEADER_BYTES,
        ),
    ]


def _class(
    ifindex: int,
    dev: str,
    parent: int,
    handle: int,
    rate_bps: int,
    ceil_bps: int,
    burst: int,
    *,
    quantum: int = 1600,
) -> NetlinkMessage:
    """A class of HTB: so much is its own, so much may it have, and `quantum` bytes are its share of
    what it borrows."""
    # HTB sends a packet if the bucket is not overdrawn
    own_burst = burst if rate_bps == ceil_bps else 1
    specs, ticks, rates = b"", [], b""
    limits = ((rate_bps, own_burst, TCA_HTB_RATE64), (ceil_bps, burst, TCA_HTB_CEIL64))
    for bps, may_burst, attribute in limits:
        rate = bps // 8
        specs += RATESPEC.pack(0, LINKLAYER_ETHERNET, 0, 0, 0, min(rate, 0xFFFFFFFF))
        ticks.append(may_burst * 1_000_000_000 // rate // TICK_NS)
        if rate > 0xFFFFFFFF:
            rates += netlink.attribute(attribute, struct.pack("=Q", rate))
    parameters = (
        netlink.attribute(TCA_HTB_PARMS, specs + struct.pack("=5I", *ticks, quantum, 0, 0)) + rates
    )
    words = (
        f"tc class add dev {dev} parent {_name(parent)} classid {_name(handle)} htb "
        f"rate {rate_bps}bit "
    )
    words += f"ceil {ceil_bps}bit " if rate_bps != ceil_bps else ""
    words += f"burst {own_burst} cburst {burst} quantum {quantum}"
    return NetlinkMessage(
        netlink.RTM_NEWTCLASS,
        netlink.CREATE,
        _body(ifindex, parent, handle, "htb", parameters),
        words,
    )


def _fifo(ifindex: int, dev: str, parent: int, handle: int, packets: int) -> NetlinkMessage:
    command = (
        f"tc qdisc add dev {dev} parent {_name(parent)} handle {_name(handle)} pfifo "
        f"limit {packets}"
    )
    return qdisc(ifindex, parent, handle, "pfifo", struct.pack("=I", packets), command)


def _name(handle: int) -> str:
    """A handle as tc writes it."""
    return f"{handle >> 16:x}:" + (f"{handle & 0xFFFF:x}" if handle & 0xFFFF else "")


def of_control_packets(then: int, otherwise: int) -> list[tuple[int, int, int, int]]:
    """The classic BPF program that returns `then` for a packet that looks like a daemon's."""
    return [
        (0x28, 0, 0, 12),  # ldh [12]: EtherType
        (0x15, 0, 6, 0x0800),  # jeq IPv4
        (0x20, 0, 0, 20),  # ld [20]: flags and fragment offset, TTL, protocol
        (0x54, 0, 0, 0xBFFFFFFF),  # and: whether it may be fragmented does not matter
        (0x15, 0, 3, 0x0000FF11),  # jeq no fragment, TTL 255, UDP
        (0x28, 0, 0, 36),  # ldh [36]: destination port, behind a header without options
        (0x15, 0, 1, CONTROL_PORT),
        (0x06, 0, 0, then),
        (0x06, 0, 0, otherwise),
    ]


def control_first(ifindex: int, dev: str) -> NetlinkMessage:
    """The change that sends the daemons' packets that pass through crossbar port `ifindex` ahead of
    its queue.

    (A daemon's own port needs no filter: its socket has CONTROL_PRIORITY, but that is lost on the
    way across a veth.) Nothing else that looks like them gets here: see control_from_daemons().
    """
    program = of_control_packets(HTB, 0)  # 0: no match
    command = f"tc filter add dev {dev} parent 1: prio 1 protocol all bpf bytecode"
    return filter_(ifindex, HTB, 1, "bpf", classic(program), f"{command} '{bytecode(program)}'")


def control_from_daemons(ifindex: int, dev: str) -> NetlinkMessage:
    """The change that drops what looks like a daemon's packet and is not, at a node's port to a
    crossbar: in there it would go ahead of every queue, at no rate.

    What has CONTROL_PRIORITY never gets to the filter: HTB sends it to 1:0 before it asks any.
    """
    program = of_control_packets(TC_ACT_SHOT, TC_ACT_UNSPEC)
    options = classic(program) + netlink.u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT)
    command = f"tc filter add dev {dev} parent 1: prio 1 protocol all bpf da bytecode"
    return filter_(ifindex, HTB, 1, "bpf", options, f"{command} '{bytecode(program)}'")


def is_control(frame: bytes) -> bool:
    """Whether `frame` looks like a daemon's packet, as to the programs here."""
    whole_udp = (
        len(frame) > 42 and frame[12:15] == b"\x08\x00\x45" and frame[20] & 0xBF == frame[21] == 0
    )
    return (
        whole_udp
        and frame[22:24] == b"\xff\x11"
        and frame[36:38] == struct.pack(">H", CONTROL_PORT)
    )


def drop_control(ifindex: int, dev: str, marked: int) -> NetlinkMessage:
    """The change that drops the daemons' packets that arrive at `ifindex`, which has clsact, unless
    their type of service is `marked`."""
    program = [
        (0x30, 0, 0, 15),
        (0x15, 8, 0, marked),
        *of_control_packets(TC_ACT_SHOT, TC_ACT_UNSPEC),
    ]
    options = classic(program) + netlink.u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT)
    command = (
        f"tc filter add dev {dev} ingress prio {ALTERING_PRIORITY} protocol all bpf da bytecode"
    )
    return filter_(
        ifindex, INGRESS_HOOK, ALTERING_PRIORITY, "bpf", options, f"{command} '{bytecode(program)}'"
    )


def pass_control(socket: netlink.Socket, ifindex: int, dev: str) -> None:
    """Undo drop_control()."""
    body = TCMSG.pack(0, ifindex, 0, INGRESS_HOOK, ALTERING_PRIORITY << 16)
    command = f"tc filter del dev {dev} ingress prio {ALTERING_PRIORITY}"
    socket.request([NetlinkMessage(netlink.RTM_DELTFILTER, 0, body, command)])


def routing_first(ifindex: int, dev: str) -> NetlinkMessage:
    """The change that sends what routing protocols say of themselves (IP precedence 6, RFC 791)
    ahead of the queue of port `ifindex`: for daemons that do not know CONTROL_PRIORITY."""
    program = [
        (0x28, 0, 0, 12),  # ldh [12]: EtherType
        (0x15, 0, 4, 0x0800),  # jeq IPv4, else no match
        (0x30, 0, 0, 15),  # ldb [15]: type of service
        (0x54, 0, 0, 0xE0),  # and: precedence
        (0x15, 0, 1, 0xC0),  # jeq internetwork control
        (0x06, 0, 0, HTB),  # ret 1:0
        (0x06, 0, 0, 0),  # ret: no match
    ]
    command = f"tc filter add dev {dev} parent 1: prio 1 protocol all bpf bytecode"
    return filter_(ifindex, HTB, 1, "bpf", classic(program), f"{command} '{bytecode(program)}'")


def blackhole(ifindex: int, dev: str) -> NetlinkMessage:
    """The change that drops what arrives at `ifindex`, which has clsact, while its carrier
    stays."""
    program = [(0x06, 0, 0, TC_ACT_SHOT)]
    options = classic(program) + netlink.u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT)
    command = (
        f"tc filter add dev {dev} ingress prio {BLACKHOLE_PRIORITY} protocol all bpf da bytecode"
    )
    return filter_(
        ifindex,
        INGRESS_HOOK,
        BLACKHOLE_PRIORITY,
        "bpf",
        options,
        f"{command} '{bytecode(program)}'",
    )


def of_socket(to: socket.socket, program: Sequence[tuple[int, int, int, int]]) -> None:
    """Let a socket take only what a classic BPF program lets through."""
    code = ctypes.create_string_buffer(_packed(program))
    to.setsockopt(
        socket.SOL_SOCKET,
        SO_ATTACH_FILTER,
        struct.pack("@HP", len(program), ctypes.addressof(code)),
    )


def classic(program: list[tuple[int, int, int, int]]) -> bytes:
    """A classic BPF program as the options of a cls_bpf filter."""
    packed = _packed(program)
    return netlink.attribute(TCA_BPF_OPS_LEN, struct.pack("=H", len(program))) + netlink.attribute(
        TCA_BPF_OPS, packed
    )


def _packed(program: Sequence[tuple[int, int, int, int]]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def bytecode(program: list[tuple[int, int, int, int]]) -> str:
    """A classic BPF program as tc reads it."""
    return ",".join(
        [str(len(program)), *(" ".join(map(str, instruction)) for instruction in program)]
    )


def delay(ifindex: int, dev: str, delay_us: int, hop_ns: int = 0) -> NetlinkMessage:
    """The change that makes device `ifindex` hold every packet for `delay_us`, however many there
    are.

    hop_ns: how long each packet takes on top of that, whatever its length, one after the other.
    """
    # struct tc_netem_qopt: latency (ticks), limit (packets), loss, gap, duplicate, jitter; the
    # 64-bit latency rules.
    options = struct.pack("=6I", min(delay_us * 1000 // TICK_NS, 0xFFFFFFFF), 1_000_000, 0, 0, 0, 0)
    options += netlink.attribute(TCA_NETEM_LATENCY64, struct.pack("=q", delay_us * 1000))
    command = f"tc qdisc add dev {dev} root handle 2: netem delay {delay_us}us limit 1000000"
    if hop_ns:  # a rate at which every packet counts as one cell
        rate = HOP_CELL_BYTES * 1_000_000_000 // hop_ns
        options += netlink.attribute(
            TCA_NETEM_RATE, struct.pack("=IiIi", min(rate, 0xFFFFFFFF), 0, HOP_CELL_BYTES, 0)
        )
        options += netlink.attribute(TCA_NETEM_RATE64, struct.pack("=Q", rate))
        command += f" rate {8 * rate}bit 0 {HOP_CELL_BYTES}"
    return qdisc(ifindex, ROOT, NETEM, "netem", options, command)


def redirect_arrivals(
    ifindex: int, dev: str, to: int, to_dev: str, *, seen: bool = False
) -> NetlinkMessage:
    """The change that sends whatever arrives at `ifindex`, which has clsact, through device `to`
    (an ifb) first.

    seen: whether filters see the packet again when it comes back, as under the kernel for virtual
        time; elsewhere it goes on to the stack.  It carries a mark then, so that it goes there
        once.
    """
    priority = SEEN_DELAY_PRIORITY if seen else DELAY_PRIORITY
    mirred = struct.pack("=IIiiiiI", 0, 0, 4, 0, 0, 1, to)  # TC_ACT_STOLEN, TCA_EGRESS_REDIR
    # TCA_ACT_OPTIONS, TCA_MIRRED_PARMS
    parameters = netlink.nested(2, netlink.attribute(2, mirred))
    actions = [(netlink.text(1, "mirred"), parameters)]  # TCA_ACT_KIND
    if seen:
        # TCA_SKBEDIT_PARMS: TC_ACT_PIPE
        edit = netlink.attribute(2, struct.pack("=IIiii", 0, 0, 3, 0, 0))
        edit += netlink.u32(5, DELAYED_MARK)  # TCA_SKBEDIT_MARK
        actions.insert(0, (netlink.text(1, "skbedit"), netlink.nested(2, edit)))
    action = b"".join(
        netlink.nested(number, *parts) for number, parts in enumerate(actions, start=1)
    )
    selector = struct.pack("=BBBxHHHhI", 1, 0, 1, 0, 0, 0, 0, 0)  # terminal, one key
    selector += struct.pack("=IIii", 0, 0, 0, 0)  # that every packet has
    # TCA_U32_MARK: unset
    options = netlink.attribute(10, struct.pack("=III", 0, DELAYED_MARK, 0)) if seen else b""
    # TCA_U32_SEL, TCA_U32_ACT
    options += netlink.attribute(5, selector) + netlink.nested(7, action)
    marks = (
        (f" match mark 0 {DELAYED_MARK:#x}", f" action skbedit mark {DELAYED_MARK:#x} pipe")
        if seen
        else ("", "")
    )
    command = (
        f"tc filter add dev {dev} ingress prio {priority} protocol all u32 match u32 "
        f"0 0{marks[0]}{marks[1]}"
    )
    command += f" action mirred egress redirect dev {to_dev}"
    return filter_(ifindex, INGRESS_HOOK, priority, "u32", options, command)


def clsact(ifindex: int, dev: str) -> NetlinkMessage:
    """The change that gives a device its hooks for filters; it does no harm if the device has
    them."""
    return qdisc(
        ifindex,
        CLSACT,
        0xFFFF0000,
        "clsact",
        b"",
        f"tc qdisc replace dev {dev} clsact",
        flags=netlink.REPLACE,
    )


def qdisc(
    ifindex: int,
    parent: int,
    handle: int,
    kind: str,
    options: bytes,
    command: str,
    *,
    flags: int = netlink.CREATE,
) -> NetlinkMessage:
    """A new queueing discipline of `kind` on device `ifindex`."""
    return NetlinkMessage(
        netlink.RTM_NEWQDISC, flags, _body(ifindex, parent, handle, kind, options), command
    )


def filter_(
    ifindex: int, hook: int, priority: int, kind: str, options: bytes, command: str
) -> NetlinkMessage:
    """A new filter of `kind`, for every protocol, on `hook` (a qdisc or one of the hooks of
    clsact)."""
    info = priority << 16 | 0x0300  # ETH_P_ALL in network order
    body = (
        TCMSG.pack(0, ifindex, 0, hook, info)
        + netlink.text(TCA_KIND, kind)
        + netlink.attribute(TCA_OPTIONS, options)
    )
    return NetlinkMessage(netlink.RTM_NEWTFILTER, netlink.CREATE, body, command)


def blackholes(socket: netlink.Socket) -> set[int]:
    """The devices of the socket's namespace that drop what arrives."""
    ifindexes = set()
    for body in socket.dump(netlink.RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0)):
        ifindex = TCMSG.unpack_from(body)[1]
        if netlink.attributes(body, TCMSG.size)[TCA_KIND] == b"clsact\0":
            filters = socket.dump(
                netlink.RTM_GETTFILTER, TCMSG.pack(0, ifindex, 0, INGRESS_HOOK, 0)
            )
            if any(
                TCMSG.unpack_from(body_of_filter)[4] >> 16 == BLACKHOLE_PRIORITY
                for body_of_filter in filters
            ):
                ifindexes.add(ifindex)
    return ifindexes


def unblackhole(socket: netlink.Socket, ifindex: int, dev: str) -> None:
    """Undo blackhole(), whether it was done or not."""
    if ifindex in blackholes(socket):
        body = TCMSG.pack(0, ifindex, 0, INGRESS_HOOK, BLACKHOLE_PRIORITY << 16)
        command = f"tc filter del dev {dev} ingress prio {BLACKHOLE_PRIORITY}"
        socket.request([NetlinkMessage(netlink.RTM_DELTFILTER, 0, body, command)])


def _body(ifindex: int, parent: int, handle: int, kind: str, options: bytes) -> bytes:
    body = TCMSG.pack(0, ifindex, handle, parent, 0) + netlink.text(TCA_KIND, kind)
    return body + netlink.attribute(TCA_OPTIONS, options) if options else body


@dataclass(frozen=True)
class DeviceDisciplines:
    """What the kernel holds for one device: None where it has no such discipline.

    header_packets: that the queue of headers holds, where there is one.
    burst_ns: what may leave at once, as the time that it takes; two shapes may be equal without it.
    """

    rate_bps: int | None
    queue_packets: int | None
    delay_us: int | None
    header_packets: int | None = None
    hop_ns: int = 0
    burst_ns: int = field(default=0, compare=False)

    def __str__(self) -> str:
        headers = "" if self.header_packets is None else f", queue of headers {self.header_packets}"
        return (
            f"rate {self.rate_bps} bit/s, queue {self.queue_packets} packets{headers}, "
            f"delay {self.delay_us} us"
        )


def shapes(socket: netlink.Socket) -> dict[int, DeviceDisciplines]:
    """What every device of the socket's namespace is shaped to, by ifindex, as the kernel tells
    it."""
    rate: dict[int, int] = {}
    burst: dict[int, int] = {}
    queue: dict[int, int] = {}
    headers: dict[int, int] = {}
    delay: dict[int, int] = {}
    hop: dict[int, int] = {}
    for body in socket.dump(netlink.RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0)):
        _, ifindex, handle, _, _ = TCMSG.unpack_from(body)
        attributes = netlink.attributes(body, TCMSG.size)
        kind = attributes[TCA_KIND].rstrip(b"\0")
        if kind == b"pfifo" and handle in (FIFO, HEADER_FIFO):
            (queue if handle == FIFO else headers)[ifindex] = struct.unpack_from(
                "=I", attributes[TCA_OPTIONS]
            )[0]
        elif kind == b"netem":
            options = netlink.attributes(attributes[TCA_OPTIONS], 24)
            delay[ifindex] = struct.unpack("=q", options[TCA_NETEM_LATENCY64])[0] // 1000
            if TCA_NETEM_RATE in options:
                (rate_32,) = struct.unpack_from("=I", options[TCA_NETEM_RATE])
                rate_64 = options.get(TCA_NETEM_RATE64)
                per_s = struct.unpack("=Q", rate_64)[0] if rate_64 else rate_32
                hop[ifindex] = HOP_CELL_BYTES * 1_000_000_000 // per_s if per_s else 0
        elif kind == b"htb":
            rate[ifindex], burst[ifindex] = _rate(socket, ifindex)
    known = rate.keys() | queue.keys() | delay.keys()
    return {
        i: DeviceDisciplines(
            rate.get(i), queue.get(i), delay.get(i), headers.get(i), hop.get(i, 0), burst.get(i, 0)
        )
        for i in known
    }


def _rate(socket: netlink.Socket, ifindex: int) -> tuple[int, int]:
    """Bits per second of device `ifindex`, and the ns that its burst takes: those of its class 1:1,
    else of 1:10, else 0."""
    by_class = {}
    for body in socket.dump(netlink.RTM_GETTCLASS, TCMSG.pack(0, ifindex, 0, 0, 0)):
        by_class[TCMSG.unpack_from(body)[2]] = rate_of_class(body), _burst_of_class(body)
    return by_class.get(LINK, by_class.get(DATA, (0, 0)))


def _burst_of_class(body: bytes) -> int:
    """The ns that the burst of the HTB class takes that a message of type RTM_NEWTCLASS is
    about."""
    options = netlink.attributes(netlink.attributes(body, TCMSG.size)[TCA_OPTIONS])
    return int(TICK_NS * struct.unpack_from("=I", options[TCA_HTB_PARMS], 2 * RATESPEC.size)[0])


def rate_of_class(body: bytes) -> int:
    """Bits per second of the HTB class that a message of type RTM_NEWTCLASS is about."""
    options = netlink.attributes(netlink.attributes(body, TCMSG.size)[TCA_OPTIONS])
    if TCA_HTB_RATE64 in options:
        return 8 * int(struct.unpack("=Q", options[TCA_HTB_RATE64])[0])
    return 8 * int(RATESPEC.unpack_from(options[TCA_HTB_PARMS])[5])
