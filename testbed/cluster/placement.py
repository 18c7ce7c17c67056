"""Place the nodes of a network on machines, with few links between machines.

A node's load is its number of links.  Hosts stay with their switch, and nodes that the user placed
on the same machine stay together.  METIS partitions the graph, and KaHIP too where it is installed
and machines are alike; the result with fewer cut links stays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from weft.topologies.core.topology import Topology

IMBALANCE = 0.05  # of the load of a machine
UNCUT_WEIGHT = 1000  # of a link that should not be cut, in ordinary links
KAHIP_ECO = 1


class PartitionGraph(NamedTuple):
    """Groups of nodes that share a machine.

    group_of: by node.
    loads: by group.
    weights: of the links between two groups, by group and neighbouring group.
    pinned: the machine of groups that have one.
    """

    group_of: list[int]
    loads: list[int]
    weights: list[dict[int, int]]
    pinned: dict[int, int]


Assignment = list[int]  # machine by group


def place(
    topology: Topology,
    shares: Sequence[float],
    pinned: Mapping[int, int] | None = None,
    uncut: Collection[int] = (),
) -> list[int]:
    """Return the machine of each node.

    Args:
        topology: the network.
        shares: of the load, by machine; their sum is 1.
        pinned: the machine of nodes that the user placed.
        uncut: links that should stay within a machine.

    Raises:
        ValueError: there are more machines than nodes to place.
    """
    graph = grouped(topology, pinned or {}, uncut)
    groups = len(graph.loads)
    if groups < len(shares):
        raise ValueError(
            f"{topology.spec} has {groups} nodes to place (hosts stay with their switch), too few "
            f"for {len(shares)} machines"
        )
    if len(shares) == 1:
        return [0] * topology.nodes
    methods: list[Callable[[PartitionGraph, Sequence[float]], Assignment]] = [_metis]
    if find_spec("kahip") and len(set(shares)) == 1:
        methods.append(_kahip)
    assignments = [with_pinned(graph, method(graph, shares), shares) for method in methods]
    best = min(assignments, key=lambda assignment: cut_weight(graph, assignment))
    return [best[group] for group in graph.group_of]


def grouped(
    topology: Topology, pinned: Mapping[int, int], uncut: Collection[int]
) -> PartitionGraph:
    """Return the graph of nodes that can be placed apart; see place()."""
    group_of = _groups(topology, pinned)
    loads = [0] * (max(group_of) + 1)
    weights: list[dict[int, int]] = [defaultdict(int) for _ in loads]
    for link, (a, _, b, _) in enumerate(topology.links.tolist()):
        first, second = group_of[a], group_of[b]
        loads[first] += 1
        loads[second] += 1
        if first != second:
            weight = UNCUT_WEIGHT if link in uncut else 1
            weights[first][second] += weight
            weights[second][first] += weight
    fixed = {group_of[node]: machine for node, machine in pinned.items()}
    return PartitionGraph(group_of, loads, weights, fixed)


def _groups(topology: Topology, pinned: Mapping[int, int]) -> list[int]:
    """Return the group of each node: that of its machine, of its switch, or its own."""
    anchors = {machine: node for node, machine in pinned.items()}
    home = [anchors[pinned[node]] if node in pinned else node for node in range(topology.nodes)]
    if not topology.server_centric:
        for a, _, b, _ in topology.host_links.tolist():
            if a not in pinned:
                home[a] = home[b]
    numbers = {node: number for number, node in enumerate(sorted(set(home)))}
    return [numbers[node] for node in home]


def cut_weight(graph: PartitionGraph, machine_of: Assignment) -> int:
    """Return the weight of the links between groups on different machines."""
    return sum(
        weight
        for group, weights in enumerate(graph.weights)
        for other, weight in weights.items()
        if group < other and machine_of[group] != machine_of[other]
    )


def _rows(graph: PartitionGraph) -> tuple[list[int], list[int], list[int]]:
    """Return where the neighbours of each group begin, the neighbours, and the links' weights."""
    begins = [0]
    for weights in graph.weights:
        begins.append(begins[-1] + len(weights))
    neighbours = [other for weights in graph.weights for other in weights]
    return begins, neighbours, [weight for row in graph.weights for weight in row.values()]


def _metis(graph: PartitionGraph, shares: Sequence[float]) -> Assignment:
    import pymetis

    begins, neighbours, weights = _rows(graph)
    result = pymetis.part_graph(
        len(shares),
        pymetis.CSRAdjacency(begins, neighbours),
        eweights=weights,
        vweights=graph.loads,
        tpwgts=list(shares),
        recursive=False,
        options=pymetis.Options(ufactor=round(1000 * IMBALANCE), ncuts=10, seed=1),
    )
    return list(result.vertex_part)


def _kahip(graph: PartitionGraph, shares: Sequence[float]) -> Assignment:
    import kahip

    begins, neighbours, weights = _rows(graph)
    arguments = (graph.loads, begins, weights, neighbours, len(shares), IMBALANCE)
    _, blocks = kahip.kaffpa(*arguments, True, 1, KAHIP_ECO)
    return list(blocks)


def with_pinned(graph: PartitionGraph, blocks: Assignment, shares: Sequence[float]) -> Assignment:
    """Return the machine of each group, by its block of a partition.

    Machines of equal shares swap blocks so that pinned groups are right with their blocks.  A
    machine without a group takes the one with the fewest links that another can give away.
    """
    machines = list(range(len(shares)))
    if len(set(shares)) == 1:
        for group, machine in graph.pinned.items():
            block, other = blocks[group], machines.index(machine)
            machines[block], machines[other] = machine, machines[block]
    machine_of = [graph.pinned.get(group, machines[block]) for group, block in enumerate(blocks)]
    for empty in set(machines).difference(machine_of):
        sizes = Counter(machine_of)
        free = [
            group
            for group, machine in enumerate(machine_of)
            if group not in graph.pinned and sizes[machine] > 1
        ]
        for group in sorted(free, key=lambda group: sum(graph.weights[group].values()))[:1]:
            machine_of[group] = empty
    return machine_of
