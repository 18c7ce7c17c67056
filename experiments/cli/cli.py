"""The `weft` command: its parser and its errors.

Exit status: 0; 1 for a failure or a broken invariant; 2 for wrong input; 130 after Ctrl-C; 143
after SIGTERM.  No traceback reaches a user: an unexpected error is one line, and a file with the
rest.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

from weft.testbed.linux.process import STOPS, interrupt_behind
from weft.topologies.core.grammar import printable, quoted, unknown

DESCRIPTION = "Data-center routing on a real Linux kernel."
HELP_COLUMN = 24  # of the texts of every --help
MOST_CHARACTERS, LAST_CHARACTERS = 2000, 500  # of an error, and of its end
NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}
COMPLETING = "_ARGCOMPLETE"  # environment variable of a shell that asks for completions
COMMANDS = {  # of each module of this folder that adds some, in the order of `weft --help`
    "graph_commands": {"list", "topo", "route"},
    "own_commands": {"new", "conform"},
    "run_commands": {"run"},
    "simulate_commands": {"simulate"},
    "reproduce_commands": {"claims", "reproduce"},
    "stored_commands": {"describe", "plot", "export", "report", "compare"},
    "network_commands": {
        *("up", "exec", "fail", "restore", "degrade", "scheme", "status", "rekey", "daemon"),
        *("restart", "down", "ps", "clean"),
    },
    "cluster_commands": {"place", "machines", "agent"},
    "mpi_commands": {"hosts", "mpirun"},
    "lab_commands": {"save", "impair"},
    "check_commands": {"check"},
    "apply_commands": {"apply"},
    "watch_commands": {"log", "events", "view", "capture", "decode"},
    "machine_commands": {"doctor", "uml", "mn"},
    "completion": {"completion"},
}


class HelpText(argparse.HelpFormatter):
    """Help whose texts begin in one column for every command; positional arguments in capitals."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=HELP_COLUMN)
        self._action_max_length = HELP_COLUMN  # otherwise that of the command's longest option

    def _get_default_metavar_for_positional(self, action: argparse.Action) -> str:
        return action.dest.upper()


class HelpTextAsWritten(HelpText, argparse.RawDescriptionHelpFormatter):
    """Help that keeps the lines of its epilog."""


class Parser(argparse.ArgumentParser):
    """Raise ValueError, in one line, where argparse would print its usage and exit.

    Words after -- are the attribute `program` of a command that has [] as its default.  argparse
    would drop the -- together with the difference that it makes.
    """

    def __init__(self, *, as_written: bool = False, **options: Any) -> None:
        formatter = HelpTextAsWritten if as_written else HelpText
        super().__init__(formatter_class=formatter, **options)
        # -5mbit is a value, which its option refuses in words of its own, and no option
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.get_default("program") is None:
            return super().parse_known_args(args, namespace)
        cut = args.index("--") if "--" in args else len(args)
        arguments, others = super().parse_known_args(args[:cut], namespace)
        arguments.program = args[cut + 1 :]
        return arguments, others

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            if action.type not in NUMBERS:
                raise
            words = f"must be {NUMBERS[action.type]}, got {quoted(text)}"
            raise argparse.ArgumentError(action, words) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = "/".join(action.option_strings) or str(action.metavar or action.dest).lower()
            raise ValueError(unknown(kind, str(value), action.choices))


class Terminated(BaseException):
    """SIGTERM arrived; contexts are left in order, as after Ctrl-C."""


