"""Experiments: a question, its parameters, and functions that measure and draw.

A file of a room has one experiment or several of one subject: what it assigns Experiment() or
replace() to.  Running, storing, resuming and styling are common code elsewhere.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.experiments.runner import provenance
from weft.experiments.runner.parameters import Axis, Scalar
from weft.topologies import build
from weft.topologies.core.grammar import PackageError, loaded, package_errors, unknown
from weft.topologies.core.topology import Limit, limited

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from matplotlib.figure import Figure
    from numpy.random import Generator

    from weft.topologies.core.topology import Topology

Value = bool | int | float | str | None | list[bool] | list[int] | list[float] | list[str]
Row = dict[str, Any]
Table = Sequence[Row]
Entry = tuple[Row, dict[str, Any]]  # a stored row and its provenance

ENTRY_POINTS = "weft.experiments"
# The constant and the name of an experiment, in the source of weft.
ASSIGNMENT = re.compile(
    r'^([A-Z_]+) = (?:Experiment|replace)\((?:\s*\w+,)?\s*name="(\w+)"', re.MULTILINE
)
ENGINES = ("graph", "fabric", "packet", "kernel")
CLOCKS = ("real", "virtual")
COSTS = ("hop_ns", "syscall_ns")  # of computing, under the virtual clock alone
DIFFERENCE = "difference"
MOST_SEEDS = 100_000  # all runs of a sweep are in memory
GRAPH_BYTES = 600  # memory of a link of a Topology with what is derived from it, at most
# A comma followed by key= continues the value before it: dcell:n=4,k=1,ficonn:n=4,k=2 is two
# networks.
BETWEEN_VALUES = re.compile(r",(?![a-z][a-z0-9_]*=)")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One cell of a sweep with one seed on one engine, identified by its content.

    clock: of the kernel engine: real, or virtual: computing takes no time.
    hop_ns: processor time of a packet at each hop under the virtual clock.
    syscall_ns: processor time of a system call under the virtual clock.

    Fields at their default are omitted from the content, so a new field keeps existing ids.
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
        """Return 16 hexadecimal digits, a hash of the content."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def content(self) -> dict[str, Any]:
        """Return the fields, JSON-able; Run(**content) is the same run."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        content = {name: value for name, (value, default) in values.items() if value != default}
        return {**content, "parameters": dict(self.parameters)}

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        cell = " ".join(f"{key}={value}" for key, value in self.parameters.items())
        clock = f" clock={self.clock}" if self.clock != "real" else ""
        clock += f" hop_ns={self.hop_ns}" if self.hop_ns else ""
        clock += f" syscall_ns={self.syscall_ns}" if self.syscall_ns else ""
        return f"{cell} seed={self.seed} engine={self.engine}{clock}"

    @property
    def topology(self) -> Topology:
        """Return the network that the parameter `topology` names."""
        return build(self.text("topology"))

    def generator(self, *stream: int) -> Generator:
        """Return a generator of random numbers from the seed; `stream` tells several apart."""
        import numpy as np

        return np.random.default_rng([self.seed, *stream])

    def text(self, key: str) -> str:
        return str(self.parameters[key])

    def integer(self, key: str) -> int:
        return int(self.parameters[key])

    def number(self, key: str) -> float:
        return float(self.parameters[key])


@dataclass(frozen=True)
class Result:
    """Result of one run.

    figures: one row; a key ends in its unit (goodput_bps, lost_fraction); a list is a distribution.
    fidelity: PASS, WARN or FAIL: did the emulation keep up?  None without emulation.
    circumstances: further facts for provenance, JSON-able: read-backs, features, worst offenders.
    virtual_s: duration by the virtual clock.
    """

    figures: Mapping[str, Value]
    fidelity: str | None = None
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    virtual_s: float | None = None


class RunPlan(NamedTuple):
    """Runs of a sweep.

    runs: one for each engine, cell and seed.
    refused: reason, in one line, by cell that cannot be measured.
    """

    runs: list[Run]
    refused: dict[str, str]


def nothing_to_check(run: Run) -> None:
    """Accept every combination of parameters."""


def nothing_predicted(run: Run) -> Mapping[str, Value]:
    return {}


def every_cell(run: Run) -> bool:
    """Keep every cell in the sweep."""
    return True


def no_cell(engine: str, parameters: Mapping[str, Scalar]) -> int:
    """Return 0: the version is that of all cells."""
    return 0


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question, the sweep that answers it, and its functions.

    source: paper and section.
    engines: possible engines; the first is the default.
    axes: parameters with their values in the default sweep; every combination is a cell.
    columns: meaning of each figure, see rows.py.
    timed_columns: figures of the machine, as processor times, which no two runs share.
    seeds: runs of a cell by default, seeded 0, 1, ...
    must_hold: invariants: figures that are true unless something is broken.  A row that breaks one
        may say how in the column DIFFERENCE, which `weft run` prints.
    goes_together: is a run part of the sweep, by its values of the parameters `compared`?  A user
        who sets all of `compared` gets all cells.
    check: raises ValueError, in one line, if the parameters of a run exclude each other.
    measure: measures one run.  Equal parameters and seed draw equal failures and traffic on every
        engine.
    predict: figures of a model for the same run, added to the measured ones.  They are computed
        after the measurement, outside the virtual clock.
    plot: draws rows on an empty figure.
    version: increased when earlier rows no longer answer the question.
    revised: (engine, parameters) -> how often this held of that cell and not of all; its version is
        so much higher.
    clock: of the kernel engine by default: virtual, or real if the machine itself is measured.
    takes_s: time of the default sweep by that clock on two cores; None if it was never measured.
    always_measures: measure stored runs again, as a demonstration does.
    """

    name: str
    question: str
    source: str
    engines: tuple[str, ...]
    axes: Mapping[str, Axis]
    columns: Mapping[str, str] = field(default_factory=dict)
    timed_columns: tuple[str, ...] = ()
    seeds: int
    measure: Callable[[Run], Result]
    plot: Callable[[Table, Figure], None]
    goes_together: Callable[[Run], bool] = every_cell
    compared: tuple[str, ...] = ("topology", "routing")
    check: Callable[[Run], None] = nothing_to_check
    predict: Callable[[Run], Mapping[str, Value]] = nothing_predicted
    must_hold: tuple[str, ...] = ()
    version: int = 1
    revised: Callable[[str, Mapping[str, Scalar]], int] = no_cell
    clock: str = "virtual"
    takes_s: float | None = None
    always_measures: bool = False

    def version_of(self, engine: str, parameters: Mapping[str, Scalar]) -> int:
        """Return the version of a cell, with that of the code of other packages."""
        added = provenance.code_version(self.name, parameters.values(), ENTRY_POINTS)
        return self.version + self.revised(engine, parameters) + added

    @property
    def sweep(self) -> dict[str, Sequence[Scalar]]:
        """Return the values of each parameter in the default sweep."""
        return {key: axis.values for key, axis in self.axes.items()}

    def default_runs(self) -> list[Run]:
        """Return the runs of the default sweep by the default clock."""
        clock = self.clock if self.engines[0] == "kernel" else "real"
        return self.plan(clock=clock).runs

    def runs(
        self,
        texts: Mapping[str, str] | None = None,
        *,
        seeds: int | None = None,
        engines: Sequence[str] = (),
    ) -> list[Run]:
        """Return the runs of plan()."""
        return self.plan(texts, seeds=seeds, engines=engines).runs

    def plan(
        self,
        texts: Mapping[str, str] | None = None,
        *,
        seeds: int | None = None,
        engines: Sequence[str] = (),
        clock: str = "real",
        hop_ns: int = 0,
        syscall_ns: int = 0,
    ) -> RunPlan:
        """Return the runs of the sweep.

        Args:
            texts: values of some parameters, as text, in place of the default ones.
            seeds: runs of each cell.
            engines: in place of the default one.
            clock: of the kernel engine.
            hop_ns: processor time of a packet at each hop under the virtual clock.
            syscall_ns: processor time of a system call under the virtual clock.

        Raises:
            ValueError: a value is unknown, ill-typed or out of range, or no cell is left.
        """
        texts = texts or {}
        engines = self._engines(engines, clock)
        numbers = range(self._seeds(seeds))
        values = {**self.sweep, **self.values(texts)}
        all_named = texts.keys() >= set(self.compared)
        runs: list[Run] = []
        refused: dict[str, str] = {}
        on_kernel = {"clock": clock, "hop_ns": hop_ns, "syscall_ns": syscall_ns}
        for first in self._cells(values, engines, on_kernel):
            if not all_named and not self.goes_together(first):
                continue
            if reason := self._refusal(first):
                refused[in_brief(first, values, engines)] = reason
            else:
                runs += [replace(first, seed=seed) for seed in numbers]
        if not runs:
            raise ValueError(next(iter(refused.values()), self._no_cell))
        return RunPlan(runs, refused)

    @property
    def _no_cell(self) -> str:
        return f"{self.name}: no cell is left: name {' and '.join(self.compared)}"

    def _refusal(self, run: Run) -> str:
        """Return why the parameters of `run` exclude each other, or an empty text."""
        try:
            with limited(room_on(run.engine)):
                self.check(run)
        except ValueError as error:
            return str(error)
        return ""

    def _seeds(self, seeds: int | None) -> int:
        # Python callers may pass a list of seeds, or True
        if seeds is not None and (type(seeds) is not int or not 1 <= seeds <= MOST_SEEDS):
            words = f"seeds is a number of runs, 1 to {MOST_SEEDS}, got {seeds}"
            raise ValueError(f"{self.name}: {words}")
        return seeds or self.seeds

    def _cells(
        self,
        values: Mapping[str, Sequence[Scalar]],
        engines: Sequence[str],
        on_kernel: Mapping[str, Any],
    ) -> Iterator[Run]:
        """Yield the run with seed 0 of each combination of values on each engine."""
        cells = list(product(*values.values()))
        for engine, cell in product(engines, cells):
            parameters = dict(zip(values, cell, strict=True))
            yield Run(
                experiment=self.name,
                version=self.version_of(engine, parameters),
                parameters=parameters,
                seed=0,
                engine=engine,
                **(on_kernel if engine == "kernel" else {}),
            )

    def carry_out(self, run: Run) -> Result:
        """Measure `run` in this process."""
        return self.with_prediction(run, self.measure(run))

    def with_prediction(self, run: Run, measured: Result) -> Result:
        """Return `measured` with the predicted figures of `run` added.

        ValueError for a figure that is in both.
        """
        predicted = self.predict(run)
        if duplicates := [key for key in predicted if key in measured.figures]:
            raise ValueError(f"{self.name}: {', '.join(duplicates)} is both measured and predicted")
        return replace(measured, figures={**measured.figures, **predicted})

    def _engines(self, names: Sequence[str], clock: str) -> Sequence[str]:
        """Return the engines `names`, or the default.

        ValueError for an unknown engine, or one that excludes `clock`.
        """
        for engine in names:
            if engine not in self.engines:
                raise ValueError(f"{self.name}: " + unknown("engine", engine, self.engines))
        if clock == "real":
            return names or self.engines[:1]
        if "kernel" not in (names or self.engines):
            engines = ", ".join(names or self.engines)
            raise ValueError(
                f"{self.name}: the clock is {clock} on the engine kernel only, not on {engines}"
            )
        return names or ["kernel"]

    def values(self, texts: Mapping[str, str]) -> dict[str, list[Scalar]]:
        """Return the distinct values in the text of each parameter."""
        values = {}
        for key, text in texts.items():
            if key not in self.axes:
                raise ValueError(f"{self.name}: " + unknown("parameter", key, self.axes))
            parameter = self.axes[key].parameter
            scalars = [parameter.read(self.name, key, value) for value in split(text)]
            values[key] = list(dict.fromkeys(scalars))
        return values


