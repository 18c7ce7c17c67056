"""Run a command under User-Mode Linux: a whole kernel as an ordinary process, without root and
without an image.

Debian's kernel for it has what this one may lack (netem, RED, DCTCP, VRF, MPLS, ...) as modules.
Its root is the host's own files, read-only under an overlay that forgets; the current folder is
writable and really the host's. Inside, one is root, on one processor, with fresh /tmp and /run and
no network but the loopback.  Computing costs what it costs outside, a system call about 65 times as
much: delays are exact, a measurement of CPU time means nothing there.

uml-init.sh is the first process inside.  The two meet in a temporary folder: it reads `mounts`,
`modules` and `command` and leaves `booted` and `status`.  Output comes back over two consoles; a
third carries what the kernel has to say.

uml_xstate.c is preloaded into the kernel, without which it cannot run on processors with AMX.

With a VirtualClock the kernel is ours (virtual_kernel.py), computing takes no time, and whatever
happens inside is the same in every boot with the same seed.  Its command line, from which it seeds
random numbers, names no path of the host, and output goes to files in the common folder.
"""

from __future__ import annotations

import io
import os
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
from typing import BinaryIO

from weft.testbed.linux import clock
from weft.testbed.uml import virtual_kernel
from weft.testbed.uml.host_questions import OutsideHost

KERNEL = "linux.uml"
KEPT = (
    "PATH",
    "PYTHONPATH",
    "NUMBA_CACHE_DIR",
    "VIRTUAL_ENV",
    "SUDO_UID",
    "SUDO_GID",
)  # of the environment, where runs must be equal
TAIL_MS = 50  # how often output in files is passed on
ASKED_MS = 5  # how often it is looked whether the host is asked something
INSIDE = "WEFT_UML"  # set in the environment of everything that runs inside
FRESH = (Path("/tmp"), Path("/run"), Path("/dev/shm"))  # empty inside but for what is mounted there
HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
PRELOADED = HERE / "uml_xstate.so"

# Runs the kernel, which leads a process group of helpers that outlive it if it is killed: the whole
# group ends with it, and should we be killed, which closes our end of standard input, the group and
# the folder go too.
GUARD = """
exec 3<&0
folder=$1; shift
setsid "$@" 3<&- &
kernel=$!
(read -r nothing <&3; rm -r "$folder"; kill -KILL "$kernel" -"$kernel" 2>/dev/null) &
wait "$kernel"
kill -KILL -"$kernel" 2>/dev/null
kill -KILL 0
"""


@dataclass(frozen=True, kw_only=True)
class VirtualClock:
    """Settings of the virtual clock, under which computing takes no time.

    seed: of every random number inside.
    start_s: wall clock at boot, in s since 1970.
    read_ns, error_ns: time taken by a reading of the clock and by a failed system call.  With 1 ns
        hosts are practically infinitely fast.
    syscall_ns: time that a process sleeps after each system call, as if it had its own processor.
    """

    seed: int = 1
    start_s: int = 1_700_000_000
    read_ns: int = 1
    error_ns: int = 1
    syscall_ns: int = 0

    def arguments(self) -> list[str]:
        """Return the arguments for the kernel's command line."""
        times = [f"time-travel-read={self.read_ns}", f"time-travel-error={self.error_ns}"]
        times += [f"time-travel-syscall={self.syscall_ns}"] if self.syscall_ns else []
        start = f"time-travel-start={self.start_s}{'0' * 9}"
        return [
            "weft_virtual=1",
            "time-travel=inf-cpu",
            start,
            *times,
            f"uml-seed={self.seed}",
            "ifb.classify=1",
        ]


@dataclass
class Exchange:
    """Texts that a command inside is given, and those that it leaves, by the names of their files
    in /run/uml.

    wanted: what to take; `taken` has those that there are.
    """

    given: Mapping[str, str]
    wanted: Sequence[str]
    taken: dict[str, str] = field(default_factory=dict)

    def take(self, common: Path) -> None:
        """Read what was left in the folder `common`."""
        for name in self.wanted:
            with suppress(FileNotFoundError):
                self.taken[name] = (common / name).read_text(encoding="utf-8")


class DiedBooting(ChildProcessError):
    """User-Mode Linux ended before it had started the command."""


def installed() -> bool:
    """Return whether this machine has User-Mode Linux."""
    return shutil.which(KERNEL) is not None


