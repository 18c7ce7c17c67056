"""What a port carries, changed while packets flow: its rate and queue, what it loses, how long it
delays.

Loss and delay are the wire's: they meet what arrives at the other end, behind rate and queue, and
so a lost packet has taken its time on the link.  Loss is a filter of classic BPF that draws a
32-bit number for each packet; it needs no more than blackhole() of tc.py does.  Delay needs netem,
and is exact there.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from weft.testbed.linux import netlink, tc
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.link import LinkSpec

LOSS_PRIORITY = 2  # behind the filter that drops everything, ahead of all that look at packets
RANDOM = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM: loads a random number
BILLION = 1_000_000_000
TCA_NETEM_JITTER64 = 11
IFINFO = struct.Struct("=BxHiII")
IFLA_MTU = 4


class PortState(NamedTuple):
    """What the kernel holds for what arrives at a port; loss in billionths."""

    loss_ppb: int
    delay_us: int
    jitter_us: int


def set_loss(socket: netlink.Socket, ifindex: int, dev: str, ppb: int) -> None:
    """Let `ifindex`, which has clsact, lose `ppb` of a billion packets that arrive, each on its
    own; 0: none.

    ValueError unless that is a share.
    """
    if not 0 <= ppb <= BILLION:
        raise ValueError(f"{dev}: a loss is 0 to 100 %, got {ppb / 10_000_000:g} %")
    if ifindex in losses(socket):
        body = tc.TCMSG.pack(0, ifindex, 0, tc.INGRESS_HOOK, LOSS_PRIORITY << 16)
        socket.request(
            [
                NetlinkMessage(
                    netlink.RTM_DELTFILTER, 0, body, f"tc filter del dev {dev} ingress prio 2"
                )
            ]
        )
    if ppb:
        socket.request([loss(ifindex, dev, ppb)])


def loss(ifindex: int, dev: str, ppb: int) -> NetlinkMessage:
    """The change that makes `ifindex` lose so much of what arrives."""
    least_kept = -(-(ppb << 32) // BILLION)  # a number below it, of 2**32, means: lost
    if ppb == BILLION:
        program = [(0x06, 0, 0, tc.TC_ACT_SHOT)]
    else:
        program = [
            (0x20, 0, 0, RANDOM),  # ld rand
            (0x35, 1, 0, least_kept),  # jge: kept
            (0x06, 0, 0, tc.TC_ACT_SHOT),
            (0x06, 0, 0, tc.TC_ACT_UNSPEC),  # on to the next filter
        ]
    options = tc.classic(program) + netlink.u32(tc.TCA_BPF_FLAGS, tc.TCA_BPF_FLAG_ACT_DIRECT)
    command = f"tc filter add dev {dev} ingress prio {LOSS_PRIORITY} protocol all bpf da bytecode"
    words = f"{command} '{tc.bytecode(program)}'"
    return tc.filter_(ifindex, tc.INGRESS_HOOK, LOSS_PRIORITY, "bpf", options, words)


def losses(socket: netlink.Socket) -> dict[int, int]:
    """How much of a billion every device of the namespace loses that loses any, by ifindex."""
    by_ifindex = {}
    for body in socket.dump(netlink.RTM_GETQDISC, tc.TCMSG.pack(0, 0, 0, 0, 0)):
        ifindex = tc.TCMSG.unpack_from(body)[1]
        if netlink.attributes(body, tc.TCMSG.size)[tc.TCA_KIND] != b"clsact\0":
            continue
        for filter_body in socket.dump(
            netlink.RTM_GETTFILTER, tc.TCMSG.pack(0, ifindex, 0, tc.INGRESS_HOOK, 0)
        ):
            attributes = netlink.attributes(filter_body, tc.TCMSG.size)
            if (
                tc.TCMSG.unpack_from(filter_body)[4] >> 16 != LOSS_PRIORITY
                or tc.TCA_OPTIONS not in attributes
            ):
                continue
            program = netlink.attributes(attributes[tc.TCA_OPTIONS]).get(tc.TCA_BPF_OPS, b"")
            instructions = list(struct.iter_unpack("=HBBI", program))
            if len(instructions) == 1:
                by_ifindex[ifindex] = BILLION
            elif len(instructions) > 1:
                by_ifindex[ifindex] = instructions[1][3] * BILLION >> 32
    return by_ifindex


def mtus(socket: netlink.Socket) -> dict[int, int]:
    """The MTU of every device of the socket's namespace, by index."""
    by_ifindex = {}
    for body in socket.dump(netlink.RTM_GETLINK, IFINFO.pack(*[0] * 5)):
        (mtu_bytes,) = struct.unpack("=I", netlink.attributes(body, IFINFO.size)[IFLA_MTU])
        by_ifindex[IFINFO.unpack_from(body)[2]] = mtu_bytes
    return by_ifindex


