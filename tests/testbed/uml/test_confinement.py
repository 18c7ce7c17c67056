"""Rights on the host of a kernel of User-Mode Linux that was taken over from inside."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from tests.optional_parts import landlock_version, with_and_without
from tests.testbed.uml.confined import run_confined
from weft.testbed.uml import confinement

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="needs x86_64, as User-Mode Linux does"
)
# each attack that is not refused prints its name
CALLS = """
import ctypes, errno, os, resource, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
FILE = b"mine"
def refused(name, *arguments):
    ctypes.set_errno(0)
    if libc.syscall(*arguments) >= 0 or ctypes.get_errno() != errno.EPERM:
        print(name, os.strerror(ctypes.get_errno()))
open(FILE, "ab").close()
fd = os.open(FILE, os.O_RDWR)
refused("chmod", 90, FILE, 0o4755)
refused("fchmod", 91, fd, 0o777)
refused("fchmodat", 268, -100, FILE, 0o777)
refused("chown", 92, FILE, 1, 1)
refused("fchown", 93, fd, 1, 1)
refused("lchown", 94, FILE, 1, 1)
refused("fchownat", 260, -100, FILE, 1, 1, 0)
refused("utime", 132, FILE, None)
refused("utimes", 235, FILE, None)
refused("utimensat", 280, -100, FILE, None, 0)
refused("setxattr", 188, FILE, b"user.a", b"b", 1, 0)
refused("fsetxattr", 190, fd, b"user.a", b"b", 1, 0)
refused("removexattr", 197, FILE, b"user.a")
refused("mknod of a block device", 133, b"disk", 0o60600, 0xFE00)
refused("mknodat of a character device", 259, -100, b"mem", 0o20600, 0x101)
refused("mknod of a pipe", 133, b"pipe", 0o10600, 0)
refused("open that cuts off", 2, FILE, os.O_WRONLY | os.O_TRUNC, 0)
refused("openat that cuts off", 257, -100, FILE, os.O_RDONLY | os.O_TRUNC, 0)
refused("a new file with set-user-id", 257, -100, b"suid", os.O_CREAT | os.O_WRONLY, 0o4755)
refused("a new folder with set-group-id", 83, b"sgid", 0o2777)
refused("truncate", 76, FILE, 0)
refused("kill of all", 62, -1, 0)
refused("kill of a group", 62, -os.getpid(), 0)
refused("kill of the own group", 62, 0, 0)
refused("a session of its own", 112)
refused("a process group of its own", 109, 0, 0)
refused("prlimit of another", 302, os.getppid(), 7, None, None)
refused("a limit that is raised", 160, 1, (ctypes.c_uint64 * 2)(1 << 40, 1 << 40))
refused("pidfd_open", 434, os.getppid(), 0)
refused("socket", 41, socket.AF_INET, socket.SOCK_STREAM, 0)
refused("io_uring_setup", 425, 1, None)
refused("unshare", 272, 0x10000000)
refused("mount", 165, None, b"/", None, 0, None)
refused("sched_setaffinity", 203, 0, 8, None)
refused("setpriority", 141, 0, 0, -20)
refused("clock_settime", 227, 0, None)
"""


@pytest.fixture
def common(tmp_path: Path) -> Path:
    (tmp_path / "common").mkdir()
    return tmp_path / "common"


@with_and_without("landlock")
def test_calls_past_the_rules_for_files_are_refused(part, tmp_path, common):
    own = tmp_path / "own"
    own.mkdir()
    words = run_confined("-c", CALLS, common=common, folder=own, writable=own)
    assert words == ""
    assert [place.name for place in own.iterdir()] == ["mine"]


@with_and_without("landlock")
def test_a_file_beside_the_folder_is_written_to_without_landlock_alone(part, tmp_path, common):
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    run_confined("sh", "-c", f"echo new >>{other}", common=common, folder=own, writable=own)
    assert other.exists() is not part


@pytest.mark.landlock
def test_a_process_writes_to_its_folder_alone(tmp_path, common):
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "old").write_text("old\n")
    changes = (
        "echo new >>{}/old",
        "echo new >>{}/new",
        "rm {}/old",
        "mkdir {}/new",
        "mv {}/old {}/moved",
        "ln {}/old {}/linked",
        "ln -s / {}/link",
    )
    script = "; ".join(f"({change}) 2>>/dev/null && echo done" for change in changes)
    words = run_confined(
        "sh", "-c", script.replace("{}", str(other)), common=common, folder=own, writable=own
    )
    assert words == ""
    assert {place.name: place.read_text() for place in other.iterdir()} == {"old": "old\n"}


@pytest.mark.landlock
def test_a_process_reads_named_folders_alone(tmp_path, common):
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "file").write_text(f"{folder.name}\n")
    secrets = "cat /etc/shadow /proc/1/environ; ls / /root /home"
    script = f"cat file /etc/hostname; cat {other}/file; ls {other}; {secrets}"
    words = run_confined("sh", "-c", f"({script}) 2>>/dev/null", common=common, folder=own)
    assert words == "own\n" + Path("/etc/hostname").read_text()


@pytest.mark.landlock
def test_a_lab_in_the_home_shows_its_own_files_and_neither_hidden_ones_nor_folders(
    tmp_path, common, monkeypatch
):
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / "mail").mkdir()
    names = ("lab.yaml", ".netrc", ".ssh/key", "mail/letter")
    for name in names:
        (home / name).write_text(f"{name}\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("weft.testbed.uml.confinement.EMPTY", ())
    script = f"cat {' '.join(names)} 2>>/dev/null"
    assert run_confined("sh", "-c", script, common=common, folder=home) == "lab.yaml\n"


def test_a_folder_of_path_that_this_user_may_not_enter_is_left_out(tmp_path, monkeypatch):
    """As root's own, which PATH may still have after sudo -u; the kernel would not begin."""
    closed = tmp_path / "closed" / "bin"
    closed.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{closed}:/usr/bin")
    monkeypatch.setattr(os, "access", lambda place, how: not closed.is_relative_to(place.parent))
    rules = confinement.rules(tmp_path / "common", tmp_path / "own", tmp_path / "own")
    assert "read /usr/bin\n" in rules
    assert str(closed) not in rules


