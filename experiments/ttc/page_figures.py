"""Figures of the page on TTC, in the paper's layout."""

from __future__ import annotations

from functools import partial

from weft.experiments.report.panels import Bars, Curves, melted
from weft.experiments.report.published import PageFigure
from weft.experiments.runner.definition import Table
from weft.experiments.ttc.ttc_flow import with_estimate

SCHEMES = "dmodk,vlb,micro,ttc:delta=0,ttc:delta=2"
QUEUES = {
    "up1_mean_queue_packets": "(a) up, layer 1, mean",
    "up1_max_queue_packets": "(b) up, layer 1, longest",
    "up2_mean_queue_packets": "(c) up, layer 2, mean",
    "up2_max_queue_packets": "(d) up, layer 2, longest",
    "down1_mean_queue_packets": "(e) down, layer 1, mean",
    "down1_max_queue_packets": "(f) down, layer 1, longest",
    "down2_mean_queue_packets": "(g) down, layer 2, mean",
    "down2_max_queue_packets": "(h) down, layer 2, longest",
}
LATENCIES = {
    "mean_latency_slots": "(a) mean latency",
    "tail_latency_slots": "(b) tail latency",
}


def by_network(table: Table) -> Table:
    """Return the rows of figure 4, with the letter of their network."""
    networks = {"fattree:n=3,d=8": "(a) FT(3,8)", "fattree:n=3,d=16": "(b) FT(3,16)"}
    rows = [row | {"network": networks[row["topology"]]} for row in with_estimate(table)]
    return sorted(rows, key=lambda row: row["network"])


FIGURES = (
    PageFigure(
        "ttc_figure4",
        "ttc_flow",
        {
            "traffic": "random",
            "repetitions": "200",
            "scheme": "dmodk,vlb,micro,ttc:delta=0,ttc:delta=sqrt",
        },
        Curves(
            columns={"above_k_flows": "most flows on a link - k"},
            x="k",
            facet=("network",),
            log=("k", "above_k_flows"),
            rows=by_network,
        ),
    ),
    PageFigure(
        "ttc_figure5",
        "ttc_packet",
        {"scheme": SCHEMES, "topology": "fattree:n=3,d=8"},
        Curves(
            columns={"queue_packets": ""},
            x="load_fraction",
            facet=("layer",),
            log=("queue_packets",),
            rows=partial(melted, columns=QUEUES, name="layer", value="queue_packets"),
            panel_height_inches=2.1,
        ),
    ),
    PageFigure(
        "ttc_figure6",
        "ttc_packet",
        {"scheme": SCHEMES, "topology": "fattree:n=3,d=8"},
        Curves(
            columns={"latency_slots": "latency (slots)"},
            x="load_fraction",
            facet=("statistic",),
            log=("latency_slots",),
            rows=partial(melted, columns=LATENCIES, name="statistic", value="latency_slots"),
        ),
    ),
    PageFigure("ttc_theorem5_2", "ttc_theory"),
    PageFigure(
        "ttc_tcp",
        "fabric_gain",
        {"topology": "clos:n=4,r=2,m=4"},
        Bars(
            columns={
                "goodput_fraction": "goodput (fraction of the ideal)",
                "late_fraction": "late packets (fraction)",
            },
        ),
    ),
)
