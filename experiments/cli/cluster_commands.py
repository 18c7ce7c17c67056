"""Commands on networks over several machines: place, and what others do on each machine.

A run over several machines has a part on each, a run there called NAME-1, NAME-2 and so on.
Commands on a node or a link run again on the machines that have it, with the part as their run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from weft.experiments.cli.options import Commands, add_command, add_json, add_network, add_output
from weft.topologies.core.grammar import unknown

if TYPE_CHECKING:
    from weft.testbed.cluster.machines import Cluster
    from weft.testbed.cluster.spread_run import SpreadRun
    from weft.testbed.labs.lab_file import Lab
    from weft.testbed.plan.part import PlanPart

FILE_HERE = "machines.yaml"
MACHINES_HELP = "number of machines, or a file of machines (docs/machines.md)"


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    parser = add_command(
        commands,
        "place",
        place,
        "print where the nodes of a network would be on several machines; create nothing",
    )
    add_network(parser)
    parser.add_argument("--machines", required=True, metavar="N|FILE", help=MACHINES_HELP)
    add_json(parser)
    parser = add_command(
        commands,
        "machines",
        machines,
        "make machines of namespaces on this computer while a command runs (docs/machines.md)",
    )
    parser.add_argument("count", type=int, metavar="N", help="number of machines")
    add_output(parser, f"file that lists them until the command ends; default: {FILE_HERE}")
    parser.usage = "weft machines N [-o FILE] [-- COMMAND]"
    parser.set_defaults(program=[])
    parser = add_command(
        commands,
        "agent",
        agent,
        "hold a part of a network over several machines; weft up --machines starts it",
    )
    parser.add_argument("--run", metavar="PART", help="measure on this part, for a script")


def agent(arguments: Namespace) -> int:
    """Be the agent of this machine until its controller ends, or measure on the part --run."""
    if arguments.run:
        from weft.testbed.cluster.measures import serve

        serve(arguments.run)
    else:
        from weft.testbed.cluster import agent

        agent.serve()
    return 0


def machines(arguments: Namespace) -> int:
    """Run a command, or a shell, while there are machines; return its status."""
    from weft.testbed.cluster.machines import MOST, machines_here
    from weft.testbed.linux.process import need_root

    if not 1 <= arguments.count <= MOST:
        raise ValueError(f"machines: 1 to {MOST} machines, got {arguments.count}")
    file = Path(arguments.output or FILE_HERE)
    if file.exists():
        raise ValueError(f"machines: {file} exists; choose another file with -o")
    need_root()
    program = arguments.program or [os.environ.get("SHELL", "sh")]
    with machines_here(file, arguments.count):
        print(f"{file} lists {arguments.count} machines until {program[0]} ends", file=sys.stderr)
        return subprocess.run(program, check=False).returncode


def place(arguments: Namespace) -> int:
    """Print load and links of each machine, and the bandwidth that each pair needs."""
    from weft.experiments.cli import lab_commands
    from weft.experiments.runner.console import show
    from weft.testbed.cluster.machines import cluster

    lab = lab_commands.kernel_lab_from(arguments)
    machines = cluster(arguments.machines)
    summary = described(lab, _parts(lab, machines, FIRST_PORT))
    if arguments.json:
        print(json.dumps(summary))
        return 0
    show(summary["machines"])
    if summary["pairs"]:
        show(summary["pairs"])
    links, cut = len(lab.topology.links), summary["cut_links"]
    print(f"{cut} of {links} links are cut ({100 * cut / links:.0f} %)")
    return 0


def placed(lab: Lab, cluster: Cluster) -> list[int]:
    """Return the machine of each node of `lab`, by its position in the cluster.

    Raises:
        ValueError: the lab names an unknown machine, or there are too many machines.
    """
    from weft.testbed.cluster import placement
    from weft.testbed.labs.link_changes import link_of

    names = [machine.name for machine in cluster.machines]
    for name in lab.machines.values():
        if name not in names:
            raise ValueError(unknown("machine", name, names))
    pinned = {node: names.index(name) for node, name in lab.machines.items()}
    uncut = {
        link
        for link in range(len(lab.topology.links))
        if (spec := link_of(lab, link)) and spec.delay_us < cluster.delay_us
    }
    return placement.place(lab.topology, cluster.shares(), pinned, uncut)


def described(lab: Lab, parts: Sequence[PlanPart]) -> dict[str, Any]:
    """Return the rows of machines and of pairs of machines, and the number of cut links."""
    links = len(lab.topology.links)
    machines = [
        {
            "machine": part.machine,
            "nodes": len(part.nodes),
            "servers": sum(node < lab.topology.servers for node in part.nodes),
            "local_links": len(part.links),
            "cut_links": len(part.cut),
            "load_percent": round(50 * (2 * len(part.links) + len(part.cut)) / links, 1),
        }
        for part in parts
    ]
    pairs = [_pair(lab, one, other) for one, other in combinations(parts, 2)]
    return {"machines": machines, "pairs": pairs, "cut_links": _cut_links(parts)}


def _cut_links(parts: Sequence[PlanPart]) -> int:
    """Return the number of links between machines."""
    return sum(len(part.cut) for part in parts) // 2


def _pair(lab: Lab, part: PlanPart, other: PlanPart) -> dict[str, Any]:
    """Return the cut links between two machines, and the sum of their rates in one direction.

    The sum is None if a link has no rate.
    """
    from weft.testbed.labs.link_changes import link_of

    specs = [link_of(lab, link) for link, peer in part.cut.items() if peer == other.machine]
    rates = [spec.rate_bps for spec in specs if spec]
    return {
        "pair": f"{part.machine}-{other.machine}",
        "cut_links": len(specs),
        "bandwidth_mbps": sum(rates) / 1e6 if len(rates) == len(specs) else None,
    }


FIRST_PORT, PORTS = 61000, 2000  # UDP ports of runs, above those that Linux gives to clients


def up(lab: Lab, routing: str, arguments: Namespace) -> int:
    """Bring the network of `lab` up over several machines.

    Raises:
        ValueError: an option that works on one machine only; one line says which.
        OSError: a machine cannot hold its part, or failed.  Nothing remains of the run.
    """
    from weft.testbed.cluster.machines import cluster_from
    from weft.testbed.linux.process import need_root

    _check_up(lab, arguments)
    machines = cluster_from(arguments.machines)
    # the next port is that of agents' messages
    port = FIRST_PORT + 2 * (crc32(arguments.detach.encode()) % PORTS)
    parts = _parts(lab, machines, port)
    if arguments.dry_run:
        return _print_parts(lab, routing, parts, arguments.detach)
    need_root()
    journal = {
        **_network(lab, routing, arguments),
        "machines": {machine.name: asdict(machine) for machine in machines.machines},
        "parts": [asdict(part) for part in parts],
    }
    durations_s = _launch(arguments.detach, journal)
    if arguments.json:
        facts = {"run": arguments.detach, "topology": lab.topology.spec}
        print(json.dumps({**facts, **described(lab, parts), "stages_s": durations_s}))
    else:
        print(f"{arguments.detach} is up: {_summary(lab, parts, durations_s)}", file=sys.stderr)
    return 0


def _launch(name: str, journal: dict[str, Any]) -> dict[str, float]:
    """Reserve the run, start its controller, and return seconds by stage."""
    from weft.experiments.runner.console import stages
    from weft.testbed.cluster import controller
    from weft.testbed.network import clean
    from weft.testbed.runs import run

    lock = run.reserve(name)
    try:
        run.write_journal(lock.run, {**lock.run.journal, **journal})
        machines = f"{len(journal['parts'])} machines"
        work = f"up {journal['topology']} {journal['scheme']} {machines}"
        with stages("bringing up", work) as progress:
            progress(machines)
            return controller.launch(lock.run, lock.lock)
    except BaseException:
        clean.remove(lock.run)
        raise
    finally:
        lock.release()


def _summary(lab: Lab, parts: Sequence[PlanPart], durations_s: Mapping[str, float]) -> str:
    """Return the sizes of a network, and the longest time of each stage of its bring-up."""
    from weft.experiments.runner.console import duration

    times = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in durations_s.items())
    sizes = f"{lab.topology.nodes} nodes on {len(parts)} machines, {_cut_links(parts)} cut links"
    return f"{lab.topology.spec}, {sizes} ({times})"


def _print_parts(lab: Lab, routing: str, parts: Sequence[PlanPart], name: str) -> int:
    """Print the commands that would make each machine's part."""
    from weft.experiments.cli.network_status import print_plan

    for number, part in enumerate(parts, 1):
        print(f"# machine {part.machine}")
        print_plan(lab, routing, name=f"{name}-{number}", part=part)
    return 0


