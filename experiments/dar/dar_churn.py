"""Flows that come and go under DAR at the full rate.  Beyond DAR's paper.

On CLOS(n,r,m) every host always sends one flow and receives one, at the full rate of its link.  In
each period some pairs of flows end, and their hosts exchange receivers, so that a flow lives for
`lifetime_periods` in the mean, geometrically distributed.  A new flow takes a random spine to which
its input leaf has room.  Then a period passes, which is what counts, and leaves act once: as in the
iteration of daemons/dar/iteration.py, a request and its move take no time.

informed, persistent   as in dar_convergence
central   a controller that knows all flows and acts in no time.  It gives a new flow a spine, and
exchanges two spines along one alternating path where the flow's leaves have no free one in common
ecmp   a random spine, which the flow keeps

Input and output leaves are apart, so no link is spare where m = n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.daemons.core.compiled import allocates_nothing, compiled
from weft.daemons.dar.iteration import (
    COUNTERS,
    LIMITED,
    MOVES,
    NOWHERE,
    PERSISTENT,
    RANDOM,
    REQUESTS,
    SWAPS,
    ClosFlows,
    IterationRules,
    MutableIntSequence,
    draw,
    first_spine,
    iterate,
    place,
)
from weft.daemons.routing.selection import below
from weft.experiments.dar.settings import clos_size, generator
from weft.experiments.dar.simulation import WORST, network, permute
from weft.experiments.engines.arrays import Floats, Ints, int_zeros
from weft.experiments.report.panels import Curves, Stack, exploded
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Spec, Word
from weft.topologies import canonical

INFORMED, CENTRAL, ECMP = range(3)
RULES = {
    "informed": (INFORMED, IterationRules(informed=1, start=LIMITED)),
    "persistent": (INFORMED, PERSISTENT._replace(start=LIMITED)),
    "central": (CENTRAL, IterationRules(start=LIMITED)),
    "ecmp": (ECMP, IterationRules(start=RANDOM)),
}
WARM_LIFETIMES, LIFETIMES = 5, 10  # before and during the measurement
LEAST_PERIODS = 500  # of either
MOST_FLOWS = 20_000
GROWTH = 1.3  # from one sample over time to the next


class Occupants(NamedTuple):
    """Flow on each link, or NOWHERE, by leaf * m + spine; the central controller's."""

    up: MutableIntSequence
    down: MutableIntSequence


class PeriodLoads(NamedTuple):
    """Flows in each period.

    bad: those on a link that has more than one.
    share: the sum over flows of the smallest equal share of a link that they pass.
    """

    bad: Ints
    share: Floats


