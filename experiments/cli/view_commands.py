"""The commands events and view: a run as JSON, and as a web page."""

from __future__ import annotations

import subprocess
from argparse import ArgumentParser, Namespace
from pathlib import Path

from weft.experiments.cli.options import Commands, add_command, add_results, add_run
from weft.testbed.linux.process import need_root
from weft.testbed.runs.run import RunRecord


def add_commands(commands: Commands) -> None:
    """Add events and view."""
    parser = add_command(
        commands,
        "events",
        events,
        "print the events of a run as JSON, one a line (docs/watching.md)",
    )
    add_run(parser)
    _add_rates(parser)

    parser = add_command(
        commands,
        "view",
        view,
        "serve a web page that shows, breaks and mends a network (docs/watching.md)",
    )
    add_run(parser)
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port of 127.0.0.1; default: any free port"
    )
    _add_rates(parser)
    add_results(parser)


def _add_rates(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--updates",
        type=float,
        default=10.0,
        metavar="N",
        help="readings of counters a second; default: 10",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=16,
        metavar="N",
        help="pairs of servers to ping every 50 ms, 0 for none; default: 16",
    )


def events(arguments: Namespace) -> int:
    """Print events until the run ends."""
    from weft.testbed.network.handle import entries_of_this_machine
    from weft.testbed.observe import event_stream
    from weft.testbed.runs import run, run_process

    need_root()
    event_stream.require(arguments.updates, arguments.pairs)
    record = run.find(arguments.run)
    entries_of_this_machine(record)
    argv = [record.id, str(arguments.updates), str(arguments.pairs)]
    process = run_process.start(record, event_stream.__name__, argv)
    return run_process.wait(process, record)


def view(arguments: Namespace) -> int:
    """Serve the page until the run ends or Ctrl-C."""
    from weft.testbed.network.handle import entries_of_this_machine
    from weft.testbed.observe import event_stream
    from weft.testbed.runs import run, run_process

    need_root()
    event_stream.require(arguments.updates, arguments.pairs)
    require_port(arguments.port)
    record = run.find(arguments.run)
    entries_of_this_machine(record)
    results = Path(arguments.results)
    rates = arguments.updates, arguments.pairs
    process = start(record, arguments.port, *rates, results, alone=False)
    print(f"{address(process)}\nCtrl-C ends the view, not the run", flush=True)
    return run_process.wait(process, record)


def require_port(port: int) -> None:
    """Raise ValueError unless `port` is a TCP port or 0."""
    if not 0 <= port < 1 << 16:
        raise ValueError(f"--port: 0 (any) to 65535, not {port}")


def show_view(run: RunRecord) -> None:
    """Start a process that serves a page until the run ends, and print its address."""
    from weft.testbed.observe.event_stream import PAIRS, UPDATES_PER_S

    process = start(run, 0, UPDATES_PER_S, PAIRS, Path("results"), alone=True)
    print(address(process), flush=True)


def start(
    run: RunRecord, port: int, updates_per_s: float, pairs: int, results: Path, *, alone: bool
) -> subprocess.Popen[bytes]:
    """Start the process that serves the page; if `alone`, it outlives this one."""
    from weft.experiments.view import worker
    from weft.testbed.runs import run_process

    mode = worker.ALONE if alone else worker.ATTACHED
    argv = [run.id, str(port), str(updates_per_s), str(pairs), str(results.absolute()), mode]
    return run_process.start(run, worker.__name__, argv, stdout=subprocess.PIPE, alone=alone)


def address(process: subprocess.Popen[bytes]) -> str:
    """Return the URL that the process prints first; OSError with its error if it ends before."""
    from weft.experiments.view.worker import ERROR

    assert process.stdout
    with process.stdout:
        line = process.stdout.readline().decode().strip()
    if line.startswith("http"):
        return line
    process.wait()
    raise OSError(line.removeprefix(ERROR) or "the view could not start")
