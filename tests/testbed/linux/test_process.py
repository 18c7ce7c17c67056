"""Limits of this process, and the rights that are left to it when it has given up root's."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from weft.testbed.linux import process
from weft.testbed.runs import isolated_python


def test_what_root_may_not_raise_is_one_line_that_says_what_is_needed():
    """As under a container's limits, where root lacks CAP_SYS_RESOURCE."""
    if not (pid := os.fork()):
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        if os.geteuid() == 0:
            os.setuid(12345)  # and with that without rights
        try:
            process.allow_descriptors(64)
            process.allow_descriptors(300)
        except ValueError as error:
            os._exit(
                7
                if "needs 300 open files and the limit is 64; raise it with ulimit -n" in str(error)
                else 8
            )
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_up_to_the_hard_limit_it_is_raised():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        process.allow_descriptors(before[1] // 2 + 1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1] // 2 + 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_is_open_already_is_counted():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = [os.open("/", os.O_RDONLY) for _ in range(100)]
    try:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (110 + len(os.listdir("/proc/self/fd")) - 100, before[1])
        )
        process.allow_more_descriptors(200)
        descriptors += [os.open("/", os.O_RDONLY) for _ in range(200)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in descriptors:
            os.close(fd)


def test_nonroot_is_told_to_be_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ValueError, match="networks need root"):
        process.need_root()


PROGRAM = """
import os, socket, subprocess
from weft.testbed.linux import netns
from weft.testbed.linux import process
process.keep_only(process.CAP_NET_ADMIN)
told = subprocess.run(["grep", "^Cap", "/proc/self/status"], capture_output=True, text=True).stdout
print({int(line.split()[1], 16) & ~(1 << 12) for line in told.splitlines() if not line.startswith("CapBnd")})
own = os.open("/proc/self/ns/net", os.O_RDONLY)
for what in (lambda: netns.enter(own), lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)):
    try:
        what()
    except PermissionError:
        print("refused")
process.keep_only()  # once more, and all of it
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
    assert process.map_capabilities(release) == kept


def test_what_is_given_up_is_gone_for_good() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=isolated_python.ROOT, capture_output=True, text=True, check=True
    )
    others, *refused, last = done.stdout.splitlines()
    assert others == "{0}"
    assert refused == ["refused"] * 2
    assert last == str(["0" * 16, "0" * 16, "1"])
