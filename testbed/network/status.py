"""What the daemons of an open network report, and waiting until they have converged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from weft.daemons.core import registry
from weft.daemons.core.capabilities import FlowPlacement
from weft.daemons.core.node_config import routers
from weft.testbed.data_plane import data_plane, layer_program
from weft.testbed.linux import clock
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.port_counters import PortCounterReader as PortsCounters
from weft.testbed.network import faults, scheme_change
from weft.testbed.network.handle import Handle
from weft.testbed.node_daemon import control, control_socket
from weft.testbed.node_daemon.counters import FILE as COUNTERS
from weft.testbed.node_daemon.counters import CounterRow, DaemonCounters
from weft.testbed.plan.plane_selection import NONE, has_daemons

CONVERGENCE_S = 60.0
POLL_S = 0.001
MOST_HOPS_OF_A_LINK = 2  # through a crossbar


def wait_for_neighbours(network: Handle) -> None:
    """Return when every daemon hears from all its neighbours; TimeoutError names those that do
    not."""
    _wait(
        network,
        lambda row: row.neighbours_up == row.neighbours_expected,
        "neighbours",
        CONVERGENCE_S,
    )


def wait_until_converged(network: Handle, timeout_s: float = CONVERGENCE_S) -> None:
    """Return when every daemon has all the neighbours and all the routes that the topology
    promises.

    TimeoutError names those that have not.
    """
    _wait(network, lambda row: bool(row.converged), "routes", timeout_s)


def _wait(
    network: Handle, ready: Callable[[CounterRow], bool], what: str, timeout_s: float
) -> None:
    """Return when every daemon has been `ready`; TimeoutError after `timeout_s` in which no further
    one has."""
    directory = network.run.directory
    counters = DaemonCounters(directory / COUNTERS)
    waiting = list(routers(network.topology))
    end_s = clock.monotonic() + timeout_s
    try:
        while left := [node for node in waiting if not ready(counters.row(node))]:
            if len(left) < len(waiting):
                end_s = clock.monotonic() + timeout_s
            waiting = left
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
    finally:
        counters.close()


def rows(network: Handle) -> dict[int, CounterRow]:
    """The counters of every daemon, by node; empty if the run has no daemons."""
    if not has_daemons(network.run.journal["scheme"]):
        return {}
    counters = DaemonCounters(network.run.directory / COUNTERS)
    found = {node: counters.row(node) for node in routers(network.topology)}
    counters.close()
    return found


def flows(network: Handle) -> list[dict[str, Any]] | None:
    """What each leaf's daemon says of the flows on its links, of a scheme that places flows; None
    of any other.

    up, down: flows by the spine that they go to, or come from.  bad: the spines of links with more
        than there may be, each with the way.  A leaf whose daemon does not answer is left out.
    """
    routing = scheme_change.routing(network.run.journal)
    if routing == NONE or FlowPlacement not in registry.scheme(routing)[0].needs:
        return None
    found = []
    for node in routers(network.topology):
        name = network.plan.names[node]
        if network.topology.ports(node)[0][1] >= network.topology.servers:
            continue  # no leaf
        with suppress(ValueError, TimeoutError):
            told = control_socket.ask(network.run.directory, name, "status")["protocol"]
            ears = {f"requests_{key}": told["ears"][key] for key in ("sent", "stale")}
            moved = {key: told[key] for key in ("moves", "swaps", "replaced")}
            bad = [f"{way} {spine}" for way, spines in told["bad"].items() for spine in spines]
            found.append({"node": name, **told["flows"], "bad": bad, **moved, **ears})
    return found


def trimming(network: Handle) -> dict[str, int] | None:
    """What switches have trimmed, and lost of it, since the network came up; None if they do not
    trim."""
    if (
        not network.plan.link
        or not network.plan.link.trim_packets
        or data_plane.program_of(network) is None
    ):
        return None
    with data_plane.DataPlane.open(network) as plane, PortsCounters(network) as counters:
        trimmed = sum(port.trimmed for port in plane.counters().values())
        drops = sum(port.header_drops for port in counters.snapshot().ports.values())
    return {"trimmed_packets": trimmed, "header_drops": drops}


def read_keys(network: Handle) -> None:
    """Have every daemon read the run's keys, and return when each has heard what was sealed before:
    what was under way, and what lay unread until its daemon's next tick.  ValueError or
    TimeoutError if one does not obey."""
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
    """The run, its links, and a row for each daemon; JSON-able.

    link: what links carry, None if as much as the machine can.  host_link: what those of hosts
        carry, None if the same.
    authenticated: whether daemons believe only each other.
    failed: the links that do not carry packets both ways.  mtu_bytes: the MTU of both ends of each
        link whose ends
    differ: the smaller one drops larger packets on arrival.
    bypassed_packets: of a fabric with a data plane, those that the kernel has sent on in the
        scheme's place, once for each switch: fragments, packets with IP options, or longer than the
        MTU.
    trimming: where switches trim, how many packets were trimmed, and how many headers found their
        queue full; None elsewhere.
    flows: of a scheme that places flows, those on the links of each leaf (flows()); None of any
        other.
    layers: where hosts choose layers, packets that left in each, flows that began, and how often
        one drew again, by the reason; None elsewhere.
    """
    journal, links, link_name = (
        network.run.journal,
        faults.inspect(network),
        network.topology.link_name,
    )
    return {
        "run": network.run.id,
        "topology": journal["topology"],
        "link": journal["link"],
        "host_link": journal.get("host_link"),
        "scheme": journal["scheme"],
        "authenticated": journal["authenticated"],
        "failed": [link_name(link) for link in links.failed],
        "mtu_bytes": {link_name(link): list(both) for link, both in links.mtu_bytes.items()},
        "bypassed_packets": data_plane.bypassed(network),
        "trimming": trimming(network),
        "flows": flows(network),
        "layers": layer_program.counted(network),
        "nodes": [
            {
                "node": network.plan.names[node],
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
            for node, row in rows(network).items()
        ],
    }
