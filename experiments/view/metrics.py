"""A run in the text format of OpenMetrics 1.0, for Prometheus (docs/watching.md).

A family has a type, a unit as the end of its name, and a help text; samples of a counter end in
_total; the text ends with # EOF (https://prometheus.io/docs/specs/om/open_metrics_spec/).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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


def text(
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
