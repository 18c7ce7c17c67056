"""The study of all-reduce compares networks of one price, each by its best choice of paths."""

from __future__ import annotations

import pytest

from weft.experiments.collectives import equal_cost
from weft.experiments.collectives.collectives import EXPERIMENT, draw
from weft.experiments.fatpaths.topology_cost import PRICES, of_a_host
from weft.experiments.report import figures
from weft.topologies import build


@pytest.mark.parametrize(
    ("ranks", "least_usd", "most_usd"), [(128, 206e3, 234e3), (256, 501e3, 570e3)]
)
def test_networks_cost_the_same_in_all(ranks: int, least_usd: float, most_usd: float) -> None:
    for spec in equal_cost.one_of_each(ranks):
        topology = build(spec)
        cost_usd = topology.servers * float(str(of_a_host(topology, PRICES)["host_cost_usd"]))
        assert least_usd <= cost_usd <= most_usd, spec
        assert ranks <= topology.servers <= 1.22 * ranks, spec


def row(topology: str, scheme: str, ms: float | None, **values: object) -> dict[str, object]:
    """Return a row of a case of the study."""
    usual = {"engine": "packet", "trace": "none", "operation": "all-reduce", "ranks": 128}
    usual |= {"placement": "linear", "algorithm": "ring", "size_bytes": 1 << 20}
    about = {"topology": topology, "scheme": scheme, "transport": "ndp", "unfinished": ms is None}
    return {**usual, **about, "completion_ms": ms, **values}


SLIMFLY, CLOS = "slimfly:q=4,p=4", "clos:n=8,r=16,m=6"
ROWS = [
    row(SLIMFLY, "rps", 6.0),
    row(SLIMFLY, "ugal", 3.0),
    row(SLIMFLY, "ugal", 5.0),
    row(SLIMFLY, "drill", None),  # messages are missing
    row(CLOS, "rps", 2.0),
    row(CLOS, "rps", 1.0, placement="random"),
    row("clos:n=4,r=4,m=4", "rps", 0.1),
]


def test_a_network_stands_by_the_best_mean_of_its_choices() -> None:
    cells = equal_cost.beside_fastest(ROWS)  # type: ignore[arg-type]
    ratios = {(cell["placement"], cell["family"]): cell["ratio"] for cell in cells}
    expected = {("linear", "slimfly"): 2.0, ("linear", "clos"): 1.0, ("random", "clos"): 1.0}
    assert ratios == expected


def test_the_map_has_a_line_for_each_case_and_its_numbers() -> None:
    with figures.new() as figure:
        equal_cost.draw(ROWS, figure)  # type: ignore[arg-type]
        (axes,) = figure.axes
        lines = [label.get_text() for label in axes.get_yticklabels()]
        assert lines == ["linear, ring, 1 MiB", "random, ring, 1 MiB"]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["Clos", "Slim\nFly"]
        assert [text.get_text() for text in axes.texts] == ["1.00", "2.00", "1.00"]


def test_a_map_has_no_rows_of_other_settings() -> None:
    """Sweeps of a user, at another rate, are not averaged with those of the study."""
    usual = {key: values[0] for key, values in EXPERIMENT.sweep.items()}
    sizes = [1 << bits for bits in range(10, 17)]
    rows = [
        usual | row(name, "rps", ms, size_bytes=size, rate_mbps=mbps)
        for size in sizes
        for name, ms, mbps in ((CLOS, 1.0, 10_000), (SLIMFLY, 2.0, 10_000), (SLIMFLY, 9.0, 1000))
    ]
    with figures.new() as figure:
        draw(rows, figure)
        assert {text.get_text() for text in figure.axes[0].texts} == {"1.00", "2.00"}
