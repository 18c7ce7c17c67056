"""Differences between a running network and a lab, and the removal of those that links have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.testbed.labs.lab_file import Lab, link_keys
from weft.testbed.labs.running_lab import lab_of
from weft.testbed.network import faults
from weft.testbed.network.impair import Impairment
from weft.testbed.network.network import RunningNetwork
from weft.topologies.core.link import LinkSpec

FIELDS = ("rate_bps", "queue_packets", "delay_us", "loss_ppb")
FIXED_FIELDS = {"trim": "trim_packets", "mtu": "mtu_bytes"}  # by key of a lab


@dataclass(frozen=True)
class LinkChange:
    """A link called `name`, as it is and as it shall be."""

    name: str
    before: LinkSpec | None
    after: LinkSpec

    def impairment(self) -> Impairment:
        """Return the fields that differ."""
        before = {field: getattr(self.before, field, 0) for field in FIELDS}  # 0: no rate before
        after = {field: getattr(self.after, field) for field in FIELDS}
        return Impairment(**{key: after[key] for key in FIELDS if after[key] != before[key]})

    def row(self) -> dict[str, Any]:
        """Return the link, and the keys of a lab that differ before and after; JSON-able."""
        before = link_keys(self.before) if self.before else {}
        after = link_keys(self.after)
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        return {
            "link": self.name,
            "before": {key: before.get(key) for key in keys},
            "after": {key: after.get(key) for key in keys},
        }

    def __str__(self) -> str:
        row = self.row()
        before, after = row["before"], row["after"]
        words = {None: "none"}
        parts = [
            f"{key} {words.get(value, value)} -> {words.get(after[key], after[key])}"
            for key, value in before.items()
        ]
        return f"{self.name}: {', '.join(parts)}"


def link_of(lab: Lab, link: int) -> LinkSpec | None:
    """Return the specification of a link of a lab; None: as fast as the machine."""
    host_link = lab.host_link if lab.topology.level[link] == 0 else None
    return lab.own_links.get(link) or host_link or lab.link


@dataclass(frozen=True)
class LinkStateChange:
    """A link called `name` that the lab has and that has failed, or that the lab lacks."""

    name: str
    up: bool

    def row(self) -> dict[str, Any]:
        """Return the link, and its state before and after; JSON-able."""
        states = [{"state": "up" if up else "down"} for up in (not self.up, self.up)]
        return {"link": self.name, "before": states[0], "after": states[1]}

    def __str__(self) -> str:
        return f"{self.name}: down -> up" if self.up else f"{self.name}: up -> down"


@dataclass(frozen=True)
class FixedChange:
    """A difference that only a new network removes.

    kind: "run", "node" or "link", of what is called `name`.
    key, before, after: what differs; None: there is none.
    """

    kind: str
    name: str
    key: str
    before: Any
    after: Any

    def row(self) -> dict[str, Any]:
        """Return what differs, before and after; JSON-able."""
        before, after = {self.key: self.before}, {self.key: self.after}
        return {self.kind: self.name, "before": before, "after": after, "replaces": True}

    def __str__(self) -> str:
        before, after = ("none" if value is None else value for value in (self.before, self.after))
        return f"{self.name}: {self.key} {before} -> {after}"


Change = LinkChange | LinkStateChange | FixedChange


def changes(network: RunningNetwork, lab: Lab, *, replace: bool = False) -> list[Change]:
    """Return the changes after which `network` is that of `lab`.

    Links that the lab lacks fail, also all those of nodes that it lacks; failed ones that it has
    are restored.

    Args:
        network: the run.
        lab: the file, with the options of the run; see running_lab.with_options_of().
        replace: a new network may take the place of the run, without what the lab lacks.

    Raises:
        ValueError: a link has a rate now and none in the lab, and the run is not replaced.
    """
    running = lab_of(network)
    differing: list[Change] = []
    if running.scheme != lab.scheme:
        differing.append(FixedChange("run", network.run.id, "scheme", running.scheme, lab.scheme))
    counterparts, new_links = _counterparts(running, lab)
    differing += _node_changes(running, lab, replace=replace)
    differing += [FixedChange("link", name, "state", None, "up") for name in new_links]
    for link, of_lab in counterparts.items():
        differing += _link_changes(running, lab, (link, of_lab), replace=replace)
    failed = set(faults.inspect(network).failed)
    for link in range(len(running.topology.links)):
        name = running.topology.link_name(link)
        if replace and link not in counterparts:
            differing.append(FixedChange("link", name, "state", "up", None))
        elif (link in failed) == (link in counterparts):
            differing.append(LinkStateChange(name, up=link in counterparts))
    return differing


def _node_changes(running: Lab, lab: Lab, *, replace: bool) -> list[Change]:
    """Return the nodes that the run lacks, or has of another kind; if `replace`, further ones."""
    before, after = _kinds(running), _kinds(lab)
    names = [*after, *(name for name in before if replace and name not in after)]
    return [
        FixedChange("node", name, "kind", before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _kinds(lab: Lab) -> dict[str, str]:
    """Return "host" or "switch" by the name of each node, in order."""
    servers = lab.topology.servers
    return {name: "host" if node < servers else "switch" for node, name in enumerate(_names(lab))}


def _link_changes(running: Lab, lab: Lab, links: tuple[int, int], *, replace: bool) -> list[Change]:
    """Return how a link of the run, the first of `links`, differs from its counterpart."""
    link, of_lab = links
    name = running.topology.link_name(link)
    before, after = link_of(running, link), link_of(lab, of_lab)
    if before == after:
        return []
    if after is None:
        if not replace:
            raise ValueError(
                f"{name} has no rate in the lab: weft impair {name} --clear restores the planned "
                "link, --replace brings the lab up in place of the run"
            )
        assert before
        return [FixedChange("link", name, "rate", link_keys(before)["rate"], None)]
    planned = before or LinkSpec(rate_bps=after.rate_bps, queue_packets=after.queue_packets)
    fixed: list[Change] = [
        FixedChange("link", name, key, getattr(planned, field), getattr(after, field))
        for key, field in FIXED_FIELDS.items()
        if getattr(planned, field) != getattr(after, field)
    ]
    change = LinkChange(name, before, after)
    return fixed if change.impairment() == Impairment() else [*fixed, change]


def _counterparts(running: Lab, lab: Lab) -> tuple[dict[int, int], list[str]]:
    """Return the lab's link for each link of the run that it has, by the names of their ends.

    Of parallel links the lab has the first ones.

    Returns:
        These, and the names of links that the run lacks.
    """
    wanted = _links_by_ends(lab)
    counterparts: dict[int, int] = {}
    for ends, links in _links_by_ends(running).items():
        of_lab = wanted.get(ends, [])
        counterparts.update(zip(links, of_lab, strict=False))
        wanted[ends] = of_lab[len(links) :]
    new_links = sorted(link for links in wanted.values() for link in links)
    return counterparts, [lab.topology.link_name(link) for link in new_links]


def _links_by_ends(lab: Lab) -> dict[frozenset[str], list[int]]:
    """Return the links between each two nodes, in order."""
    names = _names(lab)
    links: dict[frozenset[str], list[int]] = {}
    for link, (a, _, b, _) in enumerate(lab.topology.links.tolist()):
        links.setdefault(frozenset((names[a], names[b])), []).append(link)
    return links


def _names(lab: Lab) -> list[str]:
    return [lab.topology.naming.label(node) for node in range(lab.topology.nodes)]


def apply(network: RunningNetwork, differing: Sequence[Change]) -> None:
    """Make the changes, none of which is fixed; packets in queues stay.

    Raises:
        ValueError: the kernel lacks netem for a delay, or the scheme excludes delays.
        OSError: the kernel holds other values after a change.
    """
    for change in differing:
        if isinstance(change, LinkChange):
            network.impair(change.name, change.impairment())
        elif isinstance(change, LinkStateChange):
            (network.restore if change.up else network.fail)(change.name)
