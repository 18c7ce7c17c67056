"""Figures of the page on CCRDN, in the paper's layout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft.experiments.ccrdn.recursive import with_sizes
from weft.experiments.ccrdn.throughput import by_flows
from weft.experiments.report.panels import Bars, Curves, exploded, melted, relative
from weft.experiments.report.published import PageFigure
from weft.experiments.runner.definition import Table
from weft.topologies.core.grammar import parse

SHORT = {"dcell": "D", "beta-dcell": "β", "ficonn": "F"}
PROXIES = {"routing": "dr,pr-gp0,pr-gpi,pr-gpe"}
SCHEMES = {"routing": "dr,pr-gp0,pr-gpi,pr-gpe,dfr,bfs"}
CANDIDATES = {
    "candidates_per_pair": "candidates",
    "no_longer_routes_per_pair": "routes no longer than DR's",
}


def short(topology: str) -> str:
    """Return the paper's short name of a network, such as D3,4."""
    family, parameters = parse(topology)
    return f"{SHORT[family]}{parameters['k']},{parameters['n']}"


def named(table: Table) -> Table:
    """Return the rows with the short name of their network."""
    return [row | {"network": short(row["topology"])} for row in table]


def of_depth(depth: int, table: Table) -> Table:
    """Return the rows of networks with `depth`, with their sizes."""
    return [row for row in with_sizes(table) if row["family"].endswith(str(depth))]


def lettered(letters: str, prepare: Callable[[Table], Table], table: Table) -> Table:
    """Return the prepared rows, each with the figure's number or letter before its network."""
    rows = list(named(prepare(table)))
    names = dict.fromkeys(row["network"] for row in rows)
    networks = sorted(names, key=lambda name: "DβF".index(name[0]))
    titles = dict(zip(networks, letters.split(), strict=False))
    rows.sort(key=lambda row: networks.index(row["network"]))
    return [row | {"network": f"({titles[row['network']]}) {row['network']}"} for row in rows]


def over_dr(column: str, same: tuple[str, ...], table: Table) -> Table:
    """Return the rows of schemes other than DR, with `column` over that of DR."""
    rows = relative(named(table), (column,), {"routing": "dr"}, ("network", *same, "seed"))
    return [row for row in rows if row["routing"] != "dr"]


def connectivity(number: int, depth: int) -> PageFigure:
    """Return figure 5 or 6: connectivity of the networks of `depth`."""
    return PageFigure(
        f"ccrdn_figure{number}",
        "connectivity",
        {**SCHEMES, "failed_fraction": "0.1", "traffic": "uniform"},
        Curves(
            columns={"connected_fraction": "connected pairs (fraction)"},
            x="servers",
            series="routing",
            facet=("family",),
            log=("servers",),
            rows=partial(of_depth, depth),
        ),
    )


FIGURES = (
    PageFigure(
        "ccrdn_figure3",
        "hop_length",
        {"routing": "dr,pr-gp0,pr-gpi,pr-gpe,bfs", "pairs": "100000"},
        Curves(
            columns={"mean_hops": "mean hop-length"},
            x="servers",
            series="routing",
            facet=("family",),
            log=("servers",),
            rows=with_sizes,
        ),
    ),
    PageFigure(
        "ccrdn_figure4",
        "hop_length",
        {"routing": "pr-gp0,pr-gpi,pr-gpe", "pairs": "100000"},
        Curves(
            columns={"routes": "number for a pair"},
            x="servers",
            series="routing",
            dash="kind",
            facet=("family",),
            log=("servers", "routes"),
            rows=lambda table: melted(with_sizes(table), CANDIDATES, "kind", "routes"),
        ),
    ),
    connectivity(5, 2),
    connectivity(6, 3),
    PageFigure(
        "ccrdn_figures7_to_9",
        "hop_histogram",
        {},
        Curves(
            columns={"pairs_by_hops_fraction": "pairs (fraction)"},
            x="hops",
            series="routing",
            dash="links",
            facet=("network",),
            rows=partial(
                lettered,
                "7 8 9",
                lambda table: [
                    row | {"links": f"{row['failed_fraction']:.0%} failed"}
                    for row in exploded(table, ("pairs_by_hops_fraction",), "hops")
                ],
            ),
        ),
    ),
    PageFigure(
        "ccrdn_figures10_to_12",
        "flow_histogram",
        PROXIES,
        Curves(
            columns={"links_fraction": "directed links (fraction)"},
            x="flows_on_link",
            series="routing",
            facet=("network",),
            rows=partial(lettered, "10 11 12", by_flows),
        ),
    ),
    PageFigure(
        "ccrdn_figure13",
        "throughput",
        {"traffic": "uniform:flows=10000000", **PROXIES},
        Bars(
            columns={"uat_bps": "(a) UAT over that of DR", "rat_bps": "(b) RAT over that of DR"},
            by=("routing", "network"),
            baseline=1,
            rows=lambda table: [
                uat | {"rat_bps": rat["rat_bps"]}
                for uat, rat in zip(
                    over_dr("uat_bps", ("traffic",), table),
                    over_dr("rat_bps", ("traffic",), table),
                    strict=True,
                )
            ],
        ),
    ),
    PageFigure(
        "ccrdn_figure14",
        "completion_time",
        {"sharing": "max-min", **PROXIES},
        Bars(
            columns={"completion_s": "completion time over that of DR"},
            by=("routing", "network"),
            facet=("workload",),
            baseline=1,
            wrap=2,
            rows=partial(over_dr, "completion_s", ("workload",)),
        ),
    ),
)