def run(
    argv: Sequence[str],
    *,
    virtual: VirtualClock | None = None,
    memory_mb: int = 1500,
    core: int | None = None,
    timeout_s: float = 600.0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: BinaryIO | None = None,
    stderr: BinaryIO | None = None,
    exchange: Exchange | None = None,
    host: OutsideHost | None = None,
) -> int:
    """The exit status of `argv` under User-Mode Linux; 128 + n if signal n ended it.

    It stays on processor `core`, as system calls cost four times more when it wanders; default: one
    of those that this process may use.  What it prints goes to `stdout` and `stderr` (default:
    ours) as it comes; it reads nothing, but under a virtual clock may ask the `host`.  `cwd`
    (default: ours) is writable, as is the project if `cwd` lies in it. `env` (default: ours) is its
    environment; under a `virtual` clock no more of it than what says where programs are. With an
    `exchange` nothing of the host is writable but the folder /run/uml, which holds what is given
    and of which is taken what was asked for.

    Raises ValueError for a core or folder that cannot be, FileNotFoundError without User-Mode
    Linux, TimeoutError after `timeout_s` of real time, ChildProcessError with its last words if
    User-Mode Linux itself dies.
    """
    core = _core(core)
    kernel = _kernel(virtual)
    folder = (cwd or Path.cwd()).resolve()
    environment = os.environ if env is None else env
    command = _command(argv, folder, repeatable(environment) if virtual else environment)
    files = {"mounts": _mounts(folder, writable=exchange is None), "command": command}
    files |= exchange.given if exchange else {}
    sinks = [stdout or sys.stdout.buffer, stderr or sys.stderr.buffer]
    deadline = clock.monotonic() + timeout_s
    try:
        for last in (False, True):
            with _common_folder(files) as common:
                process = Machine(common, kernel, memory_mb, core)
                try:
                    status = process.boot(virtual, deadline, sinks, host)
                    if exchange:
                        exchange.take(common)
                    return status
                except DiedBooting:  # once in a while, for no reason that the next boot would share
                    if last:
                        raise
    except TimeoutError:
        raise TimeoutError(
            f"User-Mode Linux: {shlex.join(argv)}: not done after {timeout_s:g} s"
        ) from None
    raise AssertionError("the last attempt returns or raises")


def repeatable(environment: Mapping[str, str]) -> dict[str, str]:
    """What of `environment` a command gets whose every run must be the same."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in KEPT or name.startswith("WEFT_")
    }
    return {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        **kept,
    }


def _core(asked: int | None) -> int:
    cores = sorted(os.sched_getaffinity(0))
    if asked is None:
        return cores[os.getpid() % len(cores)]
    if asked not in cores:
        raise ValueError(f"core {asked}: this process may use {', '.join(map(str, cores))}")
    return asked


def _kernel(virtual: VirtualClock | None) -> str:
    """The kernel to boot; FileNotFoundError says how to get it."""
    if not PRELOADED.exists():
        raise FileNotFoundError(f"{PRELOADED.name} is not there: make setup")
    if virtual:
        return str(virtual_kernel.require())
    if not installed():
        raise FileNotFoundError(
            f"no {KERNEL} here: Debian has it in the package user-mode-linux, Ubuntu has none"
        )
    return KERNEL


@contextmanager
def _common_folder(files: Mapping[str, str]) -> Iterator[Path]:
    """Where host and init meet, with `files` in it."""
    with tempfile.TemporaryDirectory(prefix="weft-uml-") as name:
        common = Path(name)
        shutil.copy(HERE / "uml-init.sh", common / "init")
        shutil.copy(HERE / "modules.txt", common / "modules")
        shutil.copy(PRELOADED, common)
        for file, text in files.items():
            (common / file).write_text(text)
        yield common


def _mounts(folder: Path, *, writable: bool = True) -> str:
    """The host's folders that are mounted inside, one a line after its mode, outer ones first."""
    if not writable:
        return "".join(f"ro {hidden}\n" for hidden in _hidden(folder))
    root = PROJECT if folder.is_relative_to(PROJECT) else folder
    if root in (Path("/"), *FRESH):
        raise ValueError(
            f"User-Mode Linux makes the current folder writable, so it cannot be {folder}: "
            f"use one of yours"
        )
    modes = dict.fromkeys(_hidden(), "ro") | {root: "rw"}
    return "".join(f"{modes[folder]} {folder}\n" for folder in sorted(modes))


def _hidden(*more: Path) -> list[Path]:
    """What of the host is needed and lies in a folder that is fresh inside; all else is seen
    through the overlay.
    """
    needed = sorted({PROJECT, Path(sys.prefix), *more})
    return [folder for folder in needed if any(folder.is_relative_to(fresh) for fresh in FRESH)]


