"""Do flowlets exist?  How long flows are silent between two packets, where hosts send them.

LetFlow and FatPaths give a flow another path after a silence, of 50 us in FatPaths: seven times as
long as a frame of 9 kB takes at 10 Gbit/s.  Here every silence is counted, by transport, congestion
control and rate, and given in packet times: how long a full frame takes on a link.  Flows are
endless, or come and go as in fatpaths_fct.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.workloads import endless
from weft.experiments.fatpaths import columns, flow_times, fluid_shares, layered_network
from weft.experiments.fatpaths.layered_network import AXES
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Experiment, Result, Run, Table
from weft.experiments.runner.parameters import Word, swept
from weft.testbed.measure.flow_gaps import FlowGaps
from weft.testbed.measure.reordering import bounds_us
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic.flows import PORT, Flow

LOAD_FRACTION, SIZE_FRACTION = 0.2, 0.25
MULTIPLES = (2, 7, 30)  # of a packet time; the paper's is 7
WARM_UP = 0.1  # of the time
HostPairs = Sequence[tuple[int, int]]


def measure(run: Run) -> Result:
    """Return the histogram of silences, and how many packets came after the longer ones."""
    seconds, packet_us = run.number("seconds"), layered_network.packet_time_us(run.parameters)
    with layered_network.brought_up(run) as network:
        pairs = layered_network.pairs_of(run, network.topology.servers)
        with FlowGaps(network) as gaps:
            observation = layered_network.tcp(
                run, network, flows_of(run, pairs), deadline_s=seconds, warm_up_s=seconds * WARM_UP
            )
        table = gaps.table
        return observation.result(
            {
                "packets": table.packets,
                "median_packet_times": table.quantile_us(50) / packet_us,
                "p99_packet_times": table.quantile_us(99) / packet_us,
                **{f"beyond_{n}_fraction": table.beyond(n * packet_us) for n in MULTIPLES},
                "gaps": list(table.gaps),
                "goodput_bps": observation.flows.goodput_bps,
                "fluid_bps": fluid_bps(run, network, pairs),
            },
            {"scheme": network.run.journal["scheme"]},
        )


def flows_of(run: Run, pairs: HostPairs) -> list[Flow]:
    """Return the flows of `run` between `pairs`."""
    if run.text("flows") == "endless":
        return endless(pairs)
    return list(
        flow_times.arrivals(
            np.random.default_rng([run.seed, 1]),
            pairs,
            flow_times.steps(SIZE_FRACTION),
            load_fraction=LOAD_FRACTION,
            rate_bps=layered_network.payload_bps(run),
            duration_s=run.number("seconds"),
        )
    )


def fluid_bps(run: Run, network: RunningNetwork, pairs: HostPairs) -> float | None:
    """Return what max-min fair fluids would carry on the paths of the endless flows of `pairs`.

    None for other flows, and where paths change or are not known.
    """
    if (run.text("flows"), run.text("transport")) != ("endless", "tcp"):
        return None
    shares = fluid_shares.shares(network, layered_network.scheme_of(run), pairs, PORT)
    if shares is None:
        return None
    return float(shares.sum()) * layered_network.payload_bps(run)


def silences(table: Table) -> Table:
    """Return a row for each class of silences: the fraction of packets behind a longer one."""
    rows = []
    for row in table:
        gaps = np.array(row["gaps"], float)
        beyond = gaps[::-1].cumsum()[::-1] / max(1, gaps.sum())
        times = np.maximum(bounds_us(), 1) / layered_network.packet_time_us(row)
        control = f"{row['transport']} {row['congestion_control']}"
        rows += [
            {**row, "silence": time, "beyond_fraction": fraction, "control": control}
            for time, fraction in zip(times.tolist(), beyond.tolist(), strict=False)
            if fraction > 0
        ]
    return rows


EXPERIMENT = Experiment(
    name="flowlet_gaps",
    question="Do flowlets exist: how long are flows silent between two packets?",
    source="FatPaths, sections III-B and VII-A6; LetFlow (NSDI 2017), section 2",
    engines=("kernel",),
    axes={
        **swept(
            AXES,
            topology=["slimfly:q=3,p=2"],
            pattern=["off-diagonal:c=18"],
            mapping=["linear"],
            rate_mbps=[10, 1000],
            ecn_packets=[0],
            congestion_control=["reno", "cubic", "bbr"],
            transport=["tcp", "mptcp:subflows=4"],
        ),
        "flows": Word(
            "whether flows last, or arrive as in fatpaths_fct",
            words=("endless", "arriving"),
        ).over("endless", "arriving"),
        "seconds": common.PART_OF_SECONDS.over(0.5),
    },
    columns=columns.GAPS,
    version=2,  # 1 MB in the mean
    seeds=3,
    takes_s=250,
    measure=measure,
    plot=Curves(
        columns={"beyond_fraction": "packets after a longer silence (fraction)"},
        x="silence",
        series="control",
        dash="rate_mbps",
        facet=("topology", "flows", "scheme", "pattern", "queue_packets", "frame_bytes", "seconds"),
        always=3,
        log=("silence", "beyond_fraction"),
        rows=silences,
    ),
    check=layered_network.check,
)
