"""Pairs of servers that lose each other when random links die.

Three engines answer.  On the graph, DR's path of a pair crosses a dead link or does not.  In the
fabric, daemons on in-memory wires withdraw their routes, and a packet follows the remaining ones.
On the kernel, daemons withdraw routes from the kernel, and every pair pings.  All three must lose
the same pairs.

A ping goes there and back, so a pair is lost if packets are lost in either direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import permutations

import numpy as np

from weft.daemons.core import registry
from weft.daemons.simulator.simulator import Simulator
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import reachability
from weft.experiments.engines.kernel_run import running
from weft.experiments.engines.routes import PairSet, lost_pairs, prediction
from weft.experiments.report.panels import Curves, melted
from weft.experiments.runner.definition import DIFFERENCE, Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer
from weft.testbed.measure.fidelity import Fidelity, FidelityReport
from weft.testbed.measure.traceroute import trace
from weft.topologies import build
from weft.topologies.core.failures import fail_links, random_links
from weft.topologies.core.topology import Topology


@lru_cache(maxsize=8)
def whole(spec: str) -> Topology:
    """Return the topology `spec`, built once."""
    return build(spec)


def broken(run: Run) -> Topology:
    """Return the network of `run` with its random failed links, the same ones on every engine."""
    topology = whole(run.text("topology"))
    generator = run.generator()
    failed = random_links(topology, count=run.integer("failed_links"), generator=generator)
    return fail_links(topology, failed)


def check(run: Run) -> None:
    """Raise ValueError unless the scheme of `run` suits its network, which has enough links."""
    topology = common.network(run)
    links = run.integer("failed_links")
    by_routes = [
        name for name, scheme in registry.schemes().items() if not scheme.needs and scheme.machine
    ]
    common.refuse_others(
        run.text("routing"), by_routes, "link_loss asks forwarding tables, which must say all"
    )
    if links > len(topology.links):
        raise ValueError(
            f"link_loss: failed_links must be 0 .. {len(topology.links)} in "
            f"{topology.spec}, got {links}"
        )
    common.check_routing(run)


def measure(run: Run) -> Result:
    """Measure the fraction of ordered pairs lost on each engine, and whether the engines agree."""
    topology = broken(run)
    routing = run.text("routing")
    without_path = lost_pairs(routing, topology)
    lost = {"graph": in_either_direction(without_path)}
    differences: list[str] = []
    report: FidelityReport | None = None
    if run.engine != "graph":
        fabric = settled_fabric(topology, routing)
        lost_one_way = lost_in_fabric(fabric)
        lost["fabric"] = in_either_direction(lost_one_way)
        unlike = lost["fabric"] ^ lost["graph"]
        for src, dst in first_of(unlike & (lost_one_way ^ without_path)):
            walk = fabric.walk(src, dst)
            text = words_of(topology, walk.path, walk.lost)
            differences.append(difference(topology, routing, (src, dst), "fabric", text))
    if run.engine == "kernel":
        lost["kernel"], report, walks = lost_on_kernel(routing, topology, without_path)
        differences += walks
    return Result(
        {
            **loss_figures(topology, lost),
            **({DIFFERENCE: "; ".join(differences)} if differences else {}),
        },
        fidelity=report.verdict if report else None,
        circumstances={"fidelity_report": report.as_dict()} if report else {},
    )


def loss_figures(topology: Topology, lost: dict[str, PairSet]) -> Row:
    """Return the figures of a run; lost: the lost pairs of each engine."""
    pairs = topology.servers * (topology.servers - 1)
    failed = np.flatnonzero(topology.failed).tolist()
    row: Row = {
        "failed": " ".join(map(topology.link_name, failed)),
        "failed_links_fraction": len(failed) / len(topology.links),
        "pairs": pairs,
        **{f"lost_{engine}_fraction": len(of_engine) / pairs for engine, of_engine in lost.items()},
    }
    if len(lost) > 1:
        row["equal"] = all(of_engine == lost["graph"] for of_engine in lost.values())
    return row


def in_either_direction(pairs: PairSet) -> PairSet:
    """Return `pairs` and their reverses."""
    return pairs | {(dst, src) for src, dst in pairs}


def first_of(pairs: PairSet) -> list[tuple[int, int]]:
    """Return the first pair, in a list; an empty list for none."""
    return sorted(pairs)[:1]


def difference(
    topology: Topology, routing: str, pair: tuple[int, int], engine: str, walked: str
) -> str:
    """Return a pair with what the graph predicts and what a packet does on another engine."""
    src, dst = map(topology.naming.name, pair)
    return f"{src} to {dst}: {prediction(routing, topology, *pair)} (graph); {walked} ({engine})"


def words_of(topology: Topology, nodes: Sequence[int], reason: str | None) -> str:
    """Return the path of a packet in words, and why it was lost."""
    path = " ".join(map(topology.naming.name, nodes))
    return f"is lost, path {path}, {reason}" if reason else f"arrives, path {path}"


def settled_fabric(topology: Topology, routing: str) -> Simulator:
    """Return the network of daemons that have reacted to the failures of `topology`."""
    fabric = Simulator(whole(topology.spec), routing)
    fabric.run_until_converged()
    for link in np.flatnonzero(topology.failed).tolist():
        fabric.fail(link)
    fabric.run_until_quiet()
    return fabric


def lost_in_fabric(fabric: Simulator) -> PairSet:
    """Return the pairs whose packets are lost."""
    pairs = permutations(range(fabric.topology.servers), 2)
    return {(src, dst) for src, dst in pairs if fabric.walk(src, dst).lost}


def lost_on_kernel(
    routing: str, topology: Topology, expected: PairSet
) -> tuple[PairSet, FidelityReport, list[str]]:
    """Return the pairs that do not ping once the daemons have reacted, and the fidelity.

    Then the first pair that differs from `expected`, the pairs that lose packets, both ways.
    """
    link = common.link_with_queues(routing)
    with running(whole(topology.spec), link, routing, packed=0) as net, Fidelity(net) as fidelity:
        for failed_link in np.flatnonzero(topology.failed).tolist():
            net.fail(topology.link_name(failed_link))
        reachability.wait_for_routes(net, expected)
        lost = reachability.lost(reachability.pinged(net))
        walks = [
            difference(
                topology,
                routing,
                (path.src, path.dst),
                "kernel",
                words_of(topology, path.nodes, path.reason),
            )
            for pair in first_of(lost ^ in_either_direction(expected))
            for path in trace(net, [pair, pair[::-1]])
        ]
    return lost, fidelity.report, walks


EXPERIMENT = Experiment(
    name="link_loss",
    question="As links die, which pairs lose each other, and do graph, fabric and kernel agree?",
    source="CCRDN, sections 6.4 and 7.2 (faults), definition 4.1 (DR)",
    engines=("kernel", "fabric", "graph"),
    axes={
        "topology": common.TOPOLOGY.over("dcell:n=4,k=1", "ficonn:n=4,k=1"),
        "routing": common.ROUTING.over("dr"),
        "failed_links": Integer(
            "links that have failed", unit="links", least=0, most=1_000_000
        ).over(0, 1, 2, 4, 8),
    },
    columns={
        "failed": "the links that failed, by name",
        "failed_links_fraction": "of all links",
        "pairs": "ordered pairs of servers",
        "lost_*_fraction": (
            "pairs that lose each other, by the engine of the name: graph, fabric or kernel"
        ),
        "equal": "whether the engines lose exactly the same pairs",
        "difference": "where engines differ: a pair, and its path on the graph and on the other",
    },
    seeds=3,
    takes_s=60,
    measure=measure,
    plot=Curves(
        columns={"lost_fraction": "ordered pairs lost (fraction)"},
        x="failed_links_fraction",
        series="topology",
        dash="answered_by",
        facet=("routing",),
        rows=partial(
            melted,
            columns={f"lost_{engine}_fraction": engine for engine in ("graph", "fabric", "kernel")},
            name="answered_by",
            value="lost_fraction",
        ),
    ),
    check=check,
    must_hold=("equal",),
)