def _command(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """A shell's line that becomes `argv` in `folder` with `environment`."""
    # it may not exist there
    inside = {name: value for name, value in environment.items() if name != "TMPDIR"}
    # a user has no ip and tc there
    inside["PATH"] = f"{inside.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
    inside["SUDO_UID"] = str(os.getuid())  # root inside owns what this user does outside; git asks
    inside[INSIDE] = "1"
    assignments = [f"{name}={value}" for name, value in inside.items()]
    return (
        f"cd {shlex.quote(str(folder))} && exec env --ignore-environment "
        f"{shlex.join([*assignments, *argv])}\n"
    )


@dataclass(frozen=True)
class Machine:
    """One instance of `kernel` with `memory_mb` on processor `core`, which meets us in the folder
    `common`.
    """

    common: Path
    kernel: str
    memory_mb: int
    core: int

    def boot(
        self,
        virtual: VirtualClock | None,
        deadline: float,
        sinks: Sequence[BinaryIO],
        host: OutsideHost | None = None,
    ) -> int:
        """Boot, pass output on, and return the status that uml-init.sh left."""
        return (
            self._boot_virtual(virtual, deadline, sinks, host)
            if virtual
            else self._boot_real(deadline, sinks)
        )

    def _boot_real(self, deadline: float, sinks: Sequence[BinaryIO]) -> int:
        """Where output comes over consoles."""
        consoles = [os.pipe() for _ in sinks]
        arguments = [
            f"con{number}=null,fd:{fd}" for number, (_, fd) in enumerate(consoles, start=1)
        ]
        process = self._start(str(self.common), arguments, pass_fds=[fd for _, fd in consoles])
        assert process.stdout
        said = io.BytesIO()
        pipes: dict[int, BinaryIO] = {process.stdout.fileno(): said}
        for (reader, writer), sink in zip(consoles, sinks, strict=True):
            os.close(writer)
            pipes[reader] = sink
        try:
            _pass_on(pipes, deadline)
        finally:
            with process:  # closes its pipes, which ends it if it has not ended, and waits
                for reader, _ in consoles:
                    os.close(reader)
        return self._status(said)

    def _boot_virtual(
        self,
        virtual: VirtualClock,
        deadline: float,
        sinks: Sequence[BinaryIO],
        host: OutsideHost | None,
    ) -> int:
        """Where output goes to files in the common folder."""
        process = self._start("/proc/self/cwd", virtual.arguments())
        assert process.stdout
        said = io.BytesIO()
        with ExitStack() as stack:
            tails = []
            for name, sink in zip(("out", "err"), sinks, strict=True):
                (self.common / name).touch()
                tails.append((stack.enter_context(open(self.common / name, "rb")), sink))
            stack.enter_context(process)
            console = process.stdout.fileno()
            os.set_blocking(console, False)
            poll = select.poll()
            poll.register(console, select.POLLIN)
            over = False
            while not over:
                try:
                    over = _ended(console, poll.poll(ASKED_MS if host else TAIL_MS), said)
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
        return self._status(said)

    def _start(
        self, common: str, arguments: Sequence[str], pass_fds: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        kernel = [
            self.kernel,
            f"mem={self.memory_mb}M",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "quiet",
        ]
        kernel += [f"init={common}/init", f"weft_uml={common}", f"uml_dir={common}/", "umid=uml"]
        kernel += ["con=null", "ssl=null", "con0=null,fd:1", *arguments]
        # Without random addresses, which a virtual clock's random numbers would depend on.
        pinned = ["setarch", "--addr-no-randomize", "taskset", "--cpu-list", str(self.core)]
        return subprocess.Popen(
            ["sh", "-c", GUARD, "weft-uml", str(self.common), *pinned, *kernel],
            cwd=self.common,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=pass_fds,
            env=os.environ
            | {
                "TMPDIR": _folder_for_memory(self.memory_mb),
                "LD_PRELOAD": str(self.common / PRELOADED.name),
            },
            start_new_session=True,
        )

    def _status(self, said: io.BytesIO) -> int:
        with suppress(FileNotFoundError, ValueError):
            return int((self.common / "status").read_text())
        kind = ChildProcessError if (self.common / "booted").exists() else DiedBooting
        raise kind(
            f"User-Mode Linux died: "
            f"{said.getvalue().decode(errors='replace').strip()[-2000:] or 'not a word'}"
        )


def _ended(console: int, ready: Sequence[tuple[int, int]], said: BinaryIO) -> bool:
    """Take what the kernel has to say; whether it will say no more."""
    if not ready:
        return False
    chunk = os.read(console, 1 << 16)
    said.write(chunk)
    return not chunk


def _copy(tails: Sequence[tuple[BinaryIO, BinaryIO]]) -> None:
    """Pass on what has been added to each file."""
    for file, sink in tails:
        if chunk := file.read():
            sink.write(chunk)
            sink.flush()


def _pass_on(pipes: Mapping[int, BinaryIO], deadline: float) -> None:
    """Write what comes out of each pipe to its sink until no writer is left.

    TimeoutError at `deadline`.
    """
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left_s = deadline - clock.monotonic()
            ready = selector.select(left_s) if left_s > 0 else []
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
    """Where the kernel keeps its memory, a file without a name: in memory if there is room and code
    may run from it.
    """
    shared = "/dev/shm"
    with suppress(FileNotFoundError):
        there = os.statvfs(shared)
        if there.f_bavail * there.f_frsize >= memory_mb << 20 and not there.f_flag & os.ST_NOEXEC:
            return shared
    return tempfile.gettempdir()
