"""All routing schemes by name, with their options: dr, or dr:hello_ms=30,dead=3.

A room registers its schemes in SCHEMES of its module `scheme`.  Another package does so by an entry
point of the group weft.schemes that names such a module:

    [project.entry-points."weft.schemes"]
    deflection = "weft_deflection.scheme"

A look-up by name imports all of these modules, once; a daemon imports only the module of its own
scheme.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from weft import daemons
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig
from weft.daemons.core.scheme import UNSHAPED_KBPS, Scheme, Selection, SelectionRule, options_of
from weft.topologies.core.grammar import module_in, package_errors, parse, unknown

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

GROUP = "weft.schemes"


@cache
def schemes() -> Mapping[str, Scheme]:
    """Return every scheme by name; ValueError if two have the same name.

    A package that fails is left out: failures() says why.
    """
    by_name = {scheme.name: scheme for scheme in of_weft()}
    for module, registered in _packages()[0].items():
        for scheme in registered:
            if scheme.name in by_name:
                raise ValueError(f"{module} registers a second scheme called {scheme.name}")
            by_name[scheme.name] = scheme
    return by_name


def failures() -> list[str]:
    """Return one line for each package whose schemes cannot be loaded."""
    return _packages()[1]


def unknown_scheme(name: str, known: Iterable[str]) -> str:
    """Return the line that there is no scheme `name`, with the packages that cannot be loaded."""
    return "; ".join([unknown("scheme", name, known, installed_in=sys.prefix), *failures()])


@cache
def _packages() -> tuple[dict[str, Iterable[Scheme]], list[str]]:
    """Return the schemes of other packages by module, and what fails."""
    loaded: dict[str, Iterable[Scheme]] = {}
    failed: list[str] = []
    for module in _entry_points():
        try:
            with package_errors(f"schemes of {module}"):
                loaded[module] = tuple(map(_required, import_module(module).SCHEMES))
        except ValueError as error:
            failed.append(str(error))
    return loaded, failed


def _required(registered: object) -> Scheme:
    """Return a package's scheme; TypeError if it is none."""
    if not isinstance(registered, Scheme):
        raise TypeError(f"{registered!r:.40} is no Scheme")
    return registered


def _rooms() -> list[str]:
    """Return the modules of this folder that register schemes."""
    import pkgutil  # here, because a daemon looks for no scheme and need not hold these in memory
    from importlib.util import find_spec

    rooms = {room.name for room in pkgutil.iter_modules(daemons.__path__) if room.ispkg} - {"core"}
    names = [f"{daemons.__name__}.{room}.scheme" for room in sorted(rooms)]
    return [name for name in names if find_spec(name)]


def _entry_points() -> list[str]:
    """Return the modules of installed packages that register schemes."""
    from importlib import metadata

    return sorted({module_in(point.value) for point in metadata.entry_points(group=GROUP)})


def of_packages() -> dict[str, str]:
    """Return the module of each scheme of other packages that can be loaded, by its name."""
    packages = _packages()[0].items()
    return {scheme.name: module for module, registered in packages for scheme in registered}


@cache
def of_weft() -> tuple[Scheme, ...]:
    """Return the schemes of this package, without those of other packages."""
    return tuple(scheme for module in _rooms() for scheme in import_module(module).SCHEMES)


def find(name: str) -> Scheme:
    """Return the scheme `name`; ValueError lists those that exist."""
    if name not in schemes():
        raise ValueError(unknown_scheme(name, schemes()))
    return schemes()[name]


def scheme(spec: str) -> tuple[Scheme, dict[str, int]]:
    """Return the scheme in `spec` and its options.

    Raises:
        ValueError: no such scheme or option; one line says why.
    """
    name, texts = parse(spec)
    named_scheme = find(name)
    return named_scheme, named_scheme.options(texts)


def checked(topology: Topology, spec: str) -> tuple[Scheme, dict[str, int]]:
    """Return the scheme in `spec` and its options, as scheme() does.

    ValueError if it cannot route `topology`.
    """
    named_scheme, options = scheme(spec)
    named_scheme.check(topology, options)
    named_scheme.rule(options)
    return named_scheme, options


def configure(
    topology: Topology, spec: str, *, link_kbps: int = UNSHAPED_KBPS
) -> dict[int, NodeConfig]:
    """Return the configuration of every router of `topology` under the scheme `spec`, by node.

    Args:
        topology: the network as it is wired.
        spec: the scheme and its options.
        link_kbps: rate of the links, in kbit/s.

    Returns:
        Empty for a scheme without daemons.

    Raises:
        ValueError: the scheme cannot route this network.
    """
    named_scheme, options = checked(topology, spec)
    return dict(named_scheme.configure(topology, options, link_kbps))


def registered(module: str, name: str) -> Scheme | None:
    """Return the scheme `name` of `module`, without importing any other module of schemes.

    None if the module registers no such scheme.
    """
    return next((scheme for scheme in import_module(module).SCHEMES if scheme.name == name), None)


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine of config.node.

    Args:
        config: configuration of the node.
        incarnation: larger than that of any earlier daemon of this node, below 2^63; nanoseconds
            since 1970 will do.
    """
    of_module = registered(config.module, config.scheme)
    if not of_module or not of_module.machine:
        raise ValueError(f"scheme {config.scheme} has no daemons")
    return of_module.machine(config, incarnation)


def usual(topology: Topology) -> str:
    """Return the default scheme of `topology`."""
    return "dr" if topology.server_centric else "ecmp"


def with_data_plane() -> list[str]:
    """Return the names of the schemes with a data plane."""
    return [name for name, registered in schemes().items() if registered.selection]


def data_plane(spec: str) -> tuple[Selection, dict[str, int]]:
    """Return the data plane of the scheme in `spec`, and all its parameters, defaults filled in.

    For networks without daemons, and for a change of the data plane under running daemons.

    Raises:
        ValueError: no such scheme, no data plane, or a parameter that is not of the data plane.
    """
    name, texts = parse(spec)
    selections = {
        registered.name: registered.selection
        for registered in schemes().values()
        if registered.selection
    }
    if name not in selections:
        raise ValueError(
            unknown_scheme(name, selections)
            + "; only these have a data plane" * (name in schemes())
        )
    selection = selections[name]
    return selection, options_of(name, selection.parameters, texts)


def rule(spec: str) -> SelectionRule:
    """Return the selection rule of the scheme `spec`; ValueError as in data_plane()."""
    selection, options = data_plane(spec)
    return selection.rule(options)