def room_on(engine: str) -> Limit:
    """Return what refuses a network that is too large for `engine`, before it is wired."""
    if engine == "packet":
        from weft.testbed.packets.simulation import require_room

        return require_room
    if engine == "kernel":
        from weft.testbed.plan.network_plan import require_indexes

        return require_indexes
    from weft.testbed.machine.machine import require_memory

    return lambda size: require_memory(str(size), GRAPH_BYTES * size.links)


def in_brief(run: Run, values: Mapping[str, Sequence[Scalar]], engines: Sequence[str]) -> str:
    """Return the parameters of `run` that vary in its sweep."""
    words = [f"{key}={run.parameters[key]}" for key in values if len(values[key]) > 1]
    if len(engines) > 1:
        words.append(f"engine={run.engine}")
    return " ".join(words) or str(run)


def split(text: str) -> list[str]:
    """Return the values in `text`: three in 0,1,2, two in dcell:n=4,k=1,ficonn:n=4,k=2."""
    values = BETWEEN_VALUES.split(text)
    if not all(values):
        raise ValueError(f"{text!r}: a value is empty")
    return values


def assignments(items: Sequence[str]) -> dict[str, str]:
    """Return the values, joined by commas, by key.

    Raises:
        ValueError: an item is not key=value, or two have one key.
    """
    texts: dict[str, str] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals or not key or not text:
            raise ValueError(f"{item!r}: expected key=value[,value...]")
        if key in texts:
            raise ValueError(f"{key} is set twice: write {key}={texts[key]},{text}")
        texts[key] = text
    return texts


