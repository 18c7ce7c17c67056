"""The commands `weft claims` and `weft reproduce`."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.experiments.cli.options import Commands, add_command, add_flag, add_json, add_results
from weft.experiments.cli.run_commands import add_measuring_options, measure
from weft.experiments.runner import definition
from weft.experiments.runner.console import duration, say, show, stages
from weft.experiments.runner.definition import Row, Run
from weft.experiments.runner.results import Store
from weft.experiments.runner.sweep import estimates, remaining, timed, total_s

if TYPE_CHECKING:
    from weft.experiments.report.claims import Claim
    from weft.experiments.report.published import PublishedSet
    from weft.experiments.report.reproduction import (
        ClaimComparison,
        ClaimSelection,
        Entries,
        RowComparison,
    )

SENTENCES = ("size and statistic", "why", "place", "kind", "quote")  # shown by --json
COMPILING = "compiling: 5 to 30 s for each scheme at its first use"  # measured on one core
BYTES_OF_A_RUN = 13_000  # of results.sqlite, where nothing is published


def add_commands(commands: Commands) -> None:
    """Add claims and reproduce."""
    parser = add_command(
        commands, "claims", claims, "compare the claims of the papers with the published results"
    )
    _add_selection(parser)
    add_flag(parser, "--write", help="write the tables of claims into README and the pages")
    add_json(parser)

    parser = add_command(
        commands,
        "reproduce",
        reproduce,
        "measure published results again: of a paper, a claim, a figure, an experiment, or all",
    )
    _add_selection(parser)
    add_results(parser)
    add_measuring_options(parser)
    add_flag(
        parser,
        "--check",
        help="compare with the published results; status 1 if a row or claim is different",
    )
    add_flag(
        parser, "--sample", help="only some runs of every experiment: two minutes on two cores"
    )
    add_flag(
        parser, "--publish", help="write the rows into the published set; needs a clean commit"
    )
    add_flag(parser, "--dry-run", help="print runs, time and disk, and measure nothing")
    add_json(parser)


def _add_selection(parser: ArgumentParser) -> None:
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="paper (ccrdn), its figure (ccrdn figure 9), our own results beside it (ccrdn own), "
        "claim (ccrdn-3), experiment, or all",
    )
    parser.add_argument(
        "--published",
        metavar="DIR",
        default="",
        help="folder of the published set; default: results/published of this weft",
    )


def _published(arguments: Namespace) -> PublishedSet:
    from weft.experiments.report.published import FOLDER, PublishedSet

    return PublishedSet(Path(arguments.published or FOLDER))


def claims(arguments: Namespace) -> int:
    """Print claims beside our values, or write them into the pages."""
    from weft.experiments.report import pages
    from weft.experiments.report.claims import TITLES, outcome, texts
    from weft.experiments.report.reproduction import ALL, select

    published = _published(arguments)
    published.refuse_empty()
    if arguments.write:
        for path in pages.write(published):
            print(path)
        return 0
    rows: list[Row] = []
    names = arguments.names or [ALL]
    with stages("comparing", f"claims {' '.join(names)}"):
        for name, claim in select(names, runs=False).claims.items():
            ours = outcome(claim, published.rows)
            runs_s = _seconds(claim.runs, published)
            rows.append(
                {
                    **dict(zip(TITLES, texts(name, ours), strict=True)),
                    "again_s": float(f"{sum(runs_s.values()):.2g}") if runs_s else None,
                    "why": claim.reason(ours),
                    "place": claim.place,
                    "kind": claim.statement.kind,
                    "quote": claim.statement.quote,
                }
            )
    _print_rows(rows, arguments)
    return 0


def _print_rows(rows: Sequence[Row], arguments: Namespace) -> None:
    """Print rows as JSON, or as a table without the columns of whole sentences."""
    if arguments.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif rows:
        show(list(rows), [key for key in rows[0] if key not in SENTENCES])


def reproduce(arguments: Namespace) -> int:
    """Measure runs of the published set; compare or publish them."""
    from weft.experiments.report.reproduction import ALL, select

    _check_options(arguments)
    published = _published(arguments)
    names = arguments.names or [ALL]
    comparing = arguments.check and not arguments.publish
    if comparing:
        published.refuse_empty()
    with stages("planning", f"reproduce {' '.join(names)}"):
        selection = select(names)
    if not selection.runs and not arguments.check:
        raise ValueError(
            f"{' '.join(names)}: the published set has no runs of it; its runs are those of a "
            f"Claim, or of SWEEPS in the experiment's file (CONTRIBUTING.md, An experiment)"
        )
    runs = _possible(selection, published, arguments)
    if comparing and not published.entries(runs):
        raise ValueError(_nothing_to_compare(selection, published))
    store = Store(Path(arguments.results))
    todo = _missing(runs, store, published, arguments)
    _announce(runs, todo, published, arguments)
    if arguments.dry_run:
        return 0
    failures = 0
    for name in sorted({run.experiment for run in runs}):
        own = [run for run in todo if run.experiment == name]
        failures += _measure(name, own, store, arguments)
        if arguments.publish:
            _publish(name, runs, store, published)
    different = arguments.check and _check(selection, runs, store, published, arguments)
    return 1 if failures or different else 0


def _missing(
    runs: Sequence[Run], store: Store, published: PublishedSet, arguments: Namespace
) -> list[Run]:
    """Return the runs to measure; those that are published are left out for --publish alone."""
    if arguments.fresh:
        return list(runs)
    missing = remaining(runs, store)
    return remaining(missing, published) if arguments.publish else missing


def _nothing_to_compare(selection: ClaimSelection, published: PublishedSet) -> str:
    """Return the error for a check of runs of which none is published and can be measured."""
    experiments = ", ".join(sorted({run.experiment for run in selection.runs.values()}))
    have = len(published.entries(selection.runs.values()))
    if have:
        return f"nothing to compare: this machine can measure none of the {have} published runs"
    return (
        f"nothing to compare: {published.root} has no run of it"
        f"{f' ({experiments})' if experiments else ''}; weft claims lists what is measured"
    )


def _check_options(arguments: Namespace) -> None:
    """Raise ValueError if options conflict, or a dirty work tree is to be published."""
    from weft.experiments.runner import provenance

    if not arguments.names and not arguments.sample:
        raise ValueError("name a paper, a claim, a figure, an experiment, or all; or --sample")
    if arguments.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {arguments.jobs}")
    if arguments.publish:
        commit, dirty = provenance.code()
        if not commit or dirty or arguments.sample:
            raise ValueError("--publish needs a clean commit, and whole sweeps: no --sample")


def _measure(name: str, todo: Sequence[Run], store: Store, arguments: Namespace) -> int:
    """Measure runs of an experiment; return how many failed, and print why."""
    swept = measure(definition.find(name), todo, store, arguments, arguments.fresh)
    for run, failure in swept.failures.items():
        say(f"weft: {name}: {run} failed: {failure.reason}")
    return len(swept.failures)


def _possible(
    selection: ClaimSelection, published: PublishedSet, arguments: Namespace
) -> list[Run]:
    """Return the runs that this machine can measure, or a sample; say which are left out."""
    from weft.experiments.report.reproduction import sample
    from weft.testbed.uml import virtual_kernel

    runs = list(selection.runs.values())
    no_kernel = virtual_kernel.find() is None
    reasons: dict[str, Callable[[Run], bool]] = {
        "need root": lambda run: timed(run) and (arguments.sample or os.geteuid() != 0),
        "need the kernel for virtual time (make uml-kernel)": lambda run: (
            run.clock == "virtual" and no_kernel
        ),
    }
    for reason, holds in reasons.items():
        left_out = [run for run in runs if holds(run)]
        if left_out and not arguments.sample:
            experiments = ", ".join(sorted({run.experiment for run in left_out}))
            say(f"weft: {len(left_out)} runs are left out that {reason}: {experiments}")
        runs = [run for run in runs if not holds(run)]
    return sample(runs, _seconds(runs, published)) if arguments.sample else runs


def _seconds(runs: Sequence[Run], published: PublishedSet) -> dict[str, float]:
    """Return the published wall times of runs by id."""
    return {row["run"]: float(about["wall_s"]) for row, about in published.entries(runs)}


def _announce(
    runs: Sequence[Run],
    todo: Sequence[Run],
    published: PublishedSet,
    arguments: Namespace,
) -> None:
    """Print runs, time and disk that the measurement will take."""
    expected_s: dict[Run, float | None] = {}
    for name in {run.experiment for run in todo}:
        own = [run for run in todo if run.experiment == name]
        expected_s |= estimates(definition.find(name), own, published)
    known_s = {run: seconds for run, seconds in expected_s.items() if seconds is not None}
    unknown = len(todo) - len(known_s)
    processor_s = sum(known_s.values())
    wall_s = total_s(known_s, arguments.jobs) or 0.0
    more = f", and {unknown} runs that were never timed" if unknown else ""
    if any(run.engine == "graph" for run in todo):
        more += f", without {COMPILING}"
    disk_mb = len(todo) * BYTES_OF_A_RUN / 1e6
    published_too = " or published" if arguments.publish else ""
    say(
        f"{len(runs)} runs, {len(runs) - len(todo)} of them stored{published_too}; the rest takes "
        f"{duration(processor_s)} of runs one by one, {duration(wall_s)} with --jobs "
        f"{arguments.jobs}{more}, and {disk_mb:.1f} MB of disk in {arguments.results}"
    )


def _publish(name: str, runs: Sequence[Run], store: Store, published: PublishedSet) -> None:
    from weft.experiments.report.published import runs_of

    own = [run for run in runs if run.experiment == name]
    print(
        published.publish(definition.find(name), list(runs_of(name).values()), store.entries(own))
    )


def _check(
    selection: ClaimSelection,
    runs: Sequence[Run],
    store: Store,
    published: PublishedSet,
    arguments: Namespace,
) -> bool:
    """Print how rows and claims compare; return True if any is different."""
    from weft.experiments.report.reproduction import Likeness, compare_claim, compare_rows

    new: Entries = {row["run"]: (row, about) for row, about in store.entries(runs)}
    compared = compare_rows(runs, new, published)
    claims = {
        name: compare_claim(claim, compared, new, published)
        for name, claim in selection.claims.items()
        if compared.keys() & {run.id for run in claim.runs}
    }
    lines = [_claim_line(name, selection.claims[name], ours) for name, ours in claims.items()]
    _print_rows(lines, arguments)
    for summary in row_lines(runs, compared):
        say(summary)
    likenesses = [claim.likeness for claim in claims.values()]
    likenesses += [row.likeness for row in compared.values()]
    return Likeness.DIFFERENT in likenesses


def _claim_line(name: str, claim: Claim, result: ClaimComparison) -> Row:
    from weft.experiments.report.claims import value_text

    return {
        "name": name,
        "claim": claim.words,
        "published": value_text(claim, result.published),
        "now": value_text(claim, result.new),
        "verdict": result.text,
    }


def row_lines(runs: Sequence[Run], compared: Mapping[str, RowComparison]) -> list[str]:
    """Return a line for each experiment: how many rows are alike, and how far others differ."""
    lines = []
    for name in sorted({run.experiment for run in runs}):
        own = [compared[run.id] for run in runs if run.experiment == name and run.id in compared]
        counts = Counter(row.likeness.value for row in own)
        parts = [f"{count} {likeness}" for likeness, count in counts.items()]
        if columns := sorted({column for row in own for column in row.columns}):
            most = max(row.difference for row in own)
            parts.append(f"by up to {most:.2g} in {', '.join(columns)}")
        lines.append(f"{name}: rows {', '.join(parts) or 'not published'}")
    return lines
