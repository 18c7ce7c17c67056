"""How a data plane chooses, as the schemes say it: switches among the ports of a route
(daemons/load_balancing/scheme.py), hosts among layers (daemons/fatpaths/layer_choice.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KERNEL = 0  # the number of the rule that leaves the choice to Linux multipath routes
FLOW_HASH = 2  # and of the one that takes a flow's hash
NO_QUEUES = "it chooses by what waits in queues, and links without a rate have none; give them a rate such as 20mbit"


@dataclass(frozen=True)
class SelectionRule:
    """A rule with its parameters, which are named and counted as in specs; those that are not given are 0.

    rule: its number in testbed/bpf/select.bpf.c.
    compares_queues: whether it chooses by what waits at ports.
    reads_from_first_digit: whether switches of every tier read a destination's whole number, not only what tells their
        own tier.
    hosts: what hosts do to choose among layers, by the names in struct settings of testbed/bpf/layer_choice.h; empty:
        their packets leave as they are.
    """

    rule: int
    parameters: Mapping[str, int] = field(default_factory=dict)
    compares_queues: bool = False
    reads_from_first_digit: bool = False
    hosts: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.parameters.get(name, 0)

    @property
    def asks_queues(self) -> bool:
        """Whether it needs to know what waits in queues."""
        return self.compares_queues or self["ecn"] > 0 or self["states"] > 0
