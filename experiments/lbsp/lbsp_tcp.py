"""Completion times in a healthy, damaged or oversubscribed fat-tree.

LBSP, section 4: short flows (figures 6a and 7b), long flows (6b and 7c) and flows to one pod (7a),
described below.  Links have 1 Gbit/s, 50 us and queues of 250 packets, and TCP's least timeout is
20 ms, as in the paper; flows of 100 MB are `flow_bytes` here.

Damage is on the link between the last edge and the last aggregation switch of pod 2 (figure 3: T11
and A11), or is that aggregation switch.  Every scheme knows of a failure.  Of the degraded link, to
a tenth of its rate, only LBSP is told; lbsp_recovery measures how long it takes to learn of it.
Oversubscription divides the rate of links between aggregation and core switches.

tcp=rack is Linux as it is: SACK, RACK, and a reordering tolerance that grows.  tcp=reno has all of
that turned off: three duplicate acknowledgements are a loss.  Linux still undoes a cut of the
window where timestamps show that a packet was only late.  On the engine `packet`, which carries the
paper's fat-tree with 16 ports, tcp=reno is that of RFC 5681, which undoes nothing.  Connections are
open before there.

A flow that has not ended in time counts with the time that it has had.

Flows are the same for every scheme and damage.

short: rounds of random permutations, a flow from each host in each round.  Ours: flows of a round
    begin at random times within it.
long: four flows to hosts behind one edge switch (figure 3): two from S1 to D1, one from S2 to D2,
    one from S3 in another pod to D3.  S1 and S2 are behind the edge switch whose link is damaged.
    The least bits of D1 and D2 are such that their flows share a path group if that link fails: the
    scenario does not favour LBSP.
pod: four flows from the pod with the damaged link and one from another, all to one pod (figure 7a).
    Two of the four come from hosts behind the edge switch with the damaged link.
drawn: the same between hosts that each seed draws, since the paper does not name them; all four
    from hosts behind the edge switch with the damaged link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from weft.daemons.core import registry
from weft.daemons.lbsp.routing import shape_of
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import kernel_run
from weft.experiments.engines.arrays import Floats
from weft.experiments.engines.common_parameters import ORDER, UNFINISHED
from weft.experiments.engines.workloads import permutation
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Word
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.network.impair import set_rate
from weft.testbed.network.network import RunningNetwork
from weft.testbed.packets.forwarding import check_forwarding
from weft.testbed.packets.simulation import PacketFlows, SimulatedFlows, Simulation
from weft.testbed.packets.switching import Switching
from weft.testbed.packets.transport import transport
from weft.testbed.traffic.flows import Flow
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

DEGRADED_FRACTION = 0.1
SHORT_BYTES = 32_768
LONGEST = 100  # times as long as a flow alone on the slowest healthy link
GRACE_S = 3.0  # for retransmissions
TCP: Mapping[str, Mapping[str, int]] = {
    "rack": {
        "recovery": 1,
        "sack": 1,
        "dsack": 1,
        "reordering": 3,
        "max_reordering": 300,
        "early_retrans": 3,
        "frto": 2,
    },
    "reno": {
        "recovery": 0,
        "sack": 0,
        "dsack": 0,
        "reordering": 3,
        "max_reordering": 3,
        "early_retrans": 0,
        "frto": 0,
    },
}
FLOWS_TO_A_POD = 5
MOST_TIMES = 10_000  # flows whose times are listed


def damaged(topology: Topology) -> int:
    """Return the number of the link that is damaged."""
    last = shape_of(topology).d - 1
    return topology.link(f"e2.{last}-a2.{last}")


def degraded_bps(run: Run) -> int:
    """Return the rate of the degraded link."""
    return round(run.integer("rate_mbps") * Mbps * DEGRADED_FRACTION)


def prepare(run: Run, network: RunningNetwork, plane: DataPlane) -> Topology:
    """Slow the core links, then damage the network; return the topology that is left."""
    topology, kind = network.topology, run.text("damage")
    core_bps = run.integer("rate_mbps") * Mbps // run.integer("oversubscription")
    if run.integer("oversubscription") > 1:
        for link in np.flatnonzero(topology.level == 2).tolist():
            set_rate(network, topology.link_name(link), core_bps)
    link = damaged(topology)
    remaining = kernel_run.damage(network, plane, kind, link, degraded_bps=degraded_bps(run))
    if kind == "degraded":
        plane.follow(topology, degraded=[link])
    return remaining


def deadline_s(run: Run) -> float:
    """Return when flows that have not ended are given up."""
    alone_s = 8 * run.integer("flow_bytes") / (run.integer("rate_mbps") * Mbps)
    sending_s = run.integer("rounds") * round_s(run) if run.text("workload") == "short" else 0.0
    return sending_s + LONGEST * alone_s * run.integer("oversubscription") + GRACE_S


def measure(run: Run) -> Result:
    """Return the times of all flows and the order of their packets."""
    return on_packets(run) if run.engine == "packet" else on_kernel(run)


def links(run: Run) -> list[LinkSpec]:
    """Return the links of simulated packets, some of which are slower than the others."""
    topology, link, kind = run.topology, common.link(run), run.text("damage")
    core_bps = link.rate_bps // run.integer("oversubscription")
    rates = np.where(topology.level == 2, core_bps, link.rate_bps).tolist()
    if kind == "degraded":
        rates[damaged(topology)] = degraded_bps(run)
    return [replace(link, rate_bps=rate_bps) for rate_bps in rates]


def on_packets(run: Run) -> Result:
    """Return the times of simulated flows and the order of their packets."""
    outcome = simulated(run)
    count = {name: int(values.sum()) for name, values in outcome.counters.items()}
    packets = count["sent"]  # those sent again are among them
    # what a host's own port refuses stays in the host
    at_switches = outcome.ports["node"] >= run.topology.servers
    return Result(
        {
            **dict.fromkeys(ORDER),
            **times(outcome.completion_s, outcome.flows.start_s, deadline_s(run)),
            "late_fraction": count["late"] / packets,
            "retransmitted_fraction": count["retransmissions"] / packets,
            "spurious_fraction": count["spurious"] / packets,
            "dropped_packets": outcome.ports["dropped"][at_switches].sum(),
        }
    )


def simulated(run: Run) -> SimulatedFlows:
    """Return what becomes of the flows of `run` on simulated packets."""
    topology, kind = run.topology, run.text("damage")
    link, size_bytes = damaged(topology), run.integer("flow_bytes")
    simulation = Simulation(
        kernel_run.left_over(topology, kind, link),
        run.text("scheme"),
        PacketFlows.of((flow.src, flow.dst, size_bytes, flow.at_s) for flow in flows(run)),
        transport(f"tcp:recovery={run.text('tcp')}"),
        links(run),
        Switching(),
        1 + run.seed,
        run.integer("rto_min_us"),
        daemons=False,
        degraded=[link] if kind == "degraded" else [],
    )
    return simulation.run((), deadline_s(run), ())


def on_kernel(run: Run) -> Result:
    """Return the times of flows of Linux' TCP and the order of their packets."""
    sysctls = {f"tcp_{key}": value for key, value in TCP[run.text("tcp")].items()}
    with kernel_run.fabric(run, common.link(run), damage=partial(prepare, run)) as fabric:
        observation = kernel_run.send_tcp(
            run,
            fabric.network,
            flows(run),
            sysctls={"tcp_ecn": 2, **sysctls},
            deadline_s=deadline_s(run),
            congestion_control="reno",
        )
        results = observation.flows.results
        seconds = np.array([outcome.seconds for outcome in results], dtype=float)
        begins_s = np.array([outcome.flow.at_s for outcome in results])
        return observation.result(
            {**times(seconds, begins_s, deadline_s(run)), "dropped_packets": None}, fabric.facts()
        )


