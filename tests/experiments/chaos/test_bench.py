"""The bench of many campaigns: each is carried out once, also if it was stopped meanwhile."""

import json
import socket
import sys

import pytest

from bench import chaos
from bench.floods import BATCH, Batches


def test_every_campaign_is_in_one_part():
    rounds = list(chaos.parts(["dr", "bfs"], 1000, 520, 12))
    for name in ("dr", "bfs"):
        seeds = [
            seed
            for parts in rounds
            for scheme, first, count, _ in parts
            for seed in range(first, first + count)
            if scheme == name
        ]
        assert seeds == [*range(1000, 1520)]
    # in turn, so that all have some when it is stopped
    assert [parts[0][0] for parts in rounds] == ["dr", "bfs"] * 3


def test_what_is_kept_is_not_done_again(tmp_path, monkeypatch, capsys):
    file = tmp_path / "kept.jsonl"
    file.write_text(json.dumps(["dr", 0, 25, 2, ["unlike: was wrong"]]) + '\n["dr", 25, 2')
    # the other was not written to its end
    assert chaos.kept(file) == {("dr", 0, 25, 2): ["unlike: was wrong"]}
    words = [
        "chaos",
        "--scheme",
        "dr",
        "--campaigns",
        "27",
        "--pairs",
        "2",
        "--jobs",
        "1",
        "--keep",
        str(file),
    ]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit, match="True"):
            chaos.main()
        assert chaos.kept(file) == {("dr", 0, 25, 2): ["unlike: was wrong"], ("dr", 25, 2, 2): []}
        assert "dr: 1 of 27 not as predicted" in capsys.readouterr().err
    assert len(file.read_text().splitlines()) == 2
    monkeypatch.setattr(sys, "argv", [word for word in words if word not in ("--keep", str(file))])
    with pytest.raises(SystemExit, match="False"):  # nothing is known of before
        chaos.main()


def test_errors_of_sending_are_raised_and_a_lack_of_room_is_counted(monkeypatch):
    monkeypatch.setattr("bench.floods.REST_S", 0.0)
    with pytest.raises(ValueError, match="batches of 100"):
        Batches(0, [b"x"])
    with pytest.raises(OSError, match="Bad file descriptor"):
        Batches(1 << 20, [b"x"] * BATCH).send()
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        near.setblocking(False)
        batches = Batches(near.fileno(), [b"x"] * BATCH)
        sent = sum(iter(batches.send, 0))  # until there is no room
        assert batches.full == 1
        far.setblocking(False)
        assert len([far.recv(1) for _ in range(sent)]) == sent
