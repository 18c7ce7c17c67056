"""Commands and options that several files of commands define alike."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from typing import Any

from weft.topologies.core.grammar import quoted

RESULTS = "WEFT_RESULTS"  # environment variable: the folder of results
MOST_WHOLE = (1 << 64) - 1
LONGEST_S = 1e9  # of an option; the system's clocks overflow some times above
SEED_HELP = "seed of all randomness; default: 1 (--clock virtual)"
MACHINE = {"rate": "as fast as the machine forwards", "queue": 250, "delay": 0}  # links by default
RESULTS_HELP = f"folder of results; default: ${RESULTS}, or ./results"

Commands = Any  # argparse does not export the class of what add_subparsers() returns
CommandAction = Callable[[Namespace], int]


def add_command(
    commands: Commands, name: str, action: CommandAction, summary: str, **options: Any
) -> ArgumentParser:
    """Add the command `name`; `action` carries it out and returns the exit status.

    Args:
        commands: what add_subparsers() returned.
        name: first word of the command.
        action: function of the parsed arguments.
        summary: one line, in the imperative, for the list of commands.
        options: further arguments of ArgumentParser.
    """
    description = summary[0].upper() + summary[1:] + "."
    options = {"help": summary, "description": description, **options}
    parser: ArgumentParser = commands.add_parser(name, **options)
    parser.set_defaults(action=action)
    return parser


def add_flag(parser: Any, *names: str, help: str) -> None:
    """Add an option without a value."""
    parser.add_argument(*names, action="store_true", help=help)


def some(text: str) -> str:
    """Return the value of an option; ArgumentTypeError for what an empty variable of a shell is."""
    if not text:
        raise ArgumentTypeError("must not be empty")
    return text


def seconds(text: str) -> float:
    """Return a time above 0 s, the value of an option."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < LONGEST_S:
        bounds = f"above 0 and below {LONGEST_S:g}" if value > 0 else "above 0"
        raise ArgumentTypeError(f"must be a number of seconds {bounds}, got {quoted(text)}")
    return value


def whole(least: int, most: int = MOST_WHOLE) -> Callable[[str], int]:
    """Return the function that reads a whole number from `least` to `most`, the value of an option.

    It raises ArgumentTypeError for another text.
    """

    def value(text: str) -> int:
        is_whole = re.fullmatch(r"-?[0-9]{1,999}", text)
        if not is_whole or not least <= int(text) <= most:
            is_usual = most == MOST_WHOLE and not (is_whole and int(text) > most)
            upper = "or more" if is_usual else f"to {most}"
            raise ArgumentTypeError(f"must be a whole number, {least} {upper}, got {quoted(text)}")
        return int(text)

    return value


def add_seed(parser: ArgumentParser, default: int | None, what: str) -> None:
    """Add --seed; `what` begins its help."""
    parser.add_argument("--seed", type=whole(0), metavar="N", default=default, help=what)


def address(text: str) -> str:
    """Return the address of a scheduler, the value of an option."""
    if not re.fullmatch(r"[a-z]+://\S+:\d+", text):
        raise ArgumentTypeError(f"must be like tcp://127.0.0.1:8786, got {quoted(text)}")
    return text


def option(name: str) -> str:
    """Return the option that sets the attribute `name`."""
    return f"--{name.replace('_', '-')}"


def add_run(parser: ArgumentParser, *elements: str) -> None:
    """Add --run, which names the network.

    Args:
        parser: of the command.
        elements: arguments whose node or link says which machines of a network over several carry
            the command out; the first that is set does.
    """
    parser.add_argument("--run", help="name of the run; default: $WEFT_RUN, or the only run")
    parser.set_defaults(elements=elements)


def add_trust(parser: ArgumentParser) -> None:
    add_flag(parser, "--trust", help="run the commands of a lab without asking")


