"""Place the nodes of a network on machines, with few links between machines.

A node's load is its number of links.  Hosts stay with their switch.  METIS partitions the graph,
and KaHIP too where it is installed and machines are alike; the result with fewer cut links stays.
Moves of single nodes then improve it, as in Fiduccia and Mattheyses (DAC 1982), and move no node
that has a machine already.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from weft.topologies.core.topology import Topology

IMBALANCE = 0.05  # of the load of a machine
KEPT_WEIGHT = 1000  # of a link that should not be cut, in ordinary links
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
    kept: Collection[int] = (),
) -> list[int]:
    """Return the machine of each node.

    Args:
        topology: the network.
        shares: of the load, by machine; their sum is 1.
        pinned: the machine of nodes that the user placed.
        kept: links that should stay within a machine.

    Raises:
        ValueError: there are more machines than nodes to place.
    """
    graph = grouped(topology, pinned or {}, kept)
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
    assignments = [improved(graph, method(graph, shares), shares) for method in methods]
    best = min(assignments, key=lambda assignment: cut_weight(graph, assignment))
    return [best[group] for group in graph.group_of]


def grouped(topology: Topology, pinned: Mapping[int, int], kept: Collection[int]) -> PartitionGraph:
    """Return the graph of nodes that can be placed apart; see place()."""
    group_of = _groups(topology, pinned)
    loads = [0] * (max(group_of) + 1)
    weights: list[dict[int, int]] = [defaultdict(int) for _ in loads]
    for link, (a, _, b, _) in enumerate(topology.links.tolist()):
        first, second = group_of[a], group_of[b]
        loads[first] += 1
        loads[second] += 1
        if first != second:
            weight = KEPT_WEIGHT if link in kept else 1
            weights[first][second] += weight
            weights[second][first] += weight
    fixed = {group_of[node]: machine for node, machine in pinned.items()}
    return PartitionGraph(group_of, loads, weights, fixed)


def _groups(topology: Topology, pinned: Mapping[int, int]) -> list[int]:
    """Return the group of each node: hosts without a machine of their own join their switch."""
    home = list(range(topology.nodes))
    if not topology.server_centric:
        for a, _, b, _ in topology.links[topology.level == 0].tolist():
            if a not in pinned:
                home[a] = b
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


def improved(graph: PartitionGraph, machine_of: Assignment, shares: Sequence[float]) -> Assignment:
    """Return `machine_of` after moves to pinned machines, and moves that cut less.

    A machine takes a group as long as its load stays below its share and the imbalance; a machine
    above that gives groups away.
    """
    machine_of = _renamed(graph, machine_of, shares)
    loads = [0] * len(shares)
    for group, machine in enumerate(machine_of):
        loads[machine] += graph.loads[group]
    largest = max(graph.loads)
    limits = [max(share * (1 + IMBALANCE) * sum(loads), largest) for share in shares]
    for _ in range(2 * len(machine_of)):
        moves = [
            move
            for group in range(len(machine_of))
            if group not in graph.pinned
            and (move := _best_move(graph, machine_of, group, (loads, limits)))
        ]
        if not moves:
            break
        # moves of neighbours disturb each other, so each is judged again when its turn comes
        for _, group, _ in sorted(moves, reverse=True):
            move = _best_move(graph, machine_of, group, (loads, limits))
            if move:
                loads[machine_of[group]] -= graph.loads[group]
                loads[move[2]] += graph.loads[group]
                machine_of[group] = move[2]
    return machine_of


def _best_move(
    graph: PartitionGraph,
    machine_of: Assignment,
    group: int,
    limits: tuple[Sequence[float], Sequence[float]],
) -> tuple[int, int, int] | None:
    """Return (links that are cut no more, group, machine) of the best move; None: none is good.

    limits: load and largest load, by machine.
    """
    loads, most = limits
    here = machine_of[group]
    weights: Counter[int] = Counter()
    for other, weight in graph.weights[group].items():
        weights[machine_of[other]] += weight
    over = loads[here] > most[here]
    targets = range(len(loads)) if over else weights
    moves = [
        (weights[machine] - weights[here], group, machine)
        for machine in targets
        if machine != here and loads[machine] + graph.loads[group] <= most[machine]
    ]
    best = max(moves, default=None)
    return best if best and (over or best[0] > 0) else None


def _renamed(graph: PartitionGraph, machine_of: Assignment, shares: Sequence[float]) -> Assignment:
    """Return `machine_of` with pinned groups on their machines, as few others against them.

    Machines of equal shares swap names so that most pinned groups are right at once.
    """
    names: dict[int, int] = {}
    if len(set(shares)) == 1:
        votes = Counter((machine_of[group], machine) for group, machine in graph.pinned.items())
        for (block, machine), _ in votes.most_common():
            if block not in names and machine not in names.values():
                names[block] = machine
    for block in range(len(shares)):
        if block not in names:
            free = (machine for machine in range(len(shares)) if machine not in names.values())
            names[block] = block if block not in names.values() else next(free)
    renamed = [names[machine] for machine in machine_of]
    for group, machine in graph.pinned.items():
        renamed[group] = machine
    return renamed


def cut_links(topology: Topology, machine_of: Sequence[int]) -> list[int]:
    """Return the links whose ends are on different machines."""
    return [
        link
        for link, (a, _, b, _) in enumerate(topology.links.tolist())
        if machine_of[a] != machine_of[b]
    ]