def parser(words: Sequence[str] = ()) -> Parser:
    """Return the parser of every command, or of the command that `words` begin with.

    The attribute `action` of its result carries out the command.
    """
    top = Parser(prog="weft", description=DESCRIPTION)
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(metavar="COMMAND", title="commands")
    # a module of commands imports what they need, which the others need not wait for
    parts = [part for part, names in COMMANDS.items() if names.intersection(words[:1])]
    for part in parts or COMMANDS:
        import_module(f"{__package__}.{part}").add_commands(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Return the exit status.  No other user can write to files that it creates.
    """
    # a shell ignores SIGINT for what it starts in the background, which stays so
    stops = [number for number in STOPS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, on_signal) for number in stops}
    umask = os.umask(0o022)
    os.umask(umask | 0o022)
    prepare_streams()
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        return carry_out(words)
    except (KeyboardInterrupt, Terminated) as stop:
        return stopped(stop)
    except BrokenPipeError:  # the reader of our output ended, as head does
        discard(sys.stdout)
        return 141
    except Exception as error:
        signalled = interrupt_behind(error)
        return stopped(signalled) if signalled else report(error, words)
    except SystemExit:  # of --help
        raise
    except BaseException as error:  # of a package, such as the outcome of a test
        return explain(error)
    finally:
        os.umask(umask)
        for number, handler in previous.items():
            signal.signal(number, handler)


def prepare_streams() -> None:
    """Let output take every character, and vanish where the caller has closed the stream."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of ASCII gets \xb1 in place of ±
            stream.reconfigure(errors="backslashreplace")


def stopped(stop: BaseException) -> int:
    """Print that a signal ended the command; return the exit status."""
    if isinstance(stop, Terminated):
        return complain("terminated", status=143)
    return complain("interrupted", status=130)


def report(error: Exception, words: Sequence[str]) -> int:
    """Print one line about `error` of the command line `words`; return the exit status."""
    if isinstance(error, ValueError):
        return complain(error, status=2)
    if isinstance(error, OSError):
        if error.filename is None or not error.strerror:
            return complain(error, status=1)
        status = 2 if mentions(words, str(error.filename)) else 1
        return complain(f"{error.filename}: {error.strerror}", status=status)
    if isinstance(error, ModuleNotFoundError):
        from weft.testbed.machine.installation import missing

        if remedy := missing(error):
            return complain(remedy, status=2)
    return explain(error)


def carry_out(argv: list[str]) -> int:
    """Carry out the command line `argv` and return its exit status; errors go to main()."""
    from weft.experiments.cli.cluster_commands import forwarded

    completing = COMPLETING in os.environ
    top = parser(os.environ.get("COMP_LINE", "").split()[1:] if completing else argv)
    if completing:
        from weft.experiments.cli.completion import complete

        complete(top)
    arguments, others = top.parse_known_args(argv)
    if others:  # parse_args() would point to the help of all commands
        raise ValueError(f"unrecognized arguments: {' '.join(others)} (see weft {argv[0]} --help)")
    if arguments.version:
        from weft.testbed.machine.installation import FOLDER, version

        print(f"weft {version()} ({FOLDER})")
        return 0
    if "action" not in arguments:
        top.print_help()
        return 2
    if forwarded(arguments, argv):
        return 0
    status: int = arguments.action(arguments)
    sys.stdout.flush()  # a broken pipe raises here, not after main()
    return status


def on_signal(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT and SIGTERM: raise, unless the command cleans up after such a signal.

    A second one would break the clean-up off, and leave what it had yet to remove.
    """
    error = sys.exc_info()[1]
    while error:
        if isinstance(error, KeyboardInterrupt | Terminated):
            return
        error = error.__context__
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def explain(error: BaseException) -> int:
    """Print one line about an unexpected error and write its traceback to a file; return 1."""
    rest = "no temporary folder takes its traceback"
    with suppress(OSError):
        with tempfile.NamedTemporaryFile("w", prefix="weft-", suffix=".txt", delete=False) as file:
            traceback.print_exception(error, file=file)
        rest = f"all of it in {file.name}"
    place = place_in_package(error)
    return complain(f"{place}{type(error).__name__}: {one_line(error)} ({rest})", status=1)


def place_in_package(error: BaseException) -> str:
    """Return "PACKAGE, FILE:LINE: " of the last call in code of another package; "" without one."""
    from importlib.metadata import entry_points

    groups = ("weft.schemes", "weft.topologies", "weft.experiments")
    entries = [entry for group in groups for entry in entry_points(group=group)]
    packages = {re.split("[.:]", entry.value)[0] for entry in entries}
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in packages:
            place = f"{package}, {frame.f_code.co_filename}:{line}: "
    return place


def mentions(words: Sequence[str], path: str) -> bool:
    """Return True if the command line names `path`, or a folder that it lies in."""
    named = {part for word in words for part in (word, word.rpartition("=")[2]) if part}
    return any(Path(path).is_relative_to(part) for part in named)


def complain(message: object, *, status: int) -> int:
    """Print one line on standard error; return `status`, also if that line cannot be written."""
    try:
        print(f"weft: {one_line(message)}", file=sys.stderr, flush=True)
    except OSError:  # such as a full disk; Python would report what is left at its end
        discard(sys.stderr)
    return status


def discard(stream: TextIO) -> None:
    """Let what `stream` holds and what follows vanish."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def one_line(message: object) -> str:
    """Return `message` as one line: cut where it is long, with escapes for control characters.

    A value that came with a command or a file may be of any length, and command a terminal.
    """
    text = " ".join(str(message).split())
    if len(text) > MOST_CHARACTERS:
        text = f"{text[: MOST_CHARACTERS - LAST_CHARACTERS]} ... {text[-LAST_CHARACTERS:]}"
    return printable(text)


if __name__ == "__main__":
    sys.exit(main())
