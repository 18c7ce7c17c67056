"""Commands on networks in the kernel: up, exec, fail, restore, status, down, ps, clean, rekey,
daemon."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.testbed.labs.lab_file import Lab
    from weft.testbed.network.network import RunningNetwork

Subparsers = Any  # argparse does not export the class of what add_subparsers() returns


def add_commands(commands: Subparsers) -> None:
    """Add this file's commands to the parser."""
    _add_up(commands)
    _add_on_a_run(commands)
    _add_others(commands)


def _add_up(commands: Subparsers) -> None:
    parser = _command(commands, "up", up, "bring a network up; Mininet's command line, or --detach")
    parser.add_argument(
        "topology", help="such as dcell:n=4,k=1; `weft list` has the families; or a lab, lab.yaml"
    )
    parser.add_argument(
        "--routing",
        help="scheme, static or none; default: dr on server-centric networks, else ecmp",
    )
    parser.add_argument(
        "--rate", help="of every link, such as 20mbit; default: as fast as the machine goes"
    )
    parser.add_argument(
        "--host-rate", help="of the links between hosts and switches of a fabric; default: --rate"
    )
    parser.add_argument("--queue", type=int, help="packets that wait at a port; default 250")
    trim = (
        "switches trim packets that allow it to headers where N full ones wait, as NDP "
        "with 8; needs --rate"
    )
    parser.add_argument("--trim", type=int, metavar="N", help=trim)
    parser.add_argument(
        "--headers",
        type=int,
        metavar="N",
        help="headers that wait at a port that trims; default 1125",
    )
    parser.add_argument(
        "--mtu", type=int, metavar="BYTES", help="of every link; default 1500; needs --rate"
    )
    parser.add_argument("--delay", help="of every link, one way, such as 1ms; needs --rate")
    parser.add_argument(
        "--packed",
        type=int,
        metavar="P",
        help="P processes share the daemons, 0: one for each node; default: by the numbers "
        "of nodes and processors",
    )
    parser.add_argument("--no-restart", action="store_true", help="leave daemons dead that die")
    parser.add_argument(
        "--unauthenticated", action="store_true", help="let daemons believe whatever they hear"
    )
    parser.add_argument("--detach", metavar="NAME", help="leave the network running as run NAME")
    parser.add_argument(
        "--view",
        action="store_true",
        help="serve a page on which to watch and break it; see weft view",
    )
    text = (
        "let hosts reach this machine, and its network if it forwards, by links beside "
        "the network; needs nft"
    )
    parser.add_argument("--nat", action="store_true", help=text)
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan as commands and make nothing"
    )
    clocks = (
        "virtual: exact, computing takes no time, which stands still while you type; "
        "needs --rate and no root"
    )
    parser.add_argument("--clock", choices=["real", "virtual"], default="real", help=clocks)
    parser.add_argument(
        "--pace",
        type=float,
        metavar="P",
        help="at most P virtual seconds a second (--clock virtual)",
    )
    hop = "ns that the processor takes for each packet that arrives (0; --clock virtual)"
    parser.add_argument("--hop-ns", type=int, metavar="N", help=hop)
    call = "ns that each system call takes of its process (0; --clock virtual)"
    parser.add_argument("--syscall-ns", type=int, metavar="N", help=call)
    parser.add_argument("--seed", type=int, help="of all that is random (--clock virtual)")


