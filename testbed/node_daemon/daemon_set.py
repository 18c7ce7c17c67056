"""What the daemons of a run start from, on disk: written when the network comes up, read by their
supervisor."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weft.daemons.core.node_config import NodeConfig
from weft.testbed.linux.node_interfaces import NodeInterfaces
from weft.testbed.runs import private_files

FILE = "daemons.pickle"


@dataclass(frozen=True, slots=True)
class Daemons:
    """What the daemons of a run start from, by node; every node that may have a daemon has an entry
    in both.

    program: the id of the data plane's program at their ports, if it has one; `first_switch` is
        then the node that it counts as 0.
    transit: the id of the program that rewrites packets in transit, where there is one.
    """

    interfaces: Mapping[int, NodeInterfaces]
    configs: Mapping[int, NodeConfig]
    program: int | None = None
    first_switch: int = 0
    transit: int | None = None

    def node(self, name: str) -> int:
        """The node called `name`; ValueError if it has no daemon."""
        for node, interfaces in self.interfaces.items():
            if interfaces.name == name:
                return node
        raise ValueError(f"no daemon belongs to {name!r}; nodes with one are {self._some()}")

    def _some(self) -> str:
        names = [interfaces.name for interfaces in self.interfaces.values()]
        return ", ".join(names) if len(names) < 6 else f"{names[0]} .. {names[-1]}"

    def write(self, directory: Path) -> None:
        """Put them where read() finds them."""
        private_files.write(directory / FILE, pickle.dumps(self, pickle.HIGHEST_PROTOCOL))


def read(directory: Path) -> Daemons:
    """The daemons of the run in `directory`; ValueError if it has none."""
    try:
        with open(private_files.open_file(directory / FILE, os.O_RDONLY), "rb") as file:
            found: Daemons = pickle.load(file)
    except FileNotFoundError:
        raise ValueError(
            f"run {directory.name} has no daemons: its routes are fixed, or it has none"
        ) from None
    return found
