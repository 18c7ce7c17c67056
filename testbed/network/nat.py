"""Connect the servers of a network of routers to the machine's network, beside their own network.

Every server has a link of its own to a node that translates addresses, in a namespace of its own,
joined to the machine as in outside.py.  Server n has the address 198.19.0.2 + n on that link.  No
daemon, instrument or fault of the network touches these links.

Packets for the network itself (10.0.0.0/8 and 172.16.0.0/12) never leave by them, even after their
routes are withdrawn, nor do packets to which a daemon has a route.  Policy routing rules ensure
this, for packets of the server's own only; packets that it forwards are looked up as usual.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator

from weft.testbed.linux import fib, netlink, netns
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.network import outside
from weft.testbed.network.handle import Handle
from weft.testbed.plan import network_plan as plan
from weft.testbed.runs.run import RunRecord
from weft.topologies.core.address import SERVER_BLOCK, SWITCH_BLOCK, Prefix, dotted

GATEWAY = "nat"  # name of the node
DEVICE = "nat"  # a server's end of its link
# upper half of the block for network benchmarks (RFC 2544)
BLOCK = Prefix(198 << 24 | 19 << 16, 16)
HUB, FIRST_SERVER = BLOCK.network + 1, BLOCK.network + 2
MOST_SERVERS = (1 << 32 - BLOCK.length) - 3
TABLE = 6330  # routing table, in the servers' namespaces
OWN = (Prefix(SERVER_BLOCK, 8), Prefix(SWITCH_BLOCK, 12))  # the network's own addresses
RTM_NEWRULE, FRA_DST, FRA_IIFNAME, FRA_PRIORITY, FRA_SUPPRESS_PREFIXLEN, FRA_TABLE = (
    32,
    1,
    3,
    6,
    14,
    15,
)
FR_ACT_TO_TBL, FR_ACT_UNREACHABLE = 1, 7
RULE = struct.Struct("=BBBBBBBBI")
FIRST_PRIORITY = 100
RTA_TABLE, RT_TABLE_UNSPEC, RT_SCOPE_LINK, RTPROT_STATIC = 15, 0, 253, 4


def namespace(run: RunRecord) -> str:
    """Return the name of the namespace of the node that translates."""
    return run.namespace(GATEWAY)


def require(names: list[str], servers: int) -> None:
    """Raise ValueError if a network of these node names and so many servers cannot be joined."""
    if not shutil.which("nft"):
        raise ValueError("a way out to the machine's network needs nft: apt-get install nftables")
    if GATEWAY in names:
        raise ValueError(
            f"a way out is a node called {GATEWAY}, and this network has one of that name"
        )
    if servers > MOST_SERVERS:
        raise ValueError(f"{servers} servers: {BLOCK} has addresses for {MOST_SERVERS}")


def make(network: Handle) -> None:
    """Create the node and the links; the run's journal names its namespace already.

    Raises:
        OSError: the kernel or nft refused a change.
    """
    spaces: list[netns.Netns] = []
    try:
        netns.create([namespace(network.run)], lambda _: plan.NO_IPV6, spaces)
        (gateway,) = spaces
        gateway.netlink.request(_gateway(network))
        for node in range(network.topology.servers):
            network.spaces[node].netlink.request(_server(network.run, node))
        outside.connect(network.run, gateway, [str(BLOCK)])
    finally:
        for space in spaces:
            space.close()


def _index(run: RunRecord, number: int) -> int:
    return (run.slot << 16) + outside.FIRST_OUTSIDE + 2 + number


def _up(index: int, device: str) -> NetlinkMessage:
    return NetlinkMessage(
        netlink.RTM_NEWLINK, 0, plan.IFINFO.pack(0, 0, index, 1, 1), f"ip link set {device} up"
    )


def _address(index: int, device: str, address: int) -> NetlinkMessage:
    body = struct.pack("=BBBBI", fib.AF_INET, 32, 0, 0, index)
    packed = struct.pack(">I", address)
    body += netlink.attribute(plan.IFA_LOCAL, packed) + netlink.attribute(plan.IFA_ADDRESS, packed)
    return NetlinkMessage(
        netlink.RTM_NEWADDR,
        netlink.CREATE,
        body,
        f"ip address add {dotted(address)}/32 dev {device}",
    )


def _gateway(network: Handle) -> Iterator[NetlinkMessage]:
    """Yield the requests in the node's namespace: its address, links and routes to the servers."""
    yield _up(plan.LOOPBACK, "lo")
    yield _address(plan.LOOPBACK, "lo", HUB)
    for node in range(network.topology.servers):
        index = _index(network.run, node)
        device = f"to{node}"
        server = _index(network.run, 0), DEVICE
        yield outside.veth((index, device), server, network.netns(node), flags=plan.IFF_UP)
        address = FIRST_SERVER + node
        head = (fib.AF_INET, 32, 0, 0, fib.RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK)
        body = fib.RTMSG.pack(*head, fib.RTN_UNICAST, 0)
        body += netlink.attribute(fib.RTA_DST, struct.pack(">I", address))
        body += netlink.u32(fib.RTA_OIF, index)
        command = f"ip route add {dotted(address)} dev {device}"
        yield NetlinkMessage(netlink.RTM_NEWROUTE, netlink.CREATE, body, command)


