"""Filters of packets: classic BPF at sockets and at queueing disciplines, and redirection."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator, Sequence

from weft.testbed.linux import netlink
from weft.testbed.linux.interface import Device
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.linux.tc import HTB, TCA_KIND, TCA_OPTIONS, TCMSG, disciplines

INGRESS_HOOK, EGRESS_HOOK = 0xFFFFFFF2, 0xFFFFFFF3
CONTROL_PORT = 6330  # UDP port of the routing daemons
SO_ATTACH_FILTER = 26
TC_ACT_UNSPEC, TC_ACT_SHOT = 0xFFFFFFFF, 2
BLACKHOLE_PRIORITY, DELAY_PRIORITY = 1, 10
HOOKS = {HTB: "parent 1:", INGRESS_HOOK: "ingress", EGRESS_HOOK: "egress"}  # in tc's language
TCA_ACT_PRIO_1, TCA_ACT_KIND, TCA_ACT_OPTIONS, TCA_MIRRED_PARMS = 1, 1, 2, 2
TCA_U32_SEL, TCA_U32_ACT, TC_ACT_STOLEN, EGRESS_REDIR = 5, 7, 4, 1
TCA_BPF_OPS_LEN, TCA_BPF_OPS, TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT = 4, 5, 8, 1
Instruction = tuple[int, int, int, int]  # of classic BPF: code, jumps if true and if false, operand


def control_packet_program(then: int, otherwise: int) -> list[Instruction]:
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
    program = control_packet_program(HTB, 0)  # 0: no match
    return classic_filter(device, HTB, 1, program, direct=False)


def control_from_daemons(device: Device) -> NetlinkMessage:
    """Return the change that drops imitations of daemons' packets at a node's port to a crossbar.

    In the crossbar they would pass every queue, unshaped.  A packet with CONTROL_PRIORITY does not
    reach the filter: HTB sends it to 1:0 first.
    """
    return classic_filter(device, HTB, 1, control_packet_program(TC_ACT_SHOT, TC_ACT_UNSPEC))


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


def filter_socket(to: socket.socket, program: Sequence[Instruction]) -> None:
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