@allocates_nothing
def end(net: ClosFlows, flow: int) -> None:
    """Take `flow` from its links."""
    spine, n, m = net.spine[flow], net.n, net.m
    net.up[flow // n * m + spine] -= 1
    net.down[net.destination[flow] // n * m + spine] -= 1
    net.spine[flow], net.rest[flow] = NOWHERE, 0


@allocates_nothing
def begin(net: ClosFlows, flow: int, spine: int) -> None:
    """Put `flow` on the links of `spine`."""
    net.spine[flow] = spine
    net.up[flow // net.n * net.m + spine] += 1
    net.down[net.destination[flow] // net.n * net.m + spine] += 1


@allocates_nothing
def assign(net: ClosFlows, flow: int, occupants: Occupants, state: MutableIntSequence) -> int:
    """Begin `flow` on a spine that no other flow of its leaves has; return the flows moved.

    Where the leaves have no free spine in common, two are exchanged along an alternating path.
    """
    n, m = net.n, net.m
    source, target = flow // n * m, net.destination[flow] // n * m
    count, both, first, second, moved = 0, NOWHERE, NOWHERE, NOWHERE, 0
    for spine in range(m):
        if occupants.up[source + spine] < 0:
            first = spine
            if occupants.down[target + spine] < 0:
                count += 1
                if below(draw(state), count) == 0:
                    both = spine
        elif occupants.down[target + spine] < 0:
            second = spine
    if both < 0:
        moved = exchange_spines(net, occupants, target, first, second)
    spine = both if both >= 0 else first
    begin(net, flow, spine)
    occupants.up[source + spine], occupants.down[target + spine] = flow, flow
    return moved


@allocates_nothing
def exchange_spines(
    net: ClosFlows, occupants: Occupants, target: int, first: int, second: int
) -> int:
    """Move the flows on the path of `first` and `second` from an output leaf; return their number.

    target: first link of the output leaf, which has no flow on `second`, and one on `first`.
    """
    n, m, moved = net.n, net.m, 0
    link, to_output, old, new = target + first, True, first, second
    flow = occupants.down[link]
    while flow >= 0:
        side = occupants.up if to_output else occupants.down
        leaf = flow // n if to_output else net.destination[flow] // n
        following = side[leaf * m + new]
        end(net, flow)
        begin(net, flow, new)
        vacated = occupants.down if to_output else occupants.up
        near = net.destination[flow] // n if to_output else flow // n
        vacated[near * m + new] = flow
        side[leaf * m + new] = flow
        if following < 0:
            side[leaf * m + old] = NOWHERE
        flow, old, new, to_output, moved = following, new, old, not to_output, moved + 1
    occupants.down[target + first] = NOWHERE
    return moved


@allocates_nothing
def exchange_receivers(net: ClosFlows, one: int, other: int) -> None:
    """Let the next flows of two hosts go to each other's receivers."""
    receiver, others = net.destination[one], net.destination[other]
    net.destination[one], net.destination[other] = others, receiver
    net.source[others], net.source[receiver] = one, other


@allocates_nothing
def renew(
    net: ClosFlows,
    rules: IterationRules,
    kind: int,
    one: int,
    other: int,
    occupants: Occupants,
    state: MutableIntSequence,
) -> int:
    """End two flows and begin those that follow; return the flows that a controller has moved."""
    moved = 0
    for flow in (one, other):
        if kind == CENTRAL:
            spine = net.spine[flow]
            occupants.up[flow // net.n * net.m + spine] = NOWHERE
            occupants.down[net.destination[flow] // net.n * net.m + spine] = NOWHERE
        end(net, flow)
    exchange_receivers(net, one, other)
    for flow in (one, other):
        if kind == CENTRAL:
            moved += assign(net, flow, occupants, state)
        else:
            begin(net, flow, first_spine(net, rules, flow, state))
    return moved


def churn(
    net: ClosFlows,
    rules: IterationRules,
    kind: int,
    lifetime: int,
    warm: int,
    occupants: Occupants,
    loads: PeriodLoads,
    counts: MutableIntSequence,
    state: MutableIntSequence,
) -> int:
    """Run a period for each of `loads`; return the flows that have ended after `warm` periods.

    counts: as in iteration.iterate(), of the same periods.
    """
    flows, ended = len(net.destination), 0
    for period in range(len(loads.bad)):
        if period == warm:
            ended = 0
            for counter in range(COUNTERS):
                counts[counter] = 0
        for _ in range(flows // 2):
            if below(draw(state), lifetime) == 0:
                one = below(draw(state), flows)
                other = (one + 1 + below(draw(state), flows - 1)) % flows
                counts[MOVES] += renew(net, rules, kind, one, other, occupants, state)
                ended += 2
        for flow in range(flows):
            spine = net.spine[flow]
            most = max(
                net.up[flow // net.n * net.m + spine],
                net.down[net.destination[flow] // net.n * net.m + spine],
            )
            loads.bad[period] += most > 1
            loads.share[period] += 1 / most
        if kind == INFORMED:
            iterate(net, rules, counts, state)
    return ended


def begin_all(net: ClosFlows, kind: int, occupants: Occupants, state: Ints) -> None:
    """Let a controller give every flow a spine."""
    for flow in range(len(net.destination)):
        end(net, flow)
    for flow in range(len(net.destination)):
        assign(net, flow, occupants, state)


def measure(run: Run) -> Result:
    """Return the share of flows on bad links, what links leave to a flow, and moves of a flow."""
    n, r, _ = size(run.text("topology"))
    warm, loads, counts, ended = simulate(run)
    bad = loads.bad / (n * r)
    sampled = samples(len(bad))
    return Result(
        {
            "bad_flows_fraction": bad[warm:].mean(),
            "equal_share_fraction": loads.share[warm:].mean() / (n * r),
            "moves_per_flow": (counts[MOVES] + counts[SWAPS]) / ended,
            "requests_per_flow": counts[REQUESTS] / ended,
            "ended_flows": ended,
            "sampled_periods": sampled.tolist(),
            "bad_flows_shares": bad[sampled - 1].round(5).tolist(),
        }
    )


def simulate(run: Run) -> tuple[int, PeriodLoads, Ints, int]:
    """Return the periods before the measurement, loads, counters, and flows that ended in it."""
    n, r, m = size(run.text("topology"))
    lifetime, (kind, rules) = run.integer("lifetime_periods"), RULES[run.text("rule")]
    warm = max(LEAST_PERIODS, WARM_LIFETIMES * lifetime)
    periods = warm + max(LEAST_PERIODS, LIFETIMES * lifetime)
    net, state = network(n, r, m), generator(run).integers(1, 1 << 32, 4)
    loads, counts = PeriodLoads(int_zeros(periods), np.zeros(periods)), int_zeros(COUNTERS)
    occupants = draw_start(net, rules, kind, r * m, state)
    ended = compiled(churn)(net, rules, kind, lifetime, warm, occupants, loads, counts, state)
    return warm, loads, counts, ended


def draw_start(
    net: ClosFlows, rules: IterationRules, kind: int, links: int, state: Ints
) -> Occupants:
    """Draw a permutation without a flow inside a leaf and its spines; return who is on links."""
    occupants = Occupants(np.full(links, NOWHERE), np.full(links, NOWHERE))
    compiled(permute)(net, WORST, state)
    compiled(place)(net, rules, state)
    if kind == CENTRAL:
        compiled(begin_all)(net, kind, occupants, state)
    return occupants


def samples(periods: int) -> Ints:
    """Return the periods that a figure shows, each GROWTH times as late as the one before."""
    steps = np.geomspace(1, periods, round(np.log(periods) / np.log(GROWTH)))
    return np.unique(steps.round()).astype(np.int64)


def size(topology: str) -> tuple[int, int, int]:
    """Return n, r and m of `topology`; ValueError unless all flows fit it one by one."""
    n, r, m = clos_size(topology)
    if n * r > MOST_FLOWS or n * r < 2 or not n <= m <= 2 * n:
        raise ValueError(
            f"dar_churn: take 2 to {MOST_FLOWS} hosts and n <= m <= 2n, got {topology}"
        )
    return n, r, m


def over_time(table: Table) -> list[Row]:
    """Return the share of flows on bad links in each sampled period."""
    return exploded(table, ("sampled_periods", "bad_flows_shares"), "sample")


BY_LIFE = Curves(
    columns={
        "bad_flows_fraction": "(a) flows on bad links",
        "moves_per_flow": "(b) moves of a flow",
    },
    x="lifetime_periods",
    series="rule",
    facet=("topology",),
    log=("lifetime_periods", "moves_per_flow"),
)

EXPERIMENT = Experiment(
    name="dar_churn",
    question="How many flows are on bad links, and how often do they move, where flows come and "
    "go at the full rate?",
    source="DAR, beyond the paper",
    engines=("graph",),
    axes={
        "topology": Spec(
            "network", form="clos:n=..,r=..,m=..", check=size, canonical=canonical
        ).over("clos:n=24,r=48,m=24", "clos:n=24,r=48,m=48"),
        "rule": Word("who places and moves flows", words=tuple(RULES)).over(*RULES),
        "lifetime_periods": Integer(
            "mean life of a flow, in periods of DAR", unit="periods", least=2, most=10**6
        ).over(30, 100, 300, 1000, 3000),
    },
    columns={
        "bad_flows_fraction": "flows on a link that has another flow, mean over measured periods",
        "equal_share_fraction": (
            "rate of a flow, of a link's, if each link is shared equally, by its most loaded "
            "link; mean"
        ),
        "moves_per_flow": "moves and swaps of flows, for each flow that ended",
        "requests_per_flow": "requests of output leaves, for each flow that ended",
        "ended_flows": "flows that ended in the measured periods",
        "sampled_periods": "list: some periods from the beginning on",
        "bad_flows_shares": "list: flows on a link that has another flow, in each of those",
    },
    seeds=5,
    compared=("rule",),
    measure=measure,
    plot=Stack(
        BY_LIFE,
        Curves(
            columns={"bad_flows_shares": "flows on bad links"},
            x="sampled_periods",
            series="rule",
            facet=("topology", "lifetime_periods"),
            log=("sampled_periods",),
            rows=over_time,
            wrap=3,
        ),
    ),
    takes_s=60,
)
