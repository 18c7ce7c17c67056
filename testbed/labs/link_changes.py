"""Differences between the links of a running network and those of a lab, and their removal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.daemons.core.registry import usual
from weft.testbed.labs.lab_file import Lab, link_keys
from weft.testbed.labs.running_lab import lab_of
from weft.testbed.network import faults
from weft.testbed.network.impair import Impairment
from weft.testbed.network.network import RunningNetwork
from weft.topologies.core.link import LinkSpec

FIELDS = ("rate_bps", "queue_packets", "delay_us", "loss_ppb")


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


def changes(network: RunningNetwork, lab: Lab) -> list[LinkChange | LinkStateChange]:
    """Return the changes after which the links of `network` are those of `lab`.

    Links that the lab lacks fail, also all those of nodes that it lacks; failed ones that it has
    are restored.

    Raises:
        ValueError: the lab has other nodes or further links, or the two differ in more than rate,
            queue, delay and loss of links.
    """
    running = lab_of(network)
    if running.scheme != (scheme := lab.scheme or usual(lab.topology)):
        raise ValueError(
            f"the run has scheme {running.scheme}, the lab {scheme}: apply changes links only; "
            "weft scheme changes that of a data plane, others need weft down and weft up"
        )
    counterparts = _counterparts(running, lab)
    differing: list[LinkChange | LinkStateChange] = []
    for link, of_lab in counterparts.items():
        change = _change(running, lab, link, of_lab)
        differing += [change] if change else []
    failed = set(faults.inspect(network).failed)
    for link in range(len(running.topology.links)):
        if (link in failed) == (link in counterparts):
            name = running.topology.link_name(link)
            differing.append(LinkStateChange(name, up=link in counterparts))
    return differing


def _change(running: Lab, lab: Lab, link: int, of_lab: int) -> LinkChange | None:
    """Return the change of a link of the run to its counterpart `of_lab`; None if they agree."""
    name = running.topology.link_name(link)
    before, after = link_of(running, link), link_of(lab, of_lab)
    if before == after:
        return None
    if after is None:
        raise ValueError(f"{name} has no rate in the lab: weft impair {name} --clear first")
    fixed = before or LinkSpec(rate_bps=after.rate_bps, queue_packets=after.queue_packets)
    for key in ("trim_packets", "mtu_bytes"):
        if getattr(fixed, key) != getattr(after, key):
            raise ValueError(f"{name}: {key} is fixed while a network runs: bring it up anew")
    return LinkChange(name, before, after)


def _counterparts(running: Lab, lab: Lab) -> dict[int, int]:
    """Return the lab's link for each link of the run that it has, by the names of their ends.

    Of parallel links the lab has the first ones.

    Raises:
        ValueError: the lab has a node or a link that the run lacks.
    """
    kinds = {name: node < running.topology.servers for node, name in enumerate(_names(running))}
    for node, name in enumerate(_names(lab)):
        if kinds.get(name) != (node < lab.topology.servers):
            raise ValueError(
                f"node {name} is not one of the run ({running.topology.spec}): nodes are made when "
                "a network comes up; bring the lab up by weft up"
            )
    wanted = _links_by_ends(lab)
    counterparts: dict[int, int] = {}
    for ends, links in _links_by_ends(running).items():
        of_lab = wanted.pop(ends, [])
        if len(of_lab) > len(links):
            wanted[ends] = of_lab
        counterparts.update(zip(links, of_lab, strict=False))
    if wanted:
        name = "-".join(sorted(next(iter(wanted))))
        raise ValueError(
            f"link {name} is not one of the run ({running.topology.spec}): links are made when a "
            "network comes up; bring the lab up by weft up"
        )
    return counterparts


def _links_by_ends(lab: Lab) -> dict[frozenset[str], list[int]]:
    """Return the links between each two nodes, in order."""
    names = _names(lab)
    links: dict[frozenset[str], list[int]] = {}
    for link, (a, _, b, _) in enumerate(lab.topology.links.tolist()):
        links.setdefault(frozenset((names[a], names[b])), []).append(link)
    return links


def _names(lab: Lab) -> list[str]:
    return [lab.topology.naming.label(node) for node in range(lab.topology.nodes)]


def apply(network: RunningNetwork, differing: Sequence[LinkChange | LinkStateChange]) -> None:
    """Make the changes; packets in queues stay.

    Raises:
        ValueError: the kernel lacks netem for a delay, or the scheme excludes delays.
        OSError: the kernel holds other values after a change.
    """
    for change in differing:
        if isinstance(change, LinkChange):
            network.impair(change.name, change.impairment())
        elif change.up:
            network.restore(change.name)
        else:
            network.fail(change.name)
