"""Run a command under User-Mode Linux: a whole kernel as an ordinary process, without root and without an image.

Debian's kernel for it has what this one may lack (netem, RED, DCTCP, VRF, MPLS, ...) as modules.  Its root is the
host's own files, read-only under an overlay that forgets; the current folder is writable and really the host's.
Inside, one is root, on one processor, with fresh /tmp and /run and no network but the loopback.  Computing costs what
it costs outside, a system call about 65 times as much: delays are exact, a measurement of CPU time means nothing
there.

uml-init.sh is the first process inside.  The two meet in a temporary folder: it reads `mounts`, `modules` and
`command` and leaves `booted` and `status`.  Output comes back over two consoles; a third carries what the kernel has
to say.

uml_xstate.c is preloaded into the kernel, without which it cannot run on processors with AMX.
"""

from __future__ import annotations

import io
import os
import selectors
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from testbed.linux import clock

KERNEL = "linux.uml"
INSIDE = "WEFT_UML"  # set in the environment of everything that runs inside
FRESH = (Path("/tmp"), Path("/run"), Path("/dev/shm"))  # empty inside but for what is mounted there
HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
PRELOADED = HERE / "uml_xstate.so"

# Runs the kernel, which leads a process group of helpers that outlive it if it is killed: the whole group ends with it,
# and should we be killed, which closes our end of standard input, the group and the folder go too.
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


class DiedBooting(ChildProcessError):
    """User-Mode Linux ended before it had started the command."""


def installed() -> bool:
    """Whether this machine has User-Mode Linux."""
    return shutil.which(KERNEL) is not None


def run(
    argv: Sequence[str],
    *,
    memory_mb: int = 1500,
    core: int | None = None,
    timeout_s: float = 600.0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: BinaryIO | None = None,
    stderr: BinaryIO | None = None,
) -> int:
    """The exit status of `argv` under User-Mode Linux; 128 + n if signal n ended it.

    It stays on processor `core`, as system calls cost four times more when it wanders; default: one of those that this
    process may use.  What it prints goes to `stdout` and `stderr` (default: ours) as it comes; it reads nothing.  `cwd`
    (default: ours) is writable, as is the project if `cwd` lies in it.  `env` (default: ours) is its environment.

    Raises ValueError for a core or folder that cannot be, FileNotFoundError without User-Mode Linux, TimeoutError after
    `timeout_s`, ChildProcessError with its last words if User-Mode Linux itself dies.
    """
    cores = sorted(os.sched_getaffinity(0))
    if core is None:
        core = cores[os.getpid() % len(cores)]
    if core not in cores:
        raise ValueError(f"core {core}: this process may use {', '.join(map(str, cores))}")
    if not PRELOADED.exists():
        raise FileNotFoundError(f"{PRELOADED.name} is not there: make setup")
    if not installed():
        raise FileNotFoundError(f"no {KERNEL} here: Debian has it in the package user-mode-linux, Ubuntu has none")
    folder = (cwd or Path.cwd()).resolve()
    mounts = _mounts(folder)
    command = _command(argv, folder, os.environ if env is None else env)
    sinks = [stdout or sys.stdout.buffer, stderr or sys.stderr.buffer]
    deadline = clock.monotonic() + timeout_s
    try:
        for last in (False, True):
            with tempfile.TemporaryDirectory(prefix="weft-uml-") as name:
                common = Path(name)
                shutil.copy(HERE / "uml-init.sh", common / "init")
                shutil.copy(HERE / "modules.txt", common / "modules")
                shutil.copy(PRELOADED, common)
                (common / "mounts").write_text(mounts)
                (common / "command").write_text(command)
                try:
                    return _boot(common, memory_mb, core, deadline, sinks)
                except DiedBooting:  # once in a while, for no reason that the next boot would share
                    if last:
                        raise
    except TimeoutError:
        raise TimeoutError(f"User-Mode Linux: {shlex.join(argv)}: not done after {timeout_s:g} s") from None
    raise AssertionError("the last attempt returns or raises")


def _mounts(folder: Path) -> str:
    """The host's folders that are mounted inside, one a line after its mode, outer ones first."""
    writable = PROJECT if folder.is_relative_to(PROJECT) else folder
    if writable in (Path("/"), *FRESH):
        raise ValueError(
            f"User-Mode Linux makes the current folder writable, so it cannot be {folder}: use one of yours"
        )
    # Whatever else of the host is needed is seen through the overlay, unless it lies in a folder that is fresh inside.
    hidden = [folder for folder in (PROJECT, Path(sys.prefix)) if any(folder.is_relative_to(fresh) for fresh in FRESH)]
    modes = dict.fromkeys(hidden, "ro") | {writable: "rw"}
    return "".join(f"{modes[folder]} {folder}\n" for folder in sorted(modes))


def _command(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """A shell's line that becomes `argv` in `folder` with `environment`."""
    inside = {name: value for name, value in environment.items() if name != "TMPDIR"}  # it may not exist there
    inside["PATH"] = f"{inside.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"  # a user has no ip and tc there
    inside["SUDO_UID"] = str(os.getuid())  # root inside owns what this user does outside; git asks
    inside[INSIDE] = "1"
    assignments = [f"{name}={value}" for name, value in inside.items()]
    return f"cd {shlex.quote(str(folder))} && exec env --ignore-environment {shlex.join([*assignments, *argv])}\n"


def _boot(common: Path, memory_mb: int, core: int, deadline: float, sinks: Sequence[BinaryIO]) -> int:
    """Boot, pass output on, and return the status that uml-init.sh left."""
    consoles = [os.pipe() for _ in sinks]
    kernel = [KERNEL, f"mem={memory_mb}M", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", f"init={common}/init"]
    kernel += [f"weft_uml={common}", f"uml_dir={common}/", "umid=uml", "con=null", "ssl=null", "con0=null,fd:1"]
    kernel += [f"con{number}=null,fd:{fd}" for number, (_, fd) in enumerate(consoles, start=1)]
    process = subprocess.Popen(
        ["sh", "-c", GUARD, "weft-uml", str(common), "taskset", "--cpu-list", str(core), *kernel],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[fd for _, fd in consoles],
        env=os.environ | {"TMPDIR": _folder_for_memory(memory_mb), "LD_PRELOAD": str(common / PRELOADED.name)},
        start_new_session=True,
    )
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
    with suppress(FileNotFoundError, ValueError):
        return int((common / "status").read_text())
    kind = ChildProcessError if (common / "booted").exists() else DiedBooting
    raise kind(f"User-Mode Linux died: {said.getvalue().decode(errors='replace').strip()[-2000:] or 'not a word'}")


def _pass_on(pipes: Mapping[int, BinaryIO], deadline: float) -> None:
    """Write what comes out of each pipe to its sink until nobody is left to write; TimeoutError at `deadline`."""
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
    """Where the kernel keeps its memory, a file without a name: in memory if there is room and code may run from it."""
    shared = "/dev/shm"
    with suppress(FileNotFoundError):
        there = os.statvfs(shared)
        if there.f_bavail * there.f_frsize >= memory_mb << 20 and not there.f_flag & os.ST_NOEXEC:
            return shared
    return tempfile.gettempdir()
