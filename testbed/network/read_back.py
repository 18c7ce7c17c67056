"""Compare a network in the kernel with its plan: interfaces and queues, or all of it by pyroute2.

check() takes a hundredth of the time.  For differences(), pyroute2, an independent decoder, decodes
the planned messages, and what the kernel lists.  Every field and attribute of a planned object must
have its value in the kernel, where it may have more.  Routes of daemons are no part of a plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from weft.testbed.linux import live_port, netlink, tc
from weft.testbed.linux.interface import InterfaceState, interfaces
from weft.testbed.linux.iproute import decoded
from weft.testbed.network.handle import Handle
from weft.testbed.plan.network_plan import End, NetworkPlan, ifb_of
from weft.topologies.core.link import LinkSpec

if TYPE_CHECKING:
    from pyroute2 import IPRoute

RATE_TOLERANCE_BPS = 8  # the kernel counts bytes per second
Message = Any  # as pyroute2 decodes it
ObjectKey = tuple[Any, ...]  # type of a message, and values of KEYS
Planned = tuple[str, Message]  # the command of a change, and the object that it makes
# fields that identify an object of each type
KEYS = {
    netlink.RTM_NEWLINK: ("index",),
    netlink.RTM_NEWADDR: ("index", "IFA_ADDRESS"),
    netlink.RTM_NEWROUTE: ("dst_len", "table", "proto", "RTA_DST"),
    netlink.RTM_NEWNEIGH: ("ifindex", "NDA_DST"),
    netlink.RTM_NEWQDISC: ("index", "parent"),
    netlink.RTM_NEWTCLASS: ("index", "handle"),
    netlink.RTM_NEWTFILTER: ("index", "parent", "info"),
}
# of messages, not of objects; HTB answers with another version
NO_FIELDS = {"header", "event", "state", "change", "flags", "__align", "__pad", "attrs", "version"}
# where a new interface goes and its other end; a number that kernels without RPS do not list;
# attributes that pyroute2 has no name for
NOT_LISTED = {"IFLA_NET_NS_FD", "VETH_INFO_PEER", "IFLA_NUM_RX_QUEUES", "UNKNOWN"}


class Mismatch(RuntimeError):
    """The kernel does not hold what was planned."""


def check(network: Handle) -> None:
    """Raise Mismatch if an interface or queue in the kernel differs from the plan."""
    plan = network.plan
    lossy = any(link.loss_ppb for link in plan.link_specs)
    for node in network.local_nodes:
        with network.at(node) as socket:
            by_index = interfaces(socket)
            shapes = tc.shapes(socket) if plan.link_specs else {}
            losses = live_port.losses(socket) if lossy else {}
        for end in plan.ends[node].values():
            _check_interface(end, by_index.get(end.ifindex), plan)
            link = plan.link_spec(end.link)
            if link is None:
                continue
            shape = shapes.get(end.ifindex)
            if plan.virtual:
                if shape != plan.exact_link(end):
                    raise Mismatch(f"{end.dev}: planned {link}, the kernel has {shape}")
            else:
                _check_queue(end, link, shape)
                _check_delay(end, link, shapes.get(ifb_of(end).ifindex))
            _check_loss(end, link, losses.get(end.ifindex, 0))
            segments = by_index[end.ifindex].gso_max_segs
            if node < network.topology.servers and segments != 1:
                raise Mismatch(f"{end.dev}: planned gso_max_segs 1, the kernel has {segments}")


def _check_interface(end: End, interface: InterfaceState | None, plan: NetworkPlan) -> None:
    if interface is None or interface.name != end.dev or not interface.up:
        raise Mismatch(
            f"{end.dev}: planned up with index {end.ifindex}, the kernel has {interface}"
        )
    if interface.mtu != plan.mtu_bytes:
        raise Mismatch(
            f"{end.dev}: planned an MTU of {plan.mtu_bytes}, the kernel has {interface.mtu}"
        )
    tunnel = plan.tunnel_of(end.link)
    if interface.tunnel != tunnel:
        raise Mismatch(f"{end.dev}: planned the tunnel {tunnel}, the kernel has {interface.tunnel}")


def _check_queue(end: End, link: LinkSpec, shape: tc.DeviceDisciplines | None) -> None:
    if (
        shape is None
        or abs((shape.rate_bps or 0) - link.rate_bps) >= RATE_TOLERANCE_BPS
        or shape.queue_packets != link.queue_packets
        or shape.header_packets != (link.header_packets if link.trim_packets else None)
    ):
        raise Mismatch(f"{end.dev}: planned {link}, the kernel has {shape}")


def _check_delay(end: End, link: LinkSpec, ifb: tc.DeviceDisciplines | None) -> None:
    """Check the delay of packets that arrive at `end`, by its ifb."""
    if link.delay_us and ifb and ifb.delay_us != link.delay_us:
        raise Mismatch(f"{end.dev}: planned {link}, the kernel delays packets by {ifb.delay_us} us")


def _check_loss(end: End, link: LinkSpec, loss_ppb: int) -> None:
    """Check the loss of packets that arrive at `end`."""
    if abs(loss_ppb - link.loss_ppb) > 1:
        raise Mismatch(f"{end.dev}: planned {link}, the kernel loses {loss_ppb} of a billion")


def expected_objects(network: Handle) -> dict[int, list[Planned]]:
    """Return the planned objects of each node."""
    plan = network.plan
    by_node: dict[int, list[Planned]] = defaultdict(list)
    for node in plan.nodes:
        for step in (plan.devices, plan.ports, plan.addresses, plan.routes):
            by_node[node] += [(message.command, decoded(message)) for message in step(node)]
    for node, command, end in _end_messages(network):
        end["attrs"].append(("IFLA_MTU", plan.mtu_bytes))  # no message has the usual one
        by_node[node].append((command, end))
    return by_node


def _end_messages(network: Handle) -> Iterator[tuple[int, str, Message]]:
    """Yield each end of a link on this machine: its node, the command, and the end."""
    plan = network.plan
    for link in plan.links:
        near, _, far, _ = plan.orientation(link)
        message = plan.veth(link, 0)
        planned = decoded(message)
        peer = planned.get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA", "VETH_INFO_PEER")
        peer["header"] = planned["header"]
        yield near, message.command, planned
        yield far, message.command, peer
    for node, port, _ in plan.cut_ends:
        message = plan.tunnel(node, port, 0)
        yield node, message.command, decoded(message)


def differences(network: Handle) -> Iterator[str]:
    """Yield a line for each planned object that the kernel lacks or has with other values.

    The line has the command that makes the object.
    """
    for node, planned_objects in sorted(expected_objects(network).items()):
        name = network.plan.names[node]
        keys = [_object_key(planned) for _, planned in planned_objects]
        objects = _objects(network[name].ip, keys)
        for (command, planned), key in zip(planned_objects, keys, strict=True):
            reasons = [_difference(planned, present) for present in objects[key]]
            if "" not in reasons:
                reason = reasons[0] if reasons else "the kernel has none"
                yield f"{name}: {command}: {reason}"


def _objects(ip: IPRoute, keys: Iterable[ObjectKey]) -> dict[ObjectKey, list[Message]]:
    """Return the objects in a namespace by key; classes and filters where `keys` have some."""
    lists = [
        ip.get_links(),
        ip.get_addr(),
        ip.get_routes(),
        ip.get_neighbours(),
        ip.get_qdiscs(),
    ]
    for kind, *places in sorted({key[:3] for key in keys}):
        if kind == netlink.RTM_NEWTFILTER:
            index, parent = places
            lists.append(ip.get_filters(index=index, parent=parent))
    with_classes = {key[1] for key in keys if key[0] == netlink.RTM_NEWTCLASS}
    lists += [ip.get_classes(index=index) for index in with_classes]
    objects: dict[ObjectKey, list[Message]] = defaultdict(list)
    for message in chain.from_iterable(lists):
        objects[_object_key(message)].append(message)
    return objects


def _object_key(message: Message) -> ObjectKey:
    kind = message["header"]["type"]
    return kind, *(message.get(name) for name in KEYS.get(kind, ()))


def _difference(planned: Any, present: Any) -> str:
    """Return in which field or attribute `present` differs from `planned`; "" if in none.

    Fields of `planned` that are 0 are not compared: the kernel chooses their values.
    """
    if isinstance(planned, list) and isinstance(present, list) and len(planned) == len(present):
        return next(filter(None, map(_difference, planned, present)), "")
    if not isinstance(planned, Mapping):
        # what is off, and not listed, is a feature that the kernel lacks
        same = planned == present or (planned == 0 and present is None)
        return "" if same else f"is {present}, planned {planned}"
    present = present or {}
    flags, present_flags = planned.get("flags", 0), present.get("flags", 0)
    mask = planned.get("change", flags)
    if (flags ^ present_flags) & mask:
        return f"flags are {present_flags:#x}, planned {flags:#x} of {mask:#x}"
    for name, value in _parts(planned):
        if reason := _difference(value, present.get(name)):
            return f"{name} {reason}"
    return ""


def _parts(planned: Message) -> list[tuple[str, Any]]:
    """Return the fields and attributes to compare, by name."""
    fields = {name: value for name, value in planned.items() if value and name not in NO_FIELDS}
    if planned.get("header") and planned["header"]["type"] == netlink.RTM_NEWTCLASS:
        fields.pop("parent")  # where that is the discipline the kernel answers with root
    attributes = [
        (name, value)
        for name, value in planned.get("attrs", ())
        # options that stay packed are of a kind that pyroute2 does not know
        if name not in NOT_LISTED and not (name == "TCA_OPTIONS" and isinstance(value, str))
    ]
    return [*fields.items(), *attributes]
