"""The grammar of load-balancing schemes."""

from __future__ import annotations

import pytest

from daemons.routing import load_balancing
from daemons.routing.load_balancing import Rule, Scheme


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ecmp", Scheme(Rule.KERNEL)),
        ("dmodk", Scheme(Rule.D_MOD_K)),
        ("vlb", Scheme(Rule.FLOW_HASH)),
        ("vlb:per=packet", Scheme(Rule.RANDOM)),
        ("micro", Scheme(Rule.DRILL, d=2)),
        ("drill", Scheme(Rule.DRILL, d=2, m=1)),
        ("drill:d=4,m=0,load=bytes", Scheme(Rule.DRILL, d=4, in_bytes=True)),
        ("ttc", Scheme(Rule.TTC, delta=2)),
        ("ttc:delta=3028,load=bytes,tie=redirect", Scheme(Rule.TTC, delta=3028, ties_redirect=True, in_bytes=True)),
        ("letflow:gap_us=100,ecn=20", Scheme(Rule.FLOWLET, gap_us=100, ecn_packets=20)),
    ],
)
def test_a_spec_is_read(spec: str, expected: Scheme) -> None:
    assert load_balancing.scheme(spec) == expected


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tcc", "did you mean ttc?"),
        ("ecmp:seed=3", "ecmp: no parameter seed"),
        ("drill:m=2", "drill: m must be at most 1, got 2"),
        ("drill:d=0", "drill: d must be at least 1, got 0"),
        ("ttc:delta=-1", "ttc: delta must be at least 0, got -1"),
        ("ttc:dleta=1", "did you mean delta?"),
        ("ttc:tie=maybe", "ttc: tie must be stay or redirect, got 'maybe'"),
        ("letflow:gap_us=x", "letflow: gap_us must be an integer, got 'x'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(spec: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        load_balancing.scheme(spec)
    assert said in str(error.value)


def test_one_scheme_has_one_name() -> None:
    assert load_balancing.canonical("ttc:tie=stay,delta=2") == "ttc"
    assert load_balancing.canonical("ttc:load=bytes,delta=3000") == "ttc:delta=3000,load=bytes"
    for name in load_balancing.KINDS:
        assert load_balancing.canonical(name) == name
        assert load_balancing.scheme(name).rule in Rule
