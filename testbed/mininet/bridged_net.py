"""Mininet's own way of building a network, of nodes and links that a Lan makes: the half of Net
with bridges."""

from __future__ import annotations

import atexit
from functools import partial
from typing import Any

from mininet.link import TCLink
from mininet.log import debug, info
from mininet.net import Mininet
from mininet.node import Controller
from mininet.nodelib import NAT

from weft.testbed.mininet import link_faults
from weft.testbed.mininet.lan import Lan
from weft.testbed.mininet.mininet_arguments import Arguments
from weft.testbed.mininet.mininet_classes import Classes
from weft.testbed.mininet.net_tests import NetTests
from weft.testbed.network import clean
from weft.testbed.network.impair import Impairment
from weft.testbed.network.network import BRIDGES
from weft.topologies.core.link import LinkSpec, Mbps


class BridgedNet(NetTests, Mininet):  # type: ignore[misc]  # mininet has no types
    """Net, where `bridged` says that switches are bridges; where they are routers, nothing here is
    used but checks."""

    inited = True  # Mininet would change limits of the whole machine
    bridged: bool
    run_name: str | None
    _lan: Lan | None = None
    running = False

    def build_bridged(self, topo: Any, given: Arguments) -> None:
        """Begin, and build what `topo` says unless that is to be done later."""
        self.classes: Classes | None = None
        if given.mininet.get("cleanup"):
            clean.clean()
        Mininet.__init__(self, topo=None, build=False, **given.for_mininet())
        self.topo = topo
        if given.link_spec:
            self.link = _links_like(given.link_spec)
        if topo is not None and given.mininet.get("build", True):
            self.build()

    @property
    def lan(self) -> Lan:
        """The run, which begins with the first node."""
        if self._lan is None:
            self._lan = Lan(self.run_name, told=lambda command: debug(f"*** {command}\n"))
            self.classes = Classes(self._lan)
            atexit.register(self._take_down)
        return self._lan

    def _take_down(self) -> None:
        if self._lan is not None:
            lan, self._lan = self._lan, None
            atexit.unregister(self._take_down)
            lan.down()

    def _making(self) -> Classes:
        """The classes of this network; ValueError if it is one of routers, which is whole from the
        beginning."""
        if not self.bridged:
            why = (
                "addresses and the neighbours of daemons follow from it; where switches "
                "are bridges nodes come and go"
            )
            raise ValueError(f"a routed network is built as a whole, for {why}")
        _ = self.lan
        assert self.classes is not None
        return self.classes

    def addHost(self, name: str, cls: Any = None, **params: Any) -> Any:
        """Add a host, also to a network that is up; see Mininet.addHost."""
        maker = self._making().host(cls or self.host)
        host = super().addHost(name, cls=maker, **params)
        host.up = self.running
        return host

    def addSwitch(self, name: str, cls: Any = None, **params: Any) -> Any:
        """Add a switch, also to a network that is up; see Mininet.addSwitch."""
        return super().addSwitch(name, cls=self._making().switch(cls or self.switch), **params)

    def addController(self, name: Any = "c0", controller: Any = None, **params: Any) -> Any:
        """Add what stands for a controller; ValueError for one whom switches would have to obey."""
        if isinstance(name, Controller):
            name, controller = name.name, type(name)
        maker = self._making().controller(controller or self.controller)
        if maker is None:
            return None
        made = maker(name, **params)
        self.controllers.append(made)
        self.nameToNode[name] = made
        return made

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
            node1, node2, port1, port2, cls=self._making().link(cls or self.link), **params
        )

    def delLinkBetween(self, node1: Any, node2: Any, index: int = 0, allLinks: bool = False) -> Any:
        """Remove a link between two nodes, or all of them; ValueError if there is none."""
        if not self.linksBetween(node1, node2)[index:]:
            raise ValueError(f"no link {index} between {node1} and {node2}")
        return super().delLinkBetween(node1, node2, index, allLinks)

    def delNode(self, node: Any, nodes: Any = None) -> None:
        """Remove a node, its links and its namespace."""
        self._making()
        for link in [link for link in self.links if node in (link.intf1.node, link.intf2.node)]:
            self.delLink(link)
        super().delNode(node, nodes)
        self.lan.remove_node(node.name)

    def delLink(self, link: Any) -> None:
        """Remove a link; in a network of routers it is cut for good: its ends go down, and routes
        avoid it."""
        if self.bridged:
            super().delLink(link)
            return
        for port in (link.intf1, link.intf2):
            port.ifconfig("down")
        self.links.remove(link)

    def addNAT(
        self, name: str = "nat0", connect: Any = True, inNamespace: bool = True, **params: Any
    ) -> Any:
        """Add a node by which hosts reach the machine's network; see Mininet.addNAT.  It has a
        namespace of its own."""
        if not self.bridged:
            raise ValueError(
                "hosts of a network of routers get a way out as it comes up: Net(..., "
                "outwards=True)"
            )
        nat = self.addHost(name, cls=NAT, subnet=self.ipBase, **params)
        if connect:
            self.addLink(nat, self.switches[0] if connect is True else connect)
            for host in self.hosts:
                if host is not nat:
                    host.setDefaultRoute(f"via {nat.params['ip'].split('/')[0]}")
        return nat

    def buildFromTopo(self, topo: Any = None) -> None:
        """Build what `topo` says; nothing is left if that fails."""
        self.lan.expect([*topo.nodes(), *(["c0"] if self.controller else [])])
        super().buildFromTopo(topo)

    def build(self) -> None:
        """Build the network; nothing is left if that fails."""
        try:
            super().build()
        except BaseException:
            self._take_down()
            raise

    def configureControlNetwork(self) -> None:
        """Switches have no controller to talk to."""

    def start(self) -> None:
        """Let the switches forward."""
        _ = self.lan
        super().start()
        for host in self.hosts:
            host.up = True
        self.running = True

    def stop(self) -> None:
        """End every shell, and take everything out of the kernel."""
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
        """start(), what test(*args, **params) returns, and stop(), whatever happens."""
        self.start()
        try:
            info("*** Running test\n")
            return test(*args, **params)
        finally:
            self.stop()

    def fail_bridged(self, link: str, *, silent: bool, only_to: str | None) -> None:
        """Fail a link; see testbed/mininet/link_faults.py."""
        link_faults.fail(link_faults.links_called(self.links, link), silent=silent, only_to=only_to)

    def restore_bridged(self, link: str) -> None:
        """Undo fail_bridged()."""
        link_faults.restore(link_faults.links_called(self.links, link))

    def degrade_bridged(self, link: str, rate_bps: int) -> None:
        """Let a link carry so much."""
        link_faults.set_rate(link_faults.links_called(self.links, link), rate_bps)

    def impair_bridged(self, link: str, change: Impairment) -> None:
        """Let a link lose or delay packets, or carry less."""
        link_faults.impair(link_faults.links_called(self.links, link), change)

    def bridged_status(self) -> dict[str, Any]:
        """The run and its links that are down; JSON-able."""
        down = [str(link) for link in self.links if link_faults.has_failed(link)]
        return {
            "run": self.lan.run.id,
            "topology": "lan",
            "scheme": BRIDGES,
            "failed": down,
            "nodes": [],
        }


def _links_like(spec: LinkSpec) -> partial[Any]:
    """A maker of links that carry what `spec` says."""
    if spec.trim_packets:
        raise ValueError("trim_packets: bridges trim no packets; routing= has switches that do")
    delay = f"{spec.delay_us}us" if spec.delay_us else None
    return partial(TCLink, bw=spec.rate_bps / Mbps, max_queue_size=spec.queue_packets, delay=delay)
