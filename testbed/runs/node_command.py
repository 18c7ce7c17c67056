"""Start a program at a node: in its namespace, with its host name and its own shared memory.

`ip netns exec` also gives it the run's /etc/hosts; see hosts_file.py.  Programs of one node share
/dev/shm, a folder of the run's directory; those of different nodes share nothing.  Host name and
System V's shared memory belong to a start, so that nothing remains when its processes have ended.

A script of the run starts programs at other nodes as ssh does.  Open MPI and MPICH find it in the
environment.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from weft.testbed.runs.run import DEFAULT, ENVIRONMENT, RunRecord

SHARED_MEMORY = "shm"  # folder in the run's directory
REMOTE_SHELL = "rsh"  # script there
MODE = 0o700
START = (
    'echo "$0" >/proc/sys/kernel/hostname && mkdir -p "$1" && mount --bind "$1" /dev/shm && '
    'shift && exec "$@"'
)


def command(run: RunRecord, node: str, argv: Sequence[str]) -> list[str]:
    """Return the command that starts `argv` at the node called `node`."""
    memory = run.directory / SHARED_MEMORY / node
    own = ["unshare", "--uts", "--ipc", "sh", "-c", START, node, str(memory)]
    return ["ip", "netns", "exec", run.namespace(node), *own, *argv]


def environment(run: RunRecord) -> dict[str, str]:
    """Return the variables of programs at nodes: the run, and how MPI starts programs elsewhere.

    Open MPI takes every node for a machine of its own: it would bind the first rank of each to
    the first processor, and let idle ranks keep their processors busy.
    """
    shell = str(run.directory / REMOTE_SHELL)
    return {
        ENVIRONMENT: run.id,
        DEFAULT: run.id,
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": shell,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_orte_tmpdir_base": str(run.directory),
        "OMPI_MCA_plm_rsh_agent": shell,
    }


def join(pid: int, argv: Sequence[str]) -> list[str]:
    """Return the command that starts `argv` beside process `pid`, which command() started."""
    return ["nsenter", "--target", str(pid), "--uts", "--ipc", *argv]


def remote_line(words: Sequence[str]) -> list[str]:
    """Return the command for `words` as ssh takes them: one line, for a shell."""
    return ["sh", "-c", " ".join(words)]


def write_remote_shell(run: RunRecord) -> None:
    """Write the script that does what `weft exec NODE WORDS` does, and starts faster."""
    path = run.directory / REMOTE_SHELL
    start = shlex.join(command(run, "NODE", ["sh", "-c"])).replace("NODE", '"$node"')
    path.write_text(f'#!/bin/sh\nnode=$1\nshift\nexec {start} "$*"\n')
    path.chmod(MODE)
