"""Comparison of a routing scheme's daemons with what its registration predicts, on every engine.

Its `path` and `connects` say which pairs of servers reach each other while links are dead.  Its
daemons must bring that about in the simulator, under simulated packets, and on Linux.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from weft.daemons.core import registry
from weft.daemons.simulator.simulator import Simulator
from weft.experiments.demo import link_loss
from weft.experiments.engines.routes import Pair, connects, lengths, lost_pairs
from weft.experiments.runner.definition import DIFFERENCE, Row
from weft.experiments.runner.provenance import code_and_machine
from weft.experiments.runner.results import Store
from weft.experiments.runner.sweep import Watcher, sweep
from weft.testbed.packets.control_plane import check_daemons
from weft.testbed.packets.simulation import Fault, simulate
from weft.testbed.plan.network_plan import require_indexes
from weft.testbed.uml import virtual_kernel
from weft.topologies import build
from weft.topologies.core.failures import fail_links
from weft.topologies.core.topology import Size, Topology, limited

NETWORKS = (
    *("dcell:n=3,k=1", "ficonn:n=4,k=1", "bcube:n=3,k=1", "gqstar:n=2,k=2"),
    *("fattree:k=4", "complete:n=5,p=2"),
)
SINGLES, DOUBLES = 12, 6  # random failures of one link and of two, in the simulator
# in which a scheme that needs packets finds its paths: twice the longest time that it forgets one
ROUNDS, ROUND_S = 120, 0.5
MESSAGE_BYTES = 1_000  # one packet
MOST_SERVERS = 1_000  # whose pairs are compared one by one, in each state of the network
# after daemons have noticed a silent failure: until paths have changed, and until all has arrived
SETTLE_S, ARRIVE_S = 10.0, 10.0
LINUX_FAILURES = "0,1,2"  # links


class Finding(NamedTuple):
    """Comparison of a scheme's daemons with its predictions, by one engine on one network.

    checked: states of the network in which all pairs were compared, the first one healthy.
    difference: the first pair that differs, in words; "" if none does.
    left_out: why the engine was not asked; "" if it was.
    """

    network: str
    engine: str
    checked: int
    difference: str = ""
    left_out: str = ""


def findings(
    routing: str, networks: Sequence[str], seed: int, on_linux: Watcher | None = None
) -> Iterator[Finding]:
    """Yield what each engine says of `routing` on each of `networks`.

    A network that the scheme refuses is a finding, too.

    Args:
        routing: a scheme with daemons, and its options.
        networks: specs of small networks.
        seed: of the failed links in the simulator and under packets; Linux has failures of its own.
        on_linux: is told of each run on Linux; None leaves Linux out.

    Raises:
        ValueError: there is no such scheme or network, the scheme has no daemons, or a network is
            too large.
    """
    if registry.scheme(routing)[0].machine is None:
        raise ValueError(f"scheme {routing} has no daemons: nothing could differ")
    with limited(require_size):
        topologies = [build(spec) for spec in networks]
    for spec, topology in zip(networks, topologies, strict=True):
        try:
            registry.checked(topology, routing)
        except ValueError as error:
            yield Finding(spec, "all", 0, left_out=str(error))
            continue
        yield in_simulator(topology, routing, np.random.default_rng(seed))
        yield with_packets(topology, routing, np.random.default_rng(seed))
        if on_linux:
            yield with_linux(spec, routing, on_linux)


def require_size(size: Size) -> None:
    """Raise ValueError for a network that Linux cannot have, or with more than MOST_SERVERS."""
    require_indexes(size)
    if size.servers > MOST_SERVERS:
        raise ValueError(f"{size}; conform compares all pairs, of {MOST_SERVERS:,} servers at most")


def in_simulator(topology: Topology, routing: str, generator: np.random.Generator) -> Finding:
    """Compare every pair after each of some failures, announced and silent in turn."""
    simulator = Simulator(topology, routing)
    failures = some_failures(topology, generator)
    for number, failed in enumerate(failures):
        simulator.run_until_converged()
        for link in failed:
            simulator.fail(link, silent=bool(number % 2))
        simulator.run_until_quiet()
        if difference := first_difference(simulator, fail_links(topology, failed), routing):
            return Finding(topology.spec, "simulator", number, difference)
        for link in failed:
            simulator.restore(link)
    return Finding(topology.spec, "simulator", len(failures))


def some_failures(topology: Topology, generator: np.random.Generator) -> list[list[int]]:
    """Return lists of links: none, SINGLES single ones, and DOUBLES pairs, drawn at random."""
    links = generator.permutation(len(topology.links))
    pairs = [sorted(generator.choice(links, 2, replace=False).tolist()) for _ in range(DOUBLES)]
    return [[], *([link] for link in links[:SINGLES].tolist()), *pairs]


def first_difference(simulator: Simulator, left: Topology, routing: str) -> str:
    """Return in words the first pair whose packets do not do as predicted; "" if all do.

    A path must be as long as predicted; proxies of equal length may differ.

    left: the network with its failed links.
    """
    pairs = list(permutations(range(left.servers), 2))
    connected, hops = connects(left, routing, pairs), lengths(left, routing, pairs)
    for _ in range(ROUNDS):
        walks = {pair: simulator.send(*pair) for pair in pairs}
        wrong = [
            pair
            for pair, walk in walks.items()
            if bool(walk.lost) == (pair in connected)
            or (hops and not walk.lost and len(walk.path) - 1 != hops.get(pair))
        ]
        if not wrong:
            return ""
        simulator.run_for(ROUND_S)
    walk = walks[wrong[0]]
    return words(left, routing, wrong[0], link_loss.words_of(left, walk.path, walk.lost))


def words(left: Topology, routing: str, pair: Pair, walked: str) -> str:
    """Return the failed links, a pair, what is predicted for it, and what it did."""
    failed = " ".join(map(left.link_name, np.flatnonzero(left.failed).tolist()))
    text = link_loss.difference(left, routing, pair, "as it went", walked)
    return f"{f'with {failed} dead, ' if failed else ''}{text.replace('(graph)', '(predicted)')}"


def with_packets(topology: Topology, routing: str, generator: np.random.Generator) -> Finding:
    """Fail a link silently under simulated packets; a message must arrive where it is predicted to.

    It fits into one packet, so answers do not matter.
    """
    try:
        check_daemons(topology, routing)
    except ValueError as error:
        return Finding(topology.spec, "packets", 0, left_out=str(error))
    failures = [[], [int(generator.integers(len(topology.links)))]]
    for number, failed in enumerate(failures):
        left = fail_links(topology, failed)
        expected = set(permutations(range(topology.servers), 2)) - lost_pairs(routing, left)
        for pair in sorted(expected ^ arrivals(topology, routing, failed))[:1]:
            did = f"its message {'did not arrive' if pair in expected else 'arrived'}"
            return Finding(topology.spec, "packets", number, words(left, routing, pair, did))
    return Finding(topology.spec, "packets", len(failures))


def arrivals(topology: Topology, routing: str, failed: Sequence[int]) -> set[Pair]:
    """Return the pairs whose messages arrive once daemons have noticed that links have failed."""
    _, options = registry.scheme(routing)
    start_s = options.get("hello_ms", 0) * options.get("dead", 0) / 1000 + SETTLE_S
    pairs = list(permutations(range(topology.servers), 2))
    flows = [(*pair, MESSAGE_BYTES, start_s) for pair in pairs]
    faults = [Fault(failed, 0.0, silent=True)] if failed else []
    outcome = simulate(
        topology, routing, flows, faults=faults, daemons=True, deadline_s=start_s + ARRIVE_S
    )
    arrived = ~np.isnan(outcome.delivered_s)
    return {pair for pair, ended in zip(pairs, arrived.tolist(), strict=True) if ended}


def with_linux(spec: str, routing: str, watcher: Watcher) -> Finding:
    """Compare all pairs on Linux: under the virtual clock where its kernel is, or as root."""
    clock = "virtual" if virtual_kernel.find() else "real"
    if clock == "real" and os.geteuid():
        return Finding(spec, "Linux", 0, left_out="needs root, or the kernel of `make uml-kernel`")
    experiment = link_loss.EXPERIMENT
    values = {"topology": spec, "routing": routing, "failed_links": LINUX_FAILURES}
    try:
        runs = experiment.plan(values, seeds=1, engines=["kernel"], clock=clock).runs
    except ValueError as error:
        return Finding(spec, "Linux", 0, left_out=str(error))
    with TemporaryDirectory(prefix="weft-conform-") as folder:
        store = Store(Path(folder))
        about = code_and_machine(kernel=True)
        swept = sweep(experiment, runs, store, workers=1, about=about, watcher=watcher)
        rows = [row for row, _ in store.entries(swept.measured)]
    causes = [failure.reason for failure in swept.failures.values()]
    causes += [cause(row) for row in rows if not row["equal"]]
    return Finding(spec, f"Linux, {clock} clock", len(rows), *causes[:1])


def cause(row: Row) -> str:
    """Return in words how a run of link_loss on Linux differs, which also asks the simulator."""
    text = str(row.get(DIFFERENCE, "other pairs are lost"))
    dead = f"with {row['failed']} dead, " if row["failed"] else ""
    alike = "Linux does as predicted, the simulator does not: "
    only_simulator = "(fabric)" in text and "(kernel)" not in text
    for engine, word in {"graph": "predicted", "fabric": "simulator", "kernel": "Linux"}.items():
        text = text.replace(f"({engine})", f"({word})")
    return f"{dead}{alike if only_simulator else ''}{text}"
