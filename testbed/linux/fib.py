"""The routes of a daemon in the kernel's forwarding table.

A protocol number tells them from other routes.  They outlive the daemon: a router without its
control plane goes on forwarding, and its neighbours notice by missing hellos.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from weft.daemons.core.actions import Hop, SetRoute
from weft.testbed.linux import netlink
from weft.testbed.linux.interface import Device, NodeInterfaces
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.address import IPV4, AddressFamily, Prefix, dotted

RTMSG = struct.Struct("=BBBBBBBBI")
NDMSG = struct.Struct("=BxxxiHBB")
RTNEXTHOP = struct.Struct("=HBBi")
AF_INET = 2
RT_TABLE_UNSPEC, RT_TABLE_MAIN = 0, 254
RT_SCOPE_UNIVERSE, RT_SCOPE_LINK = 0, 253
RT_SCOPE_NOWHERE = 255  # any, in a removal
RTN_UNICAST, RTN_UNREACHABLE, RTNH_F_ONLINK = 1, 7, 4
RTPROT_STATIC, RTPROT_WEFT = 4, 177  # the protocol number tells our routes from those of others
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PREFSRC, RTA_MULTIPATH, RTA_TABLE = 1, 4, 5, 7, 9, 15
NDA_DST, NDA_LLADDR, NUD_PERMANENT = 1, 2, 0x80


class KernelRoute(NamedTuple):
    """A route in the kernel; hops are (ifindex, next hop's address), none if it is unreachable."""

    prefix: Prefix
    hops: tuple[tuple[int, int], ...]


def route_message(
    prefix: Prefix,
    via: Sequence[tuple[int, str, int]],
    source: int,
    family: AddressFamily = IPV4,
) -> NetlinkMessage:
    """Return the change that sets the route to `prefix`.

    Args:
        prefix: destinations.
        via: (ifindex, device, next hop's address) of each equal hop; empty: unreachable.
        source: source address of this node's own packets.
        family: of the route; all other arguments are in IPv4's addresses.
    """
    if not via:
        return _unreachable(prefix, family)
    flags = RTNH_F_ONLINK if len(via) == 1 else 0  # of several hops each has its own
    body = _header(prefix, RTN_UNICAST, family, flags=flags) + _destination(prefix, family)
    body += netlink.address(RTA_PREFSRC, family.address(source))
    if len(via) == 1:
        ((ifindex, dev, gateway),) = via
        next_hop = family.next_hop(gateway)
        body += netlink.u32(RTA_OIF, ifindex) + netlink.address(RTA_GATEWAY, next_hop)
        hops = f"via {next_hop} dev {dev} onlink"
    else:
        packed, hops = _equal_hops(via, family)
        body += netlink.attribute(RTA_MULTIPATH, packed)
    command = (
        f"ip route replace {family.prefix(prefix)} proto {RTPROT_WEFT} "
        f"src {family.address(source)} {hops}"
    )
    return NetlinkMessage(netlink.RTM_NEWROUTE, netlink.REPLACE, body, command)


def _equal_hops(via: Sequence[tuple[int, str, int]], family: AddressFamily) -> tuple[bytes, str]:
    """Return the hops of a multipath route, packed and as words of `ip route`."""
    packed, words = b"", ""
    for ifindex, dev, gateway in via:
        next_hop = family.next_hop(gateway)
        attribute = netlink.address(RTA_GATEWAY, next_hop)
        packed += RTNEXTHOP.pack(RTNEXTHOP.size + len(attribute), RTNH_F_ONLINK, 0, ifindex)
        packed += attribute
        words += f"nexthop via {next_hop} dev {dev} onlink "
    return packed, words


def static_route(
    prefix: Prefix,
    device: Device,
    *,
    gateway: int | None = None,
    source: int | None = None,
    table: int = RT_TABLE_MAIN,
) -> NetlinkMessage:
    """Return the change that sets a route of no daemon, of any table.

    Args:
        prefix: destinations.
        device: by which they are reached.
        gateway: address of the next hop; None: destinations are at the device itself.
        source: source address of this node's own packets.
        table: routing table.
    """
    scope = RT_SCOPE_LINK if gateway is None else RT_SCOPE_UNIVERSE
    flags = 0 if gateway is None else RTNH_F_ONLINK
    head = (AF_INET, prefix.length, 0, 0, RT_TABLE_UNSPEC, RTPROT_STATIC, scope)
    body = RTMSG.pack(*head, RTN_UNICAST, flags) + _destination(prefix)
    body += netlink.u32(RTA_TABLE, table) + netlink.u32(RTA_OIF, device.ifindex)
    command = f"ip route replace {prefix} dev {device.dev} table {table} proto static"
    if gateway is not None:
        body += netlink.network_u32(RTA_GATEWAY, gateway)
        command += f" via {dotted(gateway)} onlink"
    if source is not None:
        body += netlink.network_u32(RTA_PREFSRC, source)
        command += f" src {dotted(source)}"
    return NetlinkMessage(netlink.RTM_NEWROUTE, netlink.REPLACE, body, command)


def _header(
    prefix: Prefix,
    kind: int,
    family: AddressFamily = IPV4,
    *,
    scope: int = RT_SCOPE_UNIVERSE,
    flags: int = 0,
) -> bytes:
    """Return struct rtmsg of a route of ours."""
    length = family.bits + prefix.length
    head = (family.number, length, 0, 0, RT_TABLE_MAIN, RTPROT_WEFT, scope)
    return RTMSG.pack(*head, kind, flags)


def _destination(prefix: Prefix, family: AddressFamily = IPV4) -> bytes:
    if not family.bits + prefix.length:
        return b""
    return netlink.address(RTA_DST, family.address(prefix.network))


def _unreachable(
    prefix: Prefix, family: AddressFamily = IPV4, *, unless_set: bool = False
) -> NetlinkMessage:
    body = _header(prefix, RTN_UNREACHABLE, family) + _destination(prefix, family)
    verb = "add" if unless_set else "replace"
    command = f"ip route {verb} unreachable {family.prefix(prefix)} proto {RTPROT_WEFT}"
    flags = netlink.CREATE if unless_set else netlink.REPLACE
    return NetlinkMessage(netlink.RTM_NEWROUTE, flags, body, command)


def removal_message(prefix: Prefix) -> NetlinkMessage:
    """Return the change that removes our route to `prefix`, and no other protocol's."""
    body = _header(prefix, 0, scope=RT_SCOPE_NOWHERE)
    command = f"ip route del {prefix} proto {RTPROT_WEFT}"
    return NetlinkMessage(netlink.RTM_DELROUTE, 0, body + _destination(prefix), command)


def neighbour_message(
    ifindex: int, dev: str, address: int, mac: bytes, family: AddressFamily = IPV4
) -> NetlinkMessage:
    """Return the change that sets the permanent neighbour entry of a next hop behind a device."""
    next_hop = family.next_hop(address)
    body = NDMSG.pack(family.number, ifindex, NUD_PERMANENT, 0, 0)
    body += netlink.address(NDA_DST, next_hop) + netlink.attribute(NDA_LLADDR, mac)
    command = f"ip neighbour replace {next_hop} lladdr {mac.hex(':')} dev {dev} nud permanent"
    return NetlinkMessage(netlink.RTM_NEWNEIGH, netlink.REPLACE, body, command)


def routes(
    socket: netlink.Socket, owner: int = RTPROT_WEFT
) -> dict[Prefix, tuple[tuple[int, int], ...]]:
    """Return the hops of each route of a protocol number in the kernel, by prefix."""
    request = RTMSG.pack(AF_INET, 0, 0, 0, RT_TABLE_MAIN, owner, 0, 0, 0)
    dumped = (parse_route(body, owner) for body in socket.dump(netlink.RTM_GETROUTE, request))
    # before 5.0 a kernel lists the routes of all protocols
    return {route.prefix: route.hops for route in dumped if route}


def parse_route(body: bytes, owner: int = RTPROT_WEFT) -> KernelRoute | None:
    """Return the route in a message of type RTM_NEWROUTE or RTM_DELROUTE.

    None if its protocol number is not `owner`.
    """
    _, length, _, _, _, protocol, *_ = RTMSG.unpack_from(body)
    if protocol != owner:
        return None
    attributes = netlink.attributes(body, RTMSG.size)
    network = struct.unpack(">I", attributes[RTA_DST])[0] if RTA_DST in attributes else 0
    return KernelRoute(Prefix(network, length), tuple(route_hops(attributes)))


def route_hops(attributes: Mapping[int, bytes]) -> Iterator[tuple[int, int]]:
    """Yield (ifindex, next hop's address) of each hop of a route with these attributes."""
    if RTA_GATEWAY in attributes:
        (ifindex,) = struct.unpack("=i", attributes[RTA_OIF])
        (gateway,) = struct.unpack(">I", attributes[RTA_GATEWAY])
        yield ifindex, gateway
    multipath = attributes.get(RTA_MULTIPATH, b"")
    offset = 0
    while offset < len(multipath):
        size, _, _, ifindex = RTNEXTHOP.unpack_from(multipath, offset)
        nexthop = netlink.attributes(multipath[offset : offset + size], RTNEXTHOP.size)
        yield ifindex, struct.unpack(">I", nexthop[RTA_GATEWAY])[0]
        offset += (size + 3) & ~3


class KernelFib:
    """The routes of one daemon, wanted and in the kernel.

    wanted: the hops of each prefix that was ever set.
    installed: the number of wanted routes that have a hop.
    """

    def __init__(self, socket: netlink.Socket, interfaces: NodeInterfaces) -> None:
        self.desired: dict[Prefix, tuple[Hop, ...]] = {}
        self.installed = 0
        self._socket = socket
        self._interfaces = interfaces
        self._down: set[int] = set()  # ports whose devices went down
        self._resolved: set[Hop] = set()  # hops whose neighbour entries the kernel holds

    def count(self) -> int:
        """Return the number of routes in the kernel that this daemon or an earlier one has set."""
        return len(routes(self._socket))

    def set(self, changes: Sequence[SetRoute]) -> None:
        """Make the changes, in order and in one batch.

        Raises:
            NetlinkError: for the first refused change; the others were made.
        """
        messages = []
        for change in changes:
            self.installed += bool(change.hops) - bool(self.desired.get(change.prefix))
            self.desired[change.prefix] = change.hops
            if change.unless_set:
                messages.append(_unreachable(change.prefix, unless_set=True))
            else:
                messages += self._messages(change.prefix, change.hops)
        self._socket.request(messages, tolerate=frozenset({errno.EEXIST}))

    def _messages(self, prefix: Prefix, hops: tuple[Hop, ...]) -> list[NetlinkMessage]:
        via, neighbours = [], []
        for hop in hops:
            interface = self._interfaces.ports[hop.port]
            address, mac = interface.neighbours[hop.node]
            via.append((interface.ifindex, interface.dev, address))
            if hop not in self._resolved:
                self._resolved.add(hop)
                neighbours.append(neighbour_message(interface.ifindex, interface.dev, address, mac))
        return [*neighbours, route_message(prefix, via, self._interfaces.address)]

    def device_down(self, port: int) -> None:
        """Handle a port that went down.

        The kernel has removed its routes and neighbour entries, also permanent ones.  The neighbour
        entries come back with the routes.
        """
        self._resolved = {hop for hop in self._resolved if hop.port != port}
        self._down.add(port)

    def device_up(self, port: int) -> bool:
        """Handle a port that is up; return True if routes went when it went down.

        The protocol need not set them again: the neighbour may be back before it has reacted.
        """
        was_down = port in self._down
        self._down.discard(port)
        return was_down

    def reconcile(self) -> list[NetlinkMessage]:
        """Set missing and different routes, and remove unwanted ones of ours.

        Returns:
            The changes.

        Raises:
            NetlinkError: for the first refused change; the others were made.
        """
        installed = routes(self._socket)
        messages = [removal_message(prefix) for prefix in installed if prefix not in self.desired]
        self._resolved.clear()
        for prefix, hops in self.desired.items():
            ports = self._interfaces.ports
            hop_set = {
                (ports[hop.port].ifindex, ports[hop.port].neighbours[hop.node][0]) for hop in hops
            }
            if prefix not in installed or set(installed[prefix]) != hop_set:
                messages += self._messages(prefix, hops)
        # ESRCH: the kernel removed the route itself, with its device, after we had read it.
        self._socket.request(messages, tolerate=frozenset({errno.ESRCH}))
        return messages
