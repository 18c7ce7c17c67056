"""Commands on labs, networks as one file: save and impair, and the network that `weft up` reads."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.options import (
    Commands,
    add_command,
    add_flag,
    add_network,
    add_output,
    add_run,
    option,
)
from weft.testbed.labs.text_file import text_of
from weft.testbed.runs.private_files import owned_by_caller, write_whole
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, delay_us, rate_bps
from weft.topologies.core.topology import limited

if TYPE_CHECKING:
    from weft.testbed.labs.lab_file import Lab
    from weft.testbed.network.network import RunningNetwork
    from weft.topologies.core.topology import Topology

SUFFIXES = (".yaml", ".yml")
LINK_OPTIONS = ("rate", "host_rate", "queue", "trim", "headers", "delay", "mtu")
IMPAIRMENTS = ("loss", "delay", "jitter", "rate", "queue")


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    parser = add_command(
        commands,
        "save",
        save,
        "print a network as a lab, YAML for weft up, or write files of containerlab (docs/labs.md)",
    )
    add_network(parser, otherwise="a running network")
    parser.add_argument(
        "--format",
        choices=["lab", "clab"],
        default="lab",
        help="lab, or clab: NAME.clab.yml of containerlab with FRR; default: lab",
    )
    add_output(parser, "write this file, or with --format clab a new folder; default: print it")
    add_run(parser)

    parser = add_command(
        commands,
        "impair",
        impair,
        "let a link lose or delay packets, or change its rate, in both directions",
    )
    parser.add_argument(
        "link",
        metavar="LINK",
        help="link by its two ends, such as h0-w0; s1-s2:2 is the second of parallel links",
    )
    parser.add_argument(
        "--loss",
        metavar="PERCENT",
        help="lose this share of packets independently, such as 0.5; 0 for none",
    )
    parser.add_argument("--delay", metavar="TIME", help="one-way delay, such as 2ms; needs netem")
    parser.add_argument(
        "--jitter", metavar="TIME", help="vary the delay by up to this, such as 1ms; needs netem"
    )
    parser.add_argument("--rate", metavar="RATE", help="rate such as 2mbit")
    parser.add_argument("--queue", type=int, metavar="N", help="queue at each end in packets")
    add_flag(parser, "--clear", help="restore the planned link")
    add_run(parser, "link")


def is_lab(topology: str) -> bool:
    """Return True if the argument of `weft up` is a lab's file."""
    return topology.endswith(SUFFIXES)


def kernel_lab_from(arguments: Namespace) -> Lab:
    """Return lab_from(), or ValueError for a network that is too large for a run on the kernel."""
    from weft.testbed.plan.network_plan import require_indexes

    with limited(require_indexes):
        return lab_from(arguments)


def lab_from(arguments: Namespace, usual: Mapping[str, Any] = MappingProxyType({})) -> Lab:
    """Return the network of `weft up`: a lab's file, or a topology and options.

    Args:
        arguments: of the command line.
        usual: options of links that are not given.

    Raises:
        ValueError: the file cannot be read, or options conflict.
    """
    from weft.testbed.labs.containerlab_file import is_containerlab
    from weft.testbed.labs.lab_file import Lab, parse, with_mtu

    path = arguments.topology
    if not is_lab(path) or is_containerlab(path):
        options = {key: value for key, value in vars(arguments).items() if value is not None}
        link, host_link = links_from(Namespace(**{**vars(arguments), **usual, **options}))
        topology = _of_containerlab(path) if is_containerlab(path) else build(path)
        own_links = topology.own_links
        lab = Lab(topology, arguments.routing, link, host_link, own_links, arguments.packed)
        return lab if arguments.mtu is None else with_mtu(lab, arguments.mtu)
    for name in LINK_OPTIONS:
        if getattr(arguments, name) is not None:
            raise ValueError(f"{option(name)}: {path} already specifies its links")
    lab = parse(text_of(path), name=path)
    packed = lab.packed if arguments.packed is None else arguments.packed
    return replace(lab, scheme=arguments.routing or lab.scheme, packed=packed)


def _of_containerlab(path: str) -> Topology:
    """Return the network in a file of containerlab; say that it is only the network."""
    from weft.testbed.labs.lab_file import parse

    topology = parse(text_of(path), name=path).topology
    left_out = "images, configuration and commands of its nodes are left out: weft routes"
    print(f"{path}: {left_out}", file=sys.stderr)
    return topology


