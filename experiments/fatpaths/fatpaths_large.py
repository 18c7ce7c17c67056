"""Completion times of fluid flows over layers, in networks too large for one kernel.

FatPaths' figure 13: flows of 1 MiB arrive at random (Poisson) at the pairs of a pattern.  Here they
are fluids with max-min fair rates, worked out again after every step of time, a hundredth of what a
flow takes alone: no packets, no queues, no slow start.  `balance` says how a flow uses the layers:

one       it takes a random layer, for good: what hashing does, and what layers alone are worth
again     a random layer, and another while it shares a bottleneck, `draws` times in the mean in the
          time that one takes alone: what FatPaths' hosts do (sections III-B, VIII-A1), if changing
          costs nothing
informed  the same, but it takes the layer whose fullest channel has the fewest flows
all       it is spread over all layers, as much as each can carry

With `construction` minimal there is layer 0 alone, a shortest path.  Times are over that of a flow
alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.engines.compiled import compiled
from weft.experiments.engines.fluid import fair_rates
from weft.experiments.engines.workloads import mapped, pairs
from weft.experiments.fatpaths import columns, table_iv
from weft.experiments.fatpaths.flow_times import MAPPING
from weft.experiments.fatpaths.layered_network import PATTERN
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Number, Word
from weft.topologies import build
from weft.topologies.core.topology import Topology

STEP = 0.01  # of the time that a flow takes alone
MOST_TIMES = 60.0  # for flows to end after the last one came, in that time
SHARED = 0.999  # of a channel: a flow that has less shares a bottleneck
MINIMAL = "minimal"
MOVING = ("again", "informed")
BALANCES = ("one", *MOVING, "all")
NONE = -1  # no channel


BINS = np.geomspace(1 - STEP, MOST_TIMES, 61)


def measure(run: Run) -> Result:
    """Return times of flows over that of a flow alone."""
    topology = build(run.text("topology"))
    rng = np.random.default_rng(run.seed)
    senders = pairs(run.text("pattern"), topology.servers, rng)
    if run.text("mapping") == "random":
        senders = mapped(rng, topology.servers, senders)
    begin = arrivals(rng, len(senders), run.number("load_fraction"), run.integer("times"))
    ends = np.array(senders)[rng.integers(len(senders), size=len(begin))]
    tables = layer_tables(topology, run)
    balance = run.text("balance")
    layer = rng.integers(len(tables), size=len(begin))
    routes = channels(topology, tables, ends, layer if balance == "one" else None)
    moves = None
    if balance in MOVING:
        moves = LayerMoves(rng, layer, run.number("draws"), balance == "informed")
    times = simulate(begin, routes, moves)
    # the paper drops the first half, too
    return Result(figures=statistics(times[begin > run.integer("times") / 2]))


def statistics(times: Floats) -> dict[str, Value]:
    """Return the columns on the times of flows; infinite for those that did not end."""
    counted = np.minimum(times, MOST_TIMES)
    return {
        "flows": len(times),
        "unfinished": int(np.isinf(times).sum()),
        "mean_times": float(counted.mean()),
        "p50_times": float(np.percentile(times, 50)),
        "p99_times": float(np.percentile(counted, 99)),
        "histogram": np.histogram(counted, BINS)[0].tolist(),
    }


def arrivals(rng: np.random.Generator, senders: int, load: float, times: float) -> Floats:
    """Return when flows begin, in times of a flow alone; each sender uses `load` of its link."""
    count = int(rng.poisson(senders * load * times))
    return np.sort(rng.random(count)) * times


def layer_tables(topology: Topology, run: Run) -> NDArray[np.int32]:
    """Return the tables of the layers of `run`, those of the scheme with its seed."""
    construction = run.text("construction")
    layers, kind = (
        (1, "random") if construction == MINIMAL else (run.integer("layers"), construction)
    )
    spec = f"fatpaths:layers={layers},construction={kind},seed={1 + run.seed}"
    return scheme.tables(topology, registry.scheme(spec)[1])


def channels(topology: Topology, tables: NDArray[np.int32], ends: Ints, layer: Ints | None) -> Ints:
    """Return the channels that each flow takes in its layer, or in each if `layer` is None.

    Args:
        topology: the network.
        tables: of the layers.
        ends: source and destination of each flow.
        layer: of each flow.

    Returns:
        shape (flows, layers, hops), NONE behind the last hop.  Links between routers come first,
        then those from hosts, then those to them.
    """
    hosts, routers = topology.servers, tables.shape[1]
    router_of = np.array([topology.ports(host)[0][1] - hosts for host in range(hosts)])
    layers = np.arange(len(tables))[None, :] if layer is None else layer[:, None]
    edges = [edge[:, None] for edge in (routers**2 + ends + [0, hosts]).T]
    src, dst, out, into, layers = np.broadcast_arrays(*router_of[ends.T][..., None], *edges, layers)
    hops = [out, into]
    while (src != dst).any():
        after = tables[layers, dst, src]
        hops.append(np.where(src == dst, NONE, src * routers + after))
        src = after
    return renumbered(np.stack(hops, axis=2))


def renumbered(routes: Ints) -> Ints:
    """Return the routes with the channels that occur numbered from 0."""
    used, numbers = np.unique(routes, return_inverse=True)
    return np.asarray(numbers.reshape(routes.shape) - int(used[0] == NONE), np.int64)


class LayerMoves(NamedTuple):
    """Flows are in one of their layers each, and move while they share a bottleneck.

    layer: of each flow at first, and later.  draws: how often in the time of a flow alone.
    informed: to the best layer instead of a random one.
    """

    rng: np.random.Generator
    layer: Ints
    draws: float
    informed: bool

    def move(self, slow: Ints, routes: Ints, used: Ints) -> None:
        """Let some of the flows `slow` draw again.

        `used`: flows on each channel, changed as they move.
        """
        for flow in slow[self.rng.random(len(slow)) < self.draws * STEP]:
            paths = routes[flow]
            occupy(used, paths[self.layer[flow]], -1)
            if self.informed:
                fullest = np.where(paths == NONE, 0, used[paths]).max(axis=1)
                self.layer[flow] = self.rng.choice(np.flatnonzero(fullest == fullest.min()))
            else:
                self.layer[flow] = self.rng.integers(len(paths))
            occupy(used, paths[self.layer[flow]], 1)


def occupy(used: Ints, routes: Ints, flows: int) -> None:
    """Add `flows` to the use of every channel of `routes`."""
    np.add.at(used, routes[routes != NONE], flows)


class Fluids(NamedTuple):
    """Routes of flows, shape (flows, layers, hops), and what is left of each flow."""

    routes: Ints
    lengths: Ints
    channels: int
    bits_left: Floats
    times: Floats

    def rates(self, parts: tuple[Ints, ...]) -> tuple[Ints, Ints, Floats]:
        """Return the routes of flows, the use of each channel, and their fair rates."""
        hops = self.lengths[parts].reshape(-1)
        routes = self.routes[parts].reshape(len(hops), -1)
        used = np.bincount(routes[routes != NONE], minlength=self.channels)
        rates = np.zeros(len(hops))
        compiled(fair_rates)(np.arange(len(hops)), routes, hops, used, 1.0, True, rates)
        return routes, used, rates.reshape(len(parts[0]), -1).sum(axis=1)

    def step(
        self, active: Ints, now: float, begin: Floats, moves: LayerMoves | None
    ) -> NDArray[np.bool_]:
        """Let the `active` flows go on for a STEP; return which of them end."""
        parts = (active,) if moves is None else (active, moves.layer[active])
        routes, used, rate = self.rates(parts)
        ends = self.bits_left[active] <= rate * STEP
        ended = active[ends]
        self.times[ended] = now + self.bits_left[ended] / rate[ends] - begin[ended]
        self.bits_left[active] -= rate * STEP
        if moves:
            occupy(used, routes[ends], -1)  # a flow that has ended fills no channel
            moves.move(active[~ends & (rate < SHARED)], self.routes, used)
        return ends


def simulate(begin: Floats, routes: Ints, moves: LayerMoves | None = None) -> Floats:
    """Return how long each flow takes, in times of a flow alone.

    It is infinite for a flow that has not ended in MOST_TIMES after the last one began.

    routes: shape (flows, layers, hops).  A flow uses all its layers at once, or with `moves` one at
        a time.
    """
    order = np.argsort(routes == NONE, axis=2, kind="stable")
    fluids = Fluids(
        np.take_along_axis(routes, order, axis=2),
        (routes != NONE).sum(axis=2),
        int(routes.max()) + 1,
        np.ones(len(routes)),
        np.full(len(routes), np.inf),
    )
    active, following, now = np.zeros(0, np.int64), 0, 0.0
    while (following < len(routes) or len(active)) and now <= begin[-1] + MOST_TIMES:
        if not len(active):
            now = max(now, begin[following])
        upto = int(np.searchsorted(begin, now, side="right"))
        active = np.concatenate([active, np.arange(following, upto)])
        following = upto
        if len(active):
            active = active[~fluids.step(active, now, begin, moves)]
        now += STEP
    return fluids.times


def distribution(table: Table) -> list[Row]:
    """Return a row for each class of times: the fraction of flows up to it."""
    rows = []
    for row in table:
        counts = np.array(row["histogram"], float)
        fractions = counts.cumsum() / max(1.0, counts.sum())
        rows += [
            {**row, "time": time, "fraction": fraction}
            for time, fraction in zip(BINS[1:].tolist(), fractions.tolist(), strict=True)
        ]
    return rows


def check(run: Run) -> None:
    """Raise ValueError unless there are such layers and hosts for the traffic."""
    if run.text("construction") == MINIMAL and run.text("balance") != "one":
        raise ValueError("fatpaths_large: construction=minimal is one layer, take balance=one")
    topology = build(run.text("topology"))
    pairs(run.text("pattern"), topology.servers, np.random.default_rng(0))
    registry.checked(topology, "fatpaths:layers=1")


EXPERIMENT = Experiment(
    name="fatpaths_large",
    question="How long do flows take over FatPaths' layers, as fluids, in networks of thousands "
    "of hosts?",
    source="FatPaths, section VII-B4, figure 13",
    engines=("graph",),
    axes={
        "topology": table_iv.NETWORK.over("slimfly:q=5,p=4", "slimfly:q=11,p=9"),
        "construction": Word(
            meaning="how layers are made; minimal: layer 0 alone", words=(MINIMAL, *scheme.WORDS)
        ).over(MINIMAL, "random", "intree"),
        "balance": Word(meaning="how a flow uses the layers", words=BALANCES).over(
            "one", "again", "all"
        ),
        "draws": Number(
            meaning="with balance=again or informed: how often a flow draws a layer in the time "
            "that one takes alone",
            least=0,
            most=1 / STEP,
        ).over(5.0),
        "layers": Integer(meaning="n, layer 0 counted", least=1, most=63).over(9),
        "pattern": PATTERN.over("off-diagonal:c=100", "off-diagonal:c=1089", "permutation"),
        "mapping": MAPPING.over("linear"),
        "load_fraction": Number(
            meaning="load of the sending hosts' links", unit="fraction", least=0.01, most=0.99
        ).over(0.2),
        "times": Integer(
            meaning="how long flows come, in times of a flow alone", least=1, most=10_000
        ).over(8, 32),
    },
    columns=columns.LARGE,
    version=4,  # random layers have the best density measured
    seeds=5,
    takes_s=200,
    measure=measure,
    plot=Curves(
        columns={"fraction": "fraction of flows (figure 13)"},
        x="time",
        series="construction",
        dash="balance",
        facet=("topology", "pattern", "mapping", "load_fraction", "times", "layers", "draws"),
        always=3,
        log=("time",),
        rows=distribution,
    ),
    check=check,
)
