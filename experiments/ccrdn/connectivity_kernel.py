"""When links die, which pairs of servers still ping, and are they those of the graph engine?

CCRDN, sections 6.4 and 7.2, with real packets: a tenth of the links, servers or racks has failed,
drawn uniformly.  Beside the pings stand the graph engine's result for the same faults and scheme,
and the pairs that any path connects.  Pairs are ordered pairs of live servers; a ping needs both
directions.

PR's sources may probe `questions_per_s` paths, more than by default: this experiment asks which
paths exist, not how soon hundreds of pairs at once find theirs.  The networks are far smaller than
the paper's; its networks of 15 thousand servers and more are in the experiment `connectivity`.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.experiments.ccrdn import kernel_columns
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.network_run import measured
from weft.experiments.engines.predicted_paths import (
    EVERYWHERE,
    Pair,
    asking,
    both_ways,
    connects,
    lengths,
)
from weft.experiments.report import figures, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.testbed.linux import clock
from weft.topologies import build
from weft.topologies.core.failures import (
    draw,
    fail_links,
    fail_nodes,
    fail_racks,
    racks,
    random_links,
)
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.testbed.mininet.net import Net

PATIENCE_S = 15.0  # by then daemons have reacted


def faults(run: Run) -> Topology:
    """Return the network of `run` less its faults, which are those of `connectivity`."""
    topology = build(run.text("topology"))
    fraction = float(run.parameters["failed_fraction"])
    generator = np.random.default_rng([run.seed, 1])
    failed = run.text("failed")
    if failed == "links":
        return fail_links(topology, random_links(topology, fraction=fraction, generator=generator))
    if failed == "nodes":
        servers = np.arange(topology.servers)
        return fail_nodes(topology, draw(servers, fraction=fraction, generator=generator))
    return fail_racks(topology, draw(racks(topology), fraction=fraction, generator=generator))


def measure(run: Run) -> Result:
    """Measure the fraction of pairs that ping, beside those that the graph engine connects."""
    broken = faults(run)
    links_only = run.text("failed") == "links"
    alive = [node for node in range(broken.servers) if links_only or broken.live_ports(node)]
    pairs = [(src, dst) for src in alive for dst in alive if src != dst]
    routing = asking(run.text("routing"), run.integer("questions_per_s"))
    connected = connects(broken, routing, pairs)
    physical = both_ways(lengths(broken, "bfs", pairs) or {})
    result = measured(
        run, lambda net: pings(net, broken, pairs, both_ways(connected)), routing=routing
    )
    fractions = {
        "connected_fraction": len(connected) / len(pairs),
        "physical_fraction": len(physical) / len(pairs),
    }
    return replace(result, figures={**result.figures, **fractions})


def pings(net: Net, broken: Topology, pairs: list[Pair], expected: set[Pair]) -> dict[str, Value]:
    """Let the faults of `broken` happen, and return the pairs that ping beside `expected` ones."""
    from weft.experiments.engines import reachability

    fail(net, broken)
    failed_s = clock.monotonic()
    reached = reachability.wait_for_pings(net, pairs, expected, timeout_s=PATIENCE_S)
    return {
        "failed_links": int(broken.failed.sum()),
        "pairs": len(pairs),
        "pinged_fraction": len(reached) / len(pairs),
        "graph_fraction": len(expected) / len(pairs),
        "equal": reached == expected,
        "lost_though_connected": len(expected - reached),
        "pinged_though_lost": len(reached - expected),
        "settled_s": clock.monotonic() - failed_s,
    }


def fail(net: Net, broken: Topology) -> None:
    """Fail the links in the network that are dead in `broken`; they lose their carrier."""
    for link in np.flatnonzero(broken.failed).tolist():
        net.fail(broken.link_name(link))


def check(run: Run) -> None:
    """Raise ValueError unless the scheme of `run` suits its network, and some of it survives."""
    common.server_centric(run)
    common.check_routing(run)
    if run.number("failed_fraction") == 1:
        raise ValueError("connectivity_kernel: failed_fraction must lie in [0, 1), got 1")


def plot(table: Table, figure: Figure) -> None:
    """Draw, for each network and scheme, the pairs that ping in each run as marks.

    A bar is the graph engine's mean, a line the pairs that any path connects.
    """
    networks = list(dict.fromkeys(str(row["topology"]) for row in table))
    looks = style.lines(style.in_order(str(row["routing"]) for row in table))
    figure.set_size_inches(max(6.4, 2.2 + 2.2 * len(networks)), 4.2)
    axes = figure.add_subplot()
    width = 0.8 / len(looks)
    places = figures.offsets(len(looks), 0.8)
    for x, network in enumerate(networks):
        rows = [row for row in table if row["topology"] == network]
        draw_physical(axes, x, rows)
        for (spec, (look, _)), shift in zip(looks.items(), places, strict=True):
            own = [row for row in rows if row["routing"] == spec]
            draw_runs(axes, x + shift, width, own, look)
    for look, _ in looks.values():
        figures.marks(axes, [], [], look, [], label=look.label)
    axes.bar([0], [0], color="#777777", alpha=0.35, label="graph engine (mean)")
    fractions = sorted(
        {f"{100 * float(str(row['failed_fraction'])):g} % of {row['failed']}" for row in table}
    )
    axes.set(
        ylim=(0, 1.03),
        ylabel="pairs that ping (fraction)",
        title=f"{', '.join(fractions)} failed: a mark for the pings of all pairs in each run",
    )
    axes.set_xticks(range(len(networks)), networks)
    axes.grid(axis="x", visible=False)
    axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def draw_physical(axes: Axes, x: int, rows: Any) -> None:
    """Draw the mean fraction of pairs that any path connects, across one network."""
    axes.plot(
        [x - 0.45, x + 0.45],
        [mean(row["physical_fraction"] for row in rows)] * 2,
        color=style.INK,
        linewidth=1,
        linestyle="--",
        label="connected by any path" if x == 0 else "",
    )


def draw_runs(axes: Axes, x: float, width: float, rows: Any, look: style.SeriesStyle) -> None:
    """Draw the runs of one scheme on one network: marks, and the graph engine's mean as a bar."""
    predicted = [row["graph_fraction"] for row in rows if row["graph_fraction"] is not None]
    if predicted:
        axes.bar(x, mean(predicted), 0.85 * width, color=look.colour, alpha=0.35)
    figures.marks(
        axes,
        [x + 0.4 * width * ((number + 0.5) / len(rows) - 0.5) for number in range(len(rows))],
        [row["pinged_fraction"] for row in rows],
        look._replace(size=4),
        [figures.failed_fidelity(row) for row in rows],
    )


EXPERIMENT = Experiment(
    name="connectivity_kernel",
    question="When links die, which pairs still ping under each scheme, "
    "and is it those that the graph engine says?",
    source="CCRDN, sections 6.4 and 7.2, on the kernel",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("dcell:n=4,k=1", "beta-dcell:n=5,k=1", "ficonn:n=4,k=2"),
        "routing": common.ROUTING.over(*EVERYWHERE),
        "failed": common.FAILED.over("links"),
        "failed_fraction": common.FAILED_FRACTION.over(0.1),
        "questions_per_s": common.QUESTIONS_PER_S.over(50),
        "processes": common.PROCESSES.over(0),
    },
    version=3,
    columns=kernel_columns.CONNECTIVITY_KERNEL,
    seeds=3,
    takes_s=200,
    measure=measure,
    plot=plot,
    check=check,
)
