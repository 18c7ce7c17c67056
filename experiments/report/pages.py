"""Tables within README and the pages of docs/, made from the published set.

A block begins with one of these comments and ends with <!-- end -->:

    <!-- claims: SELECTION -->      claims; the selection is that of `weft claims`, or `readme`
    <!-- rows: EXPERIMENT | KEY, ... | COLUMN, ... [by KEY, ...] | key=value ... -->
    <!-- ratios: EXPERIMENT | KEY, ... | COLUMN | A; B; ... | key=value ... -->
                                    B over A, paired by seed; a side is key=value ... of its runs
    <!-- verdicts -->               number of claims of each paper with each verdict
    <!-- index -->                  all claims with their verdicts, by paper
    <!-- bench: FILE: FIGURE; ... --> some figures of speed, from results/bench/FILE.json
    <!-- gallery -->                all figures of the papers, and how to measure them again

A table of rows has a line for each value of the keys and a cell for each column, or, with `by`, for
each value of those keys: the mean over seeds with its 95 % interval.  Below it is the number of
seeds.  A time over flows of which some did not end would depend on the length of the run: its cell
says UNFINISHED instead.

A test fails if a block differs from what the set gives, or if a number stands elsewhere on the page
and in no block.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from weft.experiments.report import style
from weft.experiments.report.claims import (
    PAPERS,
    TITLES,
    Claim,
    Form,
    Outcome,
    Verdict,
    all_claims,
    claims_of,
    number_text,
    outcome,
    texts,
)
from weft.experiments.report.comparison import pairs, ratio
from weft.experiments.report.published import PageFigure, PublishedSet, page_figures
from weft.experiments.report.reproduction import select
from weft.experiments.report.statistics import mean_and_half_width
from weft.experiments.runner.definition import Experiment, Row, Value, assignments, find
from weft.experiments.runner.rows import column_unit, grouped, unit_suffix

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "results" / "bench"
README = "readme"
BLOCK = re.compile(
    r"(<!-- (claims|rows|ratios|verdicts|index|bench|gallery)(?:: ([^>]*?))? -->\n).*?"
    r"(<!-- end -->)",
    re.DOTALL,
)
CLAIM_TITLES = ("", *TITLES[1:])
UNFINISHED = "unfinished"
AS_ABOVE = "as above"
RowPair = tuple[Row, Row]
PAIRED = "Ratios of runs of the same seed, with 95 % intervals."
UNCUT = ("_ended_", "_median_")  # statistics without the times of flows that did not end
# Keys and columns whose names in words would say too little at the head of a table.
HEADS = {
    "d": "ports d",
    "default_path_fraction": "share on the default path",
    "ear_bytes_fraction": "EAR traffic, of the data",
    "flows_hit": "flows on what failed",
    "fullest_link_fraction": "use of the most loaded link",
    "late_fraction": "late packets",
    "long_ended_mean_ms": "long flows that ended, mean (ms)",
    "long_ended_p99_ms": "their 99th percentile (ms)",
    "long_mean_ms": "long flows, mean (ms)",
    "long_median_ms": "long flows, median (ms)",
    "long_p99_ms": "long flows, 99th percentile (ms)",
    "long_p999_ms": "long flows, 99.9th percentile (ms)",
    "max_load_flows": "maximum load (flows)",
    "message_kb": "message (KiB)",
    "min_throughput_gbps": "minimum throughput (Gbit/s)",
    "most_flows": "most loaded link (flows)",
    "plb_rounds": "PLB's rounds",
    "slowest_fraction": "goodput of the slowest flow",
    "unfinished_fraction": "flows that did not end",
    "warm_long_mean_ms": "long flows of the second half, mean (ms)",
    "warm_long_p99_ms": "long flows of the second half, 99th percentile (ms)",
}
SCALES = {"bit/s": (1e-6, "Mbit/s")}  # of units whose numbers are long


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages with blocks."""
    paths = [root / "README.md", *sorted(root.glob("docs/**/*.md"))]
    return [path for path in paths if BLOCK.search(path.read_text(encoding="utf-8"))]


def write(published: PublishedSet, root: Path = ROOT) -> list[Path]:
    """Write all blocks anew; return the pages that changed."""
    changed = []
    for path in pages(root):
        before = path.read_text(encoding="utf-8")
        after = with_blocks(before, published)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


def with_blocks(page: str, published: PublishedSet) -> str:
    """Return `page` with the tables that `published` gives."""
    return BLOCK.sub(
        lambda match: f"{match[1]}\n{block(match[2], match[3] or '', published)}\n{match[4]}", page
    )


