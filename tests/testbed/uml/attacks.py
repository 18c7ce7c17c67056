"""Started as root inside: try to leave the kernel of User-Mode Linux, and report what succeeded.

It reads /run/uml/targets.json: `victim`, a folder of the host that nobody named, `own`, the folder
of the command, and `pid`, a process of the host.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

REPORT = 9
COMMON = Path("/run/uml")
TARGETS = json.loads((COMMON / "targets.json").read_text())
FOLDERS = ("/", "/dev", "/dev/shm", "/etc", "/home", "/proc", "/proc/sys/kernel", "/root", "/run")
MORE_FOLDERS = ("/sys/fs/cgroup", "/tmp", "/usr", "/var/spool", "/var/cache/weft")
FILES = {
    "/etc/shadow": os.O_RDONLY,
    "/proc/1/environ": os.O_RDONLY,
    "/proc/self/mem": os.O_RDWR,
    "/proc/self/environ": os.O_RDONLY,
    "/proc/sys/kernel/core_pattern": os.O_WRONLY,
    "/proc/sysrq-trigger": os.O_WRONLY,
    "/sys/fs/cgroup/cgroup.procs": os.O_WRONLY,
}
OUTPUT_BYTES = 3 << 20
succeeded: list[str] = []


def attack(name: str, action: Callable[[], object]) -> None:
    """Take down what is not refused."""
    with suppress(OSError, subprocess.CalledProcessError):
        action()
        succeeded.append(name)


def mount(folder: str) -> Path:
    """Mount a folder of the host; return the place."""
    place = Path("/mnt", folder.strip("/").replace("/", "_") or "root")
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "hostfs", "-o", folder, "none", place], check=True)
    return place


def write(place: Path) -> None:
    with open(place, "a", encoding="utf-8") as file:
        file.write("x")


def attack_attributes(name: str, file: Path) -> None:
    """Change modes, owners, times and attributes of a file."""
    attack(f"chmod 0777 {name}", lambda: file.chmod(0o777))
    attack(f"chmod 4755 {name}", lambda: file.chmod(0o4755))
    attack(f"chown {name}", lambda: os.chown(file, 1, 1))
    attack(f"utime {name}", lambda: os.utime(file, (1, 1)))
    attack(f"setxattr {name}", lambda: os.setxattr(file, "user.x", b"x"))


def attack_devices(name: str, folder: Path) -> None:
    """Make devices and files that run as their owner."""
    attack(f"block device {name}", lambda: os.mknod(folder / "disk", 0o60666, os.makedev(254, 0)))
    attack(f"character device {name}", lambda: os.mknod(folder / "m", 0o20666, os.makedev(1, 1)))
    attack(f"suid {name}", lambda: make_suid(folder / "suid"))


def make_suid(file: Path) -> None:
    """Make a file that runs as its owner, or raise OSError."""
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o4755))
    if file.stat().st_mode & 0o4000 == 0:
        raise PermissionError("it runs as who starts it")


def attack_folder(name: str, folder: Path) -> None:
    """Change what is in a folder with the file `secret` and the folder `empty`."""
    secret = folder / "secret"
    attack(f"read {name}", secret.read_text)
    attack(f"list {name}", lambda: os.listdir(folder))
    attack(f"append {name}", lambda: write(secret))
    attack(f"cut off {name}", lambda: secret.write_text(""))
    attack(f"truncate {name}", lambda: os.truncate(secret, 0))
    attack(f"create {name}", lambda: write(folder / "new"))
    attack(f"link {name}", lambda: os.link(secret, folder / "linked"))
    attack(f"symlink {name}", lambda: os.symlink("/etc", folder / "link"))
    attack(f"pipe {name}", lambda: os.mkfifo(folder / "pipe"))
    attack(f"mkdir {name}", lambda: (folder / "made").mkdir())
    attack(f"rename {name}", lambda: secret.rename(folder / "renamed"))
    attack(f"rmdir {name}", (folder / "empty").rmdir)
    attack(f"unlink {name}", secret.unlink)


def attack_host_process() -> None:
    """Have the host stop a process, or write to a file, by what lies in the common folder."""
    pid = str(TARGETS["pid"])
    for folder in (COMMON, mount("/proc/self/cwd"), COMMON / "channels"):
        secret = Path(TARGETS["victim"], "secret")
        attack(f"link {folder}", lambda: (folder / "answering.1.1").symlink_to(secret))  # noqa: B023
        attack(f"answer {folder}", lambda: write(folder / "answer.1.1"))  # noqa: B023
        attack(f"interrupt {folder}", lambda: write(folder / "interrupt.0"))  # noqa: B023
        attack(f"command {folder}", lambda: write(folder / "command"))  # noqa: B023
        attack(f"unlink {folder}", (folder / "init").unlink)
        for name in ("out", "status", "report", "questions"):
            attack(f"channel {name} {folder}", lambda: write(folder / name))  # noqa: B023
    memory = mount(str((COMMON / "memory").readlink()))
    attack("pid", lambda: (memory / "uml" / "pid").write_text(pid))
    attack("memory", lambda: write(memory / "new"))
    attack("control socket", (memory / "uml" / "mconsole").unlink)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        attack(f"signal {number}", lambda: os.kill(int(pid), number))  # noqa: B023
    os.write(8, b'{"name": "1.1", "wants": ')  # half a question


def attack_limits() -> None:
    """Start processes and write output without a bound."""
    started = []
    with suppress(OSError):
        while len(started) < TARGETS["processes"]:
            started.append(subprocess.Popen(["sleep", "1000"]))
    if len(started) == TARGETS["processes"]:
        succeeded.append("processes")
    for process in started:
        process.kill()
        process.wait()
    attack("output", lambda: [os.write(1, bytes(1 << 16)) for _ in range(OUTPUT_BYTES >> 16)])


def main() -> None:
    """Attack, and report what was not refused."""
    victim = mount(TARGETS["victim"])
    attack_attributes("victim", victim / "secret")
    attack_devices("victim", victim)
    attack_folder("victim", victim)
    own = mount(TARGETS["own"])
    attack_attributes("own", own / "secret")
    attack_devices("own", own)
    if "writable" not in sys.argv:
        attack("append own", lambda: write(own / "secret"))
        attack("create own", lambda: write(own / "new"))
    for folder in (*FOLDERS, *MORE_FOLDERS):
        with suppress(subprocess.CalledProcessError):
            place = mount(folder)
            attack(f"create in {folder}", lambda: write(place / "weft-attack"))  # noqa: B023
    for file, flags in FILES.items():
        place = mount(str(Path(file).parent)) / Path(file).name
        attack(f"open {file}", lambda: os.open(place, flags))  # noqa: B023
    attack_host_process()
    attack_limits()
    # what is not an attack
    Path("/etc/forgotten").write_text("overlay")
    for _ in range(TARGETS["processes"]):  # more than may exist at a time, one after the other
        subprocess.run(["true"], check=True)
    done = [Path("secret").read_text(), Path("/etc/hostname").read_text() and "settings"]
    with open(REPORT, "w", encoding="utf-8") as report:
        report.write(json.dumps({"succeeded": succeeded, "done": done}))


main()
