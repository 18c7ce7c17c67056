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

from weft.testbed.linux import clock
from weft.testbed.runs.run import DEFAULT, ENVIRONMENT, RunRecord

# Open MPI takes every node for a machine of its own, and would bind the first rank of each to the
# first processor.
HOST_SETTINGS = {
    "HYDRA_LAUNCHER": "rsh",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}
# Ranks use TCP and nothing else.  In the protocol "put" of Open MPI requests of one direction wait
# behind data of the other, so ranks send (docs/mpi.md).  A thread of UCX that spins for a lock
# would stop the virtual clock, so it takes a mutex.
TRANSPORT_SETTINGS = {
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_btl_tcp_flags": "send",
    "OMPI_MCA_pml": "ob1",
    "UCX_TLS": "self,tcp",
    "UCX_USE_MT_MUTEX": "y",
}
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
    """Return the variables of programs at nodes: the run, and the settings of MPI."""
    shell = str(run.directory / REMOTE_SHELL)
    return {
        ENVIRONMENT: run.id,
        DEFAULT: run.id,
        **HOST_SETTINGS,
        **TRANSPORT_SETTINGS,
        "HYDRA_LAUNCHER_EXEC": shell,
        # an idle rank leaves the processor to others; under the virtual clock it polls often
        "OMPI_MCA_mpi_yield_when_idle": str(int(not clock.is_virtual())),
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
