"""A folded Clos network on the kernel, its traffic, and the spines of its flows.

DAR's daemons or a central controller place flows; other schemes place none.

The best assignment of flows to spines is an edge colouring of the leaves.  The flows are edges
from input leaves to output leaves.  By König's theorem as many colours as the busiest leaf has
flows are enough to give the flows of every leaf different colours; spine s takes an equal share of
the colours.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.daemons.core import registry
from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.contract import FlowPlacement
from weft.daemons.dar.scheme import sizes
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.kernel_run import FabricRun, running
from weft.experiments.runner.definition import Run
from weft.experiments.runner.parameters import Scalar
from weft.testbed.data_plane import plane_tables
from weft.testbed.data_plane.data_plane import DataPlane, program_of
from weft.testbed.data_plane.plane_tables import Noted, PlaneTables
from weft.testbed.linux import clock
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.traffic.flows import Flow
from weft.topologies import build
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray


# a controller that knows all flows, and gives each a spine (assign())
CENTRAL = "central"
FRAME_BYTES = 1514
PERIOD_PACKETS = 16  # DAR's period, in packet times of a link, where a scheme does not say
ACTIVE_PERIODS = 5
POLL_S = 0.01
LinkEnds = tuple[int, int]  # sending and receiving node


@dataclass(frozen=True, kw_only=True)
class ClosPlan:
    """Flows for `seconds`, of which `warm_up_s` do not count.

    scheme: with its parameters, or CENTRAL.
    link, host_link: between switches, and to hosts.
    then: the flow after a flow that has arrived, as in testbed.traffic.flows.run().
    """

    topology: str
    scheme: str
    link: LinkSpec
    host_link: LinkSpec
    flows: Sequence[Flow]
    seconds: float
    warm_up_s: float = 0.0
    then: Callable[[Flow], Flow | None] = lambda arrived: None
    congestion_control: str = "cubic"
    transport: str = "tcp"
    seed: int = 0


def scheme_of(spec: str, rate_bps: int) -> str:
    """Return `spec` with a period and a rest of PERIOD_PACKETS packet times, unless it has them."""
    name, texts = parse(spec)
    if not has_own_daemons(spec):
        return spec
    period_us = max(1, round(1e6 * PERIOD_PACKETS * 8 * FRAME_BYTES / rate_bps))
    period_us = int(texts.get("period_us", period_us))
    return unparse(
        name,
        {
            "period_us": period_us,
            "active_us": max(50_000, ACTIVE_PERIODS * period_us),
            "rest_us": period_us,
            **texts,
        },
    )


def has_own_daemons(spec: str) -> bool:
    """Return True if daemons of the scheme `spec` place the flows."""
    return spec != CENTRAL and FlowPlacement in registry.find(parse(spec)[0]).needs


def check_scheme(text: str) -> None:
    """Raise ValueError unless `text` is a scheme of the data plane or the central controller."""
    if text == CENTRAL:
        return
    if parse(text)[0] in registry.schemes() and has_own_daemons(text):
        registry.scheme(text)
    else:
        common.data_plane_scheme(text)


def queues_on_kernel(engine: str, parameters: Mapping[str, Scalar]) -> bool:
    """Return whether DAR compares queues on Linux, once packets, now full ones."""
    options = parse(str(parameters["scheme"]))[1]
    return engine == "kernel" and options.get("detect") == "queue"


def links_of(run: Run) -> tuple[LinkSpec, LinkSpec]:
    """Return the links between switches, and those of hosts, which carry `host_percent` of it."""
    rate_bps, queue = run.integer("rate_mbps") * Mbps, run.integer("queue_packets")
    host_bps = rate_bps * run.integer("host_percent") // 100
    return (
        LinkSpec(rate_bps=rate_bps, queue_packets=queue),
        LinkSpec(rate_bps=host_bps, queue_packets=queue),
    )


def plan_of(run: Run, warm_up_s: int, seconds: int, **fields: Any) -> ClosPlan:
    """Return the plan of a run of dar_goodput or dar_failure with further `fields`."""
    link, host_link = links_of(run)
    return ClosPlan(
        topology=run.text("topology"),
        scheme=scheme_of(run.text("scheme"), link.rate_bps),
        link=link,
        host_link=host_link,
        seconds=warm_up_s + seconds,
        warm_up_s=warm_up_s,
        congestion_control=run.text("congestion_control"),
        seed=run.seed,
        **fields,
    )


def worst_permutation(rng: Generator, topology: Topology) -> list[tuple[int, int]]:
    """Return a worst permutation (section 5) as pairs of hosts, none within a leaf.

    Flows of a leaf go to different leaves, as far as possible, in an order of each leaf's own.
    """
    n, r, _ = sizes(topology)
    free = {leaf: [leaf * n + int(host) for host in rng.permutation(n)] for leaf in range(r)}
    orders = [
        [(leaf + 1 + int(host) % (r - 1)) % r for host in rng.permutation(n)] for leaf in free
    ]
    outputs = [output for order in orders for output in order]
    return [(src, free[output].pop()) for src, output in enumerate(outputs)]


def in_turn(destination: NDArray[np.int64]) -> Callable[[Flow], Flow | None]:
    """Return the function that gives each host's next message when one has arrived.

    destination: of each host's messages, shape (messages, hosts); the first has been sent.
    """
    sent = [1] * destination.shape[1]

    def following(arrived: Flow) -> Flow | None:
        number = sent[arrived.src]
        sent[arrived.src] += 1
        if number == len(destination):
            return None
        return arrived._replace(dst=int(destination[number, arrived.src]))

    return following


def messages(destination: NDArray[np.int64], size_bytes: int, every_s: float) -> list[Flow]:
    """Return flows from every host to its destination in each row, a row every `every_s`.

    destination: shape (messages, hosts).
    """
    return [
        Flow(number * every_s, src, int(dst), size_bytes)
        for number, row in enumerate(destination)
        for src, dst in enumerate(row)
        if src != dst
    ]


@contextmanager
def up(plan: ClosPlan) -> Iterator[FabricRun]:
    """Bring up the network of `plan` under its scheme for the length of a `with`."""
    by_daemons = has_own_daemons(plan.scheme)
    rule = rule_of(plan.scheme)
    scheme = plan.scheme if by_daemons else "static"
    links = {"host_link": plan.host_link, "packed": 0}
    with running(build(plan.topology), plan.link, scheme, **links) as network:
        if by_daemons:
            network.wait_until_converged()
            plane = DataPlane.open(network)
        else:
            plane = DataPlane.load(network, rule, seed=plan.seed)
        with plane:
            if not by_daemons:
                plane.attach()
            seeds = plane.set_scheme(rule, seed=plan.seed)
            yield FabricRun(network, plane, network.topology, seeds)


def rule_of(spec: str) -> str:
    """Return the part of `spec` that concerns the data plane."""
    if spec == CENTRAL:
        return "dar:elephant_kb=0"
    name, texts = parse(spec)
    selection, _ = registry.data_plane(name)
    return unparse(name, {key: texts[key] for key in texts if key in selection.parameters})


class Placed(NamedTuple):
    """A flow at its input leaf, and the spine by which it goes."""

    flow: FiveTuple
    leaf: int
    spine: int
    noted: Noted


class LeafSwitch(NamedTuple):
    """A leaf.

    number: among the switches.
    addresses: of its hosts.
    peers: node at the other end of each interface.
    """

    number: int
    addresses: set[int]
    peers: dict[int, int]


@dataclass
class SpineFlowTable:
    """The flows that cross spines, from the data plane's own table; to be closed."""

    network: RunningNetwork
    maps: Any
    tables: PlaneTables
    leaves: Mapping[int, LeafSwitch]

    @classmethod
    def open(cls, network: RunningNetwork) -> SpineFlowTable:
        """Open the table; ValueError if the network has no data plane."""
        program = program_of(network)
        if program is None:
            raise ValueError(f"run {network.run.id} has no data plane")
        maps, tables = plane_tables.of_program(program)
        topology, leaves = network.topology, {}
        for number in range(sizes(topology)[1]):
            leaf = topology.servers + number
            peers = {network.ifindex(leaf, port): peer for port, peer, *_ in topology.ports(leaf)}
            addresses = {
                topology.naming.address(host) for host in peers.values() if host < topology.servers
            }
            leaves[leaf] = LeafSwitch(number, addresses, peers)
        return cls(network, maps, tables, leaves)

    def close(self) -> None:
        """Close the maps."""
        self.maps.close()

    def read(self, within_s: float = 1.0) -> list[Placed]:
        """Return the flows that have sent within this time, each once."""
        now_ns, tables = clock.monotonic_ns(), self.tables.all_flows()
        return [
            Placed(flow, node, leaf.peers[noted.port], noted)
            for node, leaf in self.leaves.items()
            for flow, noted in tables.get(leaf.number, {}).items()
            if flow.source in leaf.addresses
            and noted.port in leaf.peers
            and now_ns - noted.last_ns < within_s * 1e9
        ]

    def place(self, placed: Placed, spine: int) -> None:
        """Move a flow to another spine."""
        topology = self.network.topology
        (port,) = [port for port, peer, *_ in topology.ports(placed.leaf) if peer == spine]
        flows = self.tables.flows(self.leaves[placed.leaf].number)
        flows.place(placed.flow, self.network.ifindex(placed.leaf, port), clock.monotonic_ns())


