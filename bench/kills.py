"""SIGKILL the whole tool at random moments, clean up, and look for what is left.  Run as root."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from bench.report import Line, show
from weft.testbed.linux import netns
from weft.testbed.network import clean
from weft.testbed.plan import run

ROOT = Path(__file__).parents[1]
WEFT = [sys.executable, "-m", "weft.experiments.commands.cli"]
UP = ["up", "dcell:n=3,k=1", "--routing", "dr", "--rate", "20mbit"]


def kill_once(rng: random.Random, results: Path) -> list[str]:
    """Start the tool, kill it, clean up; what is left of its run, in words.

    Other runs may come and go meanwhile: only what bears the name that was given to this one counts.
    """
    name = f"kill-{rng.randrange(16**6):06x}"
    kind = rng.choice(["up", "down", "run"])
    command = {
        "up": [*UP, "--detach", name],
        "down": ["down", name],
        "run": ["run", "first_light", "--set", "iperf_s=1", "--results", str(results / name)],
    }[kind]
    if kind == "down":
        subprocess.run([*WEFT, *UP, "--detach", name], cwd=ROOT, capture_output=True, check=True)
    tool = subprocess.Popen([*WEFT, *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with suppress(subprocess.TimeoutExpired):
        tool.wait(timeout=rng.uniform(0.1, 2.5 if kind == "run" else 0.8))
    # Found by who made them, before anything is removed.
    mine = [one for one in run.runs() if one.id == name or one.journal_or_empty().get("pid") == tool.pid]
    names = {space for one in mine for space in one.journal_or_empty().get("namespaces", [])}
    tool.kill()
    tool.wait()
    subprocess.run([*WEFT, "clean"], cwd=ROOT, capture_output=True, check=True)
    for one in mine:
        if one.directory.exists() and one.alive():  # it was up for good before it was killed
            subprocess.run([*WEFT, "down", one.id], cwd=ROOT, capture_output=True)  # it may be dead by now
    if any(one.directory.exists() for one in mine):  # its supervisor outlived it by a moment, and kept the run so long
        subprocess.run([*WEFT, "clean"], cwd=ROOT, capture_output=True, check=True)
    return leftovers(mine, names)


def leftovers(mine: list[run.Run], names: set[str]) -> list[str]:
    """What there still is of these runs, which had these namespaces."""
    found = [f"directory {one.directory}" for one in mine if one.directory.exists()]
    found += [f"namespace {name}" for name in names & set(os.listdir(netns.NAMES))]
    with open("/proc/self/mountinfo") as mounts:
        found += [f"mount {line.split()[4]}" for line in mounts if Path(line.split()[4]).name in names]
    pins = Path("/sys/fs/bpf")
    for one in mine:
        found += [f"process {pid} of {one.id}" for pid in clean.processes(one.id, [])]
        found += [f"pinned {path}" for path in (pins.iterdir() if pins.is_dir() else ()) if one.id in path.name]
    return found


def main() -> None:
    """Kill 20 times; exit status 1 if anything was left."""
    import tempfile

    rng = random.Random(20)
    with tempfile.TemporaryDirectory() as results:
        left = [thing for _ in range(20) for thing in kill_once(rng, Path(results))]
    show("Twenty kills by SIGKILL, each followed by `weft clean`", [Line("things left", len(left), "", at_most=0)])
    for thing in left:
        print(f"  left: {thing}")
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
