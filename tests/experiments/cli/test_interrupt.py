"""Ctrl-C while a command runs, also if its clean-up fails, and while it cleans up."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from weft.experiments.cli import cli


@pytest.mark.parametrize(
    ("stop", "status"), [(KeyboardInterrupt(), 130), (cli.Terminated(), 143), (None, 1)]
)
def test_an_error_of_the_clean_up_hides_no_signal(monkeypatch, capsys, stop, status) -> None:
    def command(words: list[str]) -> int:
        try:
            if stop:
                raise stop
        finally:
            raise OSError("the store is locked")

    monkeypatch.setattr(cli, "carry_out", command)
    assert cli.main([]) == status
    words = {130: "interrupted", 143: "terminated", 1: "the store is locked"}
    assert capsys.readouterr().err == f"weft: {words[status]}\n"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_a_second_signal_does_not_break_the_clean_up_off(monkeypatch, number, status) -> None:
    cleaned = []

    def command(words: list[str]) -> int:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            cleaned.append(True)
        return 0

    monkeypatch.setattr(cli, "carry_out", command)
    assert cli.main([]) == status
    assert cleaned


def test_a_signal_after_one_that_the_command_has_dealt_with_ends_it(monkeypatch) -> None:
    """As at the prompt of Mininet's command line, where Ctrl-C begins a new line."""

    def command(words: list[str]) -> int:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setattr(cli, "carry_out", command)
    assert cli.main([]) == 143


def test_a_program_in_the_background_of_a_shell_ignores_sigint(monkeypatch) -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)

    def command(words: list[str]) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr(cli, "carry_out", command)
    try:
        assert cli.main([]) == 0
    finally:
        signal.signal(signal.SIGINT, previous)
