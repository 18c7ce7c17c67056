"""Connect a run to the machine's network through a node that translates addresses.

A link with a /30 of its own joins the node to the machine.  Packets on it carry the node's address,
so that the machine needs no rule to answer them.  For networks beyond the machine, the nftables
table weft-RUN in the machine's namespace translates once more, if the machine forwards packets.
The link ends with the run's namespaces, the table with the run; `weft clean` removes it after a
kill.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.testbed.linux import netlink, netns
from weft.testbed.plan import network_plan as plan
from weft.testbed.runs.run import RunRecord, write_journal

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
    inner, outer = (_dotted(BLOCK + 4 * run.slot + host) for host in (2, 1))
    device = f"weft{run.slot}"
    _join(run, gateway, device)
    _ip([], "address", "add", f"{outer}/30", "dev", device)
    _ip([], "link", "set", device, "up")
    inside = ["-n", gateway.name]
    _ip(inside, "address", "add", f"{inner}/30", "dev", DEVICE)
    _ip(inside, "link", "set", DEVICE, "up")
    _ip(inside, "route", "replace", "default", "via", outer)
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
    _nft(TRANSLATE.format(table=table, match=f"ip saddr {inner} oifname != {device}"), [])
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


def _join(run: RunRecord, gateway: netns.Netns, device: str) -> None:
    """Create the link: one end in the node's namespace, the other in the machine's."""
    home = os.open(netns.OWN, os.O_RDONLY | os.O_CLOEXEC)
    index = (run.slot << 16) + FIRST_OUTSIDE
    try:
        gateway.netlink.request([veth((index, DEVICE), (index + 1, device), home)])
    finally:
        os.close(home)


def veth(
    near: tuple[int, str], far: tuple[int, str], far_netns: int, *, flags: int = 0
) -> netlink.NetlinkMessage:
    """Return the message that makes a veth pair.

    Args:
        near: index and name of the end in the namespace of the request.
        far: index and name of the other end.
        far_netns: descriptor of the namespace of the other end.
        flags: interface flags of the near end.
    """
    peer = plan.IFINFO.pack(0, 0, far[0], 0, 0) + netlink.text(plan.IFLA_IFNAME, far[1])
    peer += netlink.u32(plan.IFLA_NET_NS_FD, far_netns)
    data = netlink.nested(plan.IFLA_INFO_DATA, netlink.attribute(plan.VETH_INFO_PEER, peer))
    body = plan.IFINFO.pack(0, 0, near[0], flags, flags) + netlink.text(plan.IFLA_IFNAME, near[1])
    body += netlink.nested(plan.IFLA_LINKINFO, netlink.text(plan.IFLA_INFO_KIND, "veth"), data)
    command = f"ip link add {near[1]} type veth peer {far[1]}"
    return netlink.NetlinkMessage(netlink.RTM_NEWLINK, netlink.CREATE, body, command)


def _dotted(address: int) -> str:
    return ".".join(map(str, struct.pack(">I", address)))


def _ip(options: Sequence[str], *words: str) -> None:
    done = subprocess.run(["ip", *options, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join([*options, *words])}: {done.stderr.strip()}")


def _nft(ruleset: str, before: Sequence[str]) -> None:
    done = subprocess.run(
        [*before, "nft", "-f", "-"], input=ruleset, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"nft: {' '.join(done.stderr.split())}")
