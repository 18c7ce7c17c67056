"""Parameters that schemes share, and the parts of daemons that these configure."""

from __future__ import annotations

from weft.daemons.control.hello import Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.core.node_config import NodeConfig
from weft.topologies.core.family import IntegerParameter

HELLO = {
    "hello_ms": IntegerParameter("time between hellos, in ms", 1, 10_000, default=30),
    "dead": IntegerParameter("hellos missing before a neighbour is dead", 1, 100, default=3),
}
LINK_STATE = {
    "hold_ms": IntegerParameter("from a change to new routes, in ms", 0, 10_000, default=2),
    "lifetime_s": IntegerParameter("how long link state is believed, in s", 1, 86_400, default=300),
}
DAMPING = {
    "damp_ms": IntegerParameter(
        "how long a link that flaps is held down, the first time, in ms; 0: no "
        "longer than it is dead",
        0,
        60_000,
        default=500,
    ),
    "most_damp_ms": IntegerParameter(
        "how long at most, where it flaps on and on, in ms", 0, 3_600_000, default=10_000
    ),
}


def neighbourhood(config: NodeConfig, incarnation: int) -> Neighbourhood:
    """Return the neighbourhood of a node, by the parameters HELLO and DAMPING, if present."""
    return Neighbourhood(
        config.node,
        dict(config.ports),
        incarnation=incarnation,
        interval_ms=config.interval_ms,
        dead=config.dead,
        phase_fraction=config.phase_fraction,
        names=config.names,
        damp_s=config.options.get("damp_ms", 0) / 1000,
        most_damp_s=config.options.get("most_damp_ms", 0) / 1000,
    )


def database(config: NodeConfig, incarnation: int, *, scope: range | None = None) -> Database:
    """Return the link-state database of a node, by the parameters LINK_STATE.

    Args:
        config: configuration of the node.
        incarnation: as in Neighbourhood.
        scope: origins that it stores; None for all routers.
    """
    near = config.routers if scope is None else scope
    return Database(
        config.node,
        {port: [node for node in nodes if node in near] for port, nodes in config.ports},
        incarnation=incarnation,
        scope=near,
        lifetime_ms=config.options["lifetime_s"] * 1000,
        settle_s=2 * config.interval_ms / 1000,
        phase_fraction=config.phase_fraction,
    )
