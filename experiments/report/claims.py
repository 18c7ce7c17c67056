"""Claims of the papers as data, and what our rows say about them.

A `Statement` is a sentence of a paper: its place, the words, their kind, and the paper's size and
statistic.  A `Claim` compares one figure of ours with it.  Each paper's claims are the tuple CLAIMS
in the file claims.py of its folder.  To add one:

    SHORTER = Statement(
        "section 7.1, figure 3",
        "PR with GP_I computes paths that are up to 16% shorter than DR",
        "up to",
        "mean over 10,000 pairs",                          # the paper's size and statistic
    )
    Claim(
        "GP_I shortens DR's routes by, maximum over β",    # what is compared
        SHORTER,
        16,                                                # the paper's value, or words
        Query(
            "hop_length",                                  # experiment
            {"topology": NETWORKS, "routing": "pr-gpi"},
            "mean_hops",                                   # column
            over={"routing": "dr"},                        # divide by these rows
            form=Form.SAVING,                              # 0.84 is a saving of 16 %
            statistic=max,                                 # over the networks
        ),
        within(0.05),                                      # when ours agrees
        "mean over 100,000 pairs",                         # our size and statistic, if another
    )

A query selects the runs of `weft run EXPERIMENT --set ...`: a parameter that it does not name has
the values of the default sweep.  `engine`, `clock`, `hop_ns` and `syscall_ns` go with the
parameters, and are the experiment's own without that; a tuple stands for several values.

A claim that our rows contradict needs a reason for the side on which ours lies: `why_more` or
`why_less`.  A claim whose size, statistic or model is not the paper's says so in `apart`: it is
not comparable, whatever the rows say.  A statement that nothing here measures says why in
`missing`: it is not measured, as is a claim of which some network or scheme has no row.
A result of our own has the statement OURS; it holds or does not hold.

A claim is named by its paper and its number, ttc-3.  `weft claims ttc` prints the outcomes,
`weft claims --write` writes them into the pages, `weft reproduce ttc-3` measures one again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from itertools import chain
from operator import sub, truediv
from statistics import mean, median
from typing import Any, Literal, NamedTuple

from weft.experiments.report.statistics import NORMAL_975, mean_and_half_width
from weft.experiments.runner.definition import COSTS, Row, Run, find
from weft.experiments.runner.rows import column_unit

# folders with a file claims.py, and the short name of each paper; the last is an installation
PAPERS = {
    "ccrdn": "CCRDN",
    "ttc": "TTC",
    "lbsp": "LBSP",
    "dar": "DAR",
    "fatpaths": "FatPaths",
    "hardware": "hardware",
}
SETTINGS = ("engine", "clock", *COSTS)
WORST = ("FAIL", "WARN", "PASS")
MOST_FIGURES = 9  # of an interval
TITLES = ("name", "claim", "verdict", "paper", "agrees if", "ours", "n", "size and statistic")

Where = Mapping[str, Any]  # a parameter's value, or a tuple of several
RowsOf = Callable[[Iterable[Run]], list[Row]]
ErrorOf = Callable[[Row, str], float]


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
    """A figure of ours: a column over the rows of some runs.

    by: column to divide by; without `over` it is that of the same row.
    over: parameters of the rows to divide by; they agree in all others and in seed.
    against: parameters of other such rows; the figure is divided by the same ratio of theirs.
    statistic: mean over the seeds, which has an interval; max, min or median of the cells' means,
        with the interval of that cell (a median is of an odd number of cells); or sum over all
        rows.
    less: figure of the same cells that is subtracted, such as another gain.
    per: figure of the same cells by which this one is divided, such as a gain by another gain.
    bins: first and last entry of a column that is a list of shares, and the step between them;
        their sum is the value.  Without it the entries of a list are repetitions; a ratio divides
        entry by entry.
    entries: the entries of a list are cells of their own, such as sizes of flows.
    error: a run is a random sample: returns the standard error of a column of its row.  It gives
        the interval of a cell with one run.
    """

    experiment: str
    where: Where
    column: str
    over: Where = field(default_factory=dict)
    form: Form = Form.VALUE
    by: str = ""
    against: Where = field(default_factory=dict)
    statistic: Callable[[Sequence[float]], float] = mean
    less: Query | None = None
    per: Query | None = None
    bins: tuple[int, int, int] | None = None
    entries: bool = False
    error: ErrorOf | None = None
    seeds: int | None = None

    def __post_init__(self) -> None:
        if self.error and (self.bins or self.entries or self.statistic is sum):
            raise ValueError(f"{self.experiment}: an error is that of one number of each run")
        if self.per and self.per.error:
            raise ValueError(f"{self.experiment}: the error of `per` is not counted")
        if self.less and bool(self.less.error) != bool(self.error):
            raise ValueError(f"{self.experiment}: a difference has the errors of both figures")

    @cached_property
    def terms(self) -> list[list[tuple[Run, str, int]]]:
        """Return for each run what its figure is the product of: run, column and power of each."""
        lists = []
        for run in Sweep(self.experiment, self.where, self.seeds).runs():
            terms = self._ratio(run, 1)
            if self.against:
                terms += self._ratio(changed(run, self.against), -1)
            lists.append(terms)
        return lists

    def _ratio(self, run: Run, power: int) -> list[tuple[Run, str, int]]:
        """Return the terms of a run's figure, to a power."""
        terms = [(run, self.column, power)]
        if self.over or self.by:
            terms.append((changed(run, self.over), self.by or self.column, -power))
        return terms

    @property
    def runs(self) -> list[Run]:
        """Return all runs that the figure needs."""
        own = [run for terms in self.terms for run, _, _ in terms]
        return own + [run for other in (self.less, self.per) if other for run in other.runs]

    @property
    def unit(self) -> str:
        """Return the unit of the figure."""
        if self.per:
            return ""
        if self.form is not Form.VALUE:
            return "%"
        unit = column_unit(self.column)
        divided = self.over or self.by or self.against
        return "" if divided or unit in ("ratio", "fraction") else unit

    def listed(self, row: Row, column: str) -> list[float]:
        """Return the values of a column: one, or one for each entry of a list; nan for none."""
        value = row.get(column)
        if isinstance(value, list) and self.bins:
            first, last, step = self.bins
            return [float(sum(float(entry) for entry in value[first : last + 1 : step]))]
        values = value if isinstance(value, list) else [value]
        return [float(entry) if isinstance(entry, int | float) else math.nan for entry in values]

    def samples(self, rows_of: RowsOf) -> tuple[list[list[float]], list[Row]]:
        """Return the independent values of each cell, and the rows that they come from.

        A cell is all parameters but the seed; one without rows has no values.  Runs of a cell whose
        rows are equal, because nothing in them is random, count once, as do equal repetitions.
        """
        cells, rows = self._own_samples(rows_of)
        for other, operation in ((self.less, sub), (self.per, truediv)):
            if other:
                others, more = other.samples(rows_of)
                cells, rows = paired(cells, others, operation), rows + more
        return cells, rows

    def _own_samples(self, rows_of: RowsOf) -> tuple[list[list[float]], list[Row]]:
        """Return samples() without `less` and `per`."""
        by_id = {row["run"]: row for row in rows_of(self.runs)}
        cells: dict[tuple[object, ...], list[tuple[str, list[float]]]] = {}
        without = {cell_of(terms[0][0]) for terms in self.terms}
        used: list[Row] = []
        for terms in self.terms:
            rows = [by_id[run.id] for run, _, _ in terms if run.id in by_id]
            if len(rows) < len(terms):
                continue
            cell = cell_of(terms[0][0])
            content = self._content(rows)
            for part, values in self._parts(terms, rows):
                cells.setdefault((*cell, part), []).append((content, values))
                without.discard(cell)
                used += rows
        measured = [[*chain.from_iterable(independent(runs))] for runs in cells.values()]
        return measured + [[] for _ in without], used

    def _parts(
        self, terms: Sequence[tuple[Run, str, int]], rows: Sequence[Row]
    ) -> Iterator[tuple[int, list[float]]]:
        """Yield the values of a run: those of each entry, or all together; none is no number."""
        factors = [
            [value**power if value or power > 0 else math.nan for value in self.listed(row, column)]
            for (_, column, power), row in zip(terms, rows, strict=True)
        ]
        values = [self.form.of(math.prod(parts)) for parts in zip(*factors, strict=True)]
        if self.entries:
            yield from ((n, [value]) for n, value in enumerate(values) if not math.isnan(value))
            return
        numbers = [value for value in values if not math.isnan(value)]
        if numbers:
            yield 0, numbers if len(set(numbers)) > 1 else numbers[:1]

    def sampling_half_width(self, cell: int, rows: Sequence[Row], value: float) -> float:
        """Return half of the 95 % interval of a cell with one run; nan without `error`.

        Errors of the columns of runs add as independent ones; a run that the figure and that of
        `less` share counts once.  The figure of `per` counts as exact.

        Args:
            cell: number of the cell.
            rows: all rows of the figure.
            value: the cell's figure.
        """
        if not self.error:
            return math.nan
        by_id = {row["run"]: row for row in rows}
        figure, errors = self._sampled(cell, by_id)
        if self.less:
            subtracted, errors_less = self.less._sampled(cell, by_id)
            figure -= subtracted
            errors = {
                key: errors.get(key, 0.0) - errors_less.get(key, 0.0)
                for key in errors | errors_less
            }
        width = NORMAL_975 * math.hypot(*errors.values())
        return abs(width * value / figure if self.per else width)

    def _sampled(
        self, cell: int, by_id: Mapping[str, Row]
    ) -> tuple[float, dict[tuple[str, str], float]]:
        """Return the figure of a cell without `less` and `per`, and its error by run and column."""
        assert self.error
        product, relative = 1.0, defaultdict[tuple[str, str], float](float)
        for run, column, power in self.terms[cell]:
            row = by_id[run.id]
            (number,) = self.listed(row, column)
            product *= number**power
            relative[run.id, column] += power * self.error(row, column) / number if number else 0.0
        scale = (self.form.of(1) - self.form.of(0)) * product
        return self.form.of(product), {key: scale * error for key, error in relative.items()}

    def _content(self, rows: Sequence[Row]) -> str:
        """Return what the runs of `rows` measured, as text: equal for runs that differ by seed."""
        left_out = {*find(self.experiment).timed_columns, "seed", "run", "virtual_s"}
        return str([{key: row[key] for key in row if key not in left_out} for row in rows])


