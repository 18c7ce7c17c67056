"""The example notebook, executed as Jupyter does: a cell shows its last expression."""

import ast
import json
from pathlib import Path

from weft.experiments.runner.python_interface import Rows

NOTEBOOK = Path(__file__).parents[2] / "examples/notebook/networks.ipynb"


def cell_value(source, names):
    """The value of the last expression of a cell, after all before it."""
    *before, last = ast.parse(source).body
    exec(compile(ast.Module(before, []), "cell", "exec"), names)
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_shows_drawings_a_table_and_a_result(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_RESULTS", str(tmp_path))
    names = {}
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    values = [cell_value("".join(c["source"]), names) for c in cells if c["cell_type"] == "code"]
    network, broken, rows, lost = values
    healthy, dashed = network._repr_svg_(), broken._repr_svg_()
    assert "</svg>" in healthy
    assert "stroke-dasharray" in dashed
    assert "stroke-dasharray" not in healthy
    table = rows._repr_html_()
    assert table.count("<tr>") == len(rows) + 1 == 7
    assert "lost_graph_fraction" in table
    assert lost[0] == 0 < lost[4]


def test_a_table_is_escaped_and_cut():
    rows = Rows({"name": "<b>", "value": 1 / 3} for _ in range(101))
    assert "&lt;b&gt;</td><td>0.333333" in rows._repr_html_()
    assert rows._repr_html_().endswith("<p>1 more rows</p>")
