"""Figures of the page on FatPaths, in the paper's layout."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.experiments.fatpaths.claims import RACK, RENO, SLIMFLY_10K
from weft.experiments.fatpaths.diversity import FIGURES_7_AND_8
from weft.experiments.fatpaths.fatpaths_tcp import FIGURE_14, FIGURE_15, FIGURE_16, HORIZONS
from weft.experiments.fatpaths.layered_throughput import looks as construction_looks
from weft.experiments.fatpaths.ndp_baselines import incasts
from weft.experiments.fatpaths.topology_cost import figure_10, looks
from weft.experiments.report.panels import Bars, Curves, Stack, melted
from weft.experiments.report.published import PageFigure
from weft.experiments.runner.definition import Row, Table

# of tools/htsim_incast.py, in a checkout
HTSIM = Path(__file__).resolve().parents[2] / "results" / "elsewhere" / "htsim_ndp_incast.jsonl"
LIKE_PAPER = {"mapping": "random", "seconds": "0.01", "rto_min_us": "200"}
COSTS = {f"{part}_cost_usd": part for part in ("host", "router", "copper", "fibre")}


def cost_parts(table: Table) -> list[Row]:
    """Return a row for each part of the cost of figure 10."""
    return melted(figure_10(table), COSTS, "part", "cost_usd")


def beside_htsim(table: Table) -> list[Row]:
    """Return the incasts of weft and of htsim, with the last message's time over its bytes'."""
    lines = HTSIM.read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = [*incasts([*table, *map(json.loads, lines)])]
    for row in rows:
        ideal_ms = 8 * row["senders"] * row["message_kb"] / row["rate_mbps"]
        last_ms = row.get("last_ms") or row["last_ratio"] * row["ideal_ms"]
        row["time_ratio"] = last_ms / ideal_ms
        row["incast"] = f"{row['senders']} senders"
    return rows


FIGURES = (
    PageFigure("fatpaths_figures2_11_13", "fatpaths_vs_fattree", {"layers": "9"}),
    PageFigure("fatpaths_figure4", "collisions", {"pattern": "permutation,shuffle"}),
    PageFigure("fatpaths_figure6", "diversity", {"hops": "0"}),
    PageFigure("fatpaths_figures7_8", "diversity", {}, FIGURES_7_AND_8),
    PageFigure("fatpaths_tail", "fatpaths_tail"),
    PageFigure(
        "fatpaths_figure9",
        "layered_throughput",
        {"layers": "9", "intensity": "0.55", "mice": "0", "rho": "0", "paths": "0"},
        Bars(
            columns={"throughput": "T (of a link's rate)"},
            strokes={"throughput": {"bound_throughput": "bound of all paths of length D + 1"}},
            facet=("topology",),
            looks=construction_looks,
            wrap=2,
        ),
    ),
    PageFigure(
        "fatpaths_figure10",
        "topology_cost",
        {},
        Bars(
            columns={"cost_usd": "USD for each host"},
            by=("family",),
            facet=("part",),
            rows=cost_parts,
            looks=looks,
            wrap=2,
        ),
    ),
    PageFigure(
        "fatpaths_figure19",
        "topology_cost",
        {},
        Curves(
            columns={
                "edge_density": "cables for each host",
                "radix": "ports of a router",
            },
            x="network_hosts",
            series="family",
            log=("network_hosts",),
            looks=looks,
        ),
    ),
    PageFigure("fatpaths_figure12", "fatpaths_density", {"mapping": "linear"}),
    PageFigure(
        "fatpaths_figures14_15",
        "fatpaths_tcp",
        {**LIKE_PAPER, "topology": SLIMFLY_10K, "transport": f"{RACK},{RENO}"},
        Stack(FIGURE_14, FIGURE_15),
    ),
    PageFigure(
        "fatpaths_figure16",
        "fatpaths_tcp",
        {**LIKE_PAPER, "routing": "layers", "transport": RACK},
        replace(FIGURE_16, facet=()),
    ),
    PageFigure("fatpaths_horizons", "fatpaths_tcp", {"topology": "slimfly:q=7,p=6"}, HORIZONS),
    PageFigure("fatpaths_feedback", "fatpaths_feedback", {"engine": "packet", "mapping": "linear"}),
    PageFigure("fatpaths_linux", "fatpaths_fct"),
    PageFigure("fatpaths_figure17", "fatpaths_stencil"),
    PageFigure(
        "fatpaths_figures20_21",
        "ndp_load",
        {"engine": "packet", "transport": "ndp"},
        Curves(
            columns={
                "long_throughput_mean_fraction": "long flows, throughput (of a link's)",
                "short_normalised_mean": "short flows, time / (size/µ + δ)",
            },
            x="lambda_per_s",
            series="topology",
            log=("short_normalised_mean",),
        ),
    ),
    PageFigure("collectives", "collectives", {"engine": "packet", "trace": "none"}),
    PageFigure("fabrics", "fabrics"),
    PageFigure(
        "fabrics_loads",
        "fabrics",
        {
            "topology": "slimfly:q=5,p=4,dragonfly:p=4,a=4,h=4,palm=0,clos:n=8,r=32,m=8",
            "transport": "ndp,ndp:choice=reps",
            "traffic": "uniform,worst",
            "failed_fraction": "0.0",
            "seconds": "0.01",
        },
    ),
    PageFigure("plane_failure", "plane_failure"),
    PageFigure("flow_labels", "flow_labels", {"rto_min_us": "10000"}),
    PageFigure("detours", "detour_load"),
    PageFigure("packets_at_11664_hosts", "flow_completion", {"topology": "fattree:k=36"}),
    PageFigure("collectives_servers", "collectives", {"engine": "graph", "trace": "none"}),
    PageFigure(
        "ndp_beside_htsim",
        "ndp_incast",
        {"topology": "fattree:k=4", "frame_bytes": "9064", "rate_mbps": "10000"},
        Curves(
            columns={"time_ratio": "last message / its bytes on one link"},
            x="message_kb",
            series="engine",
            facet=("incast",),
            log=("message_kb",),
            baseline=1,
            rows=beside_htsim,
        ),
    ),
)
