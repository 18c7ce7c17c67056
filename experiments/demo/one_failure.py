"""One link of any network dies under any scheme: connectivity, outages of pairs, TCP's goodput.

Pairs of servers ping each other while all links live.  Then a link on the path of some pairs dies;
the seed draws it.  These pairs ping every 10 ms, and a TCP flow runs between one of them
(experiments/ccrdn/proxy_failover.py).  If a scheme spreads packets over several paths, only some
packets of such a pair cross the link.  The engine packet simulates all of that without Linux.

In it daemons run in simulated time, and TCP packet by packet.  A ping is a walk by the present
tables, there and back, on idle links.  The flow of TCP runs on the packet engine beside daemons of
its own, which find the same failure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.daemons.simulator.simulator import Simulator
from weft.experiments.ccrdn import proxy_failover
from weft.experiments.ccrdn.failure import ElementFailure
from weft.experiments.ccrdn.proxy_failover import (
    HEAL_S,
    INTERVAL_MS,
    MOST_TRACED,
    SETTLE_S,
    STEADY_S,
    Failed,
    Hit,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import reachability
from weft.experiments.engines.kernel_run import measured
from weft.experiments.engines.routes import Pair, lengths, some_pairs
from weft.experiments.fatpaths.transports import revisions
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Word
from weft.testbed.measure.outage import Outage, gaps
from weft.testbed.measure.ping import ping
from weft.testbed.network.network import RunningNetwork
from weft.testbed.packets.control_plane import check_daemons, converged
from weft.testbed.packets.simulation import Fault, FlowProgress, simulate
from weft.testbed.packets.transport import SIMULATED_CONTROLS
from weft.topologies.core.grammar import unknown

MOST_PINGED = 1000  # random unordered pairs
FAILURES = ("link", "silent-link", "one-way", "flap")
SIMULATED_FAILURES = ("link", "silent-link")
SETTLE_EVERY_S, MOST_SETTLED = 0.5, 20
SAMPLE_S = 0.001


def simulated(run: Run) -> Result:
    """Return the figures of one failure."""
    generator = run.generator()
    links = [common.link(run)] * len(run.topology.links)
    simulator = converged(run.topology, run.text("routing"), links)
    pairs = some_pairs(run.topology.servers, MOST_PINGED, generator)
    settle(simulator, pairs, run.text("routing"))
    row: Row = {
        "pinged_pairs": len(pairs),
        "connected_fraction": sum(answers(simulator, pair) for pair in pairs) / len(pairs),
        "rtt_median_us": None,
        **proxy_failover.NOTHING,
    }
    sample = some_pairs(run.topology.servers, MOST_TRACED, generator)
    settle(simulator, sample, run.text("routing"))
    hit = proxy_failover.first_hit(run, generator, sample, paths(simulator, sample))
    if hit:
        survivors = proxy_failover.predicted(hit, run.text("routing"))
        row |= proxy_failover.of_hit(hit)
        row |= proxy_failover.pings(fail(simulator, run, hit), hit, survivors)
        row |= stream(simulator, run, hit, survivors)
    return Result(row)


def paths(simulator: Simulator, pairs: Sequence[Pair]) -> dict[Pair, Sequence[int]]:
    """Return the paths of those of `pairs` whose packets arrive."""
    walks = {pair: simulator.send(*pair) for pair in pairs}
    return {pair: walk.path for pair, walk in walks.items() if not walk.lost}


def answers(simulator: Simulator, pair: Pair) -> bool:
    """Send a ping; return True if it is answered."""
    return not (simulator.send(*pair).lost or simulator.send(*pair[::-1]).lost)


def settle(simulator: Simulator, pairs: Sequence[Pair], routing: str) -> None:
    """Let pairs send until their paths are those of the scheme, if it fixes them."""
    hops = lengths(simulator.topology, routing, pairs)
    for _ in range(MOST_SETTLED):
        now = {pair: len(path) - 1 for pair, path in paths(simulator, pairs).items()}
        if now == (now if hops is None else hops):
            return
        simulator.run_for(SETTLE_EVERY_S)


def fail(simulator: Simulator, run: Run, hit: Hit) -> Failed:
    """Ping the measured pairs across failure and repair."""
    link, probe = run.topology.link(hit.failure.name), SimulatedPings(simulator, hit.pairs)
    probe.run_for(SETTLE_S)
    failed_s = simulator.now
    simulator.fail(link, silent=is_silent(run))
    probe.run_for(float(run.parameters["failure_s"]))
    traced_s = simulator.now
    traced = paths(simulator, hit.pairs)
    probe.run_for(2 * INTERVAL_MS / 1000)
    mended_s = simulator.now
    simulator.restore(link)
    probe.run_for(HEAL_S)
    return Failed(failed_s, traced_s, mended_s, probe.outages(), traced)


class SimulatedPings:
    """Pings of pairs in simulated time, as OutageProbe sends them on Linux."""

    def __init__(self, simulator: Simulator, pairs: Sequence[Pair]) -> None:
        self._simulator, self._pairs, self._begin_s = simulator, pairs, simulator.now
        self._answered_s: list[list[float]] = [[] for _ in pairs]

    def run_for(self, seconds: float) -> None:
        """Ping for a time."""
        for _ in range(round(1000 * seconds / INTERVAL_MS)):
            self._simulator.run_for(INTERVAL_MS / 1000)
            for pair, times_s in zip(self._pairs, self._answered_s, strict=True):
                times_s.append(self._simulator.now if answers(self._simulator, pair) else 0.0)

    def outages(self) -> list[Outage]:
        """Return the outage of each pair."""
        return [
            Outage(*pair, len(times_s), sum(map(bool, times_s)), gaps(times_s, self._begin_s))
            for pair, times_s in zip(self._pairs, self._answered_s, strict=True)
        ]


def is_silent(run: Run) -> bool:
    """Return True if the link that fails keeps its carrier."""
    return run.text("failure") == "silent-link"


def stream(simulator: Simulator, run: Run, hit: Hit, survivors: set[Pair] | None) -> Row:
    """Return TCP's figures for the same failure, between a pair that the scheme saves if any."""
    settle(simulator, hit.pairs, run.text("routing"))
    for pair in proxy_failover.tried(hit, survivors):
        there_and_back = paths(simulator, [pair, pair[::-1]])
        if any(hit.failure.passes(path) for path in there_and_back.values()):
            return stream_of(run, hit.failure, pair)
    missing = ("tcp_before_bps", "tcp_through_bps", "tcp_stall_ms", "tcp_error")
    return {"tcp_concerned": False, **dict.fromkeys(missing)}


