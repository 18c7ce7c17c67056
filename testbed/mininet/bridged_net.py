"""The half of Net with bridges: Mininet builds nodes and links of a Lan, whose links can fail.

Some of Mininet's tests need other means here: iperf by iperf3, shares by control groups.
"""

from __future__ import annotations

import atexit
import os
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from mininet.link import TCLink
from mininet.log import info, output
from mininet.net import Mininet
from mininet.node import Controller
from mininet.nodelib import NAT

from weft.testbed.linux import netns, tc, tc_filters
from weft.testbed.linux.interface import interfaces
from weft.testbed.mininet.lan import Lan
from weft.testbed.mininet.lan_nodes import LimitedHost, processor_shares
from weft.testbed.mininet.mininet_arguments import Arguments, Classes
from weft.testbed.network import clean
from weft.testbed.network.handle import BRIDGES
from weft.testbed.network.impair import Impairment
from weft.testbed.runs.run import RunRecord
from weft.testbed.traffic.iperf import IperfNode, IperfSpec, between
from weft.topologies.core.link import LinkSpec, Mbps

NO_ROUTE = "ping: connect: "  # followed by an error that Mininet cannot parse
UNITS = {"k": ("Kbits", 1e3), "m": ("Mbits", 1e6), "g": ("Gbits", 1e9)}
SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9}


class NetTests:
    """Mix-in before mininet.net.Mininet."""

    hosts: list[Any]

    @property
    def identity(self) -> RunRecord:
        """Return the run of the hosts."""
        raise NotImplementedError

    def judged(self, *, always: bool = True) -> AbstractContextManager[None]:
        """Watch the network during a measurement, and print its fidelity after it.

        Args:
            always: print PASS, too.
        """
        raise NotImplementedError

    @staticmethod
    def _parsePing(pingOutput: str) -> tuple[int, int]:
        """Return packets sent and received; without a route one is sent and lost."""
        if NO_ROUTE in pingOutput:
            return 1, 0
        counts: tuple[int, int] = Mininet._parsePing(pingOutput)
        return counts

    @staticmethod
    def _parsePingFull(pingOutput: str) -> tuple[float, ...]:
        """Return packets sent and received, and round-trip times."""
        if NO_ROUTE in pingOutput:
            return 1, 0, 0, 0, 0, 0
        counts: tuple[float, ...] = Mininet._parsePingFull(pingOutput)
        return counts

    def iperf(
        self,
        hosts: Any = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: int = 5,
        port: int | None = None,
    ) -> list[str]:
        """Run one iperf3 test and return the rates that the server received and the client sent.

        As in Mininet a rate is text such as "9.57 Mbits/sec", and udpBw precedes them for UDP.

        Args:
            hosts: client and server; by default the first and the last host.
            l4Type: TCP or UDP.
            udpBw: rate of UDP, such as 10M.
            fmt: unit k, m or g; by default the largest that fits.
            seconds: duration.
            port: of the server; by default any free one.

        Raises:
            IperfError: iperf3 failed; the message is its own.
        """
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        if l4Type not in ("TCP", "UDP"):
            raise ValueError(f"iperf: l4Type is TCP or UDP, not {l4Type!r}")
        output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
        udp_rate_bps = rate_bps_of(udpBw) if l4Type == "UDP" else None
        with self.judged(), ExitStack() as stack:
            ends = [endpoint(host) for host in (client, server)]
            for end in ends:
                stack.callback(os.close, end.netns)
            spec = IperfSpec(seconds=seconds, udp_rate_bps=udp_rate_bps)
            result = between(ends[0], ends[1], spec, self.identity.id, port=port)
            rates = [rate_text(rate_bps, fmt) for rate_bps in (result.goodput_bps, result.sent_bps)]
            if udp_rate_bps is not None:
                rates.insert(0, udpBw)
            output(f"*** Results: {rates}\n")
        return rates

    def runCpuLimitTest(self, cpu: float, duration: int = 5) -> list[float]:
        """Return the share of all processors (per cent) of each busy host, second by second.

        Raises:
            ValueError: hosts have no shares.
        """
        if not all(isinstance(host, LimitedHost) for host in self.hosts):
            raise ValueError("runCpuLimitTest needs host=CPULimitedHost")
        shares = processor_shares(self.hosts, cpu, duration)
        output(f"*** Results: {shares}\n")
        return shares


