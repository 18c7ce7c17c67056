"""Queueing disciplines of links: messages that set them, and their state read back.

A shaped port is  root htb 1: -> class 1:10 (rate) -> pfifo (queue_packets).  HTB takes 130 ns a
packet more than TBF, but packets addressed to 1:0 pass the queue, unshaped.  Those are the routing
daemons' few packets, as real routers have a queue for their control plane.

Where switches trim, two classes borrow from one with the rate (1:10 for data, 1:20 for headers).
Ten headers are sent for each packet of data, so a header waits for at most one packet.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Mapping, Sequence
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
HEADER_BYTES = 64  # of a header
HEADER_SHARE = 10  # headers sent for each packet of data
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
    """Return the size of the token bucket: two of the longest frames, or 1 ms at the rate.

    The bucket must hold a frame.  On a busy machine timers fire late, which costs throughput unless
    the bucket holds the bytes due meanwhile.  Under a virtual clock no timer is late.
    """
    least = LEAST_BURST_FRAMES * frame_bytes
    if clock.is_virtual():
        return least
    return max(least, rate_bps * BURST_US // 8_000_000)


def burst_ns(rate_bps: int, frame_bytes: int) -> int:
    """Return the burst as the kernel stores it: its time at that rate, in whole ticks."""
    return (
        burst_bytes(rate_bps, frame_bytes) * 1_000_000_000 // (rate_bps // 8) // TICK_NS * TICK_NS
    )


def shape(
    ifindex: int, dev: str, link: LinkSpec, *, burst: int | None = None
) -> list[NetlinkMessage]:
    """Return the changes that give device `ifindex`, called `dev`, the rate and queue of `link`.

    Args:
        ifindex: of the device.
        dev: its name.
        link: rate and queue.
        burst: size of the token bucket in bytes, default burst_bytes().
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
    """Return the changes of shape() that add classes.

    Where switches trim, class 1:1 has the rate, and its classes borrow it in turn, by their quanta.
    HTB demands a rate of its own for each of them; it is so small that it lets one packet a minute
    pass.
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
    """Return the change that adds a class of HTB, which borrows `quantum` bytes a turn."""
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
    """Return a handle in the notation of tc."""
    return f"{handle >> 16:x}:" + (f"{handle & 0xFFFF:x}" if handle & 0xFFFF else "")


def of_control_packets(then: int, otherwise: int) -> list[tuple[int, int, int, int]]:
    """Return the classic BPF program that returns `then` for a packet in a daemon's format."""
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
    """Return the change that lets daemons' packets pass the queue of crossbar port `ifindex`.

    A daemon's own port needs no filter: its socket has CONTROL_PRIORITY, which a veth does not
    carry.  control_from_daemons() keeps other packets of that format away.
    """
    program = of_control_packets(HTB, 0)  # 0: no match
    command = f"tc filter add dev {dev} parent 1: prio 1 protocol all bpf bytecode"
    return filter_(ifindex, HTB, 1, "bpf", classic(program), f"{command} '{bytecode(program)}'")


def control_from_daemons(ifindex: int, dev: str) -> NetlinkMessage:
    """Return the change that drops imitations of daemons' packets at a node's port to a crossbar.

    In the crossbar they would pass every queue, unshaped.  A packet with CONTROL_PRIORITY does not
    reach the filter: HTB sends it to 1:0 first.
    """
    program = of_control_packets(TC_ACT_SHOT, TC_ACT_UNSPEC)
    options = classic(program) + netlink.u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT)
    command = f"tc filter add dev {dev} parent 1: prio 1 protocol all bpf da bytecode"
    return filter_(ifindex, HTB, 1, "bpf", options, f"{command} '{bytecode(program)}'")


def is_control(frame: bytes) -> bool:
    """Return whether `frame` has the format of a daemon's packet, as the filters here do."""
    whole_udp = (
        len(frame) > 42 and frame[12:15] == b"\x08\x00\x45" and frame[20] & 0xBF == frame[21] == 0
    )
    return (
        whole_udp
        and frame[22:24] == b"\xff\x11"
        and frame[36:38] == struct.pack(">H", CONTROL_PORT)
    )


def drop_control(ifindex: int, dev: str, marked: int) -> NetlinkMessage:
    """Return the change that drops daemons' packets arriving at `ifindex`, which has clsact.

    Packets with the type of service `marked` pass.
    """
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
    """Return the change that lets packets of IP precedence 6 (RFC 791) pass the queue of a port.

    Routing protocols of other suites send with it; they do not use CONTROL_PRIORITY.
    """
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
    """Return the change that drops arrivals at `ifindex`, which has clsact; its carrier stays."""
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
    """Attach a classic BPF program to a socket as its filter."""
    code = ctypes.create_string_buffer(_packed(program))
    to.setsockopt(
        socket.SOL_SOCKET,
        SO_ATTACH_FILTER,
        struct.pack("@HP", len(program), ctypes.addressof(code)),
    )


