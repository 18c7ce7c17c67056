"""SIGKILL the whole tool at random moments, clean up, and look for what is left.

SIGKILL sweeps, and look for what they have lost or doubled when they are done; bring networks up
with few open files.  Run as root.

Each run draws a seed of its own and prints it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from bench.report import Line, show
from weft.testbed.linux import cgroup, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.network import clean
from weft.testbed.runs import hosts_file, run

ROOT = Path(__file__).parents[1]
WEFT = [sys.executable, "-m", "weft.experiments.cli.cli"]
KILLS_OF_A_SWEEP, SEEDS = 4, 12
LINK = "h0-h3"
KINDS = ("up", "down", "fail", "restore", "run", "view")
UP = ["up", "dcell:n=3,k=1", "--routing", "dr", "--rate", "20mbit", "--nat"]


def kill_once(rng: random.Random, results: Path, kind: str) -> list[str]:
    """Start the tool, kill it, clean up; return what is left of its run, in words.

    Other runs may come and go meanwhile: only what bears the name that was given to this one
    counts.

    Args:
        rng: draws the name and the moment.
        results: a folder for the results of `weft run`.
        kind: one of KINDS, what the tool is doing when it is killed.
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
    theirs = set(clean.processes(name, []))
    tool = subprocess.Popen(
        [*WEFT, *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with suppress(subprocess.TimeoutExpired):
        tool.wait(timeout=rng.uniform(0.1, 2.5 if kind in ("run", "view") else 0.8))
    # Runs are looked up by their maker, before anything is removed.
    mine = [
        one for one in run.runs() if one.id == name or one.journal_or_empty().get("pid") == tool.pid
    ]
    journals = [one.journal_or_empty() for one in mine]
    tool.kill()
    tool.wait()
    wrong = {"fail": half_broken, "restore": half_broken, "view": partial(helpers, theirs)}.get(
        kind, lambda _: []
    )(name)
    weft("clean")
    for one in mine:
        if one.directory.exists() and one.alive():  # it was up for good before it was killed
            # it may be dead by now
            subprocess.run([*WEFT, "down", "--run", one.id], cwd=ROOT, capture_output=True)
    # its supervisor outlived it by a moment, and kept the run so long
    if any(one.directory.exists() for one in mine):
        weft("clean")
    return [f"{kind}: {thing}" for thing in [*wrong, *leftovers(mine, journals)]]


def helpers(before: set[int], name: str) -> list[str]:
    """Return the processes of run `name` that outlive the killed tool."""
    try:
        wait_until(
            "no process of the tool is left", lambda: set(clean.processes(name, [])) <= before
        )
    except TimeoutError:
        return [f"process {pid}" for pid in set(clean.processes(name, [])) - before]
    return []


def few_files_once(rng: random.Random) -> list[str]:
    """Bring a network up with a low, hard limit of open files; return what is wrong, in words.

    It comes up, or is refused in one line with status 2.  Nothing is left either way.
    """
    name, limit = f"kill-{rng.randrange(16**6):06x}", rng.randrange(16, 512)
    limited = ["setpriv", "--bounding-set", "-sys_resource", "prlimit", f"--nofile={limit}:{limit}"]
    done = subprocess.run(
        [*limited, *WEFT, *UP, "--detach", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    mine = [one for one in run.runs() if one.id == name]
    journals = [one.journal_or_empty() for one in mine]
    wrong = []
    if done.returncode == 0:
        weft("down", "--run", name)
    elif done.returncode != 2 or len(done.stderr.splitlines()) != 1:
        wrong.append(f"status {done.returncode}: {done.stderr.strip()}")
    return [f"{limit} open files: {thing}" for thing in [*wrong, *leftovers(mine, journals)]]


def weft(*words: str) -> None:
    """Let the tool do this to its end; CalledProcessError if it cannot."""
    subprocess.run([*WEFT, *words], cwd=ROOT, capture_output=True, check=True)


def half_broken(name: str) -> list[str]:
    """Return what is wrong with a run whose link a killed process was changing."""
    for words in (
        ["restore", LINK, "--run", name],
        ["exec", "--run", name, "h0", "ping", "-c", "1", "-w", "10", "h3"],
    ):
        done = subprocess.run(
            [*WEFT, *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            return [f"weft {' '.join(words)}: {(done.stderr or done.stdout).strip()}"]
    return []


def leftovers(mine: list[run.RunRecord], journals: list[dict[str, Any]]) -> list[str]:
    """Return what is left of these runs, which had these journals."""
    names = {space for journal in journals for space in journal.get("namespaces", [])}
    found = [f"directory {one.directory}" for one in mine if one.directory.exists()]
    found += [f"namespace {name}" for name in names & set(os.listdir(netns.NAMES))]
    if hosts_file.LINKS.is_dir():
        found += [f"hosts file of {name}" for name in names & set(os.listdir(hosts_file.LINKS))]
    with open("/proc/self/mountinfo") as mounts:
        found += [
            f"mount {line.split()[4]}" for line in mounts if Path(line.split()[4]).name in names
        ]
    groups = [cgroup.ROOT, *(cgroup.ROOT / controller for controller in cgroup.V1)]
    found += [
        f"control group {folder / name}"
        for folder in groups
        for name in names
        if (folder / name).exists()
    ]
    pins = Path("/sys/fs/bpf")
    for one in mine:
        found += [f"process {pid} of {one.id}" for pid in clean.processes(one.id, [])]
        found += [
            f"pinned {path}"
            for path in (pins.iterdir() if pins.is_dir() else ())
            if one.id in path.name
        ]
        found += [f"link {name}" for _, name in socket.if_nameindex() if name == f"weft{one.slot}"]
    tables = subprocess.run(
        ["nft", "list", "tables"], capture_output=True, text=True, check=False
    ).stdout
    return found + [f"nftables {one.id}" for one in mine if f"weft-{one.id}" in tables]


def sweep_killed(rng: random.Random, results: Path) -> list[str]:
    """Kill a sweep and its workers a few times, and let it end; return lost or doubled rows."""
    command = [
        *WEFT,
        "run",
        "link_loss",
        "--engine",
        "fabric",
        "--set",
        "topology=dcell:n=3,k=1",
        "failed_links=1",
    ]
    command += ["--seeds", str(SEEDS), "--results", str(results)]
    for _ in range(KILLS_OF_A_SWEEP):
        tool = subprocess.Popen(
            command,
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
    done = subprocess.run(
        [*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return [f"sweep in {results}: {done.stderr.strip().splitlines()[-1]}"]
    seeds = sorted(row["seed"] for row in json.loads(done.stdout))
    return [] if seeds == [*range(SEEDS)] else [f"sweep in {results}: has rows of seeds {seeds}"]


def main() -> None:
    """Exit with status 1 if a killed run left something, or a sweep lost or doubled a run."""
    import tempfile

    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--kills", type=int, default=40, help="of the tool")
    given.add_argument(
        "--sweeps", type=int, default=5, help=f"of which each is killed {KILLS_OF_A_SWEEP} times"
    )
    given.add_argument(
        "--limits", type=int, default=10, help="networks brought up with few open files"
    )
    given.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = given.parse_args()
    print(f"--seed {options.seed}", flush=True)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        left = [
            thing
            for _ in range(options.kills)
            for thing in kill_once(rng, Path(folder), rng.choice(KINDS))
        ]
        left += [thing for _ in range(options.limits) for thing in few_files_once(rng)]
        wrong = [
            thing
            for number in range(options.sweeps)
            for thing in sweep_killed(rng, Path(folder, f"sweep{number}"))
        ]
    title = (
        f"{options.kills} kills by SIGKILL, each followed by `weft clean`; "
        f"{options.limits} networks with few open"
    )
    title += f" files; {options.sweeps} sweeps killed"
    lines = [
        Line("things left", len(left), "", at_most=0),
        Line("sweeps with lost rows", len(wrong), "", at_most=0),
    ]
    show(f"{title} {KILLS_OF_A_SWEEP} times each", lines)
    for thing in [*left, *wrong]:
        print(f"  {thing}")
    sys.exit(bool(left or wrong))


if __name__ == "__main__":
    main()
