"""`make test-mininet`: which of Mininet 2.3's own tests pass here, and why the others cannot.

Each test runs in a process of its own.  Those that need a delay run under User-Mode Linux where
this kernel has no netem, one of them under the virtual clock if `make uml-kernel` has built the
kernel for it.  Exit status 1 if a test fails that is not known to need what is not here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.mininet_suite.source import TESTS, fetch, names
from weft.testbed.linux import clock
from weft.testbed.linux.process import need_root
from weft.testbed.machine.doctor import probe
from weft.testbed.uml import uml, virtual_kernel

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180
DELAYED = {"testLinkDelay", "testMostOptions", "testLinkChange"}  # need netem
# of these, asks for 9 of 10 Mbit/s, which a kernel that is late may miss
TIMED = {"testLinkChange"}
KNOWN = {
    "testWireshark": "waits for messages of OpenFlow between a switch and its controller",
    "testRemoteController": "lets a controller of OpenFlow (POX) command the switches",
}
MN = """#!/bin/sh
cd {root}
exec {python} -P -c 'import sys; from pathlib import Path; sys.path.insert(0, "{root}")
from weft.testbed.mininet.scripts import MN, run_script; run_script(MN, sys.argv[1:])' "$@"
"""


def run(file: Path, name: str, commands: Path, *, clock_inside: str | None) -> dict[str, str]:
    """The outcome of one test and why, in a process of its own; clock_inside: under User-Mode
    Linux, and by what clock."""
    argv = [sys.executable, "-m", "tests.mininet_suite.one", str(file), name]
    if clock_inside:
        argv = [
            sys.executable,
            "-m",
            "weft.experiments.cli.cli",
            "uml",
            "--clock",
            clock_inside,
            "--",
            *argv,
        ]
    path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            argv,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"outcome": "fail", "why": f"not finished after {TIMEOUT_S} s"}
    lines = [
        line.removeprefix("@result ")
        for line in done.stdout.splitlines()
        if line.startswith("@result ")
    ]
    if not lines:
        return {
            "outcome": "fail",
            "why": f"no result, status {done.returncode}: {done.stderr[-2000:]}",
        }
    verdicts: dict[str, str] = json.loads(lines[-1])
    return verdicts


def clock_for(method: str) -> str | None:
    """The clock under which a test runs under User-Mode Linux where this kernel has no netem; None:
    it runs here."""
    if method not in DELAYED:
        return None
    return "virtual" if method in TIMED and virtual_kernel.find() else "real"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-mininet", description=__doc__)
    parser.add_argument("names", nargs="*", help="only tests whose name contains one of these")
    parser.add_argument("--verbose", action="store_true", help="all that a failed test says")
    arguments = parser.parse_args()
    need_root()
    tests = fetch() / "mininet" / "test"
    netem = all(feature.present for feature in probe() if feature.name in ("netem", "ifb"))
    inside = not netem and uml.installed()
    bad = 0
    commands = ROOT / ".mininet"  # the temporary folders are others under User-Mode Linux
    commands.mkdir(exist_ok=True)
    (commands / "mn").write_text(MN.format(root=ROOT, python=sys.executable))
    (commands / "mn").chmod(0o755)
    for file in TESTS:
        for name in names(tests / file):
            method = name.partition(".")[2]
            if arguments.names and not any(part in name for part in arguments.names):
                continue
            away = clock_for(method) if inside else None
            began_s = clock.monotonic()
            reason = (
                {"outcome": "known", "why": KNOWN[method]}
                if method in KNOWN
                else run(tests / file, name, commands, clock_inside=away)
            )
            lines = reason["why"].strip().splitlines()
            why = "" if not lines else reason["why"] if arguments.verbose else lines[-1]
            where = f" (User-Mode Linux, {away} clock)" if away else ""
            took_s = clock.monotonic() - began_s
            print(
                f"{reason['outcome']:5}  {took_s:5.1f} s  {file.removesuffix('.py'):16}  "
                f"{name}{where}  {why}",
                flush=True,
            )
            bad += reason["outcome"] == "fail"
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
