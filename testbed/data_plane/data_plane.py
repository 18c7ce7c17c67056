"""The data plane of a switch fabric: select.bpf.c, loaded once and attached at every switch port.

    with (
        Net("fattree:k=4", link=link, routing="static") as net,
        DataPlane.load(net, "ttc") as plane,
    ):
        plane.attach()
        plane.set_scheme("drill:d=2,m=1")

The switches' kernels have routes of their own for packets that the program leaves to them.  With
`ecmp` those are all packets: Linux multipath routes, whose hash of addresses and ports has a seed
for each switch.  Fragments, packets with IP options, and packets longer than the MTU of the output
port bypass every other scheme; bypassed() counts them.

Here one process writes the routes of all switches.  In a network of `weft up`, the daemon of each
switch writes that switch's routes (plane_tables.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from weft.daemons.core import registry
from weft.daemons.core.scheme import FLOW_HASH, KERNEL, NO_QUEUES, Selection, SelectionRule
from weft.daemons.fatpaths.layers import intact_distances
from weft.daemons.routing import selection
from weft.daemons.routing.candidates import candidates
from weft.daemons.transport.endpoint import TRIMMED, TRIMMED_AT_HOST
from weft.testbed.data_plane import own_rule, plane_program, port_programs
from weft.testbed.data_plane.groups import Groups
from weft.testbed.data_plane.plane_program import COUNTERS, PORT, PRIORITY, PROGRAM
from weft.testbed.data_plane.plane_tables import PlaneTables
from weft.testbed.data_plane.port_programs import CounterMap, MapSource, PortFilter, attach_at_ports
from weft.testbed.linux import fib, libbpf, netlink, netns, tc_filters
from weft.testbed.linux.process import Closing
from weft.testbed.plan.network_plan import FABRIC_SYSCTLS, SEED_SYSCTL, mac
from weft.testbed.runs.network_handle import NetworkHandle, device, has_rate, netlink_of
from weft.topologies.core.address import FabricNaming, Prefix
from weft.topologies.core.topology import Topology


class PortCounts(NamedTuple):
    """Counters of a port.

    packets, bytes_: put into its queue.
    moved: of those, moved there by TTC, or sent to a detour by UGAL or Valiant.
    marked: of those, with a congestion mark.
    bypassed: arrived at the port and bypassed the scheme.
    trimmed: trimmed before its queue.
    untrimmed: could not be trimmed, since the queue of data was not found or the packet not cut.
    """

    packets: int
    bytes_: int
    moved: int
    marked: int
    bypassed: int
    trimmed: int = 0
    untrimmed: int = 0


class DataPlane(Closing):
    """The program of the network `net`, from load() or open().

    switches: the nodes with the program.
    queue_reader: its reader of queue lengths: kfunc (Linux 6.2 and later, 20 ns a queue), probe
        (240 ns) or none.
    """

    def __init__(
        self,
        net: NetworkHandle,
        maps: MapSource,
        loaded: tuple[str, int] | None,
        attachable: int | None,
    ) -> None:
        self.net = net
        self._source, self._program = maps, attachable
        self.switches = switches(net)
        self._layout = plane_program.switch_layout()
        self._ports = maps.map("ports", "=I", PORT.format)
        self._switches = maps.map("switches", "=I", f"={self._layout.size}s")
        self.queue_reader, self._code = loaded or self._noted()
        self._counted = CounterMap(maps, "counted", len(COUNTERS.fields))
        self._scheme: tuple[Selection, Mapping[str, int]] | None = None  # as set by this process

    def _noted(self) -> tuple[str, int]:
        """Return queue reader and checksum of a package's rule, which the loading process noted."""
        noted = self._layout.unpack(*self._switches[self._number(self.switches[0]),])
        return list(plane_program.READERS)[noted["reader"][0]], noted["code"][0]

    @cached_property
    def groups(self) -> Mapping[int, Groups]:
        """The routes of each switch, by node, for a network without daemons that write them."""
        groups = PlaneTables(self._source).all(self._number(node) for node in self.switches)
        return {node: groups[self._number(node)] for node in self.switches}

    @classmethod
    def load(
        cls,
        net: NetworkHandle,
        spec: str,
        *,
        seed: int = 0,
        routes: bool = True,
        trim_bytes: int = 0,
    ) -> DataPlane:
        """Load the program with the scheme `spec`, without attaching it.

        Args:
            net: a switch fabric.
            spec: a scheme, for example "drill:d=2,m=1".
            seed: seed of the switches' seeds.
            routes: whether to set all shortest routes; otherwise daemons set routes.
            trim_bytes: bytes of data waiting at a port above which it trims packets; 0: never.

        Raises:
            ValueError: `net` is no switch fabric, or there is no such scheme.
            BpfError: the kernel refused the program.
        """
        rule = registry.rule(spec)
        topology = net.topology
        if not isinstance(topology.naming, FabricNaming):
            raise ValueError(
                f"{topology.spec} is no switch fabric: its servers forward, by dr for example"
            )
        ports = 1 + max(net.ifindex(node, port) & 0xFFFF for node, port in switch_ports(net))
        reader, program = plane_program.load(plane_program.entries(topology, ports), rule)
        try:
            loaded = reader, own_rule.checksum(rule)
            plane = cls(net, program, loaded, program.program_fd(PROGRAM))
            plane._write_ports(trim_bytes)
            plane._begin_generations()
            plane.set_scheme(spec, seed=seed)
            if routes:
                plane.follow(topology, kernel=False)
        except BaseException:
            program.close()
            raise
        return plane

    @classmethod
    def open(cls, net: NetworkHandle) -> DataPlane:
        """Open the program attached to `net`; ValueError if there is none."""
        program = program_of(net)
        if program is None:
            raise ValueError(
                f"run {net.identity.id} has no data plane: `weft up` with a scheme such as "
                f"ttc brings one"
            )
        return cls(net, libbpf.Attached(program), None, None)

    def _number(self, switch: int) -> int:
        return switch - self.net.topology.servers

    def _write_ports(self, trim_bytes: int) -> None:
        topology = self.net.topology
        for node in self.switches:
            for port, peer, far, _ in topology.ports(node):
                addresses = mac(peer, far) + mac(node, port)
                code_point = TRIMMED_AT_HOST if peer < topology.servers else TRIMMED
                entry = (self._number(node) + 1, addresses, port, 0, trim_bytes, code_point)
                self._ports[self.net.ifindex(node, port) & 0xFFFF,] = entry

    def _write_distances(self) -> None:
        """Write the hops between switches of the network without failures."""
        distances = self._source.map("distances", "=I", "=B")
        hops = intact_distances(self.net.topology)
        for index, count in enumerate(hops.reshape(-1).tolist()):
            distances[index,] = (count,)

    def _begin_generations(self) -> None:
        generations = self._source.map("generations", "=I", "=I")
        for node in self.switches:
            generations[self._number(node),] = (1,)  # an empty slot of the cache has 0

    def attach(self) -> None:
        """Attach the program at every port of every switch."""
        if self._program is None:
            raise ValueError("this data plane is attached already")
        filters = [PortFilter(PROGRAM, self._program)]
        for node in self.switches:
            attach_at_ports(self.net, node, filters, PRIORITY)

    def detach(self) -> None:
        """Detach the program; the switches' kernels forward again."""
        for node in self.switches:
            ports = [port for port, *_ in self.net.topology.ports(node)]
            port_programs.detach(self.net, node, ports, tc_filters.INGRESS_HOOK, PRIORITY)

    def close(self) -> None:
        """Close program and maps; an attached program stays."""
        self._source.close()

    def set_scheme(self, spec: str, *, seed: int = 0, empty_queues: bool = False) -> dict[int, int]:
        """Choose ports by the scheme `spec` from now on, without losing a packet.

        A kernel whose multipath hash has no seed (before Linux 6.11) would choose alike at all
        switches; there the program hashes flows for ecmp, too.

        Args:
            spec: the scheme.
            seed: seed of the switches' seeds.
            empty_queues: allow a scheme that compares queues where links have no rate; it finds all
                queues empty.  For measuring the cost of comparing.

        Returns:
            The seed of each switch, by node.

        Raises:
            ValueError: the scheme compares queues or marks by them, and the kernel does not show
                queues or links have none; it does not fit this network; or ports trim packets and
                it leaves packets to the kernel.
        """
        data_plane, options = registry.data_plane(spec)
        rule = data_plane.rule(options)
        self._check_rule(spec, rule, empty_queues)
        data_plane.check(self.net.topology, options)
        self._scheme = data_plane, options
        seeds = {
            node: selection.mix(selection.mix(seed, 1), 0 if rule.common_seed else node) or 1
            for node in self.switches
        }
        if rule.rule == KERNEL and not self._seed_kernels(seeds):
            rule = SelectionRule(FLOW_HASH)
        pending = self._source.map("pending_states", "=I", "=I")
        if rule.has_detours:
            self._write_distances()
        if rule["detect"]:
            PlaneTables(self._source).add_rings(map(self._number, self.switches))
        for node in self.switches:
            number = self._number(node)
            self._switches[number,] = (self._layout.pack(self._fields(node, rule, seeds[node])),)
            if not rule["states"]:
                pending[number,] = (0,)  # not read without states
        return seeds

    def _check_rule(self, spec: str, rule: SelectionRule, empty_queues: bool) -> None:
        if rule.code and own_rule.checksum(rule) != self._code:
            raise ValueError(f"{spec}: the program of this run has another rule; bring it up anew")
        if self.queue_reader == "none" and rule.asks_queues:
            raise ValueError(
                f"{spec}: this kernel does not show its queues, since it has no BTF; take "
                f"ecmp, dmodk, vlb or rps"
            )
        if rule.asks_queues and not empty_queues and not has_rate(self.net):
            raise ValueError(f"{spec}: {NO_QUEUES}")
        if self.trims:
            check_trims(spec, rule, self.queue_reader)

    @property
    def trims(self) -> bool:
        """True if its ports trim packets."""
        node, port = switch_ports(self.net)[0]
        trim_bytes: int = self._ports[self.net.ifindex(node, port) & 0xFFFF,][
            list(PORT.fields).index("trim_bytes")
        ]
        return trim_bytes > 0

    def _fields(
        self, node: int, rule: SelectionRule, seed: int
    ) -> Mapping[str, int | Sequence[int]]:
        """Return the fields of struct switch_ for a switch, by name."""
        naming = self.net.topology.naming
        assert isinstance(naming, FabricNaming)
        tier = naming.tier(node)
        first = 2 if rule.has_detours else 1 if rule.reads_from_first_digit else tier
        read = selection.digits(naming.layout, first)
        digits = [number for digit in read for number in digit]
        return {
            **own_rule.common_parameters(rule),
            "own": own_rule.parameters(rule),
            "code": self._code,
            "rule": int(rule.rule),
            "seed": seed,
            "tier": tier,
            "reader": list(plane_program.READERS).index(self.queue_reader),
            "flowlet_bits": plane_program.flowlet_bits(self.net.topology.switches),
            "switches": self.net.topology.switches,
            "digits": [*digits, *[0] * (3 * selection.DIGITS - len(digits))],
            "hosts": sum(
                peer < self.net.topology.servers for _, peer, *_ in self.net.topology.ports(node)
            ),
        }

    def _seed_kernels(self, seeds: Mapping[int, int]) -> bool:
        """Set policy and seed of each switch's multipath hash; return False without seeds."""
        if not Path("/proc/sys/net", SEED_SYSCTL).exists():
            return False

        def work() -> None:
            for node, seed in seeds.items():
                netns.enter(self.net.netns(node))
                for path, value in {**FABRIC_SYSCTLS, SEED_SYSCTL: str(seed)}.items():
                    netns.write_sysctl(path, value)

        netns.in_thread(work)
        return True

    def set_route(self, switch: int, prefix: Prefix, ports: Sequence[int]) -> None:
        """Forward `prefix` at node `switch` by any of its `ports`.

        A port listed twice gets twice the share.  Without ports the route is unreachable.

        Raises:
            ValueError: more than 64 ports.
        """
        self.groups[switch].set({prefix: self._indexes(switch, ports)})

    def follow(
        self, topology: Topology, *, degraded: Collection[int] = (), kernel: bool = True
    ) -> None:
        """Give every switch the scheme's routes over the healthy links of `topology`.

        Args:
            topology: this network, with its failed links.
            degraded: links that work, but slower.
            kernel: True also sets the shortest routes in the kernels' tables.
        """
        for node in self.switches:
            routes = self._routes(topology, node, degraded)
            self.groups[node].replace(
                {prefix: self._indexes(node, ports) for prefix, ports in routes.items()}
            )
            if kernel:
                with closing(netlink_of(self.net, node)) as socket:
                    socket.request(self._kernel_routes(socket, node, topology))

    def _routes(
        self, topology: Topology, switch: int, degraded: Collection[int]
    ) -> Mapping[Prefix, Sequence[int]]:
        """Return the ports of `switch` by prefix."""
        if self._scheme:
            selection, options = self._scheme
            if selection.routes:
                return selection.routes(topology, options, switch, degraded)
        return {prefix: [hop.port for hop in hops] for prefix, hops in candidates(topology, switch)}

    def _kernel_routes(
        self, socket: netlink.Socket, node: int, topology: Topology
    ) -> list[netlink.NetlinkMessage]:
        """Return the changes that make the kernel's routes at `node` those of `topology`."""
        naming = topology.naming
        gone = set(fib.routes(socket))
        messages = []
        for prefix, hops in candidates(topology, node):
            via = [
                (
                    self.net.ifindex(node, hop.port),
                    device(self.net, node, hop.port),
                    naming.address(hop.node),
                )
                for hop in hops
            ]
            messages.append(fib.route_message(prefix, via, naming.address(node)))
            gone.discard(prefix)
        return messages + [fib.removal_message(prefix) for prefix in gone]

    def _indexes(self, node: int, ports: Iterable[int]) -> list[int]:
        return [self.net.ifindex(node, port) for port in ports]

    def counters(self) -> dict[tuple[int, int], PortCounts]:
        """Return the counters of each (switch, port) since the program was loaded."""
        return {
            (node, port): PortCounts(*self._counted.sums(self.net.ifindex(node, port) & 0xFFFF))
            for node, port in switch_ports(self.net)
        }

    def bypassed(self) -> int:
        """Return the packets that bypassed the scheme, counted at each switch, since loading."""
        return sum(counts.bypassed for counts in self.counters().values())


