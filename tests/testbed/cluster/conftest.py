"""Names of runs over several machines, and the server by which they are reached."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import optional_parts
from tests.testbed.cluster.machines_here import weft


@pytest.fixture
def ssh_server() -> None:
    """Need a server for ssh."""
    if not Path("/usr/sbin/sshd").exists():
        optional_parts.refuse("sshd: apt-get install openssh-server")


@pytest.fixture
def name() -> Iterator[str]:
    """Yield a name of a run, which is removed at the end."""
    run = f"t{random.SystemRandom().randrange(16**6):06x}"
    yield run
    weft("down", "--run", run, check=False)
    weft("clean", "--run", run, check=False)
