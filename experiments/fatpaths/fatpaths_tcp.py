"""Completion times of simulated TCP over layers, ECMP and LetFlow.

FatPaths' figures 14 to 16, on simulated links, with the paper's load of 200 flows of 1 MB a second
and host, least timeout of 200 us, and random mapping.  Connections are open before the first flow:
a lost handshake would take a second.  Conditions are else those of fatpaths_vs_fattree.  `routing`
is ecmp, flowlets (LetFlow: another shortest path after a gap of 50 us), or layers: another layer
after a cut of the window.  Where a link is offered more than it carries, times under ECMP grow with
the length of a run, `seconds`: the last panels show the ratio for several.

fatpaths_density has the times of figure 12, of long flows, those of 1 MiB and more, by the number n
and the density rho of random layers, under the conditions of fatpaths_vs_fattree.  fatpaths_tail
asks which layers shorten the tail, as figures 14 to 16 say, on the paper's network of 10,108 hosts.
A run has some 4,000 long flows there: the 99.9th percentile is a time that four of them exceed.  A
flow's first layer is layer 0, as in the paper, or a random one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from weft.experiments.engines.arrays import Floats
from weft.experiments.fatpaths import fatpaths_vs_fattree, flow_times
from weft.experiments.fatpaths.fatpaths_vs_fattree import EXPERIMENT as VS_FATTREE
from weft.experiments.fatpaths.table_iv import looks
from weft.experiments.fatpaths.transports import transport_of
from weft.experiments.report.panels import (
    Curves,
    Stack,
    exploded,
    relative,
    select,
    varied,
)
from weft.experiments.runner.definition import Row, Run, Table, Value, every_cell
from weft.experiments.runner.parameters import swept
from weft.testbed.packets.transport import transport

WAYS = {"ecmp": "ECMP", "flowlets": "LetFlow"}
STEPS = {
    "step_mean_ms": "(a) time over ECMP's, mean",
    "step_p99_ms": "(b) 99th percentile over ECMP's",
}
TIMES = {
    "long_mean_ms": "(a) long flows over ECMP's, mean",
    "long_p99_ms": "(b) 99th percentile over ECMP's",
}
DENSITY = {
    "long_mean_ms": "(a) long flows, mean (ms)",
    "long_p99_ms": "(b) 99th percentile (ms)",
}
FACET = ("topology", "mapping", "load_fraction", "rto_min_us", "transport")
SAME = (*FACET, "seconds", "seed")


def has_density(run: Run) -> bool:
    """Return True for one density of routings without layers."""
    return run.text("routing") == "layers" or run.number("rho") == 1


def marked(table: Table) -> Table:
    """Return the rows with the way of packets in words."""
    return [
        {
            **row,
            "way": WAYS.get(
                row["routing"],
                f"{row['layers']} {row['construction']} layers, rho = {row['rho']}",
            ),
        }
        for row in table
    ]


def longest(table: Table) -> Table:
    """Return the rows of the longest runs of each setting."""
    seconds: dict[tuple[Value, ...], float] = {}
    for row in table:
        key = tuple(row[name] for name in FACET)
        seconds[key] = max(seconds.get(key, 0.0), row["seconds"])
    return [
        row
        for row in marked(table)
        if row["seconds"] == seconds[tuple(row[name] for name in FACET)]
    ]


def figure_14(table: Table) -> Table:
    """Return times by size of flows, in MB, over those of ECMP."""
    rows = exploded(longest(table), (*STEPS, "step_bytes"), "step")
    ratios = relative(
        [row for row in rows if row["step_bytes"] is not None],
        STEPS,
        {"routing": "ecmp"},
        (*SAME, "step_bytes"),
    )
    return [{**row, "flow_megabytes": row["step_bytes"] / 1e6} for row in ratios]


def figure_15(table: Table) -> Table:
    """Return the percentiles of long flows' times."""
    return flow_times.percentiles(longest(table), (*FACET, "way"))


def figure_16(table: Table) -> Table:
    """Return the rows over layers of settings that the table has with several densities."""
    return varied(select(longest(table), routing="layers"), ("topology",), "rho", 3)


def horizons(table: Table) -> Table:
    """Return times over those of ECMP of settings that ran for several lengths."""
    rows = relative(marked(table), TIMES, {"routing": "ecmp"}, SAME)
    return varied(rows, ("topology",), "seconds")


