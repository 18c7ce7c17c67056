"""When do leaves stop moving flows?  DAR, section 5.2, figure 13: the slotted model of dar_table,
and the daemons.

Hosts send message after message to random permutations.  Two flows of 0.52 of a link's rate do not
fit it, so that at 20.8 Gbit/s flows move as long as there are messages; at 19.2 Gbit/s they settle
in each permutation.  At these rates all hosts go from one permutation to the next within a packet
or two, and a permutation is settled when the last flow has moved before the next begins.

On the engine `fabric` the daemons move the flows, on wires in memory, and `period_slots` packet
times are a period of theirs, 10 ms; times are told as packet times of the rates that were asked
for.  There a queue grows where more flows are on a link than fit it.

On the engine `kernel` the messages are flows of TCP through links of `kernel_mbps`, and times are
told in the same way. Hosts begin a permutation together, and pause a quarter of a message's time
before, which TCP takes to begin and to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.simulator.simulator import Simulator
from weft.experiments.dar import columns
from weft.experiments.dar.dar_table import AXES, SCHEMES, VARIED, check, outcome
from weft.experiments.dar.settings import (
    daemon_options,
    kernel_plan,
    kernel_slot_s,
    message_packets,
    size,
    slot_us,
    slots,
    slots_of_10_us,
)
from weft.experiments.dar.slotted_model import destinations
from weft.experiments.report import figures, panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Word
from weft.topologies import build
from weft.topologies.core.grammar import unparse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.experiments.dar.clos_messages import ClosMessagesOutcome

DRAWN_US = 450  # of the beginning of a run
PAPER_US = 80  # within which the paper's permutations settle
PERIOD_S = 0.010
# by which permutations may differ in length, where all hosts are said to be in step
STEPS_SLOTS = 8
PAUSE_FRACTION = 0.25  # of a message's time, on the kernel
# messages that begin so much later are late; in step are hosts of which so few are
LATE_US, MOST_LATE = 5, 0.02
COLOURS = {
    "dar": style.scheme("dar").colour,
    "dar-count": style.VERMILION,
    "dar-informed": style.BLUE,
}
RESOLVED = tuple(COLOURS)
BUSIEST = "{}, busiest leaf"


def goes_together(run: Run) -> bool:
    """Return whether `run` is one of the paper's three cases, or of a network that it lacks.

    The paper has CLOS(24,48,48) at full rate, CLOS(24,48,24) at half the rate.
    """
    at_full_rate = run.number("host_gbps") == run.number("link_gbps")
    papers_full_rate = {"clos:n=24,r=48,m=48": True, "clos:n=24,r=48,m=24": False}
    return papers_full_rate.get(run.text("topology"), at_full_rate) == at_full_rate


def settling(
    began: NDArray[np.int64], moved: NDArray[np.int64], end: int
) -> tuple[NDArray[np.int64], ...]:
    """Of each permutation that is over by slot `end`: slots until the last flow had moved, flows
    moved, and its slots.

    began: the slots in which permutations began, or -1.  moved: as in Control.
    """
    begun = began[began >= 0]
    length = np.diff(np.append(begun, end))
    took = np.where(moved[: len(begun), 0] > 0, moved[: len(begun), 1] - begun + 1, 0)
    return took[:-1], moved[: len(begun) - 1, 0], length[:-1]


class SettlingMoves(NamedTuple):
    """began, moved: as for settling(), in slots.  reroutes: by leaf and period of `per` slots.

    late_fraction: messages that began later than they should, of the kernel's.
    """

    began: NDArray[np.int64]
    moved: NDArray[np.int64]
    reroutes: NDArray[np.int64]
    per: int
    late_fraction: float = 0.0


def by_daemons(run: Run) -> SettlingMoves:
    """What the daemons do in simulated time, looked at after each slot."""
    n, r, _ = size(run.text("topology"))
    simulator = Simulator(
        build(run.text("topology")), unparse("dar", daemon_options(run, PERIOD_S))
    )
    simulator.run_until_converged()
    slot_s = PERIOD_S / run.integer("period_slots")
    length = round(message_packets(run) * run.number("link_gbps") / run.number("host_gbps"))
    per, count = slots_of_10_us(run), slots(run, "time_us") // length
    began, moved = np.arange(count) * length, np.zeros((count, 2), np.int64)
    reroutes, before = np.zeros((r, -(-count * length // per)), np.int64), np.zeros(r, np.int64)
    for at, permutation in enumerate(
        destinations(n, r, run.text("traffic"), count, np.random.default_rng(run.seed))
    ):
        for flow in simulator.flows.live():
            simulator.flows.end(flow)
        for src, dst in enumerate(permutation.tolist()):
            simulator.flows.begin(src, dst, at)
        for slot in range(at * length, (at + 1) * length):
            simulator.run_for(slot_s)
            status = [simulator.status(n * r + leaf) for leaf in range(r)]
            changed = np.array([each["moves"] + each["swaps"] for each in status]) - before
            if changed.any():
                moved[at] = moved[at, 0] + changed.sum(), slot
                reroutes[:, slot // per] += changed
                before += changed
    return SettlingMoves(began, moved, reroutes, per)


def on_kernel(run: Run) -> tuple[SettlingMoves, ClosMessagesOutcome]:
    """What the daemons do on the kernel, looked at every 10 us."""
    from weft.experiments.dar import clos_messages, clos_run

    n, r, _ = size(run.text("topology"))
    per, us = slots_of_10_us(run), slot_us(run)
    message = message_packets(run) * run.number("link_gbps") / run.number("host_gbps")
    length = -(-round(message * (1 + PAUSE_FRACTION)) // per) * per
    count = slots(run, "time_us") // length
    slot_s = kernel_slot_s(run)
    permutations = destinations(n, r, run.text("traffic"), count, np.random.default_rng(run.seed))
    found = clos_messages.carry_out(
        kernel_plan(
            run,
            clos_run.messages(
                permutations, message_packets(run) * clos_messages.PAYLOAD_BYTES, length * slot_s
            ),
            count * length * slot_s,
            every_s=per * slot_s,
        )
    )
    reroutes = np.zeros((r, count * length // per), np.int64)
    seen = np.array(found.moved[: reroutes.shape[1]], np.int64).reshape(-1, r).T
    reroutes[:, : seen.shape[1]] = seen
    return SettlingMoves(
        np.arange(count) * length,
        moved_in_each(reroutes.sum(axis=0), length // per, per),
        reroutes,
        per,
        float(
            np.mean(
                [
                    one.began_s - one.flow.at_s > LATE_US / us * slot_s
                    for one in found.seen.flows.results
                ]
            )
        ),
    ), found


def moved_in_each(reroutes: NDArray[np.int64], periods: int, per: int) -> NDArray[np.int64]:
    """Of each permutation, so many `periods` of `per` slots, the flows moved and the last slot of
    the last period in which any was, as in Control.
    """
    found = []
    for at, counts in enumerate(reroutes.reshape(-1, periods)):
        last = np.flatnonzero(counts)
        found.append((counts.sum(), (at * periods + last[-1] + 1) * per - 1 if len(last) else 0))
    return np.array(found, np.int64)


def measure(run: Run) -> Result:
    """Reroutes of a leaf in each 10 us, and of permutations the time until their last reroute.

    The latter is None where hosts do not begin permutations together.
    """
    us, end = slot_us(run), slots(run, "time_us")
    seen = None
    if run.engine == "fabric":
        found = by_daemons(run)
    elif run.engine == "kernel":
        found, seen = on_kernel(run)
        end = len(found.began) * int(found.began[1]) if len(found.began) > 1 else 0
    else:
        model = outcome(run)
        found = SettlingMoves(
            model.hosts.began, model.known.moved, model.known.reroutes, model.known.per
        )
    took, moved, length = settling(found.began, found.moved, end)
    if not len(took):
        raise ValueError(
            f"dar_settling: no permutation is over after {run.number('time_us'):g} us: take longer"
        )
    n, r, _ = size(run.text("topology"))
    drawn = found.reroutes[:, : int(DRAWN_US / us / found.per)]
    message = message_packets(run) * run.number("link_gbps") / run.number("host_gbps")
    in_step = (
        message >= STEPS_SLOTS
        and bool(np.ptp(length) <= STEPS_SLOTS)
        and found.late_fraction <= MOST_LATE
    )
    return Result(
        fidelity=seen.seen.report.verdict if seen else None,
        circumstances=seen.circumstances if seen else {},
        figures={
            "permutations": len(took),
            "in_step": in_step,
            "median_settling_us": float(np.median(took) * us) if in_step else None,
            "p99_settling_us": float(np.quantile(took, 0.99) * us) if in_step else None,
            "max_settling_us": float(took.max() * us) if in_step else None,
            "within_80_us_fraction": float((took * us <= PAPER_US).mean()) if in_step else None,
            "moving_in_last_quarter_fraction": float((took > 0.75 * length).mean())
            if in_step
            else None,
            "moves_per_flow": float(moved.mean() / (n * r)),
            "late_begins_fraction": found.late_fraction,
            "period_us": found.per * us,
            "mean_reroutes": drawn.mean(axis=0).tolist(),
            "max_reroutes": drawn.max(axis=0).tolist(),
        },
    )


def plot(table: Table, figure: Figure) -> None:
    """Draw figure 13: what a leaf reroutes in 10 us over time, a panel for each setting."""
    keys = ("topology", "host_gbps", "engine", *VARIED)
    groups = figures.by_setting(table, keys, always=2)
    ylabel = "flows that a leaf moves in 10 µs"
    grid = panels.grid(figure, len(groups), 3, panel=(3.7, 2.7), margin=(0, 1.0), ylabel=ylabel)
    for axes, (title, rows) in zip(grid, groups.items(), strict=True):
        for scheme, colour in COLOURS.items():
            draw(axes, panels.select(rows, scheme=scheme), SCHEMES[scheme][1], colour)
        axes.set_title(title.replace(", ", "\n"), fontsize=9)
        axes.set(xlabel="time (µs)", ylim=(0, None))
    panels.legend(figure, loc="outside upper left", ncols=3)


def draw(axes: Axes, rows: Sequence[Row], name: str, colour: str) -> None:
    """Draw the mean over leaves, and the busiest leaf, each as the mean over `rows`."""
    for key, dash, label in (("mean_reroutes", "-", name), ("max_reroutes", ":", BUSIEST)):
        if rows:
            means = np.mean([np.asarray(row[key], float) for row in rows], axis=0)
            time_us = (np.arange(len(means)) + 0.5) * float(str(rows[0]["period_us"]))
            axes.plot(time_us, means, dash, color=colour, label=label.format(name), linewidth=1.3)


EXPERIMENT = Experiment(
    name="dar_settling",
    question="When do leaves under DAR stop moving flows?",
    source="DAR, section 5.2, figure 13",
    engines=("graph", "fabric", "kernel"),
    axes={
        **AXES,
        "host_gbps": AXES["host_gbps"].over(40.0, 20.8, 19.2),
        "scheme": Word(
            meaning="DAR by queues, by counts, by counts with the map of spines", words=RESOLVED
        ).over(*RESOLVED),
        "time_us": AXES["time_us"].over(5600.0),
        "skipped_us": AXES["skipped_us"].over(0.0),
    },
    columns=columns.SETTLING,
    seeds=2,
    measure=measure,
    plot=plot,
    goes_together=goes_together,
    compared=("topology", "host_gbps"),
    check=check,
    takes_s=60,
)
