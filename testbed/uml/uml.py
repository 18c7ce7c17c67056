"""Run a command under User-Mode Linux: a kernel as an ordinary process, without root or an image.

Debian's kernel for it has netem, RED and DCTCP as modules.  Its root is the host's own
files, read-only under an overlay that is discarded.  Only the current folder is writable.  The
command is root inside, on one processor, with fresh /tmp and /run and only the loopback.  A system
call takes 65 times as long as outside: delays are exact, but measured processor times mean nothing.

uml-init.sh is the first process inside.  It shares a temporary folder with this one: it reads
`mounts`, `modules` and `command`, and writes `booted` and `status`.  Two consoles carry the output,
a third the kernel's messages.  Two libraries are preloaded: uml_xstate.c for processors with AMX,
and uml_confine.c, because a command inside could mount any folder of the host and write to it.

With a VirtualClock the kernel is that of virtual_kernel.py, computing takes no time, and every boot
with the same seed is alike.  The kernel's command line, which seeds random numbers, names no path
of the host, and output goes to files in the common folder.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import select
import selectors
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from weft.testbed.linux import clock
from weft.testbed.uml import virtual_kernel
from weft.testbed.uml.host_questions import OutsideHost

KERNEL = "linux.uml"
# environment variables of the host that reach a command whose runs are alike
REPEATABLE = ("PATH", "PYTHONPATH", "NUMBA_CACHE_DIR", "VIRTUAL_ENV", "SUDO_UID", "SUDO_GID")
OUTPUT_POLL_MS = 50  # interval between copies of output in files
QUESTION_POLL_MS = 5  # interval between looks for questions to the host
INSIDE = "WEFT_UML"  # environment variable of all processes inside
PACKET_BYTES = 1600  # the most that fits between two instances
FIRST_DESCRIPTOR = 10  # that GUARD leaves alone
FRESH = (Path("/tmp"), Path("/run"), Path("/dev/shm"))  # empty inside but for mounts
HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
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
# removed.
GUARD = """
exec 3<&0
common=$1; memory=$2; shift 2
setsid "$@" 3<&- &
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
    """

    seed: int = 1
    syscall_ns: int = 0

    def arguments(self) -> list[str]:
        """Return the arguments for the kernel's command line."""
        calls = [f"time_travel.syscall_ns={self.syscall_ns}"] if self.syscall_ns else []
        return [*VIRTUAL_TIME, *calls, f"uml-seed={self.seed}"]


@dataclass
class Exchange:
    """Texts that a command inside reads and writes, by the names of their files in /run/uml.

    inputs: for the command.
    result_names: files that it may leave.
    results: those that it has left.
    """

    inputs: Mapping[str, str]
    result_names: Sequence[str]
    results: dict[str, str] = field(default_factory=dict)

    def collect(self, common: Path) -> None:
        """Read the results in the folder `common`."""
        for name in self.result_names:
            with suppress(FileNotFoundError):
                self.results[name] = (common / name).read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class UmlSettings:
    """Settings of a run under User-Mode Linux.

    virtual: clock inside; None: real time.
    memory_mb: memory of the kernel.
    core: processor of the kernel, because system calls cost four times more if it moves; None: one
        that this process may use.
    timeout_s: in real time.
    stall_s: processor time after which a virtual clock that stands still is an error.
    cwd: folder of the command; None: that of this process.  It is writable, and so is the project
        if it contains `cwd`.
    env: environment of the command; None: that of this process.  Under a virtual clock only
        repeatable() passes.
    stdout, stderr: sinks of its output; None: those of this process.
    exchange: texts in and out; if set, only /run/uml is writable.
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
    env: Mapping[str, str] | None = None
    stdout: BinaryIO | None = None
    stderr: BinaryIO | None = None
    exchange: Exchange | None = None
    host: OutsideHost | None = None
    network: int | None = None

    def files(self, argv: Sequence[str]) -> dict[str, str]:
        """Return the files of the common folder from which init starts `argv`."""
        folder = (self.cwd or Path.cwd()).resolve()
        environment = os.environ if self.env is None else self.env
        if self.virtual:
            environment = repeatable(environment)
        files = {
            "mounts": _mounts(folder, self.writable()),
            "command": _command(argv, folder, environment),
        }
        return files | dict(self.exchange.inputs if self.exchange else {})

    def writable(self) -> list[Path]:
        """Return the host's folders that the command may write to."""
        if self.exchange:
            return []
        folder = (self.cwd or Path.cwd()).resolve()
        root = PROJECT if folder.is_relative_to(PROJECT) else folder
        if root in (Path("/"), *FRESH) or "\n" in str(root):
            raise ValueError(
                f"User-Mode Linux makes the current folder writable, so it cannot be "
                f"{str(folder)!r}: use one of yours, without a line break in its name"
            )
        return [root]


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
        status = Machine(common, Path(memory), kernel, core, uml).boot(deadline)
        if uml.exchange:
            uml.exchange.collect(common)
        return status


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
    """Return the kernel to boot; raise FileNotFoundError with the way to get it."""
    if not PRELOADED.exists():
        raise FileNotFoundError(f"{PRELOADED.name} is missing: make setup")
    if virtual:
        return str(virtual_kernel.require())
    if not installed():
        raise FileNotFoundError(
            f"no {KERNEL} here: Debian has it in the package user-mode-linux, Ubuntu has none"
        )
    return KERNEL