def independent(runs: Sequence[tuple[str, list[float]]]) -> list[list[float]]:
    """Return the values of runs, given with what they measured; of equal runs those of one.

    Where all are equal nothing is random.
    """
    values = [found for _, found in runs]
    return values[:1] if len({content for content, _ in runs}) == 1 else values


def paired(
    cells: list[list[float]],
    others: list[list[float]],
    operation: Callable[[float, float], float],
) -> list[list[float]]:
    """Return the values of each cell with those of the same seeds; ValueError for other cells."""
    return [
        [operation(value, other) for value, other in zip(*pair, strict=False)]
        for pair in zip(cells, others, strict=True)
    ]


def cell_of(run: Run) -> tuple[object, ...]:
    """Return all that a run has in common with those of other seeds."""
    return (run.engine, run.clock, *run.parameters.values())


def changed(run: Run, by: Where) -> Run:
    """Return `run` with other parameters, engine, clock or costs."""
    if not by:
        return run
    experiment = find(run.experiment)
    texts = {key: str(value) for key, value in by.items() if key not in SETTINGS}
    values = {key: value for key, (value,) in experiment.values(texts).items()}
    settings = {key: value for key, value in by.items() if key in SETTINGS}
    other = replace(run, parameters={**run.parameters, **values}, **settings)
    return replace(other, version=experiment.version_of(other.engine, other.parameters))


