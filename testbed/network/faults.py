"""Links and nodes of an open network fail and are restored.

A link fails at the carrier, as when a cable is pulled, or silently: its interfaces stay up and drop
what arrives.  A node fails by losing its power, or silently: it hangs.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.testbed.linux import clock, netlink, tc
from weft.testbed.network.handle import Handle
from weft.testbed.network.read_back import KernelInterface, interfaces
from weft.testbed.plan.network_plan import set_up


def fail(network: Handle, name: str, *, silent: bool = False, only_to: str | None = None) -> None:
    """Fail the link called `name`, h0-w0: both ends lose their carrier, or, `silent`, packets are
    dropped on arrival.

    only_to: in a silent failure, the one node at which they are dropped; the other direction works.
    Raises ValueError if there is no such link or node.
    """
    topology = network.topology
    ends = network.both_ends(topology.link(name))
    if only_to is not None:
        node = topology.naming.node(only_to)
        if not silent or node not in [at for at, _, _ in ends]:
            raise ValueError(
                f"{only_to}: one way only goes with a silent failure, and must be an end of {name}"
            )
        ends = [end for end in ends if end[0] == node]
    for node, _, end in ends:
        with network.at(node) as socket:
            socket.request([tc.blackhole(end.ifindex, end.dev) if silent else set_up(end, False)])


def restore(network: Handle, name: str) -> None:
    """Undo fail() on the link called `name`, however it failed; ValueError if there is no such
    link."""
    for node, port, end in network.both_ends(network.topology.link(name)):
        with network.at(node) as socket:
            tc.unblackhole(socket, end.ifindex, end.dev)
            if not is_up(network, node, port, socket):
                bring_up(network, node, port, socket)
    clock.let_kernel_work()


def fail_node(network: Handle, name: str, *, silent: bool = False) -> None:
    """Fail the node called `name`: its ports go down, by which the far ends of its links lose their
    carrier; nodes behind a common switch notice nothing at their own ports.

    silent: it hangs: nothing that it sends or that is for it arrives, and carriers stay.
    ValueError if there is no such node.
    """
    node = network.topology.naming.node(name)
    if silent:
        for *_, link in network.topology.ports(node):
            fail(network, network.topology.link_name(link), silent=True)
        return
    with network.at(node) as socket:
        socket.request([set_up(end, False) for end in network.plan.ends[node].values()])


def restore_node(network: Handle, name: str) -> None:
    """Undo fail_node(), and fail() on every link of the node called `name`; ValueError if there is
    none."""
    for *_, link in network.topology.ports(network.topology.naming.node(name)):
        restore(network, network.topology.link_name(link))


@dataclass(frozen=True)
class LinkFaults:
    """What the kernel has of the links of a network.

    failed: those that do not carry packets both ways: an end is down, or drops what arrives.
    mtu_bytes: the MTU of both ends of those whose ends differ, which somebody has set by hand: the
        end with the smaller one drops larger packets on arrival, and tells nobody.
    """

    failed: list[int]
    mtu_bytes: dict[int, tuple[int, int]]


def inspect(network: Handle) -> LinkFaults:
    """Read the state of both ends of every link."""
    held: dict[int, KernelInterface] = {}
    dropping: set[int] = set()
    for node in range(network.topology.nodes):
        with network.at(node) as socket:
            held |= interfaces(socket)
            dropping |= tc.blackholes(socket)
    failed, mtu_bytes = [], {}
    for link in range(len(network.topology.links)):
        near, far = (end.ifindex for _, _, end in network.both_ends(link))
        if not (held[near].up and held[far].up) or {near, far} & dropping:
            failed.append(link)
        if held[near].mtu != held[far].mtu:
            mtu_bytes[link] = held[near].mtu, held[far].mtu
    return LinkFaults(failed, mtu_bytes)


def is_up(network: Handle, node: int, port: int, socket: netlink.Socket) -> bool:
    """Whether `port` of `node` is set up; `socket` is one in its namespace."""
    return interfaces(socket)[network.ifindex(node, port)].up


def take_down(network: Handle, node: int, port: int, socket: netlink.Socket) -> None:
    """Set an interface down, and with it the link."""
    socket.request([set_up(network.plan.ends[node][port], False)])


def bring_up(network: Handle, node: int, port: int, socket: netlink.Socket) -> None:
    """Set an interface up again, with what the kernel forgot when it went down: neighbours, and
    static routes."""
    plan = network.plan
    socket.request([set_up(plan.ends[node][port], True)])
    if network.topology.is_crossbar(node):
        return
    socket.request(plan.neighbours(node, port))
    held = interfaces(socket)
    down = [other for other, end in plan.ends[node].items() if not held[end.ifindex].up]
    socket.request(plan.routes(node, down=down))
