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

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from weft.testbed.linux import netlink
from weft.testbed.linux.interface import Device
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.link import LinkSpec

TCMSG = struct.Struct("=BxxxiIII")
RATESPEC = struct.Struct("=BBHhHI")
ROOT = 0xFFFFFFFF
CLSACT = 0xFFFFFFF1
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
VERBS = {netlink.CREATE: "add", netlink.REPLACE: "replace", 0: "change"}


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


TCA_STATS = 3
# struct tc_stats: bytes, packets, drops, of no interest, packets and bytes that wait
TC_STATS = struct.Struct("=QII12xII")


class DisciplineCounters(NamedTuple):
    """Counters of one queueing discipline.

    waiting_packets: in the queue now; likewise waiting_bytes.
    """

    sent_bytes: int
    sent_packets: int
    drops: int
    waiting_packets: int
    waiting_bytes: int


NO_COUNTS = DisciplineCounters(0, 0, 0, 0, 0)


def counters_of(attributes: Mapping[int, bytes]) -> DisciplineCounters:
    """Return the counters in the attributes of a discipline; 0 for one without."""
    if TCA_STATS not in attributes:
        return NO_COUNTS
    return DisciplineCounters._make(TC_STATS.unpack_from(attributes[TCA_STATS]))


def root_counters(socket: netlink.Socket) -> Iterator[tuple[int, DisciplineCounters]]:
    """Yield the interface index and the counters of each device's root discipline."""
    for body in socket.dump(netlink.RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0)):
        _, ifindex, _, parent, _ = TCMSG.unpack_from(body)
        if parent == ROOT:
            yield ifindex, counters_of(netlink.attributes(body, TCMSG.size))