def require_trust(lab: Lab, *, trust: bool) -> None:
    """Raise ValueError if the lab runs commands and the user neither trusts it nor agrees now."""
    lines = lab.command_lines()
    if not lines or trust:
        return
    if sys.stdin.isatty():
        print("This lab runs commands as root:", *map(repr, lines), sep="\n  ", file=sys.stderr)
        print("Run them? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    count = f"{len(lines)} command{'s' * (len(lines) > 1)}"
    raise ValueError(f"this lab runs {count} as root: read the file, then add --trust")


def checked_scheme(lab: Lab, *, virtual: bool = False) -> str:
    """Return the scheme of `lab`; ValueError if it cannot route the network.

    virtual: the network will have a virtual clock.
    """
    from weft.daemons.core.registry import usual
    from weft.testbed.plan.plane_selection import check_scheme

    scheme = usual(lab.topology) if lab.scheme is None else lab.scheme
    check_scheme(
        lab.topology,
        scheme,
        lab.link,
        host_link=lab.host_link,
        own_links=lab.own_links,
        virtual=virtual,
    )
    return scheme


def create(lab: Lab, scheme: str, progress: Callable[[str], None]) -> RunningNetwork:
    """Bring the network of `lab` up; `progress` is called with each stage as it begins."""
    from weft.testbed.network.network import RunningNetwork

    return RunningNetwork.create(lab.topology, scheme=scheme, progress=progress, **settings(lab))


def settings(lab: Lab) -> dict[str, Any]:
    """Return the arguments of RunningNetwork.create() that `lab` gives, but topology and scheme."""
    names = ("link", "host_link", "own_links", "packed")
    return {name: getattr(lab, name) for name in names}


@contextmanager
def brought_up(lab: Lab, scheme: str) -> Iterator[RunningNetwork]:
    """Bring the network of `lab` up, and take it down at the end of a `with`."""
    from weft.experiments.runner.console import stages

    with stages("bringing up", f"up {lab.topology.spec} {scheme}") as progress:
        network = create(lab, scheme, progress)
    try:
        yield network
    finally:
        network.down()


def links_from(arguments: Namespace) -> tuple[LinkSpec | None, LinkSpec | None]:
    """Return the specification of all links, and that of host links if it differs.

    Raises:
        ValueError: options conflict.
    """

    if arguments.rate is None:
        for name in LINK_OPTIONS:
            if getattr(arguments, name) is not None:
                cause = "without it links are as fast as the machine can be"
                raise ValueError(f"{option(name)} needs --rate: {cause}")
        return None, None
    if arguments.headers is not None and not arguments.trim:
        raise ValueError("--headers needs --trim: only a port that trims queues headers")
    trimming = {"trim_packets": arguments.trim, "header_packets": arguments.headers}
    link = LinkSpec(
        rate_bps=rate_bps(arguments.rate),
        queue_packets=250 if arguments.queue is None else arguments.queue,
        delay_us=0 if arguments.delay is None else delay_us(arguments.delay),
        **{key: value for key, value in trimming.items() if value is not None},
    )
    if arguments.host_rate is None:
        return link, None
    return link, replace(link, rate_bps=rate_bps(arguments.host_rate))


def save(arguments: Namespace) -> int:
    """Print the lab file of a network, or write the files of containerlab."""
    from weft.testbed.labs.lab_file import written

    if arguments.format == "clab" and not arguments.output:
        raise ValueError("--format clab needs -o FOLDER: FRR has files of its own")
    lab, name = _saved(arguments)
    if arguments.format == "clab":
        return _write_containerlab(lab, name, Path(arguments.output))
    text = written(lab)
    if not arguments.output:
        sys.stdout.write(text)
        return 0
    write_whole(Path(arguments.output), text.encode())
    return 0


def _saved(arguments: Namespace) -> tuple[Lab, str]:
    """Return the network that the command line names, or the running one, and a name for it."""
    from weft.testbed.labs.running_lab import lab_of
    from weft.testbed.network.network import RunningNetwork

    if arguments.topology is not None:
        lab = kernel_lab_from(arguments)
        stem = Path(arguments.topology).name.partition(".")[0]
        name = stem if is_lab(arguments.topology) else lab.topology.family
        return replace(lab, scheme=checked_scheme(lab)), name
    for option_name in ("routing", "packed", *LINK_OPTIONS):
        if getattr(arguments, option_name) is not None:
            raise ValueError(f"{option(option_name)} needs a topology: a run has its own values")
    network = RunningNetwork.open(arguments.run)
    return lab_of(network), network.run.id


def _write_containerlab(lab: Lab, name: str, folder: Path) -> int:
    """Write the files of containerlab into a new folder, and print the name of the first."""
    from weft.testbed.labs import containerlab_export

    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder}: it exists and is not empty; -o names a new folder")
    texts = containerlab_export.files(lab, name)
    with owned_by_caller(folder):
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    print(folder / next(iter(texts)))
    return 0


def impair(arguments: Namespace) -> int:
    """Change loss, delay, rate or queue of a link, or restore it."""
    from weft.testbed.network import impair as impairments
    from weft.testbed.network.network import RunningNetwork

    values = {name: getattr(arguments, name) for name in IMPAIRMENTS}
    if arguments.clear != all(value is None for value in values.values()):
        options = "--loss, --delay, --jitter, --rate and --queue"
        raise ValueError(f"impair: either --clear, or some of {options}")
    if arguments.clear:
        impairments.undo(RunningNetwork.open(arguments.run), arguments.link)
        return 0
    change = impairments.impairment(**values)
    impairments.impair(RunningNetwork.open(arguments.run), arguments.link, change)
    return 0
