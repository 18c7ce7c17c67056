"""When do leaves stop moving flows?  DAR, section 5.2, figure 13: the slotted model of dar_table.

Hosts send message after message to random permutations.  Two flows of 0.52 of a link's rate do not fit it, so that at
20.8 Gbit/s flows move as long as there are messages; at 19.2 Gbit/s they settle in each permutation.  At these rates
all hosts go from one permutation to the next within a packet or two, and a permutation is settled when the last flow
has moved before the next begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.dar.dar_table import (
    PARAMETERS,
    SCHEMES,
    SWEEP,
    VARIED,
    check,
    message_packets,
    outcome,
    slot_us,
    slots,
)
from experiments.figures import style
from experiments.runner.definition import Experiment, Result, Run, Table
from experiments.runner.parameters import Word

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN_US = 450  # of the beginning of a run
PAPER_US = 80  # within which the paper's permutations settle
STEPS_SLOTS = 8  # by which permutations may differ in length, where all hosts are said to be in step
RESOLVED = ("dar", "dar-count", "dar-informed")


def goes_together(run: Run) -> bool:
    """The paper's three cases: the strictly non-blocking network at full rate, the other one at half rate."""
    full = run.number("host_gbps") == run.number("link_gbps")
    return full == (run.text("topology") == "clos:n=24,r=48,m=48")


def settling(began: NDArray[np.int64], moved: NDArray[np.int64], end: int) -> tuple[NDArray[np.int64], ...]:
    """Of each permutation that is over by slot `end`: slots until the last flow had moved, flows moved, and its slots.

    began: the slots in which permutations began, or -1.  moved: as in Control.
    """
    begun = began[began >= 0]
    length = np.diff(np.append(begun, end))
    took = np.where(moved[: len(begun), 0] > 0, moved[: len(begun), 1] - begun + 1, 0)
    return took[:-1], moved[: len(begun) - 1, 0], length[:-1]


def measure(run: Run) -> Result:
    """Reroutes of a leaf in each 10 us, and of permutations the time until their last reroute.

    The latter is None where hosts do not begin permutations together.
    """
    found, us, end = outcome(run), slot_us(run), slots(run, "time_us")
    took, moved, length = settling(found.hosts.began, found.known.moved, end)
    if not len(took):
        raise ValueError(f"dar_settling: no permutation is over after {run.number('time_us'):g} us: take longer")
    drawn = found.known.reroutes[:, : int(DRAWN_US / us / found.known.per)]
    message = message_packets(run) * run.number("link_gbps") / run.number("host_gbps")
    in_step = message >= STEPS_SLOTS and bool(np.ptp(length) <= STEPS_SLOTS)
    return Result(
        figures={
            "permutations": len(took),
            "in_step": in_step,
            "median_settling_us": float(np.median(took) * us) if in_step else None,
            "p99_settling_us": float(np.quantile(took, 0.99) * us) if in_step else None,
            "max_settling_us": float(took.max() * us) if in_step else None,
            "within_80_us_fraction": float((took * us <= PAPER_US).mean()) if in_step else None,
            "moving_in_last_quarter_fraction": float((took > 0.75 * length).mean()) if in_step else None,
            "moves_per_flow": float(moved.mean() / len(found.hosts.sent)),
            "period_us": found.known.per * us,
            "mean_reroutes": drawn.mean(axis=0).tolist(),
            "max_reroutes": drawn.max(axis=0).tolist(),
        }
    )


def plot(table: Table, figure: Figure) -> None:
    """Figure 13: a panel for each network, rate and setting: reroutes of a leaf in 10 us over time."""
    keys = ("topology", "host_gbps", *(key for key in VARIED if len({row[key] for row in table}) > 1))
    groups = list(dict.fromkeys(tuple(row[key] for key in keys) for row in table))
    columns = min(3, len(groups))
    lines = -(-len(groups) // columns)
    figure.set_size_inches(max(6.4, 3.7 * columns), 1.0 + 2.7 * lines)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes, group in zip(grid.flat, groups, strict=False):
        rows = [row for row in table if tuple(row[key] for key in keys) == group]
        for name, colour in zip(RESOLVED, style.SEVERAL, strict=False):
            some = [row for row in rows if row["scheme"] == name]
            if some:
                time = (np.arange(np.size(np.asarray(some[0]["mean_reroutes"]))) + 0.5) * float(
                    str(some[0]["period_us"])
                )
                for key, look in (("mean_reroutes", "-"), ("max_reroutes", ":")):
                    means = np.mean([np.asarray(row[key], float) for row in some], axis=0)
                    label = SCHEMES[name][1] + (", busiest leaf" if look == ":" else "")
                    axes.plot(time, means, look, color=colour, label=label, linewidth=1.3)
        more = [f"{key}={value}" for key, value in zip(keys[2:], group[2:], strict=True)]
        axes.set_title("\n".join([f"{group[0]}\nhosts at {group[1]:g} Gbit/s", *more]), fontsize=9)
        axes.set(xlabel="time (µs)", ylim=(0, None))
    for axes in grid.flat[len(groups) :]:
        axes.remove()
    for axes in grid[:, 0]:
        axes.set_ylabel("flows that a leaf moves in 10 µs")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=3)


EXPERIMENT = Experiment(
    name="dar_settling",
    question="When do leaves under DAR stop moving flows?",
    source="DAR, section 5.2, figure 13",
    engines=("graph",),
    sweep={
        **SWEEP,
        "host_gbps": [40.0, 20.8, 19.2],
        "scheme": list(RESOLVED),
        "time_us": [5600.0],
        "skipped_us": [0.0],
    },
    parameters={
        **PARAMETERS,
        "scheme": Word(meaning="DAR by queues, by counts, by counts with the map of spines", words=RESOLVED),
    },
    seeds=2,
    measure=measure,
    plot=plot,
    goes_together=goes_together,
    check=check,
    takes_s=60,
)
