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
    "slimfly": "low_diameter.slimfly",
    "dragonfly": "low_diameter.dragonfly",
    "hyperx": "low_diameter.hyperx",
    "jellyfish": "low_diameter.jellyfish",
    "xpander": "low_diameter.xpander",
}
EQUIVALENT = "equivalent-jellyfish"


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

    name, given = parse(resolved(spec))
    found = family(name)
    return found.build(found.parameters_from(given))


def canonical(spec: str) -> str:
    """`spec` with its parameters in the family's order and its defaults filled in: one network, one name."""
    from topologies.core.grammar import parse, unparse

    name, given = parse(resolved(spec))
    return unparse(name, family(name).parameters_from(given))


def resolved(spec: str) -> str:
    """`spec`, but for equivalent-jellyfish:seed=1,of=SPEC the jellyfish that this is."""
    from topologies.core.grammar import integer, parse, unknown, unparse

    name, given = parse(spec)
    if name != EQUIVALENT:
        return spec
    from topologies.low_diameter.jellyfish import SEED, equivalent

    for key in given:
        if key not in ("seed", "of"):
            raise ValueError(f"{EQUIVALENT}: " + unknown("parameter", key, ["seed", "of"]))
    for key in ("seed", "of"):
        if key not in given:
            raise ValueError(f"{EQUIVALENT}: {key} is missing, for example {EQUIVALENT}:seed=1,of=slimfly:q=5")
    seed = integer(EQUIVALENT, "seed", given["seed"], least=SEED.least, most=SEED.most)
    return unparse("jellyfish", equivalent(build(given["of"]), seed))