def names() -> list[str]:
    """Return the names of weft's experiments and of those that other packages add.

    Raises:
        ValueError: two experiments have one name.
    """
    every = [*_sources(), *(entry.name for entry in _added())]
    if duplicates := {name for name in every if every.count(name) > 1}:
        title = f"there are several experiments called {', '.join(sorted(duplicates))}"
        raise ValueError(f"{title} (entry points {ENTRY_POINTS})")
    return sorted(every)


def questions() -> dict[str, str]:
    """Return the question of every experiment, by name.

    Those of weft are read from the source, because importing all of them takes seconds.
    """
    texts = {name: _question(source) for name, source in _sources().items()}
    added, _ = loaded(find, [name for name in names() if name not in texts])
    texts |= {name: experiment.question for name, experiment in added.items()}
    return dict(sorted(texts.items()))


def _question(source: Source) -> str:
    """Return the argument `question` of the call that makes the experiment."""
    text = source.path.read_text("utf-8")
    begin = text.index(f"\n{source.constant} = ") + 1
    (assignment,) = ast.parse(text[begin : text.index("\n)", begin) + 2]).body
    assert isinstance(assignment, ast.Assign)
    assert isinstance(assignment.value, ast.Call)
    values = {keyword.arg: keyword.value for keyword in assignment.value.keywords}
    return str(ast.literal_eval(values["question"]))


