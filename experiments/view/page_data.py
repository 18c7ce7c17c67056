"""Data of the page besides events: positions of nodes, schemes, stored results."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from weft.daemons.core import registry
from weft.experiments.report.network_drawing import BEND
from weft.experiments.report.network_layout import DrawingLayout, layout
from weft.experiments.runner import definition
from weft.experiments.runner.results import Store
from weft.testbed.network.network import RunningNetwork
from weft.testbed.plan import plane_selection
from weft.testbed.plan.network_plan import NetworkPlan
from weft.topologies.core.topology import Topology

SERVER_RADIUS = 0.34
HOST_RADIUS = 0.12  # where hosts surround their router
HOST_AWAY = 0.55  # from a router to its hosts
DIGITS = 4
MOST_ROWS = 2000  # of an experiment, shown


def drawing(topology: Topology) -> dict[str, Any]:
    """Return the positions of nodes, links and groups, y downwards, JSON-able.

    nodes: (x, y, radius) of each, by number.
    links: control point of each, a quadratic curve.
    groups: (x, y, radius) of sub-networks.
    """
    places = layout(topology)
    centres, radii = _with_hosts(topology, places)
    a = centres[topology.links[:, 0]]
    b = centres[topology.links[:, 2]]
    middle = (a + b) / 2
    across = abs(a - b) / np.maximum(abs(a - places.towards) + abs(b - places.towards), 1e-9)
    control = middle + BEND * across**2 * (places.towards - middle)
    if not places.hosts:
        hosts = topology.level == 0
        control[hosts] = middle[hosts]
    return {
        "nodes": [[*_xy(place), float(size)] for place, size in zip(centres, radii, strict=True)],
        "links": [_xy(place) for place in control],
        "groups": [[*_xy(group.centre), round(group.radius, DIGITS)] for group in places.groups],
    }


def _with_hosts(topology: Topology, places: DrawingLayout) -> tuple[Any, Any]:
    """Return positions and radii of all nodes.

    Hosts that the layout omits surround their routers.
    """
    centres = places.positions.copy()
    radii = np.full(topology.nodes, SERVER_RADIUS)
    if places.hosts:
        return centres, radii
    host_links = topology.host_links.tolist()
    count = Counter(router for _, _, router, _ in host_links)
    placed: Counter[int] = Counter()
    for host, _, router, _ in host_links:
        turn = 2j * np.pi * (placed[router] + 0.5) / count[router]
        centres[host] = places.positions[router] + HOST_AWAY * np.exp(turn)
        placed[router] += 1
    radii[: topology.servers] = HOST_RADIUS
    return centres, radii


def _xy(place: complex) -> list[float]:
    return [round(float(place.real), DIGITS), round(-float(place.imag), DIGITS)]


def schemes(plan: NetworkPlan, journal: dict[str, Any]) -> list[str]:
    """Return the schemes that this run's data plane can change to; none without a data plane."""
    routing = plane_selection.daemons_scheme(journal)
    if routing == "none" or not registry.scheme(routing)[0].selection:
        return []
    if plan.link and plan.link.delay_us:
        return []
    names = []
    for name in registry.with_data_plane():
        with suppress(ValueError):
            plane_selection.check_change(routing, name)
            if plan.link or not registry.rule(name).asks_queues:
                names.append(name)
    current = journal["scheme"]
    return names if current in names else [current, *names]


def data(network: RunningNetwork) -> dict[str, Any]:
    """Return drawing and schemes of the network."""
    journal = network.run.journal
    return {"drawing": drawing(network.topology), "schemes": schemes(network.plan, journal)}


def results(folder: Path) -> dict[str, Any]:
    """Return the stored rows in `folder` by experiment, JSON-able."""
    store = Store(folder)
    report = (folder / "report.html").is_file()
    tables: dict[str, list[dict[str, Any]]] = {}
    for name in store.experiments():
        with suppress(ValueError):  # a former experiment
            entries = store.table(definition.find(name))[:MOST_ROWS]
            tables[name] = [
                {**row, "commit": str(about.get("commit", ""))[:12]} for row, about in entries
            ]
    return {"folder": str(folder), "report": report, "experiments": tables}


def as_json(content: Any) -> bytes:
    """Return `content` as compact JSON in UTF-8."""
    return json.dumps(content, separators=(",", ":"), default=str).encode()
