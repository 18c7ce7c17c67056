"""The events of a lab on the kernel, while others are under way."""

import pytest

from weft.testbed.labs import running_lab
from weft.testbed.labs.lab_file import parse
from weft.testbed.labs.play import play
from weft.testbed.network.network import RunningNetwork

LAB = "topology: star:n=3\nscheme: static\nlink: {rate: 20mbit}\nevents:\n"
MESSAGES = "size: 1MB, transport: ndp"


def played(events):
    lab = parse(LAB + events, name="lab")
    network = RunningNetwork.create(lab.topology, lab.link, scheme="static")
    try:
        return play(network, lab)
    finally:
        network.down()


@pytest.mark.kernel
def test_a_command_that_ignores_its_end_delays_no_event(monkeypatch):
    monkeypatch.setattr(running_lab, "END_S", 3.0)
    result = played(
        "  - {at: 0s, start: \"trap '' TERM; sleep 1000\", node: h0, name: deaf}\n"
        "  - {at: 1s, stop: deaf}\n"
        "  - {at: 1s, fail: h1-r0}\n"
    )
    assert result.late_s < running_lab.END_S


@pytest.mark.kernel
def test_traffic_over_ndp_is_refused_while_another_goes_on():
    with pytest.raises(ValueError, match="traffic two: ndp carries one traffic at a time, and one"):
        played(
            f"  - {{at: 0s, traffic: h0-h1, {MESSAGES}, name: one}}\n"
            f"  - {{at: 100ms, traffic: h2-h1, {MESSAGES}, name: two}}\n"
        )
