"""Sizes and times of messages on links, and the least time of a schedule.

alpha-beta    the longest chain of messages and computations, where each message has the network for
              itself, or the links of the busiest host
cut           the messages between two parts of the network over the capacity between them

The cuts are those round each switch with its hosts, and those along the order of nodes in the
second eigenvector of the Laplacian matrix (Fiedler, 1973).  Any cut gives a lower bound.  Links
weigh up to a hundredth more there, at random, because a symmetric network has many such vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.daemons.routing import shortest
from weft.experiments.engines.arrays import Floats
from weft.testbed.schedules.task_graph import Progress, TaskGraph
from weft.topologies.core.topology import Topology

Matrix = Floats


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
