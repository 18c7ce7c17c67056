"""Mininet's interface to a network: `with Net("dcell:n=4,k=1", link=..., routing="dr") as net:`.

Net is a mininet.net.Mininet: net.get("h3").cmd("ping ..."), net.pingAll(), CLI(net) and users'
scripts work.  RunningNetwork provides namespaces, links, queues and routing daemons.

Net also takes Mininet's Topo and constructor arguments.  Switches of such a network are learning
bridges, as with Mininet's default controller, and nodes and links may be added while it is up.
With `routing`, or if switches form a cycle, they are routers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from weft.daemons.core.registry import usual
from weft.testbed.mininet.bridged_net import BridgedNet
from weft.testbed.mininet.mininet_arguments import Arguments
from weft.testbed.mininet.mininet_topology import as_topology, is_topo, node_parameters
from weft.testbed.mininet.node import Host, LazyShellNode, Link, Port, Switch
from weft.testbed.network import impair
from weft.testbed.network.degrade import set_rate
from weft.testbed.network.network import BRIDGES, RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.runs.run import RunRecord
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    import networkx as nx


class Net(BridgedNet):
    """A network in the kernel, from start() or `with` until stop().

    Args:
        topology: a spec such as "dcell:n=4,k=1", a Topology, a networkx graph (see
            topologies/core/user_graph.py), Mininet's Topo (there the name is topo), or None for a
            network of addHost(), addSwitch() and addLink().
        arguments: Mininet's other constructor arguments by position; see mininet_arguments.py.
        link: spec of every link in each direction; None: unlimited; or a class of Mininet's links.
        host_link: spec of links between hosts and switches of a fabric; None: that of the others.
        own_links: specs by link that differ; None: those of a graph or Topo.
        routing: the scheme, such as "dr" or "dr:hello_ms=30", "static" for routes without daemons,
            "none", or "bridge" for learning switches.  Default: bridge for a Topo without cycles,
            dr for a server-centric network, else ecmp.
        name: of the run; by default four hexadecimal digits.
        packed: processes that share the daemons; 0: one for each node; None: by the numbers of
            daemons and processors.
        authenticated: daemons accept only messages of this run's daemons; see SECURITY.md.
        restart: start daemons again that died unasked.
        outwards: hosts of a network of routers reach the machine's network, as by `weft up --nat`.
        progress: called with the name of each stage as it begins.
        mininet: Mininet's constructor arguments by name.

    Raises:
        ValueError: the network cannot be built.  start() raises OSError if the kernel refuses, and
            leaves nothing.
    """

    network: RunningNetwork

    def __init__(
        self,
        topology: str | Topology | nx.Graph | None = None,
        *arguments: Any,
        link: LinkSpec | type | None = None,
        host_link: LinkSpec | None = None,
        own_links: Mapping[int, LinkSpec] | None = None,
        routing: str | None = None,
        name: str | None = None,
        packed: int | None = None,
        authenticated: bool = True,
        restart: bool = True,
        outwards: bool = False,
        progress: Callable[[str], None] = lambda stage: None,
        **mininet: Any,
    ) -> None:
        parsed = Arguments.of(
            topology, arguments, mininet | ({} if link is None else {"link": link})
        )
        self.run_name = name
        if routing is None and parsed.bridges(parsed.topology):
            routing = BRIDGES
        self.bridged = routing == BRIDGES
        if self.bridged:
            parsed.require_bridged(
                host_link=host_link, own_links=own_links, packed=packed, outwards=outwards or None
            )
            self.build_bridged(parsed)
            return
        self._prepare_routed(
            parsed,
            routing,
            host_link=host_link,
            own_links=own_links,
            packed=packed,
            authenticated=authenticated,
            restart=restart,
            outwards=outwards,
            progress=progress,
        )

    def _prepare_routed(self, arguments: Arguments, routing: str | None, **options: Any) -> None:
        """Check the arguments of a network of routers, which start() creates with `options`."""
        topology = arguments.topology
        arguments.require_routed(topology)
        super().__init__(build=False, controller=None)
        self._node_parameters = node_parameters(topology) if is_topo(topology) else {}
        self.topology = as_topology(topology)
        self.routing = usual(self.topology) if routing is None else routing
        self._create = partial(
            RunningNetwork.create,
            self.topology,
            arguments.link_spec,
            scheme=self.routing,
            name=self.run_name,
            **options,
        )

    def start(self) -> None:
        """Bring the network up, and return when its daemons have converged."""
        if self.bridged:
            super().start()
            return
        self.network = self._create()
        self._add_objects(self.network)

    def _add_objects(self, network: RunningNetwork) -> None:
        """Create Mininet's objects for the nodes and links."""
        topology = network.topology
        for number, name in enumerate(network.plan.names):
            kind = Host if number < topology.servers else Switch
            params = self._node_parameters.get(topology.naming.label(number), {})
            node = kind(name, network, number, **params)
            (self.hosts if kind is Host else self.switches).append(node)
            self.nameToNode[name] = node
        nodes: list[LazyShellNode] = [*self.hosts, *self.switches]
        for a, pa, b, pb in topology.links.tolist():
            self.links.append(Link(Port(nodes[a], pa), Port(nodes[b], pb)))
        self.built = True

    def stop(self) -> None:
        """Remove everything from the kernel."""
        if self.bridged:
            super().stop()
            return
        for node in [*self.hosts, *self.switches]:
            node.terminate()
        self.up.down()

    def __enter__(self) -> Net:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def up(self) -> RunningNetwork:
        """Return the running network.

        Raises:
            ValueError: it is not up, or its switches are bridges.
        """
        if "network" not in self.__dict__:
            reason = "switches of this network are bridges" if self.bridged else "it is not up"
            raise ValueError(f"{reason}: there are no routers and no daemons")
        return self.network

    @property
    def identity(self) -> RunRecord:
        return self.lan.run if self.bridged else self.up.run

    @property
    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage of start()."""
        return self.up.stages

    def netns(self, node: int) -> int:
        """Return a descriptor of the namespace of `node`."""
        return self.up.netns(node)

    def ifindex(self, node: int, port: int) -> int:
        """Return the index of the interface at `port` of `node`."""
        return self.up.ifindex(node, port)

    def status(self) -> dict[str, Any]:
        """Return failed links and daemons; see RunningNetwork.status."""
        return self.bridged_status() if self.bridged else self.up.status()

    def kill_daemon(self, node: str) -> None:
        """Kill the daemon of `node`; its routes stay.  ValueError: there is none."""
        control.kill(self.up.run.directory, node)

    def start_daemon(self, node: str) -> None:
        """Start the daemon of `node` again.  ValueError: it runs."""
        control.start(self.up.run.directory, node)

    def wait_until_converged(self, timeout_s: float = 60.0) -> None:
        """Return when every daemon has all its neighbours and routes.

        Raises:
            TimeoutError: the message names the daemons without.
        """
        self.up.wait_until_converged(timeout_s)

    def fail(self, name: str, *, silent: bool = False, only_to: str | None = None) -> None:
        """Fail the link or node called `name`, such as h0-w0 or h0; see faults.fail.

        Only links fail where switches are bridges.
        """
        if self.bridged:
            self.fail_bridged(name, silent=silent, only_to=only_to)
        else:
            self.up.fail(name, silent=silent, only_to=only_to)

    def restore(self, name: str) -> None:
        """Undo fail()."""
        if self.bridged:
            self.restore_bridged(name)
        else:
            self.up.restore(name)

    def degrade(self, link: str, rate_bps: int) -> None:
        """Set the rate of `link` in both directions; its queues stay."""
        if self.bridged:
            self.degrade_bridged(link, rate_bps)
        else:
            set_rate(self.up, link, rate_bps)

    def impair(self, link: str, **words: Any) -> None:
        """Set loss, delay, rate or queue of `link` in both directions; see impair.asked()."""
        change = impair.asked(**words)
        if self.bridged:
            self.impair_bridged(link, change)
        else:
            impair.impair(self.up, link, change)

    def unimpair(self, link: str) -> None:
        """Undo impair() of `link`.

        Raises:
            ValueError: switches are bridges, which do not store the original shape.
        """
        if self.bridged:
            raise ValueError(
                "the original shape of a link between bridges is unknown: set it by impair, as in "
                "loss 0 delay 0ms"
            )
        impair.undo(self.up, link)
