"""Spines of packets in the slotted model, and moves of flows by DAR: sections 2 and 4, figure 8.

Flow h is what host h sends at present.  An input leaf knows its flows and moves them by the
functions of daemons/dar/iteration.py.  Detectors of bad links:

QUEUE (section 4): if a packet makes more than `queue` packets wait at a port of a spine, the spine
    sends an EAR (explicit adaptation request) about its flow back over the link by which it came,
    unless it has sent one about this flow in the last `rest` slots.  The EAR waits behind the
    packets that the spine has for that leaf, unless EARs go first.  At an uplink of its own a leaf
    moves the flow in that slot.
COUNT (section 2): every `period` slots an output leaf counts the flows on each of its links, and
    sends an EAR for one of the fullest by way of a spine, two slots.

A leaf moves no flow before `rest` slots have gone by since its last move.  An EAR about a flow that
has ended, or is on another spine by now, has no effect.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.daemons.core.compiled import allocates_nothing
from weft.daemons.dar.iteration import (
    COUNTERS,
    DEST,
    MOVES,
    NOWHERE,
    SWAPS,
    ClosFlows,
    IterationRules,
    draw,
    first_spine,
    invert,
    move,
    request,
)
from weft.daemons.routing.selection import below, drill, shortest
from weft.experiments.dar.simulation import network
from weft.experiments.dar.slotted_queues import Clos
from weft.experiments.engines.arrays import Ints, int_zeros

GIVEN, QUEUE, COUNT, HASH, D_MOD_K, RANDOM, DRILL, SHORTEST = range(8)
SENT, STALE, RESTING = range(3)  # EARs: all, and those that had no effect
NEVER = -1


class SpineScheme(NamedTuple):
    """A scheme of the slotted model.

    kind: QUEUE or COUNT, DAR by its detector; for each flow, HASH: a random spine, D_MOD_K: its
        destination mod m, GIVEN: as `Control.given` has it; for each packet, RANDOM, DRILL(2,1) or
        SHORTEST queue.
    queue: packets.
    period: slots.
    ears_first: 1 if EARs do not wait behind packets.
    """

    kind: int
    rules: IterationRules
    queue: int
    period: int
    ears_first: int


class SlottedPlan(NamedTuple):
    """A run of the slotted model.

    shape: n, r and m.
    rate: of a host, packets in a slot.
    traffic: as for slotted_model.destinations().
    size: packets of a message.
    room: packets behind each link.
    slots: length of the run; receivers count from slot `warm` on.
    per: slots of a period in which reroutes are counted.
    """

    shape: tuple[int, int, int]
    rate: float
    traffic: str
    size: int
    room: int
    slots: int
    warm: int
    per: int

    @property
    def messages(self) -> int:
        """Return the messages of a host, with one that the run does not finish."""
        return int(self.slots * self.rate / self.size) + 2


class Control(NamedTuple):
    """State of leaves and spines, changed in place.

    flows: destination and spine of each host's flow, flows on each link, rest in slots.
    message: number of each host's message.
    state: of the random numbers.
    table: with key=dest, the spine of each destination at each leaf, shape (leaves, hosts).
    given: assigned spines, shape (messages, hosts), or empty.
    asked: of each spine and host, the slot of the spine's last EAR about its flow, or NEVER.
    due, about: of each spine and host, the EAR under way: slot of its arrival or NEVER, and
        message.
    pending: of each host, EARs under way about its flow.
    own: of each host, 1 if its leaf is to move its flow in this slot without an EAR.
    draws, remembered: for DRILL: scratch, and the spine that each leaf remembers.
    counts: as in iteration.iterate().
    ears: SENT, STALE, RESTING.
    per: slots of a period of `reroutes`: moves and swaps, by leaf and period.
    moved: by the latest message that any host had begun: moves and swaps, and the slot of the
        last; shape (messages, 2).
    newest: that message.
    """

    flows: ClosFlows
    message: Ints
    state: Ints
    table: Ints
    given: Ints
    asked: Ints
    due: Ints
    about: Ints
    pending: Ints
    own: Ints
    draws: Ints
    remembered: Ints
    counts: Ints
    ears: Ints
    per: int
    reroutes: Ints
    moved: Ints
    newest: Ints


def control(plan: SlottedPlan, given: Ints, state: Ints) -> Control:
    """Return the state before the first flow begins."""
    n, r, m = plan.shape
    hosts = n * r
    flows = network(n, r, m)
    for host in range(hosts):
        flows.spine[host] = NOWHERE
    return Control(
        flows,
        message=int_zeros(hosts) - 1,
        state=state,
        table=np.tile(np.arange(hosts) % m, (r, 1)),
        given=given,
        asked=int_zeros(m, hosts) + NEVER,
        due=int_zeros(m, hosts) + NEVER,
        about=int_zeros(m, hosts),
        pending=int_zeros(hosts),
        own=int_zeros(hosts),
        draws=int_zeros(2),
        remembered=int_zeros(r) + m,
        counts=int_zeros(COUNTERS),
        ears=int_zeros(3),
        per=plan.per,
        reroutes=int_zeros(r, -(-plan.slots // plan.per)),
        moved=int_zeros(plan.messages, 2),
        newest=int_zeros(1),
    )


@allocates_nothing
def begin(control: Control, way: SpineScheme, host: int, destination: int) -> None:
    """Let `host` begin a message to `destination`."""
    flows = control.flows
    leaf, n, m = host // flows.n, flows.n, flows.m
    old, previous = flows.spine[host], flows.destination[host]
    if old >= 0:
        flows.up[leaf * m + old] -= 1
        flows.down[previous // n * m + old] -= 1
        control.table[leaf, previous] = old
    control.message[host] += 1
    control.newest[0] = max(control.newest[0], control.message[host])
    flows.destination[host], flows.spine[host], flows.rest[host] = destination, NOWHERE, 0
    if destination // n == leaf:
        return
    spine = starting(control, way, host)
    flows.spine[host] = spine
    flows.up[leaf * m + spine] += 1
    flows.down[destination // n * m + spine] += 1


@allocates_nothing
def starting(control: Control, way: SpineScheme, host: int) -> int:
    """Return the first spine of the message that `host` begins."""
    flows = control.flows
    leaf, destination = host // flows.n, flows.destination[host]
    if way.kind == GIVEN:
        return int(control.given[control.message[host], host])
    if way.kind == HASH:
        return below(draw(control.state), flows.m)
    if way.kind == D_MOD_K:
        return destination % flows.m
    if way.rules.key == DEST:
        for other in range(leaf * flows.n, (leaf + 1) * flows.n):
            if flows.destination[other] == destination and flows.spine[other] >= 0:
                return flows.spine[other]
        return int(control.table[leaf, destination])
    return first_spine(flows, way.rules, host, control.state)


@allocates_nothing
def uplink(control: Control, way: SpineScheme, net: Clos, host: int) -> int:
    """Return the spine of a packet from `host`."""
    if way.kind <= D_MOD_K:
        return control.flows.spine[host]
    leaf, draws = host // net.n, control.draws
    loads = net.queues.length[leaf * net.m : (leaf + 1) * net.m]
    draws[0] = draw(control.state)
    if way.kind == RANDOM:
        return below(draws[0], net.m)
    if way.kind == SHORTEST:
        return shortest(loads, draws[0])
    draws[1] = draw(control.state)
    control.remembered[leaf] = drill(loads, control.remembered[leaf], draws)
    return int(control.remembered[leaf])


@allocates_nothing
def reroute(control: Control, way: SpineScheme, host: int, informed: int, slot: int) -> None:
    """Move the flow of `host`."""
    before = control.counts[MOVES] + control.counts[SWAPS]
    move(control.flows, way.rules, host, informed, control.counts, control.state)
    changed = control.counts[MOVES] + control.counts[SWAPS] - before
    if changed:
        control.reroutes[host // control.flows.n, slot // control.per] += changed
        control.moved[control.newest[0], 0] += changed
        control.moved[control.newest[0], 1] = slot


@allocates_nothing
def ask(control: Control, host: int, spine: int, message: int, arrival: int) -> None:
    """Send an EAR about a message of `host` on `spine`, unless one is under way."""
    if control.due[spine, host] == NEVER:
        control.due[spine, host] = arrival
        control.about[spine, host] = message
        control.pending[host] += 1
        control.ears[SENT] += 1


@allocates_nothing
def at_uplink(control: Control, way: SpineScheme, host: int, waiting: int) -> None:
    """Check the queue at a leaf's uplink, `waiting` packets with the last one, from `host`."""
    if way.kind == QUEUE and waiting > way.queue:
        control.own[host] = 1


