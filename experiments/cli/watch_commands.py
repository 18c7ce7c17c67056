"""The commands log and, for status --watch, the loop that shows a network again and again."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.testbed.runs.run import RunRecord

SUPERVISOR = "supervisor"  # whose log lies beside those of the nodes
# the column of a log's line that says when by the monotonic clock, after the wall clock's
MONOTONIC = 1


def add_commands(commands: Any) -> None:
    """Add log."""
    text = "what a node's daemon has logged, or all daemons in order of time"
    parser = commands.add_parser("log", help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument(
        "node", nargs="?", help=f"name or label; {SUPERVISOR} for whatever starts the daemons"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on as lines come, until Ctrl-C"
    )
    parser.add_argument("--run", help="which run; default: $WEFT_RUN, or the only one")
    parser.set_defaults(action=log)


def log(given: argparse.Namespace) -> int:
    """Print what there is; following is left to tail."""
    from weft.testbed.runs import run

    found = run.find(given.run)
    paths = (
        [log_of(found, given.node)]
        if given.node
        else sorted((found.directory / "log").glob("*.log"))
    )
    if given.follow:
        os.execvp("tail", ["tail", "--lines=20", "--follow=name", "--quiet", *map(str, paths)])
    if given.node:
        sys.stdout.write(paths[0].read_text(errors="replace"))
        return 0
    for _, name, line in sorted(entry for path in paths for entry in entries(path)):
        print(f"{name:<12} {line}")
    return 0


def log_of(run: RunRecord, node: str) -> Path:
    """The log of a node; ValueError if it has none."""
    from weft.testbed.network.network import RunningNetwork

    name = node
    if node != SUPERVISOR:
        network = RunningNetwork.open(run.id)
        name = network.plan.names[network.topology.naming.node(node)]
    path = run.directory / "log" / f"{name}.log"
    if not path.exists():
        raise ValueError(f"{name} of run {run.id} has no log: no daemon of it has run")
    return path


def entries(path: Path) -> Iterator[tuple[float, str, str]]:
    """Each line of a log with its time and the node's name; the lines of a traceback go with the
    line before them."""
    at = 0.0
    for line in path.read_text(errors="replace").splitlines():
        columns = line.split(" ", MONOTONIC + 1)
        with suppress(IndexError, ValueError):
            at = float(columns[MONOTONIC])
        yield at, path.stem, line


def again_and_again(show: Callable[[], int], every_s: float) -> int:
    """Show, on an empty screen, every so many seconds until Ctrl-C."""
    from weft.testbed.linux import clock

    while True:
        sys.stdout.write("\x1b[2J\x1b[H" if sys.stdout.isatty() else "")
        if status := show():
            return status
        sys.stdout.flush()
        clock.sleep(every_s)
