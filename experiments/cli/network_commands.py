"""Commands on networks in the kernel, from up to down."""

from __future__ import annotations

import json
import os
import sys
from argparse import REMAINDER, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.options import (
    Commands,
    add_command,
    add_flag,
    add_json,
    add_network,
    add_run,
    add_trust,
    add_virtual_clock,
    seconds,
)
from weft.topologies.core.link import rate_bps

if TYPE_CHECKING:
    from weft.testbed.cluster.spread_run import SpreadRun
    from weft.testbed.labs.lab_file import Lab
    from weft.testbed.network.handle import Handle
    from weft.testbed.network.network import RunningNetwork


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    _add_up(commands)
    _add_exec(commands)
    _add_faults(commands)
    _add_changes(commands)
    _add_status(commands)
    _add_daemons(commands)
    add_run(add_command(commands, "down", down, "take a network down"))
    add_json(add_command(commands, "ps", ps, "list runs"))
    parser = add_command(commands, "clean", clean, "remove what dead runs left in the kernel")
    parser.add_argument("--run", help="clean this run only; default: every dead run")
    parser.add_argument(
        "--machines", metavar="FILE", help="clean the machines in FILE, too (docs/machines.md)"
    )
    add_json(parser)


def _add_up(commands: Commands) -> None:
    parser = add_command(
        commands, "up", up, "bring a network up and open Mininet's command line, or detach"
    )
    add_network(parser)
    add_flag(parser, "--no-restart", help="do not restart daemons that die")
    add_flag(parser, "--unauthenticated", help="let daemons accept unsealed messages")
    parser.add_argument("--detach", metavar="NAME", help="leave the network running as run NAME")
    parser.add_argument(
        "--machines",
        metavar="FILE",
        help="bring the network up over the machines in FILE (docs/machines.md); needs --detach",
    )
    add_flag(parser, "--view", help="serve a web page of the network; see weft view")
    add_flag(
        parser,
        "--nat",
        help="connect hosts to this machine, and to its network if it forwards; needs nft",
    )
    add_flag(parser, "--dry-run", help="print the plan as commands and create nothing")
    add_flag(parser, "--json", help="print JSON; needs --detach")
    add_trust(parser)
    add_virtual_clock(parser)
    parser.add_argument(
        "--pace",
        type=float,
        metavar="P",
        help="run at most P virtual seconds a second (--clock virtual)",
    )


def _add_exec(commands: Commands) -> None:
    parser = add_command(commands, "exec", exec_, "run a command on a node")
    parser.add_argument("node", help="name or label, such as h3 or s1.0.3")
    parser.add_argument(
        "line",
        nargs=REMAINDER,
        metavar="-- COMMAND",
        help="the command; without --, a line for its shell, as ssh takes it",
    )
    parser.set_defaults(program=[])
    add_run(parser)


def _add_faults(commands: Commands) -> None:
    fail_parser = add_command(commands, "fail", fail, "fail a link or a node")
    add_flag(fail_parser, "--silent", help="drop packets and leave carriers up")
    fail_parser.add_argument(
        "--only-to", metavar="NODE", help="with --silent: drop only packets to NODE"
    )
    restore_parser = add_command(commands, "restore", restore, "restore a failed link or node")
    text = "link by its two ends, such as h0-w0, or node such as h0"
    for parser in (fail_parser, restore_parser):
        parser.add_argument("what", metavar="LINK|NODE", help=text)
    add_run(fail_parser, "only_to", "what")
    add_run(restore_parser, "what")


def _add_changes(commands: Commands) -> None:
    parser = add_command(commands, "degrade", degrade, "change the rate of a link")
    parser.add_argument("link", metavar="LINK", help="link by its two ends, such as e0.0-a0.1")
    parser.add_argument("rate", help="rate such as 2mbit; the planned rate restores the link")
    add_flag(parser, "--tell", help="report the new rate to the daemons at both ends")
    add_run(parser, "link")

    parser = add_command(
        commands, "scheme", scheme, "change the scheme by which a running fabric chooses ports"
    )
    parser.add_argument(
        "scheme", help="data-plane scheme such as ttc or drill:d=2,m=1; `weft list` lists them"
    )
    add_run(parser)


def _add_status(commands: Commands) -> None:
    parser = add_command(commands, "status", status, "show neighbours, routes and daemons of a run")
    parser.add_argument("node", nargs="?", help="show the state of this node's daemon")
    add_json(parser)
    parser.add_argument("--watch", type=seconds, metavar="S", help="repeat every S seconds")
    add_run(parser)