def block(kind: str, text: str, published: PublishedSet) -> str:
    """Return the content of a block."""
    if kind == "bench":
        return chosen_figures(text)
    if kind == "gallery":
        return "\n".join(map(exhibit, page_figures()))
    if kind == "verdicts":
        return verdict_table(published)
    if kind == "index":
        return "\n".join(index_of(paper, published) for paper in PAPERS)
    tables = {"claims": claim_table, "rows": row_table, "ratios": ratio_table}
    return tables[kind](text, published)


def table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    rows = [titles, ["---"] * len(titles), *lines]
    return "".join(f"|{''.join(f' {cell} |' if cell else ' |' for cell in row)}\n" for row in rows)


def claim_table(selection: str, published: PublishedSet) -> str:
    """Return the table of the selected claims, then the paper's sentences and the reasons.

    README's has neither these nor the last column, sizes and statistics: it is read on phones.
    """
    if selection == README:
        claims = {name: claim for name, claim in all_claims().items() if claim.in_readme}
        lines = [texts(name, outcome(claim, published.rows))[:-1] for name, claim in claims.items()]
        return table(CLAIM_TITLES[:-1], lines)
    claims = select(selection.split(), runs=False).claims
    outcomes = {name: outcome(claim, published.rows) for name, claim in claims.items()}
    lines = ditto([texts(name, ours) for name, ours in outcomes.items()])
    notes = [*reasons_of(claims, outcomes), *quotes_of(claims)]
    return table(CLAIM_TITLES, lines) + "".join("\n" + note for note in notes)