def _add_on_a_run(commands: Subparsers) -> None:
    """What is done to one run, and asked of it."""
    parser = _command(commands, "exec", exec_, "run a command on a node")
    parser.add_argument("node", help="name or label, such as h3 or s1.0.3")
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    _of_run(parser)

    fail_parser = _command(commands, "fail", fail, "fail a link or a node")
    fail_parser.add_argument("--silent", action="store_true", help="packets vanish, carriers stay")
    fail_parser.add_argument(
        "--only-to", metavar="NODE", help="with --silent: only what NODE should hear vanishes"
    )
    restore_parser = _command(commands, "restore", restore, "undo fail")
    for parser in (fail_parser, restore_parser):
        parser.add_argument(
            "what", metavar="LINK|NODE", help="a link by its two ends, such as h0-w0, or a node: h0"
        )
        _of_run(parser)

    parser = _command(
        commands, "degrade", degrade, "let a link carry less, or as much as the others again"
    )
    parser.add_argument("link", metavar="LINK", help="by its two ends, such as e0.0-a0.1")
    parser.add_argument("rate", help="such as 2mbit; the network's own rate undoes it")
    parser.add_argument(
        "--tell", action="store_true", help="let the daemons at its ends know, as an operator would"
    )
    _of_run(parser)

    parser = _command(
        commands, "scheme", scheme, "let a running switch fabric choose ports by another scheme"
    )
    parser.add_argument(
        "scheme", help="of the data plane, such as ttc or drill:d=2,m=1; `weft list` has them"
    )
    _of_run(parser)

    parser = _command(commands, "status", status, "neighbours, routes and daemons of a run")
    parser.add_argument("node", nargs="?", help="what the daemon of this one node knows")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--watch", type=float, metavar="S", help="again every S seconds, until Ctrl-C"
    )
    _of_run(parser)

    parser = _command(
        commands, "rekey", rekey, "replace the key by which a run's daemons know each other"
    )
    _of_run(parser)

    parser = _command(commands, "daemon", daemon, "run one node's routing daemon by hand")
    parser.add_argument("scheme", nargs="?", help="default: the run's")
    parser.add_argument("--node", required=True, help="name or label")
    parser.add_argument(
        "--stop", action="store_true", help="end the daemon that the node has; its routes stay"
    )
    _of_run(parser)

    parser = _command(
        commands,
        "restart",
        restart,
        "end one node's routing daemon, hang though it may, and start it",
    )
    parser.add_argument("node", help="name or label")
    _of_run(parser)

    parser = _command(commands, "down", down, "take a run down")
    _of_run(parser)


def _add_others(commands: Subparsers) -> None:
    parser = _command(commands, "ps", ps, "list runs")
    parser.add_argument("--json", action="store_true")
    parser = _command(commands, "clean", clean, "remove what dead runs left, and nothing else")
    parser.add_argument("--run", help="only this one; default: every dead run")


