"""Other users of the machine cannot harm a run through its folder or its sockets."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.testbed.linux.process import CAP_NET_ADMIN
from weft.testbed.network import foreground
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control, daemon_files
from weft.testbed.node_daemon.supervisor import NAME
from weft.testbed.runs.node_command import REMOTE_SHELL
from weft.testbed.runs.run import runs

pytestmark = pytest.mark.kernel
NONSENSE = ["\N{SUPERSCRIPT TWO}", "[" * 9999, "{}", "7", "stopped h0", "", " "]


@pytest.fixture
def routed_net(network: Callable[..., RunningNetwork], tmp_path, monkeypatch) -> RunningNetwork:
    """Return a network brought up with umask 0 in a folder with another user's modules."""
    for module in ("pickle", "struct", "testbed", "weft"):
        (tmp_path / f"{module}.py").write_text(
            f"open({str(tmp_path / 'taken')!r}, 'w').close(); raise SystemExit"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = os.umask(0)
    try:
        return network("dcell:n=3,k=1", None, "dr")
    finally:
        os.umask(before)


def test_whoever_is_no_friend_gets_nowhere(routed_net, tmp_path):
    assert not (tmp_path / "taken").exists()
    pids = {node: row.pid for node, row in routed_net.rows().items()}

    # Nothing of the run is open to others.
    folders = [
        routed_net.run.directory.parent,
        routed_net.run.directory,
        routed_net.run.directory / "log",
    ]
    files = [file for folder in folders[1:] for file in folder.iterdir() if not file.is_dir()]
    assert len(files) > 2 * len(pids)
    assert {(file.name, stat.S_IMODE(file.stat().st_mode)) for file in files} == {
        (file.name, 0o700 if file.name == REMOTE_SHELL else 0o600) for file in files
    }
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}

    # Nonsense is answered with what would be right.
    for words in NONSENSE:
        with pytest.raises(ValueError, match="is no request; write start NODE, or stop, kill or"):
            daemon_files.ask(routed_net.run.directory, NAME, words)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unnamed:
        for words in NONSENSE:
            unnamed.sendto(words.encode(), str(routed_net.run.directory / f"{NAME}.sock"))
    with pytest.raises(ValueError, match="h0 has a daemon already"):
        control.start(routed_net.run.directory, "h0")

    # So is who has no name, or asks for what there is not: not at all, or not with the daemon's
    # death.
    where = str(routed_net.run.directory / "h0.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unnamed:
        for words in (
            b"status",
            b"degraded 99 1",
            b"degraded",
            b"\xff\xfe",
            b"",
            b"degraded " + b"9" * 50,
            b"x" * 9999,
        ):
            unnamed.sendto(words, where)
    for words in ("degraded 99 1", "degraded 1", "degraded \N{SUPERSCRIPT TWO} 1"):
        with pytest.raises(ValueError, match="h0: "):
            daemon_files.ask(routed_net.run.directory, "h0", words)

    # A daemon that is refused, as the node has one, takes nothing from that one.
    before = routed_net.rows()[0]
    with pytest.raises(ValueError, match="h0 has a daemon already"):
        foreground.serve(routed_net, 0, None)
    after = routed_net.rows()[0]
    assert (after.began_ns, after.neighbours_up, after.routes) == (
        before.began_ns,
        before.neighbours_up,
        before.routes,
    )
    assert after.ticks >= before.ticks > 0

    # Of root's rights a daemon has kept what routes take, and gets no others by starting anything.
    for pid in pids.values():
        told = dict(
            line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        assert {told[field] for field in ("CapPrm", "CapEff", "CapBnd")} == {
            f"{1 << CAP_NET_ADMIN:016x}"
        }
        assert (told["CapInh"], told["CapAmb"], told["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")

    assert {node: row.pid for node, row in routed_net.rows().items()} == pids
    assert all(row.converged for row in routed_net.rows().values())


LOW = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from weft.testbed.node_daemon import control
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs.run import runs
from weft.testbed.linux.process import CAP_NET_ADMIN
from weft.topologies import build
try:
    network = RunningNetwork.create(build("dcell:n=3,k=1"), None, scheme="dr", packed=0, name=sys.argv[1])
except ValueError as error:
    print(error)
else:
    pid = control.restart(network.run.directory, "h0")
    network.wait_until_converged()
    print(pid == network.rows()[0].pid)
    network.down()
"""  # noqa: E501
CAP_SYS_RESOURCE = 1 << 24


def test_root_whose_limit_of_open_files_is_low_and_hard_gets_its_network_or_is_told_why_not():
    """Root may raise the limit, unless it lacks a capability, as in containers."""
    name, status = f"u{os.getpid() % 10**6}", Path("/proc/self/status").read_text()
    may = int(status.partition("CapEff:")[2].split()[0], 16) & CAP_SYS_RESOURCE
    done = subprocess.run(
        [sys.executable, "-c", LOW, name], capture_output=True, text=True, check=False
    )
    refused = "this network needs 248 open files and the limit is 64; raise it with ulimit -n"
    assert (done.stdout.strip(), done.stderr, done.returncode) == (
        "True" if may else refused,
        "",
        0,
    )
    assert name not in {record.id for record in runs()}
