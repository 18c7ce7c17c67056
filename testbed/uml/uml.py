"""Run a command under User-Mode Linux: a kernel as an ordinary process, without root or an image.

Debian's kernel for it has netem, RED and DCTCP as modules.  Its root is the host's own
files, as far as confinement.py names them, read-only under an overlay that is discarded.  The
command is root inside, on one processor, with fresh /tmp and /run and only the loopback.  A system
call takes 65 times as long as outside: delays are exact, but measured processor times mean nothing.

uml-init.sh is the first process inside.  It reads a folder of this process: `mounts`, `modules` and
`command`.  What it and the command say goes to the files of confinement.py, and the kernel's
messages to a console.  Two libraries are preloaded: uml_xstate.c for processors with AMX, and
uml_confine.c, because a command inside could mount any folder of the host, and might take over its
kernel.

With a VirtualClock the kernel is that of virtual_kernel.py, computing takes no time, and every boot
with the same seed is alike.  The kernel's command line names no path of the host.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from weft.testbed.linux import clock, compiled
from weft.testbed.uml import confinement, virtual_kernel
from weft.testbed.uml.confinement import Channels
from weft.testbed.uml.host_questions import OutsideHost

KERNEL = "linux.uml"
# environment variables of the host that reach a command whose runs are alike
REPEATABLE = ("PATH", "PYTHONPATH", "NUMBA_CACHE_DIR", "VIRTUAL_ENV", "SUDO_UID", "SUDO_GID")
OUTPUT_POLL_MS = 50  # interval between copies of output in files
QUESTION_POLL_MS = 5  # interval between looks for questions to the host
INSIDE = "WEFT_UML"  # environment variable of all processes inside
PACKET_BYTES = 1600  # the most that fits between two instances
FIRST_DESCRIPTOR = 10  # that GUARD leaves alone
MOST_PROCESSES = 2048  # inside, at a time
MESSAGE_BYTES = 1 << 16  # of the kernel's messages, the last of which are kept
COMMON = "/proc/self/cwd"  # the folder that the kernel reads from, seen by the kernel
HERE = Path(__file__).resolve().parent
PROJECT = confinement.PROJECT
# arguments of the kernel: wall clock at boot; 1 ns for a clock reading and for a failed system call
# make hosts practically infinitely fast
VIRTUAL_TIME = (
    "weft_virtual=1",
    "time-travel=inf-cpu",
    "time-travel-start=1700000000000000000",
    "time-travel-read=1",
    "time-travel-error=1",
)
# the kernel's last words if its clock stands still (07-um-stalled-clock.patch)
STALLED = re.compile(r"time-travel: no time passed in .*: process (.*)")
PRELOADED = HERE / "uml_preload.so"

# Runs the kernel, which leads a process group of helpers that would outlive it, and ends the group
# with it.  If this process is killed, its end of standard input closes, and group and folders are
# removed.  The first line of output is the kernel's process id.
GUARD = """
exec 3<&0
common=$1; memory=$2; shift 2
setsid sh -c 'echo $$; exec "$@"' weft-uml "$@" 3<&- &
kernel=$!
(read -r nothing <&3; rm -r "$common" "$memory"; kill -KILL "$kernel" -"$kernel" 2>/dev/null) &
wait "$kernel"
kill -KILL -"$kernel" 2>/dev/null
kill -KILL 0
"""


@dataclass(frozen=True, kw_only=True)
class VirtualClock:
    """Settings of the virtual clock, under which computing takes no time.

    seed: of every random number inside.
    syscall_ns: time that a process sleeps after each system call, as if alone on a processor.
    hop_ns: processor time of each packet that a host or a router receives.
    """

    seed: int = 1
    syscall_ns: int = 0
    hop_ns: int = 0

    def arguments(self) -> list[str]:
        """Return the arguments for the kernel's command line."""
        calls = [f"time_travel.syscall_ns={self.syscall_ns}"] if self.syscall_ns else []
        hops = [f"{clock.HOP_NS}{self.hop_ns}"] if self.hop_ns else []
        return [*VIRTUAL_TIME, *calls, *hops, f"uml-seed={self.seed}"]


