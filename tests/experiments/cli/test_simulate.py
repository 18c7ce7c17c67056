"""`weft simulate`: what it prints and writes, beside the library."""

from __future__ import annotations

import csv
import json

import pytest

from weft import simulate
from weft.experiments.cli.cli import main
from weft.testbed.packets.simulation import LINK
from weft.topologies.core.link import Mbps

FLOWS = [(0, 5, 40_000), (5, 0, 40_000), (1, 9, 100_000)]
OWN = {
    "tcp": {"retransmissions"},
    "ndp": {"retransmissions"},
    "plain": {"late_packets", "mean_latency_us", "most_latency_us"},
    "plain:rate_mbps=5000": {"late_packets", "mean_latency_us", "most_latency_us"},
}


@pytest.mark.parametrize("transport", OWN)
def test_figures_and_columns_are_those_of_the_library(transport, tmp_path, capsys):
    given, written = tmp_path / "flows.csv", tmp_path / "times.csv"
    lines = [f"0,{src},{dst},{size}" for src, dst, size in FLOWS]
    given.write_text("\n".join(["start_s,src,dst,bytes", *lines, ""]))
    arguments = ["--flows", str(given), "--output", str(written), "--transport", transport]
    link = ["--rate", "10gbit", "--delay", "1us", "--queue", "100"]
    command = ["simulate", "clos:n=4,r=3,m=4", "--routing", "dmodk", "--json", *link]
    assert main([*command, *arguments]) == 0
    figures = json.loads(capsys.readouterr().out)
    result = simulate("clos:n=4,r=3,m=4", "dmodk", FLOWS, transport=transport, link=LINK)
    assert LINK.rate_bps == 10_000 * Mbps
    assert figures["last_ms"] == pytest.approx(1000 * result.completion_s.max())
    assert figures["unfinished"] == 0
    assert OWN[transport] <= figures.keys()
    others = set().union(*OWN.values()) - OWN[transport]
    assert not others & figures.keys()
    if "mean_latency_us" in figures:
        packets = result.counters["packets"].sum()
        mean_us = result.counters["latency_ns"].sum() / packets / 1000
        assert figures["mean_latency_us"] == pytest.approx(mean_us)
    rows = list(csv.DictReader(written.open()))
    assert [float(row["completion_s"]) for row in rows] == result.completion_s.tolist()
    assert rows[0].keys() - {"bytes"} == result.columns().keys() - {"size_bytes"}