def bypassed(net: NetworkHandle) -> int | None:
    """Return DataPlane.bypassed() of `net`, None for a network without a data plane."""
    if net.topology.server_centric or program_of(net) is None:
        return None
    with DataPlane.open(net) as plane:
        return plane.bypassed()


def check_trims(spec: str, rule: SelectionRule, queue_reader: str) -> None:
    """Raise ValueError if packets cannot be trimmed with the scheme `spec`."""
    if queue_reader == "none":
        raise ValueError(
            "this kernel does not show its queues, since it has no BTF: nothing can be trimmed"
        )
    if rule.rule == KERNEL:
        raise ValueError(
            f"{spec} leaves packets to the kernel, which trims none; vlb hashes flows as it does"
        )


def switches(net: NetworkHandle) -> list[int]:
    """Return the nodes on this machine that are switches."""
    return [node for node in net.local_nodes if node >= net.topology.servers]


def program_of(net: NetworkHandle) -> int | None:
    """Return the id of the program attached at the switches of `net`, None without one."""
    ports = switch_ports(net)
    if not ports:
        return None
    return port_programs.program_at(net, *ports[0], PRIORITY)


def switch_ports(net: NetworkHandle) -> list[tuple[int, int]]:
    """Return (node, port) of every port of every switch on this machine."""
    return [(node, port) for node in switches(net) for port, *_ in net.topology.ports(node)]
