"""Tests of mine_: `python -m pytest`, without root."""

import random

from weft import build
from weft.daemons.core import registry
from weft.testbed.data_plane import own_rule
from weft.testbed.packets.simulation import simulate


def choice(loads: list[int], host: int, margin: int, draw: int) -> int:
    """Return what choose() in C must return."""
    n = len(loads)
    own = host % n
    other = (own + 1 + (draw * (n - 1) >> 32)) % n
    return other if loads[own] > loads[other] + margin else own


def test_the_rule_in_c_chooses_as_the_one_in_python():
    generator = random.Random(1)
    for _ in range(1000):
        margin, host, draw = (generator.randrange(most) for most in (5, 100, 1 << 32))
        loads = [generator.randrange(10) for _ in range(generator.randrange(2, 65))]
        rule = registry.rule(f"mine_:margin={margin}")
        chosen = own_rule.choose(rule, loads, iter([draw]), host=host)
        assert chosen.candidate == choice(loads, host, margin, draw)


def test_every_message_arrives():
    flows = [(src, 15 - src, 100_000) for src in range(16)]
    result = simulate(build("fattree:k=4"), "mine_", flows, transport="ndp")
    assert result.unfinished == 0