def _add_daemons(commands: Commands) -> None:
    add_run(add_command(commands, "rekey", rekey, "replace the key that seals daemons' messages"))

    parser = add_command(commands, "daemon", daemon, "run one node's daemon in the foreground")
    parser.add_argument("node", help="name or label")
    parser.add_argument("scheme", nargs="?", help="scheme; default: the run's")
    add_flag(parser, "--stop", help="stop the node's daemon; its routes stay")
    add_run(parser)

    parser = add_command(
        commands, "restart", restart, "stop one node's daemon, even a hung one, and start it again"
    )
    parser.add_argument("node", help="name or label")
    add_run(parser, "node")


def up(arguments: Namespace) -> int:
    """Bring a network up, or print its plan, and keep it until Ctrl-C unless it is detached."""
    from weft.experiments.cli import cluster_commands, lab_commands, virtual_up
    from weft.experiments.cli.network_status import print_plan
    from weft.testbed.linux.process import need_root

    virtual_up.check(arguments)
    lab = lab_commands.kernel_lab_from(arguments)
    routing = checked_scheme(lab, arguments)
    if arguments.machines:
        return cluster_commands.up(lab, routing, arguments)
    if arguments.dry_run:
        return print_plan(lab, routing, name=arguments.detach)
    lab_commands.require_trust(lab, trust=arguments.trust)
    if arguments.clock == "virtual":
        virtual_up.check_lab(lab, arguments)
        return virtual_up.up(arguments)
    settings = {
        **lab_commands.settings(lab),
        "authenticated": not arguments.unauthenticated,
        "restart": not arguments.no_restart,
        "outwards": arguments.nat,
    }
    need_root()
    if arguments.detach is not None:
        return _detach(lab, routing, settings, arguments)
    return _foreground(lab, routing, settings, view=arguments.view)


def checked_scheme(lab: Lab, arguments: Namespace) -> str:
    """Return the scheme; ValueError if it cannot route the network or options conflict."""
    from weft.experiments.cli import lab_commands
    from weft.testbed.network import bring_up
    from weft.testbed.plan.plane_selection import has_daemons
    from weft.testbed.runs.run import require_name

    if arguments.json and (arguments.detach is None or arguments.dry_run):
        raise ValueError("--json needs --detach NAME, and no --dry-run: it prints what came up")
    bring_up.require_processes(lab.packed)
    if arguments.detach is not None:
        require_name(arguments.detach)
    routing = lab_commands.checked_scheme(lab)
    if lab.packed and not has_daemons(routing):
        raise ValueError(f"--packed: scheme {routing} has no daemons to share processes")
    if arguments.dry_run and arguments.nat:
        raise ValueError("--dry-run prints the network alone, without --nat: omit one of the two")
    return routing


def bring_up_detached(
    lab: Lab, routing: str, name: str | None, settings: Mapping[str, Any]
) -> RunningNetwork:
    """Bring the network of `lab` up as run `name`, which outlives this process, with its commands.

    settings: arguments of RunningNetwork.create().
    """
    from weft.experiments.runner.console import stages
    from weft.testbed.labs import running_lab
    from weft.testbed.network.network import RunningNetwork

    with stages("bringing up", f"up {lab.topology.spec} {routing}") as progress:
        network = RunningNetwork.create(
            lab.topology,
            scheme=routing,
            name=name,
            detached=True,
            progress=progress,
            **settings,
        )
        try:
            running_lab.begin(network, lab.commands)
        except BaseException:
            network.down()
            raise
    return network


def _detach(lab: Lab, routing: str, settings: dict[str, Any], arguments: Namespace) -> int:
    from weft.experiments.cli.watch_commands import show_view

    network = bring_up_detached(lab, routing, arguments.detach, settings)
    if arguments.json:
        print(json.dumps(network_facts(network)))
    else:
        print(f"{network.run.id} is up: {summary(network)}", file=sys.stderr)
    _warn_of_forwarding(outwards=settings["outwards"])
    network.close()
    if arguments.view:
        show_view(network.run)
    return 0


def _foreground(lab: Lab, routing: str, settings: dict[str, Any], *, view: bool) -> int:
    from mininet.log import setLogLevel

    from weft.experiments.cli import virtual_up
    from weft.experiments.cli.watch_commands import show_view
    from weft.experiments.runner.console import stages
    from weft.testbed.labs import running_lab
    from weft.testbed.mininet.net import Net

    setLogLevel("info")
    with stages("bringing up", f"up {lab.topology.spec} {routing}") as progress:
        net = Net(lab.topology, routing=routing, progress=progress, **settings)
        net.start()
    try:
        running_lab.begin(net.network, lab.commands)
        print(f"run {net.identity.id} is up: {summary(net.network)}", file=sys.stderr)
        _warn_of_forwarding(outwards=settings["outwards"])
        if view:
            show_view(net.identity)
        virtual_up.command_line(net)
    finally:
        with stages("taking down") as progress:
            progress("processes and namespaces")
            net.stop()
    return 0


