"""All routing schemes by name, with the grammar of topologies/core/grammar.py: dr, or dr:hello_ms=30,dead=3.

A room registers its schemes by a module `scheme` whose SCHEMES lists them, and a package of somebody else's by an entry
point of the group weft.schemes that leads to such a module:

    [project.entry-points."weft.schemes"]
    deflection = "weft_deflection.scheme"

Whoever asks for a name has all of these modules imported, once; a daemon has only that of its own scheme.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from weft import daemons
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig
from weft.daemons.core.scheme import UNSHAPED_KBPS, Scheme, Selection, options_of
from weft.daemons.core.selection_rule import SelectionRule
from weft.topologies.core.grammar import parse, unknown

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

GROUP = "weft.schemes"


@cache
def schemes() -> Mapping[str, Scheme]:
    """Every scheme by name; ValueError if two have one name."""
    found: dict[str, Scheme] = {}
    for module in [*_rooms(), *_entry_points()]:
        for scheme in import_module(module).SCHEMES:
            if scheme.name in found:
                raise ValueError(f"{module} registers a second scheme called {scheme.name}")
            found[scheme.name] = scheme
    return found


def _rooms() -> list[str]:
    """The modules of this folder that register schemes."""
    import pkgutil  # a daemon, which looks for no scheme, need not pay for these
    from importlib.util import find_spec

    rooms = {room.name for room in pkgutil.iter_modules(daemons.__path__) if room.ispkg} - {"core"}
    names = [f"{daemons.__name__}.{room}.scheme" for room in sorted(rooms)]
    return [name for name in names if find_spec(name)]


def _entry_points() -> list[str]:
    """Those of installed packages."""
    from importlib import metadata

    return sorted({point.module for point in metadata.entry_points(group=GROUP)})


def find(name: str) -> Scheme:
    """The scheme called `name`; ValueError names the ones that exist."""
    if name not in schemes():
        raise ValueError(unknown("scheme", name, schemes()))
    return schemes()[name]


def scheme(spec: str) -> tuple[Scheme, dict[str, int]]:
    """The scheme that `spec` names, and its options; ValueError says in one line what is wrong with it."""
    name, given = parse(spec)
    found = find(name)
    return found, found.options(given)


def checked(topology: Topology, spec: str) -> tuple[Scheme, dict[str, int]]:
    """As scheme(), for a scheme that can route `topology`; ValueError, in one line, if it cannot."""
    found, options = scheme(spec)
    found.check(topology, options)
    found.rule(options)
    return found, options


def configure(topology: Topology, spec: str, *, link_kbps: int = UNSHAPED_KBPS) -> dict[int, NodeConfig]:
    """What every router of `topology`, as it is wired, needs to know to route by the scheme `spec`; nothing where the
    scheme has no daemons.

    link_kbps: what its links carry, in kbit/s.
    ValueError, in one line, if the scheme is not for such a network.
    """
    found, options = checked(topology, spec)
    return dict(found.configure(topology, options, link_kbps))


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """The state machine of config.node.

    incarnation: larger than that of any daemon that ran on this node before, below 2^63: nanoseconds since 1970, say.
    """
    for registered in import_module(config.module).SCHEMES:
        if registered.name == config.scheme and registered.machine:
            made: StateMachine = registered.machine(config, incarnation)
            return made
    raise ValueError(f"{config.module} has no daemons of a scheme {config.scheme}")


def usual(topology: Topology) -> str:
    """The scheme that routes `topology` if nobody says which."""
    return "dr" if topology.server_centric else "ecmp"


def with_data_plane() -> list[str]:
    """The schemes that a data plane carries out."""
    return [name for name, each in schemes().items() if each.selection]


def selection(spec: str) -> tuple[Selection, str, dict[str, str]]:
    """The data plane of the scheme that `spec` names, that scheme's name, and what is given; ValueError if it has
    none."""
    name, given = parse(spec)
    balancing = {each.name: each for each in schemes().values() if each.selection}
    if name not in balancing:
        raise ValueError(unknown("scheme", name, balancing) + "; only these have a data plane" * (name in schemes()))
    found = balancing[name].selection
    assert found
    return found, name, given


def rule(spec: str) -> SelectionRule:
    """What the data plane does by the scheme `spec`, which takes the parameters of the data plane only: for networks
    that have no daemons, or whose daemons go on as they are.  ValueError says in one line what is wrong with it."""
    found, _, _ = selection(spec)
    return found.rule(rule_options(spec)[1])


def rule_options(spec: str) -> tuple[str, dict[str, int]]:
    """The name and all parameters of `spec`, as rule() takes it, defaults filled in."""
    found, name, given = selection(spec)
    return name, options_of(name, found.parameters, given)
