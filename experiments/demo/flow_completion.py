"""Completion times of flows on any network, packet by packet: simulated, or on Linux.

All flows have one size and begin at once.  Their connections are open before, so that no time has a
handshake in it.  The packet engine carries tens of thousands of hosts (testbed/packets).
"""

from __future__ import annotations

import numpy as np

from weft.daemons.core import registry
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Floats
from weft.experiments.engines.kernel_run import running
from weft.experiments.engines.workloads import PATTERNS, pairs
from weft.experiments.fatpaths.transports import TRANSPORT, revisions, total
from weft.experiments.report.claims import Sweep, Where
from weft.experiments.report.panels import Bars, Curves, Stack, cumulative
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Spec
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.network.network import RunningNetwork
from weft.testbed.packets.forwarding import check_forwarding
from weft.testbed.packets.simulation import PacketFlows, simulate
from weft.testbed.packets.transport import check_linux, check_simulated, transport
from weft.testbed.traffic import flows as tcp_flows
from weft.testbed.traffic import tcp
from weft.testbed.traffic.flow_results import FlowResults

DEADLINE_S = 60.0
PERCENTILES = tuple(range(1, 101))


def traffic(text: str) -> None:
    """Raise ValueError unless `text` is a pattern."""
    common.pattern(text, PATTERNS)


def flows_of(run: Run) -> PacketFlows:
    """Return the flows of `run`, the same on every engine."""
    generator = run.generator()
    ends = pairs(run.text("traffic"), run.topology.servers, generator)
    return PacketFlows.of((src, dst, run.integer("size_bytes")) for src, dst in ends)


def measure(run: Run) -> Result:
    """Return the times of the flows of `run`."""
    return simulated(run) if run.engine == "packet" else on_linux(run)


def simulated(run: Run) -> Result:
    """Return the times of simulated flows."""
    outcome = simulate(
        run.topology,
        run.text("scheme"),
        flows_of(run),
        transport=run.text("transport"),
        link=common.link(run),
        seed=1 + run.seed,
        deadline_s=DEADLINE_S,
        rto_min_us=run.integer("rto_min_us"),
    )
    sent_again = int(outcome.counters["retransmissions"].sum())
    lost = int(outcome.ports["dropped"].sum() + outcome.ports["headers_lost"].sum())
    return Result(figures(outcome.completion_s, sent_again, lost))


def on_linux(run: Run) -> Result:
    """Return the times of flows of Linux' TCP."""
    with (
        running(run.topology, common.link(run), run.text("scheme")) as network,
        Fidelity(network) as fidelity,
        PortCounterReader(network) as ports,
    ):
        before = ports.snapshot()
        observed = carried(run, network)
        dropped = total(ports.snapshot().since(before).ports.values(), "queue_drops")
    seconds = np.array([result.seconds for result in observed.results], dtype=float)
    return Result(
        figures(seconds, observed.total("retransmissions"), dropped),
        fidelity=fidelity.verdict,
        circumstances={"fidelity_report": fidelity.report.as_dict(), **observed.sysctls},
    )


def carried(run: Run, network: RunningNetwork) -> FlowResults:
    """Carry the flows of `run` on a network that is up."""
    sysctls = {"ipv4/tcp_ecn": "1", "ipv4/tcp_rto_min_us": run.text("rto_min_us")}
    tcp.tune(network, sysctls)
    rows = zip(*(column.tolist() for column in flows_of(run)), strict=True)
    options = tcp_flows.FlowOptions(
        deadline_s=DEADLINE_S,
        congestion_control=transport(run.text("transport")).control,
        open_before=True,
    )
    return tcp_flows.run(network, [tcp_flows.Flow(*row) for row in rows], options)


def figures(seconds: Floats, retransmissions: int, dropped: int) -> Row:
    """Return the columns about times, in s, which are NaN for flows that did not end."""
    ended_ms = 1000 * seconds[~np.isnan(seconds)]
    times = np.percentile(ended_ms, PERCENTILES) if len(ended_ms) else np.full(100, np.nan)
    return {
        "flows": len(seconds),
        "unfinished": len(seconds) - len(ended_ms),
        "mean_ms": ended_ms.mean() if len(ended_ms) else None,
        "median_ms": times[49] if len(ended_ms) else None,
        "p99_ms": times[98] if len(ended_ms) else None,
        "last_ms": times[99] if len(ended_ms) else None,
        "retransmissions": retransmissions,
        "queue_drops": dropped,
        "times_ms": times.round(6).tolist() if len(ended_ms) else [],
    }


