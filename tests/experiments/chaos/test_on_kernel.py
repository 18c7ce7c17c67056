"""Campaigns on the kernel, by the real clock and by a virtual one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft.experiments.chaos import campaign as campaign_module
from weft.experiments.chaos.campaign import Campaign, parse
from weft.experiments.chaos.drawing import campaign
from weft.experiments.chaos.on_kernel import KernelCampaigns
from weft.experiments.demo.chaos import eager
from weft.testbed.mininet.net import Net
from weft.testbed.node_daemon import control

ROOT = Path(__file__).parents[3]
KINDS = [kind for kind in campaign_module.KINDS if kind != "clock"]  # which is all_pairs's
EVERY = (
    "0:down:h0-h3+0.05:silent:h1-w0+0.1:deaf:h1-h6:h6+0.1:lose:all:20+0.15:corrupt:h4-h7:30+0.15:replay:h5-h10:50"
    "+0.2:slow:h8-h11:5+0.2:jitter:h2-w0:5+0.25:double:h6-w2:100+0.3:die:h7+0.4:kill:h10+0.5:stop:h11:150"
    "+0.7:pause:-:100+0.8:up:h1-w0+0.9:live:h7+0.95:start:h10+1:clear:all"
)


@pytest.mark.kernel
def test_everything_that_can_happen_to_a_network_ends_as_predicted():
    with Net("dcell:n=3,k=1", routing=eager("bfs")) as net:
        carried = KernelCampaigns(net, eager("bfs"))
        events = parse(EVERY, net.topology)
        assert {event.kind for event in events} == set(KINDS)
        assert carried.run(Campaign("dcell:n=3,k=1", eager("bfs"), events, 1)) == []
        assert len(carried.settled_s) == 2
        assert net.network.failed_links() == []


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("name", "spec"), [("pr-gpi", "dcell:n=3,k=1"), ("ecmp", "clos:n=2,r=3,m=3")]
)
def test_campaigns_end_as_predicted(name, spec):
    with Net(spec, routing=eager(name)) as net:
        carried = KernelCampaigns(net, eager(name))
        one = campaign(spec, eager(name), 5, steps=4, kinds=KINDS, pairs=30)
        assert carried.run(one) == [], one.command("kernel")


@pytest.mark.kernel
def test_what_is_not_as_predicted_is_found(monkeypatch):
    monkeypatch.setattr("weft.experiments.chaos.on_kernel.SETTLE_S", 1.0)
    with Net("dcell:n=3,k=1", routing=eager("dr")) as net:
        carried = KernelCampaigns(net, eager("dr"))
        monkeypatch.setattr(carried, "_break_links", lambda: None)
        events = parse("0:down:h0-h3+0:down:h1-h6+0:down:h4-h7", net.topology)
        (finding,) = carried.run(Campaign("", "", events, pairs=20))
        assert (finding.kind, "reached against the prediction" in finding.what) == (
            "unlike",
            True,
        )
        monkeypatch.undo()
        pid = control.processes(net.identity.directory)["h2"]["pid"]
        os.kill(pid, signal.SIGKILL)
        assert [each.kind for each in carried.run(Campaign("", "", ()))] == ["crash"]


@pytest.mark.virtual
def test_under_a_virtual_clock_campaigns_set_the_clock_too(tmp_path):
    settings = [
        "topology=dcell:n=3,k=1",
        f"routing={eager('dr')}",
        "campaigns=2",
        "steps=6",
        "campaign=4",
    ]
    command = [
        sys.executable,
        "-m",
        "weft.experiments.cli.cli",
        "run",
        "chaos",
        "--clock",
        "virtual",
        "--json",
    ]
    command += ["--set", *settings, "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["passed"], row["failed"], len(row["healed_s"])) == (True, 0, 2)
