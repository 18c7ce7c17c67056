"""Completion times of incast and other patterns, by the purified transport and by TCP.

All messages begin at once, of one size.  The ideal is what the frames of all messages take on the
busiest link of a host: of an incast, the receiver's.  On the kernel these are real packets, trimmed
by real switches; on the fabric engine the same state machines on wires, which TCP has not.
"""

from __future__ import annotations

from statistics import mean

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.workloads import PATTERNS, pairs
from weft.experiments.fatpaths import columns, transports
from weft.experiments.fatpaths.layered_network import KERNEL_FRAME_BYTES
from weft.experiments.fatpaths.transports import Carriage, Load
from weft.experiments.report.panels import Bars, Curves, Stack
from weft.experiments.runner.definition import Experiment, Result, Run, Table
from weft.experiments.runner.parameters import Integer, Spec
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import Mbps

GRACE_S, PATIENCE = 5.0, 20  # a run ends after so many seconds and so many times the ideal


def loads(run: Run) -> list[Load]:
    """Return the messages of `run`, the same for every transport."""
    hosts = run.topology.servers
    senders = pairs(run.text("traffic"), hosts, np.random.default_rng(run.seed))
    return [Load(0.0, src, dst, 1000 * run.integer("message_kb")) for src, dst in senders]


def measure(run: Run) -> Result:
    """Return when the first, the mean and the last message had come, by the ideal."""
    rate_bps, messages = run.integer("rate_mbps") * Mbps, loads(run)
    frame_bytes = run.integer("frame_bytes")
    ideal_s = transports.ideal_s(messages, rate_bps, frame_bytes)
    how = Carriage(rate_bps, GRACE_S + PATIENCE * ideal_s, frame_bytes)
    carried = transports.carry(run, run.topology, messages, how)
    seconds = [time for time in carried.seconds if time is not None]
    return carried.result(
        {
            "ideal_ms": 1000 * ideal_s,
            "first_ratio": min(seconds) / ideal_s if seconds else None,
            "mean_ratio": mean(seconds) / ideal_s if seconds else None,
            "last_ratio": None if carried.unfinished else carried.ended_s / ideal_s,
            "messages": len(messages),
            "undelivered": carried.unfinished,
        }
    )


def check(run: Run) -> None:
    """Raise ValueError unless the network of `run` has hosts for its traffic, and its transport."""
    transports.check(run)
    loads(run)


def traffic(text: str) -> None:
    """Raise ValueError unless `text` is a pattern."""
    common.pattern(text, PATTERNS)


def incasts(table: Table) -> Table:
    """Return the rows of incasts, with the number of senders."""
    rows = []
    for row in table:
        name, options = parse(str(row["traffic"]))
        if name == "incast":
            rows.append({**row, "senders": int(options["senders"])})
    return rows


def others(table: Table) -> Table:
    """Return the rows of other patterns."""
    return [row for row in table if parse(str(row["traffic"]))[0] != "incast"]


FACET = (
    "topology",
    "rate_mbps",
    "frame_bytes",
    "message_kb",
    "header_packets",
    "rto_min_us",
    "clock",
)

EXPERIMENT = Experiment(
    name="ndp_incast",
    question="How long do many senders to one host take by the purified transport, with packets "
    "trimmed, and by TCP?",
    source="NDP, SIGCOMM 2017; FatPaths, section III-C",
    engines=("packet", "kernel"),
    axes={
        "topology": common.TOPOLOGY.over("star:n=65"),
        "traffic": Spec(
            "who sends to whom",
            form="incast:senders=N, permutation, shuffle, ...",
            check=traffic,
        ).over(
            *(f"incast:senders={count}" for count in (1, 2, 4, 8, 16, 32, 64)),
            "permutation",
            "shuffle",
        ),
        "transport": transports.TRANSPORT.over("ndp", "tcp:control=reno"),
        "message_kb": Integer("size of every message", unit="kB", least=1, most=10**6).over(100),
        "rate_mbps": common.RATE_MBPS.over(1000),
        "frame_bytes": KERNEL_FRAME_BYTES.over(transports.FRAME_BYTES),
        "header_packets": transports.HEADER_PACKETS.over(1125),
        "rto_min_us": common.RTO_MIN_US,
    },
    columns=columns.INCAST,
    version=4,  # 1 Gbit/s, TCP's least timeout of 10 ms
    revised=transports.revisions,
    seeds=5,
    takes_s=60,
    measure=measure,
    plot=Stack(
        Curves(
            columns={
                "last_ratio": "last message / ideal",
                "trimmed_packets": "trimmed packets",
                "timeouts": "timeouts",
            },
            x="senders",
            series="transport",
            dash="engine",
            facet=FACET,
            log=("senders", "last_ratio"),
            rows=incasts,
        ),
        Bars(
            columns={"last_ratio": "last message / ideal of the hosts' links"},
            by=("transport", "traffic", "engine"),
            facet=FACET,
            log=("last_ratio",),
            rows=others,
        ),
    ),
    check=check,
)
