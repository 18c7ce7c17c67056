"""Packets of a flood are sent in batches."""

import socket

import pytest

from bench.floods import BATCH, Batches


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
