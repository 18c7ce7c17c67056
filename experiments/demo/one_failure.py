"""One link of any network dies under any scheme: connectivity, outages of pairs, TCP's goodput.

Pairs of servers ping each other while all links live.  Then a link on the path of some pairs dies;
the seed draws it.  These pairs ping every 10 ms, and a TCP flow runs between one of them
(experiments/ccrdn/proxy_failover.py).  If a scheme spreads packets over several paths, only some
packets of such a pair cross the link.  The engine packet simulates all of that.
"""

from __future__ import annotations

import numpy as np

from weft.experiments.ccrdn import proxy_failover
from weft.experiments.demo import columns, simulated_failure
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import reachability
from weft.experiments.engines.kernel_run import measured
from weft.experiments.engines.routes import some_pairs
from weft.experiments.fatpaths.transports import revisions
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Word
from weft.testbed.measure.ping import ping
from weft.testbed.network.network import RunningNetwork

MOST_PINGED = 1000  # random unordered pairs
FAILURES = ("link", "silent-link", "one-way", "flap")


def measure(run: Run) -> Result:
    """Measure connectivity without a failure, and outages and goodput with one."""
    if run.engine == "packet":
        return simulated_failure.measure(run, MOST_PINGED)
    generator = np.random.default_rng(run.seed)

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
        simulated_failure.check(run)
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
    columns=columns.ONE_FAILURE,
    seeds=1,
    version=2,
    revised=revisions,
    measure=measure,
    plot=proxy_failover.FIGURE,
    check=check,
)