def _command(commands: Subparsers, name: str, action: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.set_defaults(action=action)
    return parser


def _of_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", help="which run; default: $WEFT_RUN, or the only one")


def up(given: argparse.Namespace) -> int:
    """`weft up`: bring a network up, or print its plan, and keep it until Ctrl-C unless it is to be
    detached."""
    from weft.daemons.core.registry import usual
    from weft.experiments.cli import lab_commands, virtual_up
    from weft.experiments.cli.network_status import print_plan
    from weft.testbed.linux.process import need_root
    from weft.testbed.network import bring_up
    from weft.testbed.plan.plane_selection import check_scheme, has_daemons, is_static
    from weft.testbed.runs.run import require_name

    virtual_up.check(given)
    lab = lab_commands.lab_from(given)
    routing = usual(lab.topology) if lab.scheme is None else lab.scheme
    bring_up.require_processes(lab.packed)
    if given.detach is not None:
        require_name(given.detach)
    check_scheme(lab.topology, routing, lab.link, host_link=lab.host_link, own_links=lab.own_links)
    if lab.packed and not has_daemons(routing):
        raise ValueError(f"--packed shares out daemons, and scheme {routing} has none")
    wanted = {
        "link": lab.link,
        "host_link": lab.host_link,
        "own_links": lab.own_links,
        "packed": lab.packed,
    }
    wanted |= {"authenticated": not given.unauthenticated, "restart": not given.no_restart}
    wanted |= {"outwards": given.nat}
    if given.dry_run and given.nat:
        raise ValueError(
            "--dry-run prints what the network is made of, and --nat lies beside it: leave one out"
        )
    if given.dry_run:
        return print_plan(lab, static=is_static(routing), name=given.detach)
    if given.clock == "virtual":
        virtual_up.check_lab(lab, given)
        return virtual_up.up(given)
    need_root()
    if given.detach is not None:
        return _detach(lab, routing, given.detach, wanted, view=given.view)
    return _foreground(lab, routing, wanted, view=given.view)


def _detach(lab: Lab, routing: str, name: str, wanted: dict[str, Any], *, view: bool) -> int:
    from weft.experiments.cli.view_commands import show_view
    from weft.experiments.runner.console import stages
    from weft.testbed.labs import running_lab
    from weft.testbed.network.network import RunningNetwork

    with stages("bringing up") as progress:
        network = RunningNetwork.create(
            lab.topology, scheme=routing, name=name, detached=True, progress=progress, **wanted
        )
        try:
            running_lab.begin(network, lab.commands)
        except BaseException:
            network.down()
            raise
    print(f"{network.run.id} is up: {summary(network)}", file=sys.stderr)
    say_how_far(outwards=wanted["outwards"])
    network.close()
    show_view(network.run, wanted=view)
    return 0


def _foreground(lab: Lab, routing: str, wanted: dict[str, Any], *, view: bool) -> int:
    from mininet.log import setLogLevel

    from weft.experiments.cli import virtual_up
    from weft.experiments.cli.view_commands import show_view
    from weft.experiments.runner.console import stages
    from weft.testbed.labs import running_lab
    from weft.testbed.mininet.net import Net

    setLogLevel("info")
    with stages("bringing up") as progress:
        net = Net(lab.topology, routing=routing, progress=progress, **wanted)
        net.start()
    try:
        running_lab.begin(net.network, lab.commands)
        print(f"run {net.identity.id} is up: {summary(net.network)}", file=sys.stderr)
        say_how_far(outwards=wanted["outwards"])
        show_view(net.identity, wanted=view)
        virtual_up.command_line(net)
    finally:
        with stages("taking down") as progress:
            progress("processes and namespaces")
            net.stop()
    return 0


def say_how_far(*, outwards: bool) -> None:
    """What hosts with a way out do not reach, and how they would."""
    from weft.testbed.network.outside import machine_forwards

    if outwards and not machine_forwards():
        how = "sysctl net.ipv4.ip_forward=1 before weft up would let it"
        print(
            f"--nat: hosts reach this machine and nothing beyond, since it does not forward; {how}",
            file=sys.stderr,
        )


def summary(network: RunningNetwork) -> str:
    """What came up, and how long each part took."""
    from weft.experiments.runner.console import duration

    topology = network.topology
    took = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in network.stages.items())
    counts = (
        f"{topology.servers} servers, {topology.switches} switches, {len(topology.links)} links"
    )
    if network.processes:
        counts += f", {len(network.rows())} daemons in {network.processes} processes"
    return f"{topology.spec}, {counts}, in {duration(sum(network.stages.values()))} ({took})"


def exec_(given: argparse.Namespace) -> int:
    """`weft exec`: run a command in a node; does not return, its exit status is ours."""
    from weft.testbed.linux.process import need_root
    from weft.testbed.runs import run

    need_root()
    found = run.find(given.run)
    network = _open(found.id)
    node = network.topology.naming.node(given.node)
    argv = given.argv[1:] if given.argv[:1] == ["--"] else given.argv
    if not argv:
        raise ValueError("exec: no command; write weft exec NODE -- COMMAND")
    os.environ |= {run.ENVIRONMENT: found.id, run.DEFAULT: found.id}
    os.execvp("ip", ["ip", "netns", "exec", network.plan.namespace(node), *argv])


def _open(name: str | None) -> RunningNetwork:
    from weft.testbed.network.network import RunningNetwork

    return RunningNetwork.open(name)


def _name(network: RunningNetwork, node: str) -> str:
    """The name of the node whose name or label is given."""
    return network.plan.names[network.topology.naming.node(node)]


def fail(given: argparse.Namespace) -> int:
    """`weft fail`: fail a link or a node of a network that is up."""
    _open(given.run).fail(given.what, silent=given.silent, only_to=given.only_to)
    return 0


def restore(given: argparse.Namespace) -> int:
    """`weft restore`: undo `weft fail`."""
    _open(given.run).restore(given.what)
    return 0