FIGURE_14 = Curves(
    columns=STEPS,
    x="flow_megabytes",
    series="way",
    facet=FACET,
    baseline=1,
    log=("flow_megabytes",),
    rows=figure_14,
)
FIGURE_15 = Curves(
    columns={"percent": "% of long flows (figure 15)"},
    x="long_times_ms",
    series="way",
    facet=FACET,
    log=("long_times_ms",),
    rows=figure_15,
)
FIGURE_16 = Curves(
    columns=DENSITY,
    x="rho",
    series="topology",
    facet=("mapping", "load_fraction", "layers"),
    log=tuple(DENSITY),
    rows=figure_16,
    looks=looks,
)
HORIZONS = Curves(
    columns=TIMES,
    x="seconds",
    series="way",
    facet=FACET,
    baseline=1,
    log=("seconds",),
    rows=horizons,
)
EXPERIMENT = replace(
    VS_FATTREE,
    name="fatpaths_tcp",
    question="How do flows of TCP fare over layers, beside ECMP and LetFlow, on networks of "
    "thousands of hosts?",
    source="FatPaths, figures 14 to 16",
    axes=swept(
        VS_FATTREE.axes,
        topology=["slimfly:q=5,p=4"],
        routing=["ecmp", "flowlets", "layers"],
        construction=["random"],
        layers=[4],
        rho=[0.6, 1.0],
        transport=["tcp:start=first"],
        mapping=["random"],
        load_fraction=[0.16],
        rto_min_us=[200],
        seconds=[0.02],
    ),
    goes_together=has_density,
    compared=("routing", "rho"),
    version=3,  # connections are open before; no flow stands still; marks on the kernel
    takes_s=60,
    plot=Stack(FIGURE_14, FIGURE_15, FIGURE_16, HORIZONS),
)


LONG_FLOWS = replace(
    VS_FATTREE,
    name="fatpaths_density",
    question="How do the number and the density of random layers change the times of flows?",
    source="FatPaths, figure 12",
    axes=swept(
        VS_FATTREE.axes,
        topology=["slimfly:q=7,p=6", "dragonfly:p=3,palm=0"],
        routing=["layers"],
        construction=["random"],
        mapping=["linear"],
        layers=[4, 9, 16, 63],
        rho=[0.4, 0.6, 0.8, 1.0],
    ),
    goes_together=every_cell,
    compared=(),
    version=1,
    seeds=3,
    takes_s=300,
    plot=Curves(
        columns=DENSITY,
        x="layers",
        series="rho",
        facet=("topology", "mapping", "load_fraction", "seconds", "transport"),
        always=2,
        log=("layers", *DENSITY),
    ),
)


TAIL_TIMES = {**TIMES, "long_p999_ms": "(c) 99.9th percentile over ECMP's"}
SAME_TAIL = (*FACET[:-1], "seconds", "recovery", "seed")  # whatever the transport


def extreme(long_ms: Floats) -> Row:
    """Return the 99.9th percentile of times; None if there is no such flow."""
    return {"long_p999_ms": float(np.percentile(long_ms, 99.9)) if len(long_ms) else None}


def has_layers(run: Run) -> bool:
    """Return True for one cell of ECMP, which has no layers; a random start needs nine layers."""
    layers, start = run.integer("layers"), transport_of(run).start
    if run.text("routing") == "layers":
        return start == "first" or layers == 9
    return (layers, run.number("rho"), start) == (4, 1, "first")


def over_ecmp(table: Table) -> Table:
    """Return the times over layers by those of ECMP with the same recovery from losses."""
    marked = []
    for row in table:
        tcp = transport(row["transport"])
        start = "random start" if tcp.start == "random" else "layer 0 first"
        way = f"{row['layers']} layers" + (", Reno" if tcp.recovery == "reno" else "")
        marked.append({**row, "recovery": tcp.recovery, "start": start, "way": way})
    return select(relative(marked, TAIL_TIMES, {"routing": "ecmp"}, SAME_TAIL), routing="layers")


TAIL = replace(
    EXPERIMENT,
    name="fatpaths_tail",
    question="Which layers shorten the tail of TCP's flow times?",
    source="FatPaths, figures 14 to 16",
    axes=swept(
        EXPERIMENT.axes,
        topology=["slimfly:q=19,p=14"],
        routing=["ecmp", "layers"],
        layers=[4, 9],
        rho=[0.4, 0.6, 0.8, 1.0],
        transport=["tcp:start=first", "tcp:start=random"],
        seconds=[0.01],
    ),
    columns={**EXPERIMENT.columns, "long_p999_ms": "99.9th percentile of that of long flows"},
    goes_together=has_layers,
    compared=("routing", "layers", "rho", "transport"),
    version=1,
    takes_s=600,
    measure=partial(fatpaths_vs_fattree.measure, further=extreme),
    plot=Curves(
        columns=TAIL_TIMES,
        x="rho",
        series="way",
        dash="start",
        facet=(),
        baseline=1,
        rows=over_ecmp,
    ),
)
