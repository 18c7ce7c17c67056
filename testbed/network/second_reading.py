"""Compare a whole network in the kernel with its plan by pyroute2, an independent decoder.

pyroute2 decodes the planned messages, and what the kernel lists.  Every field and attribute of a
planned object must have its value in the kernel, where it may have more.  read_back.check()
compares less, in a hundredth of the time.  Routes of daemons are no part of a plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from weft.testbed.linux import netlink
from weft.testbed.linux.iproute import decoded
from weft.testbed.network.handle import Handle

if TYPE_CHECKING:
    from pyroute2 import IPRoute

Message = Any  # as pyroute2 decodes it
ObjectKey = tuple[Any, ...]  # type of a message, and values of KEYS
Planned = tuple[str, Message]  # the command of a change, and the object that it makes
# fields that identify an object of each type
KEYS = {
    netlink.RTM_NEWLINK: ("index",),
    netlink.RTM_NEWADDR: ("index", "IFA_LOCAL"),
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


def wanted(network: Handle) -> dict[int, list[Planned]]:
    """Return the planned objects of each node."""
    plan = network.plan
    by_node: dict[int, list[Planned]] = defaultdict(list)
    for node in plan.nodes:
        for step in (plan.devices, plan.ports, plan.addresses, plan.routes):
            by_node[node] += [(message.command, decoded(message)) for message in step(node)]
    for node, command, end in _ends(network):
        end["attrs"].append(("IFLA_MTU", plan.mtu_bytes))  # no message has the usual one
        by_node[node].append((command, end))
    return by_node


def _ends(network: Handle) -> Iterator[tuple[int, str, Message]]:
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
    for node, planned_objects in sorted(wanted(network).items()):
        name = network.plan.names[node]
        keys = [_key(planned) for _, planned in planned_objects]
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
        objects[_key(message)].append(message)
    return objects


def _key(message: Message) -> ObjectKey:
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
