"""`weft up --clock virtual`: the command runs again on a kernel of its own.

That kernel asks the host for the lines that the user types.  Its output has names of stages,
messages, and the end of its boot.  A command of a lab may write whatever it likes, so lines are
bounded, and control characters are escaped.
"""

from __future__ import annotations

import io
import math
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from weft.experiments.cli import lab_commands
from weft.experiments.cli.options import option
from weft.experiments.runner.definition import COSTS
from weft.topologies.core.grammar import printable
from weft.topologies.core.link import MOST_HOP_NS

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from weft.testbed.labs.lab_file import Lab
    from weft.testbed.mininet.net import Net
    from weft.testbed.uml.host_questions import OutsideHost

NO_RATE = "without one links would carry any load in no time"
MEMORY_MB = 3000
# handed on
OPTIONS = ("routing", "rate", "host_rate", "queue", "trim", "headers", "delay", "mtu", "packed")
MOST_LINE_BYTES = 4096
STAGE = "weft-stage: "  # begins a line that names a stage


def check(arguments: Namespace) -> None:
    """Raise ValueError unless the options about clocks go together."""
    if arguments.clock == "real":
        for name in ("pace", "seed", *COSTS):
            if getattr(arguments, name) is not None:
                raise ValueError(f"{option(name)} needs --clock virtual")
        return
    if arguments.detach is not None:
        raise ValueError("--detach needs the real clock: a virtual one ends with its command line")
    if arguments.view:
        raise ValueError("--view needs the real clock: a virtual one stands still while you look")
    if arguments.nat:
        raise ValueError(
            "--nat needs the real clock: under a virtual one there is no network outside"
        )
    if arguments.rate is None and not lab_commands.is_lab(arguments.topology):
        raise ValueError(f"--clock virtual needs --rate: {NO_RATE}")
    if arguments.pace is not None and not 0 < arguments.pace < math.inf:
        raise ValueError(f"--pace must be more than 0, got {arguments.pace:g}")
    check_costs({name: getattr(arguments, name) or 0 for name in COSTS}, arguments.clock)


def require_rates(lab: Lab) -> None:
    """Raise ValueError if a link of `lab` has no rate."""
    topology = lab.topology
    for link in range(len(topology.links)):
        if not (lab.link or link in lab.own_links or (lab.host_link and topology.level[link] == 0)):
            raise ValueError(f"--clock virtual: {topology.link_name(link)} has no rate: {NO_RATE}")


def check_lab(lab: Lab, arguments: Namespace) -> None:
    """Raise ValueError unless a kernel for virtual time can bring `lab` up and read its file."""
    require_rates(lab)
    if lab_commands.is_lab(arguments.topology):
        require_visible(arguments.topology)


def check_costs(costs: Mapping[str, int], clock: str) -> None:
    """Raise ValueError for a cost in ns that is out of range, or not of the virtual clock."""
    for name, ns in costs.items():
        if ns and clock != "virtual":
            raise ValueError(
                f"{option(name)} needs --clock virtual: in real time computing takes what it takes"
            )
        if not 0 <= ns <= MOST_HOP_NS:
            raise ValueError(f"{option(name)} must be 0 .. {MOST_HOP_NS}, got {ns}")


def require_visible(path: str) -> None:
    """Raise ValueError for a file that a kernel for virtual time hides."""
    from weft.testbed.uml import confinement

    absolute = Path(path).resolve()
    hidden = any(absolute.is_relative_to(folder) for folder in confinement.fresh())
    if hidden and not absolute.is_relative_to(Path.cwd().resolve()):
        raise ValueError(
            f"{path}: --clock virtual has a /{absolute.parts[1]} of its own: begin in "
            f"{absolute.parent}"
        )


def up(arguments: Namespace) -> int:
    """Bring the network up on a kernel for virtual time, and pass typed lines on to it."""
    from weft.testbed.uml.host_questions import ATTENDED, OutsideHost

    return boot(
        [*command("up", arguments), "--trust"],
        arguments,
        variables={ATTENDED: str(arguments.pace or "")},
        host=OutsideHost(sys.stdin),
    )


