"""Figures of the page on DAR."""

from weft.experiments.report.page_figures import PageFigure

FIGURES = (
    PageFigure("dar_convergence", "dar_convergence"),
    PageFigure("dar_settling", "dar_settling", {"engine": "graph"}),
    PageFigure("dar_table", "dar_table"),
    PageFigure("dar_goodput", "dar_goodput"),
)
