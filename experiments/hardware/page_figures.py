"""Figures of the page on hardware."""

from __future__ import annotations

from weft.experiments.report.published import PageFigure

FIGURES: tuple[PageFigure, ...] = ()
