"""The half of Net with bridges: Mininet builds nodes and links of a Lan."""

from __future__ import annotations

import atexit
from functools import partial
from typing import Any

from mininet.link import TCLink
from mininet.log import info
from mininet.net import Mininet
from mininet.node import Controller
from mininet.nodelib import NAT

from weft.testbed.mininet.lan import Lan
from weft.testbed.mininet.mininet_arguments import Arguments
from weft.testbed.mininet.mininet_classes import Classes
from weft.testbed.mininet.net_tests import NetTests
from weft.testbed.network import clean
from weft.topologies.core.link import LinkSpec, Mbps


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