def times(seconds: Floats, begins_s: Floats, end_s: float) -> Row:
    """Return the columns about the flows' times, NaN for one that had not ended at `end_s`."""
    unfinished = np.isnan(seconds)
    ms = 1000 * np.where(unfinished, end_s - begins_s, seconds)
    return {
        "flows": len(ms),
        "unfinished": unfinished.sum(),
        "mean_ms": np.mean(ms),
        "p50_ms": np.percentile(ms, 50),
        "p99_ms": np.percentile(ms, 99),
        "p999_ms": np.percentile(ms, 99.9),
        "times_ms": ms.round(3).tolist() if len(ms) <= MOST_TIMES else [],
    }


def check(run: Run) -> None:
    """Raise ValueError unless `run` has a fat-tree that its scheme, flows and damage suit."""
    topology = run.topology if run.engine == "packet" else common.network(run)
    damaged(topology)
    if run.engine == "packet":
        check_forwarding(topology, run.text("scheme"))
    else:
        common.check_delay(run)
        common.check_tcp(run)
    selection, options = registry.data_plane(run.text("scheme"))
    selection.check(topology, options)
    check_pod(run)
    slowest_bps = degraded_bps(run) // run.integer("oversubscription")
    LinkSpec(rate_bps=slowest_bps, queue_packets=run.integer("queue_packets"))


