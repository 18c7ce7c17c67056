"""Networks under the virtual clock whose commands are typed outside."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from weft.experiments.cli.cli import main
from weft.testbed.linux import clock
from weft.testbed.uml import uml

ROOT = Path(__file__).parents[3]
UP = ("up", "dcell:n=3,k=1")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--clock", "virtual"], "--clock virtual needs --rate"),
        (
            ["--clock", "virtual", "--rate", "10mbit", "--detach", "a"],
            "--detach needs the real clock",
        ),
        (["--clock", "virtual", "--rate", "10mbit", "--nat"], "--nat needs the real clock"),
        (["--nat", "--dry-run"], "--dry-run prints the network alone"),
        (
            ["--clock", "virtual", "--rate", "10mbit", "--pace", "0"],
            "--pace must be more than 0, got 0",
        ),
        (["--pace", "1"], "--pace needs --clock virtual"),
        (["--seed", "1"], "--seed needs --clock virtual"),
        (["--hop-ns", "1"], "--hop-ns needs --clock virtual"),
        (["--syscall-ns", "1"], "--syscall-ns needs --clock virtual"),
        (
            ["--clock", "virtual", "--rate", "10mbit", "--hop-ns", "-1"],
            "--hop-ns must be 0 .. 1000000000, got -1",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(options, words, capsys):
    assert main([*UP, *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize(
    "words",
    [
        [*UP, "--clock", "virtual", "--rate", "10mbit"],
        [
            *("run", "lbsp_tcp", "--clock", "virtual", "--seeds", "1", "--set"),
            *("workload=short", "scheme=ecmp", "damage=none", "flow_bytes=32768"),
        ],
    ],
)
def test_a_terminal_says_that_a_kernel_boots_and_a_pipe_does_not(
    words, is_terminal, monkeypatch, tmp_path, capsys
):
    def boot(*_: object, **__: object) -> int:
        raise ChildProcessError("no kernel boots in this test")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(uml, "run", boot)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert main(words) == 1
    lines = capsys.readouterr().err.splitlines()
    assert any("kernel for virtual time boots" in line for line in lines) is is_terminal


VIRTUAL = ("--clock", "virtual", "--rate", "100mbit", "--delay", "50us")
COMMAND = [sys.executable, "-m", "weft.experiments.cli.cli", *UP, *VIRTUAL]


def up(typed: list[str], *options: str) -> list[str]:
    """Return what `weft up` prints, without prompts, when `typed` is entered."""
    done = subprocess.run(
        [*COMMAND, *options],
        cwd=ROOT,
        input="".join(f"{line}\n" for line in typed),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    _, started, lines = done.stdout.replace("mininet> ", "").partition("*** Starting CLI:\n")
    assert started
    return [line for line in lines.partition("*** Stopping")[0].splitlines() if line]


@pytest.mark.virtual
def test_time_stands_still_while_nobody_types_and_goes_on_with_what_is_typed():
    """A ping of 98 bytes over two links of 50 us each way; three pings a second apart take two,
    and a little more, since ping's timeout is one of the kernel's coarse ones."""
    lines = up(
        [
            "h0 cut -d ' ' -f 1 /proc/uptime",
            "h0 ping -c 3 h1",
            "h0 cut -d ' ' -f 1 /proc/uptime",
            "exit",
        ]
    )
    assert sum("time=0.231 ms" in line or "time=0.232 ms" in line for line in lines) == 3
    assert 2.0 <= float(lines[-1]) - float(lines[0]) < 2.1
    assert lines == up(
        ["h0 cut -d ' ' -f 1 /proc/uptime", "h0 ping -c 3 h1", "h0 cut -d ' ' -f 1 /proc/uptime"]
    )


@pytest.mark.virtual
def test_interrupting_ends_the_command_that_runs_and_leaves_the_network():
    """As Ctrl-C does: a ping without an end tells what it has seen, and the next command finds the
    network up."""
    with subprocess.Popen(
        [*COMMAND, "--pace", "50"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as weft:
        weft.stdin.write("h0 ping h1\n")
        weft.stdin.flush()
        before = read_until(weft.stdout, "icmp_seq=3 ")
        assert "packets transmitted" not in before
        weft.send_signal(signal.SIGINT)
        read_until(weft.stdout, "packets transmitted")
        weft.stdin.write("h0 ping -c 1 h1\nexit\n")
        weft.stdin.flush()
        rest = read_until(weft.stdout, "")
    assert "1 packets transmitted, 1 received" in rest
    assert weft.returncode == 0


@pytest.mark.virtual
def test_interrupting_while_it_comes_up_ends_it_and_leaves_nothing(tmp_path):
    with subprocess.Popen(
        [*COMMAND, "--hop-ns", "1"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as weft:
        clock.wait_until("it starts", lambda: [*tmp_path.glob("weft-uml-*/memory")])
        clock.wait_until("init runs", lambda: not [*tmp_path.glob("weft-uml-*/channels/status")])
        weft.send_signal(signal.SIGINT)
        assert b"mininet>" not in weft.stdout.read()
    assert weft.returncode == 130
    clock.wait_until("nothing is left", lambda: not [*tmp_path.glob("weft-uml-*")])


def read_until(lines: Iterable[str], words: str) -> str:
    """Return the output up to the first line with `words`, or all of it if there is none."""
    read = ""
    for line in lines:
        read += line
        if words and words in line:
            return read
    assert not words, read
    return read


LAB = """
topology: dcell:n=3,k=1
link: {rate: 100mbit, delay: 50us}
commands: {h1: ["sleep 1000 &"]}
"""


@pytest.mark.virtual
def test_a_lab_comes_up_with_its_commands(tmp_path):
    (tmp_path / "lab.yaml").write_text(LAB)
    done = subprocess.run(
        [*COMMAND[:3], "up", "lab.yaml", "--trust", "--clock", "virtual"],
        cwd=tmp_path,
        input="h0 ping -c 1 h1\nh1 pgrep -a sleep\nexit\n",
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert re.search(r"time=0\.23[12] ms", said)
    assert "sleep 1000" in said


def test_a_lab_that_no_virtual_clock_can_bring_up_is_refused(tmp_path, capsys):
    (tmp_path / "lab.yaml").write_text("topology: star:n=2\nlinks: [{ends: h0-r0, rate: 1mbit}]")
    assert main(["up", str(tmp_path / "lab.yaml"), "--clock", "virtual"]) == 2
    assert "h1-r0 has no rate" in capsys.readouterr().err
    (tmp_path / "lab.yaml").write_text(LAB)
    assert main(["up", str(tmp_path / "lab.yaml"), "--trust", "--clock", "virtual"]) == 2
    assert f"begin in {tmp_path}" in capsys.readouterr().err


@pytest.mark.virtual
def test_a_pace_is_kept():
    began_s = clock.monotonic()
    up(["h0 sleep 20", "exit"], "--pace", "10")
    assert clock.monotonic() - began_s >= 2.0
