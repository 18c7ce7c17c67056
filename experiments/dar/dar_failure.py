"""Time until no flow is on a bad link after a spine or a link fails under DAR.

Beyond DAR's paper, which has no failures.  Every host sends one endless TCP flow, a worst
permutation of section 5. After `before_s` and a random time of at most 0.3 s something fails:

link         between the first leaf and the first spine: both ends lose their carrier
silent-link  packets vanish there, carriers stay
spine        the first spine loses its power

Every 10 ms the data plane's tables are read.  A flow is on a dead link until it has been placed on
another; after `off_dead_ms` no flow is.  From `settled_ms` on, no link has more than p flows
either, or more than an even share of a leaf's remaining links.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np

from weft.daemons.core import registry
from weft.daemons.dar.scheme import sizes
from weft.experiments.dar import clos_messages, clos_run, columns
from weft.experiments.dar.clos_run import LinkEnds
from weft.experiments.dar.dar_goodput import NETWORK_AXES, flows_of_link
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import kernel_run
from weft.experiments.engines.kernel_run import FabricRun
from weft.experiments.engines.workloads import endless
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Spec, Word
from weft.testbed.linux import clock
from weft.testbed.network.network import RunningNetwork
from weft.topologies.core.topology import Topology

FAILURES = ("link", "silent-link", "spine")
# several intervals of hellos, so that failures are not in step with them
SPREAD_S = 0.3


def measure(run: Run) -> Result:
    """Return times until the flows are off what has died, and until nothing is bad."""
    rng = np.random.default_rng(run.seed)
    pairs = clos_run.worst_permutation(rng, run.topology)
    plan = clos_run.plan_of(
        run, run.integer("before_s"), run.integer("after_s"), flows=endless(pairs)
    )
    done = clos_messages.carry_out(plan, partial(watch, run))
    table = done.observed.flows
    bits_of_host = table.measured_s * plan.host_link.rate_bps * kernel_run.PAYLOAD_FRACTION
    goodputs = [8 * flow.received_bytes / bits_of_host for flow in table.results]
    return done.result(
        {
            **done.watched,
            "goodput_fraction": sum(goodputs) / len(goodputs),
            "slowest_fraction": min(goodputs),
            "moves": done.counted["moves"] + done.counted["swaps"],
            "replaced": done.counted["replaced"],
            **kernel_run.order_figures(done.observed),
        }
    )


def watch(run: Run, fabric: FabricRun, began: threading.Event, end: threading.Event) -> Row:
    """Fail the element when the warm-up is over; return the columns about the flows' spines."""
    p = flows_of_link(run) or 0
    dead, fail = damage(fabric.network, run.text("failure"))
    table = clos_run.SpineFlowTable.open(fabric.network)
    began.wait()
    clock.sleep(SPREAD_S * np.random.default_rng([run.seed, 1]).random())
    hit = sum(clos_run.crosses(placed, dead, fabric.topology) for placed in table.read())
    failed_s = clock.monotonic()
    fail()
    samples = [
        (1000 * (now_s - failed_s), loads)
        for now_s, loads in clos_run.loads_until(end, table, run.integer("after_s"))
    ]
    table.close()
    most = flows_of_links(fabric.topology, p, dead)
    return {"p": p, "flows_hit": hit, **times(samples, dead, most)}


def times(
    samples: list[tuple[float, Counter[LinkEnds]]], dead: set[LinkEnds], most: Counter[LinkEnds]
) -> Row:
    """Return the columns about time from flows on each link at so many ms after the failure."""
    off_dead_ms = max((ms for ms, loads in samples if dead & loads.keys()), default=0.0)
    bad_ms = max((ms for ms, loads in samples if loads - most), default=0.0)
    return {
        "off_dead_ms": off_dead_ms,
        "settled_ms": max(off_dead_ms, bad_ms),
        "most_flows": max(samples[-1][1].values(), default=0),
    }


def flows_of_links(topology: Topology, p: int, dead: set[LinkEnds]) -> Counter[LinkEnds]:
    """Return the flows above which each link is bad: p, or an even share of a leaf's live links."""
    n, r, m = sizes(topology)
    most: Counter[LinkEnds] = Counter()
    for leaf in range(topology.servers, topology.servers + r):
        spines = range(topology.servers + r, topology.nodes)
        live = m - sum((leaf, spine) in dead for spine in spines)
        for spine in spines:
            most[leaf, spine] = most[spine, leaf] = max(p, -(-n // live))
    return most


def damage(network: RunningNetwork, failure: str) -> tuple[set[LinkEnds], Callable[[], None]]:
    """Return the links that will be dead, in both directions, and the function that fails them."""
    topology = network.topology
    _, r, _ = sizes(topology)
    leaf, spine = topology.servers, topology.servers + r
    if failure == "spine":
        leaves = range(topology.servers, topology.servers + r)
        dead = {link for leaf in leaves for link in ((leaf, spine), (spine, leaf))}
        return dead, partial(network.fail, topology.naming.name(spine))
    name = topology.link_name(topology.link_between(leaf, spine))
    silent = failure == "silent-link"
    return {(leaf, spine), (spine, leaf)}, partial(network.fail, name, silent=silent)


def check_scheme(text: str) -> None:
    """Raise ValueError unless `text` is DAR with any of its parameters."""
    common.refuse_others(text, ["dar"], "dar_failure measures when DAR has moved its flows")
    common.daemon_scheme(text)


def check(run: Run) -> None:
    """Raise ValueError unless `run` names a folded Clos network that DAR is for."""
    registry.checked(common.network(run), run.text("scheme"))
    common.check_tcp(run)


SETTING = ("topology", "rate_mbps", "host_percent", "queue_packets", "congestion_control")
EXPERIMENT = Experiment(
    name="dar_failure",
    question=(
        "How long until no flow is on a bad link again after a spine or a link fails under DAR?"
    ),
    source="DAR, beyond the paper",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("clos:n=8,r=8,m=8"),
        "scheme": Spec(
            "DAR with its parameters",
            form="dar:key=value,... (`weft list`)",
            check=check_scheme,
        ).over("dar", "dar:informed=1"),
        "failure": Word("what fails", words=FAILURES).over(*FAILURES),
        **NETWORK_AXES,
        "before_s": Integer("time before the failure", unit="s", least=1, most=3600).over(3),
        "after_s": Integer("time after it", unit="s", least=1, most=3600).over(4),
    },
    columns=columns.FAILURE,
    version=3,
    revised=clos_run.queues_on_kernel,
    seeds=10,
    takes_s=250,
    measure=measure,
    plot=Bars(
        columns={
            "off_dead_ms": "until no flow was on a dead link (ms)",
            "settled_ms": "until no link was bad (ms)",
        },
        by=("scheme", "failure"),
        facet=SETTING,
    ),
    check=check,
)
