"""How long does a stencil with a barrier take over layers, beside ECMP and LetFlow?

FatPaths' figure 17: hosts compute, send to their four neighbours of a two-dimensional stencil, and
wait for all others at a barrier.  Here the computing takes no time: in each round every host sends
`flow_bytes` to each of its neighbours at once, and the next round begins when the last flow has
ended.  What counts is the sum over the rounds of the time of the last flow, relative to ECMP's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.fatpaths import columns, layered_network
from weft.experiments.report import figures, panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATIENCE_S = 60.0  # for a round
WORST = ("PASS", "WARN", "FAIL")


def measure(run: Run) -> Result:
    """Time of each round, and of all of them."""
    from weft.experiments.engines import fabric_run
    from weft.testbed.traffic.flows import Flow

    size = run.integer("flow_bytes")
    rounds, seen, verdicts = list[float](), [], list[str]()
    with layered_network.brought_up(run) as network:
        chosen = layered_network.who(run, network.topology.servers)
        for _ in range(run.integer("rounds")):
            wanted = [Flow(0.0, src, dst, size) for src, dst in chosen]
            seen.append(layered_network.tcp(run, network, wanted, deadline_s=PATIENCE_S))
            ends = [one.ended_s for one in seen[-1].flows.results]
            rounds.append(max(PATIENCE_S if end is None else end for end in ends))
            verdicts.append(seen[-1].report.verdict)
        return Result(
            figures={
                "completion_s": sum(rounds),
                "rounds_s": rounds,
                "unfinished": sum(one.flows.unfinished for one in seen),
                "flow_mean_s": float(
                    np.mean(
                        [each.seconds or PATIENCE_S for one in seen for each in one.flows.results]
                    )
                ),
                **layered_network.layer_figures(network),
                **fabric_run.order_figures(seen[-1]),
            },
            fidelity=max(verdicts, key=WORST.index),
            circumstances=layered_network.circumstances(network, seen[-1]),
        )


SETTING = (
    *(
        "topology",
        "pattern",
        "mapping",
        "rate_mbps",
        "queue_packets",
        "ecn_packets",
        "congestion_control",
        "transport",
    ),
    *(
        "min_rtt_window_s",
        "rto_ms",
        "connections",
        "reordering",
        "rounds",
        "frame_bytes",
        "delay_us",
    ),
)


def plot(table: Table, figure: Figure) -> None:
    """Draw the completion time of each scheme over ECMP's, for each setting and size of flows.

    Runs that failed fidelity count only without any other run; bars are hollow then.
    """
    groups = figures.by_setting(table, (*SETTING, "flow_bytes"), always=3)
    looks = style.lines(style.in_order(str(row["scheme"]) for row in table))
    heights = [0.26 * len(looks) + 1.0] * len(groups)
    lines = panels.lines_of_panels(figure, groups, 1, width=7.6, heights=heights)
    for (axes,), rows in lines:
        base, _ = completion([row for row in rows if str(row["scheme"]).startswith("ecmp")] or rows)
        for place, (scheme, (look, _)) in enumerate(looks.items()):
            if runs := panels.select(rows, scheme=scheme):
                seconds, valid = completion(runs)
                panels.bar(axes, place, [seconds / base], look, hollow=not valid)
        axes.axvline(1, color=style.INK, linewidth=0.7)
        panels.name_rows(axes, [look.label for look, _ in looks.values()], fontsize=6.5)
        axes.set_xlabel("completion time / ECMP's", fontsize=8)


def completion(rows: Sequence[Row]) -> tuple[float, bool]:
    """Return the mean completion time in s, and whether it is of runs that kept fidelity."""
    runs, valid = panels.valid_runs(rows)
    return float(np.mean(panels.numbers(runs, "completion_s"))), valid


EXPERIMENT = Experiment(
    name="fatpaths_stencil",
    question="How long does a stencil with a barrier take over FatPaths' layers, beside ECMP and "
    "LetFlow?",
    source="FatPaths, figure 17",
    engines=("kernel",),
    axes={
        **layered_network.AXES,
        "scheme": layered_network.AXES["scheme"].over(
            *("ecmp", "letflow:gap_us=500000", "fatpaths:trigger=cut,start=random"),
            *(
                "fatpaths:construction=intree,trigger=cut",
                "fatpaths:construction=intree,trigger=cut,start=random",
            ),
        ),
        "pattern": layered_network.AXES["pattern"].over("stencil:offset=42"),
        "flow_bytes": Integer(
            meaning="what a host sends to each neighbour", unit="bytes", least=1, most=10**9
        ).over(20_000, 100_000),
        "rate_mbps": layered_network.AXES["rate_mbps"].over(2),
        "rounds": Integer(meaning="rounds between barriers", least=1, most=1000).over(2),
    },
    columns=columns.STENCIL,
    version=2,  # adjacent routers take more paths in layers of in-trees
    seeds=1,
    takes_s=1200,
    measure=measure,
    plot=plot,
    check=layered_network.check,
)
