"""The data plane of a switch fabric: bpf/select.bpf.c, loaded once, attached at every switch port, told what to do.

    with Net("fattree:k=4", link=link, routing="static") as net, DataPlane.load(net, "ttc") as plane:
        plane.set_scheme("drill:d=2,m=1")

The switches' kernels keep routes of their own, for what the program leaves to them.  For `ecmp` that is everything:
Linux multipath routes, with a hash of addresses and ports that is seeded for each switch.

Here one process that knows the whole topology writes the routes of all switches, which stay as they are until it says
otherwise.  In a network that `weft up` made, each switch's daemon writes its own: see tables.py.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from daemons.routing import load_balancing, selection
from daemons.routing.candidates import candidates
from daemons.routing.load_balancing import Rule, Scheme
from testbed.forwarding.groups import Groups
from testbed.forwarding.plane_tables import CACHE_SLOTS, Tables
from testbed.linux import fib, libbpf, netlink, netns, tc
from testbed.plan.network_handle import Measured, device, netlink_of
from testbed.plan.network_plan import mac
from topologies.core.address import FabricNaming, Prefix
from topologies.core.topology import Topology

PRIORITY = 20  # of the filter: behind what swallows packets in a silent failure
PROGRAM = "forward"
# How queue lengths are read, the better way first; none is for kernels without BTF.
READERS = {"kfunc": "select.bpf.o", "probe": "select_probe.bpf.o", "none": "select_blind.bpf.o"}
PORT = "=I12sQ2I"  # struct port
SWITCH = struct.Struct("=8IQ19I4x")  # struct switch_
READER = 9  # where it is in there
COUNTERS = "4Q"  # struct counters, for each processor
MOST_GROUPS, MOST_ROUTES = 1 << 17, 1 << 20  # a route takes memory only when it is set
SEED_SYSCTL = "ipv4/fib_multipath_hash_seed"  # since Linux 6.11


class Counted(NamedTuple):
    """What the program put into the queue of a port: packets, their bytes, those that TTC moved there, those marked."""

    packets: int
    bytes_: int
    moved: int
    marked: int


class Maps(Protocol):
    """Where maps come from: the object that was just loaded, or a program that runs."""

    def map(self, name: str, key: str, value: str) -> libbpf.Map: ...
    def entries(self, name: str) -> int: ...
    def close(self) -> None: ...


class DataPlane:
    """The program of the network `net`; made by load() or open().

    switches: the nodes that it serves.
    queue_reader: how it reads queue lengths: kfunc (Linux 6.2 and later, 20 ns a queue), probe (180 ns) or none.
    """

    def __init__(self, net: Measured, maps: Maps, queue_reader: str | None, attachable: int | None) -> None:
        self.net = net
        self._source, self._program = maps, attachable
        self.switches = switches(net.topology)
        self._ports = maps.map("ports", "=I", PORT)
        self._switches = maps.map("switches", "=I", SWITCH.format)
        self.queue_reader = queue_reader or list(READERS)[self._switches[0,][READER]]
        counted = maps.map("counted", "=I", "=" + COUNTERS)
        self._counted = libbpf.Map(counted.fd, struct.Struct("=I"), struct.Struct("=" + possible_cpus() * COUNTERS))

    @cached_property
    def groups(self) -> Mapping[int, Groups]:
        """The routes of each switch, by node: for a network whose switches have no daemons that write them."""
        found = Tables(self._source).all(self._number(node) for node in self.switches)
        return {node: found[self._number(node)] for node in self.switches}

    @classmethod
    def load(cls, net: Measured, spec: str, *, seed: int = 0, routes: bool = True) -> DataPlane:
        """The program with the scheme `spec`, not yet attached.

        seed: from which each switch's seed follows.
        routes: with all shortest routes of the topology, else with none: daemons will set them.
        Raises ValueError for a network that is no switch fabric or a scheme that there is not, and BpfError if the
        kernel does not take the program.
        """
        load_balancing.scheme(spec)
        topology = net.topology
        if not isinstance(topology.naming, FabricNaming):
            raise ValueError(f"{topology.spec} is no switch fabric: its servers forward, by dr for example")
        ports = 1 + max(net.ifindex(node, port) & 0xFFFF for node, port in switch_ports(topology))
        entries = {
            "ports": ports,
            "counted": ports,
            "switches": topology.switches,
            "groups": room(topology),
            "memories": room(topology),
            **dict.fromkeys(("generations", "wants", "states"), topology.switches),
            "routes": MOST_ROUTES,
            "cache": topology.switches * CACHE_SLOTS,
        }
        reader, found = load_program(entries)
        plane = cls(net, found, reader, found.program_fd(PROGRAM))
        try:
            plane._tell_ports()
            plane._begin_generations()
            plane.set_scheme(spec, seed=seed)
            if routes:
                plane.follow(topology, kernel=False)
        except BaseException:
            found.close()
            raise
        return plane

    @classmethod
    def open(cls, net: Measured) -> DataPlane:
        """The program that is attached already, by whichever process; ValueError if there is none."""
        program = program_of(net)
        if program is None:
            raise ValueError(f"run {net.run.id} has no data plane: `weft up` with a scheme such as ttc brings one")
        return cls(net, libbpf.Attached(program), None, None)

    def __enter__(self) -> DataPlane:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _number(self, switch: int) -> int:
        return switch - self.net.topology.servers

    def _tell_ports(self) -> None:
        topology = self.net.topology
        for node in self.switches:
            for port, peer, far, _ in topology.ports(node):
                addresses = mac(peer, far) + mac(node, port)
                self._ports[self.net.ifindex(node, port) & 0xFFFF,] = (self._number(node) + 1, addresses, 0, port, 0)

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
                messages.append(libbpf.filter_message(index, dev, self._program, PROGRAM, priority=PRIORITY))
            self._request(node, messages)

    def detach(self) -> None:
        """Leave everything to the switches' kernels again."""
        for node in self.switches:
            messages = []
            for port, *_ in self.net.topology.ports(node):
                body = tc.TCMSG.pack(0, self.net.ifindex(node, port), 0, tc.INGRESS_HOOK, PRIORITY << 16)
                command = f"tc filter del dev {device(self.net, node, port)} ingress prio {PRIORITY}"
                messages.append(netlink.Message(netlink.RTM_DELTFILTER, 0, body, command))
            self._request(node, messages, tolerate=frozenset({errno.ENOENT, errno.EINVAL}))

    def close(self) -> None:
        """Let go of program and maps; where it is attached it goes on."""
        self._source.close()

    def _request(
        self, node: int, messages: Iterable[netlink.Message], *, tolerate: frozenset[int] = frozenset()
    ) -> None:
        socket = netlink_of(self.net, node)
        try:
            socket.request(messages, tolerate=tolerate)
        finally:
            socket.close()

    def set_scheme(self, spec: str, *, seed: int = 0) -> dict[int, int]:
        """Choose ports by the scheme `spec` from now on, without losing a packet; returns each switch's seed.

        Raises ValueError for a scheme that compares queues, or marks by them, on a kernel that does not show them.
        Where the kernel's multipath hash cannot be seeded (before Linux 6.11), the program hashes flows for ecmp too:
        else all switches would choose alike.
        """
        chosen = load_balancing.scheme(spec)
        if self.queue_reader == "none" and chosen.asks_queues:
            raise ValueError(
                f"{spec}: nobody sees this kernel's queues, which has no BTF; take ecmp, dmodk, vlb or rps"
            )
        seeds = {node: selection.mix(selection.mix(seed, 1), node) or 1 for node in self.switches}
        if chosen.rule is Rule.KERNEL and not self._seed_kernels(seeds):
            chosen = Scheme(Rule.FLOW_HASH)
        for node in self.switches:
            self._switches[self._number(node),] = self._entry(node, chosen, seeds[node])
        return seeds

    def _entry(self, node: int, chosen: Scheme, seed: int) -> tuple[int, ...]:
        naming = self.net.topology.naming
        assert isinstance(naming, FabricNaming)
        tier = naming.tier(node)
        # LBSP's switches all read the whole number of a destination, each other bits of it
        read = selection.digits(naming.layout, 1 if chosen.rule is Rule.LBSP else tier)
        digits = [number for digit in read for number in digit]
        crowded = chosen.crowded[tier > 1] if chosen.states else (0, 0)
        shift = max(0, chosen.groups.bit_length() - 1) * (tier - 1)
        return (
            int(chosen.rule), seed, chosen.d, chosen.m, chosen.delta, int(chosen.ties_redirect), int(chosen.in_bytes),
            chosen.ecn_packets, chosen.gap_us * 1000, list(READERS).index(self.queue_reader),
            *digits, *[0] * (3 * selection.DIGITS - len(digits)),
            chosen.groups, min(shift, 31), int(chosen.hashed), *crowded, int(tier == 1),
        )  # fmt: skip

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
        """Forward `prefix` at node `switch` through any of its `ports`, a port named twice taking twice as much; none:
        to nobody.  ValueError for more than 64."""
        self.groups[switch].set({prefix: self._indexes(switch, ports)})

    def drop_port(self, switch: int, port: int) -> int:
        """Take `port` from every route of node `switch`; how many maps' entries were written, mostly one."""
        return self.groups[switch].drop_port(self.net.ifindex(switch, port))

    def follow(self, topology: Topology, *, kernel: bool = True) -> None:
        """Let every switch have the shortest routes over those links of `topology`, the same network, that live.

        kernel: the kernels' routes too.
        """
        for node in self.switches:
            table = {
                prefix: self._indexes(node, [hop.port for hop in hops]) for prefix, hops in candidates(topology, node)
            }
            self.groups[node].replace(table)
            if kernel:
                self._request(node, self._kernel_routes(node, topology))

    def _kernel_routes(self, node: int, topology: Topology) -> list[netlink.Message]:
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
                (self.net.ifindex(node, hop.port), device(self.net, node, hop.port), naming.address(hop.node))
                for hop in hops
            ]
            messages.append(fib.route_message(prefix, via, naming.address(node)))
            gone.discard(prefix)
        return messages + [fib.removal_message(prefix) for prefix in gone]

    def _indexes(self, node: int, ports: Iterable[int]) -> list[int]:
        return [self.net.ifindex(node, port) for port in ports]

    def counters(self) -> dict[tuple[int, int], Counted]:
        """What was put into the queue of each (switch, port) since the program was loaded."""
        found = {}
        for node, port in switch_ports(self.net.topology):
            each = self._counted[self.net.ifindex(node, port) & 0xFFFF,]
            found[node, port] = Counted(*(sum(each[field::4]) for field in range(4)))
        return found


def switches(topology: Topology) -> range:
    """The nodes that are switches."""
    return range(topology.servers, topology.nodes)


def program_of(net: Measured) -> int | None:
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


def room(topology: Topology) -> int:
    """How many groups the maps hold, the same number for each switch: twice one for every host, up to a limit."""
    return topology.switches * min(MOST_GROUPS // topology.switches, 2 * topology.servers + 32)


def possible_cpus() -> int:
    """How many processors this kernel may ever have: a per-CPU map has a value for each."""
    ranges = Path("/sys/devices/system/cpu/possible").read_text().strip().split(",")
    return 1 + int(ranges[-1].split("-")[-1])


def load_program(entries: Mapping[str, int]) -> tuple[str, libbpf.Object]:
    """How queue lengths are read on this kernel, and the program loaded; BpfError if it takes no variant."""
    first: libbpf.BpfError | None = None
    for reader, name in READERS.items():
        try:
            return reader, libbpf.Object(libbpf.DIRECTORY / name, entries=entries)
        except libbpf.BpfError as error:
            first = first or error
    assert first
    raise first
