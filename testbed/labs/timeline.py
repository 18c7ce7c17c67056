"""Events and checks of a lab, read strictly.

    events:
      - {at: 1s, traffic: h0-h3, for: 2s, name: bulk}
      - {at: 2s, fail: h0-w0, silent: true}
    checks:
      - {at: 2s, recovers: h0-h3, within: 200ms, points: 2, hint: "How often do hellos go out?"}
      - {goodput: bulk, above: 5mbit}

An entry has the key of its kind, whose value is the subject, and the options of that kind.  Times
count from the moment when the network has converged and its start-up commands have ended.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from weft.testbed.labs import mahimahi
from weft.testbed.labs.text_file import Keys, keys, position
from weft.testbed.network.impair import impairment
from weft.testbed.plan.element import only_receiver, parse_element
from weft.topologies.core.grammar import quoted, unknown
from weft.topologies.core.link import delay_us, rate_bps
from weft.topologies.core.topology import Topology

IMPAIRMENTS = ("loss", "delay", "jitter", "rate", "queue")
EVENTS: Mapping[str, tuple[str, ...]] = {  # options of each kind
    "fail": ("silent", "only_to"),
    "restore": (),
    "degrade": ("rate", "tell"),
    "impair": IMPAIRMENTS,
    "clear": (),
    "rates": ("trace", "for"),
    "start": ("node", "name"),
    "stop": (),
    "traffic": ("for", "size", "transport", "congestion", "name"),
}
CHECKS: Mapping[str, tuple[str, ...]] = {
    "reachable": (),
    "unreachable": (),
    "path": (),
    "loss": ("for", "below"),
    "goodput": ("above",),
    "recovers": ("within",),
    "route": ("via",),
    "output": ("node", "matches"),
}
REQUIRED: Mapping[str, tuple[str, ...]] = {  # options without a default; events also need `at`
    "degrade": ("rate",),
    "rates": ("trace", "for"),
    "start": ("node",),
    "loss": ("below",),
    "goodput": ("above",),
    "recovers": ("at", "within"),
    "output": ("node", "matches"),
}
TRANSPORTS = ("tcp", "ndp")
MOST_S = 3600.0
MOST_ENTRIES = 10_000
MOST_POINTS = 1000
MOST_PAIRS = 100_000
BYTES = {"B": 1, "kB": 1000, "MB": 10**6, "GB": 10**9, "": 1}
NodePair = tuple[int, int]
Readers = dict[str, Callable[[Any], Any]]


@dataclass(frozen=True)
class LabEvent:
    """An event, `at_s` seconds after the beginning.

    kind: a key of EVENTS.
    subject: a link or node by name, a command line, the name of a command, or pairs of hosts.
    options: values of the other keys; for impair the Impairment is `change`.
    """

    at_s: float
    kind: str
    subject: Any
    options: Mapping[str, Any]

    @property
    def end_s(self) -> float:
        """Time at which the event is over."""
        return self.at_s + float(self.options.get("for", 0.0))


@dataclass(frozen=True)
class LabCheck:
    """A check, `at_s` seconds after the beginning.

    kind: a key of CHECKS.
    text: the entry, for reports.
    line: of the entry in its file.
    hidden: whether that is the file of hidden checks.
    """

    at_s: float
    kind: str
    subject: Any
    options: Mapping[str, Any]
    points: int
    hint: str
    text: str
    line: int
    hidden: bool = False


def timeline(
    content: Keys, topology: Topology, folder: Path, hidden: Keys | None = None
) -> tuple[tuple[LabEvent, ...], tuple[LabCheck, ...]]:
    """Return the events in order of time, and the checks of a lab.

    Args:
        content: the lab, whose traces lie in `folder`.
        topology: of the lab.
        folder: of the lab's file.
        hidden: further events and checks.  A check of the lab without `at` runs after the last
            event of the lab, whatever events are hidden.

    Raises:
        ValueError: an entry is malformed, or names what does not exist.
    """
    reader = TimelineReader(topology, folder)
    events: list[LabEvent] = []
    checks = []
    for source in (content,) if hidden is None else (content, hidden):
        for number, item in enumerate(_items(source, "events"), 1):
            with position(source, "events"), position(item):
                events += reader.events(f"events, entry {number}", item)
        end_s = max((event.end_s for event in events), default=0.0)
        for number, item in enumerate(_items(source, "checks"), 1):
            with position(source, "checks"), position(item):
                check = reader.check(f"checks, entry {number}", item, end_s)
            checks.append(replace(check, hidden=source is hidden))
    events.sort(key=lambda event: event.at_s)
    return tuple(events), tuple(checks)


def _items(content: Keys, key: str) -> list[Any]:
    """Return the entries of `events` or `checks`."""
    items = content.get(key) or []
    with position(content, key):
        if not isinstance(items, list) or len(items) > MOST_ENTRIES:
            raise ValueError(f"{key}: a list of at most {MOST_ENTRIES} entries")
    return items


def two_ends(title: str, content: Any) -> tuple[str, str]:
    """Return two names: from a-b, or from a list of two if names contain a -."""
    if isinstance(content, str):
        a, dash, b = content.partition("-")
        if dash:
            return a, b
    elif isinstance(content, list) and len(content) == 2:
        return str(content[0]), str(content[1])
    raise ValueError(f"{title}: two nodes, a-b or [a, b], got {quoted(content)}")


def text(content: Any) -> str:
    """Return `content`, a text of one line."""
    if not isinstance(content, str) or not content or not content.isprintable():
        raise ValueError(f"a text of one line, got {quoted(content)}")
    return content


def boolean(content: Any) -> bool:
    if not isinstance(content, bool):
        raise ValueError(f"true or false, got {quoted(content)}")
    return content


def seconds(content: Any) -> float:
    """Return seconds from 1.5, "1.5s" or "200ms"."""
    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    if is_number and 0 <= content <= MOST_S:
        return float(content)
    time_s = math.inf if is_number else delay_us(str(content), "time") / 1e6
    if not 0 <= time_s <= MOST_S:
        raise ValueError(f"0 to {MOST_S:g} seconds, got {quoted(content)}")
    return time_s


def _positive(content: Any) -> float:
    """Return seconds above 0."""
    if not (time_s := seconds(content)):
        raise ValueError("more than 0 seconds")
    return time_s


def rate(content: Any) -> int:
    """Return bits per second from "5mbit" or a number."""
    if (bps := rate_bps(str(content))) < 1:
        raise ValueError(f"a rate such as 5mbit, got {quoted(content)}")
    return bps


def percent(content: Any) -> float:
    """Return a share in per cent, above 0."""
    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    if not is_number or not 0 < content <= 100:
        raise ValueError(f"per cent above 0, got {quoted(content)}")
    return float(content)


def size_bytes(content: Any) -> int:
    """Return bytes from "100kB" or a number."""
    parts = re.fullmatch(r"([0-9]{1,12}) ?([kMG]?B|)", str(content))
    if not parts or not int(parts[1]):
        raise ValueError(f"a size such as 100kB, got {quoted(content)}")
    return int(parts[1]) * BYTES[parts[2]]


def points_of(content: Any) -> int:
    """Return the points of a check."""
    is_number = isinstance(content, int) and not isinstance(content, bool)
    if not is_number or not 0 <= content <= MOST_POINTS:
        raise ValueError(f"0 to {MOST_POINTS}, got {quoted(content)}")
    return int(content)


def transport(content: Any) -> str:
    """Return the name of a transport."""
    if content not in TRANSPORTS:
        raise ValueError(unknown("transport", str(content), TRANSPORTS))
    return str(content)


def pattern(content: Any) -> str:
    """Return a regular expression."""
    if not isinstance(content, str):
        raise ValueError(f"a regular expression, got {quoted(content)}")
    try:
        re.compile(content)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"no regular expression: {error}") from None
    return content


class TimelineReader:
    """Reader of entries for one topology; it remembers the names of traffic and commands."""

    def __init__(self, topology: Topology, folder: Path) -> None:
        self.topology = topology
        self.folder = folder
        self.traffic: dict[str, LabEvent] = {}
        self.commands: dict[str, LabEvent] = {}
        self.readers = self._subjects() | self._options()

    def _subjects(self) -> Readers:
        """Return the reader of the subject of each kind."""
        return {
            **dict.fromkeys(("fail", "restore"), self.element),
            **dict.fromkeys(("degrade", "impair", "clear", "rates"), self.link),
            **dict.fromkeys(("start", "output"), text),
            **dict.fromkeys(
                ("traffic", "reachable", "unreachable", "loss", "recovers"), self.pairs
            ),
            "stop": partial(self.known, "command", self.commands),
            "goodput": partial(self.known, "traffic", self.traffic),
            "path": self.path,
            "route": self.pair,
        }

    def _options(self) -> Readers:
        """Return the reader of each option."""
        return {
            **dict.fromkeys(("silent", "tell"), boolean),
            **dict.fromkeys(("rate", "above"), rate),
            **dict.fromkeys(("for", "within"), _positive),
            **dict.fromkeys(("trace", "name", "congestion"), text),
            "node": self.node,
            "via": self.nodes,
            "only_to": self.node_name,
            "size": size_bytes,
            "transport": transport,
            "below": percent,
            "matches": pattern,
        }

    def events(self, title: str, item: Any) -> list[LabEvent]:
        """Return the event of an entry, or those of a trace."""
        event = LabEvent(*self._entry(title, item, EVENTS, ("at",), 0.0))
        if event.kind == "rates":
            return self._trace(event)
        if "only_to" in event.options:
            self._check_only_to(event)
        if event.kind == "traffic":
            self._check_traffic(event)
            event = self._named("traffic", self.traffic, event, _plain(item["traffic"]))
        if event.kind == "stop" and event.at_s < event.subject.at_s:
            raise ValueError(f"{title}: the command starts later, at {event.subject.at_s:g} s")
        if event.kind == "start":
            event = self._named("command", self.commands, event, event.subject)
        return [event]

    def check(self, title: str, item: Any, end_s: float) -> LabCheck:
        """Return the check of an entry; `end_s` is its time if it has none."""
        common = ("at", "points", "hint")
        at_s, kind, subject, options = self._entry(title, item, CHECKS, common, end_s)
        if kind == "goodput":
            at_s = max(at_s, subject.at_s)
        points = self._value(title, item, "points", points_of) if "points" in item else 1
        hint = text(item["hint"]) if "hint" in item else ""
        words = [f"{key} {_plain(value)}" for key, value in item.items() if key not in common[1:]]
        return LabCheck(at_s, kind, subject, options, points, hint, ", ".join(words), item.line)

    def _entry(
        self,
        title: str,
        item: Any,
        kinds: Mapping[str, tuple[str, ...]],
        common: tuple[str, ...],
        usual_s: float,
    ) -> tuple[float, str, Any, dict[str, Any]]:
        """Return time, kind, subject and options of an entry."""
        options = {key for names in kinds.values() for key in names}
        content = keys(title, item, (*kinds, *common, *options))
        present = [kind for kind in kinds if kind in content]
        if len(present) != 1:
            raise ValueError(f"{title}: one of {', '.join(kinds)}, got {len(present)} of them")
        kind = present[0]
        subject_title, title = title, f"{title}, {kind}"
        keys(title, content, (kind, *kinds[kind], *common))
        _require(title, content, (*(("at",) if kind in EVENTS else ()), *REQUIRED.get(kind, ())))
        subject = self._value(subject_title, content, kind, self.readers[kind])
        at_s = self._value(title, content, "at", seconds) if "at" in content else usual_s
        return at_s, kind, subject, self._read_options(title, content, kinds[kind])

    def _read_options(self, title: str, content: Keys, known: tuple[str, ...]) -> dict[str, Any]:
        """Return the values of the keys in `known`."""
        if known is IMPAIRMENTS:
            words = {key: str(content[key]) for key in known if key in content}
            return {"change": impairment(**words)}
        return {
            key: self._value(title, content, key, self.readers[key])
            for key in known
            if key in content
        }

    @staticmethod
    def _value(title: str, content: Keys, key: str, reader: Callable[[Any], Any]) -> Any:
        with position(content, key):
            try:
                return reader(content[key])
            except ValueError as error:
                raise ValueError(f"{title}: {key}: {error}") from None

    def _trace(self, event: LabEvent) -> list[LabEvent]:
        """Return changes of a link's rate by the trace of an event."""
        try:
            path = (self.folder / event.options["trace"]).resolve()
        except (OSError, RuntimeError) as error:  # links that form a loop
            raise ValueError(f"trace: {error}") from None
        if not path.is_relative_to(self.folder.resolve()):
            raise ValueError(f"trace: {path.name} must lie in the folder of the lab")
        length_s = event.options["for"]
        return [
            LabEvent(
                event.at_s + after_s,
                "degrade",
                event.subject,
                {"rate": bps, "for": length_s - after_s},
            )
            for after_s, bps in mahimahi.rates(mahimahi.read(path), length_s)
        ]

    def _check_only_to(self, event: LabEvent) -> None:
        """Raise ValueError unless the event is a silent failure of a link that ends there."""
        element = parse_element(self.topology, event.subject)
        silent = event.options.get("silent", False)
        only_receiver(self.topology, element, event.options["only_to"], silent=silent)

    def _check_traffic(self, event: LabEvent) -> None:
        """Raise ValueError for traffic without an end, or between nodes that are no hosts."""
        options = event.options
        if "size" not in options and ("for" not in options or options.get("transport") == "ndp"):
            raise ValueError("traffic needs a size, or tcp and a time (for)")
        if any(host >= self.topology.servers for pair in event.subject for host in pair):
            raise ValueError("traffic leads from hosts to hosts")

    @staticmethod
    def _named(kind: str, events: dict[str, LabEvent], event: LabEvent, usual: str) -> LabEvent:
        """Return the event with its name, which no other has."""
        name = event.options.get("name", usual)
        if name in events:
            raise ValueError(f"a second {kind} called {quoted(name)}; set its name")
        events[name] = replace(event, options={**event.options, "name": name})
        return events[name]

    def known(self, kind: str, events: Mapping[str, LabEvent], content: Any) -> LabEvent:
        """Return the event of `kind` called `content`."""
        if not isinstance(content, str) or content not in events:
            raise ValueError(unknown(kind, str(content), events))
        return events[content]

    def element(self, content: Any) -> str:
        """Return the name of a link or node."""
        parse_element(self.topology, text(content))
        return str(content)

    def link(self, content: Any) -> str:
        """Return the name of a link."""
        self.topology.link(text(content))
        return str(content)

    def node(self, content: Any) -> int:
        """Return the number of a node that has an address."""
        node = self.topology.naming.node(text(content))
        if self.topology.is_crossbar(node):
            raise ValueError(f"{content} is a crossbar, without an address")
        return node

    def nodes(self, content: Any) -> tuple[int, ...]:
        """Return the numbers of a node, or of a list of nodes, that have addresses."""
        if content == []:
            raise ValueError("a node, or a list of nodes")
        return tuple(map(self.node, content if isinstance(content, list) else [content]))

    def node_name(self, content: Any) -> str:
        self.topology.naming.node(text(content))
        return str(content)

    def pair(self, content: Any) -> NodePair:
        """Return the two nodes of a-b or [a, b]."""
        a, b = map(self.node, two_ends("a pair", content))
        if a == b:
            raise ValueError(f"{quoted(content)}: two different nodes")
        return a, b

    def pairs(self, content: Any) -> tuple[NodePair, ...]:
        """Return the pairs of a-b, of a list of pairs, or of all hosts."""
        hosts = range(self.topology.servers)
        if content == "all":
            if not 0 < (count := len(hosts) * (len(hosts) - 1)) <= MOST_PAIRS:
                raise ValueError(f"all: {count} pairs, of 1 to {MOST_PAIRS}; list some of them")
            return tuple((a, b) for a in hosts for b in hosts if a != b)
        if isinstance(content, list) and content:
            return tuple(map(self.pair, content))
        return (self.pair(content),)

    def path(self, content: Any) -> tuple[int, ...]:
        """Return the nodes of a path."""
        if not isinstance(content, list) or len(content) < 2:
            raise ValueError(f"a list of nodes from source to destination, got {quoted(content)}")
        nodes = tuple(map(self.node, content))
        if nodes[0] == nodes[-1]:
            raise ValueError("a path leads from one node to another")
        return nodes


def _require(title: str, content: Keys, required: Iterable[str]) -> None:
    """Raise ValueError unless `content` has all keys in `required`."""
    if missing := [key for key in required if key not in content]:
        raise ValueError(f"{title}: {missing[0]} is missing")


def _plain(value: Any) -> str:
    """Return a value of the file as text for a report."""
    if isinstance(value, list):
        return " ".join(map(_plain, value))
    return str(value)
