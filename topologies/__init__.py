"""What is wired to what.  Pure: nothing here touches the system, tells the time or draws a random number.

`build("dcell:n=4,k=1")` gives a Topology, `families()` the families that exist.  numpy is imported only when a graph
is built: a routing daemon needs the arithmetic of its family, and 25 MB of array library times 400 daemons is memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topologies.core.family import Family
    from topologies.core.topology import Topology

FAMILY_MODULES = {
    "dcell": "recursive.dcell",
    "beta-dcell": "recursive.dcell",
    "ficonn": "recursive.ficonn",
    "fattree": "tiered.fattree",
    "clos": "tiered.clos",
    "star": "tiered.star",
    "complete": "low_diameter.complete",
}


def families() -> dict[str, Family]:
    """Every family by its name in the grammar."""
    return {name: family(name) for name in FAMILY_MODULES}


def family(name: str) -> Family:
    """The family called `name`; ValueError names the ones that exist."""
    from importlib import import_module

    from topologies.core.grammar import unknown

    if name not in FAMILY_MODULES:
        raise ValueError(unknown("family", name, FAMILY_MODULES))
    found: Family = import_module(f"topologies.{FAMILY_MODULES[name]}").FAMILIES[name]
    return found


def build(spec: str) -> Topology:
    """The network that `spec`, family:key=value,..., describes; ValueError says in one line what is wrong with it."""
    from topologies.core.grammar import parse

    name, given = parse(spec)
    found = family(name)
    return found.build(found.parameters_from(given))
