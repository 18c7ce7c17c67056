"""Run a few daemons before the real ones are forked, so that these share more memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from weft.testbed.node_daemon.counters import WORDS
from weft.testbed.node_daemon.credentials import rehearsed
from weft.testbed.node_daemon.daemon import Daemon
from weft.testbed.node_daemon.daemon_set import Daemons
from weft.testbed.node_daemon.linux_capabilities import NodeMaps
from weft.testbed.node_daemon.loop import Loop
from weft.testbed.runs import private_files

REHEARSALS, TURNS = 8, 10


def rehearse(directory: Path, daemons: Daemons) -> None:
    """Let a few neighbouring daemons route at a quick pace, and remove their traces.

    Python specializes code that runs often.  Specialized code writes less, to reference counts and
    caches, so that forked children share more pages; each saves a quarter of its own memory.

    Nothing is rehearsed where daemons do more than set routes, or where routes of earlier daemons
    carry traffic.
    """
    if next(iter(daemons.configs.values())).needs:
        return
    groups = (
        [config.node, *(config.ports[0][1][:2] if config.ports else ())]
        for config in daemons.configs.values()
    )
    # neighbours may be on another machine
    nodes = next((group for group in groups if set(group) <= set(daemons.configs)), [])
    if not nodes:
        return
    private_files.make_folder(directory)
    for _ in range(REHEARSALS):
        if not _run_once(_make_daemons(directory, daemons, nodes)):
            break
    for folder in (directory / "log", directory):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def _make_daemons(directory: Path, daemons: Daemons, nodes: list[int]) -> list[Daemon]:
    interfaces = [daemons.interfaces[node] for node in nodes]
    return [
        Daemon(
            directory,
            daemons.interfaces[node],
            replace(daemons.configs[node], interval_ms=1),
            memoryview(bytearray(WORDS * 8)).cast("Q"),
            credentials,
            NodeMaps(),
        )
        for node, credentials in zip(nodes, rehearsed(interfaces), strict=True)
    ]


def _run_once(rehearsing: list[Daemon]) -> bool:
    """Run the daemons for a few turns; return False if they inherited routes, which stay."""
    loop = Loop(rehearsing)
    if any(daemon.inherited for daemon in rehearsing):
        loop.end("nothing to rehearse")
        return False
    loop.start()
    for _ in range(TURNS):
        loop.turn()
    for daemon in rehearsing:
        daemon.forget_routes()
    loop.end("rehearsed")
    return True
