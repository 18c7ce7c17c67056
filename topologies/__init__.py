"""Topologies: the nodes and links of data-center networks, as data.

Pure: nothing here does I/O, reads the time or draws a random number.  `build("dcell:n=4,k=1")`
returns a Topology, `families()` the families that exist.  numpy is imported only when a graph is
built: a routing daemon needs the arithmetic of its family alone, and 25 MB of array library in each
of 400 daemons is too much memory.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.topologies.core.family import Family
    from weft.topologies.core.topology import Topology

FAMILY_MODULES = {
    "dcell": "recursive.dcell",
    "beta-dcell": "recursive.dcell",
    "gamma-dcell": "recursive.dcell",
    "delta-dcell": "recursive.dcell",
    "ficonn": "recursive.dcell",
    "bcube": "recursive.hypercubes",
    "gqstar": "recursive.hypercubes",
    "fattree": "tiered.clos",
    "clos": "tiered.clos",
    "star": "tiered.clos",
    "complete": "low_diameter.cliques",
    "slimfly": "low_diameter.diameter_two",
    "polarfly": "low_diameter.diameter_two",
    "dragonfly": "low_diameter.cliques",
    "hyperx": "low_diameter.cliques",
    "jellyfish": "low_diameter.random_graphs",
    "xpander": "low_diameter.random_graphs",
}
ENTRY_POINTS = "weft.topologies"
EQUIVALENT = "equivalent-jellyfish"
PLANES = "planes"
FILE = "file:"

FILE_SPEC = re.compile(r"file:(?P<path>[^@]+?)(,p=(?P<p>[0-9]{1,5}))?(@(?P<digest>[0-9a-f]{8}))?")


def modules() -> dict[str, str]:
    """Return the module of each family, by the family's name.

    An installed package adds a family by an entry point NAME = "MODULE" of the group
    weft.topologies; FAMILIES of that module must have the name.

    Raises:
        ValueError: two families have the same name.
    """
    from importlib import metadata

    from weft.topologies.core.grammar import module_in

    module_names = {name: f"{__name__}.{module}" for name, module in FAMILY_MODULES.items()}
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        if entry.name in module_names:
            raise ValueError(
                f"there are two families called {entry.name} (entry points {ENTRY_POINTS})"
            )
        module_names[entry.name] = module_in(entry.value)
    return module_names


def families() -> dict[str, Family]:
    """Return every family by its name; one that a package cannot load is left out."""
    from weft.topologies.core.grammar import loaded

    return loaded(family, modules())[0]


def family(name: str) -> Family:
    """Return the family called `name`.

    Raises:
        ValueError: no such family; the message lists those that exist.
    """
    from importlib import import_module

    from weft.topologies.core.family import Family
    from weft.topologies.core.grammar import package_errors, unknown

    if name in FAMILY_MODULES:
        module = f"{__name__}.{FAMILY_MODULES[name]}"
    elif (known := modules()) and name in known:
        module = known[name]
    else:
        every = (*known, PLANES, FILE.rstrip(":"))
        raise ValueError(unknown("family", name, every, installed_in=sys.prefix))
    with package_errors(f"family {name}, {module}"):
        loaded = import_module(module).FAMILIES[name]
        if not isinstance(loaded, Family):
            raise TypeError(f"{loaded!r:.40} is no Family")
    return loaded


def build(spec: str) -> Topology:
    """Return the network that `spec` describes.

    Args:
        spec: family:key=value,..., file:PATH, or planes:k=K,of=SPEC.

    Raises:
        ValueError: no such network; one line says why.
    """
    from weft.topologies.core.topology import require_limits

    topology = _built(spec)
    require_limits(topology.size)  # of a file, and where a package's family does not ask before
    return topology


def _built(spec: str) -> Topology:
    from weft.topologies.core.grammar import parse

    if spec.startswith(FILE):
        return _from_file(spec)
    name, values = parse(resolved(spec))
    if name == PLANES:
        return _planes(values)
    network_family = family(name)
    return network_family.build(network_family.parameters_from(values))


def canonical(spec: str) -> str:
    """Return the one name of the network `spec`, with all parameters in the family's order.

    The name of a file's network ends in a digest of the file's content.
    """
    from weft.topologies.core.grammar import parse, unparse

    if spec.startswith(FILE):
        return _from_file(spec).spec
    name, values = parse(resolved(spec))
    if name == PLANES:
        return _named_planes(values)
    return unparse(name, family(name).parameters_from(values))


def _planes(texts: Mapping[str, str]) -> Topology:
    """Return the network planes:k=K,of=SPEC; ValueError if there is none."""
    from weft.topologies.tiered.planes import planes_of

    spec = _named_planes(texts)
    return planes_of(build(texts["of"]), int(texts["k"]), spec)


def _named_planes(texts: Mapping[str, str]) -> str:
    """Return the one name of planes:k=K,of=SPEC; ValueError for wrong parameters."""
    from weft.topologies.tiered.planes import spec_of

    return spec_of(texts, canonical(texts["of"]) if "of" in texts else "")


def _from_file(spec: str) -> Topology:
    """Return the network of file:PATH[,p=HOSTS][@DIGEST].

    ValueError if the content has another digest.
    """
    import hashlib
    from pathlib import PurePath

    from weft.topologies.core.grammar import service
    from weft.topologies.core.user_graph import parse

    parts = FILE_SPEC.fullmatch(spec)
    if not parts:
        raise ValueError(f"{spec!r}: expected file:PATH or file:PATH,p=HOSTS")
    read = service("text")
    if not read:
        raise ValueError(f"{spec}: weft is not installed here, so no file is read")
    text = read(parts["path"])
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    if parts["digest"] not in (None, digest):
        raise ValueError(f"{spec}: the file has changed, it is {digest} now")
    hosts = f",p={parts['p']}" if parts["p"] else ""
    named = f"file:{parts['path']}{hosts}@{digest}"
    return parse(text, suffix=PurePath(parts["path"]).suffix, spec=named, p=int(parts["p"] or 1))


def resolved(spec: str) -> str:
    """Return `spec`, or the jellyfish that equivalent-jellyfish:seed=1,of=SPEC stands for."""
    from weft.topologies.core.grammar import integer, parse, unknown, unparse

    name, values = parse(spec)
    if name != EQUIVALENT:
        return spec
    from weft.topologies.low_diameter.random_graphs import SEED, equivalent

    for key in values:
        if key not in ("seed", "of"):
            raise ValueError(f"{EQUIVALENT}: " + unknown("parameter", key, ["seed", "of"]))
    for key in ("seed", "of"):
        if key not in values:
            raise ValueError(
                f"{EQUIVALENT}: {key} is missing, for example {EQUIVALENT}:seed=1,of=slimfly:q=5"
            )
    seed = integer(EQUIVALENT, "seed", values["seed"], least=SEED.least, most=SEED.most)
    return unparse("jellyfish", equivalent(build(values["of"]), seed))
