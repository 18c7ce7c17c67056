"""Which spine a packet takes in the slotted model, and when DAR moves a flow: sections 2 and 4,
figure 8.

Flow h is what host h sends at present.  An input leaf knows its flows and moves them by the very
functions of daemons/dar/iteration.py.  Where bad links are seen:

QUEUE (section 4): where a packet makes more than `queue` packets wait at a port of a spine, the
    spine sends an EAR (explicit adaptation request) about its flow back over the link by which it
    came.  The EAR waits behind the packets that the spine has for that leaf, unless EARs go first.
    At an uplink of its own a leaf moves the flow in that slot.
COUNT (section 2): every `period` slots an output leaf counts the flows on each of its links, and
    sends an EAR for one of the fullest by way of a spine, two slots.

No flow is moved before `rest` slots have gone by since its last move.  An EAR about a flow that has
ended, or is on another spine by now, is without effect.  A flow has one EAR under way at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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
from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.compiled import allocates_nothing

GIVEN, QUEUE, COUNT, HASH, D_MOD_K, RANDOM, DRILL, SHORTEST = range(8)
SENT, STALE, RESTING = range(3)  # what becomes of EARs: of those sent, these came in vain
NEVER = -1


class SpineScheme(NamedTuple):
    """A scheme.  kind: QUEUE or COUNT: DAR, by where it sees bad links; for each flow, HASH: any

    spine, D_MOD_K: its destination mod m, GIVEN: as `given` says; for each packet, RANDOM,
    DRILL(2,1) or SHORTEST queue.

    queue: packets.  period: slots.  ears_first: 1 if EARs do not wait behind packets.
    """

    kind: int
    rules: IterationRules
    queue: int
    period: int
    ears_first: int


class Control(NamedTuple):
    """What leaves and spines know, changed in place.

    flows: destination and spine of each host's flow, flows on each link, rest in slots.
    message: of each host, the number of its message.  state: of the random numbers.
    table: with key=dest, the spine of each destination at each leaf, shape (leaves, hosts).
    given: spines that are given, shape (messages, hosts), or empty.
    due, about, spine: the EAR under way to each flow's leaf: slot of its arrival or NEVER, message,
        and spine.
    own: of each host, 1 if its leaf is to move its flow in this slot without an EAR.
    draws, remembered: for DRILL: scratch, and the spine that each leaf remembers.
    counts: as in iteration.iterate().  ears: SENT, STALE, RESTING.
    reroutes: flows that changed their spine, by leaf and period of `per` slots.
    moved: by the latest message that any host had begun: flows that changed their spine, and the
        slot of the last; shape (messages, 2).  newest: that message.
    """

    flows: ClosFlows
    message: Ints
    state: Ints
    table: Ints
    given: Ints
    due: Ints
    about: Ints
    spine: Ints
    own: Ints
    draws: Ints
    remembered: Ints
    counts: Ints
    ears: Ints
    per: int
    reroutes: Ints
    moved: Ints
    newest: Ints


def control(
    n: int, r: int, m: int, *, given: Ints, messages: int, per: int, slots: int, state: Ints
) -> Control:
    """Before the first flow begins."""
    hosts = n * r
    flows = network(n, r, m)
    for host in range(hosts):
        flows.spine[host] = NOWHERE

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return Control(
        flows,
        message=zeros(hosts) - 1,
        state=state,
        table=np.tile(np.arange(hosts) % m, (r, 1)),
        given=given,
        due=zeros(hosts) + NEVER,
        about=zeros(hosts),
        spine=zeros(hosts),
        own=zeros(hosts),
        draws=zeros(2),
        remembered=zeros(r) + m,
        counts=zeros(COUNTERS),
        ears=zeros(3),
        per=per,
        reroutes=zeros(r, -(-slots // per)),
        moved=zeros(messages, 2),
        newest=zeros(1),
    )


@allocates_nothing
def begin(control: Control, way: SpineScheme, host: int, destination: int) -> None:
    """`host` begins a message to `destination`."""
    flows = control.flows
    leaf, n, m = host // flows.n, flows.n, flows.m
    old, gone = flows.spine[host], flows.destination[host]
    if old >= 0:
        flows.up[leaf * m + old] -= 1
        flows.down[gone // n * m + old] -= 1
        control.table[leaf, gone] = old
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
    """The spine on which the message that `host` begins starts."""
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
    """The spine that a packet from `host` takes."""
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
    """The leaf of `host` moves its flow."""
    before = control.counts[MOVES] + control.counts[SWAPS]
    move(control.flows, way.rules, host, informed, control.counts, control.state)
    changed = control.counts[MOVES] + control.counts[SWAPS] - before
    if changed:
        control.reroutes[host // control.flows.n, slot // control.per] += changed
        control.moved[control.newest[0], 0] += changed
        control.moved[control.newest[0], 1] = slot


@allocates_nothing
def ask(control: Control, host: int, message: int, spine: int, arrival: int) -> None:
    """An EAR about a message of `host`, which came by `spine`, is sent, unless one is under way."""
    if control.due[host] == NEVER:
        control.due[host], control.about[host], control.spine[host] = arrival, message, spine
        control.ears[SENT] += 1


@allocates_nothing
def at_uplink(control: Control, way: SpineScheme, host: int, waiting: int) -> None:
    """A packet of `host` is the `waiting`-th at the port of its leaf to a spine."""
    if way.kind == QUEUE and waiting > way.queue:
        control.own[host] = 1


@allocates_nothing
def at_spine(
    control: Control, way: SpineScheme, net: Clos, packet: int, waiting: int, slot: int
) -> None:
    """`packet` is the `waiting`-th at the port of a spine."""
    host = net.packets.source[packet]
    if way.kind != QUEUE or waiting <= way.queue or control.flows.rest[host] > 0:
        return
    back = net.packets.via[packet] + net.r * net.m
    arrival = slot + 1 + (0 if way.ears_first else net.queues.length[back])
    ask(control, host, net.packets.message[packet], net.packets.via[packet] % net.m, arrival)


@allocates_nothing
def count_flows(control: Control, way: SpineScheme, slot: int) -> None:
    """What leaves do at the end of each period: see COUNT."""
    flows = control.flows
    invert(flows)
    of_outputs, count = request(flows, way.rules, control.state)
    for link in range(flows.r * flows.m if way.rules.informed else 0):
        flows.room[link] = flows.down[link]
    for at in range(count):
        host = flows.requested[at]
        if at < of_outputs:
            ask(control, host, control.message[host], flows.spine[host], slot + 2)
        else:
            control.own[host] = 1


@allocates_nothing
def obey(control: Control, way: SpineScheme, slot: int, first: int) -> None:
    """Leaves move what their own uplinks and the EARs that arrive in `slot` ask for, from the flow
    of host `first` on.

    A flow that has moved in this slot rests, so what is asked of it later in the slot is without
    effect.
    """
    if way.kind != QUEUE and way.kind != COUNT:
        return
    if way.kind == COUNT and slot % way.period == way.period - 1:
        count_flows(control, way, slot)
    flows, hosts = control.flows, len(control.own)
    for host in range(hosts):
        flows.rest[host] -= flows.rest[host] > 0
    for at in range(hosts):
        host = (first + at) % hosts
        wanted, informed = (
            control.own[host] > 0 and flows.spine[host] >= 0 and flows.rest[host] == 0,
            0,
        )
        control.own[host] = 0
        if control.due[host] == slot:
            control.due[host] = NEVER
            if (
                control.about[host] != control.message[host]
                or control.spine[host] != flows.spine[host]
            ):
                control.ears[STALE] += 1
            elif flows.rest[host] > 0:
                control.ears[RESTING] += 1
            else:
                wanted, informed = True, way.rules.informed
        if wanted:
            reroute(control, way, host, informed, slot)
