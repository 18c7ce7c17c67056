"""Registration of a routing scheme: all that weft needs to list, check, draw and run it.

A room of this folder, or another package, has a module with registrations in SCHEMES (registry.py
finds them).  Every daemon of a scheme holds in memory what that module imports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft.daemons.core.contract import Capability, StateMachine
from weft.daemons.core.message_formats import Format
from weft.daemons.core.node_config import NodeConfig, Options
from weft.topologies.core.family import IntegerParameter
from weft.topologies.core.grammar import unknown
from weft.topologies.recursive.ccrdn import Ccrdn, CcrdnNaming

if TYPE_CHECKING:
    from pathlib import Path

    from weft.topologies.core.address import Prefix
    from weft.topologies.core.topology import Topology


KERNEL = 0  # number of the rule that leaves the choice to Linux multipath routes
FLOW_HASH = 2  # number of the rule that hashes flows
RANDOM = 3  # number of the rule that draws a port for each packet
DAR = 10  # number of the rule that notes flows, which daemons place
OWN = 13  # number of a rule of another package
NO_QUEUES = (
    "it chooses by what waits in queues, and links without a rate have none; give "
    "them a rate such as 20mbit"
)


@dataclass(frozen=True)
class SelectionRule:
    """A rule by which switches choose among the ports of a route, and hosts among layers.

    Its parameters have names and units as in specs; a missing parameter is 0.

    rule: number of the rule in testbed/data_plane/select.bpf.c.
    compares_queues: True if it compares queue lengths.
    reads_from_first_digit: True if switches of every tier read the whole number of a destination,
        not only the digits that concern their tier.
    reads_daemons: True if it reads what daemons write beside routes: states, or a table of flows.
    has_detours: True if packets visit another switch on their way, so that all switches need hosts.
    common_seed: True if all switches have one seed, so that their hashes of a flow are equal.
    code: file with the C function choose() of another package's rule; None for rules of select.h.
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
    code: Path | None = None
    hosts: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.parameters.get(name, 0)

    @property
    def asks_queues(self) -> bool:
        """True if the rule reads queue lengths."""
        return self.compares_queues or self["ecn"] > 0 or self["states"] > 0


ECN = IntegerParameter(
    "queue length in packets from which packets are marked, 0 for none", 0, 1 << 24, default=0
)
UNSHAPED_KBPS = 10**6  # assumed rate of a link without shaping


@dataclass(frozen=True, slots=True)
class RoutedPath:
    """A path between two servers.

    nodes: from source to destination, both included, crossbars left out.
    share: fraction of the pair's packets or flows on this path.
    layer: layer of the path, where the source chooses among layers.
    """

    nodes: tuple[int, ...]
    share: float = 1.0
    layer: int | None = None


def check_nothing(topology: Topology, options: Options) -> None:
    """Accept every network."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The data plane of a scheme: how its switches choose among the ports of a route.

    parameters: the scheme's parameters that concern the data plane.
    rule: (values of these parameters) -> selection rule; ValueError for values that do not go
        together.
    check: (topology, values) -> None; raises ValueError, one line, if the rule cannot work there.
    routes: (topology, values, switch, degraded links) -> ports of a switch by prefix, over healthy
        links; the routes that its daemon would set.  None: the equal-cost next hops
        (daemons/routing/candidates.py).
    check_daemons: (options of running daemons, values) -> None; raises ValueError, one line, if the
        routes of these daemons, which are of the same scheme, do not serve the rule.  None: the
        routes of any scheme's daemons serve it.
    """

    parameters: Mapping[str, IntegerParameter]
    rule: Callable[[Options], SelectionRule]
    check: Callable[[Topology, Options], None] = check_nothing
    routes: (
        Callable[[Topology, Options, int, Collection[int]], Mapping[Prefix, Sequence[int]]] | None
    ) = None
    check_daemons: Callable[[Options, Options], None] | None = None


