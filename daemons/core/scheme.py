"""What a routing scheme is: one registration, by which it is listed, checked, drawn on the graph and run.

A room of this folder, or a package of somebody else's, has a module whose SCHEMES are such registrations (registry.py
finds them).  What the module imports when it is imported, every daemon of the scheme pays for in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.daemons.core.capabilities import Capability
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig, Options
from weft.daemons.core.selection_rule import SelectionRule
from weft.topologies.core.family import Parameter
from weft.topologies.core.grammar import unknown
from weft.topologies.recursive.ccrdn import Ccrdn, CcrdnNaming

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

ECN = Parameter(
    meaning="packets in a queue from which on packets are marked, 0 for none", least=0, most=1 << 24, default=0
)
UNSHAPED_KBPS = 10**6  # what a link is taken to carry that is not shaped


@dataclass(frozen=True, slots=True)
class Path:
    """nodes: from source to destination, both included, crossbars left out.  share: of the pair's packets or flows.
    layer: whose path it is, where the source chooses among layers."""

    nodes: tuple[int, ...]
    share: float = 1.0
    layer: int | None = None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """How the data plane of a scheme's switches chooses among the ports of a route.

    parameters: those of the scheme that concern it; the only ones that count where no daemons run.
    rule: (options, these alone) -> what the data plane does; ValueError, in one line, for what does not go together.
    """

    parameters: Mapping[str, Parameter]
    rule: Callable[[Options], SelectionRule]


def check_nothing(topology: Topology, options: Options) -> None:
    """Every network will do."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A way to route.

    source: the paper and section that it comes from.
    parameters: all of them, of its daemons and of its data plane.
    check: (topology, options) -> None; ValueError, in one line, if it cannot route that network so.
    configure: (topology, options, link_kbps) -> what each node's daemon must know, by node, given what the network's
        links carry; nothing for a scheme without daemons.
    machine: (config, incarnation) -> the state machine of that node; None: there are no daemons, and routes are those
        that the topology alone gives.
    selection: what the data plane does, None: routes are the kernel's alone.
    path: pure: (topology, options, src, dst) -> the paths of packets from one server to another over the links that
        live, the likeliest first, where no link and no queue is busier than another; none if there is none.
    needs: the kinds of capabilities that a carrier must have.
    """

    name: str
    summary: str
    source: str
    parameters: Mapping[str, Parameter]
    configure: Callable[[Topology, Options, int], Mapping[int, NodeConfig]]
    path: Callable[[Topology, Options, int, int], Sequence[Path]]
    check: Callable[[Topology, Options], None] = check_nothing
    machine: Callable[[NodeConfig, int], StateMachine] | None = None
    selection: Selection | None = None
    needs: frozenset[type[Capability]] = frozenset()

    def options(self, given: Mapping[str, str]) -> dict[str, int]:
        """`given`, text, as integers, defaults filled in; ValueError if any is unknown or out of range."""
        return options_of(f"scheme {self.name}", self.parameters, given)

    def rule(self, options: Options) -> SelectionRule | None:
        """What the data plane does under these options; None if there is none."""
        if not self.selection:
            return None
        return self.selection.rule({key: options[key] for key in self.selection.parameters})


def options_of(owner: str, parameters: Mapping[str, Parameter], given: Mapping[str, str]) -> dict[str, int]:
    """`given`, text, as integers by these parameters, defaults filled in; a word as its place among the words.

    ValueError, in one line that begins with `owner`, if any is unknown or out of range.
    """
    for key in given:
        if key not in parameters:
            raise ValueError(
                f"{owner}: " + (unknown("parameter", key, parameters) if parameters else f"no parameter {key}")
            )
    return {
        key: parameter.value(owner, key, given[key]) if key in given else parameter.default or 0
        for key, parameter in parameters.items()
    }


def for_servers(name: str, topology: Topology) -> Ccrdn:
    """The sizes of `topology`; ValueError unless the scheme called `name`, which is for DCell and its like, can route
    it."""
    naming = topology.naming
    if not topology.server_centric:
        raise ValueError(
            f"scheme {name} runs on server-centric networks; {topology.spec} is a switch fabric, take ecmp"
        )
    if not isinstance(naming, CcrdnNaming):
        raise ValueError(f"scheme {name} needs dcell, beta-dcell or ficonn, and {topology.spec} is none")
    return naming.network


def for_switches(name: str, topology: Topology) -> None:
    """ValueError unless `topology` is a switch fabric, which the scheme called `name` is for."""
    if topology.server_centric:
        raise ValueError(f"scheme {name} runs on switch fabrics; {topology.spec} is a server-centric network, take dr")
