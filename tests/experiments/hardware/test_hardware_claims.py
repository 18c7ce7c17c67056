"""The claims on the installation: sources, ratios, and what both sides hold equal."""

import pytest

from weft.experiments.hardware import claims
from weft.experiments.report.claims import Verdict
from weft.topologies import build


def test_both_networks_have_hosts_for_the_ranks_and_the_fat_tree_does_not_block():
    installation, fat_tree = build(claims.INSTALLATION), build(claims.FAT_TREE)
    assert (installation.switches, installation.servers) == (50, 200)
    assert fat_tree.servers >= 200
    leaves = 12
    assert len(fat_tree.links) - fat_tree.servers == fat_tree.servers == 18 * leaves


@pytest.mark.parametrize("row", claims.MEASURED, ids=lambda row: f"{row[0]} kB")
def test_an_order_is_that_of_the_two_times(row):
    kilobytes, ring_ms, doubling_ms = row
    claim = claims.order_claim(*row)
    assert claim.paper == round(ring_ms / doubling_ms, 2)
    assert claim.verdict(ring_ms / doubling_ms, 0) is Verdict.AGREES
    assert claim.verdict(doubling_ms / ring_ms, 0) is Verdict.CONTRADICTS
    ring, doubling = claim.query.runs
    assert {ring.text("algorithm"), doubling.text("algorithm")} == {"ring", "recursive-doubling"}
    assert ring.integer("size_bytes") == doubling.integer("size_bytes") == 1000 * kilobytes


def test_every_claim_is_of_the_installation_with_hosts_in_order_and_another_routing():
    for claim in claims.CLAIMS:
        for run in claim.runs:
            assert run.text("topology") == claims.INSTALLATION
            assert (run.integer("rate_mbps"), run.integer("frame_bytes")) == (40_000, 4096)
        if claim.otherwise:
            assert {run.text("placement") for run in claim.runs} == {"linear"}
            assert {run.text("scheme") for run in claim.query.runs} == {"ecmp"}
            assert {run.text("scheme") for run in claim.otherwise.runs} == {claims.LAYERS}


def test_an_all_to_all_has_a_block_for_each_rank():
    for ranks, size_bytes, _ in claims.EXCHANGED:
        for run in claims.exchange(ranks, size_bytes).runs:
            assert run.integer("size_bytes") == ranks * size_bytes
            assert run.integer("ranks") == ranks
