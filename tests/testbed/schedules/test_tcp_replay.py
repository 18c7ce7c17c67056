"""A replay over TCP on the loopback, without a network."""

import socket
from types import SimpleNamespace

import pytest

from weft.testbed.schedules import goal, tasks
from weft.testbed.schedules.collectives import collective
from weft.testbed.schedules.tasks import NEVER, TaskGraph


@pytest.fixture
def loopback(monkeypatch):
    """Return connections of hosts as those of this machine to itself, each opened once."""
    opened = []

    def connect(net, src, dst, control):
        assert (src, dst) not in opened
        opened.append((src, dst))
        with socket.create_server(("127.0.0.1", 0)) as server:
            sender = socket.create_connection(server.getsockname())
            receiver, _ = server.accept()
        sender.setblocking(False)
        receiver.setblocking(False)
        return sender, receiver

    monkeypatch.setattr(tasks, "connect", connect)
    monkeypatch.setattr(tasks, "require_rate", lambda net, what: None)
    return SimpleNamespace(topology=SimpleNamespace(nodes=8))


@pytest.mark.parametrize("size_bytes", [4, 20_000_003])
def test_a_ring_ends_with_every_byte_in_the_order_of_its_steps(loopback, size_bytes):
    """The longer one is more than the kernel takes of a message at once."""
    graph = TaskGraph(collective("all-reduce", "ring", 4, size_bytes), range(4), 2)
    left = []
    replay = tasks.TcpReplay(loopback, "cubic")
    progress = replay.run(graph, 60.0, lambda: left.append(replay._progress.left))
    assert progress.left == 0
    assert left[-1] == 0 < left[0]
    assert len(left) == 2
    for task, begin_ns, end_ns in zip(graph.tasks, progress.begin_ns, progress.end_ns, strict=True):
        assert begin_ns <= end_ns
        for later in task.after_end:
            assert progress.begin_ns[later] >= end_ns
    for connection in replay._connections.values():
        assert (connection.unsent_bytes, connection.unread_bytes) == (0, 0)
        assert not connection.unread


def test_computation_takes_its_time_and_a_deadline_ends_what_waits(loopback):
    """Rank 1 answers after 50 ms, and then computes for longer than the replay lasts."""
    text = """num_ranks 2
rank 0 {
a: send 8b to 1 tag 1
b: recv 8b from 1 tag 2
c: recv 8b from 1 tag 3
}
rank 1 {
a: recv 8b from 0 tag 1
b: calc 50000000
c: send 8b to 0 tag 2
d: calc 9000000000
e: send 8b to 0 tag 3
b requires a
c requires b
d requires c
e requires d
}
"""
    graph = TaskGraph(goal.parsed(text), range(2))
    progress = tasks.TcpReplay(loopback, "cubic").run(graph, 1.5, lambda: None)
    ends = {
        task.operation: end_ns
        for task, end_ns in zip(graph.tasks, progress.end_ns, strict=True)
        if task.size_bytes
    }
    first, answer, never = (ends[place] for place in ((0, 0), (1, 2), (1, 4)))
    assert first >= 0
    assert answer - first >= 50_000_000
    assert never == NEVER


@pytest.mark.parametrize("again", [(), (3,), (1, 0, 6)])
def test_segments_sent_again_are_added_up_over_connections(monkeypatch, again):
    replay = tasks.TcpReplay(None, "cubic")
    replay._connections = {(0, n): SimpleNamespace(sender=n) for n in range(len(again))}
    monkeypatch.setattr(
        tasks, "tcp_info", lambda sender: SimpleNamespace(retransmissions=again[sender])
    )
    assert replay.repeated_packets() == sum(again)
