"""One page about all stored results: claims, and a section for each experiment.

The page is one HTML file with its pictures inside; nothing is loaded from elsewhere.
"""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Sequence
from html import escape

from weft.experiments.report import figures
from weft.experiments.report.claims import TITLES, RowsOf, all_claims, outcome, texts
from weft.experiments.report.comparison import figures_of
from weft.experiments.report.statistics import mean_and_half_width
from weft.experiments.runner.console import cell, duration
from weft.experiments.runner.definition import COSTS, Entry, Experiment, Row
from weft.experiments.runner.rows import CIRCUMSTANCES, column_unit, meaning_of

StoredRows = Sequence[Entry]
MOST_CELLS = 60  # of one table
MOST_FIGURES = 8  # columns of one table
STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #5f5f5f; --bad: #b3261e; --fair: #8a5a00; --good: #17713a; }
@media (prefers-color-scheme: dark) { :root { --dim: #a8a8a8; --bad: #ff8a80; --fair: #f0b95b; --good: #7fd6a0; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin: 2.5rem 0 .2rem; border-top: 1px solid var(--line); padding-top: 1rem; }
p, dl { margin: .4rem 0; } .dim { color: var(--dim); }
img { max-width: 100%; background: #fff; border-radius: 4px; margin: .6rem 0; }
nav { columns: 14rem; margin: 1rem 0; } nav a { display: block; } summary { cursor: pointer; margin: .4rem 0; }
pre, code { font: 13px ui-monospace, monospace; }
pre { overflow-x: auto; padding: .5rem; border: 1px solid var(--line); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: left; padding: .15rem .7rem .15rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; } td.words { white-space: normal; }
.FAIL { color: var(--bad); } .WARN { color: var(--fair); } .PASS { color: var(--good); }
"""  # noqa: E501


def page(
    stored: Sequence[tuple[Experiment, StoredRows]],
    machine: str,
    rows_of: RowsOf,
    disk_bytes: int = 0,
) -> str:
    """Return the whole page.

    Args:
        stored: experiments with their (row, provenance) pairs.
        rows_of: returns the stored rows of runs.
        machine: the machines that measured, in words.
        disk_bytes: size of the results.
    """
    parts = [section(experiment, entries) for experiment, entries in stored]
    runs = sum(len(entries) for _, entries in stored)
    total_s = sum(float(about.get("wall_s") or 0) for _, entries in stored for _, about in entries)
    head = (
        f"<h1>weft: what is stored</h1><p>{several(runs, 'run')} of "
        f"{several(len(stored), 'experiment')}, "
        f"which took {duration(total_s)} one after the other.</p>"
    )
    index = "".join(
        f'<a href="#{escape(story.name)}">{escape(story.name)}</a>' for story, _ in stored
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>weft report</title><style>{STYLE}</style></head><body>{head}"
        f'<nav>{index}<a href="#repeat">To repeat it</a></nav>{claimed(rows_of)}'
        f"{''.join(parts)}{appendix(stored, machine, disk_bytes)}</body></html>\n"
    )


def claimed(rows_of: RowsOf) -> str:
    """Return the table of papers' claims beside our results; "" without results for any."""
    outcomes = {name: outcome(claim, rows_of) for name, claim in all_claims().items()}
    measured = {name: ours for name, ours in outcomes.items() if ours.runs}
    if not measured:
        return ""
    head = "".join(f"<th>{title}</th>" for title in (*TITLES, "why", "fidelity"))
    lines = []
    for name, ours in measured.items():
        claim = all_claims()[name]
        cells = "".join(f'<td class="words">{escape(text)}</td>' for text in texts(name, ours))
        lines.append(
            f'<tr>{cells}<td class="words">{escape(claim.reason(ours))}</td>'
            f'<td class="{ours.fidelity}">{ours.fidelity or "-"}</td></tr>'
        )
    left_out = f"{len(outcomes) - len(measured)} more: weft claims"
    return (
        '<h2 id="claims">What papers say, and what came out</h2>'
        '<p class="dim">Ours is the mean over n seeds with its 95 % interval; fidelity is that of '
        "the worst run.</p>"
        f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'
        f'<p class="dim">{left_out}</p>'
    )


def section(experiment: Experiment, entries: StoredRows) -> str:
    """Return one experiment: question, source, fidelity, figure, table and command."""
    rows = [row for row, _ in entries]
    commits = Counter(
        str(about.get("commit") or "installed") + "+" * bool(about.get("dirty"))
        for _, about in entries
    )
    summary = ", ".join(f"{name} ({count})" for name, count in commits.most_common(4))
    return (
        f'<h2 id="{escape(experiment.name)}">{escape(experiment.name)}</h2><p><b>{escape(experiment.question)}</b></p>'  # noqa: E501
        f'<p class="dim">{escape(experiment.source)}</p>'
        f"<p>{several(len(rows), 'run')} on {escape(engines(rows))}{fidelity(rows)}; commit "
        f"{escape(summary)}</p>"
        f"{picture(experiment, entries)}{table(experiment, rows)}{meanings(experiment, rows)}"
        f"<pre>{escape(command(experiment, rows))}</pre>"
    )


def engines(rows: Sequence[Row]) -> str:
    """Return the engines of the rows, and the clock if it is virtual."""
    return ", ".join(sorted({figures.engine_of(row) for row in rows}))


def fidelity(rows: Sequence[Row]) -> str:
    """Return the number of runs by fidelity verdict; "" without verdicts."""
    counts = Counter(row["fidelity"] for row in rows if row.get("fidelity"))
    summary = [
        f'<span class="{name}">{name} {counts[name]}</span>'
        for name in ("PASS", "WARN", "FAIL")
        if counts[name]
    ]
    return f"; fidelity {', '.join(summary)}" if summary else ""


def picture(experiment: Experiment, entries: StoredRows) -> str:
    """Return the figure of each clock, embedded in the page."""
    return "".join(
        drawn(experiment, [row for row, _ in of_clock], clock)
        for clock, of_clock in figures.by_clock(entries).items()
    )


def drawn(experiment: Experiment, rows: Sequence[Row], clock: str) -> str:
    """Return one figure as an image element."""
    png = io.BytesIO()
    with figures.new() as figure:
        experiment.plot(rows, figure)
        figure.savefig(png, format="png")
    content = base64.b64encode(png.getvalue()).decode()
    alt = experiment.question + (f" (clock: {clock})" if clock not in ("", "real") else "")
    return f'<p><img alt="{escape(alt)}" src="data:image/png;base64,{content}"></p>'


def table(experiment: Experiment, rows: Sequence[Row]) -> str:
    """Return mean and 95 % interval over the seeds of each numeric figure, by cell."""
    names = figures_of(experiment, rows)[:MOST_FIGURES]
    varied = [
        key
        for key in (*experiment.sweep, "engine", "clock", *COSTS)
        if len({row.get(key) for row in rows}) > 1
    ]
    cells: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault(tuple(row.get(key) for key in varied), []).append(row)
    head = "".join(f"<th>{escape(name)}</th>" for name in varied)
    head += "".join(f'<th class="number">{escape(name)}</th>' for name in ["runs", *names])
    lines = []
    for values, group in list(cells.items())[:MOST_CELLS]:
        first = "".join(f"<td>{escape(cell(value))}</td>" for value in values)
        numbers = "".join(f'<td class="number">{middle(group, name)}</td>' for name in names)
        lines.append(f'<tr>{first}<td class="number">{len(group)}</td>{numbers}</tr>')
    more = len(cells) - MOST_CELLS
    rest = (
        f'<p class="dim">and {more} cells more: weft export {escape(experiment.name)}</p>'
        if more > 0
        else ""
    )
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>{rest}'


def meanings(experiment: Experiment, rows: Sequence[Row]) -> str:
    """Return the meanings and units of the columns, folded away."""
    names = dict.fromkeys(
        key for row in rows for key in row if key not in (*experiment.sweep, *CIRCUMSTANCES)
    )
    known = {name: meaning_of(name, experiment.columns) for name in names}
    lines = [
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(column_unit(name))}</td>"
        f'<td class="words">{escape(meaning)}</td></tr>'
        for name, meaning in known.items()
        if meaning
    ]
    if not lines:
        return ""
    head = "<tr><th>column</th><th>unit</th><th>meaning</th></tr>"
    return (
        "<details><summary>What the columns mean</summary>"
        f'<div class="wide"><table>{head}{"".join(lines)}</table></div></details>'
    )


def several(count: int, noun: str) -> str:
    """Return a count with its noun: 1 run, 2 runs."""
    return f"{count} {noun}" + "s" * (count != 1)


def middle(rows: Sequence[Row], name: str) -> str:
    """Return mean and half of the interval as text."""
    values = [float(value) for row in rows if isinstance(value := row.get(name), int | float)]
    if not values:
        return ""
    mean, half = mean_and_half_width(values)
    return f"{mean:.4g}" if half == 0 or math.isnan(half) else f"{mean:.4g} ± {half:.2g}"


def command(experiment: Experiment, rows: Sequence[Row]) -> str:
    """Return the command that measures these cells, without settings of the default sweep."""
    words = ["weft run", experiment.name]
    settings = []
    for key, values in experiment.sweep.items():
        measured = list(dict.fromkeys(row[key] for row in rows))
        if set(map(str, measured)) != set(map(str, values)):
            text = ",".join(map(str, measured))
            settings.append(f"'{key}={text}'" if set(text) & set(" ;*?&|<>()") else f"{key}={text}")
    if settings:
        words += ["--set", *settings]
    seeds = 1 + max(row["seed"] for row in rows)
    if seeds != experiment.seeds:
        words.append(f"--seeds {seeds}")
    used = sorted({row["engine"] for row in rows})
    if used != [experiment.engines[0]]:
        words.append(f"--engine {','.join(used)}")
    if any(row.get("clock") == "virtual" for row in rows):
        words.append("--clock virtual")
    return " ".join(words)


def appendix(stored: Sequence[tuple[Experiment, StoredRows]], machine: str, disk_bytes: int) -> str:
    """Return the requirements of a repetition: machine, time, disk, expected agreement."""
    lines = []
    for experiment, entries in stored:
        took = sum(float(about.get("wall_s") or 0) for _, about in entries)
        invariants = ", ".join(experiment.must_hold) or "-"
        rows = [row for row, _ in entries]
        expected = (
            "the same rows" if all(repeatable(row) for row in rows) else "rows within the intervals"
        )
        lines.append(
            f'<tr><td>{escape(experiment.name)}</td><td class="number">{len(entries)}</td>'
            f'<td class="number">{duration(took)}</td>'
            f'<td class="number">{duration(took / len(entries))}</td>'
            f"<td>{expected}</td><td>{escape(invariants)}</td></tr>"
        )
    return (
        '<h2 id="repeat">To repeat it</h2><p><code>make setup</code> on two cores, 4 GB of memory '
        "and Linux 6.1 or later, then the command below each figure. Experiments on the kernel "
        "need root; those on other engines and those under the virtual clock do not. "
        f"The results take {disk_bytes / 1e3:,.0f} kB of disk. Where the same rows are expected, "
        "equal seeds give equal numbers on every machine, but for processor times; others differ "
        "as far as their fidelity allows. What is given here was measured on:</p>"
        f"<p>{escape(machine)}</p>"
        '<div class="wide"><table><tr><th>experiment</th><th class="number">runs</th>'
        '<th class="number">time of all</th><th class="number">of one</th><th>expected</th>'
        "<th>must hold in every run</th></tr>"
        f"{''.join(lines)}</table></div>"
    )


def repeatable(row: Row) -> bool:
    """Return whether another machine gives the same row: all but the kernel in real time."""
    return row["engine"] != "kernel" or row.get("clock") == "virtual"


def machines(stored: Sequence[tuple[Experiment, StoredRows]]) -> str:
    """Return the machines of all rows in words."""
    counts = Counter(
        f"{m.get('cpu_model', '?')}, {m.get('cpus', '?')} processors, "
        f"{int(m.get('memory_bytes', 0)) >> 30} GiB, "
        f"Linux {m.get('kernel', '?')}, Python {m.get('python', '?')}"
        for _, entries in stored
        for _, about in entries
        if (m := about.get("machine"))
    )
    return "; ".join(
        f"{name} ({count} run{'s' * (count > 1)})" for name, count in counts.most_common()
    )
