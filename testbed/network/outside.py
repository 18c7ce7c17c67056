"""Connect a run to the machine's network through a node that translates addresses.

A link with a /30 of its own joins the node to the machine.  Packets on it carry the node's address,
so that the machine needs no rule to answer them.  For networks beyond the machine, the nftables
table weft-RUN in the machine's namespace translates once more, if the machine forwards packets.
The link ends with the run's namespaces, the table with the run; `weft clean` removes it after a
kill.

In a network of routers, servers reach the machine's network beside their own.
Every server has a link of its own to a node that translates addresses, in a namespace of its own,
joined to the machine in this way.  Server n has the address 198.19.0.2 + n on that link.  No
daemon, instrument or fault of the network touches these links.

Packets for the network itself (10.0.0.0/8 and 172.16.0.0/12) never leave by them, even after their
routes are withdrawn, nor do packets to which a daemon has a route.  Policy routing rules ensure
this, for packets of the server's own only; packets that it forwards are looked up as usual.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from weft.testbed.linux import fib, interface, netlink, netns
from weft.testbed.linux.interface import NamedDevice
from weft.testbed.linux.iproute import encoded
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.network.handle import Handle
from weft.testbed.plan.network_plan import NO_IPV6
from weft.testbed.runs.run import RunRecord, write_journal
from weft.topologies.core.address import EVERYTHING, SERVER_BLOCK, SWITCH_BLOCK, Prefix, dotted

# 198.18.0.0/16, lower half of the block for network benchmarks (RFC 2544)
BLOCK = 198 << 24 | 18 << 16
DEVICE = "out"
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
FIRST_OUTSIDE = 0xF000  # first interface index of these links within a run's slot
TRANSLATE = (
    "table ip {table} {{\n chain out {{\n type nat hook postrouting priority 100;\n "
    "{match} masquerade\n }}\n}}\n"
)
KEY = "outside"  # journal entry: the run's tables in the machine's namespace
GATEWAY = "nat"  # name of the node
SERVER_DEVICE = "nat"  # a server's end of its link
# upper half of the block for network benchmarks (RFC 2544)
SERVER_LINKS = Prefix(198 << 24 | 19 << 16, 16)
HUB, FIRST_SERVER = SERVER_LINKS.network + 1, SERVER_LINKS.network + 2
MOST_SERVERS = (1 << 32 - SERVER_LINKS.length) - 3
TABLE = 6330  # routing table, in the servers' namespaces
OWN = (Prefix(SERVER_BLOCK, 8), Prefix(SWITCH_BLOCK, 12))  # the network's own addresses
FIRST_PRIORITY = 100


def connect(run: RunRecord, gateway: netns.Netns, known: Sequence[str]) -> bool:
    """Connect a node to the machine's network, and let it translate addresses.

    Args:
        run: of the node.
        gateway: namespace of the node.
        known: networks of the run; the node has routes to them and translates their addresses.

    Returns:
        True if the machine forwards, so that networks beyond it can be reached.

    Raises:
        OSError: the kernel or nft refused a change.
    """
    outer, inner = (Prefix(BLOCK + 4 * run.slot + host, 30) for host in (1, 2))
    index = (run.slot << 16) + FIRST_OUTSIDE
    inside = NamedDevice(index, DEVICE)
    outside = NamedDevice(index + 1, f"weft{run.slot}")
    _join(gateway, (inside, inner), (outside, outer))
    with netns.inside(gateway.fd):
        netns.write_sysctl("ipv4/ip_forward", "1")
    sources = ", ".join(known)
    _nft(
        TRANSLATE.format(table="weft", match=f"ip saddr {{ {sources} }} oifname {DEVICE}"),
        ["ip", "netns", "exec", gateway.name],
    )
    if not machine_forwards():
        return False
    table = f"weft-{run.id}"
    journal: dict[str, Any] = run.journal
    write_journal(run, journal | {KEY: [table]})
    _nft(
        TRANSLATE.format(
            table=table, match=f"ip saddr {dotted(inner.network)} oifname != {outside.dev}"
        ),
        [],
    )
    return True


def machine_forwards() -> bool:
    """Return True if this machine forwards packets to networks beyond it."""
    return FORWARDING.read_text().strip() == "1"


def disconnect(journal: dict[str, Any]) -> None:
    """Remove the tables of the run with this journal from the machine's namespace."""
    for table in journal.get(KEY, []):
        command = ["nft", "delete", "table", "ip", table]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and "No such file" not in done.stderr:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")


