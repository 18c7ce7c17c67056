"""Links and nodes of an open network fail and are restored.

A link fails at the carrier, as when a cable is pulled, or silently: its interfaces stay up and drop
what arrives.  A node fails by losing its power, or silently: it hangs.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.testbed.linux import clock, netlink, tc_filters
from weft.testbed.linux.interface import InterfaceState, interfaces, set_up
from weft.testbed.network.handle import Handle
from weft.testbed.plan.element import (
    Element,
    LinkElement,
    NodeElement,
    only_receiver,
    parse_element,
)
from weft.testbed.plan.network_plan import End


def fail(network: Handle, name: str, *, silent: bool = False, only_to: str | None = None) -> float:
    """Fail the link or node called `name`, h0-w0 or h3.

    Both ends of a failed link lose their carrier.  All ports of a failed node go down, so that
    the far ends of its links lose their carrier; nodes behind a common crossbar do not.

    Args:
        network: the network.
        name: of a link or a node.
        silent: carriers stay, and packets are dropped on arrival, at both ends of each link.
        only_to: in a silent failure of a link, the one end that drops packets.

    Returns:
        The time (s) of CLOCK_MONOTONIC right before the failure.

    Raises:
        ValueError: no such link or node, or `only_to` does not go with them.
    """
    element = parse_element(network.topology, name)
    failed_s = clock.monotonic()
    if only_to is not None:
        receiver = only_receiver(network.topology, element, only_to, silent=silent)
        (link,) = _links(network, element)
        ends = [end for node, _, end in network.both_ends(link) if node == receiver]
        _fail_ends(network, receiver, ends, silent=True)
    elif isinstance(element, NodeElement) and not silent:
        if element.node in network.plan.node_set:
            ports = network.plan.ends[element.node]
            _fail_ends(network, element.node, list(ports.values()), silent=False)
    else:
        for link in _links(network, element):
            for node, _, end in network.both_ends(link):
                _fail_ends(network, node, [end], silent=silent)
    return failed_s


def _fail_ends(network: Handle, node: int, ends: list[End], *, silent: bool) -> None:
    """Set these ports of `node` down; if `silent`, drop what arrives there instead."""
    with network.at(node) as socket:
        socket.request(
            [tc_filters.blackhole(end) if silent else set_up(end, False) for end in ends]
        )


def _links(network: Handle, element: Element) -> list[int]:
    """Return the link, or all links of the node."""
    if isinstance(element, LinkElement):
        return [element.link]
    return [link for *_, link in network.topology.ports(element.node)]


def restore(network: Handle, name: str) -> None:
    """Undo fail() on the link called `name`, or on a node and all its links.

    Raises:
        ValueError: no such link or node.
    """
    for link in _links(network, parse_element(network.topology, name)):
        for node, port, end in network.both_ends(link):
            with network.at(node) as socket:
                tc_filters.unblackhole(socket, end)
                if not interfaces(socket)[end.ifindex].up:
                    bring_up(network, node, port, socket)
        clock.let_kernel_work()


@dataclass(frozen=True)
class LinkFaults:
    """The links of a network that the kernel does not have as planned.

    failed: links that do not carry packets both ways: an end is down, or drops what arrives.
    mtu_bytes: the MTU of both ends, by link, where the two differ because one was changed by hand.
        The end with the smaller MTU drops larger packets on arrival, without an error.
    """

    failed: list[int]
    mtu_bytes: dict[int, tuple[int, int]]


def inspect(network: Handle) -> LinkFaults:
    """Return the state of every link, read at both ends."""
    state: dict[int, InterfaceState] = {}
    dropping: set[int] = set()
    for node in network.local_nodes:
        with network.at(node) as socket:
            state |= interfaces(socket)
            dropping |= tc_filters.blackholes(socket)
    failed = []
    mtu_bytes = {}
    for link in range(len(network.topology.links)):
        indexes = [end.ifindex for _, _, end in network.both_ends(link)]
        if dropping.intersection(indexes) or not all(state[index].up for index in indexes):
            failed.append(link)
        mtus = [state[index].mtu for index in indexes]
        if len(set(mtus)) > 1:
            mtu_bytes[link] = mtus[0], mtus[1]
    return LinkFaults(failed, mtu_bytes)


def bring_up(network: Handle, node: int, port: int, socket: netlink.Socket) -> None:
    """Set an interface up again, with the neighbours and static routes that the kernel removed."""
    plan = network.plan
    socket.request([set_up(plan.ends[node][port])])
    if network.topology.is_crossbar(node):
        return
    socket.request(plan.neighbours(node, port))
    state = interfaces(socket)
    down = [other for other, end in plan.ends[node].items() if not state[end.ifindex].up]
    socket.request(plan.routes(node, down=down))
