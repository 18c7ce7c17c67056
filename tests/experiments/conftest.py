import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "runner"))  # for the helper `quick`

from weft.experiments.runner import definition, results
from weft.experiments.runner.rows import unexplained

FIND = definition.find  # tests replace it


@pytest.fixture(autouse=True)
def every_column_is_explained(monkeypatch):
    """Whatever a test stores of an experiment of weft's own has no column that the experiment does
    not declare."""
    row_of = results.row_of

    def check_row(run, result):
        row = row_of(run, result)
        if run.experiment in definition._sources():
            experiment = FIND(run.experiment)
            assert not (names := unexplained(row, experiment.columns, experiment.sweep)), names
        return row

    monkeypatch.setattr(results, "row_of", check_row)
