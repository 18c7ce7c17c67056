"""Do flowlets exist?  How long flows are silent between two packets, where hosts send them.

LetFlow and FatPaths give a flow another path after a silence, of 50 us in FatPaths: seven times as
long as a frame of 9 kB takes at 10 Gbit/s.  Here every silence is counted, by transport, congestion
control and rate, and given in packet times: how long a full frame takes on a link.  Flows are
endless, or come and go as in fatpaths_fct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.fatpaths import columns, fluid_shares, layered_network
from weft.experiments.report import figures, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Word

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

    from weft.testbed.network.network import RunningNetwork

LOAD_FRACTION, SIZE_FRACTION = 0.2, 0.25
MULTIPLES = (2, 7, 30)  # of a packet time
WARM_UP = 0.1  # of the time


def measure(run: Run) -> Result:
    """The histogram of silences, and how many packets came after the longer ones."""
    from weft.experiments.engines import fabric_run
    from weft.experiments.engines.workloads import endless
    from weft.testbed.measure.flow_gaps import FlowGaps

    seconds, packet_us = (
        float(run.parameters["seconds"]),
        layered_network.packet_time_us(run.parameters),
    )
    with layered_network.brought_up(run) as network:
        chosen = layered_network.who(run, network.topology.servers)
        wanted = endless(chosen)
        if run.text("flows") == "arriving":
            rate_bps = layered_network.payload_bps(run)
            wanted = list(
                layered_network.arrivals(
                    *(
                        np.random.default_rng([run.seed, 1]),
                        chosen,
                        layered_network.steps(SIZE_FRACTION),
                    ),
                    load_fraction=LOAD_FRACTION,
                    rate_bps=rate_bps,
                    duration_s=seconds,
                )
            )
        with FlowGaps(network) as gaps:
            seen = layered_network.tcp(
                run, network, wanted, deadline_s=seconds, warm_up_s=seconds * WARM_UP
            )
        table = gaps.table
        return Result(
            figures={
                "packets": table.packets,
                "median_packet_times": table.quantile_us(50) / packet_us,
                "p99_packet_times": table.quantile_us(99) / packet_us,
                **{
                    f"beyond_{times}_fraction": table.beyond(times * packet_us)
                    for times in MULTIPLES
                },
                "gaps": list(table.gaps),
                "goodput_bps": seen.flows.goodput_bps,
                "fluid_bps": fluid_bps(run, network, chosen),
                **fabric_run.order_figures(seen),
            },
            fidelity=seen.report.verdict,
            circumstances=layered_network.circumstances(network, seen),
        )


def fluid_bps(run: Run, network: RunningNetwork, chosen: Sequence[tuple[int, int]]) -> float | None:
    """What max-min fair fluids would carry on the paths of the endless flows between the pairs
    `chosen`; None for other flows, and where paths change or are not known.
    """
    from weft.testbed.traffic.flows import PORT

    if (run.text("flows"), run.text("transport")) != ("endless", "tcp"):
        return None
    spec = layered_network.complete(
        run.text("scheme"), seed=run.seed, ecn=run.integer("ecn_packets")
    )
    shares = fluid_shares.shares(network, spec, chosen, PORT)
    if shares is None:
        return None
    return float(shares.sum()) * layered_network.payload_bps(run)


SETTING = (
    *(
        "topology",
        "pattern",
        "mapping",
        "flows",
        "queue_packets",
        "ecn_packets",
        "min_rtt_window_s",
        "seconds",
    ),
    *("frame_bytes", "delay_us"),
)


def plot(table: Table, figure: Figure) -> None:
    """For each setting, a line for each transport, congestion control and rate: the fraction of
    packets before which their flow was silent for longer than x packet times.  Dotted: seven, as in
    the paper.

    Lines of runs that all failed fidelity are pale.
    """
    from weft.testbed.measure.reordering import bounds_us

    groups = figures.by_setting(table, SETTING, always=3)
    figure.set_size_inches(4.6 * len(groups) + 2.6, 3.9)
    named: dict[str, Artist] = {}
    panels = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
    lines = sorted({name_of(row) for row in table})
    for axes, (title, rows) in zip(panels, groups.items(), strict=True):
        for at, (scheme, transport, control, rate) in enumerate(lines):
            of = [row for row in rows if name_of(row) == (scheme, transport, control, rate)]
            kept = [row for row in of if not figures.failed_fidelity(row)]
            if not of:
                continue
            gaps = np.sum([np.array(row["gaps"]) for row in kept or of], axis=0)
            beyond = gaps[::-1].cumsum()[::-1] / max(1, gaps.sum())
            dash = style.DASHES[at // len(style.SEVERAL) % len(style.DASHES)]
            (named[f"{scheme}, {transport} {control}, {rate} Mbit/s"],) = axes.loglog(
                np.maximum(bounds_us(), 1) / layered_network.packet_time_us(of[0]),
                np.maximum(beyond, 1e-7),
                dash,
                color=style.SEVERAL[at % len(style.SEVERAL)],
                alpha=1.0 if kept else 0.35,
                linewidth=1.2,
            )
        axes.axvline(
            layered_network.PAPERS_PACKET_TIMES, color=style.INK, linestyle=":", linewidth=1
        )
        axes.set(xlim=(1e-2, 1e4), ylim=(1e-5, 1.2), xlabel="silence (packet times)")
        axes.set_title(title, fontsize=6.5)
    panels[0].set_ylabel("packets after a longer silence (fraction)")
    figure.legend([*named.values()], [*named], loc="outside right upper", fontsize=7)


def name_of(row: Mapping[str, object] | Row) -> tuple[str, str, str, int]:
    """What a line of the figure is for."""
    return (
        str(row["scheme"]),
        str(row["transport"]),
        str(row["congestion_control"]),
        int(str(row["rate_mbps"])),
    )


EXPERIMENT = Experiment(
    name="flowlet_gaps",
    question="Do flowlets exist: how long are flows silent between two packets?",
    source="FatPaths, sections III-B and VII-A6; LetFlow (NSDI 2017), section 2",
    engines=("kernel",),
    axes={
        **layered_network.AXES,
        "topology": layered_network.AXES["topology"].over("slimfly:q=3,p=2"),
        "pattern": layered_network.AXES["pattern"].over("off-diagonal:c=18"),
        "mapping": layered_network.AXES["mapping"].over("linear"),
        "flows": Word(
            meaning="whether flows last, or arrive as in fatpaths_fct",
            words=("endless", "arriving"),
        ).over("endless", "arriving"),
        "rate_mbps": layered_network.AXES["rate_mbps"].over(2, 10),
        "ecn_packets": layered_network.AXES["ecn_packets"].over(0),
        "congestion_control": layered_network.AXES["congestion_control"].over(
            "reno", "cubic", "bbr"
        ),
        "transport": layered_network.AXES["transport"].over("tcp", "mptcp:subflows=4"),
        "seconds": layered_network.SECONDS.over(5.0),
    },
    columns=columns.GAPS,
    seeds=1,
    takes_s=250,
    measure=measure,
    plot=plot,
    check=layered_network.check,
)
