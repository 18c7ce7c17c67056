"""The events of a lab on the kernel, while others are under way."""

from types import SimpleNamespace

import pytest

from weft.testbed.labs import running_lab
from weft.testbed.labs.lab_file import parse
from weft.testbed.labs.play import Player, play
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import ndp
from weft.testbed.traffic.ndp import MessageResult, NdpResults

LAB = "topology: star:n=3\nscheme: static\nlink: {rate: 20mbit}\nevents:\n"
MESSAGES = "size: 1MB, transport: ndp"


def play_events(events):
    lab = parse(LAB + events, name="lab")
    network = RunningNetwork.create(lab.topology, lab.link, scheme="static")
    try:
        return play(network, lab)
    finally:
        network.down()


@pytest.mark.kernel
def test_a_command_that_ignores_its_end_delays_no_event(monkeypatch):
    monkeypatch.setattr(running_lab, "END_S", 3.0)
    result = play_events(
        "  - {at: 0s, start: \"trap '' TERM; sleep 1000\", node: h0, name: deaf}\n"
        "  - {at: 1s, stop: deaf}\n"
        "  - {at: 1s, fail: h1-r0}\n"
    )
    assert result.late_s < running_lab.END_S


def test_goodput_over_ndp_is_bits_per_second_of_what_arrived(monkeypatch):
    """Two of three messages of 1 MB arrive within a limit of 4 s; all of them do by 1.5 s."""
    pairs = "[h0-h1, h1-h2, h2-h0]"
    lab = parse(f"{LAB}  - {{at: 0s, traffic: {pairs}, {MESSAGES}, for: 4s, name: x}}", name="lab")
    player = Player(SimpleNamespace(topology=lab.topology))
    monkeypatch.setattr(ndp, "parameters_of", lambda network: None)
    for ends_s, mbps in (([1.0, None, 0.5], 8 * 2 / 4), ([1.0, 1.5, 0.5], 8 * 3 / 1.5)):
        results = [MessageResult(None, 0.0, end_s, end_s, None) for end_s in ends_s]
        outcome = NdpResults(tuple(results), *[None] * 8)
        monkeypatch.setattr(ndp, "run", lambda *_, outcome=outcome, **__: outcome)
        assert player._ndp_bps(lab.events[0]) == pytest.approx(1e6 * mbps)


@pytest.mark.kernel
def test_goodput_over_ndp_is_that_of_the_link():
    """A link of 20 Mbit/s carries 1,450 bytes of data in a frame of 1,514, and less at its end."""
    events = f"  - {{at: 0s, traffic: h0-h1, {MESSAGES}, name: one}}\nchecks:\n"
    result = play_events(events + "  - {goodput: one, above: 3mbit}\n")
    measured = float(result.verdicts[0].measured.removesuffix(" Mbit/s"))
    # above bytes for bits, also on a busy machine; as it is printed
    assert 3 < measured <= round(20 * 1450 / 1514, 1)


@pytest.mark.kernel
def test_traffic_over_ndp_is_refused_while_another_goes_on():
    with pytest.raises(ValueError, match="traffic two: ndp carries one traffic at a time, and one"):
        play_events(
            f"  - {{at: 0s, traffic: h0-h1, {MESSAGES}, name: one}}\n"
            f"  - {{at: 100ms, traffic: h2-h1, {MESSAGES}, name: two}}\n"
        )