def endpoint(host: Any) -> IperfNode:
    """Return a host as an end of iperf3; the caller closes its descriptor.

    Raises:
        ValueError: the host has no address.
    """
    address = host.IP()
    if not address:
        raise ValueError(f"iperf: {host} has no address")
    fd = os.open(netns.NAMES / host.namespace, os.O_RDONLY)
    return IperfNode(host.name, fd, address)


def rate_bps_of(text: str) -> int:
    """Return the bits per second of iperf's 10M; raise ValueError for other text."""
    has_unit = text[-1:].isalpha()
    try:
        scale = SUFFIXES[text[-1].upper()] if has_unit else 1
        return round(float(text[:-1] if has_unit else text) * scale)
    except (KeyError, ValueError):
        raise ValueError(f"iperf: {text!r} is no rate; write it as in 10M") from None


def rate_text(rate_bps: float, fmt: str | None) -> str:
    """Return a rate as iperf writes it, in the unit of `fmt`."""
    if fmt is not None and fmt.lower() not in UNITS:
        raise ValueError(f"iperf: fmt is k, m or g, not {fmt!r}")
    fits = [unit for unit in UNITS.values() if rate_bps >= unit[1]] or [UNITS["k"]]
    name, scale = UNITS[fmt.lower()] if fmt else fits[-1]
    value = rate_bps / scale
    return f"{value:.{max(0, 3 - len(str(int(value))))}f} {name}/sec"