def stream_of(run: Run, failure: ElementFailure, pair: Pair) -> Row:
    """Run a flow of TCP between `pair` through the failure."""
    failed_s = 2 * STEADY_S
    mended_s = failed_s + float(run.parameters["failure_s"])
    link = common.link(run)
    size_bytes = int(link.rate_bps * (mended_s + 2 * STEADY_S) / 8)
    fault = Fault(
        [run.topology.link(failure.name)],
        failed_s,
        restored_s=mended_s,
        silent=is_silent(run),
    )
    result = simulate(
        run.topology,
        run.text("routing"),
        [(*pair, size_bytes)],
        transport=f"tcp:control={run.text('congestion_control')}",
        link=link,
        seed=1 + run.seed,
        faults=[fault],
        daemons=True,
        deadline_s=mended_s + STEADY_S,
        sample_s=SAMPLE_S,
    )
    progress = result.progress
    return {
        "tcp_concerned": True,
        "tcp_before_bps": goodput_bps(progress, failed_s - STEADY_S, failed_s),
        "tcp_through_bps": goodput_bps(progress, failed_s, mended_s),
        "tcp_stall_ms": 1000 * stall_s(progress, failed_s, mended_s),
        "tcp_error": None,
    }


def goodput_bps(progress: FlowProgress, from_s: float, until_s: float) -> float:
    """Return the payload bits of the first flow that arrived per second in that time."""
    first, last = np.interp((from_s, until_s), progress.times_s, progress.arrived_bytes[:, 0])
    return float(8 * (last - first) / (until_s - from_s))


def stall_s(progress: FlowProgress, from_s: float, until_s: float) -> float:
    """Return the longest part of that time without an arrival of the first flow, to SAMPLE_S."""
    arrives = np.diff(progress.arrived_bytes[:, 0], prepend=0) > 0
    times_s = progress.times_s[arrives]
    within = times_s[(times_s >= from_s) & (times_s <= until_s)]
    return float(np.diff([from_s, *within, until_s]).max())


def check_simulated(run: Run) -> None:
    """Raise ValueError unless daemons and packets of `run` can be simulated."""
    check_daemons(run.topology, run.text("routing"))
    for key, words in (("failure", SIMULATED_FAILURES), ("congestion_control", SIMULATED_CONTROLS)):
        if run.text(key) not in words:
            raise ValueError(f"one_failure: {unknown(f'simulated {key}', run.text(key), words)}")


def measure(run: Run) -> Result:
    """Measure connectivity without a failure, and outages and goodput with one."""
    if run.engine == "packet":
        return simulated(run)
    generator = run.generator()

    def figures_of(net: RunningNetwork) -> Row:
        before = connectivity(net, generator)
        return before | proxy_failover.before_and_during(net, run, generator)

    return measured(run, figures_of, link=common.link(run))


def connectivity(net: RunningNetwork, generator: np.random.Generator) -> Row:
    """Return how many of all pairs, or of a random sample, ping each other, and how fast."""
    pairs = some_pairs(net.topology.servers, MOST_PINGED, generator)
    table = ping(net, pairs, timeout_s=reachability.TIMEOUT_S, retries=reachability.RETRIES)
    return {
        "pinged_pairs": len(pairs),
        "connected_fraction": 1 - len(table.lost) / len(pairs),
        "rtt_median_us": table.percentile_us(50),
    }


def check(run: Run) -> None:
    """Raise ValueError unless the scheme suits the network, and the kernel has its TCP."""
    topology = run.topology if run.engine == "packet" else common.network(run)
    if not (topology.level > 0).any():
        raise ValueError(f"one_failure: {topology.spec} has no link between routers that could die")
    if run.engine == "packet":
        check_simulated(run)
        return
    common.check_routing(run)
    common.check_tcp(run)


EXPERIMENT = Experiment(
    name="one_failure",
    question="On any network under any scheme: who reaches whom, "
    "and what does the failure of one link cost?",
    source="none: for schemes and networks of one's own",
    engines=("kernel", "packet"),
    axes={
        **proxy_failover.EXPERIMENT.axes,
        "topology": common.TOPOLOGY.over("dcell:n=4,k=1"),
        "routing": common.ROUTING.over("dr", "bfs"),
        "failure": Word("what fails", words=FAILURES).over("link", "silent-link"),
    },
    columns={
        "pinged_pairs": "ordered pairs that ping before the failure: all, or a random sample",
        "connected_fraction": "pairs that have an answer, of those pinged",
        "rtt_median_us": "median round-trip time of these pings",
        **proxy_failover.EXPERIMENT.columns,
    },
    seeds=1,
    version=2,
    revised=revisions,
    measure=measure,
    plot=proxy_failover.FIGURE,
    check=check,
)
