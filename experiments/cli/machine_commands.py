"""Commands on the machine and its kernel, doctor and uml, and for what runs on it without a plan of
ours: mn."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from weft.experiments.cli.virtual_up import check_costs

EPILOG = """\
weft mn SCRIPT [ARGUMENTS]     runs a script of Mininet's as it is
weft mn --topo tree,2 [OPTIONS]   runs Debian's mn; weft mn -h has its options
"""


def add_commands(commands: Any) -> None:
    """Add this file's commands to the parser."""
    parser = commands.add_parser(
        "doctor", help="what this kernel can do", description="What this kernel can do."
    )
    parser.set_defaults(action=doctor)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--fresh", action="store_true", help="probe again rather than believe the last time"
    )

    text = "run a command under User-Mode Linux: a full kernel, without root"
    parser = commands.add_parser("uml", help=text, description=text[0].upper() + text[1:] + ".")
    parser.set_defaults(action=uml)
    parser.add_argument(
        "--clock",
        choices=["real", "virtual"],
        default="real",
        help="virtual: computing takes no time",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of all that is random under the virtual clock"
    )
    call = "ns that each system call takes of its process (0; --clock virtual)"
    parser.add_argument("--syscall-ns", type=int, metavar="N", default=0, help=call)
    parser.add_argument("--core", type=int, help="processor core to stay on; default: any one")
    parser.add_argument("--memory-mb", type=int, default=1500)
    parser.add_argument("--timeout-s", type=float, default=600.0)
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND")

    _add_mn(commands)


def _add_mn(commands: Any) -> None:
    text = "run a Mininet script, or Mininet's mn, on networks of weft's"
    parser = commands.add_parser(
        "mn",
        help=text,
        description=text[0].upper() + text[1:] + ": see docs/mininet.md.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        prefix_chars="\0",  # options are the script's, or mn's
    )
    parser.set_defaults(action=mn)
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="SCRIPT ARGUMENTS | OPTIONS")


def doctor(given: argparse.Namespace) -> int:
    """`weft doctor`: what this kernel has of what weft may need"""
    from weft.testbed.machine.doctor import as_json, probe, show

    features = probe(fresh=given.fresh)
    if given.json:
        print(json.dumps(as_json(features)))
    else:
        show(features)
    return 0


def uml(given: argparse.Namespace) -> int:
    """`weft uml`: run a command under User-Mode Linux; its exit status."""
    from weft.testbed.uml import uml

    argv = given.argv[1:] if given.argv[:1] == ["--"] else given.argv
    if not argv:
        raise ValueError("uml: no command; write weft uml -- COMMAND")
    check_costs({"syscall_ns": given.syscall_ns}, given.clock)
    virtual = (
        uml.VirtualClock(seed=given.seed, syscall_ns=given.syscall_ns)
        if given.clock == "virtual"
        else None
    )
    return uml.run(
        argv, virtual=virtual, memory_mb=given.memory_mb, core=given.core, timeout_s=given.timeout_s
    )


def mn(given: argparse.Namespace) -> int:
    """`weft mn`: Mininet's `mn` or a script of its users, on networks of weft."""
    from weft.testbed.linux.process import need_root
    from weft.testbed.mininet.mininet_names import MN, run_script

    script = given.argv[:1] and not given.argv[0].startswith("-")
    if script or not {"-h", "--help"} & set(given.argv):
        need_root()
    try:
        if script:
            run_script(Path(given.argv[0]), given.argv[1:])
        else:
            run_script(MN, given.argv)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception as error:
        if refused(error):
            raise
        traceback.print_exc(file=sys.stderr)  # the script's author needs to know where
        return 1
    return 0


def refused(error: Exception) -> bool:
    """Whether the error is ours, one line for a person, rather than the script's."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ValueError | TypeError | OSError) and "/weft/" in frames[-1].filename