def has_size(run: Run) -> bool:
    """Return whether the size of the flows is that of their workload."""
    return (run.text("workload") == "short") == (run.integer("flow_bytes") == SHORT_BYTES)


EXPERIMENT = Experiment(
    name="lbsp_tcp",
    question="How long do flows take under LBSP, packet scatter and others, if the fat-tree is "
    "healthy, damaged or oversubscribed?",
    source="LBSP, section 4, figures 6 and 7",
    engines=("kernel", "packet"),
    axes={
        "topology": common.TOPOLOGY.over("fattree:k=4"),
        "workload": Word(
            "permutations of short flows, four long flows to an edge switch, or five to a pod "
            "between certain hosts or drawn ones",
            words=("short", "long", "pod", "drawn"),
        ).over("short", "long"),
        "scheme": common.SCHEME.over("lbsp", "spray", "ecmp", "letflow", "drill", "ttc"),
        "damage": common.DAMAGE.over("none", "link", "node", "degraded"),
        "tcp": Word(
            "Linux as it is, or without SACK, RACK and a tolerance of reordering",
            words=[*TCP],
        ).over("reno"),
        "flow_bytes": Integer("size of every flow", unit="bytes", least=1, most=10**12).over(
            SHORT_BYTES, 10_000_000
        ),
        "oversubscription": Integer(
            "how many times slower links between aggregation and core switches are",
            least=1,
            most=1000,
        ).over(1),
        "load_fraction": common.LOAD_FRACTION.over(0.8),
        "rounds": Integer(
            "rounds of random permutations of short flows",
            unit="rounds",
            least=1,
            most=10_000,
        ).over(50),
        "rate_mbps": common.RATE_MBPS.over(1000),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "delay_us": common.DELAY_US.over(50),
        "rto_min_us": common.RTO_MIN_US.over(20_000),
    },
    columns={
        **UNFINISHED,
        "mean_ms": "mean time of a flow",
        "p50_ms": "median time of a flow",
        "p99_ms": "99th percentile of the flows' times",
        "p999_ms": "99.9th percentile of the flows' times",
        "times_ms": "list: time of each flow; empty for more than 10,000",
        **ORDER,
        "dropped_packets": "packets that queues of switches had no room for; null on Linux",
    },
    goes_together=has_size,
    compared=("workload", "flow_bytes"),
    seeds=10,
    takes_s=2200,
    version=2,  # the clock is the same from any checkout
    # Linux' TCP waits in small queues, and takes losses back that were none; RFC 5681 does not
    revised=lambda engine, parameters: 2 * (engine == "packet" and parameters["tcp"] == "rack"),
    measure=measure,
    plot=Bars(
        columns={"mean_ms": "mean time of a flow (ms)", "p999_ms": "99.9th percentile (ms)"},
        facet=(
            "workload",
            "topology",
            "damage",
            "oversubscription",
            "tcp",
            "flow_bytes",
            "rate_mbps",
            "queue_packets",
            "delay_us",
            "rto_min_us",
            "load_fraction",
            "rounds",
        ),
        always=3,
    ),
    check=check,
)


