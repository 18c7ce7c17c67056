"""The data plane of a switch fabric: data_plane/select.bpf.c, loaded once, attached at every switch
port, told what to do.

    with Net("fattree:k=4", link=link, routing="static") as net, DataPlane.load(net, "ttc") as
        plane: plane.set_scheme("drill:d=2,m=1")

The switches' kernels keep routes of their own, for what the program leaves to them.  For `ecmp`
that is everything: Linux multipath routes, with a hash of addresses and ports that is seeded for
each switch.  Fragments, packets with IP options, and packets longer than the MTU of the port that
was chosen bypass every other scheme in the same way: the kernel routes, fragments or refuses them,
and bypassed() counts them.

Here one process that knows the whole topology writes the routes of all switches, which stay as they
are until it says otherwise.  In a network that `weft up` made, each switch's daemon writes its own:
see plane_tables.py.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from weft.daemons.core import registry
from weft.daemons.core.scheme import Selection
from weft.daemons.core.selection_rule import FLOW_HASH, KERNEL, NO_QUEUES, SelectionRule
from weft.daemons.routing import selection
from weft.daemons.routing.candidates import candidates
from weft.daemons.transport.packets import TRIMMED, TRIMMED_AT_HOST
from weft.testbed.data_plane import plane_program
from weft.testbed.data_plane.groups import Groups
from weft.testbed.data_plane.plane_program import PRIORITY, PROGRAM
from weft.testbed.data_plane.plane_records import COUNTERS, PORT
from weft.testbed.data_plane.plane_tables import PlaneTables
from weft.testbed.linux import fib, libbpf, netlink, netns, tc
from weft.testbed.plan.network_plan import mac
from weft.testbed.runs.network_handle import NetworkHandle, device, has_rate, netlink_of
from weft.topologies.core.address import FabricNaming, Prefix
from weft.topologies.core.topology import Topology

SEED_SYSCTL = "ipv4/fib_multipath_hash_seed"  # since Linux 6.11


class PortCounts(NamedTuple):
    """What the program put into the queue of a port: packets, their bytes, those that TTC moved
    there, those marked; packets that arrived at the port and bypassed the scheme; and those trimmed
    before its queue."""

    packets: int
    bytes_: int
    moved: int
    marked: int
    bypassed: int
    trimmed: int = 0


class LoadedMaps(Protocol):
    """Where maps come from: the object that was just loaded, or a program that runs."""

    def map(self, name: str, key: str, value: str) -> libbpf.Map: ...
    def entries(self, name: str) -> int: ...
    def close(self) -> None: ...


class DataPlane:
    """The program of the network `net`; made by load() or open().

    switches: the nodes that it serves.
    queue_reader: how it reads queue lengths: kfunc (Linux 6.2 and later, 20 ns a queue), probe (240
        ns) or none.
    """

    def __init__(
        self, net: NetworkHandle, maps: LoadedMaps, queue_reader: str | None, attachable: int | None
    ) -> None:
        self.net = net
        self._source, self._program = maps, attachable
        self.switches = switches(net.topology)
        self._layout = plane_program.switch_layout()
        self._ports = maps.map("ports", "=I", PORT.format)
        self._switches = maps.map("switches", "=I", f"={self._layout.size}s")
        self.queue_reader = queue_reader or self._noted_reader()
        counted = maps.map("counted", "=I", COUNTERS.format)
        every = "=" + libbpf.possible_cpus() * COUNTERS.format[1:]
        self._counted = libbpf.Map(counted.fd, struct.Struct("=I"), struct.Struct(every))
        self._scheme: tuple[Selection, Mapping[str, int]] | None = None  # as set by this process

    def _noted_reader(self) -> str:
        """The queue reader that whoever loaded the program has noted in its maps."""
        (noted,) = self._layout.unpack(*self._switches[0,])["reader"]
        return list(plane_program.READERS)[noted]

    @cached_property
    def groups(self) -> Mapping[int, Groups]:
        """The routes of each switch, by node: for a network whose switches have no daemons that
        write them."""
        found = PlaneTables(self._source).all(self._number(node) for node in self.switches)
        return {node: found[self._number(node)] for node in self.switches}

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
        """The program with the scheme `spec`, not yet attached.

        seed: from which each switch's seed follows.
        routes: with all shortest routes of the topology, else with none: daemons will set them.
        trim_bytes: of data that waits at a port before it trims what follows, 0 for never.
        Raises ValueError for a network that is no switch fabric or a scheme that there is not, and
        BpfError if the kernel does not take the program.
        """
        registry.rule(spec)
        topology = net.topology
        if not isinstance(topology.naming, FabricNaming):
            raise ValueError(
                f"{topology.spec} is no switch fabric: its servers forward, by dr for example"
            )
        ports = 1 + max(net.ifindex(node, port) & 0xFFFF for node, port in switch_ports(topology))
        reader, found = plane_program.load(plane_program.entries(topology, ports))
        try:
            plane = cls(net, found, reader, found.program_fd(PROGRAM))
            plane._tell_ports(trim_bytes)
            plane._begin_generations()
            plane.set_scheme(spec, seed=seed)
            if routes:
                plane.follow(topology, kernel=False)
        except BaseException:
            found.close()
            raise
        return plane

    @classmethod
    def open(cls, net: NetworkHandle) -> DataPlane:
        """The program that is attached already, by whichever process; ValueError if there is
        none."""
        program = program_of(net)
        if program is None:
            raise ValueError(
                f"run {net.identity.id} has no data plane: `weft up` with a scheme such as "
                f"ttc brings one"
            )
        return cls(net, libbpf.Attached(program), None, None)

    def __enter__(self) -> DataPlane:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _number(self, switch: int) -> int:
        return switch - self.net.topology.servers

    def _tell_ports(self, trim_bytes: int) -> None:
        topology = self.net.topology
        for node in self.switches:
            for port, peer, far, _ in topology.ports(node):
                addresses = mac(peer, far) + mac(node, port)
                code_point = TRIMMED_AT_HOST if peer < topology.servers else TRIMMED
                entry = (self._number(node) + 1, addresses, port, 0, trim_bytes, code_point)
                self._ports[self.net.ifindex(node, port) & 0xFFFF,] = entry

    def _begin_generations(self) -> None:
        generations = self._source.map("generations", "=I", "=I")
        for node in self.switches:
            generations[self._number(node),] = (1,)  # 0 is what an empty slot of the cache has

    def attach(self) -> None:
        """Let the program decide about everything that arrives at a switch."""
        if self._program is None:
            raise ValueError("this data plane is attached already")
        for node in self.switches:
            messages = []
            for port, *_ in self.net.topology.ports(node):
                index, dev = self.net.ifindex(node, port), device(self.net, node, port)
                messages.append(tc.clsact(index, dev))
                messages.append(
                    libbpf.filter_message(index, dev, self._program, PROGRAM, priority=PRIORITY)
                )
            self._request(node, messages)

    def detach(self) -> None:
        """Leave everything to the switches' kernels again."""
        for node in self.switches:
            messages = []
            for port, *_ in self.net.topology.ports(node):
                body = tc.TCMSG.pack(
                    0, self.net.ifindex(node, port), 0, tc.INGRESS_HOOK, PRIORITY << 16
                )
                command = (
                    f"tc filter del dev {device(self.net, node, port)} ingress prio {PRIORITY}"
                )
                messages.append(netlink.NetlinkMessage(netlink.RTM_DELTFILTER, 0, body, command))
            self._request(node, messages, tolerate=frozenset({errno.ENOENT, errno.EINVAL}))

    def close(self) -> None:
        """Let go of program and maps; where it is attached it goes on."""
        self._source.close()

    def _request(
        self,
        node: int,
        messages: Iterable[netlink.NetlinkMessage],
        *,
        tolerate: frozenset[int] = frozenset(),
    ) -> None:
        socket = netlink_of(self.net, node)
        try:
            socket.request(messages, tolerate=tolerate)
        finally:
            socket.close()

    def set_scheme(self, spec: str, *, seed: int = 0, empty_queues: bool = False) -> dict[int, int]:
        """Choose ports by the scheme `spec` from now on, without losing a packet; returns each
        switch's seed.

        empty_queues: also where links have no rate, so that a scheme that compares queues finds all
            of them empty: for who asks what comparing costs.
        Raises ValueError for a scheme that compares queues, or marks by them, on a kernel that does
        not show them or over links that have none, for one that cannot work in this network, and
        where ports trim packets for one that leaves them to the kernel.
        Where the kernel's multipath hash cannot be seeded (before Linux 6.11), the program hashes
        flows for ecmp too: else all switches would choose alike.
        """
        data_plane, options = registry.data_plane(spec)
        chosen = data_plane.rule(options)
        if self.queue_reader == "none" and chosen.asks_queues:
            raise ValueError(
                f"{spec}: this kernel does not show its queues, since it has no BTF; take "
                f"ecmp, dmodk, vlb or rps"
            )
        if chosen.asks_queues and not empty_queues and not has_rate(self.net):
            raise ValueError(f"{spec}: {NO_QUEUES}")
        if self.trims:
            check_trims(spec, chosen, self.queue_reader)
        data_plane.check(self.net.topology, options)
        self._scheme = data_plane, options
        seeds = {node: selection.mix(selection.mix(seed, 1), node) or 1 for node in self.switches}
        if chosen.rule == KERNEL and not self._seed_kernels(seeds):
            chosen = SelectionRule(FLOW_HASH)
        pending = self._source.map("pending_states", "=I", "=I")
        for node in self.switches:
            number = self._number(node)
            self._switches[number,] = (self._layout.pack(self._fields(node, chosen, seeds[node])),)
            if not chosen["states"]:
                pending[number,] = (0,)  # what the queues called for is not looked at any more
        return seeds

    @property
    def trims(self) -> bool:
        """Whether its ports trim packets."""
        node, port = switch_ports(self.net.topology)[0]
        trim_bytes: int = self._ports[self.net.ifindex(node, port) & 0xFFFF,][
            PORT.fields.index(("trim_bytes", "I"))
        ]
        return trim_bytes > 0

    def _fields(
        self, node: int, chosen: SelectionRule, seed: int
    ) -> Mapping[str, int | Sequence[int]]:
        """What the program is told of a switch, by the names in struct switch_."""
        naming = self.net.topology.naming
        assert isinstance(naming, FabricNaming)
        tier = naming.tier(node)
        read = selection.digits(naming.layout, 1 if chosen.reads_from_first_digit else tier)
        digits = [number for digit in read for number in digit]
        return {
            **chosen.parameters,
            "rule": int(chosen.rule),
            "seed": seed,
            "tier": tier,
            "reader": list(plane_program.READERS).index(self.queue_reader),
            "flowlet_bits": plane_program.flowlet_bits(self.net.topology.switches),
            "digits": [*digits, *[0] * (3 * selection.DIGITS - len(digits))],
            "hosts": sum(
                peer < self.net.topology.servers for _, peer, *_ in self.net.topology.ports(node)
            ),
        }

    def _seed_kernels(self, seeds: Mapping[int, int]) -> bool:
        """Give each switch's multipath hash its seed; False if this kernel has no such thing."""
        if not Path("/proc/sys/net", SEED_SYSCTL).exists():
            return False

        def work() -> None:
            for node, seed in seeds.items():
                netns.enter(self.net.netns(node))
                netns.write_sysctl(SEED_SYSCTL, str(seed))

        netns.in_thread(work)
        return True

    def set_route(self, switch: int, prefix: Prefix, ports: Sequence[int]) -> None:
        """Forward `prefix` at node `switch` through any of its `ports`, a port named twice taking
        twice as much; none: an unreachable route.  ValueError for more than 64."""
        self.groups[switch].set({prefix: self._indexes(switch, ports)})

    def drop_port(self, switch: int, port: int) -> int:
        """Take `port` from every route of node `switch`; how many maps' entries were written,
        mostly one."""
        return self.groups[switch].drop_port(self.net.ifindex(switch, port))

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
            ports = self._routes(topology, node, degraded)
            self.groups[node].replace(
                {prefix: self._indexes(node, each) for prefix, each in ports.items()}
            )
            if kernel:
                self._request(node, self._kernel_routes(node, topology))

    def _routes(
        self, topology: Topology, switch: int, degraded: Collection[int]
    ) -> Mapping[Prefix, Sequence[int]]:
        """Return the ports of `switch` by prefix."""
        if self._scheme:
            selection, options = self._scheme
            if selection.routes:
                return selection.routes(topology, options, switch, degraded)
        return {prefix: [hop.port for hop in hops] for prefix, hops in candidates(topology, switch)}

    def _kernel_routes(self, node: int, topology: Topology) -> list[netlink.NetlinkMessage]:
        """The changes that make the kernel's routes at `node` those of `topology`."""
        naming = topology.naming
        socket = netlink_of(self.net, node)
        try:
            gone = set(fib.routes(socket))
        finally:
            socket.close()
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
        """What was put into the queue of each (switch, port) since the program was loaded."""
        found = {}
        fields = len(COUNTERS.fields)
        for node, port in switch_ports(self.net.topology):
            each = self._counted[self.net.ifindex(node, port) & 0xFFFF,]
            found[node, port] = PortCounts(*(sum(each[field::fields]) for field in range(fields)))
        return found

    def bypassed(self) -> int:
        """Packets that took the kernel's route instead of the scheme's since the program was
        loaded: once for each switch that they came through."""
        return sum(each.bypassed for each in self.counters().values())


