"""The search for hostile messages to agents: it finds what is wrong, and nothing else."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.fuzz.hostile_peers import Attack
from weft.testbed.cluster import cut_links
from weft.testbed.cluster.cut_links import Words


@pytest.mark.parametrize("has_key", [False, True])
def test_hostile_messages_raise_nothing_and_the_peer_is_heard_again(has_key):
    attack = Attack(Random(f"7 {has_key}"), has_key=has_key)
    attack.run(4000)
    assert attack.failures == []
    assert len(attack._near.dropped) >= 2 + 2 * has_key


def test_a_check_that_is_missing_is_found(monkeypatch):
    monkeypatch.setattr(cut_links, "_words_from", lambda body: Words(*json.loads(body)))
    attack = Attack(Random(7), has_key=True)
    attack.run(4000)
    assert "Error" in attack.failures[0]


def test_a_number_without_a_bound_is_found(monkeypatch):
    monkeypatch.setattr(cut_links, "AHEAD", 2**64)
    attack = Attack(Random(7), has_key=True)
    attack.run(40_000)
    assert attack.failures == ["far is not heard again"]
