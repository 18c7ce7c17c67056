"""One link of any network dies under any scheme: connectivity, outages of pairs, TCP's goodput.

Pairs of servers ping each other while all links live.  Then a link on the path of some pairs dies;
the seed draws it.  These pairs ping every 10 ms, and a TCP flow runs between one of them
(experiments/ccrdn/proxy_failover.py).  If a scheme spreads packets over several paths, only some
packets of such a pair cross the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.experiments.ccrdn import proxy_failover
from weft.experiments.demo import columns
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.network_run import measured
from weft.experiments.engines.predicted_paths import some_pairs
from weft.experiments.report import figures, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.experiments.runner.parameters import Word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.testbed.mininet.net import Net

FAILURES = ("link", "silent-link", "one-way", "flap")


def measure(run: Run) -> Result:
    """Measure connectivity without a failure, and outages and goodput with one."""
    generator = np.random.default_rng(run.seed)

    def figures_of(net: Net) -> dict[str, Value]:
        before = connectivity(net, generator)
        return before | proxy_failover.before_and_during(net, run, generator)

    return measured(run, figures_of, link=proxy_failover.link(run))


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
    """Raise ValueError unless the scheme suits the network, and the kernel has its TCP."""
    topology = common.network(run)
    if not (topology.level > 0).any():
        raise ValueError(f"one_failure: {topology.spec} has no link between routers that could die")
    common.check_routing(run)
    common.check_tcp(run)


def plot(table: Table, figure: Figure) -> None:
    """Draw outages above and TCP's goodput below, a place for each network and failure."""
    rows: list[Any] = [row for row in table if row["failed"]]
    places = list(dict.fromkeys((row["topology"], row["failure"]) for row in rows))
    looks = style.lines(style.in_order(str(row["routing"]) for row in rows))
    figure.set_size_inches(max(6.4, 2 + 1.6 * len(places)), 6)
    above, below = figure.subplots(2, 1, sharex=True)
    shifts = figures.offsets(len(looks), 0.8)
    for (spec, (look, _)), shift in zip(looks.items(), shifts, strict=True):
        for row in rows:
            if row["routing"] == spec:
                x = places.index((row["topology"], row["failure"])) + shift
                draw_run(above, below, x, row, look)
        figures.marks(above, [], [], look, [], label=look.label)
    above.set(ylabel="longest outage of a pair (ms)", ylim=(0, None))
    below.set(ylabel="TCP during the failure\n(fraction of before)", ylim=(0, None))
    below.set_xticks(range(len(places)), [f"{network}\n{failure}" for network, failure in places])
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper left", ncols=4)


def draw_run(above: Axes, below: Axes, x: float, row: Any, look: style.SeriesStyle) -> None:
    """Draw one run: its longest outage above, TCP's share below."""
    hollow = [figures.failed_fidelity(row)]
    figures.marks(above, [x], [max(row["outages_ms"])], look, hollow)
    share = proxy_failover.through(row)
    if share is not None:
        figures.marks(below, [x], [share], look, hollow)


EXPERIMENT = Experiment(
    name="one_failure",
    question="On any network under any scheme: who reaches whom, "
    "and what does the failure of one link cost?",
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
