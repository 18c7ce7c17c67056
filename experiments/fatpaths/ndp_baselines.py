"""The purified transport beside TCP, without layers: incast, permutation, shuffle, and load.

In incast and other patterns all messages begin at once, of one size.  The ideal is what the frames
of all messages take on the busiest link of a host: of an incast, the receiver's.  On the kernel
these are real packets, trimmed by real switches; on the engine `packet` the same state machines of
the purified transport, and a model of Linux' TCP, send over simulated links.

The load on a crossbar and on an oversubscribed fat-tree grows in FatPaths' baselines for its
choice of lambda (figures 20 and 21).  Its links carry 10 Gbit/s in frames of 9 kB, and lambda
flows begin in each second at each host, of 1 MB in the mean.  Here links are slower and frames
have 1514 bytes: flows are smaller as frames are, so that they have as many packets, and begin as
often as gives the same load: lambda = 1000 are 0.8 of a link.  Sizes are those of the web-search
distribution, larger ones cut off at 2 MB, which are the long flows of figure 20.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import SupportsFloat

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Floats
from weft.experiments.engines.common_parameters import UNFINISHED
from weft.experiments.engines.workloads import PATTERNS, pairs, poisson, sizes
from weft.experiments.fatpaths import transports
from weft.experiments.fatpaths.layered_network import KERNEL_FRAME_BYTES
from weft.experiments.fatpaths.transports import TRANSPORT_COLUMNS, Carriage, Load
from weft.experiments.report.panels import Bars, Curves, Stack, cumulative
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Spec
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import Gbps, Mbps

INCAST_GRACE_S, PATIENCE = 5.0, 20  # a run ends after so many seconds and so many times the ideal


def incast_messages(run: Run) -> list[Load]:
    """Return the messages of `run`, the same for every transport."""
    hosts = run.topology.servers
    senders = pairs(run.text("traffic"), hosts, run.generator())
    return [Load(0.0, src, dst, 1000 * run.integer("message_kb")) for src, dst in senders]


def measure_incast(run: Run) -> Result:
    """Return when the first, the mean and the last message had come, by the ideal."""
    rate_bps, messages = run.integer("rate_mbps") * Mbps, incast_messages(run)
    frame_bytes = run.integer("frame_bytes")
    ideal_s = transports.ideal_s(messages, rate_bps, frame_bytes)
    how = Carriage(rate_bps, INCAST_GRACE_S + PATIENCE * ideal_s, frame_bytes)
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


def check_incast(run: Run) -> None:
    """Raise ValueError unless the network of `run` has hosts for its traffic, and its transport."""
    transports.check(run)
    incast_messages(run)


def traffic(text: str) -> None:
    """Raise ValueError unless `text` is a pattern."""
    common.pattern(text, PATTERNS)


def incasts(table: Table) -> Table:
    """Return the rows of incasts, with the number of senders."""
    rows = []
    for row in table:
        name, options = parse(row["traffic"])
        if name == "incast":
            rows.append({**row, "senders": int(options["senders"])})
    return rows


def others(table: Table) -> Table:
    """Return the rows of other patterns."""
    return [row for row in table if parse(row["traffic"])[0] != "incast"]


INCAST_FACET = (
    "topology",
    "rate_mbps",
    "frame_bytes",
    "message_kb",
    "header_packets",
    "rto_min_us",
    "clock",
)

INCAST = Experiment(
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
    columns={
        "ideal_ms": "when the last message would come if the busiest link never rested",
        "first_ratio": "when the first message came, over ideal_ms",
        "mean_ratio": "when a message came, mean, over ideal_ms",
        "last_ratio": "when the last message came, over ideal_ms; null if one did not",
        "messages": "messages that were sent",
        "undelivered": "messages that did not arrive",
        **TRANSPORT_COLUMNS,
    },
    version=4,  # 1 Gbit/s, TCP's least timeout of 10 ms
    revised=transports.revisions,
    seeds=5,
    takes_s=60,
    measure=measure_incast,
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
            facet=INCAST_FACET,
            log=("senders", "last_ratio"),
            rows=incasts,
        ),
        Bars(
            columns={"last_ratio": "last message / ideal of the hosts' links"},
            by=("transport", "traffic", "engine"),
            facet=INCAST_FACET,
            log=("last_ratio",),
            rows=others,
        ),
    ),
    check=check_incast,
)


PAPER_BPS, PAPER_FRAME_BYTES, PAPER_MEAN_BYTES = 10 * Gbps, 9_000, 1_000_000
# of sizes, so that packets are as many
SCALE = (transports.FRAME_BYTES - transports.HEADER_BYTES) / PAPER_FRAME_BYTES
LONG_BYTES, SHORT_BYTES = 2_000_000, 100_000  # of the paper: from, and up to
FIGURE_21_FRACTION, FIGURE_21_S = 0.8, 50e-6  # mu, 1 GB/s of a link of 10 Gbit/s, and delta
LOAD_GRACE_S = 15.0


def load_fraction(run: Run) -> float:
    """Return the load of a host's link."""
    return run.integer("lambda_per_s") * 8 * PAPER_MEAN_BYTES / PAPER_BPS


def flows_of(run: Run) -> list[Load]:
    """Return the flows of `run`, the same for every transport."""
    payload_fraction = 1 - transports.HEADER_BYTES / transports.FRAME_BYTES
    paper = sizes(run.text("sizes"))
    flows = poisson(
        run.generator(),
        run.topology.servers,
        size_distribution=paper._replace(bytes_=tuple(SCALE * size for size in paper.bytes_)),
        load_fraction=load_fraction(run),
        rate_bps=run.integer("rate_mbps") * Mbps * payload_fraction,
        duration_s=run.number("seconds"),
    )
    return [Load(flow.at_s, flow.src, flow.dst, flow.size_bytes or 1) for flow in flows]


