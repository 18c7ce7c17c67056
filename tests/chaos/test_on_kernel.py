"""Campaigns on the kernel, by the real clock and by a virtual one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.chaos import kernel_network
from tests.chaos.campaign import FaultCampaign, campaign_on, run_campaigns
from tests.chaos.faulty_network import CampaignError
from tests.chaos.kernel_network import KernelNetwork
from tests.chaos.schemes import eager
from weft.experiments.engines.common_parameters import link_with_queues
from weft.testbed.mininet.net import Net

FEW, STEPS = 4, 4
EACH = 2  # campaigns of each kind of daemon, the same ones each time


class SharedNet:
    """One network for all campaigns; a failed campaign leaves a broken one, which is replaced."""

    def __init__(self, stack: ExitStack, spec: str, routing: str) -> None:
        self.stack = stack
        self.spec = spec
        self.routing = routing
        self.campaign: KernelNetwork | None = None
        self.net: Net | None = None

    def __call__(self, seed: int) -> KernelNetwork:
        if self.net is None or (self.campaign and not self.campaign.recovered):
            self.stack.close()
            link = link_with_queues(self.routing)
            # campaigns kill daemons, so each has a process of its own
            net = Net(self.spec, link=link, routing=self.routing, packed=0)
            self.net = self.stack.enter_context(net)
        self.campaign = KernelNetwork(self.net, seed)
        return self.campaign


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as networks:
        yield networks


def kernel_campaign(stack: ExitStack, spec: str, routing: str) -> type[FaultCampaign]:
    """Return the campaigns of `routing` on a network in the kernel."""
    return campaign_on("OnKernel", SharedNet(stack, spec, routing))


@pytest.mark.kernel
def test_every_fault_ends_as_predicted(stack):
    network = SharedNet(stack, "dcell:n=3,k=1", eager("bfs"))(1)
    link, every = network.topology.link, range(len(network.topology.links))
    try:
        network.fail_link(link("h0-h3"), silent=False)
        network.fail_link(link("h1-w0"), silent=True)
        network.deafen(link("h1-h6"), 6)
        network.alter(every, loss_fraction=0.2)
        network.alter([link("h4-h7")], corrupt_fraction=0.3)
        network.alter([link("h5-h10")], replay_fraction=0.5)
        network.alter([link("h8-h11")], delay_s=0.005, jitter_s=0.005)
        network.alter([link("h6-w2")], duplicate_fraction=1.0)
        network.power_off(7)
        network.kill_daemon(10)
        network.stall([11], 0.15)
        network.wait(0.2)
        network.stall(network.routers, 0.1)
        network.restore_link(link("h1-w0"))
        network.power_on(7)
        network.start_daemon(10)
        network.wait(0.1)
        network.judge()
    finally:
        network.close()
    assert network.net.network.failed_links() == []


@pytest.mark.kernel
def test_a_stall_ends_before_the_judgement(stack):
    network = SharedNet(stack, "complete:n=4,p=1", eager("bfs"))(1)
    network.stall(network.routers, 0.02)
    try:
        network.judge()
        assert network.stalls == []
    finally:
        network.close()


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("name", "spec"), [("pr-gpi", "dcell:n=3,k=1"), ("ecmp", "clos:n=2,r=3,m=3")]
)
def test_a_few_campaigns_end_as_predicted(stack, name, spec):
    campaign = kernel_campaign(stack, spec, eager(name))
    run_campaigns(campaign, FEW, steps=STEPS, derandomize=True, database=None)


@pytest.mark.kernel
@pytest.mark.slow
def test_every_campaign_ends_as_predicted(stack, routing, spec, campaigns):
    options = {} if campaigns else {"derandomize": True, "database": None}
    run_campaigns(kernel_campaign(stack, spec, routing), campaigns or EACH, **options)


@pytest.mark.kernel
def test_a_wrong_path_and_a_death_are_detected(stack, monkeypatch):
    networks = SharedNet(stack, "dcell:n=3,k=1", eager("dr"))
    network = networks(0)
    with monkeypatch.context() as patched:
        patched.setattr(kernel_network, "SETTLE_S", 1.0)
        patched.setattr(network, "_link_changed", lambda link: None)
        for name in ("h0-h3", "h1-h6", "h4-h7"):
            network.fail_link(network.topology.link(name), silent=False)
        with pytest.raises(CampaignError, match="reached against the prediction"):
            network.judge()
    network.close()
    assert networks(0).net is not network.net
    network = networks(0)
    os.kill(network.pids()["h2"], signal.SIGKILL)
    with pytest.raises(CampaignError, match="1 deaths"):
        network.judge()
    network.close()
