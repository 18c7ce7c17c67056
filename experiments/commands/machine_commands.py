"""Commands on the machine and its kernel: doctor, uml."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_commands(commands: Any) -> None:
    """Add this file's commands to the parser."""
    parser = commands.add_parser("doctor", help="what this kernel can do", description="What this kernel can do.")
    parser.set_defaults(action=doctor)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fresh", action="store_true", help="probe again rather than believe the last time")

    text = "run a command under User-Mode Linux: a full kernel, without root"
    parser = commands.add_parser("uml", help=text, description=text[0].upper() + text[1:] + ".")
    parser.set_defaults(action=uml)
    parser.add_argument("--clock", choices=["real", "virtual"], default="real", help="virtual: computing takes no time")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random under the virtual clock")
    parser.add_argument("--core", type=int, help="processor core to stay on; default: any one")
    parser.add_argument("--memory-mb", type=int, default=1500)
    parser.add_argument("--timeout-s", type=float, default=600.0)
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def doctor(given: argparse.Namespace) -> int:
    from weft.testbed.host.doctor import as_json, probe, show

    features = probe(fresh=given.fresh)
    if given.json:
        print(json.dumps(as_json(features)))
    else:
        show(features)
    return 0


def uml(given: argparse.Namespace) -> int:
    from weft.testbed.host import uml

    argv = given.argv[1:] if given.argv[:1] == ["--"] else given.argv
    if not argv:
        raise ValueError("uml: no command; write weft uml -- COMMAND")
    virtual = uml.VirtualClock(seed=given.seed) if given.clock == "virtual" else None
    return uml.run(argv, virtual=virtual, memory_mb=given.memory_mb, core=given.core, timeout_s=given.timeout_s)
