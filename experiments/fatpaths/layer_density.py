"""Completion times by the number n and the density rho of random layers.

FatPaths' figure 12 has times of long flows, those of 1 MiB and more.  Conditions are those of
fatpaths_vs_fattree.

FatPaths' figures 14 to 16 say that layers shorten the tail.  Conditions are those of fatpaths_tcp
on the paper's network of 10,108 hosts, where a run has some 4,000 long flows: the 99.9th percentile
is a time that four of them exceed.  A flow's first layer is layer 0, as in the paper, or a
random one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from weft.experiments.engines.arrays import Floats
from weft.experiments.fatpaths import fatpaths_vs_fattree
from weft.experiments.fatpaths.fatpaths_tcp import EXPERIMENT as TCP
from weft.experiments.fatpaths.fatpaths_vs_fattree import EXPERIMENT as VS_FATTREE
from weft.experiments.fatpaths.transports import transport_of
from weft.experiments.report.panels import Curves, relative, select
from weft.experiments.runner.definition import Row, Run, Table, every_cell
from weft.experiments.runner.parameters import swept
from weft.testbed.packets.transport import transport

TIMES = {
    "long_mean_ms": "(a) long flows, mean (ms)",
    "long_p99_ms": "(b) 99th percentile (ms)",
}


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
        columns=TIMES,
        x="layers",
        series="rho",
        facet=("topology", "mapping", "load_fraction", "seconds", "transport"),
        always=2,
        log=("layers", *TIMES),
    ),
)


TIMES_OVER_ECMP = {
    "long_mean_ms": "(a) long flows over ECMP's, mean",
    "long_p99_ms": "(b) 99th percentile over ECMP's",
    "long_p999_ms": "(c) 99.9th percentile over ECMP's",
}
SAME = ("topology", "mapping", "load_fraction", "rto_min_us", "seconds", "recovery", "seed")


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
    return select(relative(marked, TIMES_OVER_ECMP, {"routing": "ecmp"}, SAME), routing="layers")


TAIL = replace(
    TCP,
    name="fatpaths_tail",
    question="Which layers shorten the tail of TCP's flow times?",
    source="FatPaths, figures 14 to 16",
    axes=swept(
        TCP.axes,
        topology=["slimfly:q=19,p=14"],
        routing=["ecmp", "layers"],
        layers=[4, 9],
        rho=[0.4, 0.6, 0.8, 1.0],
        transport=["tcp:start=first", "tcp:start=random"],
        seconds=[0.01],
    ),
    columns={**TCP.columns, "long_p999_ms": "99.9th percentile of that of long flows"},
    goes_together=has_layers,
    compared=("routing", "layers", "rho", "transport"),
    version=1,
    takes_s=600,
    measure=partial(fatpaths_vs_fattree.measure, further=extreme),
    plot=Curves(
        columns=TIMES_OVER_ECMP,
        x="rho",
        series="way",
        dash="start",
        facet=(),
        baseline=1,
        rows=over_ecmp,
    ),
)
