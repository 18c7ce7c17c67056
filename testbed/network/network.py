"""A network in the kernel: made from a plan, read back, broken and mended, taken down.

Network is the engine; net.py puts Mininet's face on it.  `create` makes one, `open` finds one that another process
made.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from daemons.core import schemes
from testbed.agent import control
from testbed.agent.counters import FILE as BOARD
from testbed.agent.counters import Board, Row
from testbed.agent.daemon_set import Daemons
from testbed.forwarding import transit_program
from testbed.forwarding.data_plane import DataPlane, program_of
from testbed.linux import clock, netlink, netns, tc
from testbed.linux.ethtool import Offloads
from testbed.network import clean
from testbed.plan import run
from testbed.plan.network_plan import (
    IFF_UP,
    IFINFO,
    IFLA_GSO_MAX_SEGS,
    IFLA_IFNAME,
    SEED_SYSCTL,
    End,
    Plan,
    set_up,
    sites,
)
from testbed.plan.plane_selection import Carriage, carriage, under_delay
from testbed.plan.run import Kept, Run
from topologies import build
from topologies.core.link import LinkSpec
from topologies.core.topology import Topology


class Mismatch(RuntimeError):
    """The kernel does not hold what was planned."""


class Network:
    """The namespaces, links, queues and routes of one run.

    stages: how many seconds each part of making it took, in order.
    """

    def __init__(self, plan: Plan, spaces: list[netns.Netns], kept: Kept | None) -> None:
        self.plan = plan
        self.spaces = spaces
        self.kept = kept
        self.stages: dict[str, float] = {}

    @property
    def run(self) -> Run:
        return self.plan.run

    @property
    def topology(self) -> Topology:
        return self.plan.topology

    @classmethod
    def create(
        cls,
        topology: Topology,
        link: LinkSpec | None,
        *,
        scheme: str = "none",
        name: str | None = None,
        packed: int | None = None,
        detached: bool = False,
        progress: Callable[[str], None] = lambda stage: None,
    ) -> Network:
        """Make `topology` in the kernel, each link like `link` in both directions, or as fast as it goes if None, start
        the daemons, and return when they have converged.

        scheme: what routes; `static` installs the routes that the topology alone gives, `none` none; everything else is
            a scheme of daemons (daemons/core/schemes.py) or of the data plane (daemons/routing/load_balancing.py).
        packed: how many processes share the daemons; None: every node has one of its own.
        detached: leave the run to its supervisor, which keeps it alive when this process has ended.
        progress: called with the name of each stage as it begins.
        Raises ValueError for what cannot be made and OSError for what the kernel refuses; nothing is left behind then.
        """
        need_root()
        how = under_delay(scheme) if link and link.delay_us else carriage(scheme)
        if how.balancing and topology.server_centric:
            raise ValueError(f"scheme {scheme} is for switch fabrics; {topology.spec} is none, take dr")
        link_kbps = link.rate_bps // 1000 if link else schemes.UNSHAPED_KBPS
        views = schemes.views(topology, how.daemons, link_kbps=link_kbps) if how.daemons else {}
        cls._require_features(link, scheme, how)
        kept = run.reserve(name)
        network = None
        try:
            plan = Plan(kept.run, topology, link, static=how.static, seeded=can_seed())
            network = cls(plan, [], kept)
            run.write_journal(kept.run, journal(plan, scheme))
            keep = kept.lock if detached else None
            stages = [*network._stages(), *network._program_stages(how), *network._daemon_stages(views, packed, keep)]
            for stage, work in stages:
                progress(stage)
                began = clock.monotonic()
                work()
                network.stages[stage] = clock.monotonic() - began
        except BaseException:
            if network:
                network.close()
            clean.remove(kept.run)
            kept.release()
            raise
        return network

    @classmethod
    def open(cls, name: str | None = None) -> Network:
        """The live run called `name`, or the only one; ValueError if there is none."""
        need_root()
        found = run.find(name)
        told = found.journal
        if "topology" not in told:
            raise ValueError(f"run {found.id} is still coming up")
        link = LinkSpec(**told["link"]) if told["link"] else None
        plan = Plan(found, build(told["topology"]), link, static=carriage(told["scheme"]).static)
        return cls(plan, [], None)

    @staticmethod
    def _require_features(link: LinkSpec | None, scheme: str, how: Carriage) -> None:
        """ValueError unless this kernel can do what `scheme`, carried out like `how`, and `link` need."""
        from testbed.host import doctor

        chosen = schemes.scheme(how.daemons)[0] if how.daemons else None
        needed = ["steering"] if chosen and chosen.readdressed else []
        needed += ["clsact and cls_bpf", "bpf", "libbpf"] if chosen and chosen.relays else []
        for feature in needed:
            doctor.require(feature, f"scheme {scheme}")
        if link and link.delay_us:
            for feature in ("netem", "ifb"):
                doctor.require(feature, f"a delay of {link.delay_us} us")

    def _stages(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("namespaces", self._make_namespaces),
            ("links", self._make_links),
            ("queues", lambda: self._each(self.plan.queues)),
            ("addresses", lambda: self._each(self.plan.addresses)),
            ("routes", lambda: self._each(self.plan.routes)),
            ("offloads", self._turn_offloads_off),
            ("read back", self.check),
        ]

    def _program_stages(self, how: Carriage) -> list[tuple[str, Callable[[], None]]]:
        """Attach the eBPF programs that `how` needs."""
        stages: list[tuple[str, Callable[[], None]]] = []
        if how.balancing:
            stages.append(("data plane", lambda: self._attach(how.balancing)))
        if how.daemons and schemes.scheme(how.daemons)[0].relays:
            stages.append(("relay", self._attach_relay))
        return stages

    def _daemon_stages(
        self, views: Mapping[int, schemes.View], packed: int | None, keep: int | None
    ) -> list[tuple[str, Callable[[], None]]]:
        """Start the daemons and wait for them; a detached run without daemons has a supervisor that only keeps it."""
        if not views and keep is None:
            return []

        def launch() -> None:
            programs = program_of(self), self.topology.servers, transit_program.program_of(self)
            daemons = Daemons(sites(self.plan, views), views, *programs)
            control.launch(self.run, daemons, nodes=self.topology.nodes, packed=packed, keep=keep)

        stages: list[tuple[str, Callable[[], None]]] = [("daemons", launch)]
        if views:
            stages += [("neighbours", self._wait_for_neighbours), ("convergence", self.wait_until_converged)]
        return stages

    def _attach(self, scheme: str) -> None:
        """Let the eBPF program choose ports; the filters hold it when we have let it go."""
        with DataPlane.load(self, scheme, routes=False) as plane:
            plane.attach()

    def _attach_relay(self) -> None:
        """Let the eBPF program readdress what servers pass on, as their daemons will say."""
        transit_program.attach(self)

    def change_scheme(self, scheme: str) -> None:
        """Let the data plane of a running fabric choose ports by `scheme`, without losing a packet; its daemons go on.

        ValueError if there is no such scheme, or if the run has no data plane.
        """
        with DataPlane.open(self) as plane:
            plane.set_scheme(scheme)
        run.write_journal(self.run, self.run.journal | {"scheme": scheme})

    def _make_namespaces(self) -> None:
        plan = self.plan
        allow_descriptors(3 * plan.topology.nodes + 200)
        names = [plan.namespace(node) for node in range(plan.topology.nodes)]
        netns.create(names, plan.sysctls, self.spaces)

    def _make_links(self) -> None:
        messages = [self.plan.devices(node) for node in range(self.topology.nodes)]
        far_ends: list[list[netlink.Message]] = [[] for _ in self.spaces]
        for link in range(len(self.topology.links)):
            near, _, far, far_port = self.plan.orientation(link)
            messages[near].append(self.plan.veth(link, self.spaces[far].fd))
            far_ends[far].append(set_up(self.plan.ends[far][far_port], True))
        self._each(messages.__getitem__)
        self._each(far_ends.__getitem__)

    def _each(self, messages: Callable[[int], list[netlink.Message]]) -> None:
        """Make the changes that `messages` gives for each node."""
        for node, space in enumerate(self.spaces):
            space.netlink.request(messages(node))

    def _turn_offloads_off(self) -> None:
        if self.plan.link is None:
            return

        def work() -> None:
            for node in range(self.topology.servers):
                netns.enter(self.spaces[node].fd)
                offloads = Offloads()
                for end in self.plan.ends[node].values():
                    offloads.turn_off(end.dev)
                offloads.close()

        netns.in_thread(work)

    def check(self) -> None:
        """Read back every interface and its queue; Mismatch says where the kernel holds something else than planned."""
        link = self.plan.link
        for node, space in enumerate(self.spaces):
            found = interfaces(space.netlink)
            shapes = tc.shapes(space.netlink) if link else {}
            for end in self.plan.ends[node].values():
                name, up, segments = found.get(end.ifindex, ("", False, 0))
                if name != end.dev or not up:
                    raise Mismatch(f"{end.dev}: planned up with index {end.ifindex}, the kernel has {found}")
                if link is None:
                    continue
                held = shapes.get(end.ifindex)
                if (
                    held is None
                    or abs((held.rate_bps or 0) - link.rate_bps) >= 8
                    or held.queue_packets != link.queue_packets
                ):
                    raise Mismatch(f"{end.dev}: planned {link}, the kernel has {held}")
                if link.delay_us and (ifb := shapes.get(self.plan.ifb(end)[0])) and ifb.delay_us != link.delay_us:
                    raise Mismatch(f"{end.dev}: planned {link}, the kernel holds packets back {ifb.delay_us} us")
                if node < self.topology.servers and segments != 1:
                    raise Mismatch(f"{end.dev}: planned gso_max_segs 1, the kernel has {segments}")

    def _wait_for_neighbours(self) -> None:
        self._wait(lambda row: row.neighbours_up == row.neighbours_expected, "neighbours")

    def wait_until_converged(self, timeout_s: float = 60.0) -> None:
        """Return when every daemon has all the neighbours and all the routes that the topology promises.

        TimeoutError names those that have not.
        """
        self._wait(lambda row: bool(row.converged), "routes", timeout_s)

    def _wait(self, ready: Callable[[Row], bool], what: str, timeout_s: float = 60.0) -> None:
        board = Board(self.run.directory / BOARD)
        waiting = list(schemes.routers(self.topology))
        end = clock.monotonic() + timeout_s
        try:
            while waiting := [node for node in waiting if not ready(board.row(node))]:
                if clock.monotonic() > end:
                    row = board.row(waiting[0])
                    raise TimeoutError(
                        f"{len(waiting)} daemons still lack {what} after {timeout_s:g} s, the first is "
                        f"{self.plan.names[waiting[0]]}: {row.neighbours_up} of {row.neighbours_expected} neighbours "
                        f"and {row.routes} routes; see {self.run.directory / 'log'}"
                    )
                clock.sleep(0.001)
        finally:
            board.close()

    def rows(self) -> dict[int, Row]:
        """What every daemon tells on the board, by node; empty if the run has none."""
        if not carriage(self.run.journal["scheme"]).daemons:
            return {}
        board = Board(self.run.directory / BOARD)
        found = {node: board.row(node) for node in schemes.routers(self.topology)}
        board.close()
        return found

    def dead_links(self) -> list[int]:
        """The links that do not carry packets both ways: an end is down, or swallows what arrives."""
        dead = set()
        for node in range(self.topology.nodes):
            with self.at(node) as socket:
                held = interfaces(socket)
                swallowing = tc.blackholes(socket)
            for end in self.plan.ends[node].values():
                if not held[end.ifindex][1] or end.ifindex in swallowing:
                    dead.add(end.link)
        return sorted(dead)

    def status(self) -> dict[str, Any]:
        """The run, its dead links, and a row for each daemon; JSON-able."""
        told = self.run.journal
        nodes = [
            {
                "node": self.plan.names[node],
                "pid": row.pid or None,
                "neighbours": row.neighbours_up,
                "of": row.neighbours_expected,
                "routes": row.routes,
                "losses": row.losses,
                "converged": bool(row.converged),
            }
            for node, row in self.rows().items()
        ]
        failed = [self.topology.link_name(link) for link in self.dead_links()]
        return {
            "run": self.run.id,
            "topology": told["topology"],
            "link": told["link"],
            "scheme": told["scheme"],
            "failed": failed,
            "nodes": nodes,
        }

    @contextmanager
    def at(self, node: int) -> Iterator[netlink.Socket]:
        """A netlink socket in the namespace of `node`, whoever made the network."""
        if self.spaces:
            yield self.spaces[node].netlink
            return
        with netns.inside(self.netns(node)):
            socket = netlink.Socket()
        try:
            yield socket
        finally:
            socket.close()

    @cached_property
    def _opened(self) -> dict[int, int]:
        return {}

    def netns(self, node: int) -> int:
        """A descriptor of the namespace of `node`, open as long as the network is."""
        if self.spaces:
            return self.spaces[node].fd
        if node not in self._opened:
            self._opened[node] = os.open(netns.NAMES / self.plan.namespace(node), os.O_RDONLY | os.O_CLOEXEC)
        return self._opened[node]

    def ifindex(self, node: int, port: int) -> int:
        """The index of the interface that is `port` of `node`, unique over all live runs."""
        return self.plan.ends[node][port].ifindex

    def both_ends(self, link: int) -> list[tuple[int, int, End]]:
        """(node, port, end) of each end of `link`."""
        a, pa, b, pb = self.topology.links[link].tolist()
        return [(a, pa, self.plan.ends[a][pa]), (b, pb, self.plan.ends[b][pb])]

    def fail(self, name: str, *, silent: bool = False, only_to: str | None = None) -> None:
        """Let the link called `name`, h0-w0, die: both ends lose their carrier, or, `silent`, packets just vanish.

        only_to: in a silent failure, the one node that no longer hears anything over the link.
        Raises ValueError if there is no such link or node.
        """
        link = self.topology.link(name)
        ends = self.both_ends(link)
        if only_to is not None:
            node = self.topology.naming.node(only_to)
            if not silent or node not in [at for at, _, _ in ends]:
                raise ValueError(f"{only_to}: one way only goes with a silent failure, and must be an end of {name}")
            ends = [end for end in ends if end[0] == node]
        for node, _, end in ends:
            with self.at(node) as socket:
                if silent:
                    socket.request([tc.blackhole(end.ifindex, end.dev)])
                else:
                    socket.request([set_up(end, False)])

    def restore(self, name: str) -> None:
        """Undo fail() on the link called `name`, however it failed; ValueError if there is no such link."""
        for node, port, end in self.both_ends(self.topology.link(name)):
            with self.at(node) as socket:
                tc.unblackhole(socket, end.ifindex, end.dev)
                if not self.is_up(node, port, socket):
                    self.bring_up(node, port, socket)

    def fail_node(self, name: str, *, silent: bool = False) -> None:
        """Let the node called `name` lose its power: its ports go down, by which those at the far end of its links lose
        their carrier, while those behind a common switch are told nothing.

        silent: it hangs: nothing that it sends or that is for it arrives, and carriers stay.
        ValueError if there is no such node.
        """
        node = self.topology.naming.node(name)
        if silent:
            for *_, link in self.topology.ports(node):
                self.fail(self.topology.link_name(link), silent=True)
            return
        with self.at(node) as socket:
            socket.request([set_up(end, False) for end in self.plan.ends[node].values()])

    def restore_node(self, name: str) -> None:
        """Undo fail_node(), and fail() on every link of the node called `name`; ValueError if there is none."""
        for *_, link in self.topology.ports(self.topology.naming.node(name)):
            self.restore(self.topology.link_name(link))

    def is_up(self, node: int, port: int, socket: netlink.Socket) -> bool:
        """Whether `port` of `node` is set up; `socket` is one in its namespace."""
        return interfaces(socket)[self.ifindex(node, port)][1]

    def take_down(self, node: int, port: int, socket: netlink.Socket) -> None:
        """Set an interface down, and with it the link."""
        socket.request([set_up(self.plan.ends[node][port], False)])

    def bring_up(self, node: int, port: int, socket: netlink.Socket) -> None:
        """Set an interface up again, with what the kernel forgot when it went down: neighbours, and static routes."""
        socket.request([set_up(self.plan.ends[node][port], True)])
        if not self.topology.is_crossbar(node):
            socket.request(self.plan.neighbours(node, port))
            held = interfaces(socket)
            down = [other for other, end in self.plan.ends[node].items() if not held[end.ifindex][1]]
            socket.request(self.plan.routes(node, down=down))

    def close(self) -> None:
        """Let go of the descriptors; the network stays."""
        for space in self.spaces:
            space.close()
        self.spaces = []
        for fd in self._opened.values():
            os.close(fd)
        self._opened.clear()

    def down(self) -> None:
        """Take the network out of the kernel, and return when it is gone."""
        self.close()
        clean.remove(self.run)
        if self.kept:
            self.kept.release()
            self.kept = None


def can_seed() -> bool:
    """Whether this kernel lets each namespace seed its multipath hash."""
    return Path("/proc/sys/net", SEED_SYSCTL).exists()


def journal(plan: Plan, scheme: str) -> dict[str, object]:
    """What a run says that it will create."""
    link = plan.link
    return {
        "id": plan.run.id,
        "slot": plan.run.slot,
        "command": sys.argv,
        "pid": os.getpid(),
        "began_unix_s": clock.wall(),
        "topology": plan.topology.spec,
        "link": link and {"rate_bps": link.rate_bps, "queue_packets": link.queue_packets, "delay_us": link.delay_us},
        "scheme": scheme,
        "namespaces": [plan.namespace(node) for node in range(plan.topology.nodes)],
    }


def interfaces(socket: netlink.Socket) -> dict[int, tuple[str, bool, int]]:
    """(name, whether it is set up, gso_max_segs) of every interface in the socket's namespace, by index."""
    found = {}
    for body in socket.dump(netlink.RTM_GETLINK, IFINFO.pack(0, 0, 0, 0, 0)):
        _, _, index, flags, _ = IFINFO.unpack_from(body)
        has = netlink.attributes(body, IFINFO.size)
        segments = struct.unpack("=I", has[IFLA_GSO_MAX_SEGS])[0] if IFLA_GSO_MAX_SEGS in has else 0
        found[index] = (has[IFLA_IFNAME].rstrip(b"\0").decode(), bool(flags & IFF_UP), segments)
    return found


def allow_descriptors(count: int) -> None:
    """Let this process open `count` more files; ValueError if the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    if os.geteuid() == 0:
        hard = max(hard, count)
    if hard < count:
        raise ValueError(f"this network needs {count} open files and the limit is {hard}; raise it with ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def need_root() -> None:
    """ValueError unless this process may make namespaces."""
    if os.geteuid():
        raise ValueError("networks need root: use sudo, or `weft uml -- COMMAND` for a kernel of your own")
