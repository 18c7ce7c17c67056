"""Time until leaves stop moving flows: DAR, section 5.2, figure 13.

Hosts send message after message to random permutations.  Two flows of 0.52 of a link's rate do not
fit it, so at 20.8 Gbit/s flows move as long as there are messages; at 19.2 Gbit/s they settle in
each permutation.  At these rates all hosts go from one permutation to the next within a packet or
two.  A permutation is settled when the last flow has moved before the next begins.

On the engine `packet` the real daemons move the flows of simulated packets (dar_table.py), and are
asked for their moves every PACKET_SLOTS packet times or more often.

On the engine `fabric` the daemons move the flows, on wires in memory, and `period_slots` packet
times are a period of theirs, 10 ms.  On the engine `kernel` the messages are flows of TCP through
links of `kernel_mbps`; hosts begin a permutation together, and pause a quarter of a message's time
before, which TCP takes to begin and to end.  Moves in the pause are not counted: messages have been
sent.  Times are those of packets of the parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from weft.daemons.simulator.simulator import Simulator
from weft.experiments.dar import clos_messages, clos_run
from weft.experiments.dar.clos_messages import ClosOutcome
from weft.experiments.dar.dar_table import AXES, VARIED, check, looks, simulation
from weft.experiments.dar.settings import (
    SCHEMES,
    daemon_options,
    flows_of_link,
    kernel_plan,
    kernel_slot_s,
    message_slots,
    payload_bytes,
    queues_on_kernel,
    rate,
    sequence,
    size,
    slot_us,
    slots,
    slots_of_10_us,
)
from weft.experiments.engines.arrays import Ints, int_zeros
from weft.experiments.report.panels import Curves, exploded, extremes, melted
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Word, swept
from weft.testbed.packets.simulation import SimulatedFlows
from weft.topologies.core.grammar import unparse

DRAWN_US = 450  # of the beginning of a run
PAPER_US = 80  # within which the paper's permutations settle
PERIOD_S = 0.010
STEPS_SLOTS = 8  # most difference in length of permutations if hosts are in step
PAUSE_FRACTION = 0.25  # of a message's time, on the kernel
LATE_US = 5  # after which a message is late
MOST_LATE = 0.02  # of the messages, if hosts are in step
PACKET_SLOTS = 3  # most packet times between two looks at the daemons of simulated packets
RESOLVED = tuple(name for name, scheme in SCHEMES.items() if scheme.detect)


def goes_together(run: Run) -> bool:
    """Return whether `run` is one of the paper's three cases, or of a network that it lacks.

    The paper has CLOS(24,48,48) at full rate, CLOS(24,48,24) at half the rate.
    """
    at_full_rate = rate(run) == 1
    papers_full_rate = {"clos:n=24,r=48,m=48": True, "clos:n=24,r=48,m=24": False}
    return papers_full_rate.get(run.text("topology"), at_full_rate) == at_full_rate


@dataclass(frozen=True)
class SettlingMoves:
    """Moves of flows in a sequence of permutations.

    began: slot in which each permutation began.
    moved: moves and swaps of each permutation, and the slot of the last; shape (permutations, 2).
    reroutes: moves and swaps by leaf and period of 10 us.
    end: slot in which the run ended.
    pause: slots at the end of each permutation in which no messages are sent.
    late_fraction: late messages on the kernel.
    done: outcome on the kernel.
    """

    began: Ints
    moved: Ints
    reroutes: Ints
    end: int
    pause: int = 0
    late_fraction: float = 0.0
    done: ClosOutcome | None = None

    def finished(self) -> tuple[Ints, ...]:
        """Return slots until the last move, moves, and length of each finished permutation.

        Its pause does not belong to its length.
        """
        length = np.diff(np.append(self.began, self.end)) - self.pause
        moves, last = self.moved.T
        return np.where(moves > 0, last - self.began + 1, 0)[:-1], moves[:-1], length[:-1]


def by_daemons(run: Run) -> SettlingMoves:
    """Return the moves of the daemons in simulated time, which it reads after each slot."""
    topology, slot_s = run.topology, PERIOD_S / run.integer("period_slots")
    simulator = Simulator(topology, unparse("dar", daemon_options(run, PERIOD_S)))
    flows = simulator.flows
    flows.rate, flows.packet_s = rate(run), slot_s
    simulator.run_until_converged()
    length = round(message_slots(run))
    count = slots(run, "time_us") // length
    leaves = range(topology.servers, topology.servers + size(topology.spec)[1])
    totals = [[0] * len(leaves)]
    for number, permutation in enumerate(sequence(run, count)):
        for flow in flows.live():
            flows.end(flow)
        for src, dst in enumerate(permutation.tolist()):
            flows.begin(src, dst, number)
        for _ in range(length):
            simulator.run_for(slot_s)
            totals.append(clos_run.moves_of(map(simulator.status, leaves)))
    moves, began = np.diff(np.transpose(totals)), np.arange(count) * length
    return by_time(moves, 1, began, slots_of_10_us(run))


def by_time(
    moves: Ints, slots_each: int, began: Ints, per: int, pause: int = 0, **fields: Any
) -> SettlingMoves:
    """Return the moves of permutations.

    moves: by leaf and time of `slots_each` slots; the last permutation ends with them.
    began: slot in which each permutation began, the first of them 0.
    per: slots of a period of reroutes.
    pause: slots at the end of each permutation whose moves do not count.
    """
    ends = np.arange(1, moves.shape[1] + 1) * slots_each
    number = np.searchsorted(began, ends - 1, "right") - 1
    sending = ends <= np.append(began, ends[-1])[number + 1] - pause
    counts = np.where(sending, moves.sum(axis=0), 0)
    moved = int_zeros(len(began), 2)
    np.add.at(moved[:, 0], number, counts)
    np.maximum.at(moved[:, 1], number, np.where(counts > 0, ends - 1, 0))
    reroutes = np.add.reduceat(moves, np.arange(0, moves.shape[1], per // slots_each), axis=1)
    return SettlingMoves(began, moved, reroutes, int(ends[-1]), pause, **fields)


def on_packets(run: Run) -> SettlingMoves:
    """Return the moves of the daemons beside simulated packets."""
    beside, slot_s = simulation(run), slot_us(run) / 1e6
    leaves, totals = size(run.text("topology"))[1], []

    def look() -> None:
        totals.append(clos_run.moves_of(beside.statuses()[:leaves]))

    end, per = slots(run, "time_us"), slots_of_10_us(run)
    each = math.gcd(PACKET_SLOTS, per)
    edges = range(0, end + 1, each)
    looks = [(edge * slot_s, look) for edge in edges]
    done = beside.run((), end * slot_s, (), looks=looks)
    moves = np.diff(np.transpose(totals))
    began = np.arange(0, edges[-1], message_slots(run)).astype(int)
    return by_time(moves, each, began, per, late_fraction=late_ends(run, done))


def late_ends(run: Run, done: SimulatedFlows) -> float:
    """Return the share of messages that arrived LATE_US after their host could have sent them."""
    number = np.arange(len(done.delivered_s)) // run.topology.servers
    due_s = done.flows.start_s + (number + 1) * message_slots(run) * slot_us(run) / 1e6
    over = due_s + LATE_US / 1e6 < run.number("time_us") / 1e6
    late = ~(done.delivered_s <= due_s + LATE_US / 1e6)[over]
    return float(late.mean()) if late.size else 0.0


def on_kernel(run: Run) -> SettlingMoves:
    """Return the moves of the daemons on the kernel, which it reads every 10 us."""
    per, slot_s = slots_of_10_us(run), kernel_slot_s(run)
    periods = -(-round(message_slots(run) * (1 + PAUSE_FRACTION)) // per)
    sending = min(periods, max(1, int(message_slots(run) // per)))
    count = slots(run, "time_us") // (periods * per)
    every_s = periods * per * slot_s
    messages = clos_run.messages(sequence(run, count), payload_bytes(run), every_s)
    plan = kernel_plan(run, flows=messages, seconds=count * every_s)
    done = clos_messages.carry_out(plan, partial(clos_messages.watch_moves, per * slot_s))
    watched = done.watched[: count * periods]
    moves = np.pad(np.array(watched).T, ((0, 0), (0, count * periods - len(watched))))
    began, pause = np.arange(count) * periods * per, (periods - sending) * per
    return by_time(moves, per, began, per, pause, late_fraction=late_begins(run, done), done=done)


def late_begins(run: Run, done: ClosOutcome) -> float:
    """Return the share of messages that began LATE_US late or later."""
    late_s = np.array([flow.began_s - flow.flow.at_s for flow in done.observed.flows.results])
    return float((late_s / kernel_slot_s(run) * slot_us(run) > LATE_US).mean())


ENGINES = {"packet": on_packets, "fabric": by_daemons, "kernel": on_kernel}


def measure(run: Run) -> Result:
    """Return reroutes of a leaf in each 10 us, and the time until permutations settle.

    The latter is None if hosts do not begin permutations together.
    """
    us, per = slot_us(run), slots_of_10_us(run)
    moves = ENGINES[run.engine](run)
    slots_until, moved, length = moves.finished()
    if not len(length):
        least_us = message_slots(run) * us
        raise ValueError(
            f"dar_settling: no permutation is over after {run.number('time_us'):g} us: "
            f"take time_us above {least_us:.0f}"
        )
    drawn = moves.reroutes[:, : int(DRAWN_US / us / per)]
    in_step = (
        message_slots(run) >= STEPS_SLOTS
        and bool(np.ptp(length) <= STEPS_SLOTS)
        and moves.late_fraction <= MOST_LATE
    )
    n, r, _ = size(run.text("topology"))
    columns: Row = {
        "p": flows_of_link(run),
        "permutations": len(length),
        "in_step": in_step,
        **settling_figures(slots_until, length, us, in_step=in_step),
        "moves_per_flow": moved.mean() / (n * r),
        "late_begins_fraction": moves.late_fraction,
        "period_us": per * us,
        "mean_reroutes": drawn.mean(axis=0).tolist(),
        "max_reroutes": drawn.max(axis=0).tolist(),
    }
    return moves.done.result(columns) if moves.done else Result(columns)


def settling_figures(slots_until: Ints, length: Ints, us: float, *, in_step: bool) -> Row:
    """Return the columns about settling, each None unless hosts are in step."""
    columns: Row = {
        "median_settling_us": np.median(slots_until) * us,
        "p99_settling_us": np.quantile(slots_until, 0.99) * us,
        "max_settling_us": slots_until.max() * us,
        "within_80_us_fraction": (slots_until * us <= PAPER_US).mean(),
        "moving_in_last_quarter_fraction": (slots_until > 0.75 * length).mean(),
    }
    return columns if in_step else dict.fromkeys(columns)


def over_time(table: Table) -> Table:
    """Return a row for each 10 us: the mean over leaves, and the busiest leaf."""
    lists = {"mean_reroutes": "mean of the leaves", "max_reroutes": "busiest leaf"}
    rows = [
        entry | {"elapsed_us": entry["place"] * entry["period_us"]}
        for entry in exploded(table, lists, "place")
    ]
    return melted(rows, lists, "leaves", "reroutes")


EXPERIMENT = Experiment(
    name="dar_settling",
    question="When do leaves under DAR stop moving flows?",
    source="DAR, section 5.2, figure 13",
    engines=("packet", "fabric", "kernel"),
    axes={
        **swept(
            AXES,
            host_gbps=[40.0, 20.8, 19.2],
            preset=["infiniband"],
            time_us=[1400.0],
            skipped_us=[0.0],
        ),
        "scheme": Word(
            "DAR by queues, by counts, by counts with the map of spines", words=RESOLVED
        ).over(*RESOLVED),
    },
    columns={
        "p": "flows that a link carries",
        "permutations": "permutations that were over when the run ended",
        "in_step": (
            "whether all hosts go from one permutation to the next together; else the times below "
            "are null"
        ),
        "median_settling_us": "from the beginning of a permutation to its last move, median",
        "p99_settling_us": "99th percentile of that",
        "max_settling_us": "the longest",
        "within_80_us_fraction": "permutations that settled in the paper's 80 us",
        "moving_in_last_quarter_fraction": (
            "permutations in which flows still moved in the last quarter"
        ),
        "moves_per_flow": "moves of a flow in a permutation",
        "late_begins_fraction": (
            "messages that began more than 5 us later than their permutation (kernel), or that "
            "arrived 5 us later than their host could have sent them (packet)"
        ),
        "period_us": "the time that an entry of the lists below stands for",
        "mean_reroutes": (
            "list: reroutes of a leaf in each such period from the beginning, mean over leaves"
        ),
        "max_reroutes": "list: those of the leaf that has most",
    },
    version=3,
    revised=queues_on_kernel,
    seeds=2,
    measure=measure,
    plot=Curves(
        columns={"reroutes": "flows that a leaf moves in 10 µs"},
        facet=VARIED,
        always=5,
        x="elapsed_us",
        dash="leaves",
        band=extremes,
        rows=over_time,
        looks=looks,
    ),
    goes_together=goes_together,
    compared=("topology", "host_gbps"),
    check=check,
    takes_s=60,
)
