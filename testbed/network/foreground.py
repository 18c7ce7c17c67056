"""A node's routing daemon, run by hand in the foreground to watch it or to try another scheme."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from weft.daemons.core.capabilities import IN_TRANSIT
from weft.testbed.data_plane import transit_program
from weft.testbed.data_plane.data_plane import program_of
from weft.testbed.linux import privileges
from weft.testbed.network.network import RunningNetwork
from weft.testbed.network.scheme_change import routing
from weft.testbed.node_daemon.child_process import REAL_TIME_PRIORITY
from weft.testbed.node_daemon.counters import FILE, DaemonCounters
from weft.testbed.node_daemon.credentials import RunCredentials
from weft.testbed.node_daemon.loop import Loop
from weft.testbed.node_daemon.make_daemon import Programs
from weft.testbed.plan.network_plan import node_interfaces
from weft.testbed.plan.plane_selection import planes


def serve(network: RunningNetwork, node: int, scheme: str | None) -> int:
    """Run the daemon of `node` in this process until it is ended; the exit status, 1 if its state
    machine failed.

    It starts from what the supervisor's daemons start from: the same links, programs and
    capabilities.

    scheme: None for that of the run.  ValueError if the node has a daemon already, cannot have one,
    or if the run has no scheme of daemons.
    """
    chosen = scheme or routing(network.run.journal)
    plan = network.plan
    how = planes(
        network.topology, chosen, plan.link, host_link=plan.host_link, own_links=plan.own_links
    )
    if not how.configs:
        raise ValueError(
            f"{chosen} needs no daemons; say which scheme, for example weft daemon dr --node h3"
        )
    name = network.plan.names[node]
    if node not in how.configs:
        raise ValueError(f"{name} runs no daemon: it does not forward")
    file = network.run.directory / FILE
    counters = DaemonCounters(file, create_nodes=None if file.exists() else network.topology.nodes)
    transit = transit_program.ensure(network) if how.needs & IN_TRANSIT else None
    programs = Programs(program_of(network), network.topology.servers, transit)
    interfaces, cells = node_interfaces(network.plan, [node])[node], counters.cells(node)
    daemon = programs.make_daemon(
        network.run.directory,
        interfaces,
        how.configs[node],
        cells,
        RunCredentials(network.run.directory).of(interfaces),
        programs.groups([node]).get(node),
    )
    with suppress(PermissionError):  # the counters tell whether there is real-time priority
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REAL_TIME_PRIORITY))
    print(
        f"{name} routes by {chosen}, log in {network.run.directory / 'log' / name}.log; "
        f"Ctrl-C ends it",
        file=sys.stderr,
    )
    loop = Loop([daemon])
    privileges.keep_only(*loop.rights())
    loop.run()
    return 1 if loop.failed else 0