@pytest.mark.landlock
@pytest.mark.skipif(landlock_version() < 6, reason="needs Landlock of Linux 6.12, for signals")
def test_no_other_process_gets_a_signal(tmp_path, common):
    assert "ermitted" in run_confined("sh", "-c", "kill -0 $PPID", common=common, folder=tmp_path)


@pytest.mark.landlock
def test_channels_are_appended_to_and_removed_and_nothing_is_made_beside_them(tmp_path, common):
    script = f"""
        cd {common}/channels
        echo words >>report
        ln -s /etc/passwd link || touch new || mkdir new || mv report moved || echo none
        rm report && ls
    """
    words = run_confined("sh", "-c", f"({script}) 2>>/dev/null", common=common, folder=tmp_path)
    assert words.split() == ["none", "err", "out", "questions", "status"]


def test_a_file_ends_where_the_limit_is_and_the_process_goes_on(tmp_path, common):
    script = "seq 100000 2>>/dev/null >>file; wc -c <file"
    own = {"folder": tmp_path, "writable": tmp_path}
    words = run_confined("sh", "-c", script, common=common, file_bytes=50_000, **own)
    assert words == "50000\n"


def test_no_more_processes_are_started_than_allowed(tmp_path, common):
    program = """
import ctypes, os, signal
libc = ctypes.CDLL(None)
wait = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: signal.pause() or 0)
stack = ctypes.create_string_buffer(1 << 20)
top = ctypes.c_void_p(ctypes.addressof(stack) + len(stack) - 64)
started = []
def start():
    pid = libc.clone(wait, top, signal.SIGCHLD, None)
    started.append(pid)
    return pid > 0
while start(): pass
print(len(started) - 1)
for pid in started[:3]:
    os.kill(pid, signal.SIGKILL)
    libc.waitpid(pid, ctypes.byref(ctypes.c_int()), 0)
again = 0
while start(): again += 1
print(again)
for pid in started:
    if pid > 0:
        try: os.kill(pid, signal.SIGKILL)
        except ProcessLookupError: pass
"""
    words = run_confined("-c", program, common=common, folder=tmp_path)
    assert words.split() == ["20", "3"]
