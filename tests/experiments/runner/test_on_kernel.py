"""The experiments on the kernel engine: root, namespaces, daemons."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft.experiments.demo import first_light
from weft.experiments.demo.failover_demo import prefix, survivors
from weft.experiments.runner.results import Store

ROOT = Path(__file__).resolve().parents[3]


def weft(tmp_path, *argv):
    command = [
        sys.executable,
        "-m",
        "weft.experiments.cli.cli",
        *argv,
        "--results",
        str(tmp_path / "results"),
    ]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def rows(process):
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(out)


@pytest.mark.kernel
def test_graph_fabric_and_kernel_lose_the_same_pairs(tmp_path):
    networks = "topology=dcell:n=3,k=1,ficonn:n=4,k=1"
    found = rows(
        weft(
            tmp_path,
            "run",
            "link_loss",
            "--set",
            networks,
            "failed_links=0,3",
            "--seeds",
            "1",
            "--json",
        )
    )
    assert [(row["topology"], row["failed_links"]) for row in found] == [
        (topology, failed) for topology in ("dcell:n=3,k=1", "ficonn:n=4,k=1") for failed in (0, 3)
    ]
    for row in found:
        assert (
            row["lost_graph_fraction"] == row["lost_fabric_fraction"] == row["lost_kernel_fraction"]
        )
        assert (row["lost_kernel_fraction"] > 0) == (row["failed_links"] > 0)
        assert row["equal"]
        assert row["engine"] == "kernel"
        assert row["fidelity"] in ("PASS", "WARN", "FAIL")


@pytest.mark.kernel
def test_first_light(tmp_path):
    (row,) = rows(weft(tmp_path, "run", "first_light", "--set", "iperf_s=1", "--json"))
    assert row["passed"]
    assert row["pairs"] == row["pairs_reached"] == row["paths_equal"] == 380
    assert row["announced_exact"]
    assert row["silent_exact"]
    assert row["announced_lost_pairs"] == row["announced_predicted_pairs"] > 0
    assert row["silent_lost_pairs"] == row["silent_predicted_pairs"] > 0
    for survivor in survivors():
        for how in ("announced", "silent"):
            saved = row[f"{prefix(survivor, how)}_saved_pairs"]
            assert saved == row[f"{prefix(survivor, how)}_saved_predicted_pairs"]
            assert 0 < saved <= row[f"{how}_lost_pairs"]
            assert row[f"{prefix(survivor, how)}_tcp_after_bps"] > 0
    ((_, about),) = Store(tmp_path / "results").table(first_light.EXPERIMENT)
    assert about["fidelity"] == about["fidelity_report"]["verdict"] == row["fidelity"]
    assert about["stages_s"]
    assert about["features"]["htb"]
    assert about["machine"]["kernel"] == os.uname().release


@pytest.mark.kernel
def test_ctrl_c_takes_the_network_down(tmp_path):
    process = weft(tmp_path, "run", "first_light", "--set", "iperf_s=60")
    while "computes" not in (line := process.stderr.readline()):  # iperf3 is next
        assert line, "it ended before"
    ids = runs_of(process.pid)
    assert len(ids) == 1
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "weft: interrupted"
    assert not runs_of(process.pid)
    assert not [
        name
        for name in os.listdir("/run/netns")
        if name.startswith("weft.") and name.split(".")[1] in ids
    ]


def runs_of(pid):
    """The runs that say that process `pid` made them."""
    found = set()
    for journal in Path("/run/weft").glob("*/run.json"):
        try:
            document = json.loads(journal.read_text())
        except (OSError, ValueError):
            continue
        if document.get("pid") == pid:
            found.add(document["id"])
    return found
