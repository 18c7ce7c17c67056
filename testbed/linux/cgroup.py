"""Control groups of nodes whose processor time is limited, of version 1 or 2, whichever has the
processor.

A group is called as the node's namespace is, and so it is known whose it is; see clean.py.

Where the groups are of version 2 and the root does not hand the controllers cpu and cpuset down
yet, it does from the first group on, and is left so: it limits nothing by itself, systemd has it so
as soon as one service has a limit; taking it back would remove the limits of services that have
set some since, here or in another run.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V1 = ("cpu", "cpuacct", "cpuset")
PERIOD_US = 100_000
LEAST_QUOTA_US = 1_000


class ControlGroup:
    """The control group called `name`, made with it.

    ValueError if this system has none that limit processor time.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.second = "cpu" in _words(ROOT / "cgroup.controllers")
        if not self.second and not all((ROOT / controller).is_dir() for controller in V1):
            raise ValueError(
                f"processor time cannot be limited here: no cgroup with {', '.join(V1)} at {ROOT}"
            )
        if self.second:
            available, delegated = (
                _words(ROOT / "cgroup.controllers"),
                _words(ROOT / "cgroup.subtree_control"),
            )
            if missing := [
                f"+{controller}"
                for controller in ("cpu", "cpuset")
                if controller in available and controller not in delegated
            ]:
                (ROOT / "cgroup.subtree_control").write_text(" ".join(missing))
        for folder in self.folders:
            folder.mkdir(exist_ok=True)

    @property
    def folders(self) -> list[Path]:
        """Where the group is: one folder, or one for each controller of version 1."""
        return (
            [ROOT / self.name]
            if self.second
            else [ROOT / controller / self.name for controller in V1[:2]]
        )

    def limit(self, processors: float | None) -> None:
        """Let the group have the time of so many processors, 0.2 or 3; None: all that there is."""
        if processors is not None and processors <= 0:
            raise ValueError(
                f"{self.name}: a share of the processor must be more than 0, got {processors:g}"
            )
        period = PERIOD_US
        quota = -1 if processors is None else round(period * processors)
        if processors is not None and quota < LEAST_QUOTA_US:
            quota, period = LEAST_QUOTA_US, round(LEAST_QUOTA_US / processors)
        if self.second:
            (ROOT / self.name / "cpu.max").write_text(f"{'max' if quota < 0 else quota} {period}")
            return
        (ROOT / "cpu" / self.name / "cpu.cfs_period_us").write_text(str(period))
        (ROOT / "cpu" / self.name / "cpu.cfs_quota_us").write_text(str(quota))

    def pin(self, cores: str, pid: int) -> None:
        """Let the group run on these cores, 0 or 0-2,5.

        `pid` is in it, and so is what it starts.
        """
        if self.second and not (ROOT / self.name / "cpuset.cpus").exists():
            raise ValueError(f"{self.name}: cores cannot be chosen here: the cgroup has no cpuset")
        folder = ROOT / self.name if self.second else ROOT / "cpuset" / self.name
        folder.mkdir(exist_ok=True)
        (folder / "cpuset.cpus").write_text(cores)
        if not self.second:
            (folder / "cpuset.mems").write_text("0")
            (folder / "cgroup.procs").write_text(str(pid))

    def add(self, pid: int) -> None:
        """Put a process into the group, and what it starts from now on."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def entering(self) -> list[str]:
        """The beginning of a command whose rest runs in the group."""
        files = [str(folder / "cgroup.procs") for folder in self.folders]
        return ["sh", "-c", " ".join(f"echo 0 > {file} &&" for file in files) + ' exec "$@"', "sh"]

    def used_ns(self) -> int:
        """The processor time that the group has had."""
        if not self.second:
            return int((ROOT / "cpuacct" / self.name / "cpuacct.usage").read_text())
        stat = dict(
            line.split() for line in (ROOT / self.name / "cpu.stat").read_text().splitlines()
        )
        return 1000 * int(stat["usage_usec"])


def remove(names: Iterable[str]) -> None:
    """Remove the groups called so, where there are any; their processes must have ended."""
    places = [ROOT, *(ROOT / controller for controller in V1)]
    for name in names:
        for folder in places:
            if (folder / name).is_dir():
                (folder / name).rmdir()


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []
