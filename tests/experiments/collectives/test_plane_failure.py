"""The failure of a plane: windows and capacities by a pencil, what fails, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from weft.experiments.collectives import plane_failure
from weft.experiments.collectives.plane_failure import EXPERIMENT
from weft.experiments.report import figures
from weft.experiments.runner.definition import Run
from weft.topologies import build
from weft.topologies.tiered import planes

PLANES, CLOS = EXPERIMENT.sweep["topology"]


def run(**values: object) -> Run:
    """Return a run with seed 0."""
    usual = {"topology": PLANES, "transport": "ndp:choice=mrc,window=64", "failure": "none"}
    texts = {**usual, "size_bytes": 45_000_000, **values}
    (only,) = EXPERIMENT.runs({key: str(value) for key, value in texts.items()}, seeds=1)
    return only


def row(**values: object) -> dict[str, float]:
    """Return the figures of a run."""
    return dict(EXPERIMENT.carry_out(run(**values)).figures)  # type: ignore[arg-type]


def test_switches_of_both_networks_have_the_same_capacity() -> None:
    """A host has three ports of switches: its own, one up, and one down."""
    for topology in (PLANES, CLOS):
        about = run(topology=topology)
        ports = np.bincount(about.topology.links[:, [0, 2]].ravel())[about.topology.servers :]
        rate_bps = plane_failure.link_of(about, about.topology).rate_bps
        assert ports.sum() * rate_bps == 3 * 32 * 80 * 10**9
    assert row(topology=PLANES, size_bytes=1)["switch_bps"] == 3 * 80 * 10**9
    assert row(topology=CLOS, size_bytes=1)["switch_bps"] == 3 * 80 * 10**9


@pytest.mark.parametrize("spec", [PLANES, "planes:k=3,of=fattree:k=4", "planes:k=2,of=star:n=3"])
def test_links_of_a_plane_are_those_of_its_switches_by_name(spec: str) -> None:
    topology = build(spec)
    for plane in range(topology.planes):
        expected = [
            link
            for link, (_, _, switch, _) in enumerate(topology.links.tolist())
            if topology.naming.name(switch)[1:].split(".")[0] == str(plane)
        ]
        assert planes.links_of(topology, plane).tolist() == expected


def test_a_plane_fails_or_a_spine() -> None:
    topology = build(CLOS)
    names = [topology.link_name(link) for link in plane_failure.failed_links(topology)]
    assert names == ["e0-c7", "e1-c7", "e2-c7", "e3-c7"]
    topology = build(PLANES)
    assert len(plane_failure.failed_links(topology)) == 32 + 32


def test_windows_end_at_the_failure_and_after_it() -> None:
    times_ms = [1000 * time for time in plane_failure.looks_s(run(fails_ms=3))]
    assert times_ms == pytest.approx([2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 11])


def test_flows_alone_fill_a_window_and_two_planes_lose_half() -> None:
    alone = {"topology": "planes:k=2,of=star:n=2", "scheme": "ecmp"}
    whole = row(**alone)
    share = 9000 / (9000 + 2 * 64)  # of the frames: an answer and a pull the other way
    assert whole["before_fraction"] == pytest.approx(share, abs=0.002)
    assert whole["after_1ms_fraction"] == pytest.approx(share, abs=0.002)
    assert whole["mean_ms"] == pytest.approx(45e6 * 8 / 80e6 * 9000 / 8936, rel=0.02)
    for failure in ("announced", "silent"):
        half = row(**alone, failure=failure)
        assert half["after_3ms_fraction"] == pytest.approx(share / 2, abs=0.01)
        assert half["unfinished"] == 0
    assert half["after_1ms_fraction"] < 0.1  # nothing is known for a timeout


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"topology": "star:n=3"}, "star:n=3 has neither planes nor a spine to lose"),
        ({"topology": "dcell:n=4,k=1", "scheme": "dr"}, "has neither planes nor a spine to lose"),
        ({"transport": "tcp"}, "transport must be ndp, got tcp"),
        ({"size_bytes": 10**9, "frame_bytes": 1514}, "frames take too long, at most 1e\\+07"),
        ({"scheme": "ugal"}, "scheme ugal does not route several planes"),
        ({"topology": CLOS, "scheme": "fatpaths"}, "scheme must be one of switches without layers"),
        ({"transport": "ndp:entropies=100"}, "entropies=100 do not spread evenly over 8 planes"),
        ({"fails_ms": 0.5}, "fails_ms"),
    ],
)
def test_what_cannot_be_asked_is_refused(values: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        run(**values)


def test_a_panel_has_each_network_and_failure() -> None:
    rows = [
        {
            "topology": topology,
            "failure": failure,
            "transport": "ndp:choice=mrc",
            **dict.fromkeys(plane_failure.GOODPUT, 0.5),
        }
        for topology in (PLANES, CLOS)
        for failure in ("none", "announced", "silent")
    ]
    with figures.new() as figure:
        plane_failure.draw(rows, figure)  # type: ignore[arg-type]
        assert sorted(axes.get_title(loc="left") for axes in figure.axes) == sorted(
            f"{topology}, {failure}"
            for topology in (PLANES, CLOS)
            for failure in ("announced", "silent")
        )
        (line,) = figure.axes[0].get_lines()
        assert line.get_ydata() == pytest.approx([0.5] * 6)
