"""A folded Clos network on the kernel whose flows are placed: by DAR's daemons, by a central
controller, or not at all; where they go, and which links have too many of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.daemons.core import registry
from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.capabilities import FlowPlacement
from weft.daemons.dar.scheme import sizes
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.fabric_run import FabricRun
from weft.experiments.runner.definition import Run
from weft.testbed.data_plane import plane_tables
from weft.testbed.data_plane.data_plane import DataPlane, program_of
from weft.testbed.data_plane.plane_tables import Noted, PlaneTables
from weft.testbed.linux import clock
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.traffic import flows
from weft.topologies import build
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

# a controller that knows all flows, and gives each a spine (engines/edge_colouring.py)
CENTRAL = "central"
FRAME_BYTES = 1514
PERIOD_PACKETS = 16  # DAR's period, in packet times of a link, where a scheme does not say
ACTIVE_PERIODS = 5
POLL_S = 0.01
LinkEnds = tuple[int, int]  # the node that sends, and the one that hears


def scheme_of(spec: str, rate_bps: int) -> str:
    """Return `spec`; with a period of PERIOD_PACKETS packet times, if it needs one and has none."""
    name, texts = parse(spec)
    if not has_own_daemons(spec):
        return spec
    period_us = max(1, round(1e6 * PERIOD_PACKETS * 8 * FRAME_BYTES / rate_bps))
    period_us = int(texts.get("period_us", period_us))
    return unparse(
        name,
        {"period_us": period_us, "active_us": max(50_000, ACTIVE_PERIODS * period_us), **texts},
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


def links_of(run: Run) -> tuple[LinkSpec, LinkSpec]:
    """What links between switches are like, and those of hosts, which carry `host_percent` of
    that.
    """
    rate_bps, queue = run.integer("rate_mbps") * Mbps, run.integer("queue_packets")
    host = LinkSpec(rate_bps=rate_bps * run.integer("host_percent") // 100, queue_packets=queue)
    return LinkSpec(rate_bps=rate_bps, queue_packets=queue), host


def worst_permutation(rng: Generator, topology: Topology) -> list[tuple[int, int]]:
    """Flows of a leaf to different leaves, as far as there are so many, in an order of each leaf's
    own (section 5); none within a leaf.
    """
    n, r, _ = sizes(topology)
    found = []
    free = {leaf: [leaf * n + int(host) for host in rng.permutation(n)] for leaf in range(r)}
    for leaf in range(r):
        for host in range(n):
            output = (leaf + 1 + host % (r - 1)) % r
            found.append((leaf * n + host, output))
    order = [found[leaf * n + int(at)][1] for leaf in range(r) for at in rng.permutation(n)]
    return [(src, free[output].pop()) for (src, _), output in zip(found, order, strict=True)]


def in_turn(destination: NDArray[np.int64]) -> Callable[[flows.Flow], flows.Flow | None]:
    """What each host sends when a message of its has arrived: as much to its next destination,
    shape (messages, hosts), the first of which it has sent to.
    """
    sent = [1] * destination.shape[1]

    def following(arrived: flows.Flow) -> flows.Flow | None:
        at = sent[arrived.src]
        sent[arrived.src] += 1
        return (
            arrived._replace(dst=int(destination[at, arrived.src]))
            if at < len(destination)
            else None
        )

    return following


def messages(destination: NDArray[np.int64], size_bytes: int, every_s: float) -> list[flows.Flow]:
    """Flows of so many bytes from every host to its destination in each row of `destination`, shape
    (messages, hosts), a row every so many seconds.
    """
    return [
        flows.Flow(at * every_s, src, int(dst), size_bytes)
        for at, row in enumerate(destination)
        for src, dst in enumerate(row)
        if src != dst
    ]


def clos(run: Run) -> AbstractContextManager[FabricRun]:
    """The network of `run` with its scheme, up for the length of a `with`."""
    links = links_of(run)
    return up(
        build(run.text("topology")),
        links,
        scheme_of(run.text("scheme"), links[0].rate_bps),
        run.seed,
    )


@contextmanager
def up(
    topology: Topology, links: tuple[LinkSpec, LinkSpec], spec: str, seed: int
) -> Iterator[FabricRun]:
    """`topology` under the scheme `spec`, with `links` between switches and to hosts, up for the
    length of a `with`.
    """
    link, host_link = links
    by_daemons = has_own_daemons(spec)
    rule = rule_of(spec)
    scheme = spec if by_daemons else "static"
    network = RunningNetwork.create(topology, link, host_link=host_link, scheme=scheme, packed=0)
    try:
        if by_daemons:
            network.wait_until_converged()
        with (
            DataPlane.open(network)
            if by_daemons
            else DataPlane.load(network, rule, seed=seed) as plane
        ):
            if not by_daemons:
                plane.attach()
            yield FabricRun(network, plane, topology, plane.set_scheme(rule, seed=seed))
    finally:
        network.down()


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
    """One leaf: its number among the switches, its hosts' addresses, and what is at the other end
    of each interface.
    """

    number: int
    own: set[int]
    peers: dict[int, int]


@dataclass
class SpineFlowTable:
    """The flows that cross spines, from the data plane's own table.

    Closed with the data plane's maps.
    """

    network: RunningNetwork
    maps: Any
    tables: PlaneTables
    leaves: Mapping[int, LeafSwitch]

    @classmethod
    def open(cls, network: RunningNetwork) -> SpineFlowTable:
        """ValueError if the network has no data plane."""
        program = program_of(network)
        if program is None:
            raise ValueError(f"run {network.run.id} has no data plane")
        maps, tables = plane_tables.of_program(program)
        topology, leaves = network.topology, {}
        for number in range(sizes(topology)[1]):
            leaf = topology.servers + number
            peers = {network.ifindex(leaf, port): peer for port, peer, *_ in topology.ports(leaf)}
            own = {
                topology.naming.address(host) for host in peers.values() if host < topology.servers
            }
            leaves[leaf] = LeafSwitch(number, own, peers)
        return cls(network, maps, tables, leaves)

    def close(self) -> None:
        """Let go of the maps."""
        self.maps.close()

    def read(self, within_s: float = 1.0) -> list[Placed]:
        """Those that have sent something within this time, each once."""
        now_ns, found, held = clock.monotonic_ns(), [], self.tables.all_flows()
        for node, leaf in self.leaves.items():
            for flow, noted in held.get(leaf.number, {}).items():
                if (
                    flow.source in leaf.own
                    and noted.port in leaf.peers
                    and now_ns - noted.last_ns < within_s * 1e9
                ):
                    found.append(Placed(flow, node, leaf.peers[noted.port], noted))
        return found

    def place(self, placed: Placed, spine: int) -> None:
        """Let a flow go by another spine."""
        topology = self.network.topology
        (port,) = [port for port, peer, *_ in topology.ports(placed.leaf) if peer == spine]
        flows = self.tables.flows(self.leaves[placed.leaf].number)
        flows.place(placed.flow, self.network.ifindex(placed.leaf, port), clock.monotonic_ns())


def host_of(topology: Topology, address: int) -> int:
    """The host with this address."""
    layout = topology.naming.layout
    return int(layout.number_of(layout.digits(address)))


def loads(table: Sequence[Placed], topology: Topology) -> Counter[LinkEnds]:
    """Flows on each link between a leaf and a spine."""
    n = sizes(topology)[0]
    found: Counter[LinkEnds] = Counter()
    for placed in table:
        output = topology.servers + host_of(topology, placed.flow.destination) // n
        found[placed.leaf, placed.spine] += 1
        found[placed.spine, output] += 1
    return found


def counted(on: FabricRun) -> dict[str, int]:
    """What DAR's daemons have done since they began, all together; empty where there are none."""
    if not on.network.rows():
        return {}
    topology, found = on.topology, []
    for node in range(topology.servers, topology.nodes):
        with suppress(ValueError, TimeoutError):  # of a switch that is dead
            found.append(
                control.status(on.network.run.directory, topology.naming.name(node))["protocol"]
            )
    return together(found)


def together(told: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The sums of what the daemons of switches count."""
    total = Counter[str]()
    for one in told:
        total.update({key: one[key] for key in ("moves", "swaps", "replaced")})
        total.update({f"requests_{key}": one["ears"][key] for key in ("sent", "stale")})
    return dict(total)
