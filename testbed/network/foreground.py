"""A node's routing daemon, run by hand in the foreground to watch it or to try another scheme."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from daemons.core import schemes
from testbed.agent.counters import FILE, Board
from testbed.agent.daemon import Daemon
from testbed.agent.loop import Loop
from testbed.agent.supervisor import REAL_TIME_PRIORITY
from testbed.forwarding import transit_program
from testbed.forwarding.data_plane import program_of
from testbed.forwarding.plane_tables import of_program
from testbed.network.network import Network
from testbed.network.scheme_change import routing
from testbed.plan.network_plan import sites
from testbed.plan.plane_selection import carriage


def serve(network: Network, node: int, scheme: str | None) -> int:
    """Run the daemon of `node` in this process until it is ended; the exit status, 1 if its protocol failed.

    scheme: None for that of the run.  ValueError if the node has a daemon already, cannot have one, or if the run has
    no scheme of daemons.
    """
    chosen = scheme or routing(network.run.journal)
    how = carriage(chosen)
    if not how.daemons:
        raise ValueError(f"{chosen} needs no daemons; say which scheme, for example weft daemon dr --node h3")
    views = schemes.views(network.topology, how.daemons)
    name = network.plan.names[node]
    if node not in views:
        raise ValueError(f"{name} runs no daemon: it does not forward")
    file = network.run.directory / FILE
    board = Board(file, create_nodes=None if file.exists() else network.topology.nodes)
    program = program_of(network)
    groups = of_program(program)[1].groups(node - network.topology.servers) if program is not None else None
    relays = transit_program.of(network).relay(node) if schemes.scheme(how.daemons)[0].relays else None
    site = sites(network.plan, [node])[node]
    daemon = Daemon.of(network.run.directory, site, views[node], board.cells(node), groups, relay=relays)
    with suppress(PermissionError):  # the counters tell whether there is real-time priority
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REAL_TIME_PRIORITY))
    print(
        f"{name} routes by {chosen}, log in {network.run.directory / 'log' / name}.log; Ctrl-C ends it", file=sys.stderr
    )
    loop = Loop([daemon])
    loop.run()
    return 1 if loop.failed else 0
