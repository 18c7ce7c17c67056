"""Queueing disciplines of links: messages that set them, and their state read back.

A shaped port is  root htb 1: -> class 1:10 (rate) -> pfifo (queue_packets).  HTB takes 130 ns a
packet more than TBF, but packets addressed to 1:0 pass the queue, unshaped.  Those are the routing
daemons' few packets, as real routers have a queue for their control plane.

Where switches trim, two classes borrow from one with the rate (1:10 for data, 1:20 for headers).
Ten headers are sent for each packet of data, so a header waits for at most one packet.

Under the virtual clock a port has one discipline instead, of the kernel that weft builds:
exact_link().  It knows the same classes, and delays packets for the receiver.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from weft.testbed.linux import netlink
from weft.testbed.linux.interface import Device
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.link import LinkSpec

TCMSG = struct.Struct("=BxxxiIII")
RATESPEC = struct.Struct("=BBHhHI")
ROOT = 0xFFFFFFFF
CLSACT, INGRESS_HOOK, EGRESS_HOOK = 0xFFFFFFF1, 0xFFFFFFF2, 0xFFFFFFF3
HTB, DATA, FIFO, NETEM = 0x10000, 0x10010, 0x100000, 0x20000
LINK, HEADERS, HEADER_FIFO = 0x10001, 0x10020, 0x200000
HEADER_PRIORITY = HEADERS  # SO_PRIORITY that sends a local packet to the class of headers
HEADER_BYTES = 64  # size of a header
HEADER_SHARE = 10  # headers sent for each packet of data
# SO_PRIORITY that sends a local packet to 1:0; setting it needs CAP_NET_ADMIN
CONTROL_PRIORITY = HTB
QUEUED_PRIORITY = DATA  # SO_PRIORITY of a daemon's packet that waits in the queue of its port
BURST_US = 1000
LEAST_BURST_FRAMES = 2
TCA_KIND, TCA_OPTIONS, TCA_XSTATS = 1, 2, 4
TCA_HTB_PARMS, TCA_HTB_INIT, TCA_HTB_DIRECT_QLEN, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 2, 5, 6, 7
LINKLAYER_ETHERNET = 1
EXACT_KIND = "weft"
# struct weft_link of sch_weft.c: rate, delay, deviation from it, hop; packets of data and headers
EXACT_LINK = struct.Struct("=4Q2I")
EXACT_COUNTERS = struct.Struct("=Q2I")  # behind it: control packets, drops of data and headers
OWN_BPS = 8  # the least rate that HTB knows
TCA_NETEM_LATENCY64, TCA_NETEM_JITTER64 = 10, 11
TICK_NS = 64  # unit of a burst on the wire: PSCHED_SHIFT is 6
CONTROL_PORT = 6330  # UDP port of the routing daemons
SO_ATTACH_FILTER = 26
TC_ACT_UNSPEC, TC_ACT_SHOT = 0xFFFFFFFF, 2
BLACKHOLE_PRIORITY, DELAY_PRIORITY = 1, 10
HOOKS = {HTB: "parent 1:", INGRESS_HOOK: "ingress", EGRESS_HOOK: "egress"}  # in tc's language
VERBS = {netlink.CREATE: "add", netlink.REPLACE: "replace", 0: "change"}
TCA_ACT_PRIO_1, TCA_ACT_KIND, TCA_ACT_OPTIONS, TCA_MIRRED_PARMS = 1, 1, 2, 2
TCA_U32_SEL, TCA_U32_ACT, TC_ACT_STOLEN, EGRESS_REDIR = 5, 7, 4, 1
TCA_BPF_OPS_LEN, TCA_BPF_OPS, TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT = 4, 5, 8, 1

Instruction = tuple[int, int, int, int]  # of classic BPF: code, jumps if true and if false, operand


def burst_bytes(rate_bps: int, frame_bytes: int) -> int:
    """Return the size of the token bucket: two of the longest frames, or 1 ms at the rate.

    The bucket must hold a frame.  On a busy machine timers fire late, which costs throughput unless
    the bucket holds the bytes due meanwhile.
    """
    return max(LEAST_BURST_FRAMES * frame_bytes, rate_bps * BURST_US // 8_000_000)


def shape(device: Device, link: LinkSpec) -> list[NetlinkMessage]:
    """Return the changes that give a device the rate and queue of `link`."""
    init = netlink.attribute(TCA_HTB_INIT, struct.pack("=5I", 3, 10, DATA & 0xFFFF, 0, 0))
    init += netlink.u32(TCA_HTB_DIRECT_QLEN, 1000)
    messages = [
        qdisc(device, ROOT, HTB, "htb", init, " default 10 direct_qlen 1000"),
        *classes(device, link),
        fifo(device, DATA, FIFO, link.queue_packets),
    ]
    if link.trim_packets:
        messages.append(fifo(device, HEADERS, HEADER_FIFO, link.header_packets))
    return messages


class HtbClass(NamedTuple):
    """A class of HTB.

    rate_bps, burst_bytes: its own.
    quantum_bytes: how much it borrows in a turn.
    """

    parent: int
    handle: int
    rate_bps: int
    burst_bytes: int
    quantum_bytes: int = 1600


def classes(
    device: Device, link: LinkSpec, *, burst: int | None = None, flags: int = netlink.CREATE
) -> list[NetlinkMessage]:
    """Return the changes of shape() that add classes.

    Where switches trim, class 1:1 has the rate, and its classes borrow it in turn, by their quanta.
    HTB demands a rate of its own for each of them; it is so small that it lets one packet a minute
    pass.

    Args:
        device: of the classes.
        link: rate and queues.
        burst: size of the token bucket in bytes, default burst_bytes().
        flags: 0 changes existing classes.
    """
    burst = burst_bytes(link.rate_bps, link.frame_bytes) if burst is None else burst
    if link.trim_packets:
        # HTB sends a packet if the bucket is not overdrawn, so that a byte is enough
        parts = [
            HtbClass(HTB, LINK, link.rate_bps, burst),
            HtbClass(LINK, DATA, OWN_BPS, 1, link.frame_bytes),
            HtbClass(LINK, HEADERS, OWN_BPS, 1, HEADER_SHARE * HEADER_BYTES),
        ]
    else:
        parts = [HtbClass(HTB, DATA, link.rate_bps, burst)]
    return [_class_message(device, part, link.rate_bps, burst, flags) for part in parts]


def _class_message(
    device: Device, part: HtbClass, ceil_bps: int, ceil_burst: int, flags: int
) -> NetlinkMessage:
    """Return the change of a class that borrows up to `ceil_bps`."""
    specs = b""
    ticks = []
    rates = b""
    limits = (
        (part.rate_bps, part.burst_bytes, TCA_HTB_RATE64),
        (ceil_bps, ceil_burst, TCA_HTB_CEIL64),
    )
    for bps, burst, attribute in limits:
        rate = bps // 8
        specs += RATESPEC.pack(0, LINKLAYER_ETHERNET, 0, 0, 0, min(rate, 0xFFFFFFFF))
        ticks.append(burst * 1_000_000_000 // rate // TICK_NS)
        if rate > 0xFFFFFFFF:
            rates += netlink.attribute(attribute, struct.pack("=Q", rate))
    parameters = specs + struct.pack("=5I", *ticks, part.quantum_bytes, 0, 0)
    words = (
        f"tc class {VERBS[flags]} dev {device.dev} parent {_name(part.parent)} "
        f"classid {_name(part.handle)} htb rate {part.rate_bps}bit "
    )
    words += f"ceil {ceil_bps}bit " if part.rate_bps != ceil_bps else ""
    words += f"burst {part.burst_bytes} cburst {ceil_burst} quantum {part.quantum_bytes}"
    options = netlink.attribute(TCA_HTB_PARMS, parameters) + rates
    body = _body(device, part.parent, part.handle, "htb", options)
    return NetlinkMessage(netlink.RTM_NEWTCLASS, flags, body, words)


def fifo(
    device: Device, parent: int, handle: int, packets: int, *, flags: int = netlink.CREATE
) -> NetlinkMessage:
    """Return the change that adds a queue of so many packets; flags 0 changes an existing one."""
    options = struct.pack("=I", packets)
    return qdisc(device, parent, handle, "pfifo", options, f" limit {packets}", flags=flags)


def _name(handle: int) -> str:
    """Return a handle in the notation of tc."""
    return f"{handle >> 16:x}:" + (f"{handle & 0xFFFF:x}" if handle & 0xFFFF else "")


def of_control_packets(then: int, otherwise: int) -> list[Instruction]:
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


def control_first(device: Device) -> NetlinkMessage:
    """Return the change that lets daemons' packets pass the queue of a crossbar's port.

    A daemon's own port needs no filter: its socket has CONTROL_PRIORITY, which a veth does not
    carry.  control_from_daemons() keeps other packets of that format away.
    """
    program = of_control_packets(HTB, 0)  # 0: no match
    return classic_filter(device, HTB, 1, program, direct=False)


def control_from_daemons(device: Device) -> NetlinkMessage:
    """Return the change that drops imitations of daemons' packets at a node's port to a crossbar.

    In the crossbar they would pass every queue, unshaped.  A packet with CONTROL_PRIORITY does not
    reach the filter: HTB sends it to 1:0 first.
    """
    return classic_filter(device, HTB, 1, of_control_packets(TC_ACT_SHOT, TC_ACT_UNSPEC))


def routing_first(device: Device) -> NetlinkMessage:
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
    return classic_filter(device, HTB, 1, program, direct=False)


def blackhole(device: Device) -> NetlinkMessage:
    """Return the change that drops arrivals at a device with clsact; its carrier stays."""
    program = [(0x06, 0, 0, TC_ACT_SHOT)]
    return classic_filter(device, INGRESS_HOOK, BLACKHOLE_PRIORITY, program)


def of_socket(to: socket.socket, program: Sequence[Instruction]) -> None:
    """Attach a classic BPF program to a socket as its filter."""
    code = ctypes.create_string_buffer(_packed(program))
    to.setsockopt(
        socket.SOL_SOCKET,
        SO_ATTACH_FILTER,
        struct.pack("@HP", len(program), ctypes.addressof(code)),
    )


def classic_filter(
    device: Device,
    hook: int,
    priority: int,
    program: Sequence[Instruction],
    *,
    direct: bool = True,
) -> NetlinkMessage:
    """Return the change that adds a filter of classic BPF.

    direct: the program returns an action, otherwise a class.
    """
    options = netlink.attribute(TCA_BPF_OPS_LEN, struct.pack("=H", len(program)))
    options += netlink.attribute(TCA_BPF_OPS, _packed(program))
    if direct:
        options += netlink.u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT)
    instructions = [" ".join(map(str, instruction)) for instruction in program]
    bytecode = ",".join([str(len(program)), *instructions])
    words = f"{'da ' if direct else ''}bytecode '{bytecode}'"
    return filter_(device, hook, priority, "bpf", options, words)


def _packed(program: Sequence[Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def delay(
    device: Device,
    delay_us: int,
    *,
    jitter_us: int = 0,
    flags: int = netlink.CREATE,
) -> NetlinkMessage:
    """Return the change that makes a device delay every packet, without limit on their number.

    Args:
        device: of the packets.
        delay_us: the same for all packets.
        jitter_us: largest deviation from it.  Times are drawn uniformly, and packets overtake
            each other.
        flags: REPLACE changes an existing delay.
    """
    # struct tc_netem_qopt: latency (ticks), limit (packets), loss, gap, duplicate, jitter; the
    # 64-bit times rule.
    ticks = [min(us * 1000 // TICK_NS, 0xFFFFFFFF) for us in (delay_us, jitter_us)]
    options = struct.pack("=6I", ticks[0], 1_000_000, 0, 0, 0, ticks[1])
    options += netlink.attribute(TCA_NETEM_LATENCY64, struct.pack("=q", delay_us * 1000))
    words = f" delay {delay_us}us"
    if jitter_us:
        options += netlink.attribute(TCA_NETEM_JITTER64, struct.pack("=q", jitter_us * 1000))
        words += f" {jitter_us}us"
    words += " limit 1000000"
    return qdisc(device, ROOT, NETEM, "netem", options, words, flags=flags)


def exact_link(device: Device, link: DeviceDisciplines) -> NetlinkMessage:
    """Return the change that makes a veth an exact link to its peer, under the virtual clock.

    A change of an exact link keeps waiting packets.

    link: without a rate the link sends everything at once; without headers these are data.
    """
    delay_us = link.delay_us or 0
    options = EXACT_LINK.pack(
        link.rate_bps or 0,
        1000 * delay_us,
        1000 * link.jitter_us,
        link.hop_ns,
        link.queue_packets or 0,
        link.header_packets or 0,
    )
    return qdisc(device, ROOT, HTB, EXACT_KIND, options, f" {link}", flags=netlink.REPLACE)


def redirect_arrivals(port: Device, ifb: Device) -> NetlinkMessage:
    """Return the change that redirects arrivals at a port with clsact through an ifb."""
    parameters = struct.pack("=IIiiiiI", 0, 0, TC_ACT_STOLEN, 0, 0, EGRESS_REDIR, ifb.ifindex)
    action = netlink.text(TCA_ACT_KIND, "mirred")
    redirect = netlink.attribute(TCA_MIRRED_PARMS, parameters)
    action += netlink.nested(TCA_ACT_OPTIONS, redirect)
    selector = struct.pack("=BBBxHHHhI", 1, 0, 1, 0, 0, 0, 0, 0)  # terminal, one key
    selector += struct.pack("=IIii", 0, 0, 0, 0)  # matches every packet
    options = netlink.attribute(TCA_U32_SEL, selector)
    options += netlink.nested(TCA_U32_ACT, netlink.attribute(TCA_ACT_PRIO_1, action))
    words = f"match u32 0 0 action mirred egress redirect dev {ifb.dev}"
    return filter_(port, INGRESS_HOOK, DELAY_PRIORITY, "u32", options, words)


def clsact(device: Device) -> NetlinkMessage:
    """Return the change that gives a device hooks for filters, unless it has them."""
    return qdisc(device, CLSACT, 0xFFFF0000, "clsact", flags=netlink.REPLACE)


def qdisc(
    device: Device,
    parent: int,
    handle: int,
    kind: str,
    options: bytes = b"",
    words: str = "",
    *,
    flags: int = netlink.CREATE,
) -> NetlinkMessage:
    """Return the change that adds a queueing discipline.

    Args:
        device: of the discipline.
        parent: ROOT, CLSACT or a class.
        handle: of the discipline.
        kind: such as netem.
        options: of that kind.
        words: the options in the language of tc.
        flags: REPLACE, or 0 to change an existing one.
    """
    place = "root" if parent == ROOT else f"parent {_name(parent)}"
    place = "" if parent == CLSACT else f"{place} handle {_name(handle)} "
    command = f"tc qdisc {VERBS[flags]} dev {device.dev} {place}{kind}{words}"
    body = _body(device, parent, handle, kind, options)
    return NetlinkMessage(netlink.RTM_NEWQDISC, flags, body, command)


def filter_(
    device: Device, hook: int, priority: int, kind: str, options: bytes, words: str
) -> NetlinkMessage:
    """Return the change that adds a filter for every protocol at `hook`, a qdisc or of clsact."""
    info = priority << 16 | 0x0300  # ETH_P_ALL in network order
    body = TCMSG.pack(0, device.ifindex, 0, hook, info) + netlink.text(TCA_KIND, kind)
    body += netlink.attribute(TCA_OPTIONS, options)
    command = (
        f"tc filter add dev {device.dev} {HOOKS[hook]} prio {priority} protocol all {kind} {words}"
    )
    return NetlinkMessage(netlink.RTM_NEWTFILTER, netlink.CREATE, body, command)


def remove_filter(device: Device, priority: int, hook: int = INGRESS_HOOK) -> NetlinkMessage:
    """Return the change that removes the filter of that priority at a hook of a device."""
    body = TCMSG.pack(0, device.ifindex, 0, hook, priority << 16)
    command = f"tc filter del dev {device.dev} {HOOKS[hook]} prio {priority}"
    return NetlinkMessage(netlink.RTM_DELTFILTER, 0, body, command)


def filter_options(
    socket: netlink.Socket, ifindex: int, priority: int, hook: int = INGRESS_HOOK
) -> Iterator[dict[int, bytes]]:
    """Yield the options of the filters of a priority at a hook of a device with clsact."""
    for body in socket.dump(netlink.RTM_GETTFILTER, TCMSG.pack(0, ifindex, 0, hook, 0)):
        attributes = netlink.attributes(body, TCMSG.size)
        if TCMSG.unpack_from(body)[4] >> 16 == priority and TCA_OPTIONS in attributes:
            yield netlink.attributes(attributes[TCA_OPTIONS])


class Discipline(NamedTuple):
    """A queueing discipline in the kernel: its device, its handle, its kind, its attributes."""

    ifindex: int
    handle: int
    kind: str
    attributes: dict[int, bytes]


def disciplines(socket: netlink.Socket) -> Iterator[Discipline]:
    """Yield every discipline in the socket's namespace."""
    for body in socket.dump(netlink.RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0)):
        _, ifindex, handle, _, _ = TCMSG.unpack_from(body)
        attributes = netlink.attributes(body, TCMSG.size)
        yield Discipline(ifindex, handle, _kind(attributes), attributes)


