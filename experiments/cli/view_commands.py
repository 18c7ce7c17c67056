"""The commands events and view, and what `weft up --view` does: a run as JSON, and as a page in the
browser."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.testbed.runs.run import RunRecord


def add_commands(commands: Any) -> None:
    """Add events and view."""
    text = "what happens in a run, as JSON, one event a line (docs/watching.md), until it ends"
    parser = commands.add_parser("events", help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("--run", help="which run; default: $WEFT_RUN, or the only one")
    _add_options(parser)
    parser.set_defaults(action=events)

    text = (
        "a page in the browser: a network that is up, to be watched, broken and mended "
        "(docs/watching.md)"
    )
    parser = commands.add_parser("view", help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("--run", help="which run; default: $WEFT_RUN, or the only one")
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="of 127.0.0.1; default: any that is free"
    )
    _add_options(parser)
    text = "where weft run keeps its results (results)"
    parser.add_argument("--results", metavar="DIR", default="results", help=text)
    parser.set_defaults(action=view)


def _add_options(parser: argparse.ArgumentParser) -> None:
    text = "how often a second to read counters; 10"
    parser.add_argument("--updates", type=float, default=10.0, metavar="N", help=text)
    text = "pairs of servers to ping each 50 ms, to see outages; 16, 0 for none"
    parser.add_argument("--pairs", type=int, default=16, metavar="N", help=text)


def events(given: argparse.Namespace) -> int:
    """Print them as they come."""
    from weft.testbed.linux.process import need_root
    from weft.testbed.observe import event_stream
    from weft.testbed.runs import run, run_process

    need_root()
    event_stream.require(given.updates, given.pairs)
    found = run.find(given.run)
    argv = [found.id, str(given.updates), str(given.pairs)]
    return run_process.wait(run_process.start(found, event_stream.__name__, argv), found)


def view(given: argparse.Namespace) -> int:
    """Serve the page until the run ends, or somebody presses Ctrl-C."""
    from weft.testbed.linux.process import need_root
    from weft.testbed.observe import event_stream
    from weft.testbed.runs import run, run_process

    need_root()
    event_stream.require(given.updates, given.pairs)
    require_port(given.port)
    found = run.find(given.run)
    process = start(found, given.port, given.updates, given.pairs, Path(given.results), alone=False)
    print(f"{address(process)}\nCtrl-C ends the view, not the run", flush=True)
    return run_process.wait(process, found)


def require_port(port: int) -> None:
    """ValueError unless a page can be served at `port`."""
    if not 0 <= port < 1 << 16:
        raise ValueError(f"--port: 0 (any) to 65535, not {port}")


def show_view(run: RunRecord, *, wanted: bool) -> None:
    """If it is `wanted`, serve a page for `run` until the run ends, and print its address."""
    from weft.testbed.observe.event_stream import PAIRS, UPDATES_PER_S

    if wanted:
        print(address(start(run, 0, UPDATES_PER_S, PAIRS, Path("results"), alone=True)), flush=True)


def start(
    run: RunRecord, port: int, updates_per_s: float, pairs: int, results: Path, *, alone: bool
) -> subprocess.Popen[bytes]:
    """The process that serves the page; alone: it outlives this one."""
    from weft.experiments.view import worker
    from weft.testbed.runs import run_process

    how = worker.ALONE if alone else worker.ATTACHED
    argv = [run.id, str(port), str(updates_per_s), str(pairs), str(results.absolute()), how]
    return run_process.start(run, worker.__name__, argv, stdout=subprocess.PIPE, alone=alone)


def address(process: subprocess.Popen[bytes]) -> str:
    """What it says first: where the page is; OSError if it ends before that."""
    from weft.experiments.view.worker import ERROR

    assert process.stdout
    with process.stdout:
        line = process.stdout.readline().decode().strip()
    if line.startswith("http"):
        return line
    process.wait()
    raise OSError(line.removeprefix(ERROR) or "the view could not start")
