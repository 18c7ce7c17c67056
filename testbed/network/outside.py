"""Connect a run to the machine's network through a node that translates addresses.

A link with a /30 of its own joins the node to the machine.  Packets on it carry the node's address,
so that the machine needs no rule to answer them.  For networks beyond the machine, the nftables
table weft-RUN in the machine's namespace translates once more, if the machine forwards packets.
The link ends with the run's namespaces, the table with the run; `weft clean` removes it after a
kill.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from weft.testbed.linux import fib, interface, netlink, netns
from weft.testbed.linux.interface import NamedDevice
from weft.testbed.runs.run import RunRecord, write_journal
from weft.topologies.core.address import EVERYTHING, Prefix, dotted

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
    home = os.open(netns.OWN, os.O_RDONLY | os.O_CLOEXEC)
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