def _kind(attributes: Mapping[int, bytes]) -> str:
    return attributes[TCA_KIND].rstrip(b"\0").decode()


def arrival_filters(socket: netlink.Socket, priority: int) -> dict[int, dict[int, bytes]]:
    """Return the options of the filter of that priority for arrivals, by ifindex.

    Devices of the socket's namespace without such a filter are left out.
    """
    by_ifindex = {}
    for ifindex, _, kind, _ in disciplines(socket):
        if kind == "clsact":
            for options in filter_options(socket, ifindex, priority):
                by_ifindex[ifindex] = options
    return by_ifindex


def blackholes(socket: netlink.Socket) -> set[int]:
    """Return the devices of the socket's namespace that drop arrivals."""
    return set(arrival_filters(socket, BLACKHOLE_PRIORITY))


def unblackhole(socket: netlink.Socket, device: Device) -> None:
    """Undo blackhole() if it was done."""
    if device.ifindex in blackholes(socket):
        socket.request([remove_filter(device, BLACKHOLE_PRIORITY)])


def _body(device: Device, parent: int, handle: int, kind: str, options: bytes) -> bytes:
    body = TCMSG.pack(0, device.ifindex, handle, parent, 0) + netlink.text(TCA_KIND, kind)
    return body + netlink.attribute(TCA_OPTIONS, options) if options else body


