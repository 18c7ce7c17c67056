"""The grammar of load-balancing schemes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.daemons.core import registry
from weft.daemons.load_balancing.scheme import ChoiceRule, own_rule

REPOSITORY = Path(__file__).parents[3]
RULES = Path("testbed/data_plane/select.h")


@pytest.mark.parametrize(
    ("spec", "rule", "parameters"),
    [
        ("ecmp", ChoiceRule.KERNEL, {}),
        ("dmodk", ChoiceRule.D_MOD_K, {"ecn": 0}),
        ("vlb", ChoiceRule.FLOW_HASH, {"ecn": 0}),
        ("vlb:per=packet,ecn=7", ChoiceRule.RANDOM, {"ecn": 7}),
        ("micro", ChoiceRule.DRILL, {"d": 2, "load": 0, "ecn": 0}),
        ("drill", ChoiceRule.DRILL, {"d": 2, "m": 1, "load": 0, "ecn": 0}),
        ("drill:d=4,m=0,load=bytes", ChoiceRule.DRILL, {"d": 4, "m": 0, "load": 1, "ecn": 0}),
        ("ttc", ChoiceRule.TTC, {"delta": 2, "tie": 0, "load": 0, "ecn": 0}),
        (
            "ttc:delta=3028,load=bytes,tie=redirect",
            ChoiceRule.TTC,
            {"delta": 3028, "tie": 1, "load": 1, "ecn": 0},
        ),
        ("valiant:gap_us=0", ChoiceRule.VALIANT, {"gap_us": 0, "ecn": 0}),
        ("ugal", ChoiceRule.UGAL, {"d": 1, "delta": 0, "load": 0, "gap_us": 0, "ecn": 0}),
        ("letflow", ChoiceRule.FLOWLET, {"gap_us": 500, "ecn": 0}),
        ("letflow:gap_us=100,ecn=20", ChoiceRule.FLOWLET, {"gap_us": 100, "ecn": 20}),
    ],
)
def test_a_spec_is_read(spec: str, rule: ChoiceRule, parameters: dict[str, int]) -> None:
    assert (registry.rule(spec).rule, registry.rule(spec).parameters) == (rule, parameters)


def test_lbsps_parameters_are_those_of_the_paper() -> None:
    """Section 5.2: thresholds of 5 packets and 1.5 times at edge switches, 20 packets and 2 times
    above."""
    assert registry.rule("lbsp").parameters == {
        "groups": 2, "group_bits": 1, "hash": 0, "states": 0, "ecn": 0,
        "edge_packets": 5, "edge_percent": 150, "above_packets": 20, "above_percent": 200,
    }  # fmt: skip
    assert registry.rule("lbsp:groups=16,hash=1")["group_bits"] == 4


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tcc", "did you mean ttc?"),
        ("ecmp:seed=3", "ecmp: no parameter 'seed', did you mean seeds? (there are: ecn, seeds)"),
        ("drill:m=2", "drill: m must be at most 1, got 2"),
        ("drill:d=0", "drill: d must be at least 1, got 0"),
        ("ttc:delta=-1", "ttc: delta must be at least 0, got -1"),
        ("ttc:dleta=1", "did you mean delta?"),
        ("lbsp:groups=3", "lbsp: groups must be a power of two, got 3"),
        ("lbsp:groups=4,states=1", "states need two link groups"),
        ("lbsp:edge_percent=99", "edge_percent must be at least 100"),
        ("ttc:tie=maybe", "ttc: tie must be stay or redirect, got 'maybe'"),
        ("letflow:gap_us=x", "letflow: gap_us must be an integer, got 'x'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(spec: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        registry.rule(spec)
    assert said in str(error.value)


def test_every_data_plane_has_a_rule() -> None:
    for name in registry.with_data_plane():
        assert registry.rule(name).rule in list(ChoiceRule)


def test_a_rule_of_another_package_compares_queues_unless_it_says_that_it_does_not() -> None:
    options = {"ecn": 0}
    rule = own_rule("sticky", "", "", Path("sticky.c")).rule(options)
    assert rule
    assert rule.compares_queues
    blind = own_rule("sticky", "", "", Path("sticky.c"), compares_queues=False).rule(options)
    assert blind
    assert not blind.compares_queues


def test_ecmp_marks_by_the_data_planes_own_hash():
    assert registry.rule("ecmp").rule == ChoiceRule.KERNEL
    marks = registry.rule("ecmp:ecn=33")
    assert (marks.rule, marks["ecn"], marks.asks_queues) == (ChoiceRule.FLOW_HASH, 33, True)


def test_python_and_c_give_rules_the_same_numbers() -> None:
    block = re.search(r"^enum rule \{([^}]*)\}", (REPOSITORY / RULES).read_text(), re.M)
    assert block
    names = re.findall(r"^\t([A-Z_]+)", block[1], re.M)
    assert names == [rule.name for rule in sorted(ChoiceRule)]


@pytest.mark.parametrize("target", ["data_plane/select.bpf.o", "traffic/libndp.so"])
def test_a_rule_without_a_case_does_not_compile(target: str, tmp_path: Path) -> None:
    for room in ("data_plane", "packets", "traffic"):
        (tmp_path / "testbed" / room).mkdir(parents=True)
        for source in REPOSITORY.glob(f"testbed/{room}/*.[ch]"):
            shutil.copy(source, tmp_path / "testbed" / room)
    rules = tmp_path / RULES
    rules.write_text(
        re.sub(r"^\tOWN\b", "\tSTICKY = 99,\n\tOWN = 13", rules.read_text(), flags=re.M)
    )
    make = ["make", f"--directory={tmp_path}", f"--makefile={REPOSITORY / 'Makefile'}"]
    how = [*make, "--old-file=.venv/.ready", f"testbed/{target}"]
    done = subprocess.run(how, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "STICKY" in done.stderr
    assert "switch" in done.stderr
