"""Repetition of published results: which runs, and how the new rows compare.

Rows of the engines graph and fabric and of the virtual clock are equal to the bit where numpy and
numba use the same versions and instruction sets.  Elsewhere floats may differ in their last
digits, so CLOSE is enough.  Processor times and rows in real time are compared by the claims'
intervals alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from weft.experiments.report.claims import (
    OURS,
    PAPERS,
    Claim,
    Outcome,
    all_claims,
    number_text,
    outcome,
)
from weft.experiments.report.published import PublishedSet, runs_of
from weft.experiments.runner.definition import Entry, Experiment, Run, find, names
from weft.experiments.runner.sweep import timed
from weft.topologies.core.grammar import unknown

CLOSE = 1e-9  # relative difference of floats between instruction sets
SAMPLE_S = 120.0  # of processor time in a sample
PLACES = ("figure", "table", "section", "theorem", "appendix")
ALL, OWN = "all", "own"

Entries = Mapping[str, Entry]


class ClaimSelection(NamedTuple):
    """Claims by name, and runs by id."""

    claims: dict[str, Claim]
    runs: dict[str, Run]


def select(words: Sequence[str], *, runs: bool = True) -> ClaimSelection:
    """Return what `words` name: papers, places of a paper, claims, experiments, or all.

    Args:
        words: such as ccrdn, ccrdn figure 9, ccrdn own, ccrdn-3, hop_length.
        runs: plan the runs, too.

    Raises:
        ValueError: a word names none of them.
    """
    claims: dict[str, Claim] = {}
    experiments: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        place = place_after(word, rest)
        named = claims_named(word, place)
        if named is None:
            experiments.append(word)
            named = {
                name: claim
                for name, claim in all_claims().items()
                if claim.query and claim.query.experiment == word
            }
        claims |= named
        experiments += names() if word == ALL else []
    if not runs:
        return ClaimSelection(claims, {})
    selected = [run for claim in claims.values() for run in claim.runs]
    selected += [run for name in experiments for run in runs_of(name).values()]
    return ClaimSelection(claims, {run.id: run for run in selected})


def place_after(word: str, rest: list[str]) -> str:
    """Take the place that follows a paper from `rest`, and return it; "" without one."""
    if word in PAPERS and rest[:1] == [OWN]:
        return rest.pop(0)
    if word in PAPERS and len(rest) > 1 and rest[0] in PLACES:
        return f"{rest.pop(0)} {rest.pop(0)}"
    return ""


def claims_named(word: str, place: str = "") -> dict[str, Claim] | None:
    """Return the claims of a paper, at `place` if it is given, or the claim `word`.

    None if `word` is an experiment.
    """
    if word == ALL:
        return all_claims()
    if word in names():
        return None
    claims = {
        name: claim
        for name, claim in all_claims().items()
        if word in (name, name.rpartition("-")[0])
    }
    if not claims:
        raise ValueError(unknown("paper, claim or experiment", word, [ALL, *PAPERS, *names()]))
    if not place:
        return claims
    at_place = {name: claim for name, claim in claims.items() if is_at(claim, place)}
    if not at_place:
        places = sorted({claim.place for claim in claims.values()})
        raise ValueError(f"{PAPERS[word]}: no claim of {place} (there are: {'; '.join(places)})")
    return at_place


def is_at(claim: Claim, place: str) -> bool:
    """Return whether a claim belongs to a figure, table or section, or is our own.

    Figure 10 has figure 10a, and figures 10 and 11.
    """
    if place == OWN:
        return claim.statement is OURS
    kind, number = place.split()
    lists = re.findall(rf"\b{kind}s? ([\w.-]+(?:(?:, | and )[\w.-]+)*)", claim.place)
    numbers = [word for words in lists for word in re.findall(r"[\w.-]+", words)]
    return any(word.rstrip("abcd") in (number, number.rstrip("abcd")) for word in numbers)


def sample(runs: Iterable[Run], seconds: Mapping[str, float]) -> list[Run]:
    """Return some runs of every experiment, engine and clock, which take SAMPLE_S at most.

    Args:
        runs: to choose from.
        seconds: published wall time of each run, by id; others are left out.
    """
    ranked: list[tuple[int, float, Run]] = []
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        if run.id in seconds:
            groups.setdefault((run.experiment, run.engine, run.clock), []).append(run)
    for group in groups.values():
        group.sort(key=lambda run: (seconds[run.id], run.id))
        ranked += [(rank, seconds[run.id], run) for rank, run in enumerate(group)]
    sample: list[Run] = []
    left_s = SAMPLE_S
    for _, took_s, run in sorted(ranked, key=lambda entry: entry[:2]):
        if took_s <= left_s:
            left_s -= took_s
            sample.append(run)
    return sample


class Likeness(Enum):
    """Likeness of a new row or claim to the published one."""

    BITS = "same to the bit"
    CLOSE = "same to 1e-9 (other instruction sets)"
    INTERVAL = "within its interval"
    DIFFERENT = "different"
    NOT_MEASURED = "not measured"
    NOT_PUBLISHED = "not published"


class RowComparison(NamedTuple):
    """Comparison of a row: likeness, the columns that differ, the largest relative difference."""

    likeness: Likeness
    columns: tuple[str, ...] = ()
    difference: float = 0.0


def compare(
    experiment: Experiment,
    run: Run,
    new: Entry,
    published: Entry,
) -> RowComparison:
    """Compare a row with the published one."""
    if timed(run):
        return RowComparison(Likeness.INTERVAL)
    # the whole run's virtual time has the start of programs, which each new import changes by ns
    exempt = {*experiment.timed_columns, "virtual_s"}
    differing = {
        key: relative_difference(new[0].get(key), published[0].get(key))
        for key in dict.fromkeys((*new[0], *published[0]))
        if key not in exempt and not identical(new[0].get(key), published[0].get(key))
    }
    if not differing:
        return RowComparison(Likeness.BITS)
    most = max(differing.values())
    arithmetic = new[1].get("arithmetic", {})
    same_machine = all(published[1].get(name) == value for name, value in arithmetic.items())
    close = most <= CLOSE and not same_machine
    return RowComparison(Likeness.CLOSE if close else Likeness.DIFFERENT, tuple(differing), most)


def compare_rows(
    runs: Iterable[Run], new: Entries, published: PublishedSet
) -> dict[str, RowComparison]:
    """Return the comparisons of the new rows that are published, by run id."""
    by_id = {run.id: run for run in runs if run.id in new}
    comparisons = {}
    for row, about in published.entries(by_id.values()):
        run = by_id[row["run"]]
        comparisons[run.id] = compare(find(run.experiment), run, new[run.id], (row, about))
    return comparisons


def identical(a: object, b: object) -> bool:
    """Return whether two values are the same number, text or list, to the bit."""
    return a == b and type(a) is type(b)


def relative_difference(a: Any, b: Any) -> float:
    """Return the largest relative difference of numbers or lists; infinity for other values."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max((relative_difference(x, y) for x, y in zip(a, b, strict=True)), default=0.0)
    if a == b:
        return 0.0
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))