def measure_load(run: Run) -> Result:
    """Return times of short and of long flows, as figures 20 and 21 have them."""
    rate_bps, flows = run.integer("rate_mbps") * Mbps, flows_of(run)
    deadline_s = run.number("seconds") + LOAD_GRACE_S
    carried = transports.carry(run, run.topology, flows, Carriage(rate_bps, deadline_s))
    return carried.result(
        {
            "load_fraction": load_fraction(run),
            "flows": len(flows),
            "unfinished": carried.unfinished,
            **statistics(flows, carried.until(flows, deadline_s), rate_bps),
        }
    )


def statistics(flows: list[Load], seconds: Floats, rate_bps: int) -> Row:
    """Return the columns on throughput and normalised times."""
    sizes = np.array([load.size_bytes for load in flows], dtype=float)
    ideal_s = 8 * sizes / (FIGURE_21_FRACTION * rate_bps)
    normalised = seconds / (ideal_s + FIGURE_21_S * SCALE * PAPER_BPS / rate_bps)
    throughput = 8 * sizes / seconds / rate_bps
    long, short = sizes >= 0.999 * SCALE * LONG_BYTES, sizes <= SCALE * SHORT_BYTES
    return {
        "long_throughput_mean_fraction": statistic(throughput[long], np.mean),
        "long_throughput_p10_fraction": statistic(throughput[long], percentile(10)),
        "long_normalised_mean": statistic(normalised[long], np.mean),
        "short_normalised_mean": statistic(normalised[short], np.mean),
        "short_normalised_p99": statistic(normalised[short], percentile(99)),
        "long_times_ms": np.sort(1000 * seconds[long]).round(2).tolist(),
    }


def percentile(percent: float) -> Callable[[Floats], float]:
    """Return the function that gives a percentile of values."""
    return lambda values: float(np.percentile(values, percent))


def statistic(values: Floats, function: Callable[[Floats], SupportsFloat]) -> Value:
    """Return `function(values)`; None without values."""
    return float(function(values)) if len(values) else None


def check_load(run: Run) -> None:
    """Raise ValueError unless the transport exists and the load is less than a link carries."""
    transports.check(run)
    if not load_fraction(run) < 1:
        raise ValueError(
            f"{run.experiment}: lambda_per_s must be below 1250, at which links are full"
        )


LOAD_FACET = ("engine", "rate_mbps", "sizes", "seconds")


def ends(table: Table) -> Table:
    """Return the distributions of long flows' times at the lowest and the highest lambda."""
    values = sorted({row["lambda_per_s"] for row in table})
    rows = [row for row in table if row["lambda_per_s"] in (values[0], values[-1])]
    return cumulative(rows, "long_times_ms", ("topology", "lambda_per_s", "transport", *LOAD_FACET))


LOAD = Experiment(
    name="ndp_load",
    question="How do short and long flows fare as more begin, by the purified transport and by "
    "TCP?",
    source="FatPaths, appendix D, figures 20 and 21",
    engines=("packet", "kernel"),
    axes={
        "topology": common.TOPOLOGY.over("star:n=60", "fattree:k=4,oversubscription=2"),
        "transport": transports.TRANSPORT.over("ndp", "tcp:control=reno"),
        "lambda_per_s": Integer(
            "flows of a host at 10 Gbit/s", unit="1/s", least=1, most=1249
        ).over(100, 200, 250, 300, 400, 600),
        "sizes": common.SIZES.over(f"web-search:most_bytes={LONG_BYTES}"),
        "rate_mbps": common.RATE_MBPS.over(1000),
        "header_packets": transports.HEADER_PACKETS.over(1125),
        "rto_min_us": common.RTO_MIN_US,
        "seconds": common.PART_OF_SECONDS.over(0.5),
    },
    columns={
        "load_fraction": "load of a host's link that lambda_per_s makes",
        **UNFINISHED,
        "long_throughput_mean_fraction": "throughput of a long flow, of a link's rate, mean",
        "long_throughput_p10_fraction": "10th percentile of that",
        "long_normalised_mean": "time of long flows over size / mu + delta (figure 21), mean",
        "short_normalised_mean": "the same of short flows",
        "short_normalised_p99": "99th percentile of that of short flows",
        "long_times_ms": "list: time of each long flow, shortest first",
        **TRANSPORT_COLUMNS,
    },
    version=4,  # 1 Gbit/s, TCP's least timeout of 10 ms
    revised=transports.revisions,
    seeds=5,
    takes_s=400,
    measure=measure_load,
    plot=Stack(
        Curves(
            columns={
                "long_throughput_mean_fraction": "throughput of a long flow, mean (figure 20)",
                "long_throughput_p10_fraction": "... 10th percentile (figure 20)",
                "long_normalised_mean": "long flows: time / (size/µ + δ) (figure 21)",
                "short_normalised_mean": "short flows: time / (size/µ + δ) (figure 21)",
            },
            x="lambda_per_s",
            series="transport",
            dash="topology",
            facet=LOAD_FACET,
            log=("long_normalised_mean", "short_normalised_mean"),
        ),
        Curves(
            columns={"fraction": "long flows"},
            x="long_times_ms",
            series="transport",
            dash="topology",
            facet=("lambda_per_s", *LOAD_FACET),
            log=("long_times_ms",),
            rows=ends,
        ),
    ),
    check=check_load,
)
