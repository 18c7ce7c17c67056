"""Report the daemons of an open network, and wait until they have converged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from weft.daemons.core import registry
from weft.testbed.data_plane import data_plane, layer_program
from weft.testbed.linux import clock
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.kernel_counters import PortCounterReader as PortsCounters
from weft.testbed.network import faults
from weft.testbed.network.handle import Handle
from weft.testbed.node_daemon import daemon_files
from weft.testbed.node_daemon.counters import FILE as COUNTERS
from weft.testbed.node_daemon.counters import CounterRow, DaemonCounters
from weft.testbed.plan import plane_selection
from weft.testbed.plan.plane_selection import NONE
from weft.topologies.core.grammar import parse

CONVERGENCE_S = 60.0
POLL_S = 0.001
MOST_HOPS_OF_A_LINK = 2  # through a crossbar


def wait_for_neighbours(network: Handle) -> None:
    """Return when every daemon hears from all its neighbours.

    Raises:
        TimeoutError: no further daemon did in CONVERGENCE_S; the line names the first without.
    """
    _wait(
        network,
        lambda row: row.neighbours_up == row.neighbours_expected,
        "neighbours",
        CONVERGENCE_S,
    )


def wait_until_converged(network: Handle, timeout_s: float = CONVERGENCE_S) -> None:
    """Return when every daemon has all neighbours and routes that the topology promises.

    Raises:
        TimeoutError: no further daemon had in `timeout_s`; the line names the first without.
    """
    _wait(network, lambda row: bool(row.converged), "routes", timeout_s)


def _wait(
    network: Handle, ready: Callable[[CounterRow], bool], what: str, timeout_s: float
) -> None:
    """Return when every daemon has been `ready`.

    Raises:
        TimeoutError: no further daemon was in `timeout_s`.
    """
    directory = network.run.directory
    waiting = network.plan.routers
    end_s = clock.monotonic() + timeout_s
    with closing(DaemonCounters(directory / COUNTERS)) as counters:
        while unready := [node for node in waiting if not ready(counters.row(node))]:
            if len(unready) < len(waiting):
                end_s = clock.monotonic() + timeout_s
            waiting = unready
            if clock.monotonic() > end_s:
                row = counters.row(waiting[0])
                raise TimeoutError(
                    f"{len(waiting)} daemons still lack {what}, none got them in {timeout_s:g} s, "
                    f"the first is "
                    f"{network.plan.names[waiting[0]]}: {row.neighbours_up} of "
                    f"{row.neighbours_expected} neighbours "
                    f"and {row.routes} routes; see {directory / 'log'}"
                )
            clock.sleep(POLL_S)


def rows(network: Handle) -> dict[int, CounterRow]:
    """Return the counters of every daemon, by node; empty if the run has no daemons."""
    if network.plan.static or network.run.journal["scheme"] == NONE:
        return {}
    with closing(DaemonCounters(network.run.directory / COUNTERS)) as counters:
        return {node: counters.row(node) for node in network.plan.routers}


def flows(network: Handle) -> list[dict[str, Any]] | None:
    """Return the scheme's rows about the flows of nodes; None for a scheme without such rows.

    A node whose daemon does not answer has no row.
    """
    journal = network.run.journal
    name, _ = parse(plane_selection.daemons_scheme(journal))
    module = journal["scheme_module"]
    # a scheme that has the daemons of another one, as ttc has those of ecmp, has no rows
    scheme = registry.registered(module, name) if module else None
    if not scheme or not scheme.flow_row:
        return None
    rows = []
    for node in network.plan.routers:
        name = network.plan.names[node]
        with suppress(ValueError, TimeoutError):
            answer = daemon_files.ask(network.run.directory, name, "status")
            if row := scheme.flow_row(network.topology, node, answer["protocol"]):
                rows.append({"node": name, **row})
    return rows


def trimming(network: Handle) -> dict[str, int] | None:
    """Return packets trimmed, those that could not be, and headers lost, since bring-up.

    None if switches do not trim.
    """
    if (
        not network.plan.link
        or not network.plan.link.trim_packets
        or data_plane.program_of(network) is None
    ):
        return None
    with data_plane.DataPlane.open(network) as plane, PortsCounters(network) as counters:
        ports = plane.counters().values()
        drops = sum(port.header_drops for port in counters.snapshot().ports.values())
    return {
        "trimmed_packets": sum(port.trimmed for port in ports),
        "untrimmed_packets": sum(port.untrimmed for port in ports),
        "header_drops": drops,
    }


def read_keys(network: Handle) -> None:
    """Have every daemon read the run's keys again.

    It returns when every message sealed before has been read: messages on their way, and unread
    ones, which wait for their daemon's next tick.

    Raises:
        ValueError: a daemon cannot read the keys.
        TimeoutError: a daemon does not answer.
    """
    from weft.testbed.node_daemon import control  # here, since it imports what daemons need

    control.rekey(network.run.directory, network.plan.names)
    delay_us = max((link.delay_us for link in network.plan.link_specs), default=0)
    clock.sleep(MOST_HOPS_OF_A_LINK * delay_us / 1e6)
    before = {node: row.ticks for node, row in rows(network).items() if row.pid}
    wait_until(
        "every daemon has ticked twice",
        lambda: all(
            not row.pid or row.ticks >= before.get(node, 0) + 2
            for node, row in rows(network).items()
        ),
    )


def status(network: Handle) -> dict[str, Any]:
    """Return the run, its links, and a row for each daemon; JSON-able.

    link, host_link: specification of links; None: as fast as the machine, or like all others.
    authenticated: daemons accept messages of this run only.
    failed: links that do not carry packets both ways.
    mtu_bytes: the MTU of both ends, by link, where they differ.
    bypassed_packets: packets that the kernel forwarded in place of the data plane, once for each
        switch: fragments, packets with IP options, or longer than the MTU.
    trimming: packets trimmed, packets that could not be, and headers that found their queue full;
        None without trimming.
    flows: rows of the scheme about the flows of nodes, see flows(); None without such rows.
    layers: packets by layer, flows, and new draws by reason; None unless hosts choose layers.
    """
    journal = network.run.journal
    links = faults.inspect(network)
    link_name = network.topology.link_name
    return {
        "run": network.run.id,
        "topology": journal["topology"],
        "link": journal["link"],
        "host_link": journal.get("host_link"),
        "scheme": journal["scheme"],
        "authenticated": journal["authenticated"],
        "failed": [link_name(link) for link in links.failed],
        "mtu_bytes": {link_name(link): list(mtus) for link, mtus in links.mtu_bytes.items()},
        "bypassed_packets": data_plane.bypassed(network),
        "trimming": trimming(network),
        "flows": flows(network),
        "layers": layer_program.counted(network),
        "nodes": [
            _daemon_row(network.plan.names[node], row) for node, row in rows(network).items()
        ],
    }


def _daemon_row(name: str, row: CounterRow) -> dict[str, Any]:
    return {
        "node": name,
        "pid": row.pid or None,
        "neighbours": row.neighbours_up,
        "of": row.neighbours_expected,
        "routes": row.routes,
        "losses": row.losses,
        "late_ticks": row.late_ticks,
        "deaths": row.deaths,
        "restarts": row.restarts,
        "refused": row.refused,
        "packets_failed": row.packets_failed,
        "converged": bool(row.converged),
    }
