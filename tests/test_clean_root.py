"""The clean root, from inside: of the machine outside, what says where packages come from alone.

Run by `make test-clean` and `.ci/run`, which both begin with tools/clean_root.sh.
"""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

import pytest

PLACE = ("container", "weft-clean-root")
pytestmark = pytest.mark.skipif(
    PLACE not in os.environ.items(), reason="looks at a clean root from inside: make test-clean"
)

# What clean_root.sh mounts, but the folders and files that the package configuration names.
SYSTEM = {"/", "/dev", "/dev/pts", "/dev/shm", "/proc", "/run", "/sys", "/sys/fs/bpf"}
SYSTEM_BELOW = ("/sys/fs/cgroup", "/run/netns")  # the second is made by networks
NAMES = re.compile(
    r"HOME|PATH|container|CI|PIP_([A-Z_]*INDEX[A-Z_]*|FIND_LINKS|TRUSTED_HOST|[A-Z_]*CERT|PROXY"
    r"|[A-Z_]*TIMEOUT|RETRIES)|[a-zA-Z]+_(proxy|PROXY)|(SSL|GIT_SSL|CURL|REQUESTS)_C[A-Z_]+"
)
CONFIGURATION = (
    *("/etc/pip.conf", "/etc/apt/sources.list"),
    str(Path.home() / ".config/pip/pip.conf"),
)


def environment() -> dict[str, str]:
    """Return the environment of the first process in the root."""
    lines = Path("/proc/1/environ").read_text().split("\0")
    return dict(line.split("=", 1) for line in lines if line)


def outside_text() -> str:
    """Return the text that may name folders of the machine outside."""
    files = [Path(name) for name in CONFIGURATION]
    texts = [file.read_text() for file in files if file.exists()]
    return "\n".join([*environment().values(), *texts])


def test_variables_are_of_packages_and_certificates_alone():
    assert not {name for name in environment() if not NAMES.fullmatch(name)}
    assert environment()["HOME"] == pwd.getpwuid(os.getuid()).pw_dir


def test_what_is_mounted_is_of_the_kernel_or_named_by_the_configuration_of_packages():
    """And what is named cannot be written to."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    others = {
        mount[4]: mount[5].split(",")
        for mount in mounts
        if mount[4] not in SYSTEM and not mount[4].startswith(SYSTEM_BELOW)
    }
    text = outside_text()
    assert not {point for point in others if point not in text}
    assert not {point for point, options in others.items() if "ro" not in options}


def test_processes_and_devices_of_the_machine_are_not_seen():
    """The first process is that of clean_root.sh; disks and terminals stay outside."""
    assert b"clean-root" in Path("/proc/1/cmdline").read_bytes()
    known = {"fd", "full", "null", "ptmx", "pts", "random", "shm", "tty", "urandom", "zero"}
    assert {entry.name for entry in Path("/dev").iterdir()} == known | {"stderr", "stdin", "stdout"}


def test_the_home_is_its_owners_alone():
    assert Path.home().stat().st_mode & 0o777 == 0o700
