"""`with Net("dcell:n=4,k=1", link=..., routing="dr") as net:`  A network with Mininet's face.

Net is a mininet.net.Mininet: net.get("h3").cmd("ping ..."), net.pingAll(), CLI(net) and users'
scripts work.  What it stands on is ours: namespaces, links and queues by RunningNetwork, routing by
daemons, one process for each node.

It takes Mininet's own Topo and constructor arguments, too.  Switches of such a network are bridges
that learn, as Mininet's are with its default controller, and nodes and links come and go while it
is up (testbed/mininet); with `routing`, or where switches are joined in a circle, they are routers,
as in every other network of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from weft.daemons.core.registry import usual
from weft.testbed.mininet.bridged_net import BridgedNet
from weft.testbed.mininet.mininet_arguments import Arguments
from weft.testbed.mininet.mininet_topology import built, is_topo, node_parameters
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

    topology: a spec such as "dcell:n=4,k=1", a Topology, a networkx graph (see
        topologies/core/user_graph.py), a Topo of Mininet's (its name there is topo), or None for
        what addHost(), addSwitch() and addLink() will make.
    arguments, mininet: Mininet's other constructor arguments, by position or by name; see
        mininet_arguments.py.
    link: what every link carries in each direction; None: as fast as this machine goes; or a class
        of Mininet's links.
    host_link: what the links between hosts and switches of a fabric carry; None: as much as the
        others.
    own_links: by link, what those carry that differ; None: what a graph, or a Topo, says of its
        own.
    routing: the scheme, such as "dr" or "dr:hello_ms=30", "static" for routes without daemons, or
        "none"; by default dr if it is server-centric, else ecmp.  "bridge", the default of a Topo
        without circles: switches learn.
    name: the run's name; by default four hexadecimal digits.
    packed: how many processes share the daemons; 0: every node has one of its own; None: chosen by
        the numbers of daemons and processors.
    authenticated: whether daemons believe only what this run's daemons say; see SECURITY.md.
    restart: whether daemons that die though nobody asked them to are started again.
    outwards: whether hosts of a network of routers reach the machine's network, as by `weft up
        --nat`.
    progress: called with the name of each stage as it begins.
    Raises ValueError for what cannot be built.  start() raises OSError for what the kernel refuses,
    and leaves nothing.
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
        given = Arguments.of(
            topology, arguments, mininet | ({} if link is None else {"link": link})
        )
        topology = given.topology
        self.run_name = name
        if routing is None and (
            topology is None or (is_topo(topology) and given.bridges(topology))
        ):
            routing = BRIDGES  # of a Topo without circles
        self.bridged = routing == BRIDGES
        if self.bridged:
            given.require_bridged(
                host_link=host_link, own_links=own_links, packed=packed, outwards=outwards or None
            )
            self.build_bridged(topology, given)
            return
        given.require_routed(topology)
        super().__init__(build=False, controller=None)
        self.of_nodes = node_parameters(topology) if is_topo(topology) else {}
        self.topology = built(topology)
        self.link_spec = given.link_spec
        self.host_link_spec = host_link
        self.own_links = own_links
        self.routing = usual(self.topology) if routing is None else routing
        self.packed = packed
        self.authenticated = authenticated
        self.restart = restart
        self.outwards = outwards
        self.progress = progress

    def start(self) -> None:
        """Bring the network up, daemons too, and return when they have converged (neighbours, then
        routes)."""
        if self.bridged:
            super().start()
            return
        self.network = RunningNetwork.create(
            self.topology,
            self.link_spec,
            host_link=self.host_link_spec,
            own_links=self.own_links,
            scheme=self.routing,
            name=self.run_name,
            packed=self.packed,
            authenticated=self.authenticated,
            restart=self.restart,
            outwards=self.outwards,
            progress=self.progress,
        )
        self._show(self.network)

    def _show(self, network: RunningNetwork) -> None:
        """Mininet's objects for what is there."""
        topology = network.topology
        for number, name in enumerate(network.plan.names):
            kind = Host if number < topology.servers else Switch
            params = self.of_nodes.get(topology.naming.label(number), {})
            node = kind(name, network, number, **params)
            (self.hosts if kind is Host else self.switches).append(node)
            self.nameToNode[name] = node
        nodes: list[LazyShellNode] = [*self.hosts, *self.switches]
        for a, pa, b, pb in topology.links.tolist():
            self.links.append(Link(Port(nodes[a], pa), Port(nodes[b], pb)))
        self.built = True

    def stop(self) -> None:
        """Take everything out of the kernel again."""
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
        """The network that is up; ValueError where there is none of routers."""
        if "network" not in self.__dict__:
            why = "switches of this network are bridges" if self.bridged else "it is not up"
            raise ValueError(f"{why}: there are no routers and no daemons")
        return self.network

    @property
    def identity(self) -> RunRecord:
        return self.lan.run if self.bridged else self.up.run

    @property
    def stages(self) -> dict[str, float]:
        """Seconds that each part of coming up took."""
        return self.up.stages

    def netns(self, node: int) -> int:
        """A descriptor of the namespace of `node`."""
        return self.up.netns(node)

    def ifindex(self, node: int, port: int) -> int:
        """The index of the interface that is `port` of `node`."""
        return self.up.ifindex(node, port)

    def status(self) -> dict[str, Any]:
        """Failed links and daemons; see RunningNetwork.status."""
        return self.bridged_status() if self.bridged else self.up.status()

    def kill_daemon(self, node: str) -> None:
        """End the daemon of `node` by SIGKILL; its routes stay.  ValueError if it has none."""
        control.kill(self.up.run.directory, node)

    def start_daemon(self, node: str) -> None:
        """Start the daemon of `node` again.  ValueError if it has one."""
        control.start(self.up.run.directory, node)

    def wait_until_converged(self, timeout_s: float = 60.0) -> None:
        """Return when every daemon has all its neighbours and routes; TimeoutError names those that
        have not."""
        self.up.wait_until_converged(timeout_s)

    def fail(self, name: str, *, silent: bool = False, only_to: str | None = None) -> None:
        """Fail the link or node called `name`, h0-w0 or h0; see faults.fail.

        Where switches are bridges, only links fail.
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
        """Let `link` carry `rate_bps` in both directions; its queues stay."""
        if self.bridged:
            self.degrade_bridged(link, rate_bps)
        else:
            set_rate(self.up, link, rate_bps)

    def impair(self, link: str, **words: Any) -> None:
        """Let `link` lose or delay packets or carry less, both ways, as the words of impair.asked()
        say."""
        change = impair.asked(**words)
        if self.bridged:
            self.impair_bridged(link, change)
        else:
            impair.impair(self.up, link, change)

    def unimpair(self, link: str) -> None:
        """Let `link` be again as it was when the network came up.  ValueError if switches are
        bridges."""
        if self.bridged:
            raise ValueError(
                "what a link between bridges carried before is not kept: give that to "
                "impair, as in loss 0 delay 0ms"
            )
        impair.undo(self.up, link)