class BridgedNet(NetTests, Mininet):  # type: ignore[misc]  # mininet has no types
    """Net with switches as bridges if `bridged`; a network of routers uses only the checks.

    Raises:
        ValueError: nodes or links are added to a network of routers.
    """

    inited = True  # else Mininet changes limits of the whole machine
    bridged: bool
    run_name: str | None
    _lan: Lan | None = None
    running = False

    def build_bridged(self, arguments: Arguments) -> None:
        """Initialise Mininet, and build the topology unless build=False."""
        self.classes: Classes | None = None
        if arguments.mininet.get("cleanup"):
            clean.clean()
        Mininet.__init__(self, topo=None, build=False, **arguments.for_mininet())
        self.topo = arguments.topology
        if arguments.link_spec:
            self.link = _link_class(arguments.link_spec)
        if self.topo is not None and arguments.mininet.get("build", True):
            self.build()

    @property
    def lan(self) -> Lan:
        """Return the run, which begins with the first node."""
        if self._lan is None:
            self._lan = Lan(self.run_name)
            self.classes = Classes(self._lan)
            atexit.register(self._take_down)
        return self._lan

    def _take_down(self) -> None:
        if self._lan is not None:
            lan = self._lan
            self._lan = None
            atexit.unregister(self._take_down)
            lan.down()

    def _node_classes(self) -> Classes:
        """Return the classes of nodes and links; raise ValueError in a network of routers."""
        if not self.bridged:
            raise ValueError(
                "a routed network is built as a whole, because it determines addresses and the "
                "daemons' neighbours; routing='bridge' allows new nodes and links"
            )
        _ = self.lan  # which creates the classes
        assert self.classes is not None
        return self.classes

    def addHost(self, name: str, cls: Any = None, **params: Any) -> Any:
        """Add a host, also to a network that is up; see Mininet.addHost."""
        maker = self._node_classes().host(cls or self.host)
        host = super().addHost(name, cls=maker, **params)
        host.up = self.running
        return host

    def addSwitch(self, name: str, cls: Any = None, **params: Any) -> Any:
        """Add a switch, also to a network that is up; see Mininet.addSwitch."""
        return super().addSwitch(
            name, cls=self._node_classes().switch(cls or self.switch), **params
        )

    def addController(self, name: Any = "c0", controller: Any = None, **params: Any) -> Any:
        """Add a placeholder for a controller.

        Raises:
            ValueError: a controller that switches would have to obey.
        """
        if isinstance(name, Controller):
            name, controller = name.name, type(name)
        maker = self._node_classes().controller(controller or self.controller)
        if maker is None:
            return None
        node = maker(name, **params)
        self.controllers.append(node)
        self.nameToNode[name] = node
        return node

    def addLink(
        self,
        node1: Any,
        node2: Any,
        port1: int | None = None,
        port2: int | None = None,
        cls: Any = None,
        **params: Any,
    ) -> Any:
        """Add a link, also to a network that is up; see Mininet.addLink."""
        return super().addLink(
            node1, node2, port1, port2, cls=self._node_classes().link(cls or self.link), **params
        )

    def delLinkBetween(self, node1: Any, node2: Any, index: int = 0, allLinks: bool = False) -> Any:
        """Remove a link between two nodes, or all of them.

        Raises:
            ValueError: there is none.
        """
        if not self.linksBetween(node1, node2)[index:]:
            raise ValueError(f"no link {index} between {node1} and {node2}")
        return super().delLinkBetween(node1, node2, index, allLinks)

    def delNode(self, node: Any, nodes: Any = None) -> None:
        """Remove a node, its links and its namespace."""
        self._node_classes()
        for link in [link for link in self.links if node in (link.intf1.node, link.intf2.node)]:
            self.delLink(link)
        super().delNode(node, nodes)
        self.lan.remove_node(node.name)

    def delLink(self, link: Any) -> None:
        """Remove a link; a network of routers keeps its ends, down for good."""
        if self.bridged:
            super().delLink(link)
            return
        for port in (link.intf1, link.intf2):
            port.ifconfig("down")
        self.links.remove(link)

    def addNAT(
        self, name: str = "nat0", connect: Any = True, inNamespace: bool = True, **params: Any
    ) -> Any:
        """Add a node through which hosts reach the machine's network; see Mininet.addNAT.

        It has a namespace of its own.
        """
        if not self.bridged:
            raise ValueError(
                "hosts of a network of routers reach the machine's network by "
                "Net(..., outwards=True)"
            )
        nat = self.addHost(name, cls=NAT, subnet=self.ipBase, **params)
        if connect:
            self.addLink(nat, self.switches[0] if connect is True else connect)
            for host in self.hosts:
                if host is not nat:
                    host.setDefaultRoute(f"via {nat.params['ip'].split('/')[0]}")
        return nat

    def buildFromTopo(self, topo: Any = None) -> None:
        """Build `topo`; an error leaves nothing."""
        self.lan.expect([*topo.nodes(), *(["c0"] if self.controller else [])])
        super().buildFromTopo(topo)

    def build(self) -> None:
        """Build the network; an error leaves nothing."""
        try:
            super().build()
        except BaseException:
            self._take_down()
            raise

    def configureControlNetwork(self) -> None:
        """Do nothing: switches have no controller."""

    def start(self) -> None:
        """Set the switches up."""
        _ = self.lan  # an empty network is a run, too
        super().start()
        for host in self.hosts:
            host.up = True
        self.running = True

    def stop(self) -> None:
        """End every shell, and remove everything from the kernel."""
        info(
            f"*** Stopping {len(self.hosts)} hosts, {len(self.switches)} switches and "
            f"{len(self.links)} links\n"
        )
        try:
            if self.terms:
                self.stopXterms()
            for node in [*self.controllers, *self.switches, *self.hosts]:
                node.terminate()
        finally:
            self.running = False
            self._take_down()
        info("*** Done\n")

    def run(self, test: Any, *args: Any, **params: Any) -> Any:
        """Return test(*args, **params), between start() and stop()."""
        self.start()
        try:
            info("*** Running test\n")
            return test(*args, **params)
        finally:
            self.stop()


