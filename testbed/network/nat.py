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
from collections.abc import Iterator
from typing import Any

from weft.testbed.linux import fib, interface, netns
from weft.testbed.linux.interface import NamedDevice
from weft.testbed.linux.iproute import encoded
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.network import outside
from weft.testbed.network.handle import Handle
from weft.testbed.plan.network_plan import NO_IPV6
from weft.testbed.runs.run import RunRecord
from weft.topologies.core.address import EVERYTHING, SERVER_BLOCK, SWITCH_BLOCK, Prefix

GATEWAY = "nat"  # name of the node
DEVICE = "nat"  # a server's end of its link
# upper half of the block for network benchmarks (RFC 2544)
BLOCK = Prefix(198 << 24 | 19 << 16, 16)
HUB, FIRST_SERVER = BLOCK.network + 1, BLOCK.network + 2
MOST_SERVERS = (1 << 32 - BLOCK.length) - 3
TABLE = 6330  # routing table, in the servers' namespaces
OWN = (Prefix(SERVER_BLOCK, 8), Prefix(SWITCH_BLOCK, 12))  # the network's own addresses
FIRST_PRIORITY = 100


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
        netns.create([namespace(network.run)], lambda _: NO_IPV6, spaces)
        (gateway,) = spaces
        gateway.netlink.request(_gateway(network))
        rules = _rules()
        for node in range(network.topology.servers):
            network.spaces[node].netlink.request([*_server(network.run, node), *rules])
        outside.connect(network.run, gateway, [str(BLOCK)])
    finally:
        for space in spaces:
            space.close()


def _index(run: RunRecord, number: int) -> int:
    return (run.slot << 16) + outside.FIRST_OUTSIDE + 2 + number


def _gateway(network: Handle) -> Iterator[NetlinkMessage]:
    """Yield the requests in the node's namespace: its address, links and routes to the servers."""
    yield interface.set_up(interface.LOOPBACK)
    yield interface.add_address(interface.LOOPBACK, Prefix(HUB, 32))
    far = interface.veth_side(NamedDevice(_index(network.run, 0), DEVICE))
    for node in range(network.topology.servers):
        device = NamedDevice(_index(network.run, node), f"to{node}")
        near = interface.veth_side(device, up=True)
        yield interface.veth(near, far, network.netns(node), network.plan.namespace(node))
        yield fib.static_route(Prefix(FIRST_SERVER + node, 32), device)


def _server(run: RunRecord, node: int) -> Iterator[NetlinkMessage]:
    """Yield the requests in a server's namespace: its address, and a default route in TABLE."""
    device = NamedDevice(_index(run, 0), DEVICE)
    address = FIRST_SERVER + node
    yield interface.add_address(device, Prefix(address, 32))
    yield interface.set_up(device)
    yield fib.static_route(EVERYTHING, device, gateway=HUB, source=address, table=TABLE)


def _rules() -> list[NetlinkMessage]:
    """Return the routing rules of every server, in order of priority."""
    rules: list[dict[str, Any]] = [
        *({"dst": f"{prefix}", "table": fib.RT_TABLE_MAIN} for prefix in OWN),
        *({"dst": f"{prefix}", "action": "unreachable"} for prefix in OWN),
        # own packets: by a daemon's route, longer than the default, and then to the way out
        {"iifname": "lo", "table": fib.RT_TABLE_MAIN, "FRA_SUPPRESS_PREFIXLEN": 0},
        {"iifname": "lo", "table": TABLE},
    ]
    return [
        encoded("rule", "add", priority=FIRST_PRIORITY + number, **rule)
        for number, rule in enumerate(rules)
    ]