class Verdict(Enum):
    """Outcome of a claim."""

    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    UNDECIDED = "undecided"  # our interval reaches across the bound
    NOT_COMPARABLE = "not comparable"
    HOLDS = "holds"  # our own
    FAILS = "does not hold"  # our own
    NOT_MEASURED = "not measured"  # nothing measures it, or rows are not there


@dataclass(frozen=True)
class Rule:
    """Values of ours that agree with the paper's.

    least, most: bounds.  strict: the bounds themselves do not agree.
    fraction: the bounds are the paper's number less and plus this fraction of it.
    """

    least: float = -math.inf
    most: float = math.inf
    strict: bool = False
    fraction: float | None = None

    def bounds(self, paper: float | str) -> tuple[float, float]:
        """Return the least and the greatest value that agree with `paper`."""
        if self.fraction is None:
            return self.least, self.most
        margin = abs(float(paper)) * self.fraction
        return float(paper) - margin, float(paper) + margin

    def side(self, paper: float | str, value: float, half_width: float = 0.0) -> int | None:
        """Return -1, 0 or 1 if `value` lies below, within or above the bounds; None if across."""
        least, most = self.bounds(paper)
        low, high = round(value - half_width, 12), round(value + half_width, 12)  # as printed
        if self.strict:
            least, most = math.nextafter(least, math.inf), math.nextafter(most, -math.inf)
        if least <= low and high <= most:
            return 0
        return -1 if high < least else 1 if low > most else None

    def text(self, paper: float | str, unit: str) -> str:
        """Return the bounds in words."""
        least, most = self.bounds(paper)
        low, high = (number_text(bound, unit=unit) for bound in (least, most))
        if least == most:
            return low
        if math.isinf(most):
            return f"{'above' if self.strict else 'at least'} {low}"
        if math.isinf(least):
            return f"{'below' if self.strict else 'at most'} {high}"
        return f"{number_text(least)} to {high}"


