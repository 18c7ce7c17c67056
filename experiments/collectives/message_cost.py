"""Sizes and times of messages on links, and the least time of a schedule.

alpha-beta    the longest chain of messages and computations, where each message has the network for
              itself, or the links of the busiest host
cut           the messages between two parts of the network over the capacity between them

The cuts are those round each switch with its hosts, and those along the order of nodes in the
second eigenvector of the Laplacian matrix (Fiedler, 1973).  Any cut gives a lower bound.  Links
weigh up to a hundredth more there, at random, because a symmetric network has many such vectors.

As fluids, messages flow at their max-min fair rates along their paths.  Messages between two hosts
follow each other.  Rates are computed again whenever a message begins or ends.  A message has
arrived when its last frame has passed all links of its longest path.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from weft.daemons.core.compiled import compiled
from weft.daemons.routing import shortest
from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.engines.fluid import fair_rates
from weft.testbed.schedules.tasks import MessageStart, Progress, TaskGraph
from weft.topologies.core.topology import Topology

Matrix = Floats
EMPTY_BITS = 1.0  # left of a message that counts as sent


class FrameCost(NamedTuple):
    """Rate and delay of all links, and the frames of messages.

    header_bytes: of a frame, beside its payload.
    """

    rate_bps: int
    delay_ns: int
    frame_bytes: int
    header_bytes: int

    def frames_bytes(self, payload_bytes: int) -> int:
        """Return the bytes of all frames of a message."""
        frames = -(-payload_bytes // (self.frame_bytes - self.header_bytes))
        return payload_bytes + frames * self.header_bytes

    def sending_ns(self, frames_bytes: float) -> float:
        """Return how long a link takes to send that."""
        return 8e9 * frames_bytes / self.rate_bps

    def latency_ns(self, payload_bytes: int, hops: int) -> float:
        """Return the time of the last frame behind the first link of a path, and all delays."""
        last_bytes = min(self.frame_bytes, payload_bytes + self.header_bytes)
        return hops * self.delay_ns + (hops - 1) * self.sending_ns(last_bytes)


def alpha_beta_ns(topology: Topology, graph: TaskGraph, cost: FrameCost) -> float:
    """Return the larger of the longest chain and the time of the busiest host."""
    sources = {task.src for task in graph.tasks if task.size_bytes}
    hops = {src: shortest.distances(topology.adjacency, src) for src in sources}
    progress = Progress(graph)
    starts = progress.begin()
    while starts:
        start = starts.pop()
        task = graph.tasks[start.task]
        alone_ns = cost.sending_ns(cost.frames_bytes(task.size_bytes))
        alone_ns += cost.latency_ns(task.size_bytes, hops[task.src][task.dst])
        starts += progress.ended(start.task, start.time_ns + round(alone_ns))
    sent = frames_between(topology, graph, cost)
    degrees = np.bincount(topology.links[:, [0, 2]].ravel(), minlength=topology.nodes)
    busiest_bytes = (np.maximum(sent.sum(0), sent.sum(1)) / np.maximum(degrees, 1)).max()
    return max(max(progress.end_ns), cost.sending_ns(busiest_bytes))


def cut_ns(topology: Topology, graph: TaskGraph, cost: FrameCost) -> float:
    """Return the time of the messages across the worst cut."""
    sent = frames_between(topology, graph, cost)
    links = np.zeros_like(sent)
    np.add.at(links, (topology.links[:, 0], topology.links[:, 2]), 1.0)
    links += links.T
    weights = links * (1 + 0.01 * np.random.default_rng(0).random(links.shape))
    weights += weights.T
    laplacian = np.diag(weights.sum(0)) - weights
    order = np.argsort(np.linalg.eigh(laplacian)[1][:, 1], kind="stable")
    ordered = np.ix_(order, order)
    return cost.sending_ns(
        max(worst_prefix(sent[ordered], links[ordered]), worst_switch(topology, sent, links))
    )


def worst_switch(topology: Topology, sent: Matrix, links: Matrix) -> float:
    """Return the most bytes for each link between a switch with its hosts and the others."""
    most = 0.0
    for switch in range(topology.servers, topology.nodes):
        hosts = [peer for _, peer, *_ in topology.ports(switch) if peer < topology.servers]
        inside = np.array([switch, *hosts])
        beside = np.setdiff1d(np.arange(topology.nodes), inside)
        out, back = np.ix_(inside, beside), np.ix_(beside, inside)
        if uplinks := links[out].sum():
            most = max(most, float(max(sent[out].sum(), sent[back].sum()) / uplinks))
    return most


def worst_prefix(sent: Matrix, links: Matrix) -> float:
    """Return the most bytes for each link between the first nodes and the others, in order."""
    most = 0.0
    for forward in (sent, sent.T):
        bytes_over, links_over = across(forward), across(links)
        joined = links_over > 0
        most = max(most, float((bytes_over[joined] / links_over[joined]).max(initial=0.0)))
    return most


def across(weights: Matrix) -> Floats:
    """Return the sum of weights[i, j], i < k <= j, for k = 1 .. nodes - 1."""
    rows, inside = weights.sum(1).cumsum(), weights.cumsum(0).cumsum(1).diagonal()
    over: Floats = (rows - inside)[:-1]
    return over


def frames_between(topology: Topology, graph: TaskGraph, cost: FrameCost) -> Matrix:
    """Return the bytes of frames between each two nodes."""
    sent = np.zeros((topology.nodes, topology.nodes))
    for task in graph.tasks:
        if task.size_bytes:
            sent[task.src, task.dst] += cost.frames_bytes(task.size_bytes)
    return sent


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
