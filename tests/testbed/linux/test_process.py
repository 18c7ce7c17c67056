"""Limits of this process."""

from __future__ import annotations

import os
import resource

import pytest

from weft.testbed.linux import process


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
    held = [os.open("/", os.O_RDONLY) for _ in range(100)]
    try:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (110 + len(os.listdir("/proc/self/fd")) - 100, before[1])
        )
        process.allow_more_descriptors(200)
        held += [os.open("/", os.O_RDONLY) for _ in range(200)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in held:
            os.close(fd)


def test_nonroot_is_told_to_be_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ValueError, match="networks need root"):
        process.need_root()
