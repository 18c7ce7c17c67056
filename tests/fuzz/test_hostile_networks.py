"""Networks, flows and failures at random leave the packet engine without a fault that a sanitizer
sees."""

from __future__ import annotations

import pytest

from tests.fuzz.hostile_networks import run


@pytest.mark.parametrize(
    ("sanitizer", "flows"),
    [("address,undefined", 20_000), pytest.param("thread", 1_000, marks=pytest.mark.slow)],
)
def test_no_network_breaks_the_packet_engine(sanitizer: str, flows: int) -> None:
    assert run(sanitizer, flows, seed=1).returncode == 0