def arrives_by(
    path: Callable[[Topology, Options, int, int], Sequence[RoutedPath]],
) -> Callable[[Topology, Options, int, int], bool]:
    """Return the `connects` of a scheme that connects the pairs for which `path` has a path."""
    return lambda topology, options, src, dst: bool(path(topology, options, src, dst))


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A routing scheme.

    source: paper and section.
    parameters: all parameters, of daemons and data plane.
    check: (topology, options) -> None; raises ValueError, one line, if it cannot route that
        network.
    configure: (topology, options, link_kbps) -> configuration of each node's daemon, by node; empty
        without daemons.
    machine: (config, incarnation) -> state machine of the node; None for a scheme without daemons,
        whose routes follow from the topology alone.
    selection: the data plane; None if packets follow the kernel's routes alone.
    path: (topology, options, src, dst) -> paths of packets over healthy links, the likeliest first,
        with all links and queues equally loaded; empty if there is none.  Pure.
    needs: kinds of capabilities that a runtime must have.
    connects: (topology, options, src, dst) -> True if packets to the address of `dst` itself, in no
        layer that a host chooses, arrive once daemons know which links are dead; None: they arrive
        wherever healthy links lead.  Pure.
    fixed_path: True if all packets of a pair take the first path of path(), whatever the load.
    loop_free: True if packets never loop, not even while daemons disagree about links.
    handles_degraded_links: True if daemons avoid links that are reported to be degraded.
    messages: formats of its messages beside those of wire.py.
    flow_row: (topology, node, status of its daemon) -> the node's flows as a row of `weft status`;
        None for a node without a row.
    """

    name: str
    summary: str
    source: str
    parameters: Mapping[str, IntegerParameter]
    configure: Callable[[Topology, Options, int], Mapping[int, NodeConfig]]
    path: Callable[[Topology, Options, int, int], Sequence[RoutedPath]]
    check: Callable[[Topology, Options], None] = check_nothing
    machine: Callable[[NodeConfig, int], StateMachine] | None = None
    selection: Selection | None = None
    needs: frozenset[type[Capability]] = frozenset()
    connects: Callable[[Topology, Options, int, int], bool] | None = None
    fixed_path: bool = False
    loop_free: bool = False
    handles_degraded_links: bool = False
    messages: tuple[Format[Any], ...] = ()
    flow_row: Callable[[Topology, int, Mapping[str, Any]], Mapping[str, Any] | None] | None = None

    def options(self, texts: Mapping[str, str]) -> dict[str, int]:
        """Return the options in `texts` as integers, defaults filled in.

        Raises:
            ValueError: an option is unknown or out of range.
        """
        if "ipv6" in texts and "ipv6" not in self.parameters:
            raise ValueError(f"scheme {self.name} routes IPv4 alone; for IPv6 take static:ipv6=1")
        return options_of(f"scheme {self.name}", self.parameters, texts)

    def rule(self, options: Options) -> SelectionRule | None:
        """Return the selection rule under these options; None without a data plane."""
        if not self.selection:
            return None
        return self.selection.rule({key: options[key] for key in self.selection.parameters})


def options_of(
    owner: str, parameters: Mapping[str, IntegerParameter], texts: Mapping[str, str]
) -> dict[str, int]:
    """Return the values in `texts` as integers, defaults filled in.

    A word becomes its position among the words.

    Raises:
        ValueError: a value is unknown or out of range; one line that begins with `owner`.
    """
    for key in texts:
        if key not in parameters:
            reason = unknown("parameter", key, parameters) if parameters else f"no parameter {key}"
            raise ValueError(f"{owner}: {reason}")
    return {
        key: parameter.value(owner, key, texts[key]) if key in texts else parameter.default or 0
        for key, parameter in parameters.items()
    }


def for_servers(name: str, topology: Topology) -> Ccrdn:
    """Return the sizes of `topology`.

    ValueError unless it is a DCell, beta-DCell or FiConn, as scheme `name` needs.
    """
    naming = topology.naming
    if not topology.server_centric:
        raise ValueError(
            f"scheme {name} runs on server-centric networks; {topology.spec} is a switch "
            f"fabric, take ecmp"
        )
    if not isinstance(naming, CcrdnNaming):
        raise ValueError(
            f"scheme {name} needs dcell, beta-dcell or ficonn, where one link joins any two "
            f"sub-networks; {topology.spec} is none"
        )
    return naming.network


def for_switches(name: str, topology: Topology, *, has_planes: bool = False) -> None:
    """Raise ValueError unless `topology` is a switch fabric, as scheme `name` needs.

    has_planes: True if the scheme also routes several planes.
    """
    if topology.server_centric:
        raise ValueError(
            f"scheme {name} runs on switch fabrics; {topology.spec} is a server-centric "
            f"network, take dr"
        )
    if topology.planes > 1 and not has_planes:
        raise ValueError(f"scheme {name} does not route several planes, {topology.spec}; take ecmp")
