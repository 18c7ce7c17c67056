"""`with Net("dcell:n=4,k=1", link=..., routing="dr") as net:`  A network with Mininet's face.

Net is a mininet.net.Mininet: net.get("h3").cmd("ping ..."), net.pingAll(), CLI(net) and users' scripts work.  What it
stands on is ours: namespaces, links and queues by Network, routing by daemons, one process for each node.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mininet.net import Mininet

from weft.daemons.core.registry import usual
from weft.testbed.interop.node import Host, LazyShellNode, Link, Port, Switch
from weft.testbed.network.network import Network
from weft.testbed.plan.run import Run
from weft.testbed.supervision import control
from weft.topologies import build
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import topology_of

if TYPE_CHECKING:
    import networkx as nx


def built(topology: str | Topology | nx.Graph) -> Topology:
    """The network that `topology` is, names or describes; ValueError if it is none."""
    if isinstance(topology, str):
        return build(topology)
    return topology if isinstance(topology, Topology) else topology_of(topology)


class Net(Mininet):  # type: ignore[misc]  # mininet has no types
    """A network in the kernel, from start() or `with` until stop().

    topology: a spec such as "dcell:n=4,k=1", a Topology, or a networkx graph, see topologies/core/user_graph.py.
    link: what every link carries in each direction; None: as fast as this machine goes.
    host_link: what the links between hosts and switches of a fabric carry; None: as much as the others.
    routing: the scheme, such as "dr" or "dr:hello_ms=30", "static" for routes without daemons, or "none"; by default
        dr if it is server-centric, else ecmp.
    name: the run's name; by default four hexadecimal digits.
    packed: how many processes share the daemons; None: every node has one of its own.
    authenticated: whether daemons believe only what this run's daemons say; see SECURITY.md.
    restart: whether daemons that die though nobody asked them to are started again.
    progress: called with the name of each stage as it begins.
    Raises ValueError for what cannot be built.  start() raises OSError for what the kernel refuses, and leaves nothing.
    """

    inited = True  # Mininet would change limits of the whole machine

    def __init__(
        self,
        topology: str | Topology | nx.Graph,
        *,
        link: LinkSpec | None = None,
        host_link: LinkSpec | None = None,
        routing: str | None = None,
        name: str | None = None,
        packed: int | None = None,
        authenticated: bool = True,
        restart: bool = True,
        progress: Callable[[str], None] = lambda stage: None,
    ) -> None:
        super().__init__(build=False, controller=None)
        self.topology = built(topology)
        self.link_spec = link
        self.host_link_spec = host_link
        self.routing = usual(self.topology) if routing is None else routing
        self.run_name = name
        self.packed = packed
        self.authenticated = authenticated
        self.restart = restart
        self.progress = progress

    def start(self) -> None:
        """Bring the network up, daemons too, and return when they have converged (neighbours, then routes)."""
        self.network = Network.create(
            self.topology,
            self.link_spec,
            host_link=self.host_link_spec,
            scheme=self.routing,
            name=self.run_name,
            packed=self.packed,
            authenticated=self.authenticated,
            restart=self.restart,
            progress=self.progress,
        )
        self._show(self.network)

    def _show(self, network: Network) -> None:
        """Mininet's objects for what is there."""
        topology = network.topology
        for number, name in enumerate(network.plan.names):
            kind = Host if number < topology.servers else Switch
            node = kind(name, network, number)
            (self.hosts if kind is Host else self.switches).append(node)
            self.nameToNode[name] = node
        nodes: list[LazyShellNode] = [*self.hosts, *self.switches]
        for a, pa, b, pb in topology.links.tolist():
            self.links.append(Link(Port(nodes[a], pa), Port(nodes[b], pb)))
        self.built = True

    def stop(self) -> None:
        """Take everything out of the kernel again."""
        for node in [*self.hosts, *self.switches]:
            node.terminate()
        self.network.down()

    def __enter__(self) -> Net:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def run(self) -> Run:
        return self.network.run

    @property
    def stages(self) -> dict[str, float]:
        """Seconds that each part of coming up took."""
        return self.network.stages

    def netns(self, node: int) -> int:
        """A descriptor of the namespace of `node`."""
        return self.network.netns(node)

    def ifindex(self, node: int, port: int) -> int:
        """The index of the interface that is `port` of `node`."""
        return self.network.ifindex(node, port)

    def status(self) -> dict[str, Any]:
        """Failed links and daemons; see Network.status."""
        return self.network.status()

    def kill_daemon(self, node: str) -> None:
        """End the daemon of `node` by SIGKILL; its routes stay.  ValueError if it has none."""
        control.kill(self.run.directory, node)

    def start_daemon(self, node: str) -> None:
        """Start the daemon of `node` again.  ValueError if it has one."""
        control.start(self.run.directory, node)

    def wait_until_converged(self, timeout_s: float = 60.0) -> None:
        """Return when every daemon has all its neighbours and routes; TimeoutError names those that have not."""
        self.network.wait_until_converged(timeout_s)

    def fail(self, link: str, *, silent: bool = False, only_to: str | None = None) -> None:
        """Fail `link`, h0-w0; see faults.fail."""
        self.network.fail(link, silent=silent, only_to=only_to)

    def restore(self, link: str) -> None:
        """Undo fail() on `link`."""
        self.network.restore(link)

    def fail_node(self, node: str, *, silent: bool = False) -> None:
        """Fail `node`, h0; see faults.fail_node."""
        self.network.fail_node(node, silent=silent)

    def restore_node(self, node: str) -> None:
        """Undo fail_node() on `node`."""
        self.network.restore_node(node)
