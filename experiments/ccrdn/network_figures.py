"""Figures over the networks of CCRDN: a line of panels for each family and depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.experiments.engines.graph import graph
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Row, Table
from weft.topologies.core.grammar import parse


def with_sizes(table: Table) -> Table:
    """Return the rows with the family and depth of their network, and its servers."""
    rows: list[Row] = []
    for row in table:
        spec = str(row["topology"])
        family, parameters = parse(spec)
        depth = f"{family}, k = {parameters['k']}"
        rows.append({**row, "family": depth, "servers": graph(spec).servers})
    return sorted(rows, key=lambda row: str(row["family"]))


def over_networks(columns: Mapping[str, str], *facet: str, **options: Any) -> Curves:
    """Return a figure of `columns` over the servers of a network, a line for each scheme.

    Args:
        columns: label of the axis of each column.
        facet: parameters that a figure keeps apart, if they vary.
        options: of Curves.
    """
    return Curves(
        columns=columns,
        x="servers",
        series="routing",
        facet=("family", *facet),
        rows=with_sizes,
        log=("servers", *options.pop("log", ())),
        **options,
    )