def set_rate(
    socket: netlink.Socket,
    ifindex: int,
    dev: str,
    link: LinkSpec,
    held: tc.DeviceDisciplines | None,
) -> None:
    """Let `ifindex` carry what `link` says from now on.

    held: what the kernel holds for it.  Where it has a rate, packets that wait stay; else it gets a
    queue.  OSError if the kernel holds another rate afterwards.
    """
    if held is None or held.rate_bps is None:
        socket.request(tc.shape(ifindex, dev, link))
    else:
        burst = tc.burst_bytes(link.rate_bps, link.frame_bytes)
        changes = tc.classes(ifindex, dev, link, burst=burst)
        changed = [
            change._replace(flags=0, command=change.command.replace("class add", "class change"))
            for change in changes
        ]
        command = (
            f"tc qdisc change dev {dev} parent 1:10 handle 10: pfifo limit {link.queue_packets}"
        )
        queue = struct.pack("=I", link.queue_packets)
        changed.append(tc.qdisc(ifindex, tc.DATA, tc.FIFO, "pfifo", queue, command, flags=0))
        socket.request(changed)
    now = tc.shapes(socket)[ifindex]
    if abs((now.rate_bps or 0) - link.rate_bps) >= 8 or now.queue_packets != link.queue_packets:
        raise OSError(
            f"{dev}: asked for {link.rate_bps} bit/s, queue {link.queue_packets}, the "
            f"kernel has {now}"
        )


def unlimit(socket: netlink.Socket, ifindex: int, dev: str) -> None:
    """Let `ifindex` be as fast as the machine again; what waited is lost."""
    body = tc.TCMSG.pack(0, ifindex, 0, tc.ROOT, 0)
    socket.request([NetlinkMessage(netlink.RTM_DELQDISC, 0, body, f"tc qdisc del dev {dev} root")])


def set_delay(
    socket: netlink.Socket,
    at: tuple[int, str],
    ifb: tuple[int, str],
    delay_us: int,
    jitter_us: int,
    *,
    seen: bool,
) -> None:
    """Delay what arrives at the port `at` (index, name), which has clsact, by `delay_us`, give or
    take `jitter_us`.

    ifb: index and name of the device that does it, made if it is not there.  seen: see
        tc.redirect_arrivals().
    """
    exists = any(
        IFINFO.unpack_from(body)[2] == ifb[0]
        for body in socket.dump(netlink.RTM_GETLINK, IFINFO.pack(*[0] * 5))
    )
    discipline = netem(*ifb, delay_us, jitter_us, replace=exists)
    if exists:
        socket.request([discipline])
        return
    info = netlink.nested(18, netlink.text(1, "ifb"))  # IFLA_LINKINFO, IFLA_INFO_KIND
    body = IFINFO.pack(0, 0, ifb[0], 1, 1) + netlink.text(3, ifb[1]) + info
    new = NetlinkMessage(
        netlink.RTM_NEWLINK,
        netlink.CREATE,
        body,
        f"ip link add {ifb[1]} up index {ifb[0]} type ifb",
    )
    socket.request([new, discipline, tc.redirect_arrivals(*at, *ifb, seen=seen)])


def netem(
    ifindex: int, dev: str, delay_us: int, jitter_us: int, *, replace: bool = False
) -> NetlinkMessage:
    """The change that makes device `ifindex` hold every packet for `delay_us`, give or take up to
    `jitter_us`.

    Times are drawn uniformly, and packets overtake each other.
    """
    if not jitter_us and not replace:
        return tc.delay(ifindex, dev, delay_us)
    ticks = [min(us * 1000 // tc.TICK_NS, 0xFFFFFFFF) for us in (delay_us, jitter_us)]
    options = struct.pack("=6I", ticks[0], 1_000_000, 0, 0, 0, ticks[1])
    options += netlink.attribute(tc.TCA_NETEM_LATENCY64, struct.pack("=q", delay_us * 1000))
    options += netlink.attribute(TCA_NETEM_JITTER64, struct.pack("=q", jitter_us * 1000))
    verb = "replace" if replace else "add"
    command = (
        f"tc qdisc {verb} dev {dev} root handle 2: netem delay {delay_us}us "
        f"{jitter_us}us limit 1000000"
    )
    flags = netlink.REPLACE if replace else netlink.CREATE
    return tc.qdisc(ifindex, tc.ROOT, tc.NETEM, "netem", options, command, flags=flags)
