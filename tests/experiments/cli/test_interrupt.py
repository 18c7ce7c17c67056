"""Ctrl-C while a command runs, also if its clean-up fails."""

from __future__ import annotations

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
