"""A network in the kernel, from its plan until it is taken down.

`RunningNetwork.create` brings one up, `open`, of its Handle, opens one of another process;
testbed/mininet/net.py gives it Mininet's interface.  The stages of bring-up are in bring_up.py,
faults in faults.py, what daemons report in status.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from weft.daemons.core import registry
from weft.daemons.core.node_config import NodeConfig
from weft.testbed.data_plane import layer_program
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import clock
from weft.testbed.linux.process import need_root
from weft.testbed.network import bring_up, clean, faults, impair, outside, status
from weft.testbed.network.bring_up import RunOptions
from weft.testbed.network.handle import Handle
from weft.testbed.node_daemon import sealed_channel
from weft.testbed.node_daemon.counters import CounterRow
from weft.testbed.plan import plane_selection
from weft.testbed.plan.network_plan import NetworkPlan, links_document
from weft.testbed.runs import private_files, run
from weft.testbed.runs.run import RunLock
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import document


class RunningNetwork(Handle):
    """The namespaces, links, queues and routes of one run.

    run_lock: the lock that keeps the run alive, in the process that created it.
    stages: seconds that each stage of bring-up took, by name, in order.
    processes: the number of processes that serve daemons, in the process that created it.
    """

    def __init__(
        self, plan: NetworkPlan, run_lock: RunLock | None = None, processes: int = 0
    ) -> None:
        super().__init__(plan)
        self.run_lock = run_lock
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
        **options: Any,
    ) -> RunningNetwork:
        """Bring up `topology` in the kernel, and return when its daemons have converged.

        Args:
            topology: the network as it is wired.
            link: of every link, in both directions; None: as fast as the machine.
            host_link: of the links between hosts and switches of a fabric; None: like all others.
            own_links: of links that differ, by link; None: those of a user's graph.
            scheme: `static` (routes that the topology alone gives), `none`, or a registered scheme.
            name: of the run; None: four hexadecimal digits.
            options: fields of bring_up.RunOptions.

        Raises:
            ValueError: no such network can be built.
            OSError: the kernel refused a change.  Nothing remains of the run in either case.
        """
        need_root()
        run_options = RunOptions(**options)
        unnamed_plan, how = bring_up.prepared(
            topology, link, host_link, own_links, scheme, run_options
        )
        processes = bring_up.processes_with_room(unnamed_plan, how, run_options.packed)
        run_lock = run.reserve(name)
        network = cls(replace(unnamed_plan, run=run_lock.run), run_lock, processes)
        try:
            run.write_journal(network.run, journal(network.plan, scheme, how.configs, run_options))
            bring_up.make_credentials(network, run_options)
            lock = run_lock.lock if run_options.detached else None
            stages = bring_up.all_stages(network, how, processes, lock, run_options)
            network.stages = bring_up.perform(stages, run_options.progress)
        except BaseException:
            network.down()
            raise
        return network

    def change_scheme(self, scheme: str) -> None:
        """Change the scheme by which switches choose ports, and hosts layers; packets keep flowing.

        The daemons go on with the routes of the scheme that the run came up with.

        Raises:
            ValueError: no such scheme, it needs routes of other daemons, or the run has no data
                plane.
        """
        plane_selection.check_change(plane_selection.daemons_scheme(self.run.journal), scheme)
        with DataPlane.open(self) as plane:
            plane.set_scheme(scheme)
        if layer_program.program_of(self) is not None:
            with closing(layer_program.LayerProgram.open(self)) as hosts:
                hosts.set(registry.rule(scheme).hosts)
        run.write_journal(self.run, plane_selection.with_change(self.run.journal, scheme))

    def wait_until_converged(self, timeout_s: float = status.CONVERGENCE_S) -> None:
        """Return when every daemon has all its neighbours and routes; see status.py."""
        status.wait_until_converged(self, timeout_s)

    def rows(self) -> dict[int, CounterRow]:
        """Return the counters of every daemon, by node; empty if the run has no daemons."""
        return status.rows(self)

    def status(self) -> dict[str, Any]:
        """Return the run, its failed links, and a row for each daemon; see status.py."""
        return status.status(self)

    def failed_links(self) -> list[int]:
        """Return the links that do not carry packets both ways."""
        return faults.inspect(self).failed

    def fail(self, name: str, *, silent: bool = False, only_to: str | None = None) -> None:
        """Fail the link or node called `name`; see faults.fail."""
        faults.fail(self, name, silent=silent, only_to=only_to)

    def restore(self, name: str) -> None:
        """Undo fail() on the link called `name`, or on a node and all its links."""
        faults.restore(self, name)

    def degrade(self, link: str, rate_bps: int, *, tell: bool = False) -> None:
        """Set the rate of a link in both directions; see degrade.degrade."""
        impair.degrade(self, link, rate_bps, tell=tell)

    def impair(self, link: str, change: impair.Impairment) -> None:
        """Set loss, delay, rate or queue of a link in both directions."""
        impair.impair(self, link, change)

    def unimpair(self, link: str) -> None:
        """Undo impair()."""
        impair.undo(self, link)

    def rekey(self) -> None:
        """Replace the key by which daemons seal messages.

        Raises:
            ValueError: the run has no key, or a daemon cannot read the new one.
        """
        sealed_channel.rotate_keys(self.run.directory, partial(status.read_keys, self))

    def down(self) -> None:
        """Remove the network from the kernel, and return when it is gone."""
        self.close()
        try:
            clean.remove(self.run)
        finally:
            if self.run_lock:
                self.run_lock.release()
                self.run_lock = None


def own_graph(plan: NetworkPlan) -> dict[str, object]:
    """Write a user's graph to the run's directory, because its own file may change.

    Returns:
        The journal's entry for the copy; empty for a topology of a known family.
    """
    if plan.topology.family != "file":
        return {}
    copy = plan.run.directory / "topology.json"
    private_files.write(copy, document(plan.topology).encode())
    return {"topology_file": f"file:{copy}"}


def journal(
    plan: NetworkPlan, scheme: str, configs: Mapping[int, NodeConfig], options: RunOptions
) -> dict[str, object]:
    """Return the journal of a run, which is written before anything is created.

    scheme_module: registers the scheme of the daemons; empty without daemons.
    """
    namespaces = [plan.namespace(node) for node in plan.nodes]
    if options.outwards:
        namespaces.append(outside.gateway_namespace(plan.run))
    return {
        "id": plan.run.id,
        "slot": plan.run.slot,
        "command": sys.argv,
        "pid": os.getpid(),
        "began_unix_s": clock.wall(),
        "topology": plan.topology.spec,
        **links_document(plan.link, plan.host_link, plan.own_links),
        "scheme": scheme,
        "scheme_module": next((config.module for config in configs.values()), ""),
        "static": plan.static,
        "ipv6": plan.ipv6,
        "authenticated": options.authenticated,
        "packed": options.packed,
        "detached": options.detached,
        "restart": options.restart,
        "outwards": options.outwards,
        "part": asdict(plan.part) if plan.part else None,
        **own_graph(plan),
        "namespaces": namespaces,
    }
