"""Claims of the papers as data, and what our rows say about them.

Each paper's claims are the tuple CLAIMS in the file claims.py of its folder.  To add one:

    Claim(
        "GP_I shortens routes on beta-DCell by up to",     # the paper's words, in short
        "section 7.1",                                     # section, figure or table
        16,                                                # its value; words for an order or bound
        Query(
            "hop_length",                                  # experiment
            {"topology": "beta-dcell:n=3,k=3", "routing": "pr-gpi"},
            "mean_hops",                                   # column
            over={"routing": "dr"},                        # divide by these rows
            form=Form.SAVING,                              # 0.84 is a saving of 16 %
        ),
        Within(0.05),
    )

A query selects the runs of `weft run EXPERIMENT --set ...`: a parameter that it does not name has
the values of the default sweep.  `engine`, `clock`, `hop_ns` and `syscall_ns` go with the
parameters, and are the experiment's own without that; a tuple stands for several values.

A claim without a query is a figure or table that is missing here; `why` is the reason.  A claim
that our rows contradict needs a `why`, too.  A claim whose measurement or comparison is in doubt
has the reason in `review`: its verdict is "under review", whatever the rows say.

A claim is named by its paper and its number, ttc-3.  `weft claims ttc` prints the outcomes,
`weft claims --write` writes them into the pages, `weft reproduce ttc-3` measures one again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from statistics import mean
from typing import NamedTuple

from weft.experiments.report.statistics import mean_and_half_width
from weft.experiments.runner import columns
from weft.experiments.runner.definition import COSTS, Row, Run, find
from weft.experiments.runner.parameters import Scalar

# folders with a file claims.py, and the short name of each paper
PAPERS = {
    "ccrdn": "CCRDN",
    "ttc": "TTC",
    "lbsp": "LBSP",
    "dar": "DAR",
    "fatpaths": "FatPaths",
}
SETTINGS = ("engine", "clock", *COSTS)
WORST = ("FAIL", "WARN", "PASS")
TITLES = ("name", "claim", "place", "paper", "ours", "n", "verdict")

Where = Mapping[str, Scalar | tuple[Scalar, ...]]
RowsOf = Callable[[Iterable[Run]], list[Row]]


class Form(Enum):
    """Form in which a value is printed."""

    VALUE = "value"
    PERCENT = "percent"  # 100 x
    GAIN = "gain"  # 100 (x - 1)
    SAVING = "saving"  # 100 (1 - x)

    def of(self, value: float) -> float:
        """Return `value` in this form."""
        scale = {Form.PERCENT: (100, 0), Form.GAIN: (100, -100), Form.SAVING: (-100, 100)}
        factor, offset = scale.get(self, (1, 0))
        return factor * value + offset


@dataclass(frozen=True)
class Sweep:
    """Runs of an experiment.

    where: values of parameters, and engine, clock and costs; others are those of the default sweep.
    seeds: runs of each cell; None for the experiment's own number.
    """

    experiment: str
    where: Where = field(default_factory=dict)
    seeds: int | None = None

    def runs(self) -> list[Run]:
        """Return the runs; ValueError for a parameter or value that does not exist."""
        texts = {
            key: ",".join(map(str, value if isinstance(value, tuple) else (value,)))
            for key, value in self.where.items()
        }
        experiment = find(self.experiment)
        settings = {key: texts.pop(key) for key in SETTINGS if key in texts}
        engine = settings.get("engine", "kernel" if "clock" in settings else experiment.engines[0])
        clock = settings.get("clock", experiment.clock if engine == "kernel" else "real")
        costs = {key: int(settings[key]) for key in COSTS if key in settings}
        return experiment.plan(texts, seeds=self.seeds, engines=[engine], clock=clock, **costs).runs


@dataclass(frozen=True)
class Query:
    """A figure of ours: a statistic of a column over the rows of some runs.

    over: parameters of the rows to divide by; they agree in all others and in seed.
    statistic: over the rows: mean, median, min, max or sum; a mean has an interval.
    bins: first and last entry of a column that is a list; their sum is the value.
    """

    experiment: str
    where: Where
    column: str
    over: Mapping[str, Scalar] = field(default_factory=dict)
    form: Form = Form.VALUE
    statistic: Callable[[Sequence[float]], float] = mean
    bins: tuple[int, int] | None = None
    seeds: int | None = None

    @cached_property
    def pairs(self) -> list[tuple[Run, Run | None]]:
        """Return each run, with the run to divide by."""
        runs = Sweep(self.experiment, self.where, self.seeds).runs()
        return [(run, self._base(run)) for run in runs]

    @property
    def runs(self) -> list[Run]:
        """Return all runs that the figure needs."""
        return [run for pair in self.pairs for run in pair if run]

    @property
    def unit(self) -> str:
        """Return the unit of the figure."""
        if self.form is not Form.VALUE:
            return "%"
        unit = columns.unit(self.column)
        return "" if self.over or unit in ("ratio", "fraction") else unit

    def value(self, row: Row) -> float | None:
        """Return the value of `row`; None if it has none."""
        value = row.get(self.column)
        if isinstance(value, list) and self.bins:
            first, last = self.bins
            return float(sum(float(entry) for entry in value[first : last + 1]))
        return float(value) if isinstance(value, int | float) else None

    def values(self, rows_of: RowsOf) -> tuple[list[float], list[Row]]:
        """Return the values of all rows, and the rows that they come from."""
        by_id = {str(row["run"]): row for row in rows_of(self.runs)}
        values: list[float] = []
        used: list[Row] = []
        for run, base in self.pairs:
            rows = [by_id[part.id] for part in (run, base) if part and part.id in by_id]
            numbers = [number for row in rows if (number := self.value(row)) is not None]
            if len(numbers) != 1 + (base is not None) or (base and not numbers[1]):
                continue
            values.append(self.form.of(numbers[0] / numbers[1] if base else numbers[0]))
            used += rows
        return values, used

    def _base(self, run: Run) -> Run | None:
        if not self.over:
            return None
        texts = {key: str(value) for key, value in self.over.items() if key not in SETTINGS}
        experiment = find(run.experiment)
        values = {key: value for key, (value,) in experiment.values(texts).items()}
        settings = {key: value for key, value in self.over.items() if key in SETTINGS}
        base = replace(run, parameters={**run.parameters, **values}, **settings)  # type: ignore[arg-type]
        return replace(base, version=experiment.version_of(base.engine, base.parameters))


class Verdict(Enum):
    """Outcome of a claim."""

    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    UNDECIDED = "undecided"  # our interval reaches across the bound
    NOT_COMPARABLE = "not comparable"
    UNDER_REVIEW = "under review"  # the claim says why
    NOT_MEASURED = "not measured"  # the rows are not there
    MISSING = "missing"


@dataclass(frozen=True)
class Rule:
    """Bounds between which our value agrees with the paper's."""

    def bounds(self, paper: float) -> tuple[float, float]:
        """Return the least and the greatest value that agree with `paper`."""
        raise NotImplementedError

    def verdict(self, paper: float, value: float, half_width: float) -> Verdict:
        """Return the verdict on `value`, whose interval is `half_width` to both sides."""
        least, most = self.bounds(paper)
        low, high = value - half_width, value + half_width
        if least <= low and high <= most:
            return Verdict.AGREES
        return Verdict.CONTRADICTS if high < least or most < low else Verdict.UNDECIDED


