"""The commands capture and decode: packets of a run in files, and the daemons' messages in them."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.options import Commands, add_command, add_flag, add_output, add_run
from weft.experiments.runner.ownership import owned_by_caller
from weft.testbed.linux.process import need_root

if TYPE_CHECKING:
    from weft.testbed.cluster.spread_run import SpreadRun

MOST_FILES = 10_000
POLL_S = 0.5  # interval of checks that a run over several machines is up


def add_commands(commands: Commands) -> None:
    """Add capture and decode."""
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
    from weft.daemons.core.wireshark import dissector
    from weft.testbed.linux.tc import CONTROL_PORT
    from weft.testbed.observe.decode import messages

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