def placed_flows(network: RunningNetwork) -> list[Placed]:
    """Return the flows in the data plane's table; none if its scheme keeps none."""
    table = SpineFlowTable.open(network)
    try:
        return table.read()
    finally:
        table.close()


def host_of(topology: Topology, address: int) -> int:
    """Return the host with this address."""
    layout = topology.naming.layout
    return int(layout.number_of(layout.digits(address)))


def links(placed: Placed, topology: Topology) -> tuple[LinkEnds, LinkEnds]:
    """Return the links between switches that a flow takes."""
    n = sizes(topology)[0]
    output = topology.servers + host_of(topology, placed.flow.destination) // n
    return (placed.leaf, placed.spine), (placed.spine, output)


def crosses(placed: Placed, ends: set[LinkEnds], topology: Topology) -> bool:
    """Return True if a flow takes one of the links `ends`."""
    return not ends.isdisjoint(links(placed, topology))


def loads(table: Iterable[Placed], topology: Topology) -> Counter[LinkEnds]:
    """Return the flows on each link between a leaf and a spine."""
    return Counter(link for placed in table for link in links(placed, topology))


def loads_until(
    end: threading.Event, table: SpineFlowTable, within_s: float
) -> Iterator[tuple[float, Counter[LinkEnds]]]:
    """Yield time and loads every POLL_S until `end`."""
    while not end.is_set():
        flows = loads(table.read(within_s), table.network.topology)
        yield clock.monotonic(), flows
        clock.sleep(POLL_S)