@contextmanager
def _common_folder(files: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folder that host and init share, with `files`."""
    with tempfile.TemporaryDirectory(prefix="weft-uml-") as name:
        common = Path(name)
        shutil.copy(HERE / "uml-init.sh", common / "init")
        shutil.copy(HERE / "modules.txt", common / "modules")
        shutil.copy(PRELOADED, common)
        for file, text in files.items():
            (common / file).write_text(text)
        yield common


def _mounts(folder: Path, writable: Sequence[Path]) -> str:
    """Return the host's folders to mount inside as an fstab(5), outer ones first."""
    hidden = _hidden() if writable else _hidden(folder)
    modes = dict.fromkeys(hidden, "ro") | dict.fromkeys(writable, "rw")
    return "".join(_mount_line(folder, modes[folder]) for folder in sorted(modes))


def _mount_line(folder: Path, mode: str) -> str:
    """Return the line of fstab(5) that mounts a folder of the host."""
    escaped = str(folder).replace("\\", "\\134").replace(" ", "\\040")
    return f"none {escaped} hostfs {mode},X-mount.mkdir,{escaped} 0 0\n"


def _hidden(*more: Path) -> list[Path]:
    """Return the host's folders that the overlay does not show, because they lie in FRESH."""
    needed = sorted({PROJECT, Path(sys.prefix), *more})
    return [folder for folder in needed if any(folder.is_relative_to(fresh) for fresh in FRESH)]


def _command(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Return the line of a shell that runs `argv` in `folder` with `environment`."""
    # TMPDIR may not exist inside
    inside = {name: value for name, value in environment.items() if name != "TMPDIR"}
    # the PATH of a user has no ip and tc
    inside["PATH"] = f"{inside.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
    inside["SUDO_UID"] = str(os.getuid())  # git compares the owner of files with it
    inside[INSIDE] = "1"
    assignments = [f"{name}={value}" for name, value in inside.items()]
    return (
        f"cd {shlex.quote(str(folder))} && exec env --ignore-environment "
        f"{shlex.join([*assignments, *argv])}\n"
    )


@dataclass(frozen=True)
class Machine:
    """One instance of a kernel.

    common: folder that it shares with this process.
    memory: folder of the unnamed file that is its memory.
    kernel: its program.
    core: its processor.
    """

    common: Path
    memory: Path
    kernel: str
    core: int
    uml: UmlSettings

    def boot(self, deadline: float) -> int:
        """Boot, copy output to the sinks, and return the status that uml-init.sh left."""
        sinks = [self.uml.stdout or sys.stdout.buffer, self.uml.stderr or sys.stderr.buffer]
        if self.uml.virtual:
            return self._boot_virtual(self.uml.virtual, deadline, sinks)
        return self._boot_real(deadline, sinks)

    def _boot_real(self, deadline: float, sinks: Sequence[BinaryIO]) -> int:
        """Boot with output over consoles."""
        consoles = [os.pipe() for _ in sinks]
        arguments = [
            f"con{number}=null,fd:{fd}" for number, (_, fd) in enumerate(consoles, start=1)
        ]
        descriptors = [fd for _, fd in consoles]
        if self.uml.network is not None:
            network = fcntl.fcntl(self.uml.network, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)
            arguments.append(f"vec0:transport=fd,fd={network},mtu={PACKET_BYTES}")
            descriptors.append(network)
        process = self._start(str(self.common), arguments, pass_fds=descriptors)
        assert process.stdout
        messages = io.BytesIO()
        pipes: dict[int, BinaryIO] = {process.stdout.fileno(): messages}
        for descriptor in descriptors:
            os.close(descriptor)
        for (reader, _), sink in zip(consoles, sinks, strict=True):
            pipes[reader] = sink
        try:
            _pass_on(pipes, deadline)
        finally:
            with process:  # closes its pipes, which ends it if it has not ended, and waits
                for reader, _ in consoles:
                    os.close(reader)
        return self._status(messages)

    def _boot_virtual(
        self, virtual: VirtualClock, deadline: float, sinks: Sequence[BinaryIO]
    ) -> int:
        """Boot with output to files in the common folder."""
        process = self._start("/proc/self/cwd", virtual.arguments())
        assert process.stdout
        messages = io.BytesIO()
        with ExitStack() as stack:
            tails = []
            for name, sink in zip(("out", "err"), sinks, strict=True):
                (self.common / name).touch()
                tails.append((stack.enter_context(open(self.common / name, "rb")), sink))
            stack.enter_context(process)
            console = process.stdout.fileno()
            os.set_blocking(console, False)
            self._follow(console, tails, messages, deadline)
        return self._status(messages)

    def _follow(
        self,
        console: int,
        tails: Sequence[tuple[BinaryIO, BinaryIO]],
        messages: BinaryIO,
        deadline: float,
    ) -> None:
        """Copy output and answer questions until the kernel ends; raise TimeoutError."""
        host = self.uml.host
        poll = select.poll()
        poll.register(console, select.POLLIN)
        poll_ms = QUESTION_POLL_MS if host else OUTPUT_POLL_MS
        over = False
        while not over:
            try:
                over = _ended(console, poll.poll(poll_ms), messages)
                _copy(tails)
                if host:
                    host.attend(self.common, partial(_copy, tails))
            except KeyboardInterrupt:
                if not host:
                    raise
                host.interrupt(self.common)
            if clock.monotonic() > deadline:
                raise TimeoutError
        _copy(tails)

    def _start(
        self, common: str, arguments: Sequence[str], pass_fds: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        kernel = [
            self.kernel,
            f"mem={self.uml.memory_mb}M",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "quiet",
        ]
        kernel += [f"init={common}/init", f"weft_uml={common}", f"uml_dir={common}/", "umid=uml"]
        kernel += ["con=null", "ssl=null", "con0=null,fd:1", *arguments]
        # without random addresses, which would change the random numbers under a virtual clock
        pinned = ["setarch", "--addr-no-randomize", "taskset", "--cpu-list", str(self.core)]
        folders = [self.common, self.memory]
        writable = "\n".join(map(str, [*folders, "/dev/null", *self.uml.writable()]))
        environment = [
            f"TMPDIR={self.memory}",
            f"LD_PRELOAD={self.common / PRELOADED.name}",
            f"WEFT_WRITABLE={writable}",
            f"TIME_TRAVEL_STALL_S={self.uml.stall_s}",
        ]
        command = [*map(str, folders), *pinned, "env", *environment, *kernel]
        return subprocess.Popen(
            ["sh", "-c", GUARD, "weft-uml", *command],
            cwd=self.common,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=pass_fds,
            start_new_session=True,
        )

    def _status(self, messages: io.BytesIO) -> int:
        with suppress(FileNotFoundError, ValueError):
            return int((self.common / "status").read_text())
        text = messages.getvalue().decode(errors="replace").strip()[-2000:] or "no message"
        if stalled := STALLED.search(text):
            raise ChildProcessError(
                f"the virtual clock stands still: process {stalled[1].strip()} has computed for "
                f"{self.uml.stall_s} s; it must sleep or poll, or run on the real clock"
            )
        kind = ChildProcessError if (self.common / "booted").exists() else DiedBooting
        raise kind(f"User-Mode Linux died: {text}")


def _ended(console: int, ready: Sequence[tuple[int, int]], messages: BinaryIO) -> bool:
    """Read the kernel's messages; return True at their end."""
    if not ready:
        return False
    chunk = os.read(console, 1 << 16)
    messages.write(chunk)
    return not chunk


def _copy(tails: Sequence[tuple[BinaryIO, BinaryIO]]) -> None:
    """Copy what each file has gained to its sink."""
    for file, sink in tails:
        if chunk := file.read():
            sink.write(chunk)
            sink.flush()


def _pass_on(pipes: Mapping[int, BinaryIO], deadline: float) -> None:
    """Copy each pipe to its sink until no writer is left; raise TimeoutError at `deadline`."""
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            remaining_s = deadline - clock.monotonic()
            ready = selector.select(remaining_s) if remaining_s > 0 else []
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                sink = pipes[key.fd]
                if chunk := os.read(key.fd, 1 << 16):
                    sink.write(chunk)
                    sink.flush()
                else:
                    selector.unregister(key.fd)


def _folder_for_memory(memory_mb: int) -> str:
    """Return a folder in memory if it has room and code may run from it, or else one on a disk."""
    shared = "/dev/shm"
    with suppress(FileNotFoundError):
        status = os.statvfs(shared)
        room_bytes = status.f_bavail * status.f_frsize
        if room_bytes >= memory_mb << 20 and not status.f_flag & os.ST_NOEXEC:
            return shared
    return tempfile.gettempdir()