def within(fraction: float) -> Rule:
    """Return the rule: the paper's number, but for a fraction of it."""
    return Rule(fraction=fraction)


def at_least(bound: float) -> Rule:
    """Return the rule: `bound` or more."""
    return Rule(least=bound)


def at_most(bound: float) -> Rule:
    """Return the rule: `bound` or less."""
    return Rule(most=bound)


def above(bound: float) -> Rule:
    """Return the rule: more than `bound`."""
    return Rule(least=bound, strict=True)


def below(bound: float) -> Rule:
    """Return the rule: less than `bound`."""
    return Rule(most=bound, strict=True)


def between(least: float, most: float) -> Rule:
    """Return the rule: from `least` to `most`."""
    return Rule(least, most)


# order: which of two is larger; law: how a value depends on another, or that it always has a
# property; up to: a maximum over networks or loads
StatementKind = Literal["number", "order", "law", "up to", "our own"]


@dataclass(frozen=True)
class Statement:
    """A sentence of a paper.

    place: section, figure or table.
    quote: the paper's words; … stands for words left out.
    setting: the paper's size and statistic.
    """

    place: str
    quote: str
    kind: StatementKind
    setting: str


UNNAMED = "The paper does not say {}, and the verdict depends on it."
OURS = Statement("not in the paper", "", "our own", "")


