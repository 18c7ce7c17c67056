"""TCP goodput of a fabric whose switches choose by flow, by packet or by queue.

Every host sends one endless flow and receives one; with traffic=cross, to and from hosts behind
another edge switch, so that all traffic goes up.  With as many uplinks as hosts (clos:n=4,r=2,m=4)
it all fits if it is spread evenly, while hashing flows leaves on average (1 - 1/4)^4 = 32 % of the
uplinks without any.  With twice as many hosts (clos:n=8,r=2,m=4) it leaves 10 %, so no scheme can
gain more than 11 % on it.  traffic=permutation lets half of the hosts there find their peers behind
their own switch: as many flows go up as there are uplinks, of which hashing again leaves a third
without any, but the other half of the goodput is the same for all schemes.

Flows are given a quarter of `seconds` to settle, a second at most, before what arrives is counted.

Where every leaf has as many hosts as uplinks, or a multiple, no such permutation makes D-mod-k
collide, nor TTC leave its default: this traffic flatters them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import kernel_run
from weft.experiments.engines.common_parameters import ORDER
from weft.experiments.engines.workloads import PATTERNS, endless, pairs
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Run
from weft.experiments.runner.parameters import Spec
from weft.topologies.core.link import Mbps
from weft.topologies.core.topology import Topology

MOST_WARM_UP_S = 1.0
SETTING = (
    "topology",
    "traffic",
    "rate_mbps",
    "queue_packets",
    "delay_us",
    "congestion_control",
    "transport",
    "rto_min_us",
    "seconds",
)


def hosts_of_an_edge_switch(topology: Topology) -> int:
    """Return the number of hosts of an edge switch; ValueError unless all have as many."""
    _, hosts = np.unique(topology.host_links[:, 2], return_counts=True)
    if len(set(hosts.tolist())) > 1:
        raise ValueError(
            f"fabric_gain: the edge switches of {topology.spec} have different numbers of hosts"
        )
    return int(hosts[0])


def traffic(run: Run, topology: Topology) -> str:
    """Return the pattern of `run` as workloads.pairs() has it."""
    pattern = run.text("traffic")
    return f"cross:group={hosts_of_an_edge_switch(topology)}" if pattern == "cross" else pattern


def ideal_flows(topology: Topology, ends: Sequence[tuple[int, int]]) -> int:
    """Return how many flows of a link's rate a topology of two tiers can carry at once.

    All flows within an edge switch, and of the others of each edge switch as many as it has
    uplinks.

    ends: source and destination of each flow.
    """
    edge = {host: topology.edge(host) for host in range(topology.servers)}
    leaving = Counter(edge[src] for src, dst in ends if edge[src] != edge[dst])
    uplinks = Counter(topology.links[topology.level == 1][:, 0].tolist())
    return (
        len(ends)
        - leaving.total()
        + sum(min(count, uplinks[leaf]) for leaf, count in leaving.items())
    )


def measure(run: Run) -> Result:
    """Return the goodput of all flows and of the slowest, and the order of packets."""
    rate_bps, seconds = run.integer("rate_mbps") * Mbps, run.number("seconds")
    warm_up_s = min(MOST_WARM_UP_S, seconds / 4)
    with kernel_run.fabric(run, common.link(run)) as fabric:
        ends = pairs(traffic(run, fabric.topology), fabric.topology.servers, run.generator())
        observation = kernel_run.send_tcp(
            run,
            fabric.network,
            endless(ends),
            deadline_s=warm_up_s + seconds,
            warm_up_s=warm_up_s,
        )
        flows_bps = [
            8 * outcome.received_bytes / observation.flows.measured_s
            for outcome in observation.flows.results
        ]
        ideal_bps = ideal_flows(fabric.topology, ends) * rate_bps * kernel_run.PAYLOAD_FRACTION
        return observation.result(
            {
                "goodput_bps": observation.flows.goodput_bps,
                "ideal_goodput_bps": ideal_bps,
                "goodput_fraction": observation.flows.goodput_bps / ideal_bps,
                "slowest_flow_bps": min(flows_bps),
                "flows_bps": flows_bps,
            },
            fabric.facts(),
        )


def check_traffic(text: str) -> None:
    """Raise ValueError unless the pattern `text` exists."""
    if text != "cross":
        common.pattern(text, PATTERNS)


def check(run: Run) -> None:
    """Raise ValueError unless `run` has a scheme and a fabric of equal edge switches."""
    kernel_run.check_scheme(run)
    common.check_tcp(run)
    common.check_delay(run)
    topology = run.topology
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
            "who sends to whom",
            form="cross, permutation, stride:step=N ...",
            check=check_traffic,
        ).over("cross", "permutation"),
        "scheme": common.SCHEME.over(
            "ecmp", "vlb", "letflow", "rps", "rr", "dmodk", "micro", "drill", "ttc", "jsq"
        ),
        "rate_mbps": common.RATE_MBPS.over(1000),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "delay_us": common.DELAY_US.over(5),
        "congestion_control": common.CONGESTION_CONTROL.over("cubic"),
        "transport": common.TRANSPORT.over("tcp"),
        "rto_min_us": common.RTO_MIN_US,
        "seconds": common.PART_OF_SECONDS.over(0.05),
    },
    columns={
        "goodput_bps": "payload of all flows that arrives in a second",
        "ideal_goodput_bps": "most that the fabric could carry of these flows",
        "goodput_fraction": "goodput_bps of ideal_goodput_bps",
        "slowest_flow_bps": "goodput of the slowest flow",
        "flows_bps": "list: goodput of each flow",
        **ORDER,
    },
    seeds=10,
    takes_s=1200,
    version=4,  # the clock is the same from any checkout
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
