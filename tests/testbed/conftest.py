"""Networks and namespaces for the kernel tests, gone again after each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from testbed import netns
from testbed.network import Network
from topologies import build
from topologies.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)


@pytest.fixture
def spare_netns() -> Iterator[netns.Netns]:
    """An empty namespace."""
    made: list[netns.Netns] = []
    name = f"weft.test.{os.urandom(4).hex()}"
    netns.create([name], lambda i: {}, made)
    yield made[0]
    made[0].close()
    netns.forget([name])


@pytest.fixture
def network() -> Iterator[Callable[..., Network]]:
    """Make networks; those that are still up after the test are taken down."""
    made: list[Network] = []

    def create(spec: str, link: LinkSpec | None = LINK, scheme: str = "static") -> Network:
        made.append(Network.create(build(spec), link, scheme=scheme))
        return made[-1]

    yield create
    for one in made:
        if one.run.directory.exists():
            one.down()