def _server(run: RunRecord, node: int) -> Iterator[NetlinkMessage]:
    """Yield the requests in a server's namespace: address, default route in TABLE, and rules."""
    index = _index(run, 0)
    address = FIRST_SERVER + node
    yield _address(index, DEVICE, address)
    yield _up(index, DEVICE)
    head = (fib.AF_INET, 0, 0, 0, RT_TABLE_UNSPEC, RTPROT_STATIC, 0)
    body = fib.RTMSG.pack(*head, fib.RTN_UNICAST, fib.RTNH_F_ONLINK)
    body += netlink.u32(RTA_TABLE, TABLE) + netlink.u32(fib.RTA_OIF, index)
    body += netlink.attribute(fib.RTA_GATEWAY, struct.pack(">I", HUB))
    body += netlink.attribute(fib.RTA_PREFSRC, struct.pack(">I", address))
    command = (
        f"ip route add default via {dotted(HUB)} dev {DEVICE} onlink src "
        f"{dotted(address)} table {TABLE}"
    )
    yield NetlinkMessage(netlink.RTM_NEWROUTE, netlink.CREATE, body, command)
    for number, (to, own_only, table, longer_than) in enumerate(_rules()):
        yield _rule(FIRST_PRIORITY + number, to, table, own_only=own_only, longer_than=longer_than)


def _rules() -> Iterator[tuple[Prefix | None, bool, int | None, int | None]]:
    """Yield the routing rules in order of priority.

    A rule is (destinations, own packets only, table or None for unreachable, prefix length that a
    route in the table must exceed).
    """
    for prefix in OWN:
        yield prefix, False, fib.RT_TABLE_MAIN, None
    for prefix in OWN:
        yield prefix, False, None, None
    yield None, True, fib.RT_TABLE_MAIN, 0
    yield None, True, TABLE, None


def _rule(
    priority: int, to: Prefix | None, table: int | None, *, own_only: bool, longer_than: int | None
) -> NetlinkMessage:
    action = FR_ACT_UNREACHABLE if table is None else FR_ACT_TO_TBL
    body = RULE.pack(fib.AF_INET, to.length if to else 0, 0, 0, 0, 0, 0, action, 0)
    body += netlink.u32(FRA_PRIORITY, priority)
    words = f"ip rule add pref {priority}"
    if to:
        body += netlink.attribute(FRA_DST, struct.pack(">I", to.network))
        words += f" to {to}"
    if own_only:
        body += netlink.text(FRA_IIFNAME, "lo")
        words += " iif lo"
    if table is None:
        return NetlinkMessage(RTM_NEWRULE, netlink.CREATE, body, f"{words} unreachable")
    body += netlink.u32(FRA_TABLE, table)
    words += f" lookup {table}"
    if longer_than is not None:
        body += netlink.u32(FRA_SUPPRESS_PREFIXLEN, longer_than)
        words += f" suppress_prefixlength {longer_than}"
    return NetlinkMessage(RTM_NEWRULE, netlink.CREATE, body, words)
