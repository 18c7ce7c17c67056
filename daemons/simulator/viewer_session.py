"""A simulated network as its viewer sees it: requests in, events out, both as JSON.

Events and requests are those of docs/watching.md as far as the simulator has the same thing.  Two
events are its own.  `packets` lists what daemons sent: time, node, link, name of the message.
`pairs` has the number of pairs whose packets are lost, counted every LOOK_S.

The results depend on the topology, the scheme, the random numbers, and the requests with their
times; how the time is divided among calls of run() makes no difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from weft.daemons.core import message_registry, registry
from weft.daemons.core.actions import Action, NeighbourNote, Note, Send, SetRoute
from weft.daemons.core.contract import LinkDegraded
from weft.daemons.core.node_config import routers
from weft.daemons.routing import path_shares
from weft.daemons.simulator.node import Node
from weft.daemons.simulator.packet_walk import PacketWalk
from weft.daemons.simulator.simulator import START_SPREAD_S, Simulator
from weft.daemons.simulator.wires import Randomness, Wire
from weft.topologies.core.address import dotted
from weft.topologies.core.link import ALL_PPB, delay_us, loss_ppb
from weft.topologies.core.plain_topology import PlainTopology
from weft.topologies.core.topology import Topology

LOOK_S = 0.002
PING_S = 0.5  # between two packets of a pair
FLOWS_S = 1.0  # start of the flows whose ports daemons choose
MOST_PAIRS = 400
MOST_PACKETS = 1500  # reported by one call of run()
WIRE = Wire(jitter_s=5e-6)
HIDDEN, URGENT, ALL = range(3)  # packets to report
SessionEvent = dict[str, Any]


class ViewerSession:
    """Simulation of `topology` under `scheme`; time is in whole microseconds.

    Raises:
        ValueError: the scheme cannot route the network, or has no daemons.
    """

    def __init__(self, topology: Topology, scheme: str, random: Randomness) -> None:
        self._simulator = _simulator(topology, scheme, random)
        self._simulator.on_action = self._on_action
        self._topology = topology
        self._live = _plain(topology)  # with its failed links
        self._scheme, self._options = registry.scheme(scheme)
        self._name = topology.naming.name
        self._pairs = _pairs(topology.servers, random)
        self._link_at = _links_by_port(topology)
        self._states = dict.fromkeys(range(len(self._live.rows)), "up")
        self._altered: dict[int, Wire] = {}
        self._degraded: set[int] = set()
        self._events: list[SessionEvent] = [self._network_event(scheme)]
        self._packets: list[tuple[float, str, int, str]] = []
        self._reported = HIDDEN
        self._rows: dict[int, dict[str, Any]] = {}
        self._changed = set(routers(topology))  # nodes whose rows may have changed
        self._lost = -1
        self._version: tuple[object, ...] = ()
        self._looks = 0
        self._look()
        self._start_traffic(random)

    def run(self, until_us: int, packets: int) -> str:
        """Run until a time; return the events since the last call.

        Args:
            until_us: the time.
            packets: HIDDEN, URGENT (without routine ones) or ALL.
        """
        self._reported = packets
        self._simulator.run_until(until_us / 1e6)
        events, self._events = self._events, []
        for event in events:
            if event["event"] == "routes":
                event["count"] = self._routes(self._topology.naming.node(event["node"]))
        if rows := self._changed_rows():
            events.append({"event": "daemons", "at_s": self._simulator.now, "daemons": rows})
        if self._packets:
            events.append({"event": "packets", "packets": self._packets})
            self._packets = []
        return json.dumps(events)

    def do(self, request: str) -> str:
        """Carry out a request now; the reply has `error`, one line, if that fails."""
        arguments = json.loads(request)
        known = self._requests()
        action = known.get(arguments.pop("do", None))
        unknown = {"error": f"unknown request {request}; known are {', '.join(known)}"}
        try:
            reply = action(**arguments) if action else unknown
        except TypeError:
            reply = unknown
        except ValueError as error:
            reply = {"error": str(error)}
        self._version = ()  # a loss of power changes forwarding, and not the version
        self._count()
        return json.dumps(reply or {})

    def _requests(self) -> Mapping[str, Callable[..., SessionEvent | None]]:
        return {
            "fail": self._fail,
            "restore": self._restore,
            "degrade": self._degrade,
            "impair": self._impair,
            "link": self._link,
            "stop": self._stop,
            "restart": self._restart,
            "power": self._power,
            "path": self._path,
            "node": self._node,
        }

    def _start_traffic(self, random: Randomness) -> None:
        """Start flows or pings for daemons that act on the packets of their hosts."""
        router = self._first_router()
        if router.looks_at_flows:
            self._simulator.at(FLOWS_S, lambda: self._begin_flows(random))
        elif any(capability.rewrites for capability in router.capabilities):
            self._ping(0)

    def _network_event(self, scheme: str) -> SessionEvent:
        topology = self._topology
        switch = "crossbar" if topology.server_centric else "switch"
        return {
            "event": "network",
            "run": "simulation",
            "topology": topology.spec,
            "scheme": scheme,
            "sampled_pairs": len(self._pairs),
            "handles_degraded_links": self._scheme.handles_degraded_links,
            "nodes": [
                {
                    "node": self._name(node),
                    "label": topology.naming.label(node),
                    "kind": "server" if node < topology.servers else switch,
                    "address": self._address(node),
                }
                for node in range(topology.nodes)
            ],
            "links": [
                {
                    "link": topology.link_name(link),
                    "ends": [self._name(end) for end in topology.ends(link)[::2]],
                    "level": topology.link_level(link),
                }
                for link in self._states
            ],
        }

    def _address(self, node: int) -> str | None:
        if self._topology.is_crossbar(node):
            return None
        return dotted(self._topology.naming.address(node))

    def _add(self, kind: str, **values: Any) -> None:
        self._events.append({"event": kind, "at_s": self._simulator.now, **values})

    def _on_action(self, now: float, node: int, action: Action) -> None:
        if isinstance(action, Send):
            if self._reported > action.routine and len(self._packets) < MOST_PACKETS:
                kind = message_registry.BY_KIND[action.payload[2]].name
                link = self._link_at[node, action.port]
                self._packets.append((now, self._name(node), link, kind))
            return
        self._changed.add(node)
        if isinstance(action, SetRoute):
            self._add_route(self._name(node), now)
        if isinstance(action, Note):
            self._add("log", node=self._name(node), text=action.text)
        if isinstance(action, NeighbourNote):
            self._add(
                "neighbour",
                node=self._name(node),
                port=action.port,
                neighbour=action.neighbour,
                state="up" if action.up else "down",
                why=action.reason,
            )

    def _add_route(self, node: str, now: float) -> None:
        """Count a changed route in the last event, if that has the same node and time."""
        last = self._events[-1] if self._events else {}
        if (last.get("event"), last.get("node"), last.get("at_s")) == ("routes", node, now):
            last["changes"] += 1
        else:
            self._add("routes", node=node, changes=1)

    def _routes(self, node: int) -> int:
        return sum(1 for hops in self._simulator.routes(node).values() if hops)

    def _changed_rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows that have changed, by name; keep those without convergence to ask for."""
        rows = {}
        for node in sorted(self._changed):
            row = self._row(node)
            if self._rows.get(node) != row:
                self._rows[node] = rows[self._name(node)] = row
            if row["converged"] or row["pid"] is None:
                self._changed.discard(node)
        return rows

    def _row(self, number: int) -> dict[str, Any]:
        node = self._simulator.node(number)
        neighbours = self._simulator.status(number).get("neighbours", [])
        return {
            "pid": node.incarnation if node.protocol else None,
            "neighbours": sum(1 for neighbour in neighbours if neighbour["state"] == "up"),
            "of": len(neighbours),
            "routes": self._routes(number),
            "converged": bool(node.protocol and node.protocol.converged()),
        }

    def _look(self) -> None:
        self._count()
        self._looks += 1
        self._simulator.at(self._looks * LOOK_S, self._look)

    def _count(self) -> None:
        """Count the lost pairs, if forwarding has changed."""
        version = self._simulator.version()
        if version == self._version:
            return
        self._version = version
        known: dict[tuple[int, int], PacketWalk] | None = {}
        if self._first_router().capabilities:  # a packet's address may change on its way
            known = None
        walks = [self._simulator.walk(src, dst, known=known) for src, dst in self._pairs]
        lost = sum(1 for walk in walks if walk.lost)
        if lost != self._lost:
            self._lost = lost
            self._add("pairs", lost=lost, of=len(self._pairs))

    def _first_router(self) -> Node:
        return self._simulator.node(routers(self._topology)[0])

    def _ping(self, index: int) -> None:
        """Send a packet of a pair, which daemons that choose paths for each destination await."""
        self._simulator.send(*self._pairs[index % len(self._pairs)])
        next_s = (index + 1) * PING_S / len(self._pairs)
        self._simulator.at(next_s, lambda: self._ping(index + 1))

    def _begin_flows(self, random: Randomness) -> None:
        """Start a flow from each host to another."""
        servers = self._topology.servers
        for src in range(servers):
            self._simulator.flows.begin(src, (src + 1 + _below(random, servers - 1)) % servers)

    def _links(self, what: str) -> list[int]:
        """Return the link `what`, or all links of the node `what`."""
        if "-" in what:
            return [self._topology.link(what)]
        node = self._topology.naming.node(what)
        return [link for *_, link in self._topology.ports(node)]

    def _set_state(self, link: int, state: str) -> None:
        self._states[link] = state
        name = self._topology.link_name(link)
        self._add("link", link=name, state=state, altered=link in {*self._altered, *self._degraded})

    def _fail(self, what: str, silent: bool = False) -> None:
        if not isinstance(silent, bool):
            raise ValueError(f"silent: true or false, got {silent!r}")
        for link in self._links(what):
            self._set_state(link, "silent" if silent and self._states[link] != "down" else "down")
            self._simulator.fail(link, silent=silent)

    def _restore(self, what: str) -> None:
        for link in self._links(what):
            self._simulator.restore(link)
            self._simulator.alter(link, None)
            self._altered.pop(link, None)
            if link in self._degraded:
                self._degraded.discard(link)
                self._tell_degraded(link, False)
            self._set_state(link, "up")

    def _degrade(self, link: str) -> None:
        """Report to both ends that the link carries less, if the scheme makes use of it."""
        if not self._scheme.handles_degraded_links:
            raise ValueError(f"{self._scheme.name} takes no notice of degraded links; lbsp does")
        number = self._topology.link(link)
        self._degraded.add(number)
        self._tell_degraded(number, True)
        self._set_state(number, self._states[number])

    def _tell_degraded(self, link: int, degraded: bool) -> None:
        a, port_a, b, port_b = self._topology.ends(link)
        for node, port in ((a, port_a), (b, port_b)):
            if self._simulator.status(node):
                self._simulator.tell(node, LinkDegraded(port, degraded))

    def _impair(self, link: str, loss: str = "", delay: str = "") -> None:
        number = self._topology.link(link)
        before = self._altered.get(number, WIRE)
        self._altered[number] = wire = Wire(
            jitter_s=before.jitter_s,
            loss_fraction=loss_ppb(loss) / ALL_PPB if loss else before.loss_fraction,
            delay_s=delay_us(delay) / 1e6 if delay else before.delay_s,
        )
        self._simulator.alter(number, wire)
        self._set_state(number, self._states[number])

    def _link(self, link: str) -> SessionEvent:
        number = self._topology.link(link)
        wire = self._altered.get(number, WIRE)
        return {
            "loss_percent": round(100 * wire.loss_fraction, 6),
            "delay_us": 0 if wire.delay_s == WIRE.delay_s else round(wire.delay_s * 1e6),
            "degraded": number in self._degraded,
        }

    def _router(self, name: str) -> int:
        node = self._topology.naming.node(name)
        if node not in routers(self._topology):
            raise ValueError(f"{name} has no daemon")
        self._changed.add(node)
        return node

    def _stop(self, node: str) -> None:
        self._simulator.stop_daemon(self._router(node))

    def _restart(self, node: str) -> None:
        self._simulator.start_daemon(self._router(node))

    def _power(self, node: str) -> None:
        self._simulator.kill(self._router(node))

    def _path(self, src: str, dst: str) -> SessionEvent:
        ends = self._topology.naming.node(src), self._topology.naming.node(dst)
        if max(ends) >= self._topology.servers:
            raise ValueError("a path leads from a server to a server")
        path, lost = self._simulator.walk(*ends)
        return {
            **path_shares.named(self._topology, path),
            "reason": lost,
            **path_shares.several(self._live_topology(), self._scheme, self._options, *ends),
        }

    def _live_topology(self) -> PlainTopology:
        """Return the network with its failed links, those of nodes without power among them."""
        failed = {link for link, state in self._states.items() if state != "up"}
        for node in routers(self._topology):
            if not self._simulator.node(node).powered:
                failed.update(link for *_, link in self._topology.ports(node))
        if failed != self._live.dead:
            self._live = self._live.with_failed(failed)
        return self._live

    def _node(self, node: str) -> SessionEvent:
        number = self._topology.naming.node(node)
        daemon = number in routers(self._topology)
        routes = sorted(self._simulator.routes(number).items()) if daemon else ()
        return {
            "links": [self._topology.link_name(link) for *_, link in self._topology.ports(number)],
            "neighbours": self._simulator.status(number).get("neighbours") if daemon else None,
            "routes": {
                str(prefix): [self._name(hop.node) for hop in hops] for prefix, hops in routes
            },
        }


def _simulator(topology: Topology, scheme: str, random: Randomness) -> Simulator:
    """Return a simulator whose daemons start in random order."""
    starts_s = {node: START_SPREAD_S * random.random() for node in routers(topology)}
    return Simulator(topology, scheme, wire=WIRE, random=random, starts_s=starts_s)


def _plain(topology: Topology) -> PlainTopology:
    return topology if isinstance(topology, PlainTopology) else PlainTopology(topology)


def _links_by_port(topology: Topology) -> dict[tuple[int, int], int]:
    """Return the link at each port of each node."""
    return {
        (node, port): link
        for node in range(topology.nodes)
        for port, _, _, link in topology.ports(node)
    }


def _below(random: Randomness, limit: int) -> int:
    return int(random.random() * limit)


def _pairs(servers: int, random: Randomness) -> list[tuple[int, int]]:
    """Return all pairs of servers, or MOST_PAIRS of them."""
    if servers * (servers - 1) <= MOST_PAIRS:
        return [(src, dst) for src in range(servers) for dst in range(servers) if src != dst]
    sources = [_below(random, servers) for _ in range(MOST_PAIRS)]
    return [(src, (src + 1 + _below(random, servers - 1)) % servers) for src in sources]