@dataclass(frozen=True)
class DeviceDisciplines:
    """The kernel's disciplines of one device; None for a missing one.

    header_packets: size of the queue of headers.
    hop_ns: of exact links: further time of each packet at the receiver, one after the other.
    jitter_us: largest deviation from the delay.
    """

    rate_bps: int | None = None
    queue_packets: int | None = None
    delay_us: int | None = None
    header_packets: int | None = None
    hop_ns: int = 0
    jitter_us: int = 0

    def __str__(self) -> str:
        headers = "" if self.header_packets is None else f", queue of headers {self.header_packets}"
        return (
            f"rate {self.rate_bps} bit/s, queue {self.queue_packets} packets{headers}, "
            f"delay {self.delay_us} us"
        )


def shapes(socket: netlink.Socket) -> dict[int, DeviceDisciplines]:
    """Return the shape of every shaped device of the socket's namespace, by ifindex."""
    fields: dict[int, dict[str, int]] = {}
    for ifindex, handle, kind, attributes in disciplines(socket):
        values = _fields(kind, handle, attributes)
        if kind == "htb":
            values = {"rate_bps": _rate(socket, ifindex)}
        if values:
            fields.setdefault(ifindex, {}).update(values)
    return {ifindex: DeviceDisciplines(**known) for ifindex, known in fields.items()}


