"""Times of permutations with barriers: every host sends a message, and all wait for the slowest.

As in bulk-synchronous programs, hosts do not drift apart, so that a message meets no other at its
receiver.  An ideal crossbar then takes the time of one message alone, and routing decides the
rest.  A barrier takes no time; after it each host begins within a packet time.

DAR's daemons place the flows of simulated packets (dar_table.py).  The central controller knows a
permutation before it begins, and its answer takes no time: it is an edge colouring, one flow a
link.  Links lose nothing (InfiniBand's credits), except under the transport after NDP, whose
switches trim packets.  REPS chooses among random spines.

With `early=dropped` hosts do go-back-N: a receiver drops a packet that comes before another that
is due.  Its refusal takes the time of a header on an idle path, and a host waits for no timeout.
"""

from __future__ import annotations

from weft.experiments.dar import clos_run
from weft.experiments.dar.dar_table import (
    AXES,
    check_rate,
    check_simulated,
    looks,
    messages,
    simulated,
)
from weft.experiments.dar.settings import (
    SCHEMES,
    check_daemons,
    message_packets,
    rate,
    scheme,
    size,
    switches,
)
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Axis, Integer, Word, swept
from weft.testbed.packets.simulation import SimulatedFlows
from weft.testbed.packets.switching import HEAD_BYTES

LINKS, NODES = 4, 4  # of a path; each link's end takes the time of a node
PATIENCE, GRACE_US = 100, 10_000  # times the ideal, and time, after which a permutation fails
EARLY = ("kept", "dropped")


def frame_ns(run: Run, length_bytes: int) -> int:
    """Return the time of a packet on a link, in whole ns, as links have it."""
    return int(8 * length_bytes / run.number("link_gbps"))


def path_ns(run: Run, length_bytes: int) -> int:
    """Return the time of a packet over idle links, from one leaf to another."""
    head_bytes = switches(run).cut_through_bytes or length_bytes
    waits_ns = (LINKS - 1) * frame_ns(run, min(head_bytes, length_bytes))
    return waits_ns + frame_ns(run, length_bytes) + NODES * switches(run).node_ns


def ideal_us(run: Run) -> float:
    """Return the time of a message that is alone."""
    interval_ns = 8 * run.integer("packet_bytes") / run.number("host_gbps")
    sent_ns = (message_packets(run) - 1) * int(interval_ns)
    return (sent_ns + path_ns(run, run.integer("packet_bytes"))) / 1000


def simulate(run: Run) -> SimulatedFlows:
    """Return what became of the messages; ValueError if one did not arrive in time."""
    rounds = run.integer("permutations")
    flows = messages(run, rounds)
    go_back_ns = path_ns(run, HEAD_BYTES) if run.text("early") == "dropped" else 0
    deadline_us = rounds * (GRACE_US + PATIENCE * ideal_us(run))
    beside = simulated(run, flows, {"go_back_ns": go_back_ns}, rounds=rounds)
    done = beside.run((), deadline_us / 1e6, ())
    if done.unfinished:
        raise ValueError(
            f"{run.experiment}: {done.unfinished} messages did not arrive within "
            f"{deadline_us:.0f} us"
        )
    return done


def measure(run: Run) -> Result:
    """Return times of permutations and hosts, beside those of an ideal crossbar."""
    done, alone_us = simulate(run), ideal_us(run)
    times_us = 1e6 * done.completion_s.reshape(run.integer("permutations"), -1)
    slowest_us, mean_us = float(times_us.max(axis=1).mean()), float(times_us.mean())
    return Result(
        {
            "ideal_us": alone_us,
            "completion_us": slowest_us,
            "completion_ratio": slowest_us / alone_us,
            "host_mean_us": mean_us,
            "goodput_fraction": alone_us / mean_us,
            **packet_figures(run, done),
            **move_figures(run, done),
        }
    )


