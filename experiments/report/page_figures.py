"""Figures of the pages: which published rows each shows, and how.

Each paper's figures are the tuple FIGURES in the file page_figures.py of its room.  `make figures`
draws them into figures/NAME.png.  A figure names the rows that it was drawn from, so that a test
sees one that is older than the set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from weft.experiments.report import figures
from weft.experiments.report.claims import PAPERS
from weft.experiments.report.published import PublishedSet
from weft.experiments.runner.definition import Entry, Table, find

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCE = "weft rows"  # key of the rows' hash in a PNG file


@dataclass(frozen=True)
class PageFigure:
    """A figure of a page.

    where: values of parameters and engine that its rows have, as in `--set`.
    plot: draws the rows on an empty figure; None for the experiment's own figure.
    """

    name: str
    experiment: str
    where: Mapping[str, str] = field(default_factory=dict)
    plot: Callable[[Table, Figure], None] | None = None

    def entries(self, published: PublishedSet) -> list[Entry]:
        """Return the published (row, provenance) pairs that the figure shows."""
        return published.selected(find(self.experiment), self.where)

    def draw(self, published: PublishedSet, folder: Path) -> Path | None:
        """Draw the figure into `folder`; return its path, or None without rows."""
        entries = self.entries(published)
        if not entries:
            return None
        path = folder / f"{self.name}.png"
        plot = self.plot or find(self.experiment).plot
        figures.plot(find(self.experiment), entries, path, plot, {SOURCE: source(entries)})
        return path


def page_figures() -> Iterator[PageFigure]:
    """Yield the figures of all papers."""
    for paper in PAPERS:
        yield from import_module(f"weft.experiments.{paper}.page_figures").FIGURES


def source(entries: Sequence[Entry]) -> str:
    """Return a hash of the rows."""
    text = json.dumps([row for row, _ in entries], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
