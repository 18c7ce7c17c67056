"""Data of the page besides events: positions of nodes, schemes, stored results; and metrics.

For Prometheus a run is a text in the format of OpenMetrics 1.0 (docs/watching.md).  A family has a
type, a unit as the end of its name, and a help text; samples of a counter end in _total; the text
ends with # EOF (https://prometheus.io/docs/specs/om/open_metrics_spec/).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

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


CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SUFFIXES = {"counter": "_total", "gauge": "", "info": "_info"}
LabeledValue = tuple[Mapping[str, str], int]


class MetricFamily(NamedTuple):
    """A family of samples: its name, type, unit, which ends the name, and help text."""

    name: str
    kind: str
    unit: str
    help: str

    def lines(self, samples: Iterable[LabeledValue]) -> list[str]:
        unit = [f"# UNIT {self.name} {self.unit}"] if self.unit else []
        head = [f"# TYPE {self.name} {self.kind}", *unit, f"# HELP {self.name} {self.help}"]
        name = self.name + SUFFIXES[self.kind]
        return [*head, *(f"{name}{_labels(labels)} {value}" for labels, value in samples)]


RUN = MetricFamily("weft_run", "info", "", "Run, topology and scheme.")
UP = MetricFamily("weft_link_up", "gauge", "", "1, or 0 if the link has failed.")
OF_PORTS = (  # by their position in the reply to `ports`
    MetricFamily(
        "weft_link_sent_bytes", "counter", "bytes", "Bytes that an end of a link has sent."
    ),
    MetricFamily(
        "weft_link_dropped_packets",
        "counter",
        "packets",
        "Packets that found the queue of an end of a link full.",
    ),
    MetricFamily(
        "weft_link_waiting_packets", "gauge", "packets", "Packets in the queue of an end of a link."
    ),
)
OF_DAEMONS = {  # by their key in the event `daemons`
    "neighbours": MetricFamily(
        "weft_daemon_neighbours", "gauge", "", "Neighbours that a daemon hears."
    ),
    "of": MetricFamily(
        "weft_daemon_expected_neighbours", "gauge", "", "Neighbours that a daemon should hear."
    ),
    "routes": MetricFamily("weft_daemon_routes", "gauge", "", "Routes of a daemon."),
    "converged": MetricFamily(
        "weft_daemon_converged", "gauge", "", "1 if a daemon has converged, else 0."
    ),
    "losses": MetricFamily(
        "weft_daemon_neighbour_losses", "counter", "", "Neighbours that a daemon has lost."
    ),
    "restarts": MetricFamily("weft_daemon_restarts", "counter", "", "Restarts of a daemon."),
    "refused": MetricFamily(
        "weft_daemon_refused_messages", "counter", "", "Messages without a valid seal."
    ),
}


def openmetrics(
    latest: Mapping[str, Mapping[str, Any]],
    changed_links: Mapping[str, Mapping[str, Any]],
    ports: Mapping[str, Sequence[int]],
) -> str:
    """Return the metrics of a run.

    Args:
        latest: last event of each kind, with `network`; `daemons` has all of them.
        changed_links: last event `link` of each link that had one, by its name.
        ports: counters of each link by its name: bytes, drops and waiting packets, each of its
            first end and its second.
    """
    network = latest["network"]
    scheme = latest.get("scheme", network)["scheme"]
    run = {"run": network["run"], "topology": network["topology"], "scheme": scheme}
    lines = RUN.lines([(run, 1)])
    lines += UP.lines(_states(network["links"], changed_links))
    for place, family in enumerate(OF_PORTS):
        lines += family.lines(_of_ports(network["links"], ports, place))
    daemons = latest.get("daemons", {}).get("daemons", {})
    for key, family in OF_DAEMONS.items():
        lines += family.lines(({"node": node}, int(row[key])) for node, row in daemons.items())
    return "\n".join([*lines, "# EOF", ""])


def _states(
    links: Iterable[Mapping[str, Any]], changed_links: Mapping[str, Mapping[str, Any]]
) -> Iterator[LabeledValue]:
    """Yield 1 or 0 for each link."""
    for link in links:
        state = changed_links.get(link["link"], {}).get("state", "up")
        yield {"link": link["link"]}, int(state == "up")


def _of_ports(
    links: Iterable[Mapping[str, Any]], ports: Mapping[str, Sequence[int]], place: int
) -> Iterator[LabeledValue]:
    """Yield the counter at `place` of both ends of each link."""
    for link in links:
        near, far = link["ends"]
        first, second = ports[link["link"]][2 * place : 2 * place + 2]
        yield {"link": link["link"], "from": near, "to": far}, first
        yield {"link": link["link"], "from": far, "to": near}, second


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