def classic(program: list[tuple[int, int, int, int]]) -> bytes:
    """Return a classic BPF program as the options of a cls_bpf filter."""
    packed = _packed(program)
    return netlink.attribute(TCA_BPF_OPS_LEN, struct.pack("=H", len(program))) + netlink.attribute(
        TCA_BPF_OPS, packed
    )


def _packed(program: Sequence[tuple[int, int, int, int]]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def bytecode(program: list[tuple[int, int, int, int]]) -> str:
    """Return a classic BPF program in the notation of tc."""
    return ",".join(
        [str(len(program)), *(" ".join(map(str, instruction)) for instruction in program)]
    )


def delay(ifindex: int, dev: str, delay_us: int, hop_ns: int = 0) -> NetlinkMessage:
    """Return the change that makes device `ifindex` delay every packet by `delay_us`.

    Args:
        ifindex: of the device.
        dev: its name.
        delay_us: the same for all packets, without limit on their number.
        hop_ns: further time that each packet takes, one after the other.
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
    """Return the change that redirects arrivals at `ifindex`, which has clsact, through an ifb.

    Args:
        ifindex: of the port.
        dev: its name.
        to: interface index of the ifb.
        to_dev: its name.
        seen: whether filters see the packet again when it returns, as under the kernel for virtual
            time.  It then carries a mark, so that it is redirected once.
    """
    priority = SEEN_DELAY_PRIORITY if seen else DELAY_PRIORITY
    actions = [_redirect_action(to)]
    options = b""
    match_words = mark_words = ""
    if seen:
        actions.insert(0, _mark_action())
        options = netlink.attribute(10, struct.pack("=III", 0, DELAYED_MARK, 0))  # TCA_U32_MARK
        match_words = f" match mark 0 {DELAYED_MARK:#x}"
        mark_words = f" action skbedit mark {DELAYED_MARK:#x} pipe"
    selector = struct.pack("=BBBxHHHhI", 1, 0, 1, 0, 0, 0, 0, 0)  # terminal, one key
    selector += struct.pack("=IIii", 0, 0, 0, 0)  # matches every packet
    options += netlink.attribute(5, selector)  # TCA_U32_SEL
    options += netlink.nested(  # TCA_U32_ACT
        7, *(netlink.nested(number, *parts) for number, parts in enumerate(actions, start=1))
    )
    command = (
        f"tc filter add dev {dev} ingress prio {priority} protocol all u32 match u32 0 0"
        f"{match_words}{mark_words} action mirred egress redirect dev {to_dev}"
    )
    return filter_(ifindex, INGRESS_HOOK, priority, "u32", options, command)


def _redirect_action(ifindex: int) -> tuple[bytes, bytes]:
    parameters = struct.pack("=IIiiiiI", 0, 0, 4, 0, 0, 1, ifindex)  # STOLEN, EGRESS_REDIR
    return _action("mirred", netlink.attribute(2, parameters))  # TCA_MIRRED_PARMS


def _mark_action() -> tuple[bytes, bytes]:
    parameters = netlink.attribute(2, struct.pack("=IIiii", 0, 0, 3, 0, 0))  # PARMS: TC_ACT_PIPE
    return _action("skbedit", parameters + netlink.u32(5, DELAYED_MARK))  # TCA_SKBEDIT_MARK


def _action(kind: str, parameters: bytes) -> tuple[bytes, bytes]:
    return netlink.text(1, kind), netlink.nested(2, parameters)  # TCA_ACT_KIND, TCA_ACT_OPTIONS


def clsact(ifindex: int, dev: str) -> NetlinkMessage:
    """Return the change that gives a device hooks for filters, unless it has them."""
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
    """Return the change that adds a queueing discipline of `kind` to device `ifindex`."""
    return NetlinkMessage(
        netlink.RTM_NEWQDISC, flags, _body(ifindex, parent, handle, kind, options), command
    )


def filter_(
    ifindex: int, hook: int, priority: int, kind: str, options: bytes, command: str
) -> NetlinkMessage:
    """Return the change that adds a filter for every protocol at `hook`, a qdisc or of clsact."""
    info = priority << 16 | 0x0300  # ETH_P_ALL in network order
    body = (
        TCMSG.pack(0, ifindex, 0, hook, info)
        + netlink.text(TCA_KIND, kind)
        + netlink.attribute(TCA_OPTIONS, options)
    )
    return NetlinkMessage(netlink.RTM_NEWTFILTER, netlink.CREATE, body, command)


def blackholes(socket: netlink.Socket) -> set[int]:
    """Return the devices of the socket's namespace that drop arrivals."""
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
    """Undo blackhole() if it was done."""
    if ifindex in blackholes(socket):
        body = TCMSG.pack(0, ifindex, 0, INGRESS_HOOK, BLACKHOLE_PRIORITY << 16)
        command = f"tc filter del dev {dev} ingress prio {BLACKHOLE_PRIORITY}"
        socket.request([NetlinkMessage(netlink.RTM_DELTFILTER, 0, body, command)])


def _body(ifindex: int, parent: int, handle: int, kind: str, options: bytes) -> bytes:
    body = TCMSG.pack(0, ifindex, handle, parent, 0) + netlink.text(TCA_KIND, kind)
    return body + netlink.attribute(TCA_OPTIONS, options) if options else body


@dataclass(frozen=True)
class DeviceDisciplines:
    """The kernel's disciplines of one device; None for a missing one.

    header_packets: size of the queue of headers.
    burst_ns: size of the token bucket as time; not compared.
    """

    rate_bps: int | None = None
    queue_packets: int | None = None
    delay_us: int | None = None
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
    """Return the shape of every shaped device of the socket's namespace, by ifindex."""
    fields: dict[int, dict[str, int]] = {}
    for body in socket.dump(netlink.RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0)):
        _, ifindex, handle, _, _ = TCMSG.unpack_from(body)
        attributes = netlink.attributes(body, TCMSG.size)
        kind = attributes[TCA_KIND].rstrip(b"\0")
        values: dict[str, int] = {}
        if kind == b"pfifo" and handle in (FIFO, HEADER_FIFO):
            (packets,) = struct.unpack_from("=I", attributes[TCA_OPTIONS])
            values["queue_packets" if handle == FIFO else "header_packets"] = packets
        elif kind == b"netem":
            values = _delay_fields(netlink.attributes(attributes[TCA_OPTIONS], 24))
        elif kind == b"htb":
            values["rate_bps"], values["burst_ns"] = _rate(socket, ifindex)
        if values:
            fields.setdefault(ifindex, {}).update(values)
    return {ifindex: DeviceDisciplines(**known) for ifindex, known in fields.items()}