def check(run: Run) -> None:
    """Raise ValueError unless the engine of `run` has its network, scheme and transport."""
    parsed = transport(run.text("transport"))
    pairs(run.text("traffic"), run.topology.servers, np.random.default_rng(0))
    if run.engine == "packet":
        check_simulated(parsed)
        check_forwarding(run.topology, run.text("scheme"), parsed)
        return
    registry.checked(common.network(run), run.text("scheme"))
    common.check_delay(run)
    check_linux(parsed)
    common.check_control(run, parsed.control)
    common.check_tcp(run)


def suits(run: Run) -> bool:
    """Return True if the scheme of `run` routes its network."""
    try:
        registry.checked(run.topology, run.text("scheme"))
    except ValueError:
        return False
    return True


def ends(table: Table) -> Table:
    """Return the distribution of times."""
    return cumulative(table, "times_ms", ("scheme", "transport", *FACET))


FACET = ("topology", "traffic", "size_bytes", "rate_mbps", "engine")
LARGE: Where = {"topology": "fattree:k=36", "size_bytes": 200_000}
BY_FLOW: Where = {"scheme": ("ecmp", "letflow", "drill", "rps"), "transport": "tcp:control=dctcp"}
BY_PACKET: Where = {"scheme": ("drill", "rps"), "transport": "ndp"}
MODELS = tuple(f"tcp:control={name},small_queues=1" for name in ("reno", "cubic", "dctcp"))
BESIDE_LINUX: Where = {"rate_mbps": 100, "size_bytes": 5_000_000}
CHAINS: tuple[Where, ...] = (
    {"topology": "dcell:n=4,k=1", "scheme": "dr", "delay_us": 2000},
    {"topology": "clos:n=4,r=4,m=4", "scheme": "dmodk", "delay_us": 500},
)
BOTH_ENGINES: tuple[Where, ...] = (
    {"transport": MODELS, "engine": "kernel", "clock": "virtual"},
    {"transport": (*MODELS, "tcp:control=cubic,small_queues=0"), "engine": "packet"},
)
SWEEPS = (
    Sweep("flow_completion", {**LARGE, **BY_FLOW}),
    Sweep("flow_completion", {**LARGE, **BY_PACKET}),
    *(
        Sweep("flow_completion", {**BESIDE_LINUX, **chain, **way})
        for chain in CHAINS
        for way in BOTH_ENGINES
    ),
)
EXPERIMENT = Experiment(
    name="flow_completion",
    question="How long do flows take on any network, under any scheme, packet by packet?",
    source="none: for schemes and networks of one's own",
    engines=("packet", "kernel"),
    axes={
        "topology": common.TOPOLOGY.over("fattree:k=8", "dcell:n=4,k=2"),
        "scheme": Spec(
            "routing scheme",
            form="SCHEME:key=value,... (`weft list schemes`)",
            check=registry.scheme,
        ).over("ecmp", "drill", "dr", "pr-gpi"),
        "transport": TRANSPORT.over("tcp:control=reno"),
        "traffic": Spec(
            "who sends to whom", form="permutation, incast:senders=N, ...", check=traffic
        ).over("permutation"),
        "size_bytes": Integer("payload of every flow", unit="bytes", least=1, most=10**9).over(
            1_000_000
        ),
        "rate_mbps": common.RATE_MBPS.over(1000),
        "queue_packets": common.QUEUE_PACKETS.over(100),
        "delay_us": common.DELAY_US.over(5),
        "rto_min_us": common.RTO_MIN_US,
    },
    columns={
        "flows": "flows that begin",
        "unfinished": "flows that did not end in 60 s; no time counts them",
        "mean_ms": "mean time of the flows that ended",
        "median_ms": "their median",
        "p99_ms": "their 99th percentile",
        "last_ms": "the longest of these times",
        "retransmissions": "packets that were sent again",
        "queue_drops": "packets that full queues dropped",
        "times_ms": "percentiles 1 to 100 of the times",
    },
    clock="virtual",
    seeds=5,
    revised=revisions,
    measure=measure,
    plot=Stack(
        Bars(
            columns={"mean_ms": "mean completion time (ms)"},
            strokes={"mean_ms": {"p99_ms": "99th percentile"}},
            by=("scheme", "transport", "engine"),
            facet=FACET[:-1],
        ),
        Curves(
            columns={"fraction": "flows"},
            x="times_ms",
            series="scheme",
            facet=("transport", *FACET),
            log=("times_ms",),
            rows=ends,
        ),
    ),
    compared=("topology", "scheme"),
    goes_together=suits,
    check=check,
)
