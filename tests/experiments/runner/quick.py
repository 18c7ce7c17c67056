"""A quick experiment for tests, which notes each measurement in $WEFT_TEST_LOG; as a program,
`weft` with no other."""

import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from weft.experiments.runner import definition  # noqa: E402
from weft.experiments.runner.definition import Experiment, Result, Run, Table  # noqa: E402
from weft.experiments.runner.parameters import Integer, Number, Word  # noqa: E402


def measure(run: Run) -> Result:
    if log := os.environ.get("WEFT_TEST_LOG"):
        with Path(log).open("a", encoding="utf-8") as file:  # one short line is appended whole
            file.write(run.id + "\n")
    time.sleep(float(os.environ.get("WEFT_TEST_PAUSE_S", "0")))
    if run.text("scheme") == "broken":
        raise RuntimeError("the\nreason")
    square = run.integer("size") ** 2
    slow = {"fidelity": "FAIL" if square > 4 else "PASS"} if run.engine == "kernel" else {}
    return Result(
        figures={"area_bytes": square, "delays_us": [1.5, run.seed], "right": square != 49},
        circumstances={"seen": "here"},
        **slow,
    )


def plot(table: Table, figure) -> None:
    axes = figure.add_subplot()
    axes.plot(
        [float(str(row["size"])) for row in table],
        [float(str(row["area_bytes"])) for row in table],
        "o",
    )


EXPERIMENT = Experiment(
    name="quick",
    question="How large is a square?",
    source="Euclid",
    engines=("graph", "kernel"),
    clock="real",
    axes={
        "scheme": Word(meaning="what it is called", words=("dr", "bfs", "broken")).over(
            "dr", "bfs"
        ),
        "size": Integer(meaning="its side", unit="m", least=0, most=1000).over(1, 2, 3),
        "load_fraction": Number(meaning="a number", unit="fraction", least=0, most=1).over(0.5),
    },
    seeds=2,
    measure=measure,
    plot=plot,
    must_hold=("right",),
)

if __name__ == "__main__":
    import __main__
    from weft.experiments.cli.cli import main

    sys.modules["quick"] = __main__  # processes of the sweep find measure() where this is
    definition.find = lambda name: EXPERIMENT
    sys.exit(main())
