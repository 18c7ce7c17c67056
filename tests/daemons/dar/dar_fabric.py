"""A simulated Clos network with DAR and flows in it, as several tests need it."""

from __future__ import annotations

from collections.abc import Callable

from weft.daemons.core.actions import FiveTuple, Send
from weft.daemons.dar import daemon
from weft.daemons.dar.daemon import Ear
from weft.daemons.simulator.simulator import Simulator
from weft.topologies import build
from weft.topologies.core.topology import Topology


class Fabric:
    """`spec` with DAR, converged; `n`, `r`, `m` as in the topology."""

    def __init__(self, spec: str, options: str = "", **more: object) -> None:
        self.topology: Topology = build(spec)
        self.simulator = Simulator(self.topology, f"dar:{options}" if options else "dar", **more)
        self.flows = self.simulator.flows
        radices = self.topology.naming.layout.radices
        self.r, self.n = radices
        self.m = self.topology.switches - self.r
        self.p = self.simulator.node(self.leaf(0)).config.options["p"]
        self.simulator.run_until_converged()

    def leaf(self, number: int) -> int:
        return self.topology.servers + number

    def spine(self, number: int) -> int:
        return self.topology.servers + self.r + number

    def link(self, leaf: int, spine: int) -> int:
        return self.topology.link_between(self.leaf(leaf), self.spine(spine))

    def status(self, node: int) -> dict:
        return self.simulator.status(node)

    def total(self, *keys: str) -> int:
        """A counter of all switches that have power."""
        found = 0
        for node in range(self.topology.servers, self.topology.nodes):
            value = self.status(node)
            for key in keys:
                value = value.get(key, {} if key != keys[-1] else 0) if value else 0
            found += value or 0
        return found

    def spine_of(self, flow: FiveTuple) -> int:
        """The spine by which it goes; ValueError if it does not arrive, or not by one spine."""
        walk = self.flows.path(flow)
        if walk.lost or len(walk.path) != 5:
            raise ValueError(f"{walk}")
        return walk.path[2] - self.spine(0)

    def worst(self) -> int:
        return max(self.flows.loads().values(), default=0)

    def settle(self, within_s: float = 2.0, step_s: float = 0.010) -> float:
        """Run until no link has more than p flows and say how long that took; TimeoutError if it
        does not come."""
        begin = self.simulator.now
        while self.worst() > self.p:
            if self.simulator.now > begin + within_s:
                raise TimeoutError(f"{self.flows.loads().most_common(4)} after {within_s} s")
            self.simulator.run_for(step_s)
        return self.simulator.now - begin

    def filter_ears(self, passes: Callable[[int, Ear], bool]) -> None:
        """Requests that a node sends are lost on the wire unless they pass."""
        wires = self.simulator._wires
        send = wires.send

        def filtered(node: int, sent: Send) -> None:
            ear = daemon.decode(sent.payload)
            if ear is None or passes(node, ear):
                send(node, sent)

        wires.send = filtered