def _fields(kind: str, handle: int, attributes: Mapping[int, bytes]) -> dict[str, int]:
    """Return the fields of DeviceDisciplines in the attributes of one discipline."""
    if kind == "pfifo" and handle in (FIFO, HEADER_FIFO):
        (packets,) = struct.unpack_from("=I", attributes[TCA_OPTIONS])
        return {"queue_packets" if handle == FIFO else "header_packets": packets}
    if kind == "netem":
        options = netlink.attributes(attributes[TCA_OPTIONS], 24)
        times = {"delay_us": TCA_NETEM_LATENCY64, "jitter_us": TCA_NETEM_JITTER64}
        return {
            name: struct.unpack("=q", options[number])[0] // 1000 for name, number in times.items()
        }
    if kind == EXACT_KIND:
        return _exact_fields(attributes[TCA_XSTATS])
    return {}


def _rate(socket: netlink.Socket, ifindex: int) -> int:
    """Return the bits per second of class 1:1 of a device, else of 1:10, else 0."""
    by_class = {}
    for body in socket.dump(netlink.RTM_GETTCLASS, TCMSG.pack(0, ifindex, 0, 0, 0)):
        by_class[TCMSG.unpack_from(body)[2]] = rate_of_class(body)
    return by_class.get(LINK, by_class.get(DATA, 0))


