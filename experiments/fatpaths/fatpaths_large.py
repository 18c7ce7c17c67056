"""How long do flows take over layers in networks larger than a machine's kernel carries, as fluids?

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

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.engines.compiled import compiled
from weft.experiments.engines.fluid import fair_rates
from weft.experiments.engines.workloads import mapped, pairs
from weft.experiments.fatpaths import columns, table_iv
from weft.experiments.fatpaths.layered_network import MAPPING, PATTERN
from weft.experiments.report import figures, panels, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table
from weft.experiments.runner.parameters import Integer, Number, Word
from weft.topologies import build

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.topologies.core.topology import Topology

STEP = 0.01  # of the time that a flow takes alone
MOST_TIMES = 60.0  # for flows to end after the last one came, in that time
SHARED = 0.999  # of a channel: a flow that has less shares a bottleneck
MINIMAL = "minimal"
MOVING = ("again", "informed")
BALANCES = ("one", *MOVING, "all")
NONE = -1  # no channel


def measure(run: Run) -> Result:
    """Times of flows over that of a flow alone."""
    topology = build(run.text("topology"))
    rng = np.random.default_rng(run.seed)
    chosen = pairs(run.text("pattern"), topology.servers, rng)
    chosen = mapped(rng, topology.servers, chosen) if run.text("mapping") == "random" else chosen
    begin = arrivals(rng, len(chosen), float(run.parameters["load_fraction"]), run.integer("times"))
    who = np.array(chosen)[rng.integers(len(chosen), size=len(begin))]
    tables = layer_tables(topology, run)
    balance = run.text("balance")
    layer = rng.integers(len(tables), size=len(begin))
    routes = channels(topology, tables, who, layer if balance == "one" else None)
    moves = (
        LayerMoves(rng, layer, float(run.parameters["draws"]), balance == "informed")
        if balance in MOVING
        else None
    )
    taken = simulate(begin, routes, moves)
    counted = taken[begin > run.integer("times") / 2]  # the paper drops the first half, too
    return Result(
        figures={
            "flows": len(counted),
            "unfinished": int(np.isinf(counted).sum()),
            "mean_times": float(np.minimum(counted, MOST_TIMES).mean()),
            "p50_times": float(np.percentile(counted, 50)),
            "p99_times": float(np.minimum(np.percentile(counted, 99), MOST_TIMES)),
            "histogram": np.histogram(np.minimum(counted, MOST_TIMES), BINS)[0].tolist(),
        }
    )


BINS = np.geomspace(1 - STEP, MOST_TIMES, 61)


def arrivals(rng: np.random.Generator, senders: int, load: float, times: float) -> Floats:
    """When flows begin, in times of a flow alone, each of `senders` using `load` of its link."""
    count = int(rng.poisson(senders * load * times))
    return np.sort(rng.random(count)) * times


def layer_tables(topology: Topology, run: Run) -> NDArray[np.int32]:
    """The tables of the layers of `run`, those of the scheme with its seed."""
    construction = run.text("construction")
    layers, kind = (
        (1, "random") if construction == MINIMAL else (run.integer("layers"), construction)
    )
    spec = f"fatpaths:layers={layers},construction={kind},seed={1 + run.seed}"
    return scheme.tables(topology, registry.scheme(spec)[1])


def channels(topology: Topology, tables: NDArray[np.int32], who: Ints, layer: Ints | None) -> Ints:
    """The channels that each flow takes in its layer, or in each if `layer` is None: shape (flows,
    layers, hops), NONE behind the last.  Links between routers come first, then those from hosts,
    then those to them.
    """
    first, routers = topology.servers, tables.shape[1]
    router_of = np.array([topology.ports(host)[0][1] - first for host in range(topology.servers)])
    src, dst = router_of[who].T
    layers = np.arange(len(tables))[None, :] if layer is None else layer[:, None]
    layers = np.broadcast_to(layers, (len(who), layers.shape[1]))
    at, t = np.broadcast_to(src[:, None], layers.shape), np.broadcast_to(dst[:, None], layers.shape)
    out, into = routers**2 + who[:, 0], routers**2 + topology.servers + who[:, 1]
    hops = [
        np.broadcast_to(out[:, None], layers.shape),
        np.broadcast_to(into[:, None], layers.shape),
    ]
    while (at != t).any():
        after = tables[layers, t, at]
        hops.append(np.where(at == t, NONE, at * routers + after))
        at = after
    found = np.stack(hops, axis=2)
    used, renumbered = np.unique(found, return_inverse=True)
    return np.asarray(renumbered.reshape(found.shape) - int(used[0] == NONE), np.int64)


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
            each = routes[flow]
            np.subtract.at(used, each[self.layer[flow]][each[self.layer[flow]] != NONE], 1)
            if self.informed:
                fullest = np.where(each == NONE, 0, used[each]).max(axis=1)
                self.layer[flow] = self.rng.choice(np.flatnonzero(fullest == fullest.min()))
            else:
                self.layer[flow] = self.rng.integers(len(each))
            np.add.at(used, each[self.layer[flow]][each[self.layer[flow]] != NONE], 1)


def simulate(begin: Floats, routes: Ints, moves: LayerMoves | None = None) -> Floats:
    """How long each flow takes, in times of a flow alone.

    Infinite for one that has not ended in MOST_TIMES after the last one began.

    routes: shape (flows, layers, hops).  A flow uses all its layers at once, or with `moves` one at
        a time.
    """
    flows, _, width = routes.shape
    lengths = (routes != NONE).sum(axis=2)
    packed = np.take_along_axis(routes, np.argsort(routes == NONE, axis=2, kind="stable"), axis=2)
    rate_of, count = compiled(fair_rates), int(routes.max()) + 1
    left, took = np.ones(flows), np.full(flows, np.inf)
    active, following, now = np.zeros(0, np.int64), 0, 0.0
    while following < flows or len(active):
        if not len(active):
            now = max(now, begin[following])
        upto = int(np.searchsorted(begin, now, side="right"))
        active = np.concatenate([active, np.arange(following, upto)])
        following = upto
        if len(active):
            parts = (active,) if moves is None else (active, moves.layer[active])
            taken, hops = packed[parts].reshape(-1, width), lengths[parts].reshape(-1)
            used = np.bincount(taken[taken != NONE], minlength=count)
            rates = np.zeros(len(taken))
            rate_of(np.arange(len(taken)), taken, hops, used, 1.0, True, rates)
            rate = rates.reshape(len(active), -1).sum(axis=1)
            ends = left[active] <= rate * STEP
            took[active[ends]] = now + left[active[ends]] / rate[ends] - begin[active[ends]]
            left[active] -= rate * STEP
            if moves:
                # who has ended fills no channel
                np.subtract.at(used, taken[ends][taken[ends] != NONE], 1)
                moves.move(active[~ends & (rate < SHARED)], packed, used)
            active = active[~ends]
        now += STEP
        if now > begin[-1] + MOST_TIMES:
            break
    return took


def plot(table: Table, figure: Figure) -> None:
    """Draw the distribution of times under each construction and balance, for each setting."""
    keys = ("topology", "pattern", "mapping", "load_fraction", "times", "layers", "draws")
    groups = figures.by_setting(table, keys, always=3)
    ylabel = "fraction of flows"
    grid = panels.grid(figure, len(groups), 3, panel=(4.0, 2.7), margin=(1.6, 0.3), ylabel=ylabel)
    for axes, (title, rows) in zip(grid, groups.items(), strict=True):
        draw_distributions(axes, rows)
        axes.set(xscale="log", ylim=(0, 1.02), xlabel="time / that of a flow alone")
        figures.plain_numbers(axes.xaxis)
        axes.set_title(title, fontsize=7)
    panels.legend(figure, loc="outside right upper", fontsize=7.5)


def draw_distributions(axes: Axes, rows: Table) -> None:
    """Draw a line for each construction and balance, the flows of all runs together."""
    colours = dict(zip(CONSTRUCTIONS, itertools.cycle(style.SEVERAL), strict=False))
    lines = sorted({(str(row["construction"]), str(row["balance"])) for row in rows})
    for construction, balance in lines:
        runs = panels.select(rows, construction=construction, balance=balance)
        counts = np.sum([np.array(row["histogram"]) for row in runs], axis=0)
        axes.plot(
            BINS[1:],
            counts.cumsum() / counts.sum(),
            style.DASHES[BALANCES.index(balance)],
            color=colours[construction],
            label=f"{construction}, {balance}",
        )


def check(run: Run) -> None:
    """ValueError unless there are such layers, more than one to take all of, and hosts for the
    traffic.
    """
    if run.text("construction") == MINIMAL and run.text("balance") != "one":
        raise ValueError("fatpaths_large: construction=minimal is one layer, take balance=one")
    topology = build(run.text("topology"))
    pairs(run.text("pattern"), topology.servers, np.random.default_rng(0))
    registry.checked(topology, "fatpaths:layers=1")


CONSTRUCTIONS: Mapping[str, str] = {
    MINIMAL: "layer 0 alone",
    **{word: word for word in scheme.WORDS},
}

EXPERIMENT = Experiment(
    name="fatpaths_large",
    question="How long do flows take over FatPaths' layers, as fluids, in networks of thousands "
    "of hosts?",
    source="FatPaths, section VII-B4, figure 13",
    engines=("graph",),
    axes={
        "topology": table_iv.NETWORK.over("slimfly:q=5,p=4", "slimfly:q=11,p=9"),
        "construction": Word(
            meaning="how layers are made; minimal: layer 0 alone", words=[*CONSTRUCTIONS]
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
        ).over(0.3),
        "times": Integer(
            meaning="how long flows come, in times of a flow alone", least=1, most=10_000
        ).over(8),
    },
    columns=columns.LARGE,
    version=3,  # adjacent routers take more paths in layers of in-trees
    seeds=1,
    takes_s=200,
    measure=measure,
    plot=plot,
    check=check,
)