def packet_figures(run: Run, done: SimulatedFlows) -> Row:
    """Return the columns about order, and about packets that were sent again."""
    counters, least = done.counters, message_packets(run) * len(done.flows.src)
    if "late" in counters:
        late, again = counters["late"].sum(), counters["refused"].sum()
    else:
        late, again = None, counters["retransmissions"].sum()
    dropped = run.text("early") == "dropped"
    return {
        "late_fraction": None if late is None or dropped else float(late / least),
        "sent_again_fraction": again / least,
    }


def move_figures(run: Run, done: SimulatedFlows) -> Row:
    """Return the columns about DAR; None without it."""
    names = ("moves_per_flow", "requests_per_flow")
    if not scheme(run).detect:
        return dict.fromkeys(names)
    counted, flows = clos_run.together(done.statuses), len(done.flows.src)
    values = counted.get("moves", 0) + counted.get("swaps", 0), counted.get("requests_sent", 0)
    return {name: value / flows for name, value in zip(names, values, strict=True)}


def check(run: Run) -> None:
    """Raise ValueError if `run` does not converge, or takes too long, or lacks a rate or order."""
    n, r, _ = size(run.text("topology"))
    check_rate(run)
    check_simulated(run, n * r * message_packets(run) * run.integer("permutations"))
    if scheme(run).transport != "plain":
        if run.text("early") == "dropped":
            raise ValueError(f"{run.experiment}: {run.text('scheme')} has no go-back-N")
        if rate(run) < 1:
            raise ValueError(
                f"{run.experiment}: {run.text('scheme')} sends at the rate of the links, "
                f"{run.number('link_gbps'):g} Gbit/s"
            )
    check_daemons(run)


NOT_HERE = ("kernel_mbps", "time_us", "skipped_us")
SWEPT = ("central", "dar-informed", "dar-persistent", "ecmp", "drill", "ndp", "ndp-drill", "reps")
PERMUTATION_AXES: dict[str, Axis] = {
    **swept(
        {key: axis for key, axis in AXES.items() if key not in NOT_HERE},
        topology=["clos:n=24,r=48,m=24"],
        host_gbps=[40.0],
        preset=["infiniband"],
        key=["flow"],
        traffic=["cross"],
        message_kb=[64, 256, 1024, 4096],
    ),
    "scheme": Word(
        "DAR by queues, by counts, informed; a central controller; or another",
        words=tuple(SCHEMES),
    ).over(*SWEPT),
    "permutations": Integer(
        "permutations, each after a barrier", unit="permutations", least=1, most=10_000
    ).over(2),
    "early": Word(
        "what receivers do with packets that come early: dropped, as by go-back-N", words=EARLY
    ).over("kept"),
}
EXPERIMENT = Experiment(
    name="dar_permutations",
    question="How long does a permutation take if hosts wait for each other before the next?",
    source="DAR, beyond the paper",
    engines=("packet",),
    axes=PERMUTATION_AXES,
    columns={
        "ideal_us": (
            "time of a message alone: its packets at the host's rate, and its path without queues; "
            "so long takes a permutation through an ideal crossbar"
        ),
        "completion_us": "time of the slowest message of a permutation, mean over permutations",
        "completion_ratio": "completion_us over ideal_us",
        "host_mean_us": "time of a message, mean over hosts and permutations",
        "goodput_fraction": (
            "rate of a message, of that through an ideal crossbar: ideal_us over host_mean_us"
        ),
        "late_fraction": (
            "packets that arrived behind a later one of their message, of all; null under NDP, "
            "which has no order, and where they are dropped"
        ),
        "sent_again_fraction": (
            "packets that NDP sent again, which switches had trimmed, or that go-back-N dropped, "
            "over those that messages have"
        ),
        "moves_per_flow": "moves and swaps of a flow; null without DAR's daemons, as below",
        "requests_per_flow": "requests that output leaves sent, for each flow",
    },
    seeds=3,
    compared=("scheme",),
    measure=measure,
    plot=Curves(
        columns={"completion_ratio": "time of a permutation / of an ideal crossbar"},
        x="message_kb",
        series="scheme",
        facet=("early",),
        log=("message_kb",),
        looks=looks,
    ),
    check=check,
)
