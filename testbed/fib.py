"""SetRoute -> the kernel's forwarding table."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from testbed import netlink
from testbed.netlink import Message
from topologies.address import Prefix, dotted

RTMSG = struct.Struct("=BBBBBBBBI")
NDMSG = struct.Struct("=BxxxiHBB")
RTNEXTHOP = struct.Struct("=HBBi")
AF_INET, RT_TABLE_MAIN, RT_SCOPE_UNIVERSE, RTN_UNICAST, RTNH_F_ONLINK = 2, 254, 0, 1, 4
RTPROT_WEFT = 177  # how our routes are known among those of others
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PREFSRC, RTA_MULTIPATH = 1, 4, 5, 7, 9
NDA_DST, NDA_LLADDR, NUD_PERMANENT = 1, 2, 0x80


def route_message(prefix: Prefix, via: Sequence[tuple[int, str, int]], source: int) -> Message:
    """The change that forwards `prefix` to any one of `via`, (ifindex, device, next hop's address) each; packets of our
    own bear the address `source`."""
    flags = RTNH_F_ONLINK if len(via) == 1 else 0  # of several hops each has its own
    body = RTMSG.pack(AF_INET, prefix.length, 0, 0, RT_TABLE_MAIN, RTPROT_WEFT, RT_SCOPE_UNIVERSE, RTN_UNICAST, flags)
    body += struct.pack(">2sHI", b"\x08\x00", RTA_DST << 8, prefix.network) if prefix.length else b""
    body += struct.pack(">2sHI", b"\x08\x00", RTA_PREFSRC << 8, source)
    if len(via) == 1:
        ((ifindex, dev, gateway),) = via
        body += struct.pack("=HHi", 8, RTA_OIF, ifindex) + struct.pack(">2sHI", b"\x08\x00", RTA_GATEWAY << 8, gateway)
        hops = f"via {dotted(gateway)} dev {dev} onlink"
    else:
        hops, packed = "", b""
        for ifindex, dev, gateway in via:
            packed += RTNEXTHOP.pack(16, RTNH_F_ONLINK, 0, ifindex)
            packed += struct.pack(">2sHI", b"\x08\x00", RTA_GATEWAY << 8, gateway)
            hops += f"nexthop via {dotted(gateway)} dev {dev} onlink "
        body += netlink.attribute(RTA_MULTIPATH, packed)
    command = f"ip route replace {prefix} proto {RTPROT_WEFT} src {dotted(source)} {hops}"
    return Message(netlink.RTM_NEWROUTE, netlink.REPLACE, body, command)


def neighbour_message(ifindex: int, dev: str, address: int, mac: bytes) -> Message:
    """The change that makes everybody know for good that `address` is at `mac` behind device `ifindex`."""
    body = NDMSG.pack(AF_INET, ifindex, NUD_PERMANENT, 0, 0)
    body += netlink.attribute(NDA_DST, struct.pack(">I", address)) + netlink.attribute(NDA_LLADDR, mac)
    lladdr = ":".join(f"{byte:02x}" for byte in mac)
    command = f"ip neighbour replace {dotted(address)} lladdr {lladdr} dev {dev} nud permanent"
    return Message(netlink.RTM_NEWNEIGH, netlink.REPLACE, body, command)
