"""Parallel programs: which hosts they run on."""

from __future__ import annotations

import argparse

from weft.experiments.cli.options import Commands, add_command, add_run
from weft.topologies.core.placement import LINEAR, PLACEMENTS


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    text = "print the host of each rank, a line each, as a host file for mpirun"
    parser = add_command(commands, "hosts", hosts, text)
    text = "number of ranks; default: as many as the hosts have room for"
    parser.add_argument("-n", "--ranks", type=int, metavar="N", help=text)
    _add_placement(parser)
    add_run(parser)


def _add_placement(parser: argparse.ArgumentParser) -> None:
    text = "order of hosts: linear, random, or one of each leaf in turn; default: linear"
    parser.add_argument("--placement", choices=PLACEMENTS, default=LINEAR, help=text)
    text = "ranks on each host; default: 1"
    parser.add_argument("--per-host", type=int, metavar="K", default=1, help=text)
    text = "seed of a random placement; default: 1"
    parser.add_argument("--placement-seed", type=int, metavar="N", default=1, help=text)


def hosts(arguments: argparse.Namespace) -> int:
    """Print the host of each rank."""
    from weft.testbed.network.network import RunningNetwork
    from weft.topologies.core.placement import place_ranks

    topology = RunningNetwork.open(arguments.run).topology
    per_host = arguments.per_host
    ranks = arguments.ranks
    if ranks is None:
        ranks = topology.servers * per_host
    placed = place_ranks(
        topology,
        ranks,
        placement=arguments.placement,
        per_host=per_host,
        seed=arguments.placement_seed,
    )
    for host in placed:
        print(topology.naming.name(host))
    return 0
