"""When links die, which pairs of servers still ping under each scheme, and is it those that the
graph says?

CCRDN, sections 6.4 and 7.2, with real packets: a tenth of the links has failed, drawn uniformly; or
servers, or racks. What the graph engine says of the same faults and the same scheme stands beside
it, and what any path at all could connect.  Counted are ordered pairs of servers that are alive; a
ping goes there and back, so both ways must be connected.

PR's sources may ask `questions_per_s`, more than they usually do: what is asked here is which paths
there are, not how soon hundreds of pairs at once have found theirs.  The networks are far smaller
than the paper's, whose figures of 15 thousand servers and more are those of the experiment
`connectivity`.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.experiments.ccrdn import kernel_columns
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.predicted_paths import (
    EVERYWHERE,
    asking,
    both_ways,
    connects,
    lengths,
)
from weft.experiments.report import figures, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table
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
    from matplotlib.figure import Figure

    from weft.testbed.mininet.net import Net

PATIENCE_S = 15.0  # until daemons have done what they ever will


def faults(run: Run) -> Topology:
    """The network of `run` less what has failed: the same links, servers or racks for every scheme,
    and on the graph engine in the experiment `connectivity`."""
    topology, fraction = build(run.text("topology")), float(run.parameters["failed_fraction"])
    generator = np.random.default_rng([run.seed, 1])
    failed = run.text("failed")
    if failed == "links":
        return fail_links(topology, random_links(topology, fraction=fraction, generator=generator))
    if failed == "nodes":
        return fail_nodes(
            topology, draw(np.arange(topology.servers), fraction=fraction, generator=generator)
        )
    return fail_racks(topology, draw(racks(topology), fraction=fraction, generator=generator))


def measure(run: Run) -> Result:
    """The fraction of pairs that ping, that the graph engine connects, and that are connected at
    all."""
    from weft.experiments.engines import reachability
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.mininet.net import Net

    broken, routing = faults(run), asking(run.text("routing"), run.integer("questions_per_s"))
    alive = [
        server
        for server in range(broken.servers)
        if run.text("failed") == "links" or broken.live_ports(server)
    ]
    pairs = [(src, dst) for src in alive for dst in alive if src != dst]
    connected = connects(broken, routing, pairs)
    expected = both_ways(connected)
    joined = both_ways(lengths(broken, "bfs", pairs) or {})
    packed = run.integer("processes")
    with (
        Net(build(run.text("topology")), routing=routing, packed=packed) as net,
        Fidelity(net) as fidelity,
    ):
        fail(net, broken)
        began_s = clock.monotonic()
        reached = reachability.wait_for_pings(net, pairs, expected, timeout_s=PATIENCE_S)
        settled_s = clock.monotonic() - began_s
    report = fidelity.report
    return Result(
        figures={
            "failed_links": int(broken.failed.sum()),
            "pairs": len(pairs),
            "pinged_fraction": len(reached) / len(pairs),
            "graph_fraction": len(expected) / len(pairs),
            "connected_fraction": len(connected) / len(pairs),
            "physical_fraction": len(joined) / len(pairs),
            "equal": reached == expected,
            "lost_though_connected": len(expected - reached),
            "pinged_though_lost": len(reached - expected),
            "settled_s": settled_s,
        },
        fidelity=report.verdict,
        circumstances={"fidelity_report": report.as_dict()},
    )


def fail(net: Net, broken: Topology) -> None:
    """Let what is dead in `broken` die in the network: links lose their carrier."""
    for link in np.flatnonzero(broken.failed).tolist():
        net.fail(broken.link_name(link))


def check(run: Run) -> None:
    """ValueError unless the scheme of `run` goes with its network, and something is left of it."""
    common.server_centric(run)
    common.check_routing(run)
    if run.number("failed_fraction") == 1:
        raise ValueError("connectivity_kernel: failed_fraction must lie in [0, 1), got 1")


def plot(table: Table, figure: Figure) -> None:
    """For each network and scheme: a mark for the pairs that ping in each run, a bar for the mean
    that the graph says, and a line for what is connected at all."""
    networks = list(dict.fromkeys(str(row["topology"]) for row in table))
    looks = style.lines(style.in_order(str(row["routing"]) for row in table))
    figure.set_size_inches(max(6.4, 2.2 + 2.2 * len(networks)), 4.2)
    axes, width = figure.add_subplot(), 0.8 / len(looks)
    for x, network in enumerate(networks):
        here: list[Any] = [row for row in table if row["topology"] == network]
        physical = mean(row["physical_fraction"] for row in here)
        label = "connected by any path" if x == 0 else ""
        axes.plot(
            [x - 0.45, x + 0.45],
            [physical] * 2,
            color=style.INK,
            linewidth=1,
            linestyle="--",
            label=label,
        )
        for place, (spec, (look, _)) in enumerate(looks.items()):
            rows = [row for row in here if row["routing"] == spec]
            at = x + (place - (len(looks) - 1) / 2) * width
            told = [row["graph_fraction"] for row in rows if row["graph_fraction"] is not None]
            if told:
                axes.bar(at, mean(told), 0.85 * width, color=look.colour, alpha=0.35)
            spread = [at + 0.4 * width * ((i + 0.5) / len(rows) - 0.5) for i in range(len(rows))]
            hollow = [figures.failed_fidelity(row) for row in rows]
            figures.marks(
                axes,
                spread,
                [row["pinged_fraction"] for row in rows],
                look._replace(size=4),
                hollow,
            )
            if x == 0:
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


EXPERIMENT = Experiment(
    name="connectivity_kernel",
    question="When links die, which pairs still ping under each scheme, and is it those "
    "that the graph engine says?",
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
