"""The configuration of a run's daemons on disk: written at bring-up, read by their supervisor."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weft.daemons.core.node_config import NodeConfig
from weft.testbed.linux.interface import NodeInterfaces
from weft.testbed.runs import private_files

FILE = "daemons.pickle"


@dataclass(frozen=True, slots=True)
class Daemons:
    """The configuration of a run's daemons.

    interfaces, configs: of each node that may have a daemon, by node.
    program: id of the data plane's program at their ports, if there is one.
    first_switch: the node that this program counts as 0.
    transit: id of the program that rewrites packets in transit, if there is one.
    """

    interfaces: Mapping[int, NodeInterfaces]
    configs: Mapping[int, NodeConfig]
    program: int | None = None
    first_switch: int = 0
    transit: int | None = None

    def node(self, name: str) -> int:
        """Return the node called `name`.

        Raises:
            ValueError: it cannot have a daemon.
        """
        for node, interfaces in self.interfaces.items():
            if interfaces.name == name:
                return node
        if not self.interfaces:
            raise ValueError(f"no daemon belongs to {name!r}: no node of this run has one")
        raise ValueError(f"no daemon belongs to {name!r}; nodes with one are {self._some()}")

    def _some(self) -> str:
        names = [interfaces.name for interfaces in self.interfaces.values()]
        return ", ".join(names) if len(names) < 6 else f"{names[0]} .. {names[-1]}"

    def write(self, directory: Path) -> None:
        """Write it to the run's directory, for read()."""
        private_files.write(directory / FILE, pickle.dumps(self, pickle.HIGHEST_PROTOCOL))


def read(directory: Path) -> Daemons:
    """Return the configuration of the daemons of the run in `directory`.

    Raises:
        ValueError: the run has no daemons.
    """
    try:
        with open(private_files.open_file(directory / FILE, os.O_RDONLY), "rb") as file:
            daemons: Daemons = pickle.load(file)
    except FileNotFoundError:
        raise ValueError(
            f"run {directory.name} has no daemons: its routes are fixed, or it has none"
        ) from None
    return daemons
