"""Figures of the pages are drawn from the published set, and the pages show all of them."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from weft.experiments.ccrdn.page_figures import lettered
from weft.experiments.report.published import (
    FOLDER,
    SOURCE,
    PageFigure,
    PublishedSet,
    page_figures,
    source,
)

ROOT = Path(__file__).parents[3]
PUBLISHED = PublishedSet(FOLDER)


def words_of(path: Path) -> dict[str, str]:
    """Return the texts that a PNG file carries."""
    content, texts, position = path.read_bytes(), {}, 8
    while position < len(content):
        (length,) = struct.unpack(">I", content[position : position + 4])
        if content[position + 4 : position + 8] == b"tEXt":
            key, _, text = content[position + 8 : position + 8 + length].partition(b"\0")
            texts[key.decode("latin-1")] = text.decode("latin-1")
        position += length + 12
    return texts


def figures_on_pages() -> set[str]:
    """Return the names of the figures that pages show."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    links = [re.findall(r"figures/(\w+)\.png", page.read_text(encoding="utf-8")) for page in pages]
    return {name for names in links for name in names}


@pytest.mark.parametrize("figure", [*page_figures()], ids=lambda figure: figure.name)
def test_a_figure_is_of_the_rows_of_the_set(figure: PageFigure) -> None:
    entries, path = figure.entries(PUBLISHED), ROOT / "figures" / f"{figure.name}.png"
    assert path.exists() == bool(entries), "make figures"
    if entries:
        assert words_of(path)[SOURCE] == source(entries), "make figures"


# difference of a pixel's colour, and fraction of pixels, that last bits of another processor make
VISIBLE, MOST_DIFFERENT = 0.1, 0.0005


@pytest.mark.parametrize("figure", [*page_figures()], ids=lambda figure: figure.name)
def test_a_figure_drawn_again_is_the_picture_on_its_page(
    figure: PageFigure, tmp_path: Path
) -> None:
    if path := figure.draw(PUBLISHED, tmp_path):
        picture = ROOT / "figures" / path.name
        if words_of(path)["Software"] != words_of(picture)["Software"]:
            pytest.skip("figures were drawn by another version of matplotlib")
        ours, theirs = imread(path), imread(picture)
        assert ours.shape == theirs.shape
        differ = np.abs(ours - theirs).max(axis=2) > VISIBLE
        assert differ.mean() < MOST_DIFFERENT, "make figures"


def test_figures_have_the_numbers_of_the_paper() -> None:
    families = {"ficonn": "9", "beta-dcell": "8", "dcell": "7"}
    for n in range(2, 9):
        table = [{"topology": f"{family}:n={n},k=3"} for family in families]
        rows = lettered("7 8 9", lambda table: table, table)
        numbers = {str(row["topology"]).partition(":")[0]: row["network"][1] for row in rows}
        assert numbers == families


def test_pages_show_all_figures_and_no_others() -> None:
    files = {path.stem for path in (ROOT / "figures").glob("*")}
    assert files == figures_on_pages()
    assert files <= {figure.name for figure in page_figures()}


def test_a_figure_of_other_rows_is_seen(tmp_path: Path) -> None:
    figure = next(figure for figure in page_figures() if figure.name == "lbsp_figure9")
    path = figure.draw(PUBLISHED, tmp_path)
    assert path
    entries = figure.entries(PUBLISHED)
    assert words_of(path)[SOURCE] == source(entries) != source(entries[1:])
