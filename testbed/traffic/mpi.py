"""Run a program of Open MPI or MPICH over the hosts of a network.

The MPI's own mpirun starts at the host of rank 0, and reaches the others by the run's remote shell
(node_command.py).  A script around each rank records the first rank that fails.  The processes of a
job carry its mark in their environment and end with it, also if this process is killed.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import combinations, groupby
from pathlib import Path
from typing import BinaryIO

from weft.testbed.linux import clock
from weft.testbed.measure.fidelity import FidelityReport, judged
from weft.testbed.measure.ping import ping
from weft.testbed.network import clean
from weft.testbed.runs import node_command, private_files, run_process
from weft.testbed.runs.network_handle import NetworkHandle
from weft.testbed.traffic import tcp

Sink = BinaryIO | int | None  # of output; None: that of this process
JOB = "WEFT_MPI_JOB"  # environment variable: the job that a process belongs to
# a user's variables that reach the ranks
SETTINGS = re.compile(r"(OMPI_MCA|UCX|MPIR_CVAR)_\w+|LD_LIBRARY_PATH")
PINGS = 3  # to a host that does not answer
# bytes of a connection that wait in a port's queue, in front of acknowledgements of the other
# direction; at least two packets, with their bookkeeping, of an MTU of 9000
QUEUED_BYTES = 16384
QUEUED_SYSCTL = "tcp_limit_output_bytes"
QUEUED_PATH = f"ipv4/{QUEUED_SYSCTL}"
# environment variable: time of each system call while a job runs under the virtual clock
SYSCALL_NS = "WEFT_SYSCALL_NS"
SYSCALL_FILE = Path("/sys/module/time_travel/parameters/syscall_ns")  # of that kernel
END_S = 5.0  # time for mpirun to end its ranks
POLL_S = 0.05  # interval between looks for the end
SIGNALLED = 128  # a shell's status for a program that signal n ended is 128 + n
# $0 is the file of the first rank that fails; a second one finds it there
RANK = """#!/bin/sh
"$@"
status=$?
[ "$status" = 0 ] && exit
(set -C; echo "${OMPI_COMM_WORLD_RANK:-$PMI_RANK} $status" >"${0%/*}/failed") 2>/dev/null
exit "$status"
"""


@dataclass(frozen=True)
class Mpi:
    """An implementation of MPI.

    library: pattern of its libraries in the output of ldd.
    version: pattern in the output of its `mpirun --version`.
    launchers: names of its mpirun, after the common one.
    package: of Debian, with the launcher.
    line: of a host file, with the number of ranks.
    tag: option by which lines of output begin with their rank.
    tagged: pattern of such a beginning, for sed; its first group is the rank.
    """

    name: str
    library: str
    version: str
    launchers: tuple[str, ...]
    package: str
    line: str
    options: tuple[str, ...]
    tag: str
    tagged: str


OPEN_MPI = Mpi(
    name="Open MPI",
    library=r"libopen-pal\.so|libmpi\.so\.[2-9]",
    version=r"Open ?MPI|OpenRTE",
    launchers=("mpirun.openmpi", "orterun"),
    package="openmpi-bin",
    line="{host} slots={ranks}",
    options=("--map-by", "slot", "--hostfile"),
    tag="--tag-output",
    tagged=r"^\[[0-9]+,([0-9]+)\]<std(out|err)>:",
)
MPICH = Mpi(
    name="MPICH",
    library=r"libmpich\.so|libmpi\.so\.1",
    version="HYDRA",
    launchers=("mpirun.mpich", "mpiexec.hydra"),
    package="mpich",
    line="{host}:{ranks}",
    options=("-f",),
    tag="-prepend-rank",
    tagged=r"^\[([0-9]+)\] ",
)
COMMON = "mpirun"


@dataclass(frozen=True)
class Launcher:
    """The path of an mpirun, and whose it is."""

    path: str
    mpi: Mpi


@dataclass(frozen=True, kw_only=True)
class MpiJob:
    """A parallel program.

    argv: the program and its arguments.
    hosts: the host of each rank; ranks of a host are consecutive.
    timeout_s: time by the network's clock after which it is ended; None: no limit.
    tagged: lines of output begin with their rank.
    """

    argv: Sequence[str]
    hosts: Sequence[int]
    timeout_s: float | None = None
    tagged: bool = False


@dataclass(frozen=True)
class MpiOutcome:
    """Outcome of a job.

    status: exit status of the first rank that failed, else of mpirun; 128 + n after signal n.
    failed_rank: that rank; None if none failed.
    failure: a line that names the rank, or mpirun, and its status; empty after success.
    fidelity: whether the machine kept up; None under the virtual clock.
    """

    status: int
    failed_rank: int | None = None
    failure: str = ""
    fidelity: FidelityReport | None = None


class UnreachableHosts(OSError):
    """Hosts of a job that cannot reach each other."""


def settings() -> dict[str, str]:
    """Return the variables of this process that are for MPI."""
    return {name: value for name, value in os.environ.items() if SETTINGS.fullmatch(name)}


def require_program(program: str) -> str:
    """Return the path of `program`.

    Raises:
        ValueError: there is none.
    """
    path = shutil.which(program)
    if path is None:
        raise ValueError(f"mpirun: {program} is no program here")
    return os.path.abspath(path)


def launcher_of(path: str) -> Launcher:
    """Return the mpirun of the MPI that the program at `path` is linked with.

    A program that is linked with none, such as Python, takes the common one.

    Raises:
        ValueError: this machine has no such mpirun.
    """
    linked = _output(["ldd", path])
    kinds = [mpi for mpi in (OPEN_MPI, MPICH) if re.search(mpi.library, linked)]
    kinds = kinds or [OPEN_MPI, MPICH]
    for name in (COMMON, *(name for mpi in kinds for name in mpi.launchers)):
        launcher = shutil.which(name)
        version = _output([launcher, "--version"]) if launcher else ""
        for mpi in kinds:
            if launcher and re.search(mpi.version, version):
                return Launcher(launcher, mpi)
    names = " or ".join(mpi.name for mpi in kinds)
    packages = " or ".join(mpi.package for mpi in kinds)
    raise ValueError(f"mpirun: {path} needs mpirun of {names}: apt-get install {packages}")


def _output(argv: Sequence[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def require_reachable(net: NetworkHandle, hosts: Sequence[int]) -> None:
    """Ping every pair of `hosts`.

    Raises:
        UnreachableHosts: a pair has no answer; the message names the first and counts the others.
    """
    pairs = list(combinations(dict.fromkeys(hosts), 2))
    lost = ping(net, pairs, retries=PINGS).lost
    if lost:
        name = net.topology.naming.name
        reason = ", ".join(lost[0].reasons) or "no answer"
        raise UnreachableHosts(
            f"mpirun: {name(lost[0].src)} cannot reach {name(lost[0].dst)} ({reason}): "
            f"{len(lost)} of {len(pairs)} pairs of hosts have no path"
        )


def run(
    net: NetworkHandle,
    job: MpiJob,
    *,
    stdout: Sink = None,
    stderr: Sink = None,
) -> MpiOutcome:
    """Run `job`; no process of it remains.

    Args:
        net: the network.
        job: the program and where it runs.
        stdout: file of its output.
        stderr: file of its messages.

    Raises:
        ValueError: no such program, or no mpirun for it.
        UnreachableHosts: hosts cannot reach each other.
        TimeoutError: the time is over.
    """
    if not job.argv:
        raise ValueError("mpirun: no program; name one, such as hostname")
    path = require_program(job.argv[0])
    launcher = launcher_of(path)
    require_reachable(net, job.hosts)
    with ExitStack() as stack:
        _limit_queued_bytes(stack, net)
        folder = Path(tempfile.mkdtemp(prefix="mpi-", dir=net.identity.directory))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        argv = _command(net, launcher, job, folder, path)
        variables = node_command.environment(net.identity) | settings() | {JOB: str(folder)}
        sinks = [_sink(stack, launcher.mpi, job, sink) for sink in (stdout, stderr)]
        stack.callback(lambda: clean.kill(clean.marked(JOB, str(folder))))
        _charge_calls(stack)
        failed = folder / "failed"
        wait = partial(_wait, argv, os.environ | variables, sinks, job.timeout_s, failed)
        return _outcome(net, job, failed, *_judged(net, wait))


def _judged(net: NetworkHandle, wait: Callable[[], int]) -> tuple[int, FidelityReport | None]:
    """Return what `wait` returns, and the fidelity meanwhile."""
    reports: list[FidelityReport] = []
    with judged(net, reports.append):
        status = wait()
    return status, next(iter(reports), None)


def _limit_queued_bytes(stack: ExitStack, net: NetworkHandle) -> None:
    """Let TCP of the hosts queue QUEUED_BYTES of a connection until `stack` closes.

    The first of several jobs writes the former value to a file, and the last one restores it.  A
    job that is killed leaves this to the next one.
    """
    folder = net.identity.directory
    lock = private_files.open_file(folder / "mpi_jobs", os.O_RDWR | os.O_CREAT)
    stack.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_SH)
    former = folder / "mpi_sysctl"
    stack.callback(_restore_queued_bytes, net, lock, former)
    with suppress(FileExistsError), open(former, "x", encoding="utf-8") as file:
        file.write(tcp.tcp_sysctls(net)[QUEUED_SYSCTL])
        file.flush()
        tcp.tune(net, {QUEUED_PATH: str(QUEUED_BYTES)})


def _restore_queued_bytes(net: NetworkHandle, lock: int, former: Path) -> None:
    """Restore the value in the file `former`, unless another job has the lock or the run ended."""
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if value := former.read_text(encoding="utf-8"):
            tcp.tune(net, {QUEUED_PATH: value})
        former.unlink()


def _charge_calls(stack: ExitStack) -> None:
    """Let system calls take the time in SYSCALL_NS until `stack` closes.

    The calls of weft until then depend on Python's compiled files, on which no job may depend.
    """
    if cost_ns := os.environ.get(SYSCALL_NS):
        stack.callback(SYSCALL_FILE.write_text, "0")
        SYSCALL_FILE.write_text(cost_ns)


def _outcome(
    net: NetworkHandle, job: MpiJob, failed: Path, status: int, fidelity: FidelityReport | None
) -> MpiOutcome:
    """Return the outcome of a job whose mpirun ended with `status`."""
    if not failed.exists():
        failure = f"mpirun ended with {_words(status)}" if status else ""
        return MpiOutcome(status, None, failure, fidelity)
    rank, status = map(int, failed.read_text().split())
    host = net.topology.naming.name(job.hosts[rank])
    failure = f"rank {rank} on {host} ended with {_words(status)}"
    return MpiOutcome(status, rank, failure, fidelity)


def _words(status: int) -> str:
    """Return an exit status in words."""
    with suppress(ValueError):
        if status > SIGNALLED:
            return signal.Signals(status - SIGNALLED).name
    return f"status {status}"


def _command(
    net: NetworkHandle, launcher: Launcher, job: MpiJob, folder: Path, path: str
) -> list[str]:
    """Write the host file and the script of a rank; return the command at the host of rank 0."""
    name = net.topology.naming.name
    lines = [
        launcher.mpi.line.format(host=name(host), ranks=len(list(ranks)))
        for host, ranks in groupby(job.hosts)
    ]
    (folder / "hosts").write_text("".join(f"{line}\n" for line in lines))
    script = folder / "rank"
    script.write_text(RANK)
    script.chmod(node_command.MODE)
    options = [*launcher.mpi.options, str(folder / "hosts"), "-n", str(len(job.hosts))]
    if job.tagged:
        options.append(launcher.mpi.tag)
    argv = [launcher.path, *options, str(script), path, *job.argv[1:]]
    return node_command.command(net.identity, name(job.hosts[0]), argv)


def _sink(stack: ExitStack, mpi: Mpi, job: MpiJob, sink: Sink) -> Sink:
    """Return `sink`, or a pipe into it by which tags of `mpi` become `RANK: `."""
    if not job.tagged:
        return sink
    command = ["sed", "--unbuffered", "--regexp-extended", f"s/{mpi.tagged}/\\1: /"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink)
    stack.callback(process.wait)
    assert process.stdin
    stack.callback(process.stdin.close)
    return process.stdin.fileno()


def _wait(
    argv: Sequence[str],
    variables: Mapping[str, str],
    sinks: Sequence[Sink],
    timeout_s: float | None,
    failed: Path,
) -> int:
    """Run mpirun and return its status; it ends with this process, and after `timeout_s`.

    MPICH's may go on when a rank has failed, so it is ended END_S after that.
    """
    deadline = math.inf if timeout_s is None else clock.monotonic() + timeout_s
    ending = False
    with subprocess.Popen(
        argv,
        env=variables,
        stdin=subprocess.DEVNULL,
        preexec_fn=run_process.end_with_parent,
        stdout=sinks[0],
        stderr=sinks[1],
    ) as process:
        try:
            while process.poll() is None and clock.monotonic() < deadline:
                if failed.exists() and not ending:
                    ending = True
                    deadline = min(deadline, clock.monotonic() + END_S)
                clock.sleep(POLL_S)
        finally:
            over = process.poll() is None
            if over:
                _end(process)
        if over and not failed.exists():
            raise TimeoutError(f"mpirun: not done after {timeout_s:g} s")
    status: int = process.returncode
    return status if status >= 0 else SIGNALLED - status


def _end(process: subprocess.Popen[bytes]) -> None:
    """End mpirun, which ends its ranks if it can."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
