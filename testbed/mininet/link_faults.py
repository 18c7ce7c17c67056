"""Faults of links of a Lan, as faults.py and degrade.py have them for planned networks."""

from __future__ import annotations

from typing import Any

from weft.testbed.linux import tc
from weft.testbed.linux.live_port import BILLION
from weft.testbed.network.impair import Impairment

MBPS = 1_000_000


def link_by_name(links: list[Any], name: str) -> Any:
    """Return the link called h1-s1, or s1-s2:2 for the second of several.

    Raises:
        ValueError: there is none.
    """
    ends, _, position = name.partition(":")
    a, dash, b = ends.partition("-")
    between = [link for link in links if {link.intf1.node.name, link.intf2.node.name} == {a, b}]
    number = int(position) if position.isdecimal() else 1
    if not dash or (position and not position.isdecimal()) or not 1 <= number <= len(between):
        known = ", ".join(f"{link.intf1.node.name}-{link.intf2.node.name}" for link in links[:3])
        raise ValueError(f"no link {name}: write its two ends, as in {known or 'h1-s1'}")
    return between[number - 1]


def fail(link: Any, *, silent: bool = False, only_to: str | None = None) -> None:
    """Fail a link.

    Args:
        link: Mininet's link.
        silent: drop packets on arrival; otherwise both ends lose their carrier.
        only_to: node at the only end that drops; None: both ends do.

    Raises:
        ValueError: `only_to` is no end of the link, or the failure is not silent.
    """
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
            socket.request([tc.clsact(port.end)])
            socket.request([tc.blackhole(port.end)])
        else:
            port.ifconfig("down")


def restore(link: Any) -> None:
    """Undo fail()."""
    for port in (link.intf1, link.intf2):
        socket = port.lan.spaces[port.node.name].netlink
        tc.unblackhole(socket, port.end)
        port.ifconfig("up")


def has_failed(link: Any) -> bool:
    """Return True if an end of a link is down, or drops packets on arrival."""
    for port in (link.intf1, link.intf2):
        socket = port.lan.spaces[port.node.name].netlink
        if not port.isUp() or port.end.ifindex in tc.blackholes(socket):
            return True
    return False


def impair(link: Any, change: Impairment) -> None:
    """Set loss, delay or rate of a link in both directions."""
    shape = {
        "bw": None if change.rate_bps is None else change.rate_bps / MBPS,
        "max_queue_size": change.queue_packets,
        "loss": None if change.loss_ppb is None else change.loss_ppb * 100 / BILLION,
        "delay": None if change.delay_us is None else f"{change.delay_us}us",
        "jitter": None if change.jitter_us is None else f"{change.jitter_us}us",
    }
    for port in (link.intf1, link.intf2):
        port.shape(**shape)


def set_rate(link: Any, rate_bps: int) -> None:
    """Set the rate of a link in both directions."""
    for port in (link.intf1, link.intf2):
        port.config(bw=rate_bps / MBPS)
