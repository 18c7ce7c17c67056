"""Links of a Lan fail, are restored, and carry less: what faults.py and degrade.py do to planned
networks."""

from __future__ import annotations

from typing import Any

from weft.testbed.linux import tc
from weft.testbed.linux.live_port import BILLION
from weft.testbed.network.impair import Impairment

MBPS = 1_000_000


def links_called(links: list[Any], name: str) -> Any:
    """The link called h1-s1, or s1-s2:2 for the second of several; ValueError if there is none."""
    ends, _, which = name.partition(":")
    a, dash, b = ends.partition("-")
    between = [link for link in links if {link.intf1.node.name, link.intf2.node.name} == {a, b}]
    number = int(which) if which.isdecimal() else 1
    if not dash or (which and not which.isdecimal()) or not 1 <= number <= len(between):
        known = ", ".join(f"{link.intf1.node.name}-{link.intf2.node.name}" for link in links[:3])
        raise ValueError(f"no link {name}: write its two ends, as in {known or 'h1-s1'}")
    return between[number - 1]


def fail(link: Any, *, silent: bool = False, only_to: str | None = None) -> None:
    """Fail a link: both ends lose their carrier, or, `silent`, drop what arrives, only at node
    `only_to` if that is given.  ValueError unless that is an end of it."""
    ends = [link.intf1, link.intf2]
    if only_to is not None:
        ends = [port for port in ends if port.node.name == only_to]
        if not silent or not ends:
            raise ValueError(
                f"{only_to}: one way only goes with a silent failure, and must be an end of {link}"
            )
    for port in ends:
        if silent:
            socket = port.lan.spaces[port.node.name].netlink
            socket.request([tc.clsact(port.end.ifindex, port.name)])
            socket.request([tc.blackhole(port.end.ifindex, port.name)])
        else:
            port.ifconfig("down")


def restore(link: Any) -> None:
    """Undo fail()."""
    for port in (link.intf1, link.intf2):
        socket = port.lan.spaces[port.node.name].netlink
        tc.unblackhole(socket, port.end.ifindex, port.name)
        port.ifconfig("up")


def has_failed(link: Any) -> bool:
    """Whether an end of a link is down, or drops what arrives."""
    for port in (link.intf1, link.intf2):
        if not port.isUp() or port.end.ifindex in tc.blackholes(
            port.lan.spaces[port.node.name].netlink
        ):
            return True
    return False


def impair(link: Any, change: Impairment) -> None:
    """Let a link lose or delay packets, or carry less, in both directions."""
    wanted = {
        "bw": None if change.rate_bps is None else change.rate_bps / MBPS,
        "max_queue_size": change.queue_packets,
        "loss": None if change.loss_ppb is None else change.loss_ppb * 100 / BILLION,
        "delay": None if change.delay_us is None else f"{change.delay_us}us",
        "jitter": None if change.jitter_us is None else f"{change.jitter_us}us",
    }
    for port in (link.intf1, link.intf2):
        port.carry(**wanted)


def set_rate(link: Any, rate_bps: int) -> None:
    """Let a link carry so much in both directions."""
    for port in (link.intf1, link.intf2):
        port.config(bw=rate_bps / MBPS)
