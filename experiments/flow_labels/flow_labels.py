"""Goodput of Linux' TCP when flows collide or links die silently, with flow labels drawn again.

Every host sends endless flows over DCTCP to another one, a random permutation.  After `before_s`
links fail silently: they lose all packets, and no switch notices.  Flows are counted from then on,
for `after_s`.  Nothing of the kernel is modified; switches forward by its multipath routes, and a
program marks packets at long queues.  `way` is how a flow's path is chosen:

ports    ECMP over IPv4, by addresses and ports (fib_multipath_hash_policy=1)
label    ECMP over IPv6, by addresses and flow label, which stays (txrehash=0)
prr      the same, with a new label after each retransmission timeout, Linux' default
plb      prr, and a new label after rounds with many marks (tcp_plb_enabled=1)
letflow  the switches' program over IPv4: another port after a gap
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.kernel_run import PAYLOAD_FRACTION, running
from weft.experiments.engines.workloads import endless, pairs
from weft.experiments.fatpaths.layered_network import ECN_PACKETS, PATTERN
from weft.experiments.flow_labels import columns
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Word
from weft.testbed.data_plane import marks
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import clock
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.measure.flow_labels import LabelCapture
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import flows, tcp
from weft.testbed.traffic.flows import FlowOptions, FlowResults
from weft.topologies.core.address import IPV4, IPV6
from weft.topologies.core.topology import Topology

GAP_US = 500  # of LetFlow, as in fatpaths_fct
LINUX_ROUNDS = 12
REHASHES = {
    "timeout_rehashes": "TcpTimeoutRehash",
    "duplicate_rehashes": "TcpDuplicateDataRehash",
    "plb_rehashes": "TCPPLBRehash",
}


class Way(NamedTuple):
    """Sysctls of hosts and program of switches by which paths are chosen.

    ipv6: flows are of IPv6.
    sysctls: of hosts.
    balancing: the scheme of the switches' program; "" without one.
    """

    ipv6: bool
    sysctls: dict[str, str]
    balancing: str = ""


WAYS = {
    "ports": Way(False, {}),
    "label": Way(True, {"core/txrehash": "0"}),
    "prr": Way(True, {}),
    "plb": Way(True, {"ipv4/tcp_plb_enabled": "1"}),
    "letflow": Way(False, {}, f"letflow:gap_us={GAP_US}"),
}


class LabelObservation(NamedTuple):
    """Flows of one run, what arrived of them, counters of TCP, and the fidelity."""

    flows: FlowResults
    capture: LabelCapture
    counters: dict[str, int]
    fidelity: Fidelity


def measure(run: Run) -> Result:
    """Return the goodput of all flows after the failure, and how often labels changed."""
    with brought_up(run) as network:
        observation = observe(run, network)
    report = observation.fidelity.report
    table = observation.flows
    circumstances = {
        "fidelity_report": report.as_dict(),
        "failed": [network.topology.link_name(link) for link in failed(run, network.topology)],
        "tcp": {"congestion_control": table.congestion_control, **table.sysctls},
    }
    figures = figures_of(run, observation)
    return Result(figures=figures, fidelity=report.verdict, circumstances=circumstances)


@contextmanager
def brought_up(run: Run) -> Iterator[RunningNetwork]:
    """Bring up the network of `run`, with marks at its switches, for the length of a `with`."""
    way = WAYS[run.text("way")]
    scheme = f"static:ipv6={int(way.ipv6)}"
    with running(run.topology, common.link(run), scheme) as network:
        marks.attach(network, run.integer("ecn_packets"))
        if way.balancing:
            with DataPlane.load(network, way.balancing, seed=run.seed) as plane:
                plane.attach()
                plane.set_scheme(way.balancing, seed=run.seed)
        sysctls = {
            "ipv4/tcp_ecn": "1",
            "ipv4/tcp_rto_min_us": run.text("rto_min_us"),
            "ipv4/tcp_plb_rehash_rounds": run.text("plb_rounds"),
            **way.sysctls,
        }
        tcp.tune(network, sysctls)
        yield network


def failed(run: Run, topology: Topology) -> list[int]:
    """Return random links between switches, the same for every way."""
    links = np.flatnonzero(topology.level > 0)
    generator = np.random.default_rng([run.seed, 1])
    return sorted(generator.choice(links, run.integer("failed_links"), replace=False).tolist())


def observe(run: Run, network: RunningNetwork) -> LabelObservation:
    """Run the flows, and fail links meanwhile."""
    family = IPV6 if WAYS[run.text("way")].ipv6 else IPV4

    def fail() -> None:
        for link in failed(run, network.topology):
            network.fail(network.topology.link_name(link), silent=True)
        capture.since_s = clock.monotonic()

    options = FlowOptions(
        deadline_s=run.number("before_s") + run.number("after_s"),
        congestion_control="dctcp",
        warm_up_s=run.number("before_s"),
        at_warm_up=fail,
        open_before=True,
        family=family,
    )
    generator = np.random.default_rng(run.seed)
    sent = endless(pairs(run.text("pattern"), network.topology.servers, generator))
    with Fidelity(network) as fidelity, LabelCapture(network, family, flows.PORT) as capture:
        table = flows.run(network, sent, options)
    return LabelObservation(table, capture, tcp.counters(network, REHASHES.values()), fidelity)


def figures_of(run: Run, observation: LabelObservation) -> Row:
    """Return the columns of a run."""
    table = observation.flows
    bits_of_host = table.measured_s * run.integer("rate_mbps") * 1e6 * PAYLOAD_FRACTION
    goodputs = [8 * flow.received_bytes / bits_of_host for flow in table.results]
    segments = max(1, table.total("segments"))
    return {
        "flows": len(goodputs),
        "goodput_fraction": sum(goodputs) / len(goodputs),
        "slowest_fraction": min(goodputs),
        "goodputs_fraction": goodputs,
        **arrivals(observation.capture, table.measured_s),
        **{column: observation.counters[name] for column, name in REHASHES.items()},
        "timeouts": table.total("timeouts"),
        "marked_fraction": table.total("marked") / segments,
        "retransmitted_fraction": table.total("retransmissions") / segments,
    }


def arrivals(capture: LabelCapture, measured_s: float) -> Row:
    """Return the columns about what the capture saw in the counted time."""
    captured = [capture.flows[key] for key in sorted(capture.flows)]
    begin_s = capture.since_s
    still_ms = [1000 * flow.still_until(begin_s + measured_s, begin_s) for flow in captured]
    return {
        "stopped_flows": sum(flow.last_s < begin_s + measured_s / 2 for flow in captured),
        "still_ms": still_ms,
        "longest_still_ms": max(still_ms),
        "new_labels": sum(len(flow.labels) - 1 for flow in captured),
    }


def check(run: Run) -> None:
    """Raise ValueError unless `run` has a fabric whose links can fail, and this kernel's TCP."""
    topology = common.network(run)
    links = int((topology.level > 0).sum())
    if topology.server_centric or not links:
        raise ValueError(f"flow_labels: topology must have linked switches, not {topology.spec}")
    if run.integer("failed_links") > links:
        raise ValueError(f"flow_labels: {topology.spec} has {links} links between switches")
    pairs(run.text("pattern"), topology.servers, np.random.default_rng(0))
    common.check_control(run, "dctcp")
    common.check_tcp(run)
    common.check_delay(run)


