"""Loads that shortest paths, Valiant and UGAL-L carry, against bounds worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from weft.experiments.fatpaths import detour_load


def run_of(**texts: str):
    (run,) = detour_load.EXPERIMENT.runs(texts, seeds=1)
    return run


def accepted_fraction(
    topology: str, routing: str, traffic: str, load: float, slots: int = 300
) -> float:
    run = run_of(
        topology=topology,
        routing=routing,
        traffic=traffic,
        load_fraction=str(load),
        slots=str(slots),
    )
    return float(detour_load.measure(run).figures["accepted_fraction"])


def test_where_one_link_leads_on_shortest_paths_carry_its_rate_and_detours_the_load() -> None:
    """Let all four hosts of a switch send to the next of six: 1/4 over the one link there.

    Detours use the five links of a switch twice a packet, which is room for 5/8.
    """
    network = "complete:n=6,p=4"
    assert accepted_fraction(network, "rps", "shift", 0.5) == pytest.approx(0.25, abs=0.005)
    for routing in ("valiant", "ugal", "ugal:d=4"):
        assert accepted_fraction(network, routing, "shift", 0.5) == pytest.approx(0.5, abs=0.025)


def test_uniform_traffic_wants_shortest_paths_and_halves_the_room_of_valiant() -> None:
    network = "complete:n=6,p=4"
    assert accepted_fraction(network, "rps", "uniform", 0.9) == pytest.approx(0.9, abs=0.03)
    assert accepted_fraction(network, "ugal", "uniform", 0.9) == pytest.approx(0.9, abs=0.03)
    # 5/6 of the packets leave their switch, each by two of its five links: at most 3/4
    assert accepted_fraction(network, "valiant", "uniform", 0.9) < 0.75


def test_packets_of_a_group_go_to_the_next_one() -> None:
    """A group of a Dragonfly with p = 2 has four switches, and eight hosts."""
    run = run_of(
        topology="dragonfly:p=2", routing="ugal", traffic="shift", load_fraction="0.5", slots="50"
    )
    packets = detour_load.injection(run)
    assert ((packets.src // 8 + 1) % 9 == packets.dst // 8).all()
    assert len(np.unique(packets.dst)) == 72
    assert len(packets.src) / (72 * 100) == pytest.approx(0.5, abs=0.03)
    uniform = detour_load.injection(
        run_of(
            topology="complete:n=4,p=2",
            routing="rps",
            traffic="uniform",
            load_fraction="1",
            slots="200",
        )
    )
    assert (uniform.src != uniform.dst).all()
    pairs, counts = np.unique(8 * uniform.src + uniform.dst, return_counts=True)
    assert len(pairs) == 56
    assert abs(counts - 400 / 7).max() < 40


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"topology": "fattree:k=4", "routing": "ugal"}, "take vlb"),
        ({"topology": "slimfly:q=5,p=4", "routing": "fatpaths"}, "choose paths here"),
        ({"topology": "fattree:k=4", "routing": "rps"}, "switches with equally many hosts"),
    ],
)
def test_networks_that_are_not_for_it_are_refused_in_one_line(texts, reason) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as refusal:
        detour_load.EXPERIMENT.plan(texts)
    assert reason in str(refusal.value)
