"""The lab that an open network is, as its links are now; and the commands with which one begins."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.testbed.labs.lab_file import Lab
from weft.testbed.network import impair
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs import run
from weft.topologies.core.link import LinkSpec

COMMAND_TIMEOUT_S = 60.0
COMMANDS = "commands"  # in the journal


def lab_of(network: RunningNetwork) -> Lab:
    """The lab of an open network.  Links that have been impaired are as they are now; those that
    failed are whole."""
    plan, topology, journal = network.plan, network.topology, network.run.journal
    own: dict[int, LinkSpec] = {}
    for link in range(len(topology.links)):
        now, usual = (
            impair.kernel_link(network, link),
            plan.host_link if topology.level[link] == 0 else None,
        )
        if now and _known(now) != _known(usual or plan.link):
            own[link] = now
    commands = {node: tuple(lines) for node, lines in journal.get(COMMANDS, {}).items()}
    return Lab(
        topology=topology,
        scheme=journal["scheme"],
        link=plan.link,
        host_link=plan.host_link,
        own_links=own,
        packed=journal.get("packed"),
        commands=commands,
    )


def _known(link: LinkSpec | None) -> LinkSpec | None:
    """`link` as far as the kernel is asked, rounded as loss is there."""
    if link is None:
        return None
    known = LinkSpec(
        rate_bps=link.rate_bps, queue_packets=link.queue_packets, delay_us=link.delay_us
    )
    return replace(known, loss_ppb=link.loss_ppb, mtu_bytes=link.mtu_bytes)


def begin(network: RunningNetwork, commands: Mapping[str, Sequence[str]]) -> None:
    """Run the commands of each node there, one after the other, by sh; what they leave running ends
    with the run.

    OSError, with what the command said, for one that fails or takes more than COMMAND_TIMEOUT_S.
    """
    if not commands:
        return
    kept = {node: list(lines) for node, lines in commands.items()}
    run.write_journal(network.run, network.run.journal | {COMMANDS: kept})
    env = os.environ | {run.ENVIRONMENT: network.run.id, run.DEFAULT: network.run.id}
    for node, lines in commands.items():
        for line in lines:
            argv = ["ip", "netns", "exec", network.run.namespace(node), "sh", "-c", line]
            with (network.run.directory / f"{node}.out").open("a+b") as file:
                began = file.tell()
                try:
                    done = subprocess.run(
                        argv,
                        env=env,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=file,
                        timeout=COMMAND_TIMEOUT_S,
                        check=False,
                    )
                except subprocess.TimeoutExpired:
                    late = (
                        f"not finished after {COMMAND_TIMEOUT_S:g} s; end it with & to "
                        f"leave it running"
                    )
                    raise OSError(f"command of {node}, {line}: {late}") from None
                file.seek(began)
                if done.returncode:
                    said = file.read().decode(errors="replace").strip().splitlines()
                    raise OSError(
                        f"command of {node}, {line}: status {done.returncode}: "
                        f"{said[-1] if said else ''}"
                    )
