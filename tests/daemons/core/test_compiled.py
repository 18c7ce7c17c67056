from __future__ import annotations

import random

import numpy as np
import pytest

from weft.daemons.core import compiled as module
from weft.daemons.core.compiled import compile_s, compiled
from weft.daemons.proxy import routing as proxy
from weft.daemons.routing import dr
from weft.experiments.engines.wiring import compiled_for
from weft.topologies.recursive.ccrdn import BETA_DCELL, DCELL, FICONN, Ccrdn


def test_compiled_source_gives_what_it_gives_as_it_stands():
    step = compiled_for(DCELL, dr.next_hop)
    for network in (Ccrdn(DCELL, 4, 2), Ccrdn(BETA_DCELL, 4, 2), Ccrdn(FICONN, 8, 3)):
        sizes, draw = np.array(network.t), random.Random(1)
        for _ in range(500):
            src, dst = draw.sample(range(network.t[-1]), 2)
            assert step(network.rule, sizes, src, dst) == dr.next_hop(
                network.rule, network.t, src, dst
            )


def test_a_function_is_compiled_once():
    assert compiled_for(DCELL, dr.next_hop) is compiled_for(DCELL, dr.next_hop)
    assert compiled_for(DCELL, dr.next_hop) is compiled_for(FICONN, dr.next_hop)


def test_the_time_of_compiling_counts_once():
    function = compiled(six_times, double=treble)  # a test's own is not cached on disk
    before = compile_s()
    assert function(1) == 9
    after = compile_s()
    assert after > before
    assert function(2) == 18
    assert compile_s() == after


def six_times(a: int) -> int:
    return 3 * double(a)


def twice(a: int) -> int:
    return double(a)


def double(a: int) -> int:
    return 2 * a


def treble(a: int) -> int:
    return 3 * a


def test_the_digest_covers_all_functions_that_are_called_and_constants():
    """numba's cache on disk must not answer for other code."""
    twice.__module__ = double.__module__ = treble.__module__ = "weft.experiments"
    before = module._digest([twice])
    globals()["double"], kept = treble, double
    try:
        assert module._digest([twice]) != before
    finally:
        globals()["double"] = kept
    assert module._digest([twice]) == before
    scale.__module__ = "weft.experiments"
    before = module._digest([scale])
    globals()["FACTOR"] = 3
    try:
        assert module._digest([scale]) != before
    finally:
        globals()["FACTOR"] = 2


def test_the_digest_covers_the_module_that_numba_imports_with_the_code(monkeypatch):
    before = module._digest([twice])
    monkeypatch.setattr(twice, "__module__", "weft.elsewhere")
    assert module._digest([twice]) != before


FACTOR = 2


def scale(a: int) -> int:
    return FACTOR * a


def test_another_function_can_be_called_instead():
    twice.__module__ = double.__module__ = treble.__module__ = "weft.experiments"
    assert compiled(twice)(5) == 10
    assert compiled(twice, double=treble)(5) == 15
    assert compiled(twice)(5) == 10


def four_times(a: int) -> int:
    return twice(twice(a))


def test_another_function_can_be_called_instead_at_any_depth_also_with_data_of_its_own():
    four_times.__module__ = twice.__module__ = double.__module__ = "weft.experiments"
    factors = np.array([5, 7])

    def scale_by_data(a: int) -> int:
        return a * factors[a & 1]

    assert compiled(four_times)(1) == 4
    assert compiled(four_times, double=treble)(1) == 9
    assert compiled(four_times, double=scale_by_data)(1) == 49


def countdown(a: int) -> int:
    return countdown(a - 1) if a else 0


def calls_countdown(a: int) -> int:
    return countdown(a)


def test_functions_that_call_themselves_are_refused():
    countdown.__module__ = calls_countdown.__module__ = "weft.experiments"
    with pytest.raises(ValueError, match="countdown calls itself: write it as a loop"):
        compiled(calls_countdown)


def test_work_kept_on_disk_is_known_by_the_source_of_all_that_is_called():
    reached = {function.__name__ for function in module._reached([proxy.search])}
    assert {
        "search",
        "candidate",
        "hops",
        "length",
        "leaving",
        "gateway",
        "far_subnetwork",
    } <= reached
    files = {
        function.__code__.co_filename.rpartition("/")[2]
        for function in module._reached([proxy.search])
    }
    assert files == {"routing.py", "path_tables.py", "ccrdn.py"}
    assert module._digest([proxy.search]) != module._digest([proxy.search, proxy.shortest_first])
