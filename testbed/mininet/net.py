"""Mininet's interface to a network: `with Net("dcell:n=4,k=1", link=..., routing="dr") as net:`.

Net is a mininet.net.Mininet: net.get("h3").cmd("ping ..."), net.pingAll(), CLI(net) and users'
scripts work.  RunningNetwork provides namespaces, links, queues and routing daemons.

Net also takes Mininet's Topo and constructor arguments.  Switches of such a network are learning
bridges, as with Mininet's default controller, and nodes and links may be added while it is up.
With `routing`, or if switches form a cycle, they are routers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from mininet.log import output

from weft.daemons.core.registry import usual
from weft.testbed.measure.fidelity import PASS, FidelityReport, judged
from weft.testbed.mininet.bridged_net import BridgedNet, LanLinks
from weft.testbed.mininet.mininet_arguments import Arguments
from weft.testbed.mininet.mininet_topology import as_topology, is_topo, node_parameters
from weft.testbed.mininet.node import Host, LazyShellNode, Link, Port, Switch
from weft.testbed.network import impair
from weft.testbed.network.bring_up import RunOptions
from weft.testbed.network.handle import BRIDGES
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.runs.run import RunRecord
from weft.testbed.traffic import mpi
from weft.topologies.core.failures import fail_links
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.placement import place_ranks
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

RUN_OPTIONS = [field.name for field in fields(RunOptions)]


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
        options: fields of bring_up.RunOptions, and Mininet's constructor arguments by name.

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
        **options: Any,
    ) -> None:
        run_options = {key: options.pop(key) for key in RUN_OPTIONS if key in options}
        parsed = Arguments.of(
            topology, arguments, options if link is None else options | {"link": link}
        )
        self.run_name = name
        if routing is None and parsed.bridges(parsed.topology):
            routing = BRIDGES
        self.bridged = routing == BRIDGES
        if self.bridged:
            parsed.require_bridged(host_link=host_link, own_links=own_links, **run_options)
            self._lan_links = LanLinks(self)
            self.build_bridged(parsed)
            return
        links = {"host_link": host_link, "own_links": own_links}
        self._prepare_routed(parsed, routing, links | run_options)

    def _prepare_routed(
        self, arguments: Arguments, routing: str | None, options: Mapping[str, Any]
    ) -> None:
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

    def _repr_svg_(self) -> str | None:
        """Return the drawing with failed links that a notebook shows; None if it is bridged."""
        if self.bridged:
            return None
        failed = self.up.failed_links() if self.built else []
        return fail_links(self.topology, failed)._repr_svg_()

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

    def __exit__(self, *_: object) -> None:
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

    @contextmanager
    def judged(self, *, always: bool = True) -> Iterator[None]:
        def tell(report: FidelityReport) -> None:
            if always or report.verdict != PASS:
                output(f"*** {report.line}\n")

        if self.bridged:
            yield
            if always:
                output("*** fidelity: not measured, switches of this network are bridges\n")
            return
        with judged(self.up, tell):
            yield

    @property
    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage of start()."""
        return self.up.stages

    @property
    def local_nodes(self) -> range:
        """The nodes on this machine: all."""
        return range(self.topology.nodes)

    def netns(self, node: int) -> int:
        """Return a descriptor of the namespace of `node`."""
        return self.up.netns(node)

    def ifindex(self, node: int, port: int) -> int:
        """Return the index of the interface at `port` of `node`."""
        return self.up.ifindex(node, port)

    @property
    def _links(self) -> RunningNetwork | LanLinks:
        """The part of the network that can fail."""
        return self._lan_links if self.bridged else self.up

    def status(self) -> dict[str, Any]:
        """Return failed links and daemons; see RunningNetwork.status."""
        return self._links.status()

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

    def mpirun(
        self,
        argv: Sequence[str],
        ranks: int,
        *,
        timeout_s: float | None = None,
        stdout: mpi.Sink = None,
        stderr: mpi.Sink = None,
        **placement: Any,
    ) -> mpi.MpiOutcome:
        """Run a program of Open MPI or MPICH over the hosts; see mpi.run().

        Args:
            argv: the program and its arguments.
            ranks: how many.
            timeout_s: time after which it is ended; None: no limit.
            stdout: file of its output.
            stderr: file of its messages.
            placement: keyword arguments of place_ranks().
        """
        hosts = place_ranks(self.topology, ranks, **placement)
        job = mpi.MpiJob(argv=argv, hosts=hosts, timeout_s=timeout_s)
        return mpi.run(self.up, job, stdout=stdout, stderr=stderr)

    def fail(self, name: str, *, silent: bool = False, only_to: str | None = None) -> None:
        """Fail the link or node called `name`, such as h0-w0 or h0; see faults.fail.

        Only links fail where switches are bridges.
        """
        self._links.fail(name, silent=silent, only_to=only_to)

    def restore(self, name: str) -> None:
        """Undo fail()."""
        self._links.restore(name)

    def degrade(self, link: str, rate_bps: int) -> None:
        """Set the rate of `link` in both directions; its queues stay."""
        self._links.degrade(link, rate_bps)

    def impair(self, link: str, **words: Any) -> None:
        """Set loss, delay, rate or queue of `link` in both directions; see impair.impairment()."""
        self._links.impair(link, impair.impairment(**words))

    def unimpair(self, link: str) -> None:
        """Undo impair() of `link`.

        Raises:
            ValueError: switches are bridges, which do not store the original shape.
        """
        self._links.unimpair(link)