def is_compared(run: Run) -> bool:
    """Return True for several numbers of rounds of PLB alone."""
    return run.text("way") == "plb" or run.integer("plb_rounds") == LINUX_ROUNDS


PART_S = common.PART_OF_SECONDS
EXPERIMENT = Experiment(
    name="flow_labels",
    question="How much goodput do flows of Linux' TCP keep when they collide or links die "
    "silently, with IPv6 flow labels that PRR and PLB draw again?",
    source="PLB, SIGCOMM 2022; PRR, SIGCOMM 2023; Linux",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("clos:n=4,r=4,m=4", "hyperx:l=2,s=3,p=2"),
        "way": Word("how a flow's path is chosen", words=tuple(WAYS)).over(*WAYS),
        "failed_links": Integer(
            "links between switches that fail silently", unit="links", least=0, most=10**6
        ).over(0, 2),
        "pattern": PATTERN.over("permutation"),
        "rate_mbps": common.RATE_MBPS.over(100),
        "delay_us": common.DELAY_US.over(10),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "ecn_packets": ECN_PACKETS.over(20),
        "rto_min_us": common.RTO_MIN_US.over(10_000),
        "plb_rounds": Integer(
            "marked rounds in a row after which PLB draws a label; Linux has 12",
            unit="rounds",
            least=1,
            most=31,
        ).over(LINUX_ROUNDS, 3),
        "before_s": PART_S.over(0.1),
        "after_s": PART_S.over(0.5),
    },
    columns=columns.FLOW_LABELS,
    seeds=3,
    takes_s=900,
    measure=measure,
    plot=Bars(
        columns={"goodput_fraction": "goodput of a flow / host's link"},
        strokes={"goodput_fraction": {"slowest_fraction": "slowest flow"}},
        by=("way", "plb_rounds"),
        facet=("topology", "failed_links", "rto_min_us"),
    ),
    goes_together=is_compared,
    compared=("way", "plb_rounds"),
    check=check,
)
