"""What an experiment is: a question, and data.

A file of this folder that assigns EXPERIMENT is one question.  It says what is swept, how one run is measured and how
the results are drawn; running, storing, resuming and styling are done once, elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topologies.core.grammar import unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scalar = int | float | str
Value = bool | int | float | str | None | list[bool] | list[int] | list[float] | list[str]
Row = dict[str, Value]
Table = Sequence[Row]

ENGINES = ("graph", "fabric", "kernel")
CIRCUMSTANCES = ("seed", "engine", "fidelity", "run")  # columns that every row may have beside parameters and figures
# A comma followed by key= continues the value before it: dcell:n=4,k=1,ficonn:n=4,k=2 is two networks.
BETWEEN_VALUES = re.compile(r",(?![a-z][a-z0-9_]*=)")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One cell of a sweep with one seed on one engine; what it contains is who it is."""

    experiment: str
    version: int
    parameters: Mapping[str, Scalar]
    seed: int
    engine: str

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits, the same for the same content on every machine."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def content(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "version": self.version,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "engine": self.engine,
        }

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        cell = " ".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"{cell} seed={self.seed} engine={self.engine}"

    def text(self, key: str) -> str:
        return str(self.parameters[key])

    def integer(self, key: str) -> int:
        return int(self.parameters[key])


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one run gave.

    figures: one row; a key ends in its unit (goodput_bps, lost_fraction); a list is a distribution.
    fidelity: PASS, WARN or FAIL, whether the emulation kept up with what it was asked; None where nothing is emulated.
    circumstances: anything else that a reader may ask for later, JSON-able: read-backs, features used, worst offenders.
    """

    figures: Mapping[str, Value]
    fidelity: str | None = None
    circumstances: Mapping[str, Any] = field(default_factory=dict)


def nothing_to_check(run: Run) -> None:
    """Any combination of parameters makes sense."""


def every_cell(run: Run) -> bool:
    """No scheme of the sweep is for some of its networks only."""
    return True


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question, what is swept to answer it, and how.

    source: the paper and section that it comes from.
    engines: those that can answer; the first is used unless another is asked for.
    sweep: the values of each parameter; every combination is a cell.  A parameter's type is that of its values.
    seeds: how many runs a cell has by default, seeded 0, 1, ...
    must_hold: figures that are true unless something is broken.
    goes_together: whether the scheme of a run is for its network; the sweep has no other cells, unless both are named.
    check: raises ValueError, in one line, for a run that cannot be.
    measure: carries one run out.  Equal parameters and seed draw equal failures and traffic on every engine.
    plot: draws the rows on an empty figure.
    version: raised when rows measured before no longer answer the question.
    """

    name: str
    question: str
    source: str
    engines: tuple[str, ...]
    sweep: Mapping[str, Sequence[Scalar]]
    seeds: int
    measure: Callable[[Run], Result]
    plot: Callable[[Table, Figure], None]
    goes_together: Callable[[Run], bool] = every_cell
    check: Callable[[Run], None] = nothing_to_check
    must_hold: tuple[str, ...] = ()
    version: int = 1

    def runs(
        self, given: Mapping[str, str] | None = None, *, seeds: int | None = None, engines: Sequence[str] = ()
    ) -> list[Run]:
        """The runs of the sweep, where `given` replaces the values of some parameters by those in its text.

        ValueError for what is unknown, ill-typed or impossible.
        """
        for engine in engines:
            if engine not in self.engines:
                raise ValueError(f"{self.name}: " + unknown("engine", engine, self.engines))
        if seeds is not None and seeds < 1:
            raise ValueError(f"{self.name}: seeds must be at least 1, got {seeds}")
        values = {**self.sweep, **self.values(given or {})}
        runs = [
            Run(
                experiment=self.name,
                version=self.version,
                parameters=dict(zip(values, cell, strict=True)),
                seed=seed,
                engine=engine,
            )
            for engine in engines or self.engines[:1]
            for cell in product(*values.values())
            for seed in range(seeds or self.seeds)
        ]
        if not given or not {"topology", "routing"} <= given.keys():
            runs = [run for run in runs if self.goes_together(run)]
        for run in runs:
            self.check(run)
        return runs

    def values(self, given: Mapping[str, str]) -> dict[str, list[Scalar]]:
        """The values that the text of each parameter lists, each once."""
        for key in given:
            if key not in self.sweep:
                raise ValueError(f"{self.name}: " + unknown("parameter", key, self.sweep))
        return {key: list(dict.fromkeys(self.scalar(key, one) for one in split(text))) for key, text in given.items()}

    def scalar(self, key: str, text: str) -> Scalar:
        """`text` as a value of the parameter `key`: of the narrowest type that the parameter's values have."""
        kinds = {type(value) for value in self.sweep[key]}
        if str in kinds:
            return canonical(text) if key == "topology" else text
        for kind in (int, float):
            with suppress(ValueError):
                if kind in kinds:
                    return kind(text)
        number = "a number" if float in kinds else "an integer"
        raise ValueError(f"{self.name}: {key} must be {number}, got {text!r}")


def canonical(topology: str) -> str:
    """`topology` with its parameters in the family's order and its defaults filled in: one network, one name."""
    import topologies

    return topologies.canonical(topology)


def split(text: str) -> list[str]:
    """The values that `text` lists: 0,1,2 are three, dcell:n=4,k=1,ficonn:n=4,k=2 two."""
    values = BETWEEN_VALUES.split(text)
    if not all(values):
        raise ValueError(f"{text!r}: a value is empty")
    return values


def assignments(items: Sequence[str]) -> dict[str, str]:
    """key=value,... for each key; values of a key given more than once add up."""
    found: dict[str, str] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals or not key or not text:
            raise ValueError(f"{item!r}: expected key=value[,value...]")
        found[key] = f"{found[key]},{text}" if key in found else text
    return found


def names() -> list[str]:
    """The experiments that exist: every file of this floor that assigns EXPERIMENT."""
    return sorted(_modules())


def _modules() -> dict[str, str]:
    """The module of each experiment."""
    floor = Path(__file__).parents[1]
    return {
        path.stem: ".".join(("experiments", *path.relative_to(floor).with_suffix("").parts))
        for path in floor.glob("*/*.py")
        if "\nEXPERIMENT = " in path.read_text(encoding="utf-8")
    }


def find(name: str) -> Experiment:
    """The experiment called `name`; ValueError names the ones that exist."""
    modules = _modules()
    if name not in modules:
        raise ValueError(unknown("experiment", name, sorted(modules)))
    found: Experiment = import_module(modules[name]).EXPERIMENT
    return found


def discover() -> dict[str, Experiment]:
    """Every experiment by name."""
    return {name: find(name) for name in names()}
