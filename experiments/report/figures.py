"""Figures: one style, hollow marks for runs that failed fidelity, and their sources at the foot."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from weft.experiments.report import style
from weft.experiments.runner.definition import COSTS, Entry, Experiment, Row, Table
from weft.experiments.runner.rows import grouped
from weft.testbed.runs import private_files

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = (".png", ".pdf", ".svg")


@contextmanager
def new() -> Iterator[Figure]:
    """Yield an empty figure; draw and save it within the context, which sets the style."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(style.RC):
        yield Figure()


def save(
    figure: Figure, path: str | Path, metadata: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write `figure` in the format of the suffix of `path`.

    Args:
        figure: to write.
        path: of the file, in a folder that exists.
        metadata: words that a PNG file carries.

    Raises:
        ValueError: unknown format, no such folder, or `path` is a folder.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: a figure is one of {', '.join(FORMATS)}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}")
    about = dict(metadata) if path.suffix.lower() == ".png" else None
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix[1:].lower(), metadata=about)
    private_files.write_whole(path, image.getvalue())


def plot(
    experiment: Experiment,
    entries: Sequence[Entry],
    path: str | Path,
    draw: Callable[[Table, Figure], None] | None = None,
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Draw the stored `entries` of `experiment` into `path`.

    draw: draws the rows; None for the experiment's own figure.  metadata: of a PNG file.
    """
    rows = [row for row, _ in entries]
    with new() as figure:
        (draw or experiment.plot)(rows, figure)
        figure.supxlabel(
            foot(experiment, entries), fontsize=6.5, color="#777777", x=0.01, ha="left"
        )
        save(figure, path, metadata)


def by_clock(
    entries: Sequence[Entry],
) -> dict[str, list[Entry]]:
    """Return the entries by clock and its computing costs; a figure shows one clock.

    Entries of engines without a clock go with each.
    """
    clocks = sorted({clock_of(row) for row, _ in entries} - {""}) or [""]
    return {
        clock: [(row, about) for row, about in entries if clock_of(row) in ("", clock)]
        for clock in clocks
    }


def clock_of(row: Row) -> str:
    """Return real, virtual or virtual,hop_ns=500; empty for engines without a clock."""
    costs = [f"{name}={row[name]}" for name in COSTS if row.get(name)]
    return ",".join([row["clock"], *costs]) if row.get("clock") else ""


def foot(experiment: Experiment, entries: Sequence[Entry]) -> str:
    """Return experiment, engines with clock, runs, seeds, failed fidelity verdicts, commits."""
    engines = ", ".join(sorted({engine_of(row) for row, _ in entries}))
    commits = {str(about["commit"]) + ("+" if about["dirty"] else "") for _, about in entries}
    slow = sum(failed_fidelity(row) for row, _ in entries)
    hollow = f"   {slow} failed fidelity (hollow)" if slow else ""
    seeds = sorted({row["seed"] for row, _ in entries})
    versions = ", ".join(sorted(commits)[:3]) + (", ..." if len(commits) > 3 else "")
    runs = f"{len(entries)} run{'s' * (len(entries) > 1)}, seed {seeds[0]}"
    if len(seeds) > 1:
        runs = f"{len(entries)} runs, seeds {seeds[0]} to {seeds[-1]}"
    return f"{experiment.name}   {engines}   {runs}{hollow}   commit {versions}"


def engine_of(row: Row) -> str:
    """Return the engine, and the clock of one that has a clock."""
    clock = clock_of(row).replace(",", ", ")
    return f"{row['engine']} ({clock} clock)" if clock else row["engine"]


def by_setting(table: Table, keys: Sequence[str], *, always: int = 1) -> dict[str, list[Row]]:
    """Return the rows by their values of `keys`, each group under a title, in order.

    The title has the value of the first key, and of the others those that are among the first
    `always` or vary in `table`.
    """
    named = [
        key
        for number, key in enumerate(keys)
        if number and (number < always or len({row.get(key) for row in table}) > 1)
    ]
    groups: dict[str, list[Row]] = {}
    for (first, *rest), rows in grouped(table, [keys[0], *named]).items():
        settings = [f"{key}={value}" for key, value in zip(named, rest, strict=True)]
        groups[", ".join([str(first), *settings])] = rows
    return groups


def failed_fidelity(row: Row) -> bool:
    """Return whether the emulation failed fidelity: its times and rates are not valid."""
    return row.get("fidelity") == "FAIL"


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis 1, 2, 5, 10, ...; denser below a span of 5, sparser above 100."""

    def between(x: float, _: float) -> str:
        low, high = axis.get_view_interval()
        spans = high / low
        shown = spans < 5 or (spans <= 100 and f"{x:e}"[:1] in "25")
        return style.number(x) if shown else ""

    axis.set_major_formatter(style.number)
    axis.set_minor_formatter(between)
    axis.set_tick_params(which="both", labelsize=7.5)
