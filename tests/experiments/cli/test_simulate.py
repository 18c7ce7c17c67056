"""`weft simulate`: what it prints and writes, beside the library."""

from __future__ import annotations

import csv
import json
import os
import re

import pytest

from weft import simulate
from weft.experiments.cli import simulate_commands
from weft.experiments.cli.cli import main
from weft.experiments.runner import console
from weft.testbed.packets.simulation import LINK

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
    command = ["simulate", "clos:n=4,r=3,m=4", "--routing", "dmodk", "--json"]
    assert main([*command, *arguments]) == 0
    figures = json.loads(capsys.readouterr().out)
    result = simulate("clos:n=4,r=3,m=4", "dmodk", FLOWS, transport=transport, link=LINK)
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


def figures(capsys, *arguments, status=0):
    assert main(["simulate", *arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_each_option_of_links_changes_its_own_field_and_is_shown(capsys):
    link = figures(capsys, "star:n=3", "--bytes", "9")["link"]
    assert link == vars(LINK)
    for option, text, name, value in (
        ("--rate", "1gbit", "rate_bps", 10**9),
        ("--queue", "7", "queue_packets", 7),
        ("--delay", "3us", "delay_us", 3),
        ("--mtu", "9000", "mtu_bytes", 9000),
        ("--trim", "5", "trim_packets", 5),
    ):
        shown = figures(capsys, "star:n=3", "--bytes", "9", option, text, "--seed", "4")
        assert shown["link"] == link | {name: value}
        assert (shown["topology"], shown["seed"], shown["host_link"]) == ("star:n=3", 4, None)
    shown = figures(capsys, "star:n=3", "--bytes", "9", "--host-rate", "1gbit")
    assert (shown["link"], shown["host_link"]) == (link, link | {"rate_bps": 10**9})


def test_help_and_text_have_the_links_that_are_simulated(capsys):
    assert main(["simulate", "star:n=3", "--bytes", "9", "--host-rate", "5mbit"]) == 0
    network = capsys.readouterr().out.splitlines()[0]
    text = "star:n=3, rate 10gbit, queue 100, delay 1us, mtu 1500, host rate 5mbit"
    assert network.split(maxsplit=1) == ["network", text]
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for name, value in simulate_commands.LINK.items():
        assert f"default: {value} --" in shown, name
    assert "needs --rate" not in shown


def test_times_are_those_of_finished_flows_and_the_text_says_so(capsys):
    lossy = ["fattree:k=4", "--transport", "plain"]
    assert main(["simulate", *lossy]) == 1
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["unfinished"] == "9, which the times leave out"
    none = figures(capsys, "star:n=3", "--timeout-s", "1e-9", status=1)
    assert none["unfinished"] == 3
    assert all(none[name] is None for name in simulate_commands.TIMES)


def test_what_the_own_host_refuses_is_told_apart(capsys):
    alone = figures(capsys, "star:n=4")
    assert alone["dropped_packets"] == alone["dropped_by_hosts"] > 0
    assert alone["retransmissions"] == 0
    crowd = figures(capsys, "star:n=4", "--traffic", "incast:senders=3")
    assert crowd["dropped_packets"] > crowd["dropped_by_hosts"]


def test_threads_without_a_processor_each_are_told(capsys, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    for threads, warning in (
        ("1", ""),
        ("2", "weft: 2 threads wait for each other on 1 processor\n"),
    ):
        assert main(["simulate", "star:n=3", "--bytes", "9", "--threads", threads]) == 0
        assert capsys.readouterr().err == warning


def test_a_written_file_can_be_read_again(tmp_path, capsys):
    first, second, spaced = (tmp_path / f"{name}.csv" for name in ("first", "second", "spaced"))
    assert main(["simulate", "star:n=4", "--bytes", "9", "-o", str(first)]) == 0
    assert main(["simulate", "star:n=4", "--flows", str(first), "-o", str(second)]) == 0
    assert first.read_text() == second.read_text()
    spaced.write_text("dst, src, bytes, start_s\nh1, h0, 9, 0\n")
    assert main(["simulate", "star:n=4", "--flows", str(spaced)]) == 0


def test_progress_begins_while_the_network_is_set_up(capsys, monkeypatch):
    monkeypatch.setattr(console, "_file", lambda: None)
    monkeypatch.setattr(console, "QUIET_S", 0.0)
    monkeypatch.setattr(simulate_commands, "QUIET_S", 0.0)
    assert main(["simulate", "fattree:k=4"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("simulating: setting the network up") for line in lines)
    assert any(re.match(r"simulating: \d+ % of bytes after ", line) for line in lines)
