"""The slotted model of LBSP's section 5.2: queues on the way through a k-ary fat-tree.

In a slot every link carries one packet into the queue that it leaves by; then queues are counted.
Modelled are the hops of figure 9: queues for uplinks of edge and aggregation switches, and those of
core switches.

Ours, where the text leaves it open.  Each edge switch, not each pod, gets traffic of load rho on
each of its input ports: in a slot, with probability rho, one of its d = k/2 hosts, drawn at random,
begins to send d consecutive packets (the paper: four, with d = 4) to its destination in the
permutation.  The packets of a burst arrive one a slot, as a link carries them, or all at once
(`at_once`).  Aggregation switches that choose alike learn of each other's states a slot later.

The functions of daemons/ choose the link group, as in the daemons and the data plane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from weft.daemons.core.compiled import compiled
from weft.daemons.lbsp.routing import group_in_state, next_state
from weft.daemons.routing.selection import in_turn
from weft.experiments.engines.arrays import Floats, Ints, int_zeros
from weft.experiments.engines.workloads import permutation

GROUPS = 2  # the states are those of two


class Conditions(NamedTuple):
    """Parameters of the model.

    d: k/2.
    states: 1 if crowded groups give packets away.
    edge_packets, edge_percent: thresholds of edge switches (5 and 1.5 times in the paper).
    above_packets, above_percent: those of aggregation switches (20 and 2 times).
    """

    d: int
    states: int
    at_once: int
    edge_packets: int
    edge_percent: int
    above_packets: int
    above_percent: int


class PortQueues(NamedTuple):
    """Rings of destinations, a row for each port, with the first place and the length of each."""

    ring: Ints
    first: Ints
    length: Ints


class FabricQueues(NamedTuple):
    """Queues and states of a fabric.

    hosts: packets that each host has yet to send.
    edge, above: queues of uplinks.
    core: length of the queue at each port of a core switch.
    turns, state, want: of edge switches, then of aggregation switches; turns of each link group.
    """

    hosts: Ints
    edge: PortQueues
    above: PortQueues
    core: Ints
    turns: Ints
    state: Ints
    want: Ints


class QueueSums(NamedTuple):
    """Sums over slots.

    waiting: packets in queues, by hop.
    apart: distance of the mean queues of a switch's two link groups, for the first two hops.
    changes: changes of state, for the first two hops.
    """

    waiting: Ints
    apart: Floats
    changes: Ints


def empty(d: int, most: int) -> FabricQueues:
    """Return a fabric without packets, whose queues have room for `most` each."""
    switches = 2 * d * d
    ports = switches * d

    def queues() -> PortQueues:
        rings = int_zeros(ports, most)
        return PortQueues(rings, int_zeros(ports), int_zeros(ports))

    return FabricQueues(
        int_zeros(ports),
        queues(),
        queues(),
        int_zeros(d * d, 2 * d),
        int_zeros(2 * switches, GROUPS),
        int_zeros(2 * switches),
        int_zeros(2 * switches),
    )


def put(queues: PortQueues, port: int, destination: int) -> None:
    """Append a packet to a queue; it must have room."""
    most = queues.ring.shape[1]
    queues.ring[port, (queues.first[port] + queues.length[port]) % most] = destination
    queues.length[port] += 1


def take(queues: PortQueues, port: int) -> int:
    """Remove the first packet of a queue; return its destination, -1 without a packet."""
    if queues.length[port] == 0:
        return -1
    destination: int = queues.ring[port, queues.first[port]]
    queues.first[port] = (queues.first[port] + 1) % queues.ring.shape[1]
    queues.length[port] -= 1
    return destination


def choose(
    conditions: Conditions, fabric: FabricQueues, switch: int, own: int, input_port: int
) -> int:
    """Return the uplink for a packet whose destination has the link group `own`."""
    group = group_in_state(fabric.state[switch], own, input_port)
    uplink = in_turn(group, fabric.turns[switch, group], conditions.d, GROUPS)
    fabric.turns[switch, group] += 1
    return uplink


def enter_edge(conditions: Conditions, fabric: FabricQueues, host: int, destination: int) -> None:
    """Queue a packet of `host` at its edge switch."""
    d = conditions.d
    switch = host // d
    if destination // d != switch:
        uplink = choose(conditions, fabric, switch, destination % GROUPS, host % d)
        put(fabric.edge, switch * d + uplink, destination)


def enter_aggregation(
    conditions: Conditions, fabric: FabricQueues, edge: int, number: int, destination: int
) -> None:
    """Queue a packet from an edge switch at the aggregation switch of that number in its pod."""
    d = conditions.d
    pod = edge // d
    if destination // (d * d) != pod:
        switch = pod * d + number
        own = destination // GROUPS % GROUPS
        uplink = choose(conditions, fabric, 2 * d * d + switch, own, edge % d)
        put(fabric.above, switch * d + uplink, destination)


def mean_queue(length: Ints, first: int, d: int, group: int) -> int:
    """Return the mean queue of a link group, rounded down.

    first: the first port of its switch.
    """
    total = 0
    for port in range(group, d, GROUPS):
        total += length[first + port]
    return total // (d // GROUPS)


def mean_queues(length: Ints, first: int, d: int) -> tuple[int, int]:
    """Return the mean queues of both link groups of a switch."""
    return mean_queue(length, first, d, 0), mean_queue(length, first, d, 1)


def agree(d: int, fabric: FabricQueues, sums: QueueSums) -> None:
    """Set the states of aggregation switches to what those that choose alike wanted a slot ago."""
    switches = 2 * d * d
    for switch in range(switches):
        pod, number = switch // d, switch % d
        wants_one = wants_two = 0
        for other in range(number % GROUPS, d, GROUPS):
            want = fabric.want[switches + pod * d + other]
            wants_one += want == 1
            wants_two += want == 2
        agreed = 1 if wants_one and not wants_two else 2 if wants_two and not wants_one else 0
        sums.changes[1] += agreed != fabric.state[switches + switch]
        fabric.state[switches + switch] = agreed


def change_states(conditions: Conditions, fabric: FabricQueues, sums: QueueSums) -> None:
    """Set the states of edge switches, and what aggregation switches want, by their queues."""
    d = conditions.d
    switches = 2 * d * d
    for switch in range(switches):
        before = fabric.state[switch]
        edge = mean_queues(fabric.edge.length, switch * d, d)
        after = next_state(before, edge, conditions.edge_packets, conditions.edge_percent)
        fabric.state[switch] = after
        sums.changes[0] += before != after
        above = mean_queues(fabric.above.length, switch * d, d)
        want = fabric.want[switches + switch]
        fabric.want[switches + switch] = next_state(
            want, above, conditions.above_packets, conditions.above_percent
        )


def watch(d: int, fabric: FabricQueues, sums: QueueSums) -> None:
    """Add the queues of this slot."""
    for hop in range(2):
        lengths = fabric.edge.length if hop == 0 else fabric.above.length
        for switch in range(2 * d * d):
            by_group = np.zeros(GROUPS)
            for port in range(d):
                sums.waiting[hop] += lengths[switch * d + port]
                by_group[port % GROUPS] += lengths[switch * d + port]
            sums.apart[hop] += abs(by_group[0] - by_group[1]) * GROUPS / d
    sums.waiting[2] += fabric.core.sum()


def forward(conditions: Conditions, fabric: FabricQueues) -> None:
    """Let each link carry a packet, from the core down, so that no packet makes two hops."""
    d = conditions.d
    for core in range(d * d):
        for pod in range(2 * d):
            fabric.core[core, pod] -= fabric.core[core, pod] > 0
    for port in range(2 * d * d * d):
        destination = take(fabric.above, port)
        if destination >= 0:
            number, uplink = port // d % d, port % d
            fabric.core[uplink * d + number, destination // (d * d)] += 1
    for port in range(2 * d * d * d):
        destination = take(fabric.edge, port)
        if destination >= 0:
            enter_aggregation(conditions, fabric, port // d, port % d, destination)


def one_slot(
    conditions: Conditions, fabric: FabricQueues, to: Ints, begins: Ints, sums: QueueSums
) -> None:
    """Run one slot.

    to: destination of each host.
    begins: for each edge switch the host that begins a burst, -1 for none.
    """
    d = conditions.d
    forward(conditions, fabric)
    for edge in range(2 * d * d):
        if begins[edge] >= 0:
            fabric.hosts[begins[edge]] += d
    for host in range(2 * d * d * d):
        arriving = fabric.hosts[host]
        if arriving > 1 and not conditions.at_once:
            arriving = 1
        fabric.hosts[host] -= arriving
        for _ in range(arriving):
            enter_edge(conditions, fabric, host, to[host])
    if conditions.states:
        agree(d, fabric, sums)
        change_states(conditions, fabric, sums)
    watch(d, fabric, sums)


def many_slots(
    conditions: Conditions, fabric: FabricQueues, to: Ints, begins: Ints, sums: QueueSums
) -> None:
    """Run slot after slot; `begins` has a row for each."""
    for slot in range(begins.shape[0]):
        one_slot(conditions, fabric, to, begins[slot], sums)


def simulate(
    conditions: Conditions, load_fraction: float, *, slots: int, patterns: int, rng: Generator
) -> QueueSums:
    """Run `slots` slots for each of `patterns` permutations, from an empty fabric each time."""
    d = conditions.d
    sums = QueueSums(int_zeros(3), np.zeros(2), int_zeros(2))
    run = compiled(many_slots)
    for _ in range(patterns):
        to, begins = traffic(d, load_fraction, slots, rng)
        run(conditions, empty(d, d * d * slots), to, begins, sums)
    return sums


def traffic(d: int, load_fraction: float, slots: int, rng: Generator) -> tuple[Ints, Ints]:
    """Return a random pattern.

    Returns:
        The destination of each host, and for each slot and edge switch the host that begins a
        burst, or -1.
    """
    edges = 2 * d * d
    to = int_zeros(edges * d)
    for src, dst in permutation(rng, edges * d):
        to[src] = dst
    begins = np.arange(edges) * d + rng.integers(d, size=(slots, edges))
    begins[rng.random((slots, edges)) >= load_fraction] = -1
    return to, begins


def paced(d: int, to: Ints, begins: Ints) -> Ints:
    """Return for each slot and host the destination of its packet, or -1 for none."""
    waiting = int_zeros(len(to))
    packets = np.full((len(begins), len(to)), -1)
    for slot, row in enumerate(begins):
        waiting[row[row >= 0]] += d
        packets[slot, waiting > 0] = to[waiting > 0]
        waiting[waiting > 0] -= 1
    return packets