def _check_up(lab: Lab, arguments: Namespace) -> None:
    """Raise ValueError for options that work on one machine only."""
    if arguments.detach is None:
        raise ValueError(
            "--machines needs --detach NAME: Mininet's command line is for one machine"
        )
    conflicts = {
        "--nat": arguments.nat,
        "--view": arguments.view,
        "--clock virtual": arguments.clock == "virtual",
        "a lab with commands, events or checks": lab.command_lines() or lab.events or lab.checks,
    }
    for option, chosen in conflicts.items():
        if chosen:
            raise ValueError(f"{option} works on one machine only; omit it, or --machines")


def _parts(lab: Lab, cluster: Cluster, port: int) -> list[PlanPart]:
    """Return the part of each machine; ValueError: see placed()."""
    from weft.testbed.plan.part import split

    addresses = {machine.name: machine.address for machine in cluster.machines}
    return split(lab.topology, placed(lab, cluster), addresses, port)


def _network(lab: Lab, routing: str, arguments: Namespace) -> dict[str, Any]:
    """Return what the parts of all machines have in common, for the journal and the agents."""
    from weft.testbed.linux import clock
    from weft.testbed.node_daemon.sealed_channel import KEY_BYTES
    from weft.testbed.plan.network_plan import links_document
    from weft.topologies.core.user_graph import document

    topology = lab.topology
    return {
        "command": sys.argv,
        "pid": os.getpid(),
        "began_unix_s": clock.wall(),
        "topology": topology.spec,
        "graph": document(topology) if topology.family == "file" else "",
        **links_document(lab.link, lab.host_link, lab.own_links),
        "scheme": routing,
        "key": os.urandom(KEY_BYTES).hex(),
        "options": {
            "packed": lab.packed,
            "authenticated": not arguments.unauthenticated,
            "restart": not arguments.no_restart,
        },
    }


