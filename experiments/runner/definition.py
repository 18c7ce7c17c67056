"""What an experiment is: a question, and data.

A file of this folder that assigns EXPERIMENT is one question.  It says what is swept, how one run
is measured and how the results are drawn; running, storing, resuming and styling are done once,
elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.experiments.runner.failures import reason
from weft.experiments.runner.parameters import Axis, Scalar
from weft.topologies.core.grammar import unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from matplotlib.figure import Figure

Value = bool | int | float | str | None | list[bool] | list[int] | list[float] | list[str]
Row = dict[str, Value]
Table = Sequence[Row]

ENTRY_POINTS = "weft.experiments"
ENGINES = ("graph", "fabric", "kernel")
CLOCKS = ("real", "virtual")
COSTS = ("hop_ns", "syscall_ns")  # of computing, under the virtual clock alone
# A comma followed by key= continues the value before it: dcell:n=4,k=1,ficonn:n=4,k=2 is two
# networks.
BETWEEN_VALUES = re.compile(r",(?![a-z][a-z0-9_]*=)")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One cell of a sweep with one seed on one engine, identified by its content.

    clock: of the kernel engine: this machine's, or a virtual one under which computing takes no
        time.
    hop_ns: what a packet takes of the processor at each hop under the virtual clock, in ns.
    syscall_ns: what a system call takes of the calling process under the virtual clock, in ns.

    A field that has a default is left out of the content where it has that value, so that ids stay
    what they were before there was such a field.
    """

    experiment: str
    version: int
    parameters: Mapping[str, Scalar]
    seed: int
    engine: str
    clock: str = "real"
    hop_ns: int = 0
    syscall_ns: int = 0

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits, the same for the same content on every machine."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def content(self) -> dict[str, Any]:
        """JSON-able; Run(**content) is the same run."""
        known = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if getattr(self, one.name) != one.default
        }
        return {**known, "parameters": dict(self.parameters)}

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        cell = " ".join(f"{key}={value}" for key, value in self.parameters.items())
        clock = f" clock={self.clock}" if self.clock != "real" else ""
        clock += f" hop_ns={self.hop_ns}" if self.hop_ns else ""
        clock += f" syscall_ns={self.syscall_ns}" if self.syscall_ns else ""
        return f"{cell} seed={self.seed} engine={self.engine}{clock}"

    def text(self, key: str) -> str:
        return str(self.parameters[key])

    def integer(self, key: str) -> int:
        return int(self.parameters[key])

    def number(self, key: str) -> float:
        return float(self.parameters[key])


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one run gave.

    figures: one row; a key ends in its unit (goodput_bps, lost_fraction); a list is a distribution.
    fidelity: PASS, WARN or FAIL, whether the emulation kept up with what it was asked; None where
        nothing is emulated.
    circumstances: anything else that a reader may ask for later, JSON-able: read-backs, features
        used, worst offenders.
    virtual_s: how long it took by a virtual clock.
    """

    figures: Mapping[str, Value]
    fidelity: str | None = None
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    virtual_s: float | None = None


class RunPlan(NamedTuple):
    """What is asked of an experiment.

    runs: one for each engine, cell and seed.  refused: the cells that cannot be, and why, in one
        line each.
    """

    runs: list[Run]
    refused: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a paper says in its text or a figure about some cells of an experiment, for ours to be
    put beside it.

    says: it, with its place in the paper.
    paper: its figure, or words where it gives a bound or an order.
    column: the figure of a row that it is about.
    cell: values of the parameters of these rows; in others they may differ.
    over: values of some parameters of the rows by which they are divided, which are theirs in all
        others and in seed.
    """

    says: str
    paper: float | str
    column: str
    cell: Mapping[str, Scalar]
    over: Mapping[str, Scalar] = field(default_factory=dict)


def nothing_to_check(run: Run) -> None:
    """Any combination of parameters makes sense."""


def nothing_predicted(run: Run) -> Mapping[str, Value]:
    """No model says anything of what is measured."""
    return {}


