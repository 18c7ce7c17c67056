"""CITATION.cff names the project as it is, and the five papers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parent.parent
ABOUT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_version_and_licence_are_those_of_the_project():
    assert str(CITATION["version"]) == ABOUT["version"]
    assert " AND ".join(CITATION["license"]) == ABOUT["license"]


def test_the_authors_of_the_package_are_those_of_the_licence_and_the_citation():
    (author,) = ABOUT["authors"]
    assert author["name"] == CITATION["authors"][0]["name"]
    assert f"Copyright (c) 2026 {author['name']}" in (ROOT / "LICENSE").read_text()


def test_the_five_papers_are_cited():
    names = {reference["authors"][0]["family-names"] for reference in CITATION["references"]}
    assert names == {"Erickson", "Wang", "Lim", "Zahavi", "Besta"}
    assert all(
        reference["title"] and reference["type"] in ("article", "conference-paper")
        for reference in CITATION["references"]
    )