def add_network(
    parser: ArgumentParser,
    *,
    otherwise: str = "",
    link: Mapping[str, Any] = MACHINE,
    simulated: bool = False,
) -> None:
    """Add the topology, its scheme and its links.

    Args:
        parser: of the command.
        otherwise: the default in place of a topology; without one it is required.
        link: defaults of links.
        simulated: True if options of links need no --rate, and there are no processes.
    """
    parser.add_argument(
        "topology",
        nargs="?" if otherwise else None,
        help="network such as dcell:n=4,k=1 (`weft list` lists families), a lab such as lab.yaml, "
        "or a file of containerlab (lab.clab.yml)" + f"; default: {otherwise}" * bool(otherwise),
    )
    parser.add_argument(
        "--routing",
        metavar="SCHEME",
        help="scheme, static (static:ipv6=1: with IPv6, too) or none; default: dr on "
        "server-centric networks, else ecmp",
    )
    _add_links(parser, link, needs_rate=not simulated)
    if simulated:
        parser.set_defaults(packed=None)
        return
    parser.add_argument(
        "--packed",
        type=int,
        metavar="P",
        help="let P processes share the daemons, 0: a process for each node; default: automatic",
    )


def _add_links(parser: ArgumentParser, link: Mapping[str, Any], *, needs_rate: bool) -> None:
    needed = "; needs --rate" * needs_rate
    parser.add_argument(
        "--rate",
        metavar="RATE",
        help=f"rate of every link, such as 20mbit; default: {link['rate']}",
    )
    parser.add_argument(
        "--host-rate",
        metavar="RATE",
        help="rate of the links between hosts and switches of a fabric; default: --rate",
    )
    parser.add_argument(
        "--queue",
        type=int,
        metavar="N",
        help=f"queue of a port in packets; default: {link['queue']}",
    )
    parser.add_argument(
        "--trim",
        type=int,
        metavar="N",
        help=f"let switches trim packets to headers above N queued packets{needed}; NDP uses 8",
    )
    parser.add_argument(
        "--headers",
        type=int,
        metavar="N",
        help="queue of headers at a port that trims; default: 1125",
    )
    parser.add_argument(
        "--mtu", type=int, metavar="BYTES", help=f"MTU of every link; default: 1500{needed}"
    )
    parser.add_argument(
        "--delay",
        metavar="TIME",
        help=f"one-way delay of every link, such as 1ms; default: {link['delay']}" + needed,
    )


def add_virtual_clock(parser: ArgumentParser) -> None:
    """Add --clock, and the virtual clock's costs and seed."""
    parser.add_argument(
        "--clock",
        choices=["real", "virtual"],
        default="real",
        help="virtual: exact, computing takes no time; needs --rate and no root; default: real",
    )
    add_costs(parser, None)
    add_seed(parser, None, SEED_HELP)


def add_results(parser: ArgumentParser) -> None:
    """Add --results, the folder of results."""
    folder = os.environ.get(RESULTS) or "results"
    parser.add_argument("--results", metavar="DIR", type=some, default=folder, help=RESULTS_HELP)


def add_json(parser: ArgumentParser) -> None:
    add_flag(parser, "--json", help="print JSON")


def add_output(
    parser: ArgumentParser, help: str, *, metavar: str = "FILE", required: bool = False
) -> None:
    """Add --output, a file or, by its `metavar`, a folder."""
    parser.add_argument("-o", "--output", metavar=metavar, type=some, required=required, help=help)


def add_costs(parser: ArgumentParser, default: int | None) -> None:
    """Add --hop-ns and --syscall-ns, processor times under the virtual clock."""
    parser.add_argument(
        "--hop-ns",
        type=int,
        metavar="N",
        default=default,
        help="processor time for each packet at each node, in ns; default: 0 (--clock virtual)",
    )
    add_syscall_cost(parser, default)


def add_syscall_cost(parser: ArgumentParser, default: int | None) -> None:
    """Add --syscall-ns."""
    parser.add_argument(
        "--syscall-ns",
        type=int,
        metavar="N",
        default=default,
        help="processor time for each system call, in ns; default: 0 (--clock virtual)",
    )
