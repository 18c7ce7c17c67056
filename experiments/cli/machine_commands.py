"""The commands doctor, uml and mn: the machine, its kernel, and Mininet's programs."""

from __future__ import annotations

import json
import sys
import traceback
from argparse import REMAINDER, Namespace
from pathlib import Path

from weft.experiments.cli.options import (
    SEED_HELP,
    Commands,
    add_command,
    add_flag,
    add_json,
    add_seed,
    add_syscall_cost,
    seconds,
    whole,
)
from weft.experiments.cli.virtual_up import check_costs
from weft.testbed.linux.process import need_root

EPILOG = """\
weft mn SCRIPT [ARGUMENTS]        run a Mininet script unchanged
weft mn --topo tree,2 [OPTIONS]   run Debian's mn; weft mn -h prints its options
"""


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    parser = add_command(
        commands,
        "doctor",
        doctor,
        "show the features of this kernel, or compare a running network with its plan",
    )
    parser.add_argument(
        "--run",
        metavar="NAME",
        help="compare everything in the kernel of this run with its plan, read by pyroute2",
    )
    add_json(parser)
    add_flag(parser, "--fresh", help="probe again, ignore earlier results")
    _add_uml(commands)
    add_command(
        commands,
        "mn",
        mn,
        "run a Mininet script, or Mininet's mn, on weft's networks (docs/mininet.md)",
        epilog=EPILOG,
        as_written=True,
        add_help=False,
        prefix_chars="\0",  # options belong to the script or to mn
    ).add_argument("argv", nargs=REMAINDER, metavar="SCRIPT ARGUMENTS | OPTIONS")


def _add_uml(commands: Commands) -> None:
    parser = add_command(
        commands, "uml", uml, "run a command under User-Mode Linux: a full kernel, without root"
    )
    parser.add_argument(
        "--clock",
        choices=["real", "virtual"],
        default="real",
        help="virtual: computing takes no time; default: real",
    )
    add_seed(parser, 1, SEED_HELP)
    add_syscall_cost(parser, 0)
    parser.add_argument(
        "--core", type=int, metavar="N", help="processor core to run on; default: any"
    )
    parser.add_argument(
        "--memory-mb",
        type=whole(64, 1 << 20),
        default=1500,
        metavar="MB",
        help="memory of the kernel; default: 1500",
    )
    parser.add_argument(
        "--timeout-s",
        type=seconds,
        default=600.0,
        metavar="S",
        help="end the command after S seconds of wall time; default: 600",
    )
    parser.add_argument("argv", nargs=REMAINDER, metavar="-- COMMAND")


def doctor(arguments: Namespace) -> int:
    """Show which features weft needs and this kernel has, or how a run differs from its plan."""
    from weft.testbed.machine.doctor import as_json, probe, show

    if arguments.run:
        return _compare(arguments.run, as_json=arguments.json)
    features = probe(fresh=arguments.fresh)
    if arguments.json:
        print(json.dumps(as_json(features)))
    else:
        show(features)
    return 0


def _compare(name: str, *, as_json: bool) -> int:
    """Print how the run called `name` differs from its plan; return 1 if it does."""
    from weft.testbed.network import read_back
    from weft.testbed.network.network import RunningNetwork

    network = RunningNetwork.open(name)
    objects = sum(map(len, read_back.expected_objects(network).values()))
    lines = list(read_back.differences(network))
    if as_json:
        print(json.dumps({"run": name, "objects": objects, "differences": lines}))
    else:
        print(*lines, sep="\n", end="\n" * bool(lines))
        print(f"{name}: {objects - len(lines)} of {objects} objects in the kernel are as planned")
    return 1 if lines else 0


def uml(arguments: Namespace) -> int:
    """Run a command under User-Mode Linux and return its exit status."""
    from weft.testbed.uml import uml

    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not argv:
        raise ValueError("uml: no command; write weft uml -- COMMAND")
    check_costs({"syscall_ns": arguments.syscall_ns}, arguments.clock)
    virtual = None
    if arguments.clock == "virtual":
        virtual = uml.VirtualClock(seed=arguments.seed, syscall_ns=arguments.syscall_ns)
    return uml.run(
        argv,
        virtual=virtual,
        memory_mb=arguments.memory_mb,
        core=arguments.core,
        timeout_s=arguments.timeout_s,
        writable=True,
    )


def mn(arguments: Namespace) -> int:
    """Run Mininet's `mn` or a user's script on networks of weft."""
    from weft.testbed.mininet.scripts import MN, run_script

    argv = arguments.argv
    script = argv[:1] and not argv[0].startswith("-")
    if script or not {"-h", "--help"} & set(argv):
        need_root()
    try:
        if script:
            run_script(Path(argv[0]), argv[1:])
        else:
            run_script(MN, argv)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception as error:
        if is_refusal(error):
            raise
        traceback.print_exc(file=sys.stderr)  # for the script's author
        return 1
    return 0


def is_refusal(error: Exception) -> bool:
    """Return True if weft raised `error`, in one line for a user, and not the script."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ValueError | TypeError | OSError) and "/weft/" in frames[-1].filename
