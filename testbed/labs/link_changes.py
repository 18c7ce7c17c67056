"""Differences between the links of a running network and those of a lab, and their removal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.daemons.core.registry import usual
from weft.testbed.labs.lab_file import Lab, link_keys
from weft.testbed.labs.running_lab import lab_of
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


def changes(network: RunningNetwork, lab: Lab) -> list[LinkChange]:
    """Return the changes after which the links of `network` are those of `lab`.

    Raises:
        ValueError: the two differ in more than rate, queue, delay and loss of links.
    """
    running = lab_of(network)
    _check_nodes(running, lab)
    if running.scheme != (scheme := lab.scheme or usual(lab.topology)):
        raise ValueError(
            f"the run has scheme {running.scheme}, the lab {scheme}: apply changes links only; "
            "weft scheme changes that of a data plane, others need weft down and weft up"
        )
    differing = []
    for link in range(len(lab.topology.links)):
        name = lab.topology.link_name(link)
        before, after = link_of(running, link), link_of(lab, link)
        if before == after:
            continue
        if after is None:
            raise ValueError(f"{name} has no rate in the lab: weft impair {name} --clear first")
        fixed = before or LinkSpec(rate_bps=after.rate_bps, queue_packets=after.queue_packets)
        for key in ("trim_packets", "mtu_bytes"):
            if getattr(fixed, key) != getattr(after, key):
                raise ValueError(f"{name}: {key} is fixed while a network runs: bring it up anew")
        differing.append(LinkChange(name, before, after))
    return differing


def _check_nodes(running: Lab, lab: Lab) -> None:
    """Raise ValueError unless both labs have the same nodes and wiring."""
    for title, of in (("nodes", _names), ("wiring", lambda lab: lab.topology.links.tolist())):
        if of(running) != of(lab):
            raise ValueError(
                f"the {title} of the run ({running.topology.spec}) and of the lab differ: apply "
                "changes links only; bring the lab up by weft up"
            )


def _names(lab: Lab) -> list[str]:
    return [lab.topology.naming.label(node) for node in range(lab.topology.nodes)]


def apply(network: RunningNetwork, differing: Sequence[LinkChange]) -> None:
    """Make the changes; packets in queues stay.

    Raises:
        ValueError: the kernel lacks netem for a delay, or the scheme excludes delays.
        OSError: the kernel holds other values after a change.
    """
    for change in differing:
        network.impair(change.name, change.impairment())