@dataclass(frozen=True)
class Claim:
    """A comparison of a figure of ours with a statement of a paper.

    words: what is compared, and on which network.
    paper: the paper's value in the unit of the query, or words; "" if it prints none.
    query: our figure; None if nothing here measures it.
    otherwise: our figure by another value of a parameter that the paper does not name.  Ours
        cannot be compared if the verdict on it is the opposite, and is undecided if that one is.
    unnamed: that parameter, as what the paper does not say.
    rule: values of ours that agree.
    ours: our size and statistic; "" if they are the paper's.
    why_more, why_less: one sentence: why ours lies above or below the rule's bounds.
    apart: one sentence: why ours cannot be compared; "" if it can.
    missing: one sentence: why nothing here measures it; "" if something does.
    in_readme: the claim is a row of README's table.
    """

    words: str
    statement: Statement
    paper: float | str = ""
    query: Query | None = None
    rule: Rule | None = None
    ours: str = ""
    why_more: str = ""
    why_less: str = ""
    apart: str = ""
    missing: str = ""
    in_readme: bool = False
    otherwise: Query | None = None
    unnamed: str = ""

    def __post_init__(self) -> None:
        by_number = self.rule is not None and self.rule.fraction is not None
        if by_number and isinstance(self.paper, str):
            raise ValueError(f"{self.words}: the rule needs the paper's number, not {self.paper!r}")
        if self.missing and (self.apart or self.query or self.rule):
            raise ValueError(f"{self.words}: what is not measured has neither query nor rule")
        if not (self.apart or self.missing) and not (self.query and self.rule):
            raise ValueError(f"{self.words}: a claim without query or rule says why in `apart`")
        if self.apart and self.rule:
            raise ValueError(f"{self.words}: what is not comparable has no rule")
        if bool(self.otherwise) != bool(self.unnamed):
            raise ValueError(f"{self.words}: `unnamed` says what `otherwise` has another value of")

    @property
    def place(self) -> str:
        """Return section, figure or table."""
        return self.statement.place

    @property
    def runs(self) -> list[Run]:
        """Return the runs that our figures come from."""
        return [run for query in (self.query, self.otherwise) if query for run in query.runs]

    def verdict(self, value: float, half_width: float) -> Verdict:
        """Return the verdict on our value and half of its interval."""
        if self.apart or not self.rule:
            return Verdict.NOT_COMPARABLE
        side = self.rule.side(self.paper, value, half_width)
        if side is None:
            return Verdict.UNDECIDED
        own = self.statement is OURS
        good, bad = (Verdict.HOLDS, Verdict.FAILS) if own else (Verdict.AGREES, Verdict.CONTRADICTS)
        return bad if side else good

    def reason(self, ours: Outcome) -> str:
        """Return the reason of the verdict on our figure; "" if it needs none."""
        if self.apart or not self.rule or math.isnan(ours.value):
            return self.apart or self.missing
        if ours.verdict is Verdict.NOT_COMPARABLE:
            return UNNAMED.format(self.unnamed)
        side = self.rule.side(self.paper, ours.value)
        return {-1: self.why_less, 1: self.why_more}.get(side or 0, "")


class Outcome(NamedTuple):
    """Our figure for a claim.

    value, half_width: mean of the independent values and half of its 95 % interval; nan if there is
    none.  runs: independent values.  fidelity: the worst of their rows, "" without.
    otherwise: value and half width of the figure by another value of an unnamed parameter.
    """

    verdict: Verdict
    value: float
    half_width: float
    runs: int
    fidelity: str
    otherwise: tuple[float, float] | None = None


@cache
def claims_of(paper: str) -> Mapping[str, Claim]:
    """Return the claims of a room by name: ttc-1, ttc-2, ..."""
    module = import_module(f"weft.experiments.{paper}.claims")
    return {f"{paper}-{number}": claim for number, claim in enumerate(module.CLAIMS, 1)}


def all_claims() -> dict[str, Claim]:
    """Return the claims of all papers by name."""
    return {name: claim for paper in PAPERS for name, claim in claims_of(paper).items()}


def without_value(verdict: Verdict) -> Outcome:
    """Return the outcome of a claim without a figure of ours."""
    return Outcome(verdict, math.nan, math.nan, 0, "")


