"""The events of a lab on the kernel, while others are under way."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from weft.testbed.labs import running_lab
from weft.testbed.labs.lab_file import parse
from weft.testbed.labs.play import BEFORE_S, Player, play
from weft.testbed.linux import clock
from weft.testbed.measure.outage import OutageTable
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import flows, ndp
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


@pytest.fixture
def time_s(monkeypatch):
    """Return the time of a clock on which nothing but sleep takes any; threads run at once."""
    passed = [100.0]

    def sleep(seconds):
        assert seconds >= 0
        passed[0] += seconds

    def begin(function):
        future = Future()
        future.set_result(function())
        return future

    monkeypatch.setattr(clock, "monotonic", lambda: passed[0])
    monkeypatch.setattr(clock, "sleep", sleep)
    monkeypatch.setattr("weft.testbed.labs.play.begin", begin)
    return lambda: passed[0]


def test_events_and_checks_happen_at_their_times(time_s, monkeypatch):
    """Traffic begins to open its listeners before, and pings before the failure they see."""
    lab = parse(
        f"{LAB}  - {{at: 1s, fail: h0-r0}}\n  - {{at: 2s, traffic: h0-h1, for: 1s, name: x}}\n"
        "  - {at: 3s, restore: h0-r0}\nchecks:\n"
        "  - {at: 1s, recovers: h1-h2, within: 500ms}\n  - {at: 2500ms, path: [h1, r0, h2]}\n",
        name="lab",
    )
    steps = []

    def note(kind):
        return lambda *_, **__: steps.append((kind, round(time_s() - player.begin_s, 6)))

    player = Player(
        SimpleNamespace(topology=lab.topology, fail=note("fail"), restore=note("restore"))
    )
    for kind in ("_tcp_bps", "check_recovers", "check_path"):
        monkeypatch.setattr(player, kind, note(kind))
    assert player.run(lab) == pytest.approx(0)
    assert player.begin_s > 100 + BEFORE_S
    assert steps == [
        ("check_recovers", 1 - BEFORE_S),
        ("fail", 1),
        ("_tcp_bps", 2 - flows.BEGIN_S),
        ("check_path", 2.5),
        ("restore", 3),
    ]


def test_the_lateness_is_that_of_the_event_that_waits_longest_for_others(time_s):
    lab = parse(
        f"{LAB}  - {{at: 1s, fail: h0-r0}}\n  - {{at: 1s, fail: h1-r0}}\n"
        "  - {at: 3s, restore: h0-r0}\n",
        name="lab",
    )
    network = SimpleNamespace(
        topology=lab.topology,
        fail=lambda link: clock.sleep(0.25),
        restore=lambda link: None,
    )
    assert Player(network).run(lab) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("check", "from_s", "until_s", "interval_ms"),
    [
        ("{at: 2s, loss: all, below: 5}", 2.0, 3.0, 10.0),
        ("{at: 2s, loss: all, below: 5, for: 4s}", 2.0, 6.0, 10.0),
        ("{at: 2s, recovers: h0-h1, within: 500ms}", 2 - BEFORE_S, 2.5, 10.0),
    ],
)
def test_pings_last_as_long_as_the_check_asks(
    time_s, monkeypatch, check, from_s, until_s, interval_ms
):
    spans, intervals_ms = [], []

    class Probe:
        table = OutageTable((), 0.0, 0.0, 0.01, 0.0, True)

        def __init__(self, network, pairs, *, interval_ms):
            intervals_ms.append(interval_ms)

        def __enter__(self):
            spans.append(time_s() - player.begin_s)
            return self

        def __exit__(self, *_):
            spans.append(time_s() - player.begin_s)

    monkeypatch.setattr("weft.testbed.labs.play.OutageProbe", Probe)
    lab = parse(f"topology: star:n=3\nchecks:\n  - {check}\n", name="lab")
    player = Player(SimpleNamespace(topology=lab.topology))
    player.run(lab)
    assert spans == pytest.approx([from_s, until_s])
    assert intervals_ms == [interval_ms]
    assert player.verdict(0).measured


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

        def run(*_, deadline_s, real_time, outcome=outcome):
            assert (deadline_s, real_time) == (4.0, False)
            return outcome

        monkeypatch.setattr(ndp, "run", run)
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
