"""Logs and pings as events, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.testbed.node_daemon.control_socket import Log
from weft.testbed.observe import daemon_changes
from weft.testbed.observe.daemon_changes import LogLines, neighbour
from weft.testbed.observe.live_outages import LOST, LiveOutages, PingedPair, spread


def test_lines_are_told_whole_once_and_in_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_changes, "LOOK_S", 0.0)
    first, second = (tmp_path / f"{name}.log" for name in ("h0", "h1"))
    first.write_text("2024-05-17T09:30:00.000250 1.0 old\n")
    logs = LogLines(tmp_path)
    assert logs.events() == []
    with first.open("a") as file:
        file.write(
            "2024-05-17T09:30:00.000250 3.5 routes: a "
            "b\nTraceback:\n2024-05-17T09:30:00.000250 4.5 hal"
        )
    second.write_text(
        "2024-05-17T09:30:00.000250 2.5 port 1: neighbour h4 down: silent for 93 ms\n"
    )
    found = [
        (event["event"], event["at_s"], event["node"], event.get("text")) for event in logs.events()
    ]
    assert found == [
        ("neighbour", 2.5, "h1", None),
        ("log", 2.5, "h1", "port 1: neighbour h4 down: silent for 93 ms"),
        ("log", 3.5, "h0", "routes: a b"),
        ("log", 3.5, "h0", "Traceback:"),
    ]
    with first.open("a") as file:
        file.write("f a line\n")
    assert [event["text"] for event in logs.events()] == ["half a line"]
    assert logs.events() == []


def test_a_flood_of_lines_is_cut_and_says_so_but_no_neighbour_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_changes, "LOOK_S", 0.0)
    logs = LogLines(tmp_path)
    lines = ["port 0: neighbour h2 up: hears us", *["x"] * daemon_changes.MOST_LINES, "last"]
    (tmp_path / "h0.log").write_text("".join(f"now {i}.0 {text}\n" for i, text in enumerate(lines)))
    found = logs.events()
    assert (found[0]["event"], found[0]["neighbour"], found[0]["port"]) == ("neighbour", "h2", 0)
    assert found[1]["text"] == "2 lines left out"
    assert len(found) == 2 + daemon_changes.MOST_LINES
    assert found[-1]["text"] == "last"


def test_what_a_daemon_writes_is_what_is_understood(tmp_path: Path) -> None:
    log = Log(tmp_path, "h0")
    log.write("port 12: neighbour e0.1 down: carrier is down")
    log.close()
    line = (tmp_path / "log" / "h0.log").read_text()
    (told,) = daemon_changes._lines("h0", line, 0.0)
    event = neighbour(told)
    assert event
    assert (event["port"], event["neighbour"], event["state"], event["why"]) == (
        12,
        "e0.1",
        "down",
        "carrier is down",
    )
    assert event["at_s"] == pytest.approx(float(line.split()[1]))


@pytest.mark.parametrize(("servers", "count"), [(1, 4), (2, 4), (3, 3), (20, 16), (272, 16)])
def test_pairs_have_two_ends_and_different_sources(servers: int, count: int) -> None:
    pairs = spread(servers, count)
    assert len(pairs) == (min(servers, count) if servers > 1 else 0)
    assert all(src != dst and max(src, dst) < servers for src, dst in pairs)
    assert len({src for src, _ in pairs}) == len(pairs)


class Naming:
    class topology:
        class naming:
            name = staticmethod("h{}".format)


def test_an_outage_is_told_when_pings_in_a_row_are_lost_and_a_shorter_one_when_it_is_over() -> None:
    pings = object.__new__(LiveOutages)
    pair = PingedPair(0, 9, None, answered_s=1.0)  # type: ignore[arg-type]
    pings._net, pings._pairs = Naming, [pair]  # type: ignore[assignment]
    pair.sent = 1
    assert pings._answered(pair, 1, 1.01) == []
    pair.sent = 3  # the second is lost
    assert pings._begun() == []
    (short,) = pings._answered(pair, 3, 1.11)
    assert (short["state"], short["lost"], short["lasted_s"], short["at_s"]) == (
        "over",
        1,
        0.1,
        1.11,
    )
    pair.sent = 3 + LOST
    (begun,) = pings._begun()
    assert (begun["state"], begun["at_s"], begun["from"], begun["to"]) == (
        "begun",
        1.11,
        "h0",
        "h9",
    )
    assert pings._begun() == [], "told once"
    pair.sent += 10
    (over,) = pings._answered(pair, pair.sent, 2.11)
    assert (over["state"], over["lost"], over["lasted_s"]) == ("over", LOST + 9, 1.0)
    assert pings._begun() == []