@dataclass(frozen=True)
class Within(Rule):
    """The paper's value, but for a fraction of it."""

    fraction: float

    def bounds(self, paper: float) -> tuple[float, float]:
        margin = abs(paper) * self.fraction
        return paper - margin, paper + margin


@dataclass(frozen=True)
class AtLeast(Rule):
    """At least `bound`."""

    bound: float

    def bounds(self, paper: float) -> tuple[float, float]:
        return self.bound, math.inf


@dataclass(frozen=True)
class AtMost(Rule):
    """At most `bound`."""

    bound: float

    def bounds(self, paper: float) -> tuple[float, float]:
        return -math.inf, self.bound


@dataclass(frozen=True)
class Between(Rule):
    """From `least` to `most`."""

    least: float
    most: float

    def bounds(self, paper: float) -> tuple[float, float]:
        return self.least, self.most


@dataclass(frozen=True)
class NotComparable(Rule):
    """The paper gives no such value, or that of another network or machine."""

    def verdict(self, paper: float, value: float, half_width: float) -> Verdict:
        return Verdict.NOT_COMPARABLE


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    words: the claim in short; it reads on with the value.
    place: section, figure or table.
    paper: the paper's value in the unit of the query, or words; "" if it gives none.
    query: our figure; None if it is missing here.
    why: one sentence: why ours differs, cannot be compared, or is missing.
    in_readme: the claim is a row of README's table.
    review: one sentence: why our value does not answer the claim; "" if it does.
    """

    words: str
    place: str
    paper: float | str
    query: Query | None = None
    rule: Rule = NotComparable()
    why: str = ""
    in_readme: bool = False
    review: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.rule, Within) and isinstance(self.paper, str):
            raise ValueError(f"{self.words}: Within needs the paper's number, got {self.paper!r}")

    @property
    def reason(self) -> str:
        """Return the reason of the verdict; "" if it needs none."""
        return self.review or self.why


class Outcome(NamedTuple):
    """Our figure for a claim.

    value, half_width: mean over the seeds and half of its 95 % interval; nan if there is none.
    runs: values that count.  fidelity: the worst of their rows, "" without.
    """

    verdict: Verdict
    value: float
    half_width: float
    runs: int
    fidelity: str


@cache
def claims_of(paper: str) -> Mapping[str, Claim]:
    """Return the claims of a room by name: ttc-1, ttc-2, ..."""
    module = import_module(f"weft.experiments.{paper}.claims")
    return {f"{paper}-{number}": claim for number, claim in enumerate(module.CLAIMS, 1)}


def all_claims() -> dict[str, Claim]:
    """Return the claims of all papers by name."""
    return {name: claim for paper in PAPERS for name, claim in claims_of(paper).items()}


def outcome(claim: Claim, rows_of: RowsOf) -> Outcome:
    """Return our figure for `claim` and the verdict.

    Args:
        claim: with or without a query.
        rows_of: returns the stored rows of runs.
    """
    if not claim.query:
        return Outcome(Verdict.MISSING, math.nan, math.nan, 0, "")
    values, rows = claim.query.values(rows_of)
    if not values:
        return Outcome(Verdict.NOT_MEASURED, math.nan, math.nan, 0, "")
    value, half_width = claim.query.statistic(values), math.nan
    if claim.query.statistic is mean and len(values) > 1:
        value, half_width = mean_and_half_width(values)
    paper = claim.paper if isinstance(claim.paper, int | float) else math.nan
    margin = 0.0 if math.isnan(half_width) else half_width
    verdicts = Counter(str(row.get("fidelity")) for row in rows)
    worst = next((name for name in WORST if verdicts[name]), "")
    verdict = Verdict.UNDER_REVIEW if claim.review else claim.rule.verdict(paper, value, margin)
    return Outcome(verdict, value, half_width, len(values), worst)


def number_text(value: float, half_width: float = math.nan, unit: str = "") -> str:
    """Return a value with its interval and unit, to the digits that the interval leaves."""
    digits = 0 if math.isnan(half_width) or half_width == 0 else -math.floor(math.log10(half_width))
    if abs(value) >= 10_000:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{max(0, digits)}f}" if half_width > 0 else f"{value:.4g}"
    if half_width > 0:
        text += f" ± {half_width:,.{max(0, digits)}f}"
    return f"{text} {unit}".strip()


def paper_text(claim: Claim) -> str:
    """Return the paper's value with its unit."""
    if isinstance(claim.paper, str) or not claim.query:
        return str(claim.paper)
    return number_text(claim.paper, unit=claim.query.unit)


def value_text(claim: Claim, ours: Outcome) -> str:
    """Return our value with its interval and unit; "" without rows."""
    unit = claim.query.unit if claim.query else ""
    return number_text(ours.value, ours.half_width, unit) if ours.runs else ""


def texts(name: str, ours: Outcome) -> tuple[str, ...]:
    """Return the cells of a claim's line, in the order of TITLES."""
    claim = all_claims()[name]
    value, runs = value_text(claim, ours), str(ours.runs or "")
    return name, claim.words, claim.place, paper_text(claim), value, runs, ours.verdict.value
