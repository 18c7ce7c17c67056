"""Counters: what is written in one process is read in another."""

from __future__ import annotations

import multiprocessing

import pytest

from weft.testbed.node_daemon.counters import (
    COLUMNS,
    LATENESS_US,
    WORDS,
    CounterRow,
    DaemonCounters,
    NodeCounters,
)


def write(file, node):
    counters = DaemonCounters(file)
    counters.cells(node)[:] = memoryview(bytearray(8 * WORDS)).cast("Q")
    for number in range(WORDS):
        counters.cells(node)[number] = 100 + number
    counters.close()


def test_a_row_is_what_another_process_wrote_and_its_neighbours_are_untouched(tmp_path):
    counters = DaemonCounters(tmp_path / "counters", create_nodes=3)
    assert len(counters) == 3
    process = multiprocessing.get_context("spawn").Process(
        target=write, args=(tmp_path / "counters", 1)
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    row = counters.row(1)
    assert [getattr(row, name) for name in COLUMNS if name != "lateness"] == [
        100 + i for i in range(WORDS - 8)
    ]
    assert row.lateness == tuple(100 + i for i in range(WORDS - 8, WORDS))
    assert len(row.lateness) == len(LATENESS_US) + 1
    nothing = CounterRow(*[0] * (len(COLUMNS) - 1), lateness=(0,) * 8)
    assert counters.row(0) == counters.row(2) == nothing
    counters.close()


def test_neighbours_are_counted_with_the_times_of_changes_and_of_losses(tmp_path):
    """(Expected, up, lost) neighbours, routes, and seconds; times are in ns."""
    counters = DaemonCounters(tmp_path / "counters", create_nodes=1)
    cells = counters.cells(0)
    own = NodeCounters(cells, interval_s=0.01)
    own.show((4, 2, 0), 7, now=1.5)
    first = counters.row(0)
    assert (first.neighbours_expected, first.neighbours_up, first.routes) == (4, 2, 7)
    assert (first.changed_ns, first.losses, first.lost_ns) == (1_500_000_000, 0, 0)
    own.show((4, 1, 1), 7, now=2.25)
    own.show((4, 1, 1), 6, now=3.0)
    last = counters.row(0)
    assert (last.changed_ns, last.losses, last.lost_ns) == (3_000_000_000, 1, 2_250_000_000)
    cells.release()
    counters.close()


def test_to_make_counters_anew_forgets_what_was_in_them(tmp_path):
    write_to = DaemonCounters(tmp_path / "counters", create_nodes=2)
    write_to.cells(0)[0] = 1
    write_to.close()
    anew = DaemonCounters(tmp_path / "counters", create_nodes=40)
    assert len(anew) == 40
    assert anew.row(0).pid == 0
    anew.close()


def test_there_are_no_counters_where_none_were_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        DaemonCounters(tmp_path / "counters")
