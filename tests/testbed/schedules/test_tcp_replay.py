"""Counts of a replay over TCP, without a network."""

from types import SimpleNamespace

import pytest

from weft.testbed.schedules import task_replay


@pytest.mark.parametrize("again", [(), (3,), (1, 0, 6)])
def test_segments_sent_again_are_added_up_over_connections(monkeypatch, again):
    replay = task_replay.TcpReplay(None, "cubic")
    replay._connections = {(0, n): SimpleNamespace(sender=n) for n in range(len(again))}
    monkeypatch.setattr(
        task_replay, "tcp_info", lambda sender: SimpleNamespace(retransmissions=again[sender])
    )
    assert replay.repeated_packets() == sum(again)