class ClaimComparison(NamedTuple):
    """Comparison of a claim: published and new outcome, runs compared, and runs that it needs."""

    likeness: Likeness
    published: Outcome
    new: Outcome
    compared: int
    needed: int

    @property
    def text(self) -> str:
        """Return the verdict in words."""
        words = self.likeness.value
        if self.likeness is Likeness.DIFFERENT and self.published.value:
            change = 100 * (self.new.value / self.published.value - 1)
            words += f" by {number_text(change)} %" if change else " rows, the same value"
        part = f"; {self.compared} of {self.needed} runs"
        return words + part * (0 < self.compared < self.needed)


def compare_claim(
    claim: Claim, rows: Mapping[str, RowComparison], new: Entries, published: PublishedSet
) -> ClaimComparison:
    """Compare our new value of `claim` with the published one.

    Args:
        claim: with a query.
        rows: comparisons of all new rows, by run id.
        new: new rows, by run id.
        published: the published set.
    """
    assert claim.query
    ids = [run.id for run in claim.runs]
    compared = [rows[run] for run in ids if run in rows]
    before = outcome(claim, published.rows, in_part=True)
    available = {row["run"] for row in published.rows(claim.runs)} & new.keys()
    now = outcome(
        claim,
        lambda runs: [new[run.id][0] for run in runs if run.id in available],
        in_part=True,
    )
    return ClaimComparison(
        likeness_of(claim, compared, before, now), before, now, len(compared), len(ids)
    )


def likeness_of(
    claim: Claim, rows: Sequence[RowComparison], published: Outcome, new: Outcome
) -> Likeness:
    """Return the likeness of a claim by that of its rows."""
    if not published.runs:
        return Likeness.NOT_PUBLISHED
    if not rows:
        return Likeness.NOT_MEASURED
    assert claim.query
    likenesses = {row.likeness for row in rows}
    if Likeness.DIFFERENT in likenesses:
        return Likeness.DIFFERENT
    if (
        Likeness.INTERVAL in likenesses
        or claim.query.column in find(claim.query.experiment).timed_columns
    ):
        if math.isnan(new.value):  # a ratio of rows of which some are not measured
            return Likeness.NOT_MEASURED
        margin = sum(width for width in (published.half_width, new.half_width) if width > 0)
        near = abs(new.value - published.value) <= margin
        return Likeness.INTERVAL if near or new.verdict is published.verdict else Likeness.DIFFERENT
    return Likeness.CLOSE if Likeness.CLOSE in likenesses else Likeness.BITS