@dataclass
class Exchange:
    """Texts for a command inside, and its report.

    inputs: by the names of their files in /run/uml.
    report: what it wrote by host_questions.report(); "" if nothing.
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    report: str = ""


@dataclass(frozen=True, kw_only=True)
class UmlSettings:
    """Settings of a run under User-Mode Linux.

    virtual: clock inside; None: real time.
    memory_mb: memory of the kernel.
    core: processor of the kernel, because system calls cost four times more if it moves; None: one
        that this process may use.
    timeout_s: in real time.
    stall_s: processor time after which a virtual clock that stands still is an error.
    cwd: folder of the command; None: that of this process.
    writable: whether the command may write to `cwd`, and to the project if that contains `cwd`; it
        writes to no other file of the host.
    env: environment of the command; None: that of this process.  Under a virtual clock only
        repeatable() passes.
    stdout, stderr: sinks of its output; None: those of this process.
    exchange: texts in and out.
    host: answers the command's questions under a virtual clock.
    network: descriptor of a socket that carries frames to another instance, as interface vec0; its
        clock is real.
    """

    virtual: VirtualClock | None = None
    memory_mb: int = 1500
    core: int | None = None
    timeout_s: float = 600.0
    stall_s: int = 60
    cwd: Path | None = None
    writable: bool = False
    env: Mapping[str, str] | None = None
    stdout: BinaryIO | None = None
    stderr: BinaryIO | None = None
    exchange: Exchange | None = None
    host: OutsideHost | None = None
    network: int | None = None

    @property
    def folder(self) -> Path:
        """The folder of the command, without links."""
        return (self.cwd or Path.cwd()).resolve()

    def files(self, argv: Sequence[str]) -> dict[str, str]:
        """Return the files of the common folder from which init starts `argv`."""
        environment = os.environ if self.env is None else self.env
        if self.virtual:
            environment = repeatable(environment)
        files = {
            "mounts": confinement.mounts(self.folder, self.writable_folder()),
            "command": _command(argv, self.folder, environment),
        }
        return files | dict(self.exchange.inputs if self.exchange else {})

    def writable_folder(self) -> Path | None:
        """Return the host's folder that the command may write to, if there is one."""
        if not self.writable:
            return None
        root = PROJECT if self.folder.is_relative_to(PROJECT) else self.folder
        if root in (Path("/"), *confinement.fresh()) or "\n" in str(root):
            raise ValueError(
                f"User-Mode Linux makes the current folder writable, so it cannot be "
                f"{str(self.folder)!r}: use one of yours, without a line break in its name"
            )
        return root


class DiedBooting(ChildProcessError):
    """User-Mode Linux ended before it had started the command."""


def installed() -> bool:
    """Return whether this machine has User-Mode Linux."""
    return shutil.which(KERNEL) is not None


def run(argv: Sequence[str], **settings: Any) -> int:
    """Run `argv` under User-Mode Linux.

    Args:
        argv: the command, which reads no input.
        settings: fields of UmlSettings.

    Returns:
        Its exit status; 128 + n if signal n ended it.

    Raises:
        ValueError: the core or folder is unusable.
        FileNotFoundError: User-Mode Linux is not installed.
        TimeoutError: the command has not ended in time.
        ChildProcessError: User-Mode Linux died; the message has its last words, or names the
            process that stops the virtual clock.
    """
    uml = UmlSettings(**settings)
    core = _core(uml.core)
    kernel = _kernel(uml.virtual)
    files = uml.files(argv)
    deadline = clock.monotonic() + uml.timeout_s
    try:
        try:
            return _boot(files, kernel, core, uml, deadline)
        except DiedBooting:  # rare, and the next boot succeeds
            return _boot(files, kernel, core, uml, deadline)
    except TimeoutError:
        raise TimeoutError(
            f"User-Mode Linux: {shlex.join(argv)}: not done after {uml.timeout_s:g} s"
        ) from None


def _boot(
    files: Mapping[str, str], kernel: str, core: int, uml: UmlSettings, deadline: float
) -> int:
    with (
        _common_folder(files) as common,
        tempfile.TemporaryDirectory(
            prefix="weft-uml-", dir=_folder_for_memory(uml.memory_mb)
        ) as memory,
    ):
        return Machine(common, Path(memory), kernel, core, uml).boot(deadline)


