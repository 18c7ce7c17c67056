"""Replay of tasks on the simulated network of packets."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.daemons.transport.results import Delivered
from weft.testbed.packets.network import PacketNetwork
from weft.testbed.schedules.task_graph import MessageStart, Progress, TaskGraph


def replay(
    net: PacketNetwork,
    graph: TaskGraph,
    deadline_ns: int,
    mark: Callable[[], None] = lambda: None,
) -> Progress:
    """Return the progress at `deadline_ns`, see Progress for `mark`.

    Messages between two hosts share a connection.
    """
    progress = Progress(graph, mark)
    connections: dict[tuple[int, int], int] = {}

    def send(starts: Iterable[MessageStart]) -> None:
        for start in sorted(starts):
            task = graph.tasks[start.task]
            ends = task.src, task.dst
            number = net.send(
                start.time_ns, *ends, start.task, task.size_bytes, connections.get(ends, -1)
            )
            connections.setdefault(ends, number)

    def arrived(delivered: Delivered) -> None:
        send(progress.ended(delivered.flow, delivered.at_ns))

    send(progress.begin())
    net.run_until(deadline_ns, arrived)
    return progress
