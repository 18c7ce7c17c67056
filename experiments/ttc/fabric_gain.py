"""How much more TCP does a fabric carry when switches choose by packet, and by queue?

Every host sends one endless flow and receives one; with traffic=cross, to and from hosts behind
another edge switch, so that all traffic goes up.  With as many uplinks as hosts (clos:n=4,r=2,m=4)
it all fits if it is spread evenly, while hashing flows leaves on average (1 - 1/4)^4 = 32 % of the
uplinks without any.  With twice as many hosts (clos:n=8,r=2,m=4) it leaves 10 %, so no scheme can
gain more than 11 % on it.  traffic=permutation lets half of the hosts there find their peers behind
their own switch: as many flows go up as there are uplinks, of which hashing again leaves a third
without any, but the other half of the goodput is the same for all schemes.

The base round-trip time of an emulated fabric is less than a packet's time on a link, so TCP's
RACK, which waits for a quarter of the least round-trip time it remembers, takes many late packets
for lost.  min_rtt_window_s=0 (a real fabric is nearer to that) makes it remember the latest; 300 is
the kernel's default.

Flows are given a quarter of `seconds` to settle, a second at most, before what arrives is counted.

Where every leaf has as many hosts as uplinks, or a multiple, no such permutation makes D-mod-k
collide, nor TTC leave its default: this traffic flatters them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Run
from weft.experiments.runner.parameters import Spec
from weft.experiments.ttc import columns
from weft.topologies import build
from weft.topologies.core.link import Mbps
from weft.topologies.core.topology import Topology

MOST_WARM_UP_S = 1.0
SETTING = (
    *(
        "topology",
        "traffic",
        "rate_mbps",
        "queue_packets",
        "delay_us",
        "congestion_control",
        "transport",
    ),
    *("min_rtt_window_s", "seconds"),
)


def hosts_of_an_edge_switch(topology: Topology) -> int:
    """How many hosts each edge switch has; ValueError unless they all have as many."""
    _, hosts = np.unique(topology.links[topology.level == 0][:, 2], return_counts=True)
    if len(set(hosts.tolist())) > 1:
        raise ValueError(
            f"fabric_gain: the edge switches of {topology.spec} have different numbers of hosts"
        )
    return int(hosts[0])


def traffic(run: Run, topology: Topology) -> str:
    """The pattern of `run` as workloads.pairs() has it."""
    chosen = run.text("traffic")
    return f"cross:group={hosts_of_an_edge_switch(topology)}" if chosen == "cross" else chosen


def ideal_flows(topology: Topology, chosen: Sequence[tuple[int, int]]) -> int:
    """How many flows' worth of a link's rate `topology`, of two tiers, can carry of flows that all
    have such a rate: those within an edge switch, and of the others of each edge switch as many as
    it has uplinks.
    """
    edge = {host: topology.ports(host)[0][1] for host in range(topology.servers)}
    leaving = Counter(edge[src] for src, dst in chosen if edge[src] != edge[dst])
    uplinks = Counter(topology.links[topology.level == 1][:, 0].tolist())
    return (
        len(chosen)
        - leaving.total()
        + sum(min(count, uplinks[leaf]) for leaf, count in leaving.items())
    )


def measure(run: Run) -> Result:
    """Goodput of all flows together and of the slowest, and what became of the packets' order."""
    from weft.experiments.engines import fabric_run
    from weft.experiments.engines.workloads import endless, pairs

    rate_bps, seconds = run.integer("rate_mbps") * Mbps, run.number("seconds")
    warm_up_s = min(MOST_WARM_UP_S, seconds / 4)
    with fabric_run.fabric(run, common.link(run)) as on:
        chosen = pairs(
            traffic(run, on.topology), on.topology.servers, np.random.default_rng(run.seed)
        )
        seen = fabric_run.tcp(
            on,
            endless(chosen),
            deadline_s=warm_up_s + seconds,
            warm_up_s=warm_up_s,
            control=run.text("congestion_control"),
            transport=run.text("transport"),
            min_rtt_window_s=run.integer("min_rtt_window_s"),
        )
        each = [8 * one.received_bytes / seen.flows.measured_s for one in seen.flows.results]
        ideal_bps = ideal_flows(on.topology, chosen) * rate_bps * fabric_run.PAYLOAD_FRACTION
        return Result(
            figures={
                "goodput_bps": seen.flows.goodput_bps,
                "ideal_goodput_bps": ideal_bps,
                "goodput_fraction": seen.flows.goodput_bps / ideal_bps,
                "slowest_flow_bps": min(each),
                "flows_bps": each,
                **fabric_run.order_figures(seen),
            },
            fidelity=seen.report.verdict,
            circumstances=fabric_run.circumstances(on, seen),
        )


def check_traffic(text: str) -> None:
    """ValueError unless there is the pattern `text`.

    Cross alone takes the hosts of an edge switch.
    """
    from weft.experiments.engines.workloads import PATTERNS

    if text != "cross":
        common.pattern(text, {name: one.parameter for name, one in PATTERNS.items()})


def check(run: Run) -> None:
    """ValueError unless `run` names a scheme and a fabric with edge switches that are all alike."""
    from weft.experiments.engines import fabric_run
    from weft.experiments.engines.workloads import pairs

    fabric_run.check_scheme(run)
    common.check_tcp(run)
    common.check_delay(run)
    topology = build(run.text("topology"))
    pairs(traffic(run, topology), topology.servers, np.random.default_rng(0))


EXPERIMENT = Experiment(
    name="fabric_gain",
    question="How much more TCP goodput does a fabric give when switches choose per packet, and "
    "by queue length?",
    source="DRILL (SIGCOMM 2017), section 4; TTC's schemes under real TCP",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("clos:n=8,r=2,m=4", "clos:n=4,r=2,m=4"),
        "traffic": Spec(
            meaning="who sends to whom",
            form="cross, permutation, stride:step=N ...",
            check=check_traffic,
        ).over("cross", "permutation"),
        "scheme": common.SCHEME.over(
            "ecmp", "vlb", "letflow", "rps", "rr", "dmodk", "micro", "drill", "ttc", "jsq"
        ),
        "rate_mbps": common.RATE_MBPS.over(50),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "delay_us": common.DELAY_US.over(0),
        "congestion_control": common.CONGESTION_CONTROL.over("cubic"),
        "transport": common.TRANSPORT.over("tcp"),
        "min_rtt_window_s": common.MIN_RTT_WINDOW_S.over(300),
        "seconds": common.PART_OF_SECONDS.over(4.0),
    },
    columns=columns.FABRIC_GAIN,
    seeds=10,
    version=2,
    takes_s=2200,
    measure=measure,
    plot=Bars(
        columns={
            "goodput_fraction": "goodput (fraction of the ideal)",
            "late_fraction": "late packets (fraction)",
        },
        facet=SETTING,
        always=3,
    ),
    check=check,
)
