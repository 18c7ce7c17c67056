"""Messages as fluids: each flows at its fair rate, until it has arrived and others may begin.

Rates are max-min fair: no flow can have more without taking it from one that has no more.  They are
worked out again whenever messages end, but messages that end within a fraction `resolution` of the
time that has passed are taken together; each ends at its own time, and what that changes for the
rates of others is seen up to so much later. Messages that begin between two updates do so with the
rate that they get at the second.

Cost: working rates out takes some ten passes over the routes of all messages under way, whose
number is that of the longest chain of links each of which is a bottleneck only once the one before
is.  It happens at most about
log(last end / first end) / resolution times, and twice that to begin with.  Memory: 4 bytes for
every channel that a route can have, and 40 more, for each message; 25 bytes for each channel of the
network.

Everything is arrays and loops, so that the same source runs in a test as it stands and compiled
over millions.
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
    """Who sends what to whom, and after what.

    src, dst: servers, shape (messages,).
    waits: for how many messages each waits.
    then, then_from: those that wait for message m are then[then_from[m] : then_from[m + 1]].
    """

    src: Ints
    dst: Ints
    waits: Ints
    then: Ints
    then_from: Ints


def depart(
    tables: PathTables, policy: Policy, src: int, dst: int, flows: Array, route: Array, room: Array
) -> int:
    """Choose a route by the `flows` under way, count it there and write its channels into `route`.

    Return how many.
    """
    at = parting(tables.t, src, dst)
    _, proxy = search(tables, policy, cost, at, flows, NEVER, room)
    length = channels(tables, at, proxy, write, route, 0)
    for i in range(length):
        flows[route[i]] += 1
    return length


def fair_rates(
    under_way: Ints,
    routes: Array,
    lengths: Ints,
    flows: Array,
    capacity: float,
    max_min: bool,
    rates: Floats,
) -> int:
    """Fill in the rate of each message in `under_way`; return the number of passes that it took.

    In each pass a channel's share is what is left of it, divided by the messages without a rate.  A
    channel all of whose messages have no smaller share anywhere is their bottleneck, and its share
    is their rate. Without `max_min` a message gets its smallest share, and what others cannot use
    is left idle.
    """
    left, count = np.full(len(flows), capacity), flows.astype(np.int64)
    share, eased = np.zeros(len(flows)), np.zeros(len(flows), np.uint8)
    waiting, waiting_count, passes = under_way.copy(), len(under_way), 0
    while waiting_count:
        passes += 1
        for channel in range(len(flows)):
            eased[channel] = 0
            if count[channel]:
                share[channel] = max(0.0, left[channel]) / count[channel]
        for i in range(waiting_count):
            message = waiting[i]
            least = capacity
            for j in range(lengths[message]):
                least = min(least, share[routes[message, j]])
            rates[message] = least
            for j in range(lengths[message]):
                if share[routes[message, j]] > least * (1 + SAME):
                    eased[routes[message, j]] = 1  # this message does not use all of its share
        if not max_min:
            return passes
        still = 0
        for i in range(waiting_count):
            message = waiting[i]
            done = False
            for j in range(lengths[message]):
                channel = routes[message, j]
                done |= not eased[channel] and share[channel] <= rates[message] * (1 + SAME)
            if done:
                for j in range(lengths[message]):
                    left[routes[message, j]] -= rates[message]
                    count[routes[message, j]] -= 1
            else:
                waiting[still] = message
                still += 1
        waiting_count = still
    return passes


class FluidState(NamedTuple):
    """What is known of each message, shape (messages,) but for `routes`.

    routes, lengths: its channels, and how many they are.  ready_s: when the last that it waited for
        ended.
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
    """Let `step_s` pass: messages that end go from `under_way`, those that waited for them into
    `ready`; how many there are in each.
    """
    still, begun = 0, 0
    for i in range(len(under_way)):
        message = under_way[i]
        needs_s = state.left_bits[message] / state.rates[message]
        if needs_s > step_s:
            state.left_bits[message] -= state.rates[message] * step_s
            under_way[still] = message
            still += 1
            continue
        state.end_s[message] = now_s + needs_s
        for j in range(state.lengths[message]):
            state.flows[state.routes[message, j]] -= 1
        for j in range(messages.then_from[message], messages.then_from[message + 1]):
            other = messages.then[j]
            state.waits[other] -= 1
            state.ready_s[other] = max(state.ready_s[other], now_s + needs_s)
            if state.waits[other] == 0:
                ready[begun] = other
                begun += 1
    return still, begun


def completion(
    tables: PathTables,
    policy: Policy,
    messages: Messages,
    channel_count: int,
    size_bits: float,
    rate_bps: float,
    resolution: float,
    max_min: bool,
) -> tuple[Floats, int]:
    """When each message ends, in seconds, and how often rates were worked out."""
    count, width = len(messages.src), most_channels(tables.t)
    state = FluidState(
        np.zeros((count, width), np.int32),
        np.zeros(count, np.int64),
        np.zeros(count),
        np.zeros(count),
        messages.waits.copy(),
        np.zeros(count),
        np.zeros(count),
        np.zeros(channel_count, np.uint32),
    )
    under_way, ready = np.zeros(count, np.int64), np.flatnonzero(messages.waits == 0)
    room = np.zeros(most_routes(tables.t), np.int64)
    begun, still, now_s, updates = len(ready), 0, 0.0, 0
    ready = np.concatenate((ready, np.zeros(count - begun, np.int64)))
    while still + begun:
        for i in range(begun):
            message = ready[i]
            src, dst, route = messages.src[message], messages.dst[message], state.routes[message]
            state.lengths[message] = depart(tables, policy, src, dst, state.flows, route, room)
            under_way[still + i] = message
        still += begun
        current = under_way[:still]
        fair_rates(
            current, state.routes, state.lengths, state.flows, rate_bps, max_min, state.rates
        )
        updates += 1
        for message in current[still - begun :]:  # which had been ready for a while
            sent_bits = state.rates[message] * (now_s - state.ready_s[message])
            state.left_bits[message] = max(0.0, size_bits - sent_bits)
        soonest_s = np.inf
        for message in current:
            soonest_s = min(soonest_s, state.left_bits[message] / state.rates[message])
        step_s = max(soonest_s, resolution * now_s)
        still, begun = arrive(messages, state, current, now_s, step_s, ready)
        now_s += step_s
    return state.end_s, updates
