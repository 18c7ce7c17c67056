"""Machines on one computer: they serve a command, end with it, and say what they are not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.error_lines import error_lines
from tests.testbed.cluster.machines_here import ROOT, WEFT, machines_here, weft
from weft.testbed.linux.clock import wait_until

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.real_clock("machines are namespaces with processes of their own"),
]


def test_machines_live_while_a_command_runs_and_its_status_is_theirs(tmp_path):
    file = tmp_path / "here.yaml"
    script = f"cat {file}; exit 3"
    done = weft("machines", "2", "-o", str(file), "--", "sh", "-c", script, check=False)
    assert done.returncode == 3
    assert ["m1:" in done.stdout, "m2:" in done.stdout, "m3:" in done.stdout] == [True, True, False]
    assert not file.exists()
    file.write_text("machines: {}")
    refused = weft("machines", "2", "-o", str(file), "--", "true", check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert file.read_text() == "machines: {}"


def children(pid: int) -> list[int]:
    """Return the processes that the first thread of a process has begun."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_nothing_is_left_of_machines_whose_command_is_killed(tmp_path):
    file = tmp_path / "here.yaml"
    command = [*WEFT, "machines", "2", "-o", str(file), "--", "sleep", "infinity"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_until(
        "they are there, and the command", lambda: file.exists() and len(children(process.pid)) == 4
    )
    *keepers, sleep = children(process.pid)
    inside = [child for keeper in keepers for child in children(keeper)]
    assert len(inside) == 3
    process.kill()
    process.wait()
    os.kill(sleep, signal.SIGKILL)
    wait_until(
        "all have ended",
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in (*keepers, *inside)),
    )


def test_an_address_that_a_machine_does_not_have_is_named_beside_those_that_it_has(tmp_path, name):
    with machines_here(2, tmp_path) as machines:
        text = machines.file.read_text().replace("10.99.0.2", "10.99.0.77")
        machines.file.write_text(text)
        words = ["up", "dcell:n=3,k=1", "--machines", str(machines.file), "--detach", name]
        refused = weft(*words, check=False)
        assert refused.returncode == 2
        assert error_lines(refused.stderr) == [
            "weft: machine m2: 10.99.0.77 is no address of it; it has 10.99.0.2"
        ]
        assert machines.are_empty()
        assert name not in [row["run"] for row in json.loads(weft("ps", "--json").stdout)]