def rate_of_exact_link(body: bytes) -> int | None:
    """Return the bits per second of an exact link in a message of type RTM_NEWQDISC, else None."""
    attributes = netlink.attributes(body, TCMSG.size)
    if _kind(attributes) != EXACT_KIND:
        return None
    return int(EXACT_LINK.unpack_from(attributes[TCA_XSTATS])[0])


def exact_counters(attributes: Mapping[int, bytes]) -> tuple[int, int, int]:
    """Return control packets and drops of data and of headers, from attributes of an exact link."""
    control, data_drops, header_drops = EXACT_COUNTERS.unpack_from(
        attributes[TCA_XSTATS], EXACT_LINK.size
    )
    return control, data_drops, header_drops


def _exact_fields(state: bytes) -> dict[str, int]:
    """Return the fields of DeviceDisciplines that a discipline of EXACT_KIND has."""
    rate, delay_ns, jitter_ns, hop_ns, packets, headers = EXACT_LINK.unpack_from(state)
    values = {
        "rate_bps": rate,
        "queue_packets": packets,
        "delay_us": delay_ns // 1000,
        "header_packets": headers,
        "hop_ns": hop_ns,
        "jitter_us": jitter_ns // 1000,
    }
    return {name: value for name, value in values.items() if value}


def rate_of_class(body: bytes) -> int:
    """Return the bits per second of the HTB class in a message of type RTM_NEWTCLASS."""
    options = netlink.attributes(netlink.attributes(body, TCMSG.size)[TCA_OPTIONS])
    if TCA_HTB_RATE64 in options:
        return 8 * int(struct.unpack("=Q", options[TCA_HTB_RATE64])[0])
    return 8 * int(RATESPEC.unpack_from(options[TCA_HTB_PARMS])[5])