def _join(
    gateway: netns.Netns, inside: tuple[NamedDevice, Prefix], outside: tuple[NamedDevice, Prefix]
) -> None:
    """Create the link with the device and address of each end, and the node's default route."""
    near, far = (interface.veth_side(device) for device, _ in (inside, outside))
    home = os.open(netns.OWN, os.O_RDONLY)
    try:
        gateway.netlink.request([interface.veth(near, far, home, "HOME")])
    finally:
        os.close(home)
    with closing(netlink.Socket()) as machine:
        machine.request([interface.add_address(*outside), interface.set_up(outside[0])])
    default = fib.static_route(EVERYTHING, inside[0], gateway=outside[1].network)
    gateway.netlink.request([interface.add_address(*inside), interface.set_up(inside[0]), default])


def _nft(ruleset: str, before: Sequence[str]) -> None:
    done = subprocess.run(
        [*before, "nft", "-f", "-"], input=ruleset, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"nft: {' '.join(done.stderr.split())}")


def gateway_namespace(run: RunRecord) -> str:
    """Return the name of the namespace of the node that translates."""
    return run.namespace(GATEWAY)


def require_way_out(names: list[str], servers: int) -> None:
    """Raise ValueError if a network of these node names and so many servers cannot be joined."""
    if not shutil.which("nft"):
        raise ValueError("a way out to the machine's network needs nft: apt-get install nftables")
    if GATEWAY in names:
        raise ValueError(
            f"a way out is a node called {GATEWAY}, and this network has one of that name"
        )
    if servers > MOST_SERVERS:
        raise ValueError(f"{servers} servers: {SERVER_LINKS} has addresses for {MOST_SERVERS}")


def connect_servers(network: Handle) -> None:
    """Create the node and the links; the run's journal names its namespace already.

    Raises:
        OSError: the kernel or nft refused a change.
    """
    spaces: list[netns.Netns] = []
    try:
        netns.create([gateway_namespace(network.run)], lambda _: NO_IPV6, spaces)
        (gateway,) = spaces
        gateway.netlink.request(_gateway_changes(network))
        rules = _rules()
        for node in range(network.topology.servers):
            network.spaces[node].netlink.request([*_server_changes(network.run, node), *rules])
        connect(network.run, gateway, [str(SERVER_LINKS)])
    finally:
        for space in spaces:
            space.close()


def _server_index(run: RunRecord, number: int) -> int:
    return (run.slot << 16) + FIRST_OUTSIDE + 2 + number


def _gateway_changes(network: Handle) -> Iterator[NetlinkMessage]:
    """Yield the requests in the node's namespace: its address, links and routes to the servers."""
    yield interface.set_up(interface.LOOPBACK)
    yield interface.add_address(interface.LOOPBACK, Prefix(HUB, 32))
    far = interface.veth_side(NamedDevice(_server_index(network.run, 0), SERVER_DEVICE))
    for node in range(network.topology.servers):
        device = NamedDevice(_server_index(network.run, node), f"to{node}")
        near = interface.veth_side(device, up=True)
        yield interface.veth(near, far, network.netns(node), network.plan.namespace(node))
        yield fib.static_route(Prefix(FIRST_SERVER + node, 32), device)


def _server_changes(run: RunRecord, node: int) -> Iterator[NetlinkMessage]:
    """Yield the requests in a server's namespace: its address, and a default route in TABLE."""
    device = NamedDevice(_server_index(run, 0), SERVER_DEVICE)
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
