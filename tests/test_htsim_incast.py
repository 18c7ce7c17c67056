"""Rows of another simulator, from what it prints."""

import subprocess
from pathlib import Path

import pytest

from tools import htsim_incast

OUTPUT = """Flow ndp_2_0 flowId 2 finished at 71.5 total messages 1
Flow ndp_1_0 flowId 1 finished at 98.25 total messages 1
Flow ndp_3_0 flowId 3 finished at 64 total messages 1
New: 60 Rtx: 17 RTS: 0 Bounced: 0
"""


def test_an_incast_ends_with_its_last_message(monkeypatch):
    matrices = []

    def run(words, **_):
        matrices.append(Path(words[words.index("-tm") + 1]).read_text(encoding="utf-8"))
        return subprocess.CompletedProcess(words, 0, OUTPUT)

    monkeypatch.setattr(htsim_incast.subprocess, "run", run)
    row = htsim_incast.incast(Path("/elsewhere"), senders=3, message_kb=90, seed=4)
    assert (row["last_ms"], row["retransmissions"], row["seed"]) == (0.09825, 17, 4)
    assert matrices[0].splitlines()[1:] == [
        "Connections 3",
        *[f"{n}->0 id {n} start 0 size 90000" for n in (1, 2, 3)],
    ]
    with pytest.raises(RuntimeError, match=r"1 messages did not end: \./htsim_ndp -nodes 16"):
        htsim_incast.incast(Path("/elsewhere"), senders=4, message_kb=90, seed=4)
