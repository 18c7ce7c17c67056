"""Completion times of simulated TCP over layers, ECMP and LetFlow.

FatPaths' figures 14 to 16, on simulated links, with the paper's load of 200 flows of 1 MB a second
and host, least timeout of 200 us, and random mapping.  Connections are open before the first flow:
a lost handshake would take a second.  Conditions are else those of fatpaths_vs_fattree.  `routing`
is ecmp, flowlets (LetFlow: another shortest path after a gap of 50 us), or layers: another layer
after a cut of the window.  Where a link is offered more than it carries, times under ECMP grow with
the length of a run, `seconds`: the last panels show the ratio for several.
"""

from __future__ import annotations

from dataclasses import replace

from weft.experiments.fatpaths import flow_times
from weft.experiments.fatpaths.fatpaths_vs_fattree import EXPERIMENT as VS_FATTREE
from weft.experiments.fatpaths.table_iv import looks
from weft.experiments.report.panels import (
    Curves,
    Stack,
    exploded,
    relative,
    select,
    varied,
)
from weft.experiments.runner.definition import Run, Table, Value
from weft.experiments.runner.parameters import swept

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
