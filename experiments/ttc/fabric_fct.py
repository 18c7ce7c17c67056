"""Completion times of short and long flows under each scheme, in a healthy and a damaged fabric.

Flows arrive at random (Poisson) between random hosts, with sizes as published, cut off so that a
run ends in time.  A flow's slowdown is its time over that which it would have alone: store and
forward over the links of its path.  Damage is on the first link between an edge switch and the tier
above.  All switches know of a failure; a link that is degraded to a fifth of its rate is known to
none.  A flow that has not ended in time counts with the time that it has had.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from weft.daemons.routing.shortest import distances
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import fabric_run
from weft.experiments.engines.arrays import Floats
from weft.experiments.engines.fabric_run import HEADER_BYTES, PAYLOAD_BYTES
from weft.experiments.engines.workloads import ideal_s, poisson, sizes
from weft.experiments.report import panels
from weft.experiments.report.panels import Bars, Curves, Stack
from weft.experiments.runner.definition import Experiment, Result, Run, Value
from weft.experiments.ttc import columns
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic.flows import Flow, FlowResults
from weft.topologies.core.link import Mbps
from weft.topologies.core.topology import Topology

SHORT_BYTES = 100_000  # short flows have less, as in the papers on load balancing
LONG_BYTES = 1_000_000  # long flows have as much or more
DEGRADED_FRACTION = 0.2
GRACE_S = 10.0  # after the last arrival, for flows to end


def measure(run: Run) -> Result:
    """Return time and slowdown of every flow, and means and percentiles by class of size."""
    rate_bps = run.integer("rate_mbps") * Mbps
    with fabric_run.fabric(run, common.link(run), damage=partial(damage, run)) as fabric:
        observation = fabric_run.tcp(
            run,
            fabric.network,
            list(traffic(run, fabric.topology.servers, rate_bps)),
            deadline_s=run.number("seconds") + GRACE_S,
        )
        return Result(
            figures={
                **times(fabric.topology, observation.flows, rate_bps),
                **fabric_run.order_figures(observation),
            },
            fidelity=observation.report.verdict,
            circumstances=fabric_run.circumstances(fabric, observation),
        )


def damaged_link(topology: Topology) -> int:
    """Return the number of the link that is damaged."""
    return int(np.flatnonzero(topology.level == 1)[0])


def damage(run: Run, network: RunningNetwork, plane: DataPlane) -> Topology:
    """Damage the network of `run`; return the topology that is left."""
    return fabric_run.damage(
        network,
        plane,
        run.text("damage"),
        damaged_link(network.topology),
        degraded_bps=round(run.integer("rate_mbps") * Mbps * DEGRADED_FRACTION),
    )


def traffic(run: Run, hosts: int, rate_bps: int) -> Iterator[Flow]:
    """Return the flows of `run`, the same for every scheme and damage."""
    return poisson(
        np.random.default_rng(run.seed),
        hosts,
        size_distribution=sizes(run.text("sizes")),
        load_fraction=run.number("load_fraction"),
        rate_bps=rate_bps * fabric_run.PAYLOAD_FRACTION,
        duration_s=run.number("seconds"),
    )


def times(topology: Topology, table: FlowResults, rate_bps: int) -> dict[str, Value]:
    """Return the columns about the flows' times."""
    sizes_bytes = np.array([outcome.flow.size_bytes or 0 for outcome in table.results], float)
    seconds = np.array(
        [
            table.measured_s - outcome.began_s if outcome.seconds is None else outcome.seconds
            for outcome in table.results
        ]
    )
    slowdowns = seconds / alone_s(topology, [outcome.flow for outcome in table.results], rate_bps)
    return {
        "flows": len(table.results),
        "unfinished": table.unfinished,
        **summary("short", seconds, slowdowns, sizes_bytes < SHORT_BYTES),
        **summary("long", seconds, slowdowns, sizes_bytes >= LONG_BYTES),
        **summary("all", seconds, slowdowns, sizes_bytes > 0),
        "sizes_bytes": sizes_bytes.astype(int).tolist(),
        "times_ms": (1000 * seconds).round(3).tolist(),
        "slowdowns": slowdowns.round(3).tolist(),
    }


def alone_s(topology: Topology, flows: list[Flow], rate_bps: int) -> Floats:
    """Return how long each flow would take alone, in s."""
    hops = {src: distances(topology.adjacency, src) for src in {flow.src for flow in flows}}
    return np.array(
        [
            ideal_s(
                flow.size_bytes or 0,
                rate_bps=rate_bps,
                hops=hops[flow.src][flow.dst],
                header_bytes=HEADER_BYTES,
                packet_bytes=PAYLOAD_BYTES,
            )
            for flow in flows
        ]
    )


def summary(
    name: str, seconds: Floats, slowdowns: Floats, members: NDArray[np.bool_]
) -> dict[str, Value]:
    """Return mean and 99th percentile of times and slowdowns of the flows of a class.

    None if the class has no flow.
    """
    figures: dict[str, Value] = {}
    for key, values in (("ms", 1000 * seconds[members]), ("slowdown", slowdowns[members])):
        figures[f"{name}_mean_{key}"] = float(values.mean()) if len(values) else None
        figures[f"{name}_p99_{key}"] = float(np.percentile(values, 99)) if len(values) else None
    return figures


def check(run: Run) -> None:
    """Raise ValueError unless `run` has a fabric that its scheme suits, and a TCP of the kernel."""
    fabric_run.check_scheme(run)
    common.check_tcp(run)
    common.check_delay(run)


SETTING = (
    "topology",
    "damage",
    "sizes",
    "load_fraction",
    "rate_mbps",
    "transport",
    "queue_packets",
    "congestion_control",
    "delay_us",
    "rto_min_us",
    "seconds",
)
EXPERIMENT = Experiment(
    name="fabric_fct",
    question="How long do short and long flows take under each scheme, with all links healthy, one "
    "failed, one degraded?",
    source="DRILL (SIGCOMM 2017), section 4; LetFlow (NSDI 2017), section 6",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("fattree:k=4"),
        "scheme": common.SCHEME.over(
            "ecmp", "vlb", "letflow", "rps", "rr", "dmodk", "drill", "ttc", "jsq", "lbsp"
        ),
        "damage": common.DAMAGE.over("none", "link", "degraded"),
        "sizes": common.SIZES.over("web-search:most_bytes=1500000"),
        "load_fraction": common.LOAD_FRACTION.over(0.4),
        "rate_mbps": common.RATE_MBPS.over(1000),
        "queue_packets": common.QUEUE_PACKETS.over(100),
        "delay_us": common.DELAY_US.over(5),
        "congestion_control": common.CONGESTION_CONTROL.over("cubic"),
        "transport": common.TRANSPORT.over("tcp"),
        "rto_min_us": common.RTO_MIN_US,
        "seconds": common.PART_OF_SECONDS.over(0.1),
    },
    columns=columns.FABRIC_FCT,
    seeds=10,
    takes_s=1200,
    version=4,
    measure=measure,
    plot=Stack(
        Bars(
            columns={
                "short_mean_ms": "short flows, mean (ms)",
                "short_p99_ms": "short flows, 99th percentile (ms)",
                "long_mean_ms": "long flows, mean (ms)",
            },
            facet=SETTING,
            always=2,
        ),
        Curves(
            columns={"fraction": "fraction of flows"},
            x="slowdowns",
            facet=SETTING,
            always=2,
            log=("slowdowns",),
            rows=partial(panels.cumulative, column="slowdowns", keys=("scheme", *SETTING)),
        ),
    ),
    check=check,
)
