"""Kill the weft command at random moments, clean up, and return what is left."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.error_lines import error_lines
from weft.testbed.linux import cgroup, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.network import clean
from weft.testbed.runs import hosts_file, run

ROOT = Path(__file__).parents[3]
WEFT = [sys.executable, "-m", "weft.experiments.cli.cli"]
KILLS_OF_A_SWEEP, SEEDS = 4, 12
LINK = "h0-h3"
KINDS = ("up", "down", "fail", "restore", "run", "view")
UP = ["up", "dcell:n=3,k=1", "--routing", "dr", "--rate", "20mbit", "--nat"]
SWEEP = ["run", "link_loss", "--engine", "fabric"]
SWEEP += ["--set", "topology=dcell:n=3,k=1", "failed_links=1"]


def weft(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the weft command to its end; CalledProcessError if it fails and `check` is True."""
    return subprocess.run([*WEFT, *words], cwd=ROOT, capture_output=True, text=True, check=check)


def kill_once(rng: random.Random, results: Path, kind: str) -> list[str]:
    """Start the weft command, kill it, clean up; return what is left of its run, in words.

    Runs of other processes may come and go meanwhile; they do not count.

    Args:
        rng: draws the run's name and the moment.
        results: folder for the results of `weft run`.
        kind: one of KINDS, the command that is killed.
    """
    name = f"kill-{rng.randrange(16**6):06x}"
    command = {
        "up": [*UP, "--detach", name],
        "down": ["down", "--run", name],
        "fail": ["fail", LINK, "--run", name, *rng.choice([[], ["--silent"]])],
        "restore": ["restore", LINK, "--run", name],
        "run": ["run", "first_light", "--set", "iperf_s=1", "--results", str(results / name)],
        "view": ["view", "--run", name, "--results", str(results)],
    }[kind]
    if kind not in ("up", "run"):
        weft(*UP, "--detach", name)
    if kind == "restore":
        weft("fail", LINK, "--run", name)
    processes = set(clean.processes(name, []))
    tool = subprocess.Popen(
        [*WEFT, *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with suppress(subprocess.TimeoutExpired):
        tool.wait(timeout=rng.uniform(0.1, 2.5 if kind in ("run", "view") else 0.8))
    # `weft run` names its runs itself: they are identified by their process, before clean
    records = [
        record
        for record in run.runs()
        if record.id == name or record.journal_or_empty().get("pid") == tool.pid
    ]
    journals = [record.journal_or_empty() for record in records]
    tool.kill()
    tool.wait()
    problems = []
    if kind in ("fail", "restore"):
        problems = half_changed(name)
    elif kind == "view":
        problems = orphans(processes, name)
    remove(records)
    return [f"{kind}: {problem}" for problem in [*problems, *leftovers(records, journals)]]


def remove(records: list[run.RunRecord]) -> None:
    """Clean up, and take down runs that were up before their command was killed."""
    weft("clean")
    for record in records:
        if record.directory.exists() and record.alive():
            weft("down", "--run", record.id, check=False)  # it may have ended meanwhile
    # a supervisor outlives its command by a moment, and its run is not cleaned so long
    if any(record.directory.exists() for record in records):
        weft("clean")


def orphans(before: set[int], name: str) -> list[str]:
    """Return the processes of run `name` that outlive the killed command."""
    try:
        wait_until(
            "the processes of the command end", lambda: set(clean.processes(name, [])) <= before
        )
    except TimeoutError:
        return [f"process {pid}" for pid in set(clean.processes(name, [])) - before]
    return []


def half_changed(name: str) -> list[str]:
    """Return what is wrong with a run whose link a killed command was changing."""
    ping = ["exec", "--run", name, "h0", "ping", "-c", "1", "-w", "10", "h3"]
    for words in (["restore", LINK, "--run", name], ping):
        process = weft(*words, check=False)
        if process.returncode:
            return [f"weft {' '.join(words)}: {(process.stderr or process.stdout).strip()}"]
    return []


def few_files_once(rng: random.Random) -> list[str]:
    """Bring a network up with a low, hard limit of open files; return what is wrong, in words.

    The network comes up, or is refused in one line with status 2.  Nothing is left either way.
    """
    name = f"kill-{rng.randrange(16**6):06x}"
    limit = rng.randrange(16, 512)
    limited = ["setpriv", "--bounding-set", "-sys_resource", "prlimit", f"--nofile={limit}:{limit}"]
    process = subprocess.run(
        [*limited, *WEFT, *UP, "--detach", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    records = [record for record in run.runs() if record.id == name]
    journals = [record.journal_or_empty() for record in records]
    problems = []
    if process.returncode == 0:
        weft("down", "--run", name)
    elif process.returncode != 2 or len(error_lines(process.stderr)) != 1:
        problems.append(f"status {process.returncode}: {process.stderr.strip()}")
    problems += leftovers(records, journals)
    return [f"{limit} open files: {problem}" for problem in problems]


def leftovers(records: list[run.RunRecord], journals: list[dict[str, Any]]) -> list[str]:
    """Return what is left of these runs, which had these journals."""
    names = {space for journal in journals for space in journal.get("namespaces", [])}
    things = [f"directory {record.directory}" for record in records if record.directory.exists()]
    things += [f"namespace {name}" for name in names & set(os.listdir(netns.NAMES))]
    if hosts_file.LINKS.is_dir():
        things += [f"hosts file of {name}" for name in names & set(os.listdir(hosts_file.LINKS))]
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    things += [f"mount {mount}" for mount in mounts if Path(mount).name in names]
    for folder in (cgroup.ROOT, *(cgroup.ROOT / controller for controller in cgroup.V1)):
        things += [f"control group {folder / name}" for name in names if (folder / name).exists()]
    for record in records:
        things += remains(record)
    return things


def remains(record: run.RunRecord) -> list[str]:
    """Return the processes, pinned programs, links and tables with the name of a run."""
    pins = Path("/sys/fs/bpf")
    things = [f"process {pid} of {record.id}" for pid in clean.processes(record.id, [])]
    if pins.is_dir():
        things += [f"pinned {path}" for path in pins.iterdir() if record.id in path.name]
    devices = [name for _, name in socket.if_nameindex()]
    things += [f"link {name}" for name in devices if name == f"weft{record.slot}"]
    nft = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False)
    if f"weft-{record.id}" in nft.stdout:
        things.append(f"nftables {record.id}")
    return things


def sweep_killed(rng: random.Random, results: Path) -> list[int]:
    """Kill a sweep and its workers a few times, let it end; return the seeds of its rows."""
    command = [*SWEEP, "--seeds", str(SEEDS), "--results", str(results)]
    for _ in range(KILLS_OF_A_SWEEP):
        tool = subprocess.Popen(
            [*WEFT, *command],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            tool.wait(timeout=rng.uniform(0.5, 6.0))
        with suppress(ProcessLookupError):
            os.killpg(tool.pid, signal.SIGKILL)
        tool.wait()
    rows = json.loads(weft(*command, "--json").stdout)
    return sorted(row["seed"] for row in rows)