def flows(run: Run) -> list[Flow]:
    topology, size_bytes = run.topology, run.integer("flow_bytes")
    if run.text("workload") == "short":
        return list(short_flows(run, topology.servers))
    if run.text("workload") == "drawn":
        pairs = drawn_ends(topology, run.generator())
    else:
        pairs = long_ends(topology) if run.text("workload") == "long" else pod_ends(topology)
    return [Flow(0.0, src, dst, size_bytes) for src, dst in pairs]


def round_s(run: Run) -> float:
    """Return how long a flow from each host keeps its link busy at the load of `run`."""
    bits = 8 * run.integer("flow_bytes")
    return bits / (run.integer("rate_mbps") * Mbps * run.number("load_fraction"))


def short_flows(run: Run, hosts: int) -> Iterator[Flow]:
    """Yield the flows of `rounds` random permutations."""
    rng = run.generator()
    for number in range(run.integer("rounds")):
        for src, dst in permutation(rng, hosts):
            yield Flow((number + rng.random()) * round_s(run), src, dst, run.integer("flow_bytes"))


def long_ends(topology: Topology) -> Sequence[tuple[int, int]]:
    """Return source and destination of each of the four long flows."""
    shape = shape_of(topology)

    def host(pod: int, edge: int, number: int) -> int:
        return topology.naming.layout.number_of((pod, edge, number))

    s1, s2 = (host(2, shape.d - 1, number) for number in (0, 1))
    d1, d2, d3 = (host(1, 1 % shape.d, number % shape.hosts) for number in (0, 1, 3))
    return [(s1, d1), (s1, d1), (s2, d2), (host(4 % shape.pods, 0, 0), d3)]


def pod_ends(topology: Topology) -> Sequence[tuple[int, int]]:
    """Return source and destination of each of the five flows to a pod."""
    shape, number = shape_of(topology), topology.naming.layout.number_of
    d = shape.d
    sources = [(2, (d - 1 - place // 2) % d, place % 2) for place in range(4)]
    sources.append((4 % shape.pods, 0, 0))
    sinks = [(1, place % d, place % 2 + place // d) for place in range(FLOWS_TO_A_POD)]
    return [(number(src), number(dst)) for src, dst in zip(sources, sinks, strict=True)]


def drawn_ends(topology: Topology, rng: np.random.Generator) -> Sequence[tuple[int, int]]:
    """Return source and destination of five flows to a pod, between hosts that `rng` draws."""
    shape = shape_of(topology)
    size = shape.d * shape.hosts  # hosts of a pod
    behind = np.arange(3 * size - shape.hosts, 3 * size)  # the last edge switch of pod 2
    sources = rng.permutation(behind)[: FLOWS_TO_A_POD - 1].tolist()
    sources.append(4 % shape.pods * size + int(rng.integers(size)))
    sinks = (size + rng.permutation(size)[:FLOWS_TO_A_POD]).tolist()
    return list(zip(sources, sinks, strict=True))


def check_pod(run: Run) -> None:
    """Raise ValueError if a pod of `run` has no host for each of the five flows to it."""
    shape = shape_of(run.topology)
    hosts = shape.d * shape.hosts
    if run.text("workload") in ("pod", "drawn") and hosts < FLOWS_TO_A_POD:
        raise ValueError(f"{run.experiment}: a pod must have {FLOWS_TO_A_POD} hosts, not {hosts}")