def _link_class(spec: LinkSpec) -> partial[Any]:
    """Return a constructor of links shaped by `spec`."""
    if spec.trim_packets:
        raise ValueError("trim_packets: bridges trim no packets; routing= has switches that do")
    delay = f"{spec.delay_us}us" if spec.delay_us else None
    return partial(TCLink, bw=spec.rate_bps / Mbps, max_queue_size=spec.queue_packets, delay=delay)


class LanLinks:
    """The links of a network whose switches are bridges."""

    def __init__(self, net: BridgedNet) -> None:
        self._net = net

    def _link(self, name: str) -> Any:
        """Return the link called h1-s1, or s1-s2:2 for the second of several.

        Raises:
            ValueError: there is none.
        """
        links = self._net.links
        ends, _, position = name.partition(":")
        a, dash, b = ends.partition("-")
        between = [link for link in links if {link.intf1.node.name, link.intf2.node.name} == {a, b}]
        number = int(position) if position.isdecimal() else 1
        if not dash or (position and not position.isdecimal()) or not 1 <= number <= len(between):
            names = (f"{link.intf1.node.name}-{link.intf2.node.name}" for link in links[:3])
            known = ", ".join(names) or "h1-s1"
            raise ValueError(f"no link {name}: write its two ends, as in {known}")
        return between[number - 1]

    def _ports(self, name: str) -> tuple[Any, Any]:
        link = self._link(name)
        return link.intf1, link.intf2

    def fail(self, name: str, *, silent: bool = False, only_to: str | None = None) -> None:
        """Fail the link called `name`.

        Args:
            name: of the link.
            silent: drop packets on arrival; otherwise both ends lose their carrier.
            only_to: node at the only end that drops; None: both ends do.

        Raises:
            ValueError: `only_to` is no end of the link, or the failure is not silent.
        """
        ports = [port for port in self._ports(name) if only_to in (None, port.node.name)]
        if not ports:
            raise ValueError(f"only to {only_to}: it must be an end of {name}")
        if only_to is not None and not silent:
            raise ValueError(f"only to {only_to}: the failure must be silent")
        for port in ports:
            if silent:
                port.request(tc.clsact(port.end))
                port.request(tc_filters.blackhole(port.end))
            else:
                port.ifconfig("down")

    def restore(self, name: str) -> None:
        """Undo fail()."""
        for port in self._ports(name):
            tc_filters.unblackhole(port.socket, port.end)
            port.ifconfig("up")

    def degrade(self, name: str, rate_bps: int) -> None:
        """Set the rate of a link in both directions."""
        self.impair(name, Impairment(rate_bps=rate_bps))

    def impair(self, name: str, change: Impairment) -> None:
        """Set loss, delay, rate or queue of a link in both directions."""
        for port in self._ports(name):
            port.shape(change)

    def unimpair(self, name: str) -> None:
        """Raise ValueError: the original shape of a link is not stored."""
        raise ValueError(
            f"the original shape of {name}, a link between bridges, is unknown: set it by impair, "
            "as in loss 0 delay 0ms"
        )

    def status(self) -> dict[str, Any]:
        """Return the run and its failed links as JSON-able values."""
        failed = [str(link) for link in self._net.links if _has_failed(link)]
        return {
            "run": self._net.lan.run.id,
            "topology": "lan",
            "scheme": BRIDGES,
            "failed": failed,
            "nodes": [],
        }


def _has_failed(link: Any) -> bool:
    """Return True if an end of a link is down, or drops packets on arrival."""
    return any(
        not interfaces(port.socket)[port.end.ifindex].up
        or port.end.ifindex in tc_filters.blackholes(port.socket)
        for port in (link.intf1, link.intf2)
    )