def _warn_of_forwarding(*, outwards: bool) -> None:
    """Print a warning if --nat stops at this machine."""
    from weft.testbed.network.outside import machine_forwards

    if outwards and not machine_forwards():
        remedy = "run sysctl net.ipv4.ip_forward=1 before weft up"
        cause = "--nat: this machine does not forward, so hosts reach nothing beyond it"
        print(f"{cause}; {remedy}", file=sys.stderr)


def summary(network: RunningNetwork) -> str:
    """Return the sizes of a network and the time of each stage of its bring-up."""
    from weft.experiments.runner.console import duration

    topology = network.topology
    stages = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in network.stages.items())
    sizes = f"{topology.servers} servers, {topology.switches} switches, {len(topology.links)} links"
    if network.processes:
        sizes += f", {len(network.rows())} daemons in {network.processes} processes"
    return f"{topology.spec}, {sizes}, in {duration(sum(network.stages.values()))} ({stages})"


def network_facts(network: RunningNetwork) -> dict[str, Any]:
    """Return the name, the sizes and the seconds of each stage of a bring-up, JSON-able."""
    topology = network.topology
    return {
        "run": network.run.id,
        "topology": topology.spec,
        "servers": topology.servers,
        "switches": topology.switches,
        "links": len(topology.links),
        "daemons": len(network.rows()) if network.processes else 0,
        "stages_s": network.stages,
    }


def exec_(arguments: Namespace) -> int:
    """Become a command in a node's namespace; does not return."""
    from weft.experiments.cli import cluster_commands
    from weft.testbed.linux.process import need_root
    from weft.testbed.runs import node_command, run

    need_root()
    record = run.find(arguments.run)
    if not (arguments.program or arguments.line):
        raise ValueError("exec: no command; write weft exec NODE -- COMMAND")
    if spread_run := cluster_commands.spread(record.id):
        program = ["--", *arguments.program] if arguments.program else arguments.line
        spread_run.execute(spread_run.home(arguments.node), ["exec"], [arguments.node, *program])
    network = _handle(record.id)
    node = network.node(arguments.node)
    argv = arguments.program or node_command.remote_line(arguments.line)
    os.environ |= node_command.environment(record)
    start = node_command.command(record, network.plan.names[node], argv)
    os.execvp(start[0], start)


def _open(name: str | None) -> RunningNetwork:
    from weft.testbed.network.network import RunningNetwork

    return RunningNetwork.open(name)


def _handle(name: str | None) -> Handle:
    """Return what _open() does, without importing what brings a network up."""
    from weft.testbed.network.handle import Handle

    return Handle.open(name)


def _node_name(network: Handle, node: str) -> str:
    """Return the name of a node by its name or label."""
    return network.plan.names[network.node(node)]


def fail(arguments: Namespace) -> int:
    """Fail a link or a node, and print when."""
    from weft.testbed.network import faults

    network, what = _handle(arguments.run), arguments.what
    failed_s = faults.fail(network, what, silent=arguments.silent, only_to=arguments.only_to)
    print(f"{what} failed at {failed_s:.6f} s, by the clock of weft log and weft events")
    return 0


def restore(arguments: Namespace) -> int:
    """Restore a failed link or node."""
    from weft.testbed.network import faults

    faults.restore(_handle(arguments.run), arguments.what)
    return 0


def degrade(arguments: Namespace) -> int:
    """Change the rate of a link, and report it to the daemons at its ends with --tell."""
    rate = rate_bps(arguments.rate)
    _open(arguments.run).degrade(arguments.link, rate, tell=arguments.tell)
    return 0


def scheme(arguments: Namespace) -> int:
    """Change the scheme of a running data plane."""
    _open(arguments.run).change_scheme(arguments.scheme)
    return 0


def restart(arguments: Namespace) -> int:
    """Stop the daemon of a node and start it again."""
    from weft.testbed.node_daemon import control

    network = _handle(arguments.run)
    control.restart(network.run.directory, _node_name(network, arguments.node))
    return 0


def status(arguments: Namespace) -> int:
    """Show daemons and links, once or repeatedly."""
    from weft.experiments.cli.watch_commands import repeat

    if arguments.watch is None:
        return _show_status(arguments)
    return repeat(lambda: _show_status(arguments), arguments.watch)


