"""Control groups that limit the processor time of nodes, of version 1 or 2.

A group has the name of its node's namespace, by which clean.py knows it.  In version 2 the first
group has the root delegate the controllers cpu and cpuset.  It stays so: that limits nothing, and
taking it back would remove limits of services and other runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V1 = ("cpu", "cpuacct", "cpuset")
PERIOD_US = 100_000
LEAST_QUOTA_US = 1_000


class ControlGroup:
    """A control group, created with this object.

    Raises:
        ValueError: this system cannot limit processor time.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.second = "cpu" in _words(ROOT / "cgroup.controllers")
        if not self.second and not all((ROOT / controller).is_dir() for controller in V1):
            raise ValueError(
                f"processor time cannot be limited here: no cgroup with {', '.join(V1)} at {ROOT}"
            )
        if self.second:
            delegated = ROOT / "cgroup.subtree_control"
            available = {"cpu", "cpuset"}.intersection(_words(ROOT / "cgroup.controllers"))
            if missing := available.difference(_words(delegated)):
                delegated.write_text(" ".join(f"+{controller}" for controller in sorted(missing)))
        for folder in self.folders:
            folder.mkdir(exist_ok=True)

    @property
    def folders(self) -> list[Path]:
        """Return the group's folder, or one for each controller of version 1."""
        return (
            [ROOT / self.name]
            if self.second
            else [ROOT / controller / self.name for controller in V1[:2]]
        )

    def limit(self, processors: float | None) -> None:
        """Limit the group to the time of so many processors, such as 0.2 or 3; None: no limit."""
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
        """Let the group run only on these cores, such as 0 or 0-2,5.

        Args:
            cores: as in cpuset.cpus.
            pid: a process of the group; what it starts runs there, too.
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
        """Put a process, and the ones that it will start, into the group."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def entering(self) -> list[str]:
        """Return the beginning of a command whose rest runs in the group."""
        files = [str(folder / "cgroup.procs") for folder in self.folders]
        return ["sh", "-c", " ".join(f"echo 0 > {file} &&" for file in files) + ' exec "$@"', "sh"]

    def used_ns(self) -> int:
        """Return the processor time that the group has used."""
        if not self.second:
            return int((ROOT / "cpuacct" / self.name / "cpuacct.usage").read_text())
        stat = dict(
            line.split() for line in (ROOT / self.name / "cpu.stat").read_text().splitlines()
        )
        return 1000 * int(stat["usage_usec"])


def remove(names: Iterable[str]) -> None:
    """Remove these groups if they exist; their processes must have ended."""
    places = [ROOT, *(ROOT / controller for controller in V1)]
    for name in names:
        for folder in places:
            if (folder / name).is_dir():
                (folder / name).rmdir()


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []
