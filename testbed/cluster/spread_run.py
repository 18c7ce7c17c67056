"""A live run over several machines: its parts, and weft's commands on them.

The part on each machine is a run there, called NAME-1, NAME-2 and so on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from weft.testbed.cluster.agent import NEWS, topology_from
from weft.testbed.cluster.controller import STATE
from weft.testbed.cluster.machines import ClusterMachine, run_on_machines
from weft.testbed.network import clean
from weft.testbed.plan.element import NodeElement, parse_element
from weft.testbed.plan.part import part_from
from weft.testbed.runs.run import ENVIRONMENT, RunRecord

END_S = 90.0  # for all machines to remove their parts


class SpreadRun:
    """A live run over several machines."""

    def __init__(self, record: RunRecord, journal: Mapping[str, Any]) -> None:
        self.record = record
        self.journal = journal
        self.topology = topology_from(journal)
        self.parts = [part_from(part) for part in journal["parts"]]
        self._machines = {
            name: ClusterMachine(**fields) for name, fields in journal["machines"].items()
        }
        state = record.directory / STATE
        if not state.exists():
            raise ValueError(f"run {record.id} is still coming up")
        marks = json.loads(state.read_text())
        self.dead: dict[str, str] = marks["dead"]
        self._late: list[str] = marks["late"]
        self._news: dict[str, dict[str, Any]] = marks["news"]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each machine."""
        return [
            {
                "machine": part.machine,
                "state": self._state(part.machine),
                "nodes": len(part.nodes),
                "cut_links": len(part.cut),
                "lost_peers": " ".join(news["lost"]) or "none",
                "longest_pause_s": news["longest_pause_s"],
                "dropped": news["dropped"],
            }
            for part in self.parts
            for news in [self._news.get(part.machine, NEWS)]
        ]

    def _state(self, machine: str) -> str:
        if machine in self.dead:
            return "dead"
        return "late" if machine in self._late else "up"

    def having(self, name: str) -> list[int]:
        """Return the parts that have the node or an end of the link called `name`."""
        element = parse_element(self.topology, name)
        if isinstance(element, NodeElement):
            links = {link for *_, link in self.topology.ports(element.node)}
            nodes = {element.node}
        else:
            links, nodes = {element.link}, set()
        return [
            number
            for number, part in enumerate(self.parts)
            if nodes.intersection(part.nodes) or links.intersection((*part.links, *part.cut))
        ]

    def home(self, node: str) -> int:
        """Return the part that has the node called `node`."""
        return self.homes()[self.topology.naming.node(node)]

    def homes(self) -> dict[int, int]:
        """Return the part that has each node."""
        return {node: number for number, part in enumerate(self.parts) for node in part.nodes}

    def execute(self, part: int, words: Sequence[str], rest: Sequence[str] = ()) -> NoReturn:
        """Become `weft WORDS REST` on the machine of a part."""
        start = self.command(part, words, rest, terminal=sys.stdin.isatty())
        os.execvp(start[0], start)

    def command(
        self, part: int, words: Sequence[str], rest: Sequence[str] = (), *, terminal: bool = False
    ) -> list[str]:
        """Return the command that runs `weft WORDS REST` on the machine of a part.

        Raises:
            ValueError: the machine is dead.
        """
        name = self.parts[part].machine
        if name in self.dead:
            raise ValueError(f"{self.dead[name]}; `weft down` takes the rest of the run down")
        # a later --run overrides one among the words
        words = [*words, "--run", f"{self.record.id}-{part + 1}", *rest]
        return self._machines[name].command(words, terminal=terminal)

    def carry_out(self, parts: Collection[int], words: Sequence[str]) -> list[str]:
        """Run `weft WORDS` on the machines of these parts at once, and return what they print.

        Raises:
            ValueError, OSError: the command failed on a machine; the line is its own.
        """
        return run_on_machines(
            [(self.parts[part].machine, self.command(part, words)) for part in parts]
        )

    def status(self) -> dict[str, Any]:
        """Return the status of all live parts as one, and a row for each machine.

        Links with an end on a dead machine are failed.
        """
        alive = [number for number, part in enumerate(self.parts) if part.machine not in self.dead]
        states = [json.loads(text) for text in self.carry_out(alive, ["status", "--json"])]
        failed = {name for state in states for name in state["failed"]}
        for part in self.parts:
            if part.machine in self.dead:
                failed |= {self.topology.link_name(link) for link in (*part.links, *part.cut)}
        merged = _merged(states) or {}
        if merged:
            merged["nodes"].sort(key=lambda row: self.topology.naming.node(row["node"]))
        return {**merged, "run": self.record.id, "failed": sorted(failed), "machines": self.rows()}

    def down(self) -> None:
        """Have every machine remove its part, and remove the run."""
        controller = clean.marked(ENVIRONMENT, self.record.id)
        clean.kill(controller, END_S, signal.SIGTERM)
        clean.remove(self.record)


def _merged(values: Sequence[Any]) -> Any:
    """Return counts added up, rows and entries of all, and other values as they are."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    first = present[0]
    if isinstance(first, dict):
        keys = dict.fromkeys(key for value in present for key in value)
        return {key: _merged([value.get(key) for value in present]) for key in keys}
    if isinstance(first, list):
        return [item for value in present for item in value]
    return sum(present) if type(first) is int else first
