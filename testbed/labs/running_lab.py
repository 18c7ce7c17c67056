"""The lab of a running network, and the commands with which a lab starts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import IO

from weft.testbed.labs.containerlab_file import is_containerlab
from weft.testbed.labs.judgement import last_line
from weft.testbed.labs.lab_file import Lab
from weft.testbed.network import impair
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs import node_command, run
from weft.topologies.core.link import LinkSpec

COMMAND_TIMEOUT_S = 60.0
COMMANDS = "commands"  # in the journal
END_S = 5.0  # from SIGTERM to SIGKILL
MOST_OUTPUT_BYTES = 1 << 20  # of one command that are read
Process = subprocess.Popen[bytes]


def lab_of(network: RunningNetwork) -> Lab:
    """Return the lab of a running network: impaired links as they are now, failed links healthy."""
    plan, topology, journal = network.plan, network.topology, network.run.journal
    own_links: dict[int, LinkSpec] = {}
    for link in range(len(topology.links)):
        spec = impair.kernel_link(network, link)
        planned = (plan.host_link if topology.level[link] == 0 else None) or plan.link
        if spec and _readable(spec) != _readable(planned):
            trims = {"trim_packets": planned.trim_packets} if planned else {}
            own_links[link] = replace(spec, **trims)
    commands = {node: tuple(lines) for node, lines in journal.get(COMMANDS, {}).items()}
    return Lab(
        topology=topology,
        scheme=journal["scheme"],
        link=plan.link,
        host_link=plan.host_link,
        own_links=own_links,
        packed=journal.get("packed"),
        commands=commands,
    )


def with_options_of(network: RunningNetwork, lab: Lab) -> Lab:
    """Return `lab` with those options of `weft up` that it leaves open as the run has them.

    These are the scheme, the number of processes that share daemons and, of a file of
    containerlab, the links.
    """
    running = network.run.journal
    scheme, packed = lab.scheme or running["scheme"], lab.packed
    lab = replace(lab, scheme=scheme, packed=running["packed"] if packed is None else packed)
    if not is_containerlab(lab.topology.spec):
        return lab
    return replace(lab, link=network.plan.link, host_link=network.plan.host_link)


def _readable(link: LinkSpec | None) -> LinkSpec | None:
    """Return `link` with defaults where kernel_link() reads nothing back."""
    if link is None:
        return None
    return replace(link, trim_packets=0, header_packets=LinkSpec.header_packets, hop_ns=0)


def begin(network: RunningNetwork, commands: Mapping[str, Sequence[str]]) -> None:
    """Run each node's commands there, one after the other, by sh.

    Their background processes end with the run.

    Raises:
        OSError: a command fails or exceeds COMMAND_TIMEOUT_S; the message has its last line.
    """
    if not commands:
        return
    lists = {node: list(lines) for node, lines in commands.items()}
    run.write_journal(network.run, network.run.journal | {COMMANDS: lists})
    for node, lines in commands.items():
        for line in lines:
            _run_command(network, node, line)


def start_command(network: RunningNetwork, node: str, line: str, output: IO[bytes]) -> Process:
    """Start `line` at the node by sh, in a session of its own, with its output to a file."""
    return subprocess.Popen(
        node_command.command(network.run, node, ["sh", "-c", line]),
        env=os.environ | node_command.environment(network.run),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def end_command(process: Process) -> None:
    """End a command and the processes in its session, by SIGTERM and then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
            return


def output_file(network: RunningNetwork, node: str) -> IO[bytes]:
    """Return the open file of the output of a node's commands."""
    return (network.run.directory / f"{node}.out").open("a+b")


def command_output(
    network: RunningNetwork, node: str, line: str, file: IO[bytes]
) -> tuple[int, str]:
    """Run `line` at the node with its output to `file`; return its exit status and its output.

    Raises:
        OSError: it exceeds COMMAND_TIMEOUT_S.
    """
    start = file.tell()
    process = start_command(network, node, line, file)
    try:
        status = process.wait(COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        end_command(process)
        cause = f"not finished after {COMMAND_TIMEOUT_S:g} s"
        advice = "end it with & to leave it running"
        raise OSError(f"command of {node}, {line}: {cause}; {advice}") from None
    file.seek(start)
    return status, file.read(MOST_OUTPUT_BYTES).decode(errors="replace")


def _run_command(network: RunningNetwork, node: str, line: str) -> None:
    with output_file(network, node) as file:
        status, output = command_output(network, node, line, file)
    if status:
        raise OSError(f"command of {node}, {line}: status {status}: {last_line(output)}")