class Source(NamedTuple):
    """File of an experiment of weft, and the constant of it that has the experiment."""

    path: Path
    constant: str

    def module(self) -> Any:
        """Return the file's module."""
        return import_module(f"weft.experiments.{self.path.parent.name}.{self.path.stem}")


@cache
def _sources() -> Mapping[str, Source]:
    """Return the source of each experiment of weft, by name."""
    return {
        name: Source(path, constant)
        for path in Path(__file__).parents[1].glob("*/*.py")
        for constant, name in ASSIGNMENT.findall(path.read_text("utf-8"))
    }


def _added() -> Sequence[EntryPoint]:
    """Return the entry points of other packages: name = "module:EXPERIMENT"."""
    return tuple(entry_points(group=ENTRY_POINTS))


def module_of(name: str) -> Any:
    """Return the module of an experiment of weft; None for that of another package."""
    return _sources()[name].module() if name in _sources() else None


def find(name: str) -> Experiment:
    """Return the experiment called `name`; ValueError if there is none or it cannot be loaded."""
    if source := _sources().get(name):
        experiment: Experiment = getattr(source.module(), source.constant)
        return experiment
    for entry in _added():
        if entry.name == name:
            return _loaded(entry)
    raise ValueError(unknown("experiment", name, names(), installed_in=sys.prefix))


def _loaded(entry: EntryPoint) -> Experiment:
    """Return the experiment of another package; ValueError, in one line, if it has none."""
    title = f"experiment {entry.name}, {entry.value}"
    with package_errors(title):
        experiment = entry.load()
    if not isinstance(experiment, Experiment) or experiment.name != entry.name:
        raise PackageError(f"{title}: is no Experiment of that name")
    return experiment


def discover() -> dict[str, Experiment]:
    """Return all experiments by name; one that a package cannot load is left out."""
    return loaded(find, names())[0]


def failures() -> list[str]:
    """Return a line for each experiment that a package cannot load."""
    return loaded(find, [entry.name for entry in _added()])[1]
