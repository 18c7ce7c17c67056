"""What is wired to what.  Pure: nothing here touches the system, tells the time or draws a random number.

`build("dcell:n=4,k=1")` gives a Topology, `families()` the families that exist.  numpy is imported only when a graph
is built: a routing daemon needs the arithmetic of its family, and 25 MB of array library times 400 daemons is memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.topologies.core.family import Family
    from weft.topologies.core.topology import Topology

FAMILY_MODULES = {
    "dcell": "recursive.dcell",
    "beta-dcell": "recursive.dcell",
    "gamma-dcell": "recursive.generalized",
    "delta-dcell": "recursive.generalized",
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
ENTRY_POINTS = "weft.topologies"
EQUIVALENT = "equivalent-jellyfish"
FILE = "file:"

# The text of the file at a path.  Nothing here opens files: testbed/interop/graph_file.py puts the function that does.
READ_TEXT: list[Callable[[str], str]] = []
FILE_SPEC = re.compile(r"file:(?P<path>[^@]+?)(,p=(?P<p>[0-9]{1,5}))?(@(?P<digest>[0-9a-f]{8}))?")


def modules() -> dict[str, str]:
    """The module of each family by its name in the grammar: those here, and those of installed packages, which add
    theirs by an entry point of the group weft.topologies, NAME = "MODULE", to a module whose FAMILIES has that name.

    ValueError if two have one name.
    """
    from importlib import metadata

    found = {name: f"{__name__}.{module}" for name, module in FAMILY_MODULES.items()}
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        if entry.name in found:
            raise ValueError(f"there are two families called {entry.name} (entry points {ENTRY_POINTS})")
        found[entry.name] = entry.module
    return found


def families() -> dict[str, Family]:
    """Every family by its name in the grammar."""
    return {name: family(name) for name in modules()}


def family(name: str) -> Family:
    """The family called `name`; ValueError names the ones that exist."""
    from importlib import import_module

    from weft.topologies.core.grammar import unknown

    if name in FAMILY_MODULES:
        module = f"{__name__}.{FAMILY_MODULES[name]}"
    elif (known := modules()) and name in known:
        module = known[name]
    else:
        raise ValueError(unknown("family", name, known))
    found: Family = import_module(module).FAMILIES[name]
    return found


def build(spec: str) -> Topology:
    """The network that `spec`, family:key=value,... or file:PATH, describes; ValueError says in one line what is wrong
    with it."""
    from weft.topologies.core.grammar import parse

    if spec.startswith(FILE):
        return _from_file(spec)
    name, given = parse(resolved(spec))
    found = family(name)
    return found.build(found.parameters_from(given))


def canonical(spec: str) -> str:
    """`spec` with its parameters in the family's order and its defaults filled in: one network, one name.

    A file's name ends in a digest of what it holds.
    """
    from weft.topologies.core.grammar import parse, unparse

    if spec.startswith(FILE):
        return _from_file(spec).spec
    name, given = parse(resolved(spec))
    return unparse(name, family(name).parameters_from(given))


def _from_file(spec: str) -> Topology:
    """The network of a file, file:PATH, perhaps with ,p=HOSTS and @DIGEST behind it; ValueError if what it holds has
    another digest."""
    import hashlib
    from pathlib import PurePath

    from weft.topologies.core.user_graph import parse

    told = FILE_SPEC.fullmatch(spec)
    if not told:
        raise ValueError(f"{spec!r}: expected file:PATH or file:PATH,p=HOSTS")
    if not READ_TEXT:
        raise ValueError(f"{spec}: this program has not said how to read files")
    text = READ_TEXT[-1](told["path"])
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    if told["digest"] not in (None, digest):
        raise ValueError(f"{spec}: the file has changed, it is {digest} now")
    hosts = f",p={told['p']}" if told["p"] else ""
    named = f"file:{told['path']}{hosts}@{digest}"
    return parse(text, suffix=PurePath(told["path"]).suffix, spec=named, p=int(told["p"] or 1))


def resolved(spec: str) -> str:
    """`spec`, but for equivalent-jellyfish:seed=1,of=SPEC the jellyfish that this is."""
    from weft.topologies.core.grammar import integer, parse, unknown, unparse

    name, given = parse(spec)
    if name != EQUIVALENT:
        return spec
    from weft.topologies.low_diameter.jellyfish import SEED, equivalent

    for key in given:
        if key not in ("seed", "of"):
            raise ValueError(f"{EQUIVALENT}: " + unknown("parameter", key, ["seed", "of"]))
    for key in ("seed", "of"):
        if key not in given:
            raise ValueError(f"{EQUIVALENT}: {key} is missing, for example {EQUIVALENT}:seed=1,of=slimfly:q=5")
    seed = integer(EQUIVALENT, "seed", given["seed"], least=SEED.least, most=SEED.most)
    return unparse("jellyfish", equivalent(build(given["of"]), seed))
