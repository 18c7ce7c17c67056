"""Logs and pings as events, without a network."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.daemons.core.actions import NeighbourNote
from weft.testbed.node_daemon.daemon_files import NEIGHBOUR_FILE, NeighbourFile
from weft.testbed.observe import changes
from weft.testbed.observe.changes import DaemonLogs
from weft.testbed.observe.event_stream import LOST, LiveOutages, PingedPair, spread


@pytest.fixture
def always_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SCAN_INTERVAL_S", 0.0)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path


STAMP = "2024-05-17T09:30:00.000250"


@pytest.mark.usefixtures("always_scan")
def test_complete_lines_are_reported_once_in_order_of_time(tmp_path: Path) -> None:
    first, second = (tmp_path / f"{name}.log" for name in ("h0", "h1"))
    first.write_text(f"{STAMP} 1.0 old\n")
    logs = DaemonLogs(tmp_path)
    assert logs.events() == []
    with first.open("a") as file:
        file.write(f"{STAMP} 3.5 routes: a b\nTraceback:\n{STAMP} 4.5 hal")
    second.write_text(f"{STAMP} 2.5 converged\n")
    lines = [(event["at_s"], event["node"], event["text"]) for event in logs.events()]
    assert lines == [
        (2.5, "h1", "converged"),
        (3.5, "h0", "routes: a b"),
        (3.5, "h0", "Traceback:"),
    ]
    with first.open("a") as file:
        file.write("f a line\n")
    assert [event["text"] for event in logs.events()] == ["half a line"]
    assert logs.events() == []


DOWN = NeighbourNote("any words", 12, "e0.1", False, "carrier is down")


@pytest.mark.usefixtures("always_scan")
def test_a_change_of_a_neighbour_is_reported_from_data_not_from_words(run_folder: Path) -> None:
    daemon = NeighbourFile(run_folder, "h0")
    daemon.write(DOWN)
    logs = DaemonLogs(run_folder / "log")
    daemon.write(DOWN)
    other = NeighbourFile(run_folder, "h1")
    other.write(NeighbourNote("any words", 3, "h4", True, "hears us"))
    daemon.close()
    other.close()
    (run_folder / "log" / "h2.log").write_text(f"{STAMP} 2.5 port 1: neighbour h4 down: silent\n")
    *changes, line = logs.events()
    assert line["event"] == "log"
    times = [change.pop("at_s") for change in changes]
    assert times == sorted(times)
    assert changes == [
        {
            "event": "neighbour",
            "node": "h0",
            "port": 12,
            "neighbour": "e0.1",
            "state": "down",
            "why": "carrier is down",
        },
        {
            "event": "neighbour",
            "node": "h1",
            "port": 3,
            "neighbour": "h4",
            "state": "up",
            "why": "hears us",
        },
    ]
    assert logs.events() == []


@pytest.mark.usefixtures("always_scan")
def test_a_damaged_line_of_the_file_of_neighbours_is_skipped(run_folder: Path) -> None:
    logs = DaemonLogs(run_folder / "log")
    (run_folder / "log" / NEIGHBOUR_FILE).write_text('{"node": "h0", "po\n{"node": "h1"}\n')
    assert logs.events() == [{"event": "neighbour", "node": "h1"}]


@pytest.mark.usefixtures("always_scan")
def test_a_flood_of_lines_is_cut_and_no_neighbour_is_left_out(run_folder: Path) -> None:
    logs = DaemonLogs(run_folder / "log")
    daemon = NeighbourFile(run_folder, "h0")
    daemon.write(DOWN)
    daemon.close()
    lines = [*["x"] * (changes.MOST_LINES + 1), "last"]
    text = "".join(f"now {i}.0 {line}\n" for i, line in enumerate(lines))
    (run_folder / "log" / "h0.log").write_text(text)
    change, summary, *reported = logs.events()
    assert change["neighbour"] == "e0.1"
    assert summary["text"] == "2 lines left out"
    assert len(reported) == changes.MOST_LINES
    assert reported[-1]["text"] == "last"


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


@pytest.mark.parametrize(
    ("up", "dropping", "state", "deaf"),
    [
        ((True, True), (False, False), changes.UP, ""),
        ((True, True), (True, False), changes.SILENT, "h7"),
        ((True, True), (False, True), changes.SILENT, "h2"),
        ((True, True), (True, True), changes.SILENT, ""),
        ((False, True), (True, False), changes.DOWN, ""),
    ],
)
def test_a_silent_failure_names_the_end_that_drops_packets_if_there_is_one(
    up: tuple[bool, bool], dropping: tuple[bool, bool], state: str, deaf: str
) -> None:
    ends = {7: SimpleNamespace(ifindex=70), 2: SimpleNamespace(ifindex=20)}
    kernel = object.__new__(changes.KernelChanges)
    kernel._network = SimpleNamespace(  # type: ignore[assignment]
        both_ends=lambda link: [(node, 0, end) for node, end in ends.items()],
        plan=SimpleNamespace(names=[f"h{node}" for node in range(8)]),
    )
    kernel._ports = {
        end.ifindex: changes.WatchedPort(node, 3, *port, rate_bps=10 * node)
        for (node, end), port in zip(ends.items(), zip(up, dropping, strict=True), strict=True)
    }
    assert kernel._state(3) == (state, deaf, 20)
