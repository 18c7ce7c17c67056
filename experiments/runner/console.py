"""Progress and tables on standard error and output: moving on a terminal, plain lines elsewhere.

rich is imported at first use, so `weft --help` stays quick.  Equal work takes about the time that
it took last on this machine, since its boot: that estimates its end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import TYPE_CHECKING, Self

from weft.testbed.linux import clock
from weft.testbed.runs import private_files
from weft.topologies.core.grammar import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task

    from weft.experiments.runner.definition import Row, Run
    from weft.experiments.runner.results import RunFailure

QUIET_S = 2.0  # shorter work is not reported; also the least interval of plain lines
MARKS = {"PASS": "green", "WARN": "yellow", "FAIL": "red"}
MOST_ENTRIES = 200  # the oldest are forgotten


@lru_cache
def terminal() -> Console:
    """Return the terminal of standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def plain() -> bool:
    """Return True if standard error is no terminal."""
    return not sys.stderr.isatty()


def say(text: str) -> None:
    """Print lines on standard error; names in them may hold control characters."""
    print(*map(printable, text.split("\n")), sep="\n", file=sys.stderr, flush=True)


def notice(text: str) -> None:
    """Print one line on standard error if it is a terminal: what takes long there now."""
    if not plain():
        say(text)


class Bar:
    """Progress bar of a sweep of `total` runs, a context manager.

    ticking: refresh continuously.  This takes a thread, so the sweep must not fork.
    beginning: what takes long before the first run ends; it is said after QUIET_S.
    """

    def __init__(self, title: str, total: int, *, ticking: bool, beginning: str = "") -> None:
        self.title, self.total, self.ticking = title, total, ticking
        self.count = self.failed = 0
        self.run_s = self.compile_s = 0.0
        # of this thread a fork of the sweep inherits nothing: it sleeps, or prints one line
        self.timer = Timer(QUIET_S, lambda: self._line(self._state(beginning)))
        self.timer.daemon = True
        self.began = self.said = clock.monotonic()
        self.bar: Progress | None = None

    def __enter__(self) -> Self:
        if self.total > 1 and not plain():
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
            )

            remaining = TextColumn("{task.fields[left]}", style="dim")
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                remaining,
            )
            self.bar = Progress(
                *columns, console=terminal(), transient=True, auto_refresh=self.ticking
            )
            self.bar.add_task(self.title, total=self.total, left="")
            self.bar.start()
        if self.total:
            self.timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.timer.cancel()
        if self.bar:
            self.bar.stop()

    def ended(
        self, run: Run, failure: RunFailure | None, run_s: float = 0.0, compile_s: float = 0.0, /
    ) -> None:
        self.timer.cancel()
        self.count += 1
        self.run_s += run_s
        self.compile_s += compile_s
        now = clock.monotonic()
        share = self.run_s / (self.run_s + self.compile_s) if self.compile_s else 1.0
        left_s = share * (now - self.began) / self.count * (self.total - self.count)
        remaining = f"{duration(left_s)} left" if self.count < self.total else ""
        if failure:
            self.failed += 1
            if self.total > 1:  # a single failure is reported at the end
                self._line(f"{self.title}: {run} failed: {failure.reason}")
        if self.bar:
            failed = f"  {self.failed} failed" if self.failed else ""
            self.bar.update(
                self.bar.task_ids[0], completed=self.count, left=remaining + failed, refresh=True
            )
        elif now - self.said >= QUIET_S and self.count < self.total:
            self.said = now
            self._line(self._state(remaining))

    def _state(self, more: str) -> str:
        runs = f"{self.title}: {self.count} of {self.total} run{'s' * (self.total > 1)}"
        return f"{runs}, {more}" if more else runs

    def _line(self, text: str) -> None:
        if self.bar:
            terminal().print(text, markup=False)
        else:
            say(text)


@contextmanager
def stages(title: str, work: str = "") -> Iterator[Callable[[str], None]]:
    """Yield a function that reports the name of each stage; plain lines only after QUIET_S.

    work: what is done, in words; the time that it took last tells when it ends.  "": unknown.
    """
    began_s = clock.monotonic()
    known = bool(work) and not clock.is_virtual()  # whose times are no user's
    expected_s = usual_s(work) if known else None

    def left() -> str:
        left_s = (expected_s or 0.0) - (clock.monotonic() - began_s)
        return f"about {duration(left_s)} left" if left_s > 0 else ""

    with (_plain_stages if plain() else _moving_stages)(title, left, silent=not known) as tell:
        yield tell
    if known:
        remember(work, clock.monotonic() - began_s)


