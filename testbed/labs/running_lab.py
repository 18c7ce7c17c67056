"""The lab of a running network, and the commands with which a lab starts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from weft.testbed.labs.lab_file import Lab
from weft.testbed.network import impair
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs import node_command, run
from weft.topologies.core.link import LinkSpec

COMMAND_TIMEOUT_S = 60.0
COMMANDS = "commands"  # in the journal


def lab_of(network: RunningNetwork) -> Lab:
    """Return the lab of a running network: impaired links as they are now, failed links healthy."""
    plan, topology, journal = network.plan, network.topology, network.run.journal
    own_links: dict[int, LinkSpec] = {}
    for link in range(len(topology.links)):
        spec = impair.kernel_link(network, link)
        planned = (plan.host_link if topology.level[link] == 0 else None) or plan.link
        if spec and _readable(spec) != _readable(planned):
            own_links[link] = spec
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


def _readable(link: LinkSpec | None) -> LinkSpec | None:
    """Return the fields of `link` that kernel_link() reads back."""
    if link is None:
        return None
    return LinkSpec(
        rate_bps=link.rate_bps,
        queue_packets=link.queue_packets,
        delay_us=link.delay_us,
        loss_ppb=link.loss_ppb,
        mtu_bytes=link.mtu_bytes,
    )


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


def _run_command(network: RunningNetwork, node: str, line: str) -> None:
    record = network.run
    with (record.directory / f"{node}.out").open("a+b") as file:
        start = file.tell()
        try:
            process = subprocess.run(
                node_command.command(record, node, ["sh", "-c", line]),
                env=os.environ | node_command.environment(record),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            cause = f"not finished after {COMMAND_TIMEOUT_S:g} s"
            advice = "end it with & to leave it running"
            raise OSError(f"command of {node}, {line}: {cause}; {advice}") from None
        if process.returncode:
            file.seek(start)
            output = file.read().decode(errors="replace").strip().splitlines()
            last = output[-1] if output else ""
            raise OSError(f"command of {node}, {line}: status {process.returncode}: {last}")
