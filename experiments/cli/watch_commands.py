"""Commands that watch a run: its logs, its events, its web page, and its packets in files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.options import (
    Commands,
    add_command,
    add_flag,
    add_output,
    add_results,
    add_run,
)
from weft.testbed.linux.process import need_root
from weft.testbed.runs import run
from weft.testbed.runs.private_files import owned_by_caller
from weft.testbed.runs.run import RunRecord

if TYPE_CHECKING:
    from weft.testbed.cluster.spread_run import SpreadRun

SUPERVISOR = "supervisor"  # its log lies beside those of the nodes
MONOTONIC_COLUMN = 1  # of a log line, after the wall clock
MOST_FILES = 10_000
POLL_S = 0.5  # interval of checks that a run over several machines is up


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    parser = add_command(
        commands, "log", log, "print the log of a node's daemon, or of all daemons in order of time"
    )
    parser.add_argument(
        "node", nargs="?", help=f"name or label; {SUPERVISOR} for the process that starts daemons"
    )
    add_flag(parser, "-f", "--follow", help="print new lines until Ctrl-C")
    add_flag(parser, "--json", help="print a line of JSON for each line")
    add_run(parser)
    _add_views(commands)
    _add_captures(commands)


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


def _add_views(commands: Commands) -> None:
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
    from weft.testbed.network.handle import Handle
    from weft.testbed.observe import event_stream
    from weft.testbed.runs import run_process

    need_root()
    event_stream.require(arguments.updates, arguments.pairs)
    record = Handle.open(arguments.run).run  # what is wrong with it is said here
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
    if not 0 <= arguments.port < 1 << 16:
        raise ValueError(f"--port: 0 (any) to 65535, not {arguments.port}")
    record = run.find(arguments.run)
    entries_of_this_machine(record)
    results = Path(arguments.results)
    rates = arguments.updates, arguments.pairs
    process = start(record, arguments.port, *rates, results, alone=False)
    print(f"{address(process)}\nCtrl-C ends the view, not the run", flush=True)
    return run_process.wait(process, record)


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


def _add_captures(commands: Commands) -> None:
    parser = add_command(
        commands,
        "capture",
        capture,
        "capture packets of links and nodes in files for Wireshark (pcapng), until Ctrl-C",
    )
    parser.add_argument(
        "what",
        nargs="+",
        metavar="LINK|NODE",
        help="link such as h0-w0, both directions, or node such as h0, all ports",
    )
    add_output(
        parser,
        "write DIR/LINK.pcapng, or DIR/RUN.pcapng over machines; create DIR if necessary",
        metavar="DIR",
        required=True,
    )
    parser.add_argument(
        "--file-kb", type=int, default=0, metavar="N", help="start another file at N kB"
    )
    parser.add_argument(
        "--files", type=int, default=0, metavar="N", help="keep the newest N files; needs --file-kb"
    )
    parser.add_argument(
        "--snap",
        type=int,
        default=1 << 16,
        metavar="N",
        help="keep N bytes of each packet; default: all",
    )
    add_flag(parser, "--control", help="capture messages of routing daemons only")
    add_run(parser)

    parser = add_command(
        commands,
        "decode",
        decode,
        "print daemons' messages in a capture, or a dissector for Wireshark",
    )
    parser.add_argument("file", nargs="?", help="file that weft capture wrote")
    add_flag(parser, "--json", help="print a line of JSON for each message")
    add_flag(
        parser,
        "--wireshark",
        help="print a dissector in Lua, for ~/.local/lib/wireshark/plugins/weft.lua",
    )


def capture(arguments: Namespace) -> int:
    """Capture until Ctrl-C or until the run ends."""
    from dataclasses import asdict

    from weft.experiments.cli.cluster_commands import spread
    from weft.testbed.network.network import RunningNetwork
    from weft.testbed.observe import recorder
    from weft.testbed.runs import run_process

    need_root()
    _check_limits(arguments)
    if spread_run := spread(arguments.run):
        return _capture_on_machines(spread_run, arguments)
    network = RunningNetwork.open(arguments.run)
    run = network.run
    for element in arguments.what:
        recorder.ports(network.topology, element)  # raises here, not in the process
    network.close()
    folder = _folder(arguments)
    request = recorder.CaptureRequest(
        tuple(arguments.what),
        str(folder.absolute()),
        snap=arguments.snap,
        file_bytes=1000 * arguments.file_kb,
        files=arguments.files,
        control=arguments.control,
    )
    process = run_process.start(run, recorder.__name__, [run.id, json.dumps(asdict(request))])
    try:
        return run_process.wait(process, run)
    except KeyboardInterrupt:  # the usual end of a capture
        return 0


def _capture_on_machines(run: SpreadRun, arguments: Namespace) -> int:
    """Capture on the machines of the links and nodes until Ctrl-C, to one file."""
    from weft.testbed.cluster.measures import Measures
    from weft.testbed.linux import clock

    if arguments.file_kb:
        raise ValueError("--file-kb works on one machine only: packets of several go to one file")
    with Measures(run.record.id) as measures:
        measures.start_capture(arguments.what, snap=arguments.snap, control=arguments.control)
        path = _folder(arguments) / f"{run.record.id}.pcapng"
        print("capturing", flush=True)
        try:
            with suppress(KeyboardInterrupt):
                while run.record.alive():
                    clock.sleep(POLL_S)
        finally:  # also after SIGTERM
            print(*measures.stop_capture(path), path, sep="\n")
    return 0


def _folder(arguments: Namespace) -> Path:
    """Return the folder of --output, which exists from now on."""
    folder = Path(arguments.output)
    with owned_by_caller(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _check_limits(arguments: Namespace) -> None:
    """Raise ValueError for limits that are out of range."""
    from weft.testbed.observe import recorder

    least, most = recorder.LEAST_SNAP, recorder.LONGEST
    if not least <= arguments.snap <= most:
        raise ValueError(f"--snap: {least} to {most} bytes, not {arguments.snap}")
    if arguments.file_kb < 0:
        raise ValueError(f"--file-kb must be at least 0, got {arguments.file_kb}")
    if not 0 <= arguments.files <= MOST_FILES:
        raise ValueError(f"--files must be 0 .. {MOST_FILES}, got {arguments.files}")
    if arguments.files and not arguments.file_kb:
        raise ValueError("--files needs --file-kb")


def decode(arguments: Namespace) -> int:
    """Print each message, or the dissector."""
    from weft.daemons.core.message_registry import dissector
    from weft.testbed.linux.tc_filters import CONTROL_PORT
    from weft.testbed.observe.pcapng import messages

    if arguments.wireshark == bool(arguments.file):
        raise ValueError("decode: either a file, or --wireshark")
    if arguments.wireshark:
        sys.stdout.write(dissector(CONTROL_PORT))
        return 0
    for message in messages(Path(arguments.file)):
        print(json.dumps(message) if arguments.json else message_line(message))
    return 0


def message_line(message: dict[str, Any]) -> str:
    """Return `message` as a line of text; names with control characters are quoted."""
    header = ("at_s", "interface", "from", "message", "seal")
    fields = {name: value for name, value in message.items() if name not in header}
    values = " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items())
    interface = message["interface"]
    if not interface.isprintable():
        interface = json.dumps(interface)
    kind = message.get("message", "no message")
    return f"{message['at_s']:.6f} {interface} {message['from']} {kind}: {values}"