def bypassed(net: NetworkHandle) -> int | None:
    """DataPlane.bypassed() of a network that has a data plane; None for any other."""
    if net.topology.server_centric or program_of(net) is None:
        return None
    with DataPlane.open(net) as plane:
        return plane.bypassed()


def check_trims(spec: str, chosen: SelectionRule, queue_reader: str) -> None:
    """ValueError unless packets can be trimmed where ports are chosen by `spec`."""
    if queue_reader == "none":
        raise ValueError(
            "this kernel does not show its queues, since it has no BTF: nothing can be trimmed"
        )
    if chosen.rule == KERNEL:
        raise ValueError(
            f"{spec} leaves packets to the kernel, which trims none; vlb hashes flows as it does"
        )


def switches(topology: Topology) -> range:
    """The nodes that are switches."""
    return range(topology.servers, topology.nodes)


def program_of(net: NetworkHandle) -> int | None:
    """The id of the program that is attached at the switches of `net`, None if there is none."""
    for node, port in switch_ports(net.topology):
        socket = netlink_of(net, node)
        try:
            return libbpf.program_at(socket, net.ifindex(node, port), PRIORITY)
        finally:
            socket.close()
    return None


def switch_ports(topology: Topology) -> list[tuple[int, int]]:
    """(node, port) of every port of every switch."""
    return [(node, port) for node in switches(topology) for port, *_ in topology.ports(node)]
