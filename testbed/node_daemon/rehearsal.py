"""A few daemons run in vain before the real ones are forked, so that these share more of Python's
memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from weft.testbed.node_daemon.counters import WORDS
from weft.testbed.node_daemon.credentials import rehearsed
from weft.testbed.node_daemon.daemon_set import Daemons
from weft.testbed.node_daemon.loop import Loop
from weft.testbed.node_daemon.make_daemon import NO_PROGRAMS
from weft.testbed.runs import private_files

REHEARSALS, TURNS = 8, 10


def rehearse(directory: Path, daemons: Daemons) -> None:
    """Let a few neighbours route at a quick pace, several times over, and leave no trace.

    Python rewrites what runs often into forms that write less: no counts of references to names, no
    entries in caches. What has been rewritten here the children share; it saves each a quarter of
    its own memory.  Where there is traffic to lose, because daemons before these have left routes,
    and where a daemon does more than set routes, nothing is rehearsed.
    """
    first = next(iter(daemons.configs.values()))
    if first.needs:
        return
    private_files.make_folder(directory)
    nodes = [first.node, *(first.ports[0][1][:2] if first.ports else ())]
    for _ in range(REHEARSALS):
        quick = [replace(daemons.configs[node], interval_ms=1) for node in nodes]
        cells = [memoryview(bytearray(WORDS * 8)).cast("Q") for _ in nodes]
        places = [daemons.interfaces[node] for node in nodes]
        made = [
            NO_PROGRAMS.make_daemon(directory, *each)
            for each in zip(places, quick, cells, rehearsed(places), strict=True)
        ]
        loop = Loop(made)
        if any(daemon.inherited for daemon in made):
            loop.end("nothing to rehearse")
            break
        loop.start()
        for _ in range(TURNS):
            loop.turn()
        for daemon in made:
            daemon.forget_routes()
        loop.end("rehearsed")
    for place in (directory / "log", directory):
        for file in place.iterdir():
            file.unlink()
        place.rmdir()