def every_cell(run: Run) -> bool:
    """No scheme of the sweep is for some of its networks only."""
    return True


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question, what is swept to answer it, and how.

    source: the paper and section that it comes from.
    engines: those that can answer; the first is used unless another is asked for.
    axes: each parameter with its values in the default sweep; every combination is a cell.
    columns: what each figure that a run may give means, see columns.py.
    statements: what the paper says about some of them, where no row has it as `paper_` and the
        column's name.
    seeds: how many runs a cell has by default, seeded 0, 1, ...
    must_hold: figures that are true unless something is broken.
    goes_together: whether a run belongs to the sweep, by its values of the parameters `compared`.
        A sweep whose user names all of `compared` has all of their cells.
    check: raises ValueError, in one line, for a run whose parameters, each of them right, do not go
        together.
    measure: carries one run out.  Equal parameters and seed draw equal failures and traffic on
        every engine.
    predict: what a model says of the same run, as figures that are put beside what was measured.
        It is computed after the measurement and outside the virtual clock, by the process that
        asked for the run.
    plot: draws the rows on an empty figure.
    version: raised when rows measured before no longer answer the question.
    takes_s: about how long the default sweep takes on two cores, in seconds; None if nobody has
        measured it.
    always_measures: whether a run is measured again though it is stored, as a demonstration is.
    """

    name: str
    question: str
    source: str
    engines: tuple[str, ...]
    axes: Mapping[str, Axis]
    columns: Mapping[str, str] = field(default_factory=dict)
    statements: Sequence[Statement] = ()
    seeds: int
    measure: Callable[[Run], Result]
    plot: Callable[[Table, Figure], None]
    goes_together: Callable[[Run], bool] = every_cell
    compared: tuple[str, ...] = ("topology", "routing")
    check: Callable[[Run], None] = nothing_to_check
    predict: Callable[[Run], Mapping[str, Value]] = nothing_predicted
    must_hold: tuple[str, ...] = ()
    version: int = 1
    takes_s: float | None = None
    always_measures: bool = False

    @property
    def sweep(self) -> dict[str, Sequence[Scalar]]:
        """Values of each parameter in the default sweep."""
        return {key: axis.values for key, axis in self.axes.items()}

    def runs(
        self,
        given: Mapping[str, str] | None = None,
        *,
        seeds: int | None = None,
        engines: Sequence[str] = (),
    ) -> list[Run]:
        """The runs of plan()."""
        return self.plan(given, seeds=seeds, engines=engines).runs

    def plan(
        self,
        given: Mapping[str, str] | None = None,
        *,
        seeds: int | None = None,
        engines: Sequence[str] = (),
        clock: str = "real",
        hop_ns: int = 0,
        syscall_ns: int = 0,
    ) -> RunPlan:
        """The runs of the sweep, where `given` replaces the values of some parameters by those in
        its text.

        Cells whose values do not go together are left out.  ValueError for what is unknown,
        ill-typed or out of range, and if no cell is left.
        """
        engines = self._engines(engines, clock)
        if seeds is not None and seeds < 1:
            raise ValueError(f"{self.name}: seeds must be at least 1, got {seeds}")
        values = {**self.sweep, **self.values(given or {})}
        all_named = set(self.compared) <= set(given or ())
        found, refused = [], {}
        for engine in engines:
            for cell in product(*values.values()):
                first = Run(
                    experiment=self.name,
                    version=self.version,
                    parameters=dict(zip(values, cell, strict=True)),
                    seed=0,
                    engine=engine,
                    clock=clock,
                    hop_ns=hop_ns,
                    syscall_ns=syscall_ns,
                )
                if not all_named and not self.goes_together(first):
                    continue
                try:
                    self.check(first)
                except ValueError as error:
                    refused[in_brief(first, values, engines)] = str(error)
                else:
                    found += [replace(first, seed=seed) for seed in range(seeds or self.seeds)]
        if not found:
            no_cell = f"{self.name}: no cell is left: name {' and '.join(self.compared)}"
            raise ValueError(next(iter(refused.values()), no_cell))
        return RunPlan(found, refused)

    def carry_out(self, run: Run) -> Result:
        """What `run` gives, measured by this process."""
        return self.with_prediction(run, self.measure(run))

    def with_prediction(self, run: Run, measured: Result) -> Result:
        """What was `measured` of `run`, its figures before those that are predicted; ValueError if
        one is in both."""
        predicted = self.predict(run)
        if both := [key for key in predicted if key in measured.figures]:
            raise ValueError(f"{self.name}: {', '.join(both)} is both measured and predicted")
        return replace(measured, figures={**measured.figures, **predicted})

    def _engines(self, asked: Sequence[str], clock: str) -> Sequence[str]:
        """The engines that are asked for, which go with `clock`; ValueError if they do not."""
        for engine in asked:
            if engine not in self.engines:
                raise ValueError(f"{self.name}: " + unknown("engine", engine, self.engines))
        if clock == "real":
            return asked or self.engines[:1]
        if "kernel" not in self.engines or set(asked) - {"kernel"}:
            engines = ", ".join(asked or self.engines)
            raise ValueError(
                f"{self.name}: the clock is {clock} on the engine kernel only, not on {engines}"
            )
        return ["kernel"]

    def values(self, given: Mapping[str, str]) -> dict[str, list[Scalar]]:
        """The values that the text of each parameter lists, each once."""
        for key in given:
            if key not in self.axes:
                raise ValueError(f"{self.name}: " + unknown("parameter", key, self.axes))
        return {
            key: list(
                dict.fromkeys(
                    self.axes[key].parameter.read(self.name, key, value) for value in split(text)
                )
            )
            for key, text in given.items()
        }


def in_brief(run: Run, values: Mapping[str, Sequence[Scalar]], engines: Sequence[str]) -> str:
    """What tells the cell of `run` from the others of its sweep."""
    varied = [f"{key}={run.parameters[key]}" for key, several in values.items() if len(several) > 1]
    return " ".join([*varied, *([f"engine={run.engine}"] if len(engines) > 1 else [])]) or str(run)


def canonical(topology: str) -> str:
    """`topology` with its parameters in the family's order and its defaults filled in: one network,
    one name."""
    from weft import topologies

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
    """The experiments that exist: every file of this floor that assigns EXPERIMENT, and what other
    packages add.

    ValueError if two have one name.
    """
    found = [*_modules(), *(entry.name for entry in _added())]
    if twice := {name for name in found if found.count(name) > 1}:
        raise ValueError(
            f"there are several experiments called {', '.join(sorted(twice))} (entry points "
            f"{ENTRY_POINTS})"
        )
    return sorted(found)


@cache
def _modules() -> Mapping[str, str]:
    """The module of each experiment of weft's own."""
    floor = Path(__file__).parents[1]
    return {
        path.stem: ".".join(("weft", "experiments", *path.relative_to(floor).with_suffix("").parts))
        for path in floor.glob("*/*.py")
        if "\nEXPERIMENT = " in path.read_text(encoding="utf-8")
    }


def _added() -> Sequence[EntryPoint]:
    """The entry points by which other packages add experiments: name = "module:EXPERIMENT"."""
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINTS))


def find(name: str) -> Experiment:
    """The experiment called `name`; ValueError names the ones that exist, or says what is wrong
    with that one."""
    modules = _modules()
    if name in modules:
        found: Experiment = import_module(modules[name]).EXPERIMENT
        return found
    for entry in _added():
        if entry.name == name:
            return _loaded(entry)
    raise ValueError(unknown("experiment", name, names()))


def _loaded(entry: EntryPoint) -> Experiment:
    """The experiment of another package; ValueError, in one line, if there is none."""
    try:
        found = entry.load()
    except Exception as error:  # whatever the package raises
        raise ValueError(f"experiment {entry.name}, {entry.value}: {reason(error)}") from error
    if not isinstance(found, Experiment) or found.name != entry.name:
        raise ValueError(f"experiment {entry.name}, {entry.value}: is no Experiment of that name")
    return found


def discover() -> dict[str, Experiment]:
    """Every experiment by name."""
    return {name: find(name) for name in names()}
