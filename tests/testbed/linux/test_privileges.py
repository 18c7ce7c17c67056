"""Rights that are left to a process that has given up root's, and to its children."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weft.testbed.linux import privileges
from weft.testbed.runs import isolated_python

PROGRAM = """
import os, socket, subprocess
from weft.testbed.linux import netns
from weft.testbed.linux import privileges
privileges.keep_only(privileges.CAP_NET_ADMIN)
told = subprocess.run(["grep", "^Cap", "/proc/self/status"], capture_output=True, text=True).stdout
print({int(line.split()[1], 16) & ~(1 << 12) for line in told.splitlines() if not line.startswith("CapBnd")})
own = os.open("/proc/self/ns/net", os.O_RDONLY)
for what in (lambda: netns.enter(own), lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)):
    try:
        what()
    except PermissionError:
        print("refused")
privileges.keep_only()  # once more, and all of it
with open("/proc/self/status") as status:
    print([line.split()[1] for line in status if line.startswith(("CapPrm", "CapEff", "NoNewPrivs"))])
"""  # noqa: E501


@pytest.mark.parametrize(
    ("release", "kept"),
    [
        ("6.1.0-40-amd64", set()),
        ("5.19.0", set()),
        ("5.15.0-91-generic", {39}),
        ("4.19.1", {39}),
        ("odd", {39}),
    ],
)
def test_maps_that_are_open_need_a_right_on_old_kernels(release: str, kept: set[int]) -> None:
    assert privileges.of_maps(release) == kept


def test_what_is_given_up_is_gone_for_good() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=isolated_python.ROOT, capture_output=True, text=True, check=True
    )
    others, *refused, last = done.stdout.splitlines()
    assert others == "{0}"
    assert refused == ["refused"] * 2
    assert last == str(["0" * 16, "0" * 16, "1"])