def cells_of(
    cells: list[list[float]], statistic: Callable[[Sequence[float]], float]
) -> list[list[float]]:
    """Return the cells that a statistic is of: all, or that with the maximum, minimum or median."""
    if statistic in (max, min):
        return [statistic(cells, key=mean)]
    return [sorted(cells, key=mean)[len(cells) // 2]] if statistic is median else cells


def outcome(claim: Claim, rows_of: RowsOf, *, in_part: bool = False) -> Outcome:
    """Return our figure for `claim` and the verdict.

    Args:
        claim: with or without a query.
        rows_of: returns the stored rows of runs.
        in_part: leave out cells without rows; otherwise one makes the claim not measured.
    """
    ours = _outcome(claim, rows_of, in_part)
    if not claim.otherwise:
        return ours
    return with_other(ours, _outcome(replace(claim, query=claim.otherwise), rows_of, in_part))


def _outcome(claim: Claim, rows_of: RowsOf, in_part: bool) -> Outcome:
    """Return outcome() by the claim's query alone."""
    if not claim.query:
        return without_value(Verdict.NOT_MEASURED if claim.missing else Verdict.NOT_COMPARABLE)
    cells, rows = claim.query.samples(rows_of)
    if in_part:
        cells = [values for values in cells if values]
    if not cells or not all(cells):
        return without_value(Verdict.NOT_MEASURED)
    selected = cells_of(cells, claim.query.statistic)
    values = list(chain.from_iterable(selected))
    half_width = math.nan
    if claim.query.statistic is sum or len(values) == 1:
        value = float(sum(values))
        if len(values) == 1:
            half_width = claim.query.sampling_half_width(cells.index(selected[0]), rows, value)
    else:
        value, half_width = mean_and_half_width(values)
    margin = 0.0 if math.isnan(half_width) else half_width
    verdicts = {str(row.get("fidelity")) for row in rows}
    worst = next((name for name in WORST if name in verdicts), "")
    return Outcome(claim.verdict(value, margin), value, half_width, len(values), worst)


def with_other(ours: Outcome, other: Outcome) -> Outcome:
    """Return our figure beside that by another value of an unnamed parameter."""
    if not other.runs:
        return ours
    verdicts = {ours.verdict, other.verdict}
    verdict = Verdict.UNDECIDED if Verdict.UNDECIDED in verdicts else Verdict.NOT_COMPARABLE
    ours = ours._replace(otherwise=(other.value, other.half_width))
    return ours if len(verdicts) == 1 else ours._replace(verdict=verdict)


def number_text(
    value: float, half_width: float = math.nan, unit: str = "", figures: int = 1
) -> str:
    """Return a value with its interval and unit, to `figures` digits of the interval."""
    if half_width < 1e-12 * abs(value):
        half_width = math.nan  # the last bits of equal values
    known = half_width > 0
    digits = max(0, figures - 1 - math.floor(math.log10(half_width))) if known else 0
    if abs(value) >= 10_000:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{digits}f}" if known else f"{value:.{max(4, figures + 2)}g}"
    if known:
        text += f" ± {half_width:,.{digits}f}"
    return f"{text} {unit}".strip()


def unit_of(claim: Claim) -> str:
    """Return the unit of the paper's value and of ours."""
    return claim.query.unit if claim.query else ""


def paper_text(claim: Claim) -> str:
    """Return the paper's value with its unit."""
    if isinstance(claim.paper, str):
        return claim.paper
    return number_text(claim.paper, unit=unit_of(claim))


def rule_text(claim: Claim) -> str:
    """Return the bounds within which ours agrees; "" for what is not comparable."""
    return claim.rule.text(claim.paper, unit_of(claim)) if claim.rule else ""


def setting_text(claim: Claim) -> str:
    """Return the paper's size and statistic, and ours."""
    paper = claim.statement.setting
    if not claim.query:
        return paper
    if claim.statement is OURS:
        return claim.ours
    return f"{paper}; ours: {claim.ours or 'the same'}"


def value_text(claim: Claim, ours: Outcome) -> str:
    """Return our value with its interval and unit, then that of `otherwise`; "" without rows."""
    values = [(ours.value, ours.half_width)] if ours.runs else []
    values += [ours.otherwise] if ours.otherwise else []
    text = "; ".join(judged_text(claim, *value) for value in values)
    return f"{text} {unit_of(claim)}".strip() if values else ""


def judged_text(claim: Claim, value: float, half_width: float) -> str:
    """Return a value with its interval, to the digits from which its verdict follows."""
    verdict = claim.verdict(value, 0.0 if math.isnan(half_width) else half_width)
    for figures in range(2, MOST_FIGURES):
        text = number_text(value, half_width, figures=figures)
        shown, _, width = text.replace(",", "").partition(" ± ")
        if claim.verdict(float(shown), float(width or 0)) is verdict:
            break
    return text


def texts(name: str, ours: Outcome) -> tuple[str, ...]:
    """Return the cells of a claim's line, in the order of TITLES."""
    claim = all_claims()[name]
    return (
        *(name, claim.words, ours.verdict.value, paper_text(claim), rule_text(claim)),
        *(value_text(claim, ours), str(ours.runs or ""), setting_text(claim)),
    )
