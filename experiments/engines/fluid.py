"""Messages as fluids: each flows at its fair rate until it has arrived and others may begin.

Rates are max-min fair: no flow can have more without taking it from one that has no more.  They are
computed again whenever messages end.  Messages that end within a fraction `resolution` of the time
that has passed are taken together: each ends at its own time, but the rates of others change up to
so much later.  Messages that begin between two updates do so with the rate of the second.

An update passes some ten times over the routes of all messages under way.  There are at most about
log(last end / first end) / resolution updates, and twice that to begin with.  Memory: 4 bytes for
each channel of a route and 40 more for each message; 25 bytes for each channel of the network.

Everything is arrays and loops, so the same source runs in a test as it is, and compiled over
millions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.proxy.routing import (
    NEVER,
    Policy,
    channels,
    most_channels,
    most_routes,
    parting,
    search,
)
from weft.daemons.proxy.routing import shortest_first as cost
from weft.daemons.routing.path_tables import PathTables, write
from weft.experiments.engines.arrays import Array, Floats, Ints

SAME = 1e-9  # rates that differ by less, relatively, are equal


class Messages(NamedTuple):
    """A workload, and the order of its messages.

    src, dst: servers, shape (messages,).
    waits: for how many messages each waits.
    then, then_from: those that wait for message m are then[then_from[m] : then_from[m + 1]].
    """

    src: Ints
    dst: Ints
    waits: Ints
    then: Ints
    then_from: Ints


class Sharing(NamedTuple):
    """Size of each message, and the channels that messages share.

    resolution: fraction of the time within which ends are taken together.
    max_min: False: a message gets its smallest share, and the rest stays idle.
    """

    channels: int
    size_bits: float
    rate_bps: float
    resolution: float
    max_min: bool


def depart(
    tables: PathTables, policy: Policy, src: int, dst: int, flows: Array, route: Array, room: Array
) -> int:
    """Choose a route by the `flows` under way; return the number of its channels.

    They are counted in `flows` and written into `route`.
    """
    place = parting(tables.t, src, dst)
    _, proxy = search(tables, policy, cost, place, flows, NEVER, room)
    length = channels(tables, place, proxy, write, route, 0)
    for i in range(length):
        flows[route[i]] += 1
    return length


def smallest_share(route: Array, share: Floats, capacity: float) -> float:
    """Return the smallest share on a route, at most `capacity`."""
    least = capacity
    for channel in route:
        least = min(least, share[channel])
    return least


def has_bottleneck(route: Array, share: Floats, eased: Array, rate: float) -> bool:
    """Return whether a channel of the route is the bottleneck of all its messages."""
    bottleneck = False
    for channel in route:
        bottleneck |= not eased[channel] and share[channel] <= rate * (1 + SAME)
    return bottleneck


def set_shares(free: Floats, demand: Array, share: Floats) -> None:
    """Set the share of each channel in use: its remaining capacity divided by the demand."""
    for channel in range(len(free)):
        if demand[channel]:
            share[channel] = max(0.0, free[channel]) / demand[channel]


def fair_rates(
    under_way: Ints,
    routes: Array,
    lengths: Ints,
    weights: Floats | None,
    demand: Array,
    capacity: float,
    rates: Floats,
) -> None:
    """Compute the max-min fair rate of each message in `under_way`.

    In each pass a channel's share is its remaining capacity divided by the messages on it without a
    rate.  A channel all of whose messages have no smaller share anywhere is their bottleneck, and
    its share is their rate.

    Args:
        under_way: numbers of the messages.
        routes: channels of each message, shape (messages, most channels).
        lengths: number of channels of each message.
        weights: fraction of a message on each channel of `routes`; None: each has the whole.
        demand: messages on each channel, by their weights.
        capacity: rate of a channel.
        rates: filled.
    """
    free, left = np.full(len(demand), capacity), demand.astype(np.float64)
    share, eased = np.zeros(len(demand)), np.zeros(len(demand), np.uint8)
    waiting = under_way.copy()
    while len(waiting):
        eased[:] = 0
        set_shares(free, left, share)
        for message in waiting:
            route = routes[message, : lengths[message]]
            rates[message] = smallest_share(route, share, capacity)
            for channel in route:
                if share[channel] > rates[message] * (1 + SAME):
                    eased[channel] = 1
        still = 0
        for message in waiting:
            route = routes[message, : lengths[message]]
            if not has_bottleneck(route, share, eased, rates[message]):
                waiting[still] = message
                still += 1
                continue
            for place in range(len(route)):
                weight = 1.0 if weights is None else weights[message, place]
                free[route[place]] -= weight * rates[message]
                left[route[place]] -= weight
        waiting = waiting[:still]


class FluidState(NamedTuple):
    """State of each message, shape (messages,) but for `routes`.

    routes, lengths: its channels, and their number.
    ready_s: end of the last message that it waited for.
    flows: messages under way on each channel.
    """

    routes: NDArray[np.int32]
    lengths: Ints
    rates: Floats
    left_bits: Floats
    waits: Ints
    ready_s: Floats
    end_s: Floats
    flows: NDArray[np.uint32]


def arrive(
    messages: Messages, state: FluidState, under_way: Ints, now_s: float, step_s: float, ready: Ints
) -> tuple[int, int]:
    """Let `step_s` pass; return the number of messages in `under_way` and in `ready`.

    Messages that end leave `under_way`; those that waited for them only enter `ready`.
    """
    still, begun = 0, 0
    for message in under_way:
        needs_s = state.left_bits[message] / state.rates[message]
        if needs_s > step_s:
            state.left_bits[message] -= state.rates[message] * step_s
            under_way[still] = message
            still += 1
            continue
        state.end_s[message] = now_s + needs_s
        for channel in state.routes[message, : state.lengths[message]]:
            state.flows[channel] -= 1
        for j in range(messages.then_from[message], messages.then_from[message + 1]):
            other = messages.then[j]
            state.waits[other] -= 1
            state.ready_s[other] = max(state.ready_s[other], now_s + needs_s)
            if state.waits[other] == 0:
                ready[begun] = other
                begun += 1
    return still, begun


def new_state(messages: Messages, width: int, channels: int) -> FluidState:
    """Return the state before the first message; width: most channels of a route."""
    count = len(messages.src)
    return FluidState(
        np.zeros((count, width), np.int32),
        np.zeros(count, np.int64),
        np.zeros(count),
        np.zeros(count),
        messages.waits.copy(),
        np.zeros(count),
        np.zeros(count),
        np.zeros(channels, np.uint32),
    )


def begin(
    tables: PathTables, policy: Policy, messages: Messages, state: FluidState, ready: Ints
) -> None:
    """Choose the routes of the messages `ready`, one after the other."""
    room = np.zeros(most_routes(tables.t), np.int64)
    for message in ready:
        src, dst, route = messages.src[message], messages.dst[message], state.routes[message]
        state.lengths[message] = depart(tables, policy, src, dst, state.flows, route, room)


def update_rates(
    state: FluidState, current: Ints, begun: int, now_s: float, sharing: Sharing
) -> float:
    """Compute the rates of the messages `current`; return the time (s) until the next one ends.

    The last `begun` of them have been ready for a while, and have sent at their new rate since.
    """
    routes, lengths, rate_bps = state.routes, state.lengths, sharing.rate_bps
    if sharing.max_min:
        fair_rates(current, routes, lengths, None, state.flows, rate_bps, state.rates)
    else:
        share = rate_bps / np.maximum(state.flows, 1)
        for message in current:
            route = routes[message, : lengths[message]]
            state.rates[message] = smallest_share(route, share, rate_bps)
    for message in current[len(current) - begun :]:
        sent_bits = state.rates[message] * (now_s - state.ready_s[message])
        state.left_bits[message] = max(0.0, sharing.size_bits - sent_bits)
    soonest_s = np.inf
    for message in current:
        soonest_s = min(soonest_s, state.left_bits[message] / state.rates[message])
    return soonest_s


def completion(
    tables: PathTables, policy: Policy, messages: Messages, sharing: Sharing
) -> tuple[Floats, int]:
    """Return the end (s) of each message, and the number of updates of the rates."""
    state = new_state(messages, most_channels(tables.t), sharing.channels)
    count = len(messages.src)
    under_way, ready = np.zeros(count, np.int64), np.zeros(count, np.int64)
    first = np.flatnonzero(messages.waits == 0)
    ready[: len(first)] = first
    begun, still, now_s, updates = len(first), 0, 0.0, 0
    while still + begun:
        begin(tables, policy, messages, state, ready[:begun])
        under_way[still : still + begun] = ready[:begun]
        still += begun
        current = under_way[:still]
        soonest_s = update_rates(state, current, begun, now_s, sharing)
        updates += 1
        step_s = max(soonest_s, sharing.resolution * now_s)
        still, begun = arrive(messages, state, current, now_s, step_s, ready)
        now_s += step_s
    return state.end_s, updates
