"""One link of any network dies under any scheme: who reaches whom, how long are pairs cut off, what
does TCP get?

Pairs of servers ping each other while all links live.  Then a link dies that packets of some pairs
pass; the seed draws it.  These pairs ping every 10 ms, and a TCP flow runs between one of them
(experiments/ccrdn/proxy_failover.py). Where a scheme spreads packets over several paths, only some
packets of such a pair pass the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.experiments.ccrdn import proxy_failover
from weft.experiments.demo import columns
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.predicted_paths import some_pairs
from weft.experiments.report import figures, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.experiments.runner.parameters import Word
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weft.testbed.mininet.net import Net

FAILURES = ("link", "silent-link", "one-way", "flap")


def measure(run: Run) -> Result:
    """Return connectivity without a failure, and outages and goodput with one."""
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.mininet.net import Net

    topology, generator = build(run.text("topology")), np.random.default_rng(run.seed)
    link = LinkSpec(
        rate_bps=run.integer("rate_mbps") * Mbps, queue_packets=run.integer("queue_packets")
    )
    packed = run.integer("processes")
    with (
        Net(topology, link=link, routing=run.text("routing"), packed=packed) as net,
        Fidelity(net) as fidelity,
    ):
        row = connectivity(net, generator) | proxy_failover.before_and_during(net, run, generator)
    report = fidelity.report
    return Result(
        figures=row,
        fidelity=report.verdict,
        circumstances={"fidelity_report": report.as_dict()},
    )


def connectivity(net: Net, generator: np.random.Generator) -> dict[str, Value]:
    """Return how many of all pairs, or of a random sample, ping each other, and how fast."""
    from weft.experiments.engines import reachability
    from weft.testbed.measure.ping import ping

    pairs = some_pairs(net.topology.servers, proxy_failover.MOST_TRACED, generator)
    table = ping(net, pairs, timeout_s=reachability.TIMEOUT_S, retries=reachability.RETRIES)
    return {
        "pinged_pairs": len(pairs),
        "connected_fraction": 1 - len(table.lost) / len(pairs),
        "rtt_median_us": table.percentile_us(50),
    }


def check(run: Run) -> None:
    """Raise ValueError unless the scheme of `run` is for its network and the kernel has its
    congestion control."""
    topology = common.network(run)
    if not (topology.level > 0).any():
        raise ValueError(f"one_failure: {topology.spec} has no link between routers that could die")
    common.check_routing(run)
    common.check_tcp(run)


def plot(table: Table, figure: Figure) -> None:
    """Draw outages above and TCP's goodput below: a place for each network and failure, a mark for
    each run."""
    rows: list[Any] = [row for row in table if row["failed"]]
    places = list(dict.fromkeys((row["topology"], row["failure"]) for row in rows))
    looks = style.lines(style.in_order(str(row["routing"]) for row in rows))
    figure.set_size_inches(max(6.4, 2 + 1.6 * len(places)), 6)
    above, below = figure.subplots(2, 1, sharex=True)
    width = 0.8 / max(1, len(looks))
    for number, (spec, (look, _)) in enumerate(looks.items()):
        own = [row for row in rows if row["routing"] == spec]
        shift = (number - (len(looks) - 1) / 2) * width
        x = [places.index((row["topology"], row["failure"])) + shift for row in own]
        hollow = [figures.failed_fidelity(row) for row in own]
        outages = [max(row["outages_ms"]) for row in own]
        figures.marks(above, x, outages, look, hollow, label=look.label)
        for place, row, failed in zip(x, own, hollow, strict=True):
            if (share := proxy_failover.through(row)) is not None:
                figures.marks(below, [place], [share], look, [failed])
    above.set(ylabel="longest outage of a pair (ms)", ylim=(0, None))
    below.set(ylabel="TCP during the failure\n(fraction of before)", ylim=(0, None))
    below.set_xticks(range(len(places)), [f"{network}\n{failure}" for network, failure in places])
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper left", ncols=4)


EXPERIMENT = Experiment(
    name="one_failure",
    question="On any network under any scheme: who reaches whom, and what does the failure "
    "of one link cost?",
    source="none: for schemes and networks of one's own",
    engines=("kernel",),
    axes={
        **proxy_failover.EXPERIMENT.axes,
        "topology": common.TOPOLOGY.over("dcell:n=4,k=1"),
        "routing": common.ROUTING.over("dr", "bfs"),
        "failure": Word(meaning="what fails", words=FAILURES).over("link", "silent-link"),
    },
    columns=columns.ONE_FAILURE,
    seeds=1,
    measure=measure,
    plot=plot,
    check=check,
)