@allocates_nothing
def at_spine(
    control: Control, way: SpineScheme, net: Clos, packet: int, waiting: int, slot: int
) -> None:
    """Check the queue at a spine's port, `waiting` packets with the last one, `packet`."""
    if way.kind != QUEUE or waiting <= way.queue:
        return
    host, link = net.packets.source[packet], net.packets.via[packet]
    spine = link % net.m
    last = control.asked[spine, host]
    if last == NEVER or slot - last >= way.rules.rest:
        control.asked[spine, host] = slot
        ahead = 0 if way.ears_first else net.queues.length[link + net.r * net.m]
        ask(control, host, spine, net.packets.message[packet], slot + 1 + ahead)


@allocates_nothing
def count_flows(control: Control, way: SpineScheme, slot: int) -> None:
    """Count flows and send EARs, as leaves do at the end of each period: see COUNT."""
    flows = control.flows
    invert(flows)
    of_outputs, count = request(flows, way.rules, control.state)
    for link in range(flows.r * flows.m if way.rules.informed else 0):
        flows.room[link] = flows.down[link]
    for number in range(count):
        host = flows.requested[number]
        if number < of_outputs:
            ask(control, host, flows.spine[host], control.message[host], slot + 2)
        else:
            control.own[host] = 1


@allocates_nothing
def accepted(control: Control, host: int, slot: int) -> bool:
    """Take the EARs about the flow of `host` that arrive in `slot`; return True if one counts."""
    flows, counts = control.flows, False
    for spine in range(flows.m if control.pending[host] else 0):
        if control.due[spine, host] == slot:
            control.due[spine, host] = NEVER
            control.pending[host] -= 1
            if control.about[spine, host] != control.message[host] or flows.spine[host] != spine:
                control.ears[STALE] += 1
            elif flows.rest[host] > 0:
                control.ears[RESTING] += 1
            else:
                counts = True
    return counts


@allocates_nothing
def obey(control: Control, way: SpineScheme, slot: int, first: int) -> None:
    """Move the flows of overfull uplinks and of the EARs that arrive in `slot`.

    It begins with the flow of host `first`.  A flow that has moved in this slot rests.
    """
    if way.kind != QUEUE and way.kind != COUNT:
        return
    if way.kind == COUNT and slot % way.period == way.period - 1:
        count_flows(control, way, slot)
    flows, hosts = control.flows, len(control.own)
    for host in range(hosts):
        flows.rest[host] -= flows.rest[host] > 0
    for number in range(hosts):
        host = (first + number) % hosts
        informed = way.rules.informed
        moves = accepted(control, host, slot)
        if not moves and control.own[host]:
            moves, informed = flows.spine[host] >= 0 and flows.rest[host] == 0, 0
        control.own[host] = 0
        if moves:
            reroute(control, way, host, informed, slot)
