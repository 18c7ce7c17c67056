"""The `weft` command: its parser, and what becomes of errors.

Exit status: 0; 1 if something failed or a run did not give what it must; 2 for wrong input; 130
after Ctrl-C.  No traceback reaches a user: what is not foreseen is one line, and a file with the
rest.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

DESCRIPTION = "Data-center routing on a real Linux kernel."
COMPLETING = "_ARGCOMPLETE"  # in the environment, where a shell asks for completions
# How what weft can do without is got; what is not named here is installed by its own name.
PACKAGES = {
    "mininet": "Mininet, which comes from the system: `apt-get install mininet`, and `python3 -m "
    "venv "
    "--system-site-packages` for an environment that sees it; graphs and the simulator do without",
    "distributed": "dask.distributed: pip install 'weft-testbed[cluster]'",
    "pyarrow": "pyarrow: pip install 'weft-testbed[parquet]'",
    "scapy": "scapy: pip install 'weft-testbed[packets]'",
}


class Parser(argparse.ArgumentParser):
    """Raises ValueError, in one line, where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")


class Terminated(BaseException):
    """Somebody asked this process to end; contexts are left in order, as after Ctrl-C."""


def parser() -> Parser:
    """The parser of every command; `action` of what it returns carries the command out."""
    from weft.experiments.cli import (
        capture_commands,
        compare_commands,
        completion,
        graph_commands,
        lab_commands,
        machine_commands,
        network_commands,
        run_commands,
        stored_commands,
        watch_commands,
    )
    from weft.experiments.cli import view_commands as view_commands

    top = Parser(prog="weft", description=DESCRIPTION)
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(metavar="COMMAND", title="commands")
    rooms = (
        graph_commands,
        run_commands,
        stored_commands,
        compare_commands,
        network_commands,
        lab_commands,
    )
    for part in (
        *rooms,
        watch_commands,
        view_commands,
        capture_commands,
        machine_commands,
        completion,
    ):
        part.add_commands(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status.  No file or folder that it makes is writable by
    other users."""
    previous = signal.signal(signal.SIGTERM, terminate)
    umask = os.umask(0o022)
    os.umask(umask | 0o022)
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        return carry_out(words)
    except ValueError as error:
        return complain(error, status=2)
    except KeyboardInterrupt:
        return complain("interrupted", status=130)
    except Terminated:
        return complain("terminated", status=143)
    except BrokenPipeError:  # the reader of our output went away, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        named = error.filename is not None and error.strerror
        what = f"{error.filename}: {error.strerror}" if named else error
        return complain(what, status=2 if named and mentions(words, str(error.filename)) else 1)
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        if name == "weft":  # a file of ours is missing
            return explain(error)
        return complain(
            f"this needs {PACKAGES.get(name, f'the Python package {name}: pip install {name}')}",
            status=2,
        )
    except Exception as error:
        return explain(error)
    finally:
        os.umask(umask)
        signal.signal(signal.SIGTERM, previous)


def carry_out(argv: list[str]) -> int:
    """Do what the command line `argv` asks for; its exit status.  Raises what main() tells in one
    line."""
    top = parser()
    if COMPLETING in os.environ:
        from weft.experiments.cli.completion import complete

        complete(top)
    given = top.parse_args(argv)
    if given.version:
        print(f"weft {version()}")
        return 0
    if "action" not in given:
        top.print_help()
        return 2
    status: int = given.action(given)
    sys.stdout.flush()  # a broken pipe is noticed here, not after main()
    return status


def version() -> str:
    """As the installed package, or else the work tree, says."""
    import tomllib
    from importlib import metadata

    try:
        return metadata.version("weft-testbed")
    except metadata.PackageNotFoundError:
        project = Path(__file__).resolve().parents[2] / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


def terminate(number: int, frame: FrameType | None) -> NoReturn:
    """The handler of SIGTERM: end as after Ctrl-C, with nothing left behind."""
    raise Terminated


def explain(error: Exception) -> int:
    """One line about what nobody has foreseen, and a file with the rest; returns 1."""
    with tempfile.NamedTemporaryFile("w", prefix="weft-", suffix=".txt", delete=False) as file:
        traceback.print_exc(file=file)
    return complain(
        f"{type(error).__name__}: {one_line(error)} (all of it in {file.name})", status=1
    )


def mentions(words: Sequence[str], path: str) -> bool:
    """Whether a word of the command line is `path`, or gives it to an option: then it is the user's
    to correct."""
    return any(word == path or word.endswith(f"={path}") for word in words)


def complain(what: object, *, status: int) -> int:
    """One line on standard error; returns `status`."""
    print(f"weft: {one_line(what)}", file=sys.stderr)
    return status


def one_line(what: object) -> str:
    """`what` as text without line breaks."""
    return " ".join(str(what).split())


if __name__ == "__main__":
    sys.exit(main())
