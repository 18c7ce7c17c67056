"""Machines with kernels of their own: two guests of User-Mode Linux, joined by a socket pair."""

from __future__ import annotations

import io
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.testbed.cluster.machines_here import ROOT, WEFT
from tests.testbed.cluster.ssh_here import SERVE, describe, needs_server, write_keys
from weft.testbed.uml import uml

pytestmark = [
    needs_server,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: guests need a high priority"),
    pytest.mark.usefixtures("user_mode_linux"),
]
CONNECT = """
set -e
ip address add 10.99.0.{number}/24 dev vec0
ip link set vec0 mtu 1600 up
"""
# it ends when the other guest turns it off, or has ended
FAR = """
{serve}
until [ -e {folder}/ended0 ]; do sleep 0.2; done
"""
NEAR = """
weft() {{ {weft} "$@"; }}
far() {{ ssh -F {folder}/client far "$@"; }}
until far true 2>/dev/null; do
  [ ! -e {folder}/ended1 ]
  sleep 0.2
done
links='--rate 100mbit --delay 50ms'
weft up dcell:n=3,k=1 --routing static $links --machines {folder}/machines.yaml --detach two
for node in $(ls /run/netns); do tc -json -n $node qdisc show; done |
  grep -oE '"delay":[0-9.e-]+' | cut -d : -f 2 | sort -u
echo end of delays
cat /proc/sys/kernel/random/boot_id
ping='ping -M do -s 1472 -c 3 -i 0.2 -W 5 -q h0'
weft exec h11 -- sh -c "cat /proc/sys/kernel/random/boot_id; $ping >&2"
far 'echo o >/proc/sysrq-trigger' &
until grep -q '"dead": {{"far"' /run/weft/two/machines.json; do sleep 0.2; done
weft status --json
weft down
ls -A /run/netns
"""


def test_two_kernels_hold_one_network_and_notice_a_death(tmp_path):
    write_keys(tmp_path)
    program = f"env PYTHONPATH={ROOT} {' '.join(WEFT)}"
    describe(tmp_path, "far", program)
    scripts = [
        NEAR.format(folder=tmp_path, weft=program),
        FAR.format(folder=tmp_path, serve=SERVE.format(folder=tmp_path)),
    ]
    output = io.BytesIO()
    cores = sorted(os.sched_getaffinity(0))

    def guest(number: int, end: socket.socket) -> int:
        # of this thread and of the guest: one that waits for a processor for 10 s is dead
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        try:
            return uml.run(
                ["bash", "-c", CONNECT.format(number=number + 1) + scripts[number]],
                cwd=tmp_path,
                writable=True,
                memory_mb=700,
                core=cores[number % len(cores)],
                timeout_s=1500.0,
                network=end.fileno(),
                stdout=output,
            )
        finally:
            (tmp_path / f"ended{number}").touch()

    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ThreadPoolExecutor() as executor, ends[0], ends[1]:
        status, death = map(executor.submit, (guest, guest), (0, 1), ends)
        assert status.result() == 0
        with pytest.raises(ChildProcessError, match="Power down"):
            death.result()
    lines = output.getvalue().decode().splitlines()
    end = lines.index("end of delays")
    *cut, local = sorted(map(float, lines[:end]))
    assert local == 0.05
    assert cut
    assert all(0 < delay < 0.05 for delay in cut)
    near_id, far_id, text, *rest = lines[end + 1 :]
    assert near_id != far_id
    state = json.loads(text)
    assert [row["state"] for row in state["machines"]] == ["up", "dead"]
    assert state["failed"]
    assert not rest
