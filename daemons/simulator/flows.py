"""Flows between hosts of a switch fabric, each on the path that its packets would take now: what
switches that look at their flows see.

A flow sends all the time.  Its packets take no time, so that where it has moved is seen at the next
look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from weft.daemons.core.actions import FiveTuple, Hop
from weft.daemons.core.events import FlowsSeen, SeenFlow
from weft.daemons.routing.selection import below, flow_hash
from weft.daemons.simulator import packet_walk
from weft.daemons.simulator.capabilities import SimulatedFlowPlacements
from weft.daemons.simulator.node import Node
from weft.daemons.simulator.packet_walk import PacketWalk
from weft.daemons.simulator.wires import Wires

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

TCP = 6


class Flows:
    """The flows in a network of these nodes; none at first."""

    def __init__(self, topology: Topology, wires: Wires, nodes: Mapping[int, Node]) -> None:
        self._topology, self._wires, self._nodes = topology, wires, nodes
        self._live: dict[FiveTuple, tuple[int, int]] = {}

    def begin(self, src: int, dst: int, ports: int = 0) -> FiveTuple:
        """Let host `src` send a flow to host `dst`, `ports` being those of TCP."""
        address = self._topology.naming.address
        flow = FiveTuple(address(src), address(dst), TCP, ports)
        self._live[flow] = src, dst
        self._share(flow)
        return flow

    def end(self, flow: FiveTuple) -> None:
        """Let it send no more."""
        del self._live[flow]

    def live(self) -> list[FiveTuple]:
        """Those that have begun and not ended."""
        return list(self._live)

    def path(self, flow: FiveTuple) -> PacketWalk:
        """Where packets of `flow` go now."""
        src, dst = self._live[flow]

        def placed(node: int) -> Hop | None:
            port = self._placed(node, flow)
            return None if port is None else Hop(port, self._topology.neighbours(node)[port][0])

        start = self._start(flow)
        return packet_walk.walk(
            self._topology, self._wires, self._nodes, src, dst, start, placed=placed
        )

    def loads(self) -> Counter[tuple[int, int]]:
        """Flows on each link between two switches, by the switch that sends and the one that
        hears."""
        found: Counter[tuple[int, int]] = Counter()
        for flow in self._live:
            found.update(pairwise(self.path(flow).path[1:]))
        return Counter(
            {ends: count for ends, count in found.items() if min(ends) >= self._topology.servers}
        )

    def look(self, number: int, now: float) -> Iterator[FlowsSeen]:
        """What the switch is told of its flows, if a period of its has begun since it looked
        last."""
        node = self._nodes[number]
        if not any(isinstance(each, SimulatedFlowPlacements) for each in node.capabilities):
            return
        held = self._placements(number)
        held.now = now
        turn = held.config.turn(now)
        if turn != held.turn:
            held.turn = turn
            yield FlowsSeen(tuple(self._seen(number, held, now)))

    def _start(self, flow: FiveTuple) -> int:
        """Which of its leaf's hops `flow` takes by itself, modulo how many there are."""
        src, _ = self._live[flow]
        leaf = self._at(src)
        if not self._nodes[leaf].config.options["start"]:
            return src - self._topology.neighbours(leaf)[0][0]  # hosts are on the first ports
        count = len(self._nodes[leaf].fib.lookup(flow.destination)) or 1
        return below(flow_hash(leaf, *flow[:2], flow.ports, flow.protocol), count)

    def _share(self, flow: FiveTuple) -> None:
        """Where flows to a destination go together, the first of a leaf tells where."""
        src, dst = self._live[flow]
        leaf = self._at(src)
        hops = self._nodes[leaf].fib.lookup(flow.destination)
        held = self._nodes[leaf].capability(SimulatedFlowPlacements) if hops else None
        if held and held.config.by_destination and self._at(dst) != leaf:
            held.shared.setdefault(flow.destination, hops[self._start(flow) % len(hops)].port)

    def _placed(self, leaf: int, flow: FiveTuple) -> int | None:
        """The port at `leaf`, whose host sends it, that `flow` was given, or that it shares with
        those to the same destination; None if it goes by its own start."""
        held = self._placements(leaf)
        port, _ = held.ports.get(flow, (None, 0.0))
        if port is not None or not held.config.by_destination:
            return port
        return held.shared.get(flow.destination)

    def _placements(self, node: int) -> SimulatedFlowPlacements:
        return self._nodes[node].capability(SimulatedFlowPlacements)

    def _seen(self, number: int, held: SimulatedFlowPlacements, now: float) -> Iterator[SeenFlow]:
        by_queue, p = (
            self._nodes[number].config.options["detect"],
            self._nodes[number].config.options["p"],
        )
        loads: Counter[tuple[int, int]] = self.loads() if by_queue else Counter()
        held.ports = {flow: entry for flow, entry in held.ports.items() if flow in self._live}
        for flow, (src, dst) in self._live.items():
            if number not in (self._at(src), self._at(dst)) and not by_queue:
                continue
            path = self.path(flow).path
            onward = dict(pairwise(path)).get(number)
            queued = loads[number, onward] > p if onward is not None else False
            if number == self._at(src):
                # Whoever is in the table stays where it is, whatever becomes of its route.
                if (
                    flow not in held.ports
                    and onward is not None
                    and onward >= self._topology.servers
                ):
                    held.ports[flow] = self._port(number, onward), -inf
                if flow in held.ports:
                    port, since_s = held.ports[flow]
                    yield SeenFlow(flow, port, 0.0, now - since_s, queued)
            elif onward is not None:
                port = self._port(number, path[path.index(number) - 1])
                before, since_s, _ = held.seen.get(flow, (port, -inf, now))
                held.seen[flow] = port, since_s if before == port else now, now
                yield SeenFlow(flow, port, 0.0, now - held.seen[flow][1], queued)
        together = {flow.destination for flow in held.ports}
        held.shared = {
            destination: port
            for destination, port in held.shared.items()
            if destination in together
        }
        yield from self._idle(held, now)

    def _idle(self, held: SimulatedFlowPlacements, now: float) -> Iterator[SeenFlow]:
        """Flows that came in until not long ago."""
        for flow, (port, since_s, last_s) in list(held.seen.items()):
            if now - last_s > held.config.idle_s:
                del held.seen[flow]
            elif last_s < now:
                yield SeenFlow(flow, port, now - last_s, now - since_s)

    def _at(self, host: int) -> int:
        return self._topology.neighbours(host)[0][0]

    def _port(self, node: int, peer: int) -> int:
        return next(
            port for port, peers in self._topology.neighbours(node).items() if peer in peers
        )