@contextmanager
def _plain_stages(
    title: str, left: Callable[[], str], *, silent: bool
) -> Iterator[Callable[[str], None]]:
    """Print a line for each stage that begins after QUIET_S, and for the one that goes on then.

    silent: no line for a stage that goes on: no thread.
    """
    began_s, current = clock.monotonic(), ""

    def say_current() -> None:
        say(", ".join(filter(None, [f"{title}: {current}" if current else title, left()])))

    def tell(stage: str) -> None:
        nonlocal current
        current = stage
        if clock.monotonic() - began_s >= QUIET_S:
            say_current()

    timer = Timer(QUIET_S, say_current)
    timer.daemon = True
    if not silent:
        timer.start()
    try:
        yield tell
    finally:
        timer.cancel()


@contextmanager
def _moving_stages(
    title: str, left: Callable[[], str], *, silent: bool
) -> Iterator[Callable[[str], None]]:
    """Show the stage with a spinner, the time since the beginning, and the time that is left."""
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class TimeLeftColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(left(), "dim")

    text = TextColumn("{task.description}")
    columns = SpinnerColumn(), text, TimeElapsedColumn(), TimeLeftColumn()
    with Progress(*columns, console=terminal(), transient=True) as bar:
        task = bar.add_task(title)
        yield lambda stage: bar.update(task, description=f"{title}: {stage}")


class StoryStep:
    """One step of a demonstration: its finding, and PASS or FAIL."""

    def __init__(self) -> None:
        self.result, self.mark = "", "PASS"

    def says(self, result: str, passed: bool = True) -> None:
        self.result, self.mark = result, "PASS" if passed else "FAIL"


@contextmanager
def step(what: str) -> Iterator[StoryStep]:
    """Report a step, and at its end its duration and finding; an error is a FAIL."""
    step, begin = StoryStep(), clock.monotonic()
    try:
        if plain():
            yield step
        else:
            with terminal().status(what):
                yield step
    except BaseException as error:
        step.says(" ".join(f"{type(error).__name__} {error}".split()), passed=False)
        raise
    finally:
        line(step.mark, clock.monotonic() - begin, what, step.result)


def line(mark: str, took_s: float, what: str, result: str) -> None:
    """Print a line about a finished step."""
    if plain():
        say(f"{mark}  {duration(took_s):>7}  {what}" + (f": {result}" if result else ""))
        return
    from rich.table import Table
    from rich.text import Text

    # wraps long texts beside the mark and the time
    grid = Table.grid(padding=(0, 2))
    text = Text.assemble(what, (f": {result}" if result else "", "dim"))
    grid.add_row(Text(mark, f"bold {MARKS[mark]}"), Text(f"{duration(took_s):>7}", "dim"), text)
    terminal().print(grid)


def duration(seconds: float) -> str:
    """Return a time as a person reads it: 3.1 ms, 4.2 s, 3 min 20 s."""
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)  # rounded first: 119.7 s are 2 min 0 s
    return f"{minutes} min {rest_s} s"


def show(rows: list[Row], columns: Sequence[str] = ()) -> None:
    """Print `rows` as an aligned table with a header; by default all columns of the first row."""
    columns = list(columns or rows[0])
    cells = [columns] + [[cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [
        all(isinstance(row.get(column), int | float | None) for row in rows) for column in columns
    ]
    for number, texts in enumerate(cells):
        aligned = [
            t.rjust(w) if right else t.ljust(w)
            for t, w, right in zip(texts, widths, numeric, strict=True)
        ]
        print("  ".join(aligned).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def show_one(row: Row) -> None:
    """Print a row, a line for each figure."""
    width = max(map(len, row))
    for key, value in row.items():
        print(f"{key:<{width}}  {cell(value)}")


def cell(value: object) -> str:
    """Return a figure as text; a distribution as its size."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case list():
            return f"[{len(value)} values]"
    return str(value)


def usual_s(work: str) -> float | None:
    """Return the seconds that `work` took last; None if it was not done yet."""
    return _times_s().get(work)


def remember(work: str, seconds: float) -> None:
    """Store the seconds that `work` took; nothing where this user has no place for a file."""
    times_s = {name: value for name, value in _times_s().items() if name != work}
    newest = list({**times_s, work: round(seconds, 1)}.items())[-MOST_ENTRIES:]
    if path := _file():
        with suppress(OSError):
            private_files.make_folder(path.parent)
            private_files.replace(path, json.dumps(dict(newest)).encode())


def _times_s() -> dict[str, float]:
    """Return the seconds by work, the oldest first."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        path = _file()
        content = json.loads(path.read_text()) if path else {}
        return {str(work): float(seconds) for work, seconds in content.items()}
    return {}


def _file() -> Path | None:
    """Return a file that the next boot removes, apart from runs; None if there is no place."""
    place = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR")
    return Path(place) / "weft-times/times.json" if place else None
