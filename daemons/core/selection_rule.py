"""Selection rules of the data plane.

Switches choose among the ports of a route (daemons/load_balancing/scheme.py), hosts among layers
(testbed/data_plane/layer_choice.h).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KERNEL = 0  # number of the rule that leaves the choice to Linux multipath routes
FLOW_HASH = 2  # number of the rule that hashes flows
RANDOM = 3  # number of the rule that draws a port for each packet
NO_QUEUES = (
    "it chooses by what waits in queues, and links without a rate have none; give "
    "them a rate such as 20mbit"
)


@dataclass(frozen=True)
class SelectionRule:
    """A rule and its parameters, with names and units as in specs; a missing parameter is 0.

    rule: number of the rule in testbed/data_plane/select.bpf.c.
    compares_queues: True if it compares queue lengths.
    reads_from_first_digit: True if switches of every tier read the whole number of a destination,
        not only the digits that concern their tier.
    reads_daemons: True if it reads what daemons write beside routes: states, or a table of flows.
    has_detours: True if packets visit another switch on their way, so that all switches need hosts.
    common_seed: True if all switches have one seed, so that their hashes of a flow are equal.
    hosts: settings of the hosts' choice among layers, by the names in struct settings of
        testbed/data_plane/layer_choice.h; empty if hosts leave packets as they are.
    """

    rule: int
    parameters: Mapping[str, int] = field(default_factory=dict)
    compares_queues: bool = False
    reads_from_first_digit: bool = False
    reads_daemons: bool = False
    has_detours: bool = False
    common_seed: bool = False
    hosts: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.parameters.get(name, 0)

    @property
    def asks_queues(self) -> bool:
        """True if the rule reads queue lengths."""
        return self.compares_queues or self["ecn"] > 0 or self["states"] > 0