def _delay_fields(options: Mapping[int, bytes]) -> dict[str, int]:
    """Return delay_us, and hop_ns where netem has a rate."""
    values = {"delay_us": struct.unpack("=q", options[TCA_NETEM_LATENCY64])[0] // 1000}
    if TCA_NETEM_RATE in options:
        (rate_32,) = struct.unpack_from("=I", options[TCA_NETEM_RATE])
        rate_64 = options.get(TCA_NETEM_RATE64)
        per_s = struct.unpack("=Q", rate_64)[0] if rate_64 else rate_32
        values["hop_ns"] = HOP_CELL_BYTES * 1_000_000_000 // per_s if per_s else 0
    return values


def _rate(socket: netlink.Socket, ifindex: int) -> tuple[int, int]:
    """Return bits per second and burst in ns of class 1:1 of a device, else of 1:10, else 0."""
    by_class = {}
    for body in socket.dump(netlink.RTM_GETTCLASS, TCMSG.pack(0, ifindex, 0, 0, 0)):
        by_class[TCMSG.unpack_from(body)[2]] = rate_of_class(body), _burst_of_class(body)
    return by_class.get(LINK, by_class.get(DATA, (0, 0)))


def _burst_of_class(body: bytes) -> int:
    """Return the burst, in ns, of the HTB class in a message of type RTM_NEWTCLASS."""
    options = netlink.attributes(netlink.attributes(body, TCMSG.size)[TCA_OPTIONS])
    return int(TICK_NS * struct.unpack_from("=I", options[TCA_HTB_PARMS], 2 * RATESPEC.size)[0])


def rate_of_class(body: bytes) -> int:
    """Return the bits per second of the HTB class in a message of type RTM_NEWTCLASS."""
    options = netlink.attributes(netlink.attributes(body, TCMSG.size)[TCA_OPTIONS])
    if TCA_HTB_RATE64 in options:
        return 8 * int(struct.unpack("=Q", options[TCA_HTB_RATE64])[0])
    return 8 * int(RATESPEC.unpack_from(options[TCA_HTB_PARMS])[5])