def _show_status(arguments: Namespace) -> int:
    from weft.experiments.cli.cluster_commands import spread
    from weft.testbed.node_daemon import daemon_files

    if run := spread(arguments.run):
        return _show_spread(run, arguments)
    network = _handle(arguments.run)
    if arguments.node is None:
        _show_network(network, as_json=arguments.json)
        return 0
    name = _node_name(network, arguments.node)
    state = daemon_files.ask(network.run.directory, name, "status")
    print(json.dumps(state, indent=None if arguments.json else 2))
    return 0


def _show_network(network: Handle, *, as_json: bool) -> None:
    from weft.experiments.cli.network_status import show_status
    from weft.testbed.network.status import status as status_of

    state = status_of(network)
    if as_json:
        print(json.dumps(state))
    else:
        show_status(state)


def _show_spread(run: SpreadRun, arguments: Namespace) -> int:
    """Show a run over several machines; see _show_status()."""
    from weft.experiments.cli.network_status import show_status
    from weft.experiments.runner.console import show

    as_json = ["--json"] * arguments.json
    if arguments.node is not None:
        words = ["status", arguments.node, *as_json]
        sys.stdout.writelines(run.carry_out([run.home(arguments.node)], words))
        return 0
    state = run.status()
    if arguments.json:
        print(json.dumps(state))
        return 0
    show(state["machines"])
    if "nodes" in state:
        show_status(state)
    return 0


def down(arguments: Namespace) -> int:
    """Remove a network from the kernel."""
    from weft.experiments.cli import cluster_commands
    from weft.experiments.runner.console import stages
    from weft.testbed.linux.process import need_root
    from weft.testbed.network.clean import remove
    from weft.testbed.network.handle import entries_of_this_machine
    from weft.testbed.runs import run

    if spread_run := cluster_commands.spread(arguments.run):
        spread_run.down()
        return 0
    need_root()
    record = run.find(arguments.run)
    entries_of_this_machine(record)  # refuses a run that is not whole, or not ours to remove
    with stages("taking down") as progress:
        progress(f"run {record.id}")
        remove(record)
    return 0


def ps(arguments: Namespace) -> int:
    """List the runs on this machine, dead ones included."""
    from weft.experiments.runner.console import show
    from weft.testbed.runs.run import left_behind, runs

    rows, every = [], runs()
    for run in every:
        journal = run.journal_or_empty()
        state = "up" if run.alive() else "dead"
        facts = {key: journal.get(key) for key in ("topology", "scheme", "pid")}
        rows.append({"run": run.id, "state": state, **facts})
    if arguments.json:
        print(json.dumps(rows))
        return 0
    if rows:
        show(rows)
    if words := left_behind(every) if rows else "no run is up":
        print(words, file=sys.stderr)
    return 0


def clean(arguments: Namespace) -> int:
    """Remove what dead runs left in the kernel."""
    from weft.experiments.cli import cluster_commands
    from weft.testbed.linux.process import need_root
    from weft.testbed.network.clean import clean as remove_dead_runs

    need_root()
    if arguments.machines:
        removed = cluster_commands.clean(arguments.machines, arguments.run)
    else:
        removed = remove_dead_runs(arguments.run)
    if arguments.json:
        print(json.dumps({"removed": removed}))
    else:
        print(f"removed {', '.join(removed)}" if removed else "nothing to remove", file=sys.stderr)
    return 0


def rekey(arguments: Namespace) -> int:
    """Replace the key that seals the messages of a network's daemons."""
    _open(arguments.run).rekey()
    return 0


def daemon(arguments: Namespace) -> int:
    """Run a node's daemon in the foreground, or stop that of the supervisor."""
    from weft.experiments.cli.cluster_commands import spread
    from weft.testbed.network import foreground
    from weft.testbed.node_daemon import control
    from weft.testbed.runs.run import ENVIRONMENT

    if spread_run := spread(arguments.run):
        scheme_there = [arguments.scheme] * (arguments.scheme is not None)
        words = ["daemon", *["--stop"] * arguments.stop]
        options = [arguments.node, *scheme_there]
        spread_run.execute(spread_run.home(arguments.node), words, options)
    network = _open(arguments.run)
    if arguments.stop:
        control.stop(network.run.directory, _node_name(network, arguments.node))
        return 0
    # `weft down` finds the processes of a run by this variable
    if os.environ.get(ENVIRONMENT) != network.run.id:
        os.execve(sys.executable, sys.orig_argv, {**os.environ, ENVIRONMENT: network.run.id})
    node = network.node(arguments.node)
    return foreground.serve(network, node, arguments.scheme)
