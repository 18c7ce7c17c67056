"""Commands on labs, networks as one file: what `weft up` is asked for, save, and impair."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.testbed.labs.lab_file import Lab
    from weft.topologies.core.link import LinkSpec

SUFFIXES = (".yaml", ".yml")
IN_THE_FILE = ("rate", "host_rate", "queue", "trim", "headers", "delay", "mtu")


def add_commands(commands: Any) -> None:
    """Add this file's commands to the parser."""
    text = "write a running network as a lab, YAML that weft up takes"
    parser = commands.add_parser(
        "save", help=text, description=text[0].upper() + text[1:] + ": see docs/labs.md."
    )
    parser.set_defaults(action=save)
    parser.add_argument("--run", help="which run; default: $WEFT_RUN, or the only one")

    text = "let a link lose or delay packets, or carry less, while they flow"
    parser = commands.add_parser(
        "impair", help=text, description=text[0].upper() + text[1:] + ", both ways."
    )
    parser.set_defaults(action=impair)
    parser.add_argument(
        "link",
        metavar="LINK",
        help="by its two ends, such as h0-w0; s1-s2:2 is the second of several",
    )
    parser.add_argument(
        "--loss", metavar="PERCENT", help="of packets, each on its own, such as 0.5; 0 for none"
    )
    parser.add_argument("--delay", metavar="TIME", help="one way, such as 2ms; needs netem")
    parser.add_argument(
        "--jitter", metavar="TIME", help="of the delay, give or take, such as 1ms; needs netem"
    )
    parser.add_argument("--rate", help="such as 2mbit")
    parser.add_argument("--queue", type=int, help="packets that wait at each end")
    parser.add_argument("--clear", action="store_true", help="as it was when the network came up")
    parser.add_argument("--run", help="which run; default: $WEFT_RUN, or the only one")


def is_lab(topology: str) -> bool:
    """Whether what `weft up` is asked for is a lab's file, and not the name of a network."""
    return topology.endswith(SUFFIXES)


def lab_from(given: argparse.Namespace) -> Lab:
    """What `weft up` is asked for: a lab's file, or a network and options; ValueError if these do
    not go together."""
    from weft.testbed.labs.lab_file import Lab, parse, with_mtu
    from weft.topologies import build

    if not is_lab(given.topology):
        link, host_link = links_from(given)
        topology = build(given.topology)
        lab = Lab(topology, given.routing, link, host_link, topology.own_links, given.packed)
        return lab if given.mtu is None else with_mtu(lab, given.mtu)
    for name in IN_THE_FILE:
        if getattr(given, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')}: {given.topology} says what links carry")
    try:
        text = Path(given.topology).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{given.topology}: {getattr(error, 'strerror', None) or 'it is not text in UTF-8'}"
        ) from None
    lab = parse(text, name=given.topology)
    packed = lab.packed if given.packed is None else given.packed
    return replace(lab, scheme=given.routing or lab.scheme, packed=packed)


def links_from(given: argparse.Namespace) -> tuple[LinkSpec | None, LinkSpec | None]:
    """What --rate, --queue, --delay, --trim and --headers say of all links, and --host-rate of host
    links.

    ValueError if they do not go together.
    """
    from weft.topologies.core.link import LinkSpec, delay_us, rate_bps

    if given.rate is None:
        for name in ("host_rate", "queue", "delay", "trim", "headers", "mtu"):
            if getattr(given, name) is not None:
                option = name.replace("_", "-")
                raise ValueError(
                    f"--{option} needs --rate: without it links are as fast as the machine can be"
                )
        return None, None
    queue = 250 if given.queue is None else given.queue
    delay = 0 if given.delay is None else delay_us(given.delay)
    if given.headers is not None and not given.trim:
        raise ValueError(
            "--headers needs --trim: where nothing is trimmed, headers have no queue of their own"
        )
    trimming = {"trim_packets": given.trim, "header_packets": given.headers}
    link = LinkSpec(
        rate_bps=rate_bps(given.rate),
        queue_packets=queue,
        delay_us=delay,
        **{key: value for key, value in trimming.items() if value is not None},
    )
    return link, None if given.host_rate is None else replace(
        link, rate_bps=rate_bps(given.host_rate)
    )


def save(given: argparse.Namespace) -> int:
    """`weft save`: print the lab file of a network that is up."""
    from weft.testbed.labs.lab_file import written
    from weft.testbed.labs.running_lab import lab_of
    from weft.testbed.network.network import RunningNetwork

    sys.stdout.write(written(lab_of(RunningNetwork.open(given.run))))
    return 0


def impair(given: argparse.Namespace) -> int:
    """`weft impair`: change what a link carries, loses and delays, or tell it; ValueError for
    options that exclude each other."""
    from weft.testbed.network import impair as impairments
    from weft.testbed.network.network import RunningNetwork

    words = {name: getattr(given, name) for name in ("loss", "delay", "jitter", "rate", "queue")}
    if given.clear != all(value is None for value in words.values()):
        raise ValueError(
            "impair: either --clear, or some of --loss, --delay, --jitter, --rate and --queue"
        )
    if given.clear:
        impairments.undo(RunningNetwork.open(given.run), given.link)
        return 0
    change = impairments.asked(**words)
    impairments.impair(RunningNetwork.open(given.run), given.link, change)
    return 0
