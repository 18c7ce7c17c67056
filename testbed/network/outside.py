"""A way out of a run, to the network of the machine that it is on, by a node that translates
addresses.

A link of a /30 of its own leads from the node to the machine, and whatever leaves by it carries the
node's address there: the machine itself can be reached without any rule in it.  To networks beyond
it leads a table of nftables called weft-RUN in the machine's namespace, which translates once more,
where the machine forwards packets at all.  The link ends with the run's namespaces, the table with
the run; `weft clean` removes it after a run that was killed.
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

# 198.18.0.0/16, half of the block for testing networks (RFC 2544): nobody has it
BLOCK = 198 << 24 | 18 << 16
DEVICE = "out"
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
FIRST_OUTSIDE = 0xF000  # where the indexes of these links lie within a run's slot
TRANSLATE = (
    "table ip {table} {{\n chain out {{\n type nat hook postrouting priority 100;\n "
    "{match} masquerade\n }}\n}}\n"
)
KEY = "outside"  # in the journal: the tables that the run has in the machine's namespace


def connect(run: RunRecord, gateway: netns.Netns, known: Sequence[str]) -> bool:
    """Let the node in the namespace `gateway` of `run` reach the machine's network, and translate
    addresses.

    known: networks of the run, which the node has routes to, and which it translates the addresses
        of.
    Returns whether the machine forwards, so that networks beyond it can be reached, too.  OSError
    for what the kernel or nft refuses.
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
    """Whether this machine forwards packets at all, so that what is beyond it can be reached."""
    return FORWARDING.read_text().strip() == "1"


def disconnect(journal: dict[str, Any]) -> None:
    """Remove the tables that the run of this journal has in the machine's namespace, those that are
    there."""
    for table in journal.get(KEY, []):
        command = ["nft", "delete", "table", "ip", table]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and "No such file" not in done.stderr:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")


def _join(run: RunRecord, gateway: netns.Netns, device: str) -> None:
    """Make the link: one end here, the other in the namespace of the node."""
    home = os.open(netns.OWN, os.O_RDONLY | os.O_CLOEXEC)
    index = (run.slot << 16) + FIRST_OUTSIDE
    peer = plan.IFINFO.pack(0, 0, index + 1, 0, 0) + netlink.text(plan.IFLA_IFNAME, device)
    peer += netlink.u32(plan.IFLA_NET_NS_FD, home)
    data = netlink.nested(plan.IFLA_INFO_DATA, netlink.attribute(plan.VETH_INFO_PEER, peer))
    body = plan.IFINFO.pack(0, 0, index, 0, 0) + netlink.text(plan.IFLA_IFNAME, DEVICE)
    body += netlink.nested(plan.IFLA_LINKINFO, netlink.text(plan.IFLA_INFO_KIND, "veth"), data)
    command = f"ip link add {DEVICE} type veth peer {device}"
    try:
        gateway.netlink.request(
            [netlink.NetlinkMessage(netlink.RTM_NEWLINK, netlink.CREATE, body, command)]
        )
    finally:
        os.close(home)


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
