"""Run a node's routing daemon in the foreground, to watch it or to try another scheme."""

from __future__ import annotations

import sys

from weft.daemons.core.contract import IN_TRANSIT
from weft.testbed.data_plane import transit_rewrite
from weft.testbed.data_plane.data_plane import program_of
from weft.testbed.linux import process
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.child_process import real_time
from weft.testbed.node_daemon.counters import FILE, DaemonCounters
from weft.testbed.node_daemon.daemon import Daemon
from weft.testbed.node_daemon.linux_capabilities import Programs
from weft.testbed.node_daemon.loop import Loop
from weft.testbed.node_daemon.sealed_channel import RunCredentials
from weft.testbed.plan.network_plan import node_interfaces
from weft.testbed.plan.plane_selection import daemons_scheme, planes


def serve(network: RunningNetwork, node: int, scheme: str | None) -> int:
    """Run the daemon of `node` in this process, configured like the supervisor's daemons.

    Args:
        network: the network.
        node: of the daemon.
        scheme: None: the scheme of the run.

    Returns:
        The exit status: 1 if the state machine failed.

    Raises:
        ValueError: the node has a daemon already or cannot have one, or the scheme has no daemons.
    """
    scheme = scheme or daemons_scheme(network.run.journal)
    name = network.plan.names[node]
    loop = Loop([_make_daemon(network, node, scheme)])
    real_time(True)  # the counters show if it succeeded
    print(
        f"{name} routes by {scheme}, log in {network.run.directory / 'log' / name}.log; "
        f"Ctrl-C ends it",
        file=sys.stderr,
    )
    process.keep_only(*loop.rights())
    loop.run()
    return 1 if loop.failed else 0


def _make_daemon(network: RunningNetwork, node: int, scheme: str) -> Daemon:
    plan = network.plan
    directory = network.run.directory
    how = planes(
        network.topology, scheme, plan.link, host_link=plan.host_link, own_links=plan.own_links
    )
    if not how.configs:
        raise ValueError(
            f"{scheme} needs no daemons; say which scheme, for example weft daemon h3 dr"
        )
    if node not in how.configs:
        raise ValueError(f"{plan.names[node]} runs no daemon: it does not forward")
    create_nodes = None if (directory / FILE).exists() else network.topology.nodes
    counters = DaemonCounters(directory / FILE, create_nodes=create_nodes)
    transit = transit_rewrite.ensure(network) if how.needs & IN_TRANSIT else None
    programs = Programs(program_of(network), network.topology.servers, transit)
    interfaces = node_interfaces(plan, [node])[node]
    return Daemon(
        directory,
        interfaces,
        how.configs[node],
        counters.cells(node),
        RunCredentials(directory).of(interfaces),
        programs.node_maps([node])[node],
    )
