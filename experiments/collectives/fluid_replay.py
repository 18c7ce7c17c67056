"""Replay of tasks as fluids: each message flows at its max-min fair rate along its paths.

Messages between two hosts follow each other.  Rates are computed again whenever a message begins or
ends.  A message has arrived when its last frame has passed all links of its longest path.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from weft.daemons.core.compiled import compiled
from weft.experiments.collectives.message_cost import FrameCost
from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.engines.fluid import fair_rates
from weft.testbed.schedules.task_graph import MessageStart, Progress, TaskGraph

EMPTY_BITS = 1.0  # left of a message that counts as sent


class FluidPath(NamedTuple):
    """Channels of the messages between two hosts.

    weights: fraction of a message on each channel.
    hops: links of the longest path.
    """

    channels: Ints
    weights: Floats
    hops: int


class FluidUse(NamedTuple):
    """Channels of each flow and its fraction on each, shape (flows, most channels).

    lengths: number of channels of each flow.
    """

    channels: Ints
    weights: Floats
    lengths: Ints

    @classmethod
    def of(cls, paths: list[FluidPath]) -> FluidUse:
        """Return the use by flows on `paths`."""
        lengths = np.array([len(path.channels) for path in paths], dtype=np.int64)
        shape = len(paths), lengths.max(initial=0)
        use = cls(np.zeros(shape, dtype=np.int64), np.zeros(shape), lengths)
        for flow, path in enumerate(paths):
            use.channels[flow, : lengths[flow]] = path.channels
            use.weights[flow, : lengths[flow]] = path.weights
        return use

    def load(self, amounts: Floats, channels: int) -> Floats:
        """Return the sum of the flows' `amounts` on each of so many channels."""
        loads = self.weights * amounts[:, None]
        return np.asarray(np.bincount(self.channels.ravel(), loads.ravel(), channels), float)

    def rates(self, channels: int) -> Floats:
        """Return the max-min fair rate of each flow, as a fraction of a channel's."""
        rates = np.zeros(len(self.lengths))
        demand = self.load(np.ones(len(rates)), channels)
        flows = np.arange(len(rates))
        compiled(fair_rates)(flows, self.channels, self.lengths, self.weights, demand, 1.0, rates)
        return rates


class FluidReplay:
    """Messages under way, and those that wait for them.

    path: (src, dst) -> path of its messages.
    bits: that each channel has carried.
    """

    def __init__(
        self, path: Callable[[int, int], FluidPath], channels: int, cost: FrameCost
    ) -> None:
        self.path = path
        self.cost = cost
        self.bits = np.zeros(channels)
        self.time_ns = 0.0
        self.pending: list[MessageStart] = []
        self.arriving: list[tuple[int, int]] = []
        self.queues: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        self.under_way: dict[tuple[int, int], float] = {}
        self.rates_bps: Floats = np.zeros(0)
        self.use = FluidUse.of([])

    def run(self, graph: TaskGraph, deadline_ns: int, mark: Callable[[], None]) -> Progress:
        """Return the progress at the end, or at `deadline_ns`; see Progress for `mark`."""
        progress = Progress(graph, mark)
        self.wait(progress.begin())
        while self.under_way or self.pending or self.arriving:
            next_ns = self.next_ns()
            if next_ns > deadline_ns:
                break
            changed = self.flow_until(next_ns, graph)
            while self.arriving and self.arriving[0][0] <= self.time_ns:
                end_ns, task = heapq.heappop(self.arriving)
                self.wait(progress.ended(task, end_ns))
            if self.begin_due(graph) or changed:
                self.share()
        return progress

    def wait(self, starts: Iterable[MessageStart]) -> None:
        for start in starts:
            heapq.heappush(self.pending, start)

    def next_ns(self) -> float:
        """Return the time of the next beginning, end or arrival."""
        times_ns = [float(part[0][0]) for part in (self.pending, self.arriving) if part]
        if self.under_way:
            left_bits = np.array(list(self.under_way.values()))
            times_ns.append(self.time_ns + 1e9 * float((left_bits / self.rates_bps).min()))
        return max(self.time_ns, min(times_ns))

    def flow_until(self, time_ns: float, graph: TaskGraph) -> bool:
        """Let messages flow; return whether any has been sent."""
        sent_bits = self.rates_bps * ((time_ns - self.time_ns) / 1e9)
        self.time_ns = time_ns
        self.bits += self.use.load(sent_bits, len(self.bits))
        ended = []
        for ends, bits in zip(self.under_way, sent_bits.tolist(), strict=True):
            self.under_way[ends] -= bits
            if self.under_way[ends] <= EMPTY_BITS:
                ended.append(ends)
        for ends in ended:
            task = self.queues[ends].popleft()
            del self.under_way[ends]
            latency_ns = self.cost.latency_ns(graph.tasks[task].size_bytes, self.path(*ends).hops)
            heapq.heappush(self.arriving, (round(time_ns + latency_ns), task))
            self.begin(ends, graph)
        return bool(ended)

    def begin_due(self, graph: TaskGraph) -> bool:
        """Begin the messages that are due; return whether there was any."""
        before = len(self.under_way)
        while self.pending and self.pending[0].time_ns <= self.time_ns:
            number = heapq.heappop(self.pending).task
            task = graph.tasks[number]
            self.queues[task.src, task.dst].append(number)
            self.begin((task.src, task.dst), graph)
        return len(self.under_way) > before

    def begin(self, ends: tuple[int, int], graph: TaskGraph) -> None:
        """Begin the next message between two hosts, unless one is under way."""
        if self.queues[ends] and ends not in self.under_way:
            task = graph.tasks[self.queues[ends][0]]
            self.under_way[ends] = 8.0 * self.cost.frames_bytes(task.size_bytes)

    def share(self) -> None:
        """Compute the rate of each message under way."""
        self.use = FluidUse.of([self.path(*ends) for ends in self.under_way])
        self.rates_bps = self.use.rates(len(self.bits)) * self.cost.rate_bps
