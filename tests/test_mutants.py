"""Faults that are planted in a room: they are valid, and only missing tests let them pass."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import mutants

SOURCE = '''"""Two numbers."""

from __future__ import annotations

LIMIT: int | None = 3


def bounded(a: int, b: float = 0.5) -> float | None:
    """Return the sum, é, or None."""
    if a < LIMIT and not isinstance(a, bool | str):
        return [a + b for b in (b,) if b][-1]
    raise ValueError(f"{a + 1} is {2 * a}")


if __name__ == "__main__":
    print(bounded(1))
'''
WEAK = """from weft.topologies.small.sums import bounded

def test_a_sum():
    assert bounded(1) == 1.5
    assert bounded(2, 4) == 6
"""
STRONG = """
import pytest

@pytest.mark.parametrize("number", [3, 4, True, "2"])
def test_what_is_refused(number):
    with pytest.raises((ValueError, TypeError)):
        bounded(number)

def test_nothing():
    with pytest.raises(IndexError):
        bounded(0, 0)
"""
CHANGES = [
    "3  ->  4",
    "0.5  ->  1.0",
    "a < LIMIT and (not isinstance(a, bool | str))  ->  a < LIMIT or not isinstance(a, bool | str)",
    "a < LIMIT and (not isinstance(a, bool | str))  ->  "
    "not (a < LIMIT and (not isinstance(a, bool | str)))",
    "a < LIMIT  ->  a <= LIMIT",
    "not isinstance(a, bool | str)  ->  isinstance(a, bool | str)",
    "return [a + b for b in (b,) if b][-1]  ->  return None",
    "a + b  ->  a - b",
    "b  ->  not b",
    "-1  ->  1",
    "1  ->  2",
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with one room of one file, and a test of it."""
    for folder in ("topologies/small", "tests/topologies/small", "weft"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "weft/__init__.py").touch()
    (tmp_path / "weft/topologies").symlink_to("../topologies")
    (tmp_path / "topologies/small/sums.py").write_text(SOURCE)
    (tmp_path / "tests/topologies/small/test_sums.py").write_text(WEAK)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers = \n"
        + "".join(f" {mark}\n" for mark in ("kernel", "uml", "virtual", "slow"))
    )
    return tmp_path


ROOM = Path("topologies/small")


def test_every_kind_of_fault_is_planted_once_and_only_where_tests_can_see_it(
    checkout: Path,
) -> None:
    planted = mutants.mutants(ROOM / "sums.py", checkout)
    assert sorted(mutant.change for mutant in planted) == sorted(CHANGES)
    trees = {ast.dump(ast.parse(mutants.plant(mutant, SOURCE.encode()))) for mutant in planted}
    assert len(trees | {ast.dump(ast.parse(SOURCE))}) == len(CHANGES) + 1


@pytest.mark.slow
@pytest.mark.parametrize("tests", [WEAK, WEAK + STRONG])
def test_faults_survive_that_no_test_sees(
    checkout: Path, tests: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "tests/topologies/small/test_sums.py").write_text(tests)
    share = mutants.judge(checkout, ROOM, [], mutants.Settings())
    *survivors, summary = capsys.readouterr().out.splitlines()
    assert (checkout / ROOM / "sums.py").read_text() == SOURCE
    caught = len(CHANGES) - len(survivors)
    assert summary == f"{ROOM}: {caught} of {len(CHANGES)} faults caught, {share:.0%}"
    strong = tests != WEAK
    assert (f"{ROOM}/sums.py:10: a < LIMIT  ->  a <= LIMIT" in survivors) is not strong
    assert share == pytest.approx(caught / len(CHANGES))
    assert (share > 0.9) is strong


def test_a_room_is_refused_whose_faults_no_test_could_see(checkout: Path) -> None:
    def refusal(room: str) -> str:
        with pytest.raises(mutants.Refusal) as raised:
            mutants.judge(checkout, Path(room), [], mutants.Settings())
        return str(raised.value)

    assert "a room is a folder or a file in topologies," in refusal("tests/small")
    assert refusal("topologies/none") == "topologies/none: no Python files"
    test = checkout / "tests/topologies/small/test_sums.py"
    test.write_text("def test_nothing():\n    pass\n")
    assert "they do not import it" in refusal("topologies/small")
    test.write_text("def test_nothing():\n    raise ValueError\n")
    assert "tests fail without a fault" in refusal("topologies/small")
    (checkout / "weft/topologies").unlink()
    assert "weft.topologies.small.sums would be imported from elsewhere" in refusal(
        "topologies/small"
    )


def test_the_installed_checkout_is_not_taken_for_the_copy(checkout: Path) -> None:
    """A file that exists there is found there if the copy has no link to its own."""
    (checkout / "weft/topologies").unlink()
    (checkout / "weft/topologies").symlink_to(mutants.ROOT / "topologies")
    (checkout / "topologies/core").mkdir()
    (checkout / "topologies/core/link.py").write_text("A = 1\n")
    (checkout / "tests/topologies/core").mkdir()
    with pytest.raises(mutants.Refusal, match="would be imported from elsewhere"):
        mutants.judge(checkout, Path("topologies/core"), [], mutants.Settings())