def degrade(given: argparse.Namespace) -> int:
    """`weft degrade`: give a link another rate, and tell the daemons at its ends if asked to."""
    from weft.testbed.network.degrade import planned, report, set_rate
    from weft.topologies.core.link import rate_bps

    network, rate = _open(given.run), rate_bps(given.rate)
    set_rate(network, given.link, rate)
    if given.tell:
        link = planned(network, network.topology.link(given.link))
        report(network, given.link, degraded=rate < link.rate_bps)
    return 0


def scheme(given: argparse.Namespace) -> int:
    """`weft scheme`: let the data plane of a network that is up choose ports by another scheme."""
    _open(given.run).change_scheme(given.scheme)
    return 0


def restart(given: argparse.Namespace) -> int:
    """`weft restart`: end the daemon of a node and start it again."""
    from weft.testbed.node_daemon import control

    network = _open(given.run)
    control.restart(network.run.directory, _name(network, given.node))
    return 0


def status(given: argparse.Namespace) -> int:
    """`weft status`: the daemons and links of a network that is up, once or again and again."""
    from weft.experiments.cli.watch_commands import again_and_again

    if given.watch is None:
        return _status_once(given)
    if not given.watch > 0:
        raise ValueError(f"--watch must be above 0 seconds, got {given.watch:g}")
    return again_and_again(lambda: _status_once(given), given.watch)


def _status_once(given: argparse.Namespace) -> int:
    from weft.experiments.cli.network_status import show_status
    from weft.testbed.node_daemon import control

    network = _open(given.run)
    if given.node is not None:
        found = control.status(network.run.directory, _name(network, given.node))
        print(json.dumps(found, indent=None if given.json else 2))
        return 0
    state = network.status()
    if given.json:
        print(json.dumps(state))
        return 0
    show_status(state)
    return 0


def down(given: argparse.Namespace) -> int:
    """`weft down`: take a network out of the kernel."""
    from weft.experiments.runner.console import stages

    network = _open(given.run)
    with stages("taking down") as progress:
        progress(f"run {network.run.id}")
        network.down()
    return 0


def ps(given: argparse.Namespace) -> int:
    """`weft ps`: the networks on this machine, those that died too."""
    from weft.experiments.runner.console import show
    from weft.testbed.runs.run import runs

    rows = []
    for run in runs():
        told = run.journal_or_empty()
        rows.append(
            {
                "run": run.id,
                "state": "up" if run.alive() else "dead",
                "topology": told.get("topology"),
                "scheme": told.get("scheme"),
                "pid": told.get("pid"),
            }
        )
    if given.json:
        print(json.dumps(rows))
    elif rows:
        show(rows, list(rows[0]))
    else:
        print("no run is up", file=sys.stderr)
    return 0


def clean(given: argparse.Namespace) -> int:
    """`weft clean`: remove what runs that died have left in the kernel."""
    from weft.testbed.linux.process import need_root
    from weft.testbed.network.clean import clean as remove_dead_runs

    need_root()
    removed = remove_dead_runs(given.run)
    print(f"removed {', '.join(removed)}" if removed else "nothing to remove", file=sys.stderr)
    return 0


def rekey(given: argparse.Namespace) -> int:
    """`weft rekey`: replace the key by which the daemons of a network seal what they say."""
    _open(given.run).rekey()
    return 0


def daemon(given: argparse.Namespace) -> int:
    """`weft daemon`: run a node's daemon in the foreground in place of the supervisor's and
    configured like it, or stop the supervisor's."""
    from weft.testbed.network import foreground
    from weft.testbed.node_daemon import control
    from weft.testbed.runs.run import ENVIRONMENT

    network = _open(given.run)
    if given.stop:
        control.stop(network.run.directory, _name(network, given.node))
        return 0
    # the mark of a run's processes, by which `weft down` finds them
    if os.environ.get(ENVIRONMENT) != network.run.id:
        os.execve(sys.executable, sys.orig_argv, {**os.environ, ENVIRONMENT: network.run.id})
    return foreground.serve(network, network.topology.naming.node(given.node), given.scheme)
