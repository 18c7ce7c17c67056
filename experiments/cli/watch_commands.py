"""The command log, and the loop of `weft status --watch`."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from weft.experiments.cli.options import Commands, add_command, add_flag, add_run
from weft.testbed.runs import run
from weft.testbed.runs.run import RunRecord

SUPERVISOR = "supervisor"  # its log lies beside those of the nodes
MONOTONIC_COLUMN = 1  # of a log line, after the wall clock


def add_commands(commands: Commands) -> None:
    """Add log."""
    parser = add_command(
        commands, "log", log, "print the log of a node's daemon, or of all daemons in order of time"
    )
    parser.add_argument(
        "node", nargs="?", help=f"name or label; {SUPERVISOR} for the process that starts daemons"
    )
    add_flag(parser, "-f", "--follow", help="print new lines until Ctrl-C")
    add_flag(parser, "--json", help="print a line of JSON for each line")
    add_run(parser)


def log(arguments: Namespace) -> int:
    """Print logs; tail(1) follows them."""
    from weft.experiments.cli.cluster_commands import spread

    if arguments.json and arguments.follow:
        raise ValueError("log: --follow prints lines as they are: omit it, or --json")
    record = run.find(arguments.run)
    if spread_run := spread(record.id):
        if not arguments.node:
            raise ValueError(f"log: run {record.id} is on several machines; name a node")
        words = ["log", *["--follow"] * arguments.follow, *["--json"] * arguments.json]
        spread_run.execute(spread_run.home(arguments.node), words, [arguments.node])
    if arguments.node:
        paths = [log_path(record, arguments.node)]
    else:
        paths = sorted((record.directory / "log").glob("*.log"))
    if arguments.follow:
        os.execvp("tail", ["tail", "--lines=20", "--follow=name", "--quiet", *map(str, paths)])
    if arguments.node and not arguments.json:
        sys.stdout.write(paths[0].read_text(errors="replace"))
    else:
        show_entries(paths, as_json=arguments.json)
    return 0


def show_entries(paths: Sequence[Path], *, as_json: bool) -> None:
    """Print the lines of logs in order of time."""
    for at_s, name, line in sorted(entry for path in paths for entry in entries(path)):
        row = {"at_s": at_s, "node": name, "line": line}
        print(json.dumps(row) if as_json else f"{name:<12} {line}")


def log_path(record: RunRecord, node: str) -> Path:
    """Return the path of a node's log; ValueError if it has none."""
    from weft.testbed.network.handle import Handle

    name = node
    if node != SUPERVISOR:
        network = Handle.open(record.id)
        name = network.plan.names[network.node(node)]
    path = record.directory / "log" / f"{name}.log"
    if not path.exists():
        raise ValueError(f"{name} of run {record.id} has no log: it has never had a daemon")
    return path


def entries(path: Path) -> Iterator[tuple[float, str, str]]:
    """Yield (monotonic time in s, node, line).

    A line of a traceback has the time of the line before.
    """
    at_s = 0.0
    for line in path.read_text(errors="replace").splitlines():
        columns = line.split(" ", MONOTONIC_COLUMN + 1)
        with suppress(IndexError, ValueError):
            at_s = float(columns[MONOTONIC_COLUMN])
        yield at_s, path.stem, line


def repeat(show: Callable[[], int], interval_s: float) -> int:
    """Call `show` on a cleared screen every `interval_s` until it returns a failure."""
    from weft.testbed.linux import clock

    while True:
        sys.stdout.write("\x1b[2J\x1b[H" if sys.stdout.isatty() else "")
        if status := show():
            return status
        sys.stdout.flush()
        clock.sleep(interval_s)
