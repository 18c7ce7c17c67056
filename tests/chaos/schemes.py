"""The schemes of campaigns, and the networks on which they run."""

from __future__ import annotations

from weft.daemons.core import registry
from weft.topologies import build
from weft.topologies.core.grammar import parse, unparse

NETWORKS = (
    "dcell:n=3,k=1",
    "ficonn:n=4,k=1",
    "fattree:k=4",
    "clos:n=2,r=3,m=3",
    "complete:n=4,p=1",
)
# budgets with which sources find their paths within a minute after any fault
EAGER = {
    "hello_ms": "100",
    "probes_per_s": "50",
    "urgent_per_s": "50",
    "wakes_per_s": "200",
    "most_hold_ms": "2000",
    "most_damp_ms": "2000",
}


def machines() -> list[str]:
    """Return one scheme for each kind of daemon.

    Schemes that differ in the data plane alone share theirs.
    """
    names: dict[object, str] = {}
    for name in ("bfs", *registry.schemes()):
        if machine := registry.schemes()[name].machine:
            names.setdefault(machine, name)
    return list(names.values())


def eager(routing: str) -> str:
    """Return `routing` with the budgets of campaigns, unless it sets its own."""
    name, texts = parse(routing)
    known = registry.scheme(routing)[0].parameters
    return unparse(name, {key: text for key, text in EAGER.items() if key in known} | texts)


def networks_of(routing: str) -> list[str]:
    """Return the NETWORKS that `routing` can route, the smallest first."""
    networks = []
    for spec in sorted(NETWORKS, key=lambda spec: build(spec).nodes):
        try:
            registry.checked(build(spec), routing)
        except ValueError:
            continue
        networks.append(spec)
    return networks
