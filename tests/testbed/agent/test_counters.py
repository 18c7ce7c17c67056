"""The board: what is written in one process is read in another."""

from __future__ import annotations

import multiprocessing

import pytest

from testbed.agent.counters import COLUMNS, LATENESS_US, WORDS, Board, Row


def write(file, node):
    board = Board(file)
    board.cells(node)[:] = memoryview(bytearray(8 * WORDS)).cast("Q")
    for number in range(WORDS):
        board.cells(node)[number] = 100 + number
    board.close()


def test_a_row_is_what_another_process_wrote_and_its_neighbours_are_untouched(tmp_path):
    board = Board(tmp_path / "board", create_nodes=3)
    assert len(board) == 3
    process = multiprocessing.get_context("spawn").Process(target=write, args=(tmp_path / "board", 1))
    process.start()
    process.join()
    assert process.exitcode == 0
    row = board.row(1)
    assert [getattr(row, name) for name in COLUMNS if name != "lateness"] == [100 + i for i in range(WORDS - 8)]
    assert row.lateness == tuple(100 + i for i in range(WORDS - 8, WORDS))
    assert len(row.lateness) == len(LATENESS_US) + 1
    nothing = Row(*[0] * (len(COLUMNS) - 1), lateness=(0,) * 8)
    assert board.row(0) == board.row(2) == nothing
    board.close()


def test_to_make_a_board_anew_forgets_what_was_on_it(tmp_path):
    write_to = Board(tmp_path / "board", create_nodes=2)
    write_to.cells(0)[0] = 1
    write_to.close()
    anew = Board(tmp_path / "board", create_nodes=4)
    assert len(anew) == 4
    assert anew.row(0).pid == 0
    anew.close()


def test_there_is_no_board_where_none_was_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        Board(tmp_path / "board")