def command(verb: str, arguments: Namespace, more: Sequence[str] = ()) -> list[str]:
    """Return the command `verb` of weft with the network's options, and those called `more`."""
    from weft.testbed.runs import isolated_python

    words = [verb, arguments.topology]
    for name in (*OPTIONS, *more):
        value = getattr(arguments, name)
        if value is not None:
            words += [option(name), str(value)]
    return isolated_python.command("weft.experiments.cli.cli", words)


def boot(
    argv: Sequence[str],
    arguments: Namespace,
    *,
    memory_mb: int = MEMORY_MB,
    writable: bool = False,
    variables: Mapping[str, str] | None = None,
    host: OutsideHost | None = None,
) -> int:
    """Run `argv` on a kernel for virtual time with the seed and costs of `arguments`.

    writable: whether it may write to the current folder.
    """
    from weft.testbed.uml import uml

    with boot_progress(f"boot {arguments.topology} {arguments.routing}") as (stdout, stderr):
        return uml.run(
            argv,
            virtual=uml.VirtualClock(
                seed=1 if arguments.seed is None else arguments.seed,
                syscall_ns=arguments.syscall_ns or 0,
                hop_ns=arguments.hop_ns or 0,
            ),
            memory_mb=memory_mb,
            writable=writable,
            timeout_s=math.inf,
            env=os.environ | dict(variables or {}),
            stdout=stdout,
            stderr=stderr,
            host=host,
        )


def command_line(net: Net) -> None:
    """Run Mininet's command line until the user leaves it.

    In a process that up() started, the lines come from the host.
    """
    from weft.testbed.mininet.scripts import CommandLine
    from weft.testbed.uml.host_questions import ATTENDED, Terminal, keep_time

    if ATTENDED not in os.environ:
        CommandLine(net)
        return

    class OfHost(CommandLine):
        use_rawinput = False  # lines come from what it is given, not from sys.stdin

        def run(self) -> Any:
            keep_time(float(os.environ[ATTENDED] or 0) or None)
            return super().run()

    OfHost(net, stdin=Terminal())


class FirstOutput(io.BytesIO):
    """Sink that passes output on to `stream`, and first calls `begin`."""

    def __init__(self, stream: BinaryIO, begin: Callable[[], None]) -> None:
        super().__init__()
        self.stream = stream
        self.begin = begin

    def write(self, chunk: ReadableBuffer) -> int:
        """Pass `chunk` on."""
        self.begin()
        written = self.stream.write(chunk)
        self.stream.flush()
        return written


@contextmanager
def boot_progress(work: str) -> Iterator[tuple[FirstOutput, FirstOutput]]:
    """Report that a kernel boots, until it writes; yield the sinks of its output.

    work: what is done, as console.stages() takes it.
    """
    from weft.experiments.runner.console import stages

    with ExitStack() as booting:
        booting.enter_context(stages("a kernel for virtual time boots", work))
        sinks = [
            FirstOutput(stream, booting.close) for stream in (sys.stdout.buffer, sys.stderr.buffer)
        ]
        yield sinks[0], sinks[1]


class GuestMessages(io.BytesIO):
    """Sink for output of a kernel: names of stages, and lines for the terminal.

    last: the last line for the terminal; "" before the first.
    """

    def __init__(self, progress: Callable[[str], None]) -> None:
        super().__init__()
        self.progress = progress
        self.rest = b""
        self.last = ""

    def write(self, chunk: ReadableBuffer) -> int:
        """Pass on the lines that `chunk` completes."""
        *lines, rest = (self.rest + bytes(chunk)).split(b"\n")
        self.rest = rest[:MOST_LINE_BYTES]
        for line in lines:
            text = printable(line[:MOST_LINE_BYTES].decode(errors="replace"))
            if text.startswith(STAGE):
                self.progress(text.removeprefix(STAGE))
            else:
                self.last = text
                print(text, file=sys.stderr, flush=True)
        return len(bytes(chunk))
