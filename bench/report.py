"""The harness of all benches: arguments, measuring in turns, and the table of figures.

A table is printed and written into results/bench/, from which `make pages` writes
docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from weft.experiments.runner.provenance import code_and_machine
from weft.testbed.runs.private_files import owned_by_caller

RESULTS = Path(__file__).parents[1] / "results" / "bench"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Line:
    """One figure, with its required minimum or maximum."""

    what: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def text(self) -> str:
        """The value: a count as it is, a measurement to three digits."""
        return str(self.value) if isinstance(self.value, int) else f"{self.value:.3g}"

    @property
    def verdict(self) -> str:
        """Return whether the value keeps its limit, in words; "" without a limit."""
        if self.at_least is not None:
            reached, limit = self.value >= self.at_least, f"at least {self.at_least:g}"
        elif self.at_most is not None:
            reached, limit = self.value <= self.at_most, f"at most {self.at_most:g}"
        else:
            return ""
        return f"{'reached' if reached else 'MISSED'} ({limit})"


def show(title: str, lines: list[Line]) -> None:
    """Print `lines` as a table, and store them."""
    store(title, lines)
    print(title)
    width = max(len(line.what) for line in lines)
    for line in lines:
        print(f"  {line.what:<{width}}  {line.text:>10} {line.unit:<6} {line.verdict}".rstrip())


def store(title: str, lines: list[Line]) -> None:
    """Write `lines` into a file of RESULTS, named by `title`, with commit and machine."""
    about = code_and_machine(kernel=False)
    machine = about["machine"]
    content = {
        "title": title,
        "commit": f"{about['commit']}{'+' if about['dirty'] else ''}",
        "machine": f"{machine['cpus']} x {machine['cpu_model']}, Linux {machine['kernel']}, "
        f"load average {os.getloadavg()[1]:.0f}",
        "lines": [[line.what.strip(), line.text, line.unit, line.verdict] for line in lines],
    }
    path = RESULTS / (re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_") + ".json")
    with owned_by_caller(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def arguments(description: str | None, **defaults: int) -> argparse.Namespace:
    """Return the numbers of the command line, --NAME for each of `defaults`."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in defaults.items():
        option = name.replace("_", "-")
        parser.add_argument(f"--{option}", type=int, default=default, help=f"default: {default}")
    return parser.parse_args()


def in_turns(work: Mapping[str, Callable[[], Result]], rounds: int) -> dict[str, list[Result]]:
    """Return the results of `rounds` calls of each, in turns, so that all see the same load."""
    results: dict[str, list[Result]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, measure in work.items():
            results[name].append(measure())
    return results


def stay_on_one_processor() -> int:
    """Move this process to the last processor that it may use; return its number."""
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    return cpu
