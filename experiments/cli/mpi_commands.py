"""Parallel programs: which hosts they run on, and how they start."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from weft.experiments.cli.options import (
    Commands,
    add_command,
    add_flag,
    add_json,
    add_network,
    add_run,
    add_virtual_clock,
    seconds,
    whole,
)
from weft.testbed.linux.process import need_root
from weft.topologies.core.placement import LINEAR, PLACEMENTS, place_ranks

if TYPE_CHECKING:
    from weft.testbed.traffic.mpi import MpiJob
    from weft.topologies.core.topology import Topology

# A rank polls.  With a cost for each call it polls as often as on a fast machine, and a run takes a
# quarter of the wall time (docs/mpi.md).
SYSCALL_NS = 5000
MEMORY_OF_RANK_MB = 100
OPTIONS = ("ranks", "placement", "per_host", "placement_seed", "timeout_s")  # handed on


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    parser = add_command(
        commands,
        "hosts",
        hosts,
        "print the host of each rank, a line each, as a host file for mpirun",
    )
    _add_placement(parser)
    add_json(parser)
    add_run(parser)
    _add_mpirun(commands)


def _add_mpirun(commands: Commands) -> None:
    parser = add_command(
        commands,
        "mpirun",
        mpirun,
        "bring a network up, run a program of Open MPI or MPICH over its hosts, take it down",
    )
    add_network(parser)
    add_virtual_clock(parser)
    _add_placement(parser)
    add_flag(parser, "--tag-output", help="begin each line of output with its rank")
    parser.add_argument(
        "--timeout-s",
        type=seconds,
        metavar="S",
        help="end the program after S seconds of the network's clock",
    )
    parser.usage = "weft mpirun TOPOLOGY [OPTIONS] -- PROGRAM [ARGUMENTS]"
    parser.set_defaults(program=[])
    # options of `weft up` that this command lacks
    parser.set_defaults(detach=None, view=False, nat=False, dry_run=False, pace=None, json=False)


def _add_placement(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--ranks",
        type=int,
        metavar="N",
        help="number of ranks; default: as many as fit on the hosts",
    )
    parser.add_argument(
        "--placement",
        choices=PLACEMENTS,
        default=LINEAR,
        help="order of hosts: linear, random, or one of each leaf in turn; default: linear",
    )
    parser.add_argument(
        "--per-host", type=int, metavar="K", default=1, help="ranks on each host; default: 1"
    )
    parser.add_argument(
        "--placement-seed",
        type=whole(0),
        metavar="N",
        default=1,
        help="seed of a random placement; default: 1",
    )


def hosts(arguments: Namespace) -> int:
    """Print the host of each rank."""
    from weft.experiments.cli.cluster_commands import spread
    from weft.testbed.network.network import RunningNetwork

    network = spread(arguments.run) or RunningNetwork.open(arguments.run)
    topology = network.topology
    names = [topology.naming.name(host) for host in _placed(topology, arguments)]
    print(json.dumps(names) if arguments.json else "\n".join(names))
    return 0


def _placed(topology: Topology, arguments: Namespace) -> list[int]:
    """Return the host of each rank."""
    per_host = arguments.per_host
    ranks = arguments.ranks
    if ranks is None:
        ranks = topology.servers * per_host
    return place_ranks(
        topology,
        ranks,
        placement=arguments.placement,
        per_host=per_host,
        seed=arguments.placement_seed,
    )


def mpirun(arguments: Namespace) -> int:
    """Run a program over a network's hosts; return the status of the first rank that failed."""
    from weft.experiments.cli import lab_commands, network_commands, virtual_up
    from weft.testbed.traffic import mpi

    if not arguments.program:
        raise ValueError("mpirun: no program; write weft mpirun TOPOLOGY -n 8 -- PROGRAM")
    virtual_up.check(arguments)
    lab = lab_commands.kernel_lab_from(arguments)
    routing = network_commands.checked_scheme(lab, arguments)
    hosts = _placed(lab.topology, arguments)
    path = mpi.require_program(arguments.program[0])
    mpi.launcher_of(path)
    job = mpi.MpiJob(
        argv=arguments.program,
        hosts=hosts,
        timeout_s=arguments.timeout_s,
        tagged=arguments.tag_output,
    )
    if arguments.clock == "virtual":
        virtual_up.check_lab(lab, arguments)
        virtual_up.require_visible(path)
        return _mpirun_virtual(arguments, job)
    need_root()
    with lab_commands.brought_up(lab, routing) as network:
        outcome = mpi.run(network, job)
    if outcome.fidelity:
        print(f"weft: {outcome.fidelity.line}", file=sys.stderr)
    if outcome.failure:
        print(f"weft: mpirun: {outcome.failure}", file=sys.stderr)
    return outcome.status


def _mpirun_virtual(arguments: Namespace, job: MpiJob) -> int:
    """Run this command on a kernel for virtual time."""
    from weft.experiments.cli import virtual_up
    from weft.testbed.traffic import mpi

    cost_ns = SYSCALL_NS if arguments.syscall_ns is None else arguments.syscall_ns
    arguments.syscall_ns = 0  # until the program begins
    variables = [f"{name}={value}" for name, value in mpi.settings().items()]
    command = virtual_up.command("mpirun", arguments, OPTIONS)
    flags = ["--tag-output"] if arguments.tag_output else []
    return virtual_up.boot(
        ["env", *variables, *command, *flags, "--", *job.argv],
        arguments,
        memory_mb=virtual_up.MEMORY_MB + MEMORY_OF_RANK_MB * len(job.hosts),
        writable=True,
        variables={mpi.SYSCALL_NS: str(cost_ns)},
    )