def ditto(lines: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return `lines` with AS_ABOVE in place of a last cell that is that of the line before."""
    above = ["", *(line[-1] for line in lines)]
    return [
        (*line[:-1], AS_ABOVE if line[-1] and line[-1] == last else line[-1])
        for line, last in zip(lines, above, strict=False)
    ]


def reasons_of(claims: Mapping[str, Claim], outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """Yield the list of reasons of the claims that need one, each with its claims."""
    reasons = {name: claim.reason(outcomes[name]) for name, claim in claims.items()}
    items = [f"* {names}: {reason}\n" for reason, names in by_text(reasons).items()]
    if items:
        yield "".join(items)


def quotes_of(claims: Mapping[str, Claim]) -> Iterator[str]:
    """Yield the sentences of the paper that claims are about, with place and kind."""
    statements = {
        name: f"{claim.place} ({claim.statement.kind}): “{claim.statement.quote}”"
        for name, claim in claims.items()
        if claim.statement.quote
    }
    for text, names in by_text(statements).items():
        yield f"> **{names}**, {text}\n"


def by_text(texts_of: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the claims of each text; texts that are "" left out."""
    names: dict[str, list[str]] = {}
    for name, text in texts_of.items():
        names.setdefault(text, []).append(name)
    return {text: spans(own) for text, own in names.items() if text}


def spans(names: Sequence[str]) -> str:
    """Return the names of claims of one paper, three or more that follow each other as a span."""
    groups: list[list[str]] = []
    for name in names:
        paper, _, number = name.rpartition("-")
        if groups and groups[-1][-1] == f"{paper}-{int(number) - 1}":
            groups[-1].append(name)
        else:
            groups.append([name])
    texts_of = ([f"{own[0]} to {own[-1]}"] if len(own) > 2 else own for own in groups)
    return ", ".join(chain.from_iterable(texts_of))


def verdict_table(published: PublishedSet) -> str:
    """Return the number of claims with each verdict, by paper."""
    lines = []
    for paper, name in PAPERS.items():
        verdicts = Counter(
            outcome(claim, published.rows).verdict for claim in claims_of(paper).values()
        )
        lines.append([f"[{name}]({paper}.md)", *(str(verdicts[verdict]) for verdict in Verdict)])
    return table(("paper", *(verdict.value for verdict in Verdict)), lines)


def index_of(paper: str, published: PublishedSet) -> str:
    """Return a heading and a line for each claim of `paper`."""
    lines = [
        (name, claim.words, claim.place, outcome(claim, published.rows).verdict.value)
        for name, claim in claims_of(paper).items()
    ]
    heading = f"## [{PAPERS[paper]}]({paper}.md)\n\n"
    return heading + table(("", "claim", "place", "verdict"), lines)


def row_table(text: str, published: PublishedSet) -> str:
    """Return the table of rows that `text` describes; ValueError if there are none."""
    name, keys, shown, settings = (part.strip() for part in text.split("|"))
    experiment = find(name)
    rows, seeds = rows_of(experiment, settings, published)
    line_keys, (column_text, _, by_text) = names_in(keys), shown.partition(" by ")
    figures, by = names_in(column_text), names_in(by_text)
    groups = cells(experiment, rows, (*line_keys, *by))
    columns_of = [(head, key) for head in values_of(rows, by) for key in figures]
    lines = [
        [*map(label, line_keys, line)]
        + [cell(groups.get((*line, *head), []), key) for head, key in columns_of]
        for line in values_of(rows, line_keys)
    ]
    return f"{table(titles(line_keys, columns_of), lines)}\n{seeds_of(groups.values(), seeds)}\n"


def rows_of(
    experiment: Experiment, settings: str, published: PublishedSet
) -> tuple[list[Row], int | None]:
    """Return the rows with `settings`, and how many seeds these name; ValueError if none has."""
    texts = assignments(settings.split())
    seeds = int(texts.pop("seeds")) if "seeds" in texts else None
    rows = [row for row, _ in published.selected(experiment, texts)]
    if not rows:
        raise ValueError(f"no published row of {experiment.name} has {settings}")
    return [row for row in rows if seeds is None or row["seed"] < seeds], seeds


def ratio_table(text: str, published: PublishedSet) -> str:
    """Return the table of ratios that `text` describes, of runs that agree in all but the sides."""
    name, keys, column, side_text, settings = (part.strip() for part in text.split("|"))
    line_keys, sides = names_in(keys), side_text.split(";")
    columns_of, seeds = paired_columns(find(name), line_keys, sides, settings, published)
    groups = [group for column_of in columns_of for group in column_of.values()]
    lines = [
        [*map(label, line_keys, line)]
        + [ratio_cell(pairs.get(line, ()), column) for pairs in columns_of]
        for line in values_of([row for group in groups for row, _ in group], line_keys)
    ]
    over, *others = (assignments(side.split()) for side in sides)
    names = [ratio_name(side, over) for side in others]
    heads = [*(title(key, ()) for key in line_keys), *names]
    return f"{table(heads, lines)}\n{PAIRED} {seeds_of(groups, seeds)}\n"


def ratio_name(side: Mapping[str, str], over: Mapping[str, str]) -> str:
    """Return the words of `side` / `over`, without what both have."""
    differing = [key for key in {**side, **over} if side.get(key) != over.get(key)]
    own, other = ([words[key] for key in differing if key in words] for words in (side, over))
    return f"{', '.join(own)} / {', '.join(other)}"


def paired_columns(
    experiment: Experiment,
    keys: Sequence[str],
    sides: Sequence[str],
    settings: str,
    published: PublishedSet,
) -> tuple[list[dict[tuple[Value, ...], list[RowPair]]], int | None]:
    """Return the pairs of the first side and each other by `keys`, and the seeds of a cell."""
    (first, seeds), *others = (
        rows_of(experiment, f"{settings} {side}", published) for side in sides
    )
    differing = {key for side in sides for key in assignments(side.split())}
    columns_of = [
        by_keys(experiment, pairs(experiment, first, rows, differing), keys) for rows, _ in others
    ]
    return columns_of, seeds


def by_keys(
    experiment: Experiment, paired: Sequence[RowPair], keys: Sequence[str]
) -> dict[tuple[Value, ...], list[RowPair]]:
    """Return the pairs by `keys`; ValueError as of cells()."""
    other_of = {row["run"]: other for row, other in paired}
    groups = cells(experiment, [row for row, _ in paired], keys) if paired else {}
    return {key: [(row, other_of[row["run"]]) for row in own] for key, own in groups.items()}


def values_of(rows: Sequence[Row], keys: Sequence[str]) -> list[tuple[Value, ...]]:
    """Return the values of `keys` that occur; numbers within texts count: n=2 before n=12."""
    return sorted(grouped(rows, keys), key=lambda value: [numeric(str(part)) for part in value])


def numeric(text: str) -> list[tuple[float, str]]:
    """Return a key by which texts are sorted by the numbers in them."""
    pieces = re.split(r"(\d+(?:\.\d+)?)", text)
    return [
        (float(piece), "") if place % 2 else (-1.0, piece) for place, piece in enumerate(pieces)
    ]


def seeds_of(groups: Iterable[Sequence[object]], seeds: int | None = None) -> str:
    """Return a sentence with the seeds of the cells; ValueError if not each has `seeds`."""
    sizes = {len(group) for group in groups}
    if seeds is not None and sizes != {seeds}:
        raise ValueError(f"seeds={seeds}, but cells have {', '.join(map(str, sorted(sizes)))}")
    if sizes == {1}:
        return "One seed."
    span = f"{min(sizes)} to {max(sizes)}" if len(sizes) > 1 else f"{max(sizes)}"
    return f"Means of {span} seeds."


def titles(keys: Sequence[str], columns_of: Sequence[tuple[Sequence[object], str]]) -> list[str]:
    """Return the titles of a table of rows; with several columns by a key, each has its name."""
    several = len({key for _, key in columns_of}) > 1
    names = [(*head, title(key, ())) if head and several else head for head, key in columns_of]
    columns = [title(key, name) for name, (_, key) in zip(names, columns_of, strict=True)]
    return [*(title(key, ()) for key in keys), *columns]


def bench_table(path: Path) -> str:
    """Return the heading and the table of a stored bench."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    source = f"{stored['machine']}; commit {stored['commit']}"
    lines = [
        [what, f"{value} {unit}".strip(), limit] for what, value, unit, limit in stored["lines"]
    ]
    return f"## {stored['title']}\n\n{source}\n\n{table(('what', 'figure', 'limit'), lines)}"


def chosen_figures(text: str) -> str:
    """Return a table of the figures of speed in `text`; ValueError unless each is one figure."""
    lines = []
    for choice in text.split(";"):
        file, _, what = (part.strip() for part in choice.partition(": "))
        stored = json.loads((BENCH / f"{file}.json").read_text(encoding="utf-8"))
        values = [f"{line[1]} {line[2]}".strip() for line in stored["lines"] if line[0] == what]
        if len(values) != 1:
            raise ValueError(f"{file} has {len(values)} figures {what!r}")
        lines.append([what, values[0], stored["title"]])
    return table(("what", "figure", "bench"), lines)


def exhibit(figure: PageFigure) -> str:
    """Return a heading, the picture and the command of a figure."""
    paper, _, name = figure.name.partition("_")
    name = re.sub(r"(?<=[a-z])(?=\d)", " ", name.replace("_", " "))
    title = f"{PAPERS.get(paper, paper)}: {name or 'overview'}"
    question = find(figure.experiment).question
    return (
        f"## {title}\n\n{question}\n\n![{title}](../figures/{figure.name}.png)\n\n"
        f"    $ weft reproduce {figure.experiment} --check\n"
    )


def names_in(text: str) -> list[str]:
    """Return the names in a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def cells(
    experiment: Experiment, rows: Sequence[Row], keys: Sequence[str]
) -> dict[tuple[Value, ...], list[Row]]:
    """Return the rows by `keys`.

    Raises:
        ValueError: a key is that of no row, or rows of a cell differ in more than their seed.
    """
    for key in keys:
        if not any(key in row for row in rows):
            raise ValueError(f"{experiment.name}: no row has {key}")
    groups = grouped(rows, keys)
    for group in groups.values():
        for key in (*experiment.sweep, "engine", "clock"):
            if len({row.get(key) for row in group}) > 1:
                raise ValueError(f"{experiment.name}: a cell has rows of several {key}")
    return groups


def title(column: str, head: Sequence[object]) -> str:
    """Return the title of a column: the values that it is for, or name and unit of the figure."""
    if head:
        return ", ".join(map(str, head))
    if column in HEADS:
        return HEADS[column]
    unit = column_unit(column)
    _, unit = SCALES.get(unit, (1.0, unit))
    name = style.words(column.removesuffix(f"_{unit_suffix(column)}"))
    return f"{name} ({unit})" if unit not in ("", "fraction") else name


def label(key: str, value: object) -> str:
    """Return the value of a key that names a line."""
    if key in style.SCHEME_KEYS:
        _, _, parameters = str(value).partition(":")
        return f"{style.scheme(str(value)).label} {parameters}".strip()
    return f"`{value}`" if ":" in str(value) else str(value)


def cell(rows: Sequence[Row], column: str) -> str:
    """Return the mean of `column` with its interval; fractions in per cent."""
    values = [row[column] for row in rows if row.get(column) is not None]
    if not values:
        return ""
    unit = column_unit(column)
    if is_cut(rows, column):
        return UNFINISHED
    form = Form.PERCENT if unit == "fraction" else Form.VALUE
    factor, _ = SCALES.get(unit, (1.0, unit))
    centre, half_width = mean_and_half_width([factor * form.of(value) for value in values])
    return number_text(centre, half_width, "%" if unit == "fraction" else "")


def is_cut(rows: Iterable[Row], column: str) -> bool:
    """Return whether `column` is a time over flows of which some did not end."""
    is_time = column_unit(column) == "ms" and not any(part in column for part in UNCUT)
    return is_time and any(row.get("unfinished") for row in rows)


def ratio_cell(paired: Sequence[RowPair], column: str) -> str:
    """Return the geometric mean of the ratios of pairs with its interval."""
    if any(is_cut(sides, column) for sides in paired):
        return UNFINISHED
    mean = ratio("", column, paired)
    if not mean:
        return ""
    if mean.left_out:
        raise ValueError(f"{column}: {mean.left_out} pairs of runs have no ratio")
    ends = () if mean.low is None or mean.high is None else (mean.low, mean.high)
    value, *interval = (f"{number:#.3g}".rstrip(".") for number in (mean.ratio, *ends))
    return f"{value} ({' to '.join(interval)})" if interval else value
