"""A network in the kernel, from its plan until it is taken down.

`RunningNetwork.create` makes one, `RunningNetwork.open` finds one that another process made;
testbed/mininet/net.py shows it as Mininet's.  How it comes up is in bring_up.py, what can fail in
faults.py, what its daemons report in status.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from weft.daemons.core import registry
from weft.testbed.data_plane import layer_program
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import clock, netlink
from weft.testbed.linux.process import need_root
from weft.testbed.network import bring_up, clean, faults, nat, read_back, scheme_change, status
from weft.testbed.network.handle import Handle
from weft.testbed.node_daemon import keys
from weft.testbed.node_daemon.counters import CounterRow
from weft.testbed.plan.network_plan import NetworkPlan
from weft.testbed.plan.plane_selection import is_static
from weft.testbed.runs import private_files, run
from weft.testbed.runs.run import RunLock
from weft.topologies import build
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import document

BRIDGES = "bridge"  # the scheme of a run whose switches are bridges: testbed/mininet, not a Network


class RunningNetwork(Handle):
    """The namespaces, links, queues and routes of one run.

    kept: the lock that keeps the run alive, in the process that made it and until its supervisor
        has taken it over.
    stages: how many seconds each part of making it took, in order.
    processes: how many serve the daemons, in the process that made it.
    """

    def __init__(self, plan: NetworkPlan, kept: RunLock | None, processes: int = 0) -> None:
        super().__init__(plan)
        self.kept = kept
        self.processes = processes
        self.stages: dict[str, float] = {}

    @classmethod
    def create(
        cls,
        topology: Topology,
        link: LinkSpec | None,
        *,
        host_link: LinkSpec | None = None,
        own_links: Mapping[int, LinkSpec] | None = None,
        scheme: str = "none",
        name: str | None = None,
        packed: int | None = None,
        detached: bool = False,
        authenticated: bool = True,
        restart: bool = True,
        outwards: bool = False,
        progress: Callable[[str], None] = lambda stage: None,
    ) -> RunningNetwork:
        """Make `topology` in the kernel, each link like `link` in both directions (None: as fast as
        it goes), start the daemons, and return when they have converged.

        host_link: what the links between hosts and switches of a fabric are like; None: like all
            others.
        own_links: by link, what those are like that differ; None: what a user's graph says of its
            own.
        scheme: `static` installs the routes that the topology alone gives, `none` none, others are
            the registry's.
        packed: how many processes share the daemons; 0: each has its own; None:
            bring_up.daemon_processes() chooses.
        detached: leave the run to its supervisor, which keeps it alive when this process has ended.
        authenticated: whether daemons believe only what this run's daemons say; see SECURITY.md.
        restart: whether daemons that die though nobody asked them to are started again.
        outwards: whether servers reach the machine's network, beside this one; see nat.py.
        progress: called with the name of each stage as it begins.
        Raises ValueError for what cannot be made and OSError for what the kernel refuses; nothing
        is left behind then.
        """
        need_root()
        draft, how = bring_up.prepared(
            topology, link, host_link, own_links, scheme, outwards=outwards
        )
        processes = bring_up.processes_with_room(topology, how, packed)
        kept = run.reserve(name)
        network = None
        try:
            network = cls(replace(draft, run=kept.run), kept, processes)
            about = {"authenticated": authenticated, "packed": packed, "outwards": outwards}
            run.write_journal(kept.run, journal(network.plan, scheme, **about))
            bring_up.make_credentials(network, authenticated=authenticated)
            keep = kept.lock if detached else None
            stages = bring_up.all_stages(
                network, how, processes, keep, restart=restart, outwards=outwards
            )
            network.stages = bring_up.perform(stages, progress)
        except BaseException:
            if network:
                network.close()
            clean.remove(kept.run)
            kept.release()
            raise
        return network

    @classmethod
    def open(cls, name: str | None = None) -> RunningNetwork:
        """The live run called `name`, or the only one; ValueError if there is none."""
        need_root()
        found = run.find(name)
        told = found.journal
        if "topology" not in told:
            raise ValueError(f"run {found.id} is still coming up")
        if told["scheme"] == BRIDGES:
            way = f"ip netns exec {found.namespace('NODE')} COMMAND"
            raise ValueError(
                f"run {found.id} is a Mininet script's, and ends with it; {way} runs a "
                f"command in it"
            )
        link, host_link = (
            LinkSpec(**told[key]) if told.get(key) else None for key in ("link", "host_link")
        )
        topology = build(told.get("topology_file") or told["topology"])
        static = is_static(told["scheme"])
        own = {int(at): LinkSpec(**each) for at, each in told.get("own_links", {}).items()}
        return cls(
            NetworkPlan(found, topology, link, static=static, host_link=host_link, own_links=own),
            None,
        )

    def check(self) -> None:
        """Read back every interface and its queue; read_back.Mismatch says where the kernel holds
        something else."""
        read_back.check(self)

    def change_scheme(self, scheme: str) -> None:
        """Let the data plane of a running fabric choose ports by `scheme`, and its hosts layers,
        without losing a packet; its daemons go on.

        ValueError if there is no such scheme, if it needs other routes than its daemons', or if the
        run has no data plane.
        """
        scheme_change.check(scheme_change.routing(self.run.journal), scheme)
        with DataPlane.open(self) as plane:
            plane.set_scheme(scheme)
        if layer_program.program_of(self) is not None:
            with closing(layer_program.LayerProgram.open(self)) as hosts:
                hosts.set(registry.rule(scheme).hosts)
        run.write_journal(self.run, scheme_change.changed(self.run.journal, scheme))

    def wait_until_converged(self, timeout_s: float = status.CONVERGENCE_S) -> None:
        """Return when every daemon has all its neighbours and routes; TimeoutError names those that
        have not."""
        status.wait_until_converged(self, timeout_s)

    def rows(self) -> dict[int, CounterRow]:
        """The counters of every daemon, by node; empty if the run has no daemons."""
        return status.rows(self)

    def status(self) -> dict[str, Any]:
        """The run, its failed links, and a row for each daemon; JSON-able."""
        return status.status(self)

    def failed_links(self) -> list[int]:
        """The links that do not carry packets both ways: an end is down, or drops what arrives."""
        return faults.inspect(self).failed

    def fail(self, name: str, *, silent: bool = False, only_to: str | None = None) -> None:
        """Fail the link or node called `name`; see faults.fail."""
        faults.fail(self, name, silent=silent, only_to=only_to)

    def restore(self, name: str) -> None:
        """Undo fail() on the link called `name`, or on a node and all its links."""
        faults.restore(self, name)

    def is_up(self, node: int, port: int, socket: netlink.Socket) -> bool:
        """Whether `port` of `node` is set up; `socket` is one in its namespace."""
        return faults.is_up(self, node, port, socket)

    def take_down(self, node: int, port: int, socket: netlink.Socket) -> None:
        """Set an interface down, and with it the link."""
        faults.take_down(self, node, port, socket)

    def bring_up(self, node: int, port: int, socket: netlink.Socket) -> None:
        """Set an interface up again, with the neighbours and static routes that the kernel forgot
        meanwhile."""
        faults.bring_up(self, node, port, socket)

    def rekey(self) -> None:
        """Replace the key by which daemons seal what they say; ValueError if there is none, or a
        daemon cannot."""
        keys.rotate(self.run.directory, partial(status.read_keys, self))

    def down(self) -> None:
        """Take the network out of the kernel, and return when it is gone."""
        self.close()
        clean.remove(self.run)
        if self.kept:
            self.kept.release()
            self.kept = None


def own_graph(plan: NetworkPlan) -> dict[str, object]:
    """The file in the run's directory that keeps a user's graph, for its own file may change, or
    there may be none."""
    if plan.topology.family != "file":
        return {}
    kept = plan.run.directory / "topology.json"
    private_files.write(kept, document(plan.topology).encode())
    return {"topology_file": f"file:{kept}"}


def journal(plan: NetworkPlan, scheme: str, **about: object) -> dict[str, object]:
    """What a run says that it will create; about: `authenticated`, `packed` and `outwards`, as they
    were asked for."""
    namespaces = [plan.namespace(node) for node in range(plan.topology.nodes)]
    return {
        "id": plan.run.id,
        "slot": plan.run.slot,
        "command": sys.argv,
        "pid": os.getpid(),
        "began_unix_s": clock.wall(),
        "topology": plan.topology.spec,
        "link": asdict(plan.link) if plan.link else None,
        "host_link": asdict(plan.host_link) if plan.host_link else None,
        "own_links": {at: asdict(each) for at, each in plan.own_links.items()},
        "scheme": scheme,
        **about,
        **own_graph(plan),
        "namespaces": namespaces + ([nat.namespace(plan.run)] if about.get("outwards") else []),
    }