def repeatable(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command whose runs are alike, from that of the host."""
    inherited = {
        name: value
        for name, value in environment.items()
        if name in REPEATABLE or name.startswith("WEFT_")
    }
    return {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        **inherited,
    }


def _core(core: int | None) -> int:
    cores = sorted(os.sched_getaffinity(0))
    if core is None:
        return cores[os.getpid() % len(cores)]
    if core not in cores:
        raise ValueError(f"core {core}: this process may use {', '.join(map(str, cores))}")
    return core


def _kernel(virtual: VirtualClock | None) -> str:
    """Return the kernel to boot; raise OSError with the way to get it."""
    compiled.require(PRELOADED)
    if virtual:
        return str(virtual_kernel.require())
    if not installed():
        raise FileNotFoundError(
            f"no {KERNEL} here: Debian has it in the package user-mode-linux, Ubuntu has none"
        )
    return KERNEL


@contextmanager
def _common_folder(files: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folder that init reads from, with `files`."""
    with tempfile.TemporaryDirectory(prefix="weft-uml-") as name:
        common = Path(name)
        shutil.copy(HERE / "uml-init.sh", common / "init")
        shutil.copy(HERE / "modules.txt", common / "modules")
        shutil.copy(PRELOADED, common)
        for file, text in files.items():
            (common / file).write_text(text)
        yield common


def _command(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Return the line of a shell that runs `argv` in `folder` with `environment`."""
    # TMPDIR may not exist inside
    inside = {name: value for name, value in environment.items() if name != "TMPDIR"}
    # the PATH of a user has no ip and tc
    inside["PATH"] = f"{inside.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
    inside["SUDO_UID"] = str(os.getuid())  # git compares the owner of files with it
    inside[INSIDE] = "1"
    words = [f"{name}={value}" for name, value in inside.items()]
    if "=" in argv[0]:  # which env would take for one more value
        words += ["sh", "-c", 'exec "$@"', "sh"]
    return (
        f"cd {shlex.quote(str(folder))} && exec env --ignore-environment "
        f"{shlex.join([*words, *argv])}\n"
    )


class Console:
    """The kernel's process and its last messages; close() it.

    kernel: pidfd of the process, by which alone signals are sent to it; None: it has ended.
    """

    def __init__(self, descriptor: int) -> None:
        """Read the process id from the first line of `descriptor`."""
        self._descriptor = descriptor
        self._messages = b""
        while b"\n" not in self._messages and self._read():
            pass
        number, _, self._messages = self._messages.partition(b"\n")
        self.kernel: int | None = None
        with suppress(ProcessLookupError):
            self.kernel = os.pidfd_open(int(number))
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def has_ended(self, wait_ms: int) -> bool:
        """Wait for messages; return whether the kernel has ended."""
        return bool(self._poll.poll(wait_ms)) and not self._read()

    def text(self) -> str:
        """Return the last messages."""
        return self._messages.decode(errors="replace").strip()[-2000:] or "no message"

    def close(self) -> None:
        """Close the pidfd."""
        if self.kernel is not None:
            os.close(self.kernel)

    def _read(self) -> bool:
        """Read messages; return False at their end."""
        chunk = os.read(self._descriptor, MESSAGE_BYTES)
        self._messages = (self._messages + chunk)[-MESSAGE_BYTES:]
        return bool(chunk)


@dataclass(frozen=True)
class Machine:
    """One instance of a kernel.

    common: folder that the kernel reads from.
    memory: folder of the unnamed file that is its memory, and of its control socket.
    kernel: its program.
    core: its processor.
    """

    common: Path
    memory: Path
    kernel: str
    core: int
    uml: UmlSettings

    def boot(self, deadline: float) -> int:
        """Boot, copy output to the sinks, fill in the report, and return the command's status."""
        sinks = [self.uml.stdout or sys.stdout.buffer, self.uml.stderr or sys.stderr.buffer]
        with Channels(self.common) as ends:
            copy = partial(ends.copy, sinks)
            with self._start() as process:  # its end closes its pipes, which ends the kernel
                assert process.stdout
                with closing(Console(process.stdout.fileno())) as console:
                    self._follow(console, ends, copy, deadline)
            copy()
            status = self._status(ends, console)
            if self.uml.exchange:
                self.uml.exchange.report = ends.report()
            return status

    def _follow(
        self, console: Console, ends: Channels, copy: Callable[[], None], deadline: float
    ) -> None:
        """Copy output and answer questions until the kernel ends; raise TimeoutError."""
        host = self.uml.host
        poll_ms = QUESTION_POLL_MS if host else OUTPUT_POLL_MS
        while True:
            try:
                if console.has_ended(poll_ms):
                    return
                copy()
                if host and console.kernel is not None:
                    host.attend(ends.questions(), console.kernel, self.common, copy)
            except KeyboardInterrupt:
                if not host or not host.is_asked:
                    raise
                host.interrupt(self.common)
            if clock.monotonic() > deadline:
                raise TimeoutError

    def _start(self) -> subprocess.Popen[bytes]:
        arguments, descriptors = [], []
        if self.uml.network is not None:
            network = fcntl.fcntl(self.uml.network, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)
            arguments.append(f"vec0:transport=fd,fd={network},mtu={PACKET_BYTES}")
            descriptors.append(network)
        (self.common / "memory").symlink_to(self.memory)
        (self.common / "rules").write_text(
            confinement.rules(self.common, self.uml.folder, self.uml.writable_folder())
        )
        folders = [str(self.common), str(self.memory)]
        process = subprocess.Popen(
            ["sh", "-c", GUARD, "weft-uml", *folders, *self._command(arguments)],
            cwd=self.common,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=descriptors,
            start_new_session=True,
        )
        for descriptor in descriptors:
            os.close(descriptor)
        return process

    def _command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that becomes the kernel, with more arguments for it."""
        kernel = [
            self.kernel,
            f"mem={self.uml.memory_mb}M",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "quiet",
            f"init={COMMON}/init",
            f"weft_uml={COMMON}",
            f"uml_dir={COMMON}/memory/",
            "umid=uml",
            "con=null",
            "ssl=null",
            "con0=null,fd:1",
        ]
        if self.uml.virtual:
            kernel += self.uml.virtual.arguments()
        # without random addresses, which would change the random numbers under a virtual clock
        pinned = ["setarch", "--addr-no-randomize", "taskset", "--cpu-list", str(self.core)]
        environment = [
            f"TMPDIR={self.memory}",
            f"LD_PRELOAD={self.common / PRELOADED.name}",
            f"WEFT_RULES={self.common / 'rules'}",
            f"WEFT_FILE_BYTES={confinement.FILE_BYTES}",
            f"WEFT_PROCESSES={MOST_PROCESSES}",
            f"TIME_TRAVEL_STALL_S={self.uml.stall_s}",
        ]
        return [*pinned, "env", *environment, *kernel, *arguments]

    def _status(self, ends: Channels, console: Console) -> int:
        """Return the command's status; raise ChildProcessError if there is none."""
        has_booted, status = ends.status()
        if status is not None:
            return status
        text = console.text()
        if stalled := STALLED.search(text):
            raise ChildProcessError(
                f"the virtual clock stands still: process {stalled[1].strip()} has computed for "
                f"{self.uml.stall_s} s; it must sleep or poll, or run on the real clock"
            )
        if "setarch: failed to set personality" in text:
            raise ChildProcessError(
                "a filter of system calls forbids fixed addresses (personality), on which exact "
                "repetition rests; for a container: docker run --security-opt seccomp=unconfined"
            )
        kind = ChildProcessError if has_booted else DiedBooting
        raise kind(f"User-Mode Linux died: {text}")


def _folder_for_memory(memory_mb: int) -> str:
    """Return a folder in memory if it has room and code may run from it, or else one on a disk."""
    shared = "/dev/shm"
    with suppress(FileNotFoundError):
        status = os.statvfs(shared)
        room_bytes = status.f_bavail * status.f_frsize
        if room_bytes >= memory_mb << 20 and not status.f_flag & os.ST_NOEXEC:
            return shared
    return tempfile.gettempdir()
