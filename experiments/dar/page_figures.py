"""Figures of the page on DAR, lettered as the paper's."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from weft.experiments.dar import dar_churn, dar_convergence, dar_settling
from weft.experiments.dar.dar_settling import PAPER_US
from weft.experiments.dar.dar_table import PAPER, looks
from weft.experiments.report import style
from weft.experiments.report.panels import Bars, Curves, extremes
from weft.experiments.report.published import PageFigure
from weft.experiments.runner.definition import Row, Table

FIGURES_10_TO_12 = {
    "figure 10a, p = 1": "figure 10a: m = n = r, p = 1",
    "figure 10b, p = 1": "figure 10b: m = 2n = 2r, p = 1",
    "figure 11, n = 6, m = 6, by r": "figure 11: n = m = 6, p = 1, by r",
    "figure 12, p = 2": "figure 12: m = n = r, p = 2",
}
TABLE_1 = {
    "throughput_gbps": "throughput (Gbit/s)",
    "latency_us": "latency (µs)",
    "jump_ratio": "packets out of order / in order",
    "jump_packets": "window (packets)",
}
NETWORKS = {
    "clos:n=24,r=48,m=48": "SNB",
    "clos:n=24,r=48,m=24": "RNB",
    "clos:n=8,r=8,m=8": "CLOS(8,8,8)",
}
PANELS_13 = {40.0: "a", 20.8: "b", 19.2: "c"}
ORDER = {"kept": "(a) packets are kept in any order", "dropped": "(b) go-back-N"}


def iterations(table: Table) -> Table:
    """Return the points of the paper's figures, in their order."""
    rows = [
        row | {"figure": FIGURES_10_TO_12[row["figure"]]}
        for row in dar_convergence.series(table)
        if row["figure"] in FIGURES_10_TO_12
    ]
    return sorted(rows, key=lambda row: row["figure"])


def cell_name(row: Row) -> str:
    """Return network, rate of hosts and p of a row."""
    network = NETWORKS[row["topology"]]
    return f"{network}, {row['host_gbps']:g} Gbit/s, p = {row['p']}"


def reroutes(table: Table) -> Table:
    """Return reroutes over time in the panels of figure 13, then those on Linux."""
    rows = [
        row | {"panel": f"({PANELS_13[row['host_gbps']]}) {cell_name(row)}{place}"}
        for row in dar_settling.over_time(table)
        if row["queue_packets"] == 0
        and row["preset"] == ("infiniband" if row["engine"] == "packet" else "ours")
        for place in [{"packet": "", "kernel": ", TCP on Linux"}.get(row["engine"])]
        if place is not None
    ]
    return sorted(rows, key=lambda row: (row["engine"] == "kernel", row["panel"]))


def with_line(plot: Curves, x: float, label: str) -> Callable[[Table, Figure], None]:
    """Return `plot` with a vertical line at `x` in every panel."""

    def draw(table: Table, figure: Figure) -> None:
        plot(table, figure)
        for axes in figure.axes:
            axes.axvline(x, color=style.INK, linewidth=0.7)
            axes.annotate(label, (x, 0.98), xycoords=("data", "axes fraction"), va="top")

    return draw


def table_1(table: Table) -> Table:
    """Return a row for each statistic of a cell of table 1; columns are named by the cell."""
    return [
        row
        | {
            "statistic": label,
            cell_name(row): row[f"mean_{column}"],
            f"{cell_name(row)} extreme": row[f"{extreme}_{column}"],
            f"{cell_name(row)} paper": row[f"paper_mean_{column}"],
            f"{cell_name(row)} paper extreme": row[f"paper_{extreme}_{column}"],
        }
        for column, label in TABLE_1.items()
        for extreme in ["min" if column == "throughput_gbps" else "max"]
        for row in table
        if (row["topology"], row["host_gbps"]) in PAPER and row["message_kb"] == 256
    ]


def by_order(table: Table) -> Table:
    """Return the rows in panels: what receivers do with packets out of order."""
    return [
        row | {"receivers": label, "message (KiB)": row["message_kb"]}
        for early, label in ORDER.items()
        for row in table
        if row["early"] == early
    ]


CELLS = ("SNB, 40 Gbit/s, p = 1", "RNB, 40 Gbit/s, p = 1", "RNB, 19.2 Gbit/s, p = 2")
FIGURES = (
    PageFigure(
        "dar_convergence",
        "dar_convergence",
        {"traffic": "worst", "permutations": "1000"},
        Curves(
            columns={"iterations": "iterations"},
            facet=("figure",),
            x="n_or_r",
            series="curve",
            log=("iterations",),
            rows=iterations,
        ),
    ),
    PageFigure(
        "dar_settling",
        "dar_settling",
        {"scheme": "dar", "key": "dest,flow", "time_us": "1400"},
        with_line(
            Curves(
                columns={"reroutes": "flows that a leaf moves in 10 µs"},
                facet=("panel",),
                x="elapsed_us",
                dash="leaves",
                band=extremes,
                rows=reroutes,
                looks=looks,
            ),
            PAPER_US,
            f" {PAPER_US} µs",
        ),
    ),
    PageFigure(
        "dar_table",
        "dar_table",
        {"scheme": "dar", "key": "dest"},
        Bars(
            columns={cell: cell for cell in CELLS},
            facet=("statistic",),
            rows=table_1,
            strokes={
                cell: {
                    f"{cell} extreme": "ours: least throughput, else largest value",
                    f"{cell} paper": "the paper's mean",
                    f"{cell} paper extreme": "the paper's: least throughput, else largest value",
                }
                for cell in CELLS
            },
        ),
    ),
    PageFigure(
        "dar_full_rate",
        "dar_table",
        {"key": "flow", "traffic": "cross", "time_us": "3200", "skipped_us": "1600"},
        Bars(
            columns={
                "mean_throughput_gbps": "(a) throughput (Gbit/s)",
                "late_fraction": "(b) late packets (fraction)",
            },
            strokes={"mean_throughput_gbps": {"min_throughput_gbps": "least receiver"}},
            looks=looks,
        ),
    ),
    PageFigure(
        "dar_goodput",
        "dar_goodput",
        {"host_percent": "100", "warm_up_s": "4", "seconds": "6"},
        Bars(
            columns={
                "goodput_fraction": "(a) goodput (fraction)",
                "late_fraction": "(b) late packets (fraction)",
            },
            strokes={"goodput_fraction": {"slowest_fraction": "slowest flow"}},
        ),
    ),
    PageFigure(
        "dar_permutations",
        "dar_permutations",
        {},
        Curves(
            columns={"completion_ratio": "time of a permutation / of an ideal crossbar"},
            x="message (KiB)",
            facet=("receivers",),
            log=("message (KiB)", "completion_ratio"),
            rows=by_order,
            looks=looks,
        ),
    ),
    PageFigure("dar_churn", "dar_churn", {}, dar_churn.BY_LIFE),
)