def statuses(fabric: FabricRun) -> list[dict[str, Any]]:
    """Return the status of each switch's daemon, leaves first; none if there are no daemons."""
    if not fabric.network.rows():
        return []
    topology, protocols = fabric.topology, []
    for node in range(topology.servers, topology.nodes):
        with suppress(ValueError, TimeoutError):  # of a switch that is dead
            name = topology.naming.name(node)
            protocols.append(control.status(fabric.network.run.directory, name)["protocol"])
    return protocols


def moves_of(statuses: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return how often each daemon has moved a flow."""
    return [status["moves"] + status["swaps"] for status in statuses]


def counted(fabric: FabricRun) -> dict[str, int]:
    """Return the sums of the counters of DAR's daemons; empty if there are none."""
    return together(statuses(fabric))


def difference(counters: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return the growth of each counter, 0 if it is not in `before`."""
    return {key: value - before.get(key, value) for key, value in counters.items()}


def together(protocols: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the sums of the counters of several switches' daemons."""
    total = Counter[str]()
    for status in protocols:
        total.update({key: status[key] for key in ("moves", "swaps", "replaced")})
        total.update({f"requests_{key}": status["ears"][key] for key in ("sent", "stale")})
    return dict(total)


# the edge by side (True: output), leaf and colour
EdgeOf = dict[tuple[bool, int, int], int]


def free(edge_of: EdgeOf, side: bool, leaf: int) -> int:
    """Return the first colour that no edge of a leaf has."""
    return next(colour for colour in count() if (side, leaf, colour) not in edge_of)


def alternating_path(
    edges: Sequence[tuple[int, int]], edge_of: EdgeOf, leaf: int, colours: tuple[int, int]
) -> list[int]:
    """Return the edges of the path from an output leaf on which two colours alternate."""
    path: list[int] = []
    side = True
    while (side, leaf, colours[len(path) % 2]) in edge_of:
        path.append(edge_of[side, leaf, colours[len(path) % 2]])
        side = not side
        leaf = edges[path[-1]][side]
    return path


def colours(edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return a colour for each edge (input leaf, output leaf) that no other edge of a leaf has.

    There are as many colours as edges at the leaf that has most.  An edge whose leaves have no free
    colour in common exchanges two colours along the path from its output leaf on which they
    alternate.
    """
    edge_of: EdgeOf = {}
    colour_of = [-1] * len(edges)

    for edge, (source, target) in enumerate(edges):
        first = free(edge_of, False, source)
        second = free(edge_of, True, target)
        path = alternating_path(edges, edge_of, target, (first, second))
        for other in path:
            for side in (False, True):
                del edge_of[side, edges[other][side], colour_of[other]]
        for other in [*path, edge]:
            colour = first if other == edge or colour_of[other] == second else second
            colour_of[other] = colour
            for side in (False, True):
                edge_of[side, edges[other][side], colour] = other
    return colour_of


def assign(edges: Sequence[tuple[int, int]], m: int) -> list[int]:
    """Return a spine, of `m`, for each flow (input leaf, output leaf).

    The fullest link has as few flows as possible: the most flows of a leaf over m, rounded up.

    Raises:
        ValueError: there is no spine, or a leaf has a negative number.
    """
    if m < 1:
        raise ValueError(f"dar: there must be a spine or more, got {m}")
    if edges and min(map(min, edges)) < 0:
        raise ValueError(f"dar: leaves are numbered from 0 on, got {min(map(min, edges))}")
    edge_colours = colours(edges)
    colours_of_spine = -(-(max(edge_colours, default=0) + 1) // m)
    return [colour // colours_of_spine for colour in edge_colours]
