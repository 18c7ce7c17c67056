"""Events of a run, against what was done to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.testbed.linux import clock
from weft.testbed.linux.clock import wait_until
from weft.testbed.network.impair import set_rate
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.observe.event_stream import EventStream, require
from weft.topologies.core.link import Mbps

ROOT = Path(__file__).parents[3]
Event = dict[str, Any]


class Heard:
    """All that a stream has told so far."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.events = stream.first()

    def of(self, kind: str, **wanted: Any) -> list[Event]:
        """The events of this kind that have these values."""
        self.events += self.stream.look()
        return [
            event
            for event in self.events
            if event["event"] == kind and wanted.items() <= event.items()
        ]

    def await_(self, kind: str, **wanted: Any) -> Event:
        """The last such event, once there is one."""
        return wait_until(f"{kind} {wanted}", lambda: self.of(kind, **wanted))[-1]


@pytest.fixture
def heard(network: Callable[..., RunningNetwork]) -> Iterator[Heard]:
    stream = EventStream(network("dcell:n=3,k=1", scheme="dr"))
    yield Heard(stream)
    stream.close()


@pytest.mark.kernel
def test_a_silent_failure_is_followed_by_its_detection_and_the_loss_of_routes(heard: Heard) -> None:
    net = heard.stream.network
    began_s = clock.monotonic()
    net.fail("h0-h3", silent=True)
    failed = heard.await_("link", link="h0-h3", state="silent")
    assert failed["at_s"] > began_s
    lost = heard.await_("neighbour", node="h0", neighbour="h3", state="down")
    assert lost["at_s"] > began_s
    assert lost["why"].startswith("silent for ")
    assert lost["noticed_ms"] == pytest.approx(1000 * (lost["at_s"] - failed["at_s"]), abs=0.001)
    routes = wait_until("the loss", lambda: changes(heard, []))[0]
    assert routes["at_s"] > began_s
    wait_until(
        "h0's row",
        lambda: [
            e for e in heard.of("daemons") if e["daemons"].get("h0", {}).get("losses", 0) >= 1
        ],
    )
    heard.await_("log", node="h0", text="not converged any more")
    net.restore("h0-h3")
    heard.await_("link", link="h0-h3", state="up")
    heard.await_("neighbour", node="h0", neighbour="h3", state="up")
    assert not heard.stream._failed_s
    wait_until("the route is back", lambda: changes(heard, ["h0-eth1"]))


def changes(heard: Heard, devices: list[str]) -> list[Event]:
    """The events that say that h0's route to the DCell of h3 leads by these devices now."""
    return [
        event
        for event in heard.of("routes", node="h0")
        if event["changed"].get("10.0.1.0/24") == devices
    ]


@pytest.mark.kernel
def test_links_tell_how_they_failed_and_at_which_rate_they_run(heard: Heard) -> None:
    net = heard.stream.network
    net.fail("h0-w0", silent=True, only_to="h0")
    assert heard.await_("link", link="h0-w0", state="silent")["deaf"] == "h0"
    net.restore("h0-w0")
    assert "deaf" not in heard.await_("link", link="h0-w0", state="up")
    net.fail("h5")
    heard.await_("link", link="h5-w1", state="down")
    heard.await_("routes", node="h5", count=0)  # which went with its devices, and nobody told
    net.restore("h5")
    heard.await_("link", link="h5-w1", state="up")
    set_rate(net, "h0-h3", 5 * Mbps)
    assert heard.await_("link", link="h0-h3", rate_bps=5 * Mbps)["state"] == "up"
    late = {one["link"]: one for one in told_at_first(net) if one["event"] == "link"}
    assert late.keys() == {"h0-h3"}, "who comes later is told what is not as it came up"
    assert late["h0-h3"]["rate_bps"] == 5 * Mbps


def told_at_first(net: RunningNetwork) -> list[Event]:
    stream = EventStream(net, pairs=0)
    events = stream.first()
    stream.close()
    return events


@pytest.mark.kernel
def test_pairs_that_are_cut_off_are_told_and_so_is_the_death_of_a_daemon(heard: Heard) -> None:
    net = heard.stream.network
    heard.stream.look()
    control.kill(net.run.directory, "h11")
    wait_until(
        "h11",
        lambda: [
            e for e in heard.of("daemons") if e["daemons"].get("h11", {"pid": 1})["pid"] is None
        ],
    )
    net.fail("h0-w0", silent=True)
    net.fail("h0-h3", silent=True)
    begun = heard.await_("outage", state="begun", **{"from": "h0"})
    failed = heard.await_("link", link="h0-w0", state="silent")
    assert begun["at_s"] < failed["at_s"] + 1
    net.restore("h0-w0")
    net.restore("h0-h3")
    over = heard.await_("outage", state="over", **{"from": "h0"})
    assert over["lasted_s"] == pytest.approx(over["at_s"] - begun["at_s"], abs=1e-5)
    assert over["lost"] >= 4


@pytest.mark.kernel
def test_the_program_prints_json_and_ends_with_the_run(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network("star:n=2", scheme="ecmp")
    weft = [sys.executable, "-m", "weft.experiments.cli.cli"]
    process = subprocess.Popen(
        [*weft, "events", "--run", net.run.id, "--pairs", "1"], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout
    first = json.loads(process.stdout.readline())
    assert (first["event"], first["run"], first["version"]) == ("network", net.run.id, 1)
    assert [node["node"] for node in first["nodes"]] == ["h0", "h1", "r0"]
    assert first["links"][1] == {
        **{
            "link": "h1-r0",
            "ends": ["h1", "r0"],
            "level": 0,
            "rate_bps": 20 * Mbps,
            "queue_packets": 250,
        }
    }
    for line in process.stdout:
        if json.loads(line)["event"] == "load":
            break
    net.down()
    process.stdout.close()
    assert process.wait(10) == 0


@pytest.mark.kernel
def test_ctrl_c_and_a_reader_that_goes_away_end_it_in_silence(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network("star:n=2", scheme="ecmp")
    weft = [sys.executable, "-m", "weft.experiments.cli.cli", "events", "--run", net.run.id]
    for status, end in (
        (130, lambda p: p.send_signal(signal.SIGINT)),
        (141, lambda p: p.stdout.close()),
    ):
        process = subprocess.Popen(weft, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        end(process)
        assert process.wait(20) == status
        assert process.stderr.read() in (b"", b"weft: interrupted\n")
        process.stderr.close()
        process.stdout.close()


def test_numbers_out_of_range_are_refused() -> None:
    for updates, pairs, word in (
        (0, 1, "updates"),
        (101, 1, "updates"),
        (10, -1, "pairs"),
        (10, 257, "pairs"),
    ):
        with pytest.raises(ValueError, match=word):
            require(updates, pairs)
