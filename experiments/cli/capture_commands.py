"""The commands capture and decode: packets of a run in files, and what daemons say in them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

MOST_FILES = 10_000


def add_commands(commands: Any) -> None:
    """Add capture and decode."""
    text = (
        "packets of links and nodes of a run, in files that Wireshark reads (pcapng), until Ctrl-C"
    )
    parser = commands.add_parser("capture", help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument(
        "what",
        nargs="+",
        metavar="LINK|NODE",
        help="such as h0-w0, both ways, or h0, all its ports",
    )
    parser.add_argument(
        "-w",
        "--write",
        metavar="DIR",
        required=True,
        help="where DIR/LINK.pcapng goes; made if need be",
    )
    parser.add_argument(
        "--file-kb", type=int, default=0, metavar="N", help="begin another file when one has N kB"
    )
    parser.add_argument(
        "--files", type=int, default=0, metavar="N", help="keep the newest N; needs --file-kb"
    )
    parser.add_argument(
        "--snap",
        type=int,
        default=1 << 16,
        metavar="N",
        help="keep N bytes of each packet; default all",
    )
    parser.add_argument("--control", action="store_true", help="only what routing daemons say")
    parser.add_argument("--run", help="which run; default: $WEFT_RUN, or the only one")
    parser.set_defaults(action=capture)

    text = "what routing daemons say in a capture; or a dissector for Wireshark that shows it there"
    parser = commands.add_parser("decode", help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("file", nargs="?", help="as weft capture writes it")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each message")
    text = "print a dissector in Lua, for ~/.local/lib/wireshark/plugins/weft.lua"
    parser.add_argument("--wireshark", action="store_true", help=text)
    parser.set_defaults(action=decode)


def capture(given: argparse.Namespace) -> int:
    """Capture until Ctrl-C, or until the run ends."""
    from dataclasses import asdict

    from weft.experiments.runner.ownership import owned_by_caller
    from weft.testbed.linux.process import need_root
    from weft.testbed.network.network import RunningNetwork
    from weft.testbed.observe import recorder
    from weft.testbed.runs import run_process

    need_root()
    if not recorder.LEAST_SNAP <= given.snap <= recorder.LONGEST:
        raise ValueError(
            f"--snap: {recorder.LEAST_SNAP} to {recorder.LONGEST} bytes, not {given.snap}"
        )
    if (
        given.file_kb < 0
        or not 0 <= given.files <= MOST_FILES
        or (given.files and not given.file_kb)
    ):
        raise ValueError(f"--file-kb from 1, and --files up to {MOST_FILES} beside it")
    network = RunningNetwork.open(given.run)
    for what in given.what:
        recorder.ports(network, what)  # or who asked is told what is wrong
    folder = Path(given.write)
    with owned_by_caller(folder):
        folder.mkdir(parents=True, exist_ok=True)
    limits = {
        "snap": given.snap,
        "file_bytes": 1000 * given.file_kb,
        "files": given.files,
        "control": given.control,
    }
    wish = recorder.Wish(tuple(given.what), str(folder.absolute()), **limits)
    run = network.run
    network.close()
    process = run_process.start(run, recorder.__name__, [run.id, json.dumps(asdict(wish))])
    try:
        return run_process.wait(process, run)
    except KeyboardInterrupt:  # which is how a capture ends
        return 0


def decode(given: argparse.Namespace) -> int:
    """Print each message, or the dissector.  A name in the file that could move the cursor is
    quoted."""
    from weft.daemons.core.wireshark import dissector
    from weft.testbed.linux.tc import CONTROL_PORT
    from weft.testbed.observe.decode import messages

    if given.wireshark == bool(given.file):
        raise ValueError("decode: either a file, or --wireshark")
    if given.wireshark:
        sys.stdout.write(dissector(CONTROL_PORT))
        return 0
    for message in messages(Path(given.file)):
        if given.json:
            print(json.dumps(message))
            continue
        at_s, interface, address = (message.pop(name) for name in ("at_s", "interface", "from"))
        words = message.pop("message", "no message")
        values = " ".join(
            f"{name}={json.dumps(value)}" for name, value in message.items() if name != "seal"
        )
        if not interface.isprintable():
            interface = json.dumps(interface)
        print(f"{at_s:.6f} {interface} {address} {words}: {values}")
    return 0
