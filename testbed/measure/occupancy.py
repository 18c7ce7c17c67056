"""How long queues are: occupancy.bpf.c, which sees every packet come and go, for the length of a
`with`.

Exact, not sampled: 0.1 us for each packet in and out of a queue.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from weft.testbed.linux import clock, libbpf
from weft.testbed.runs.network_handle import NetworkHandle, ports

OBJECT = Path(__file__).with_name("occupancy.bpf.o")
LENGTHS = 256
QUEUE = f"=QII{LENGTHS}Q"  # struct queue


@dataclass(frozen=True)
class Occupancy:
    """One queue, or several together.

    spent_ns: the time for which it had each length, the last for that length and more.  longest: in
        packets.
    """

    spent_ns: tuple[int, ...]
    longest: int

    @property
    def mean_packets(self) -> float:
        """The average over time."""
        return sum(length * spent for length, spent in enumerate(self.spent_ns)) / max(
            1, sum(self.spent_ns)
        )

    @property
    def at_least(self) -> list[float]:
        """For each length the fraction of time for which the queue was at least that long."""
        total, found, left = max(1, sum(self.spent_ns)), [], sum(self.spent_ns)
        for spent in self.spent_ns:
            found.append(left / total)
            left -= spent
        return found


def together(many: Iterable[Occupancy]) -> Occupancy:
    """Several queues as one."""
    every = list(many)
    spent = tuple(sum(times) for times in zip(*(one.spent_ns for one in every), strict=True))
    return Occupancy(spent, max((one.longest for one in every), default=0))


class Occupancies:
    """Watches every queue of a network during its `with`; then `table` has them, by (node,
    port)."""

    def __init__(self, net: NetworkHandle) -> None:
        self.net = net
        self._stack = ExitStack()
        self.table: Mapping[tuple[int, int], Occupancy] = {}

    def __enter__(self) -> Occupancies:
        slot = self.net.identity.slot
        entries = {"queues": 1 + max(index & 0xFFFF for index in ports(self.net))}
        with ExitStack() as stack:
            self._object = stack.enter_context(
                libbpf.Object(OBJECT, constants=struct.pack("=I", slot), entries=entries)
            )
            self._queues = self._object.map("queues", "=I", QUEUE)
            self._began_ns = clock.monotonic_ns()
            self._object.attach("enqueue")
            self._object.attach("dequeue")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            self.table = self.read()

    def begin(self) -> None:
        """Forget what has been seen: only what comes from now on counts.

        What waits now is not counted until a packet of that queue comes or goes.
        """
        self._began_ns = clock.monotonic_ns()
        nothing = (0,) * (3 + LENGTHS)
        for index in ports(self.net):
            self._queues[index & 0xFFFF,] = nothing

    def read(self) -> dict[tuple[int, int], Occupancy]:
        """What has been seen; before its first event a queue was empty, and as it is now it has
        been since its last."""
        now = clock.monotonic_ns()
        found = {}
        for index, place in ports(self.net).items():
            since_ns, length, longest, *spent = self._queues[index & 0xFFFF,]
            spent[min(length, LENGTHS - 1)] += now - (since_ns or self._began_ns)
            spent[0] += now - self._began_ns - sum(spent)
            found[place] = Occupancy(tuple(spent), longest)
        return found