def clean(path: str, name: str | None) -> list[str]:
    """Remove dead runs here and on the machines of the file, or only `name` and its parts.

    Returns:
        The removed runs.
    """
    from weft.testbed.cluster import machines
    from weft.testbed.network import clean
    from weft.testbed.runs import run

    cluster = machines.cluster_from(path)
    is_known = name is None or any(record.id == name for record in run.runs())
    removed = clean.clean(name) if is_known else []
    return removed + machines.clean(cluster.machines, name)


def spread(name: str | None) -> SpreadRun | None:
    """Return the live run called `name`, or the only one; None if it is on this machine alone."""
    from weft.testbed.runs import run

    record = run.find(name)
    journal = record.journal
    if not journal.get("machines"):
        return None
    from weft.testbed.cluster.spread_run import SpreadRun

    return SpreadRun(record, journal)


def forwarded(arguments: Namespace, words: Sequence[str]) -> bool:
    """Run `weft WORDS` on the machines of its node or link; see options.add_run().

    Returns:
        False if the command has none, or its run is on this machine alone.

    Raises:
        ValueError: no such node or link, or its machine is dead.
    """
    names = (getattr(arguments, name) for name in getattr(arguments, "elements", ()))
    element = next(filter(None, names), "")
    run = spread(arguments.run) if element else None
    if run:
        is_node = arguments.elements == ("node",)
        parts = [run.home(element)] if is_node else run.having(element)
        for part, printed in zip(parts, run.carry_out(parts, words), strict=True):
            # clocks and counters are those of the machine
            machine = f"{run.parts[part].machine}: " if len(parts) > 1 else ""
            sys.stdout.writelines(machine + line for line in printed.splitlines(keepends=True))
    return run is not None
