"""The published set: the rows behind every number and figure of the pages, as text.

results/published/ has a file for each experiment, in JSON lines: first the provenances, each under
a key, then a line for each run, sorted.  Numbers have full precision.  A row that is measured again
with the same figures keeps its line.  Files above MOST_BYTES are compressed.

A provenance line has `key` and the commit, and what `provenance_of` adds.  The line of a run has
ROW_FIELDS; its row is flat, and has ROW_CELLS.  A file with another line is refused when it is
read, with the number of the line.

Each paper's figures are the tuple FIGURES in the file page_figures.py of its room, if it has any.
`make figures` draws them into figures/NAME.png.  A figure names the rows that it was drawn from, so
that a test sees one that is older than the set.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.experiments.report import figures
from weft.experiments.report.claims import PAPERS, Sweep, Where, all_claims
from weft.experiments.runner.definition import (
    Entry,
    Experiment,
    Row,
    Run,
    Table,
    find,
    module_of,
)
from weft.experiments.runner.results import NAME, Store
from weft.experiments.runner.rows import order
from weft.testbed.runs.private_files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).resolve().parents[2] / "results" / "published"
RESTORE = "git checkout restores it, --published DIR reads another set"
MOST_BYTES = 200_000  # of a file that is not compressed
MOST_TEXT_BYTES = 1 << 25  # of a file's text; a small archive may hold more than the memory
SUFFIXES = (".jsonl", ".jsonl.gz")
# Runs that figures need beside those of the claims, of SWEEPS of other files, and of the default
# sweeps of the graph engine.
THREE = ("slimfly:q=4,p=4", "hyperx:l=3,s=3,p=5", "clos:n=8,r=16,m=6")
TCP: Where = {"transport": ("tcp", "tcp:control=dctcp"), "rto_min_us": 200}  # FatPaths' timeout
SERVERS = ("dcell:n=14,k=1", "dcell:n=3,k=2", "ficonn:n=20,k=1")
TRACED = (
    *("fattree:k=4", "clos:n=4,r=4,m=4", "slimfly:q=3,p=1", "hyperx:l=2,s=3,p=2"),
    "dragonfly:p=1,a=4,h=1,palm=0",
)
TRACE: Where = {"trace": "training-step", "ranks": 16}
LINUX: Where = {
    "topology": "fattree:k=4",
    "scheme": ("ecmp", "rps"),
    "ranks": 16,
    "transport": "tcp:control=dctcp",
    "rate_mbps": 1000,
    "frame_bytes": 1514,
}
SWEEPS = (
    Sweep("link_loss", {"engine": "fabric"}),
    *(Sweep(name, {"clock": "virtual"}) for name in ("flowlet_gaps", "connectivity_kernel")),
    Sweep("collectives"),
    Sweep("collectives", {"topology": THREE, **TCP}),
    Sweep("collectives", {"engine": "graph", "scheme": ("ecmp", "rps")}),
    Sweep("collectives", {"scheme": "dr", "topology": SERVERS}),
    Sweep("collectives", {"engine": "graph", "scheme": "dr", "topology": SERVERS}),
    Sweep("collectives", {"topology": TRACED, **TRACE}),
    Sweep("collectives", {"scheme": "dr", "topology": "dcell:n=4,k=1", **TRACE}),
    Sweep("collectives", LINUX),
    Sweep("collectives", {"engine": "kernel", **LINUX}),
)
ROW_FIELDS: Mapping[str, tuple[type, ...]] = {
    "version": (int,),
    "by": (str,),
    "wall_s": (float, int),
    "row": (dict,),
}
ROW_CELLS: Mapping[str, tuple[type, ...]] = {"run": (str,), "seed": (int,), "engine": (str,)}
SCALARS = (int, float, str, bool, type(None))
OF_A_ROW = ("run", "wall_s", "dirty")  # provenance that rows do not share
SOURCE = "weft rows"  # key of the rows' hash in a PNG file


class PublishedSet(Store):
    """The published set in the folder `root`, read as a store of results."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._entries: dict[str, list[Entry]] = {}

    def experiments(self) -> list[str]:
        return sorted(path.name.partition(".")[0] for path in self._files())

    def states(self, experiment: str) -> dict[str, str]:
        return {row["run"]: "done" for row, _ in self._entries_of(experiment)}

    def selected(self, experiment: Experiment, where: Mapping[str, str]) -> list[Entry]:
        """Return the (row, provenance) pairs with the parameters and engine of `where`."""
        texts = dict(where)
        engine = texts.pop("engine", "")
        values = experiment.values(texts)
        return [
            (row, about)
            for row, about in self.table(experiment)
            if all(row[key] in values[key] for key in values) and engine in ("", row["engine"])
        ]

    def refuse_empty(self) -> None:
        """Raise ValueError if the folder has no results."""
        if not self.experiments():
            raise ValueError(
                f"no published results in {self.root}: they come with weft's source code, not with "
                f"a wheel; run weft in a checkout, or name their folder by --published DIR"
            )

    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(path.stat().st_size for path in self._files())

    def publish(
        self,
        experiment: Experiment,
        runs: Sequence[Run],
        entries: Iterable[Entry],
    ) -> Path:
        """Merge `entries` into the file of `experiment`, and drop rows of other runs than `runs`.

        Raises:
            ValueError: an entry is of a work tree with changes, or failed fidelity.
        """
        self._entries.pop(experiment.name, None)  # another process may have published meanwhile
        lines = {row["run"]: (row, about) for row, about in self._entries_of(experiment.name)}
        for row, about in entries:
            refuse(experiment, row, about)
            before = lines.get(row["run"])
            if not before or before[0] != row:
                lines[row["run"]] = row, provenance_of(about)
        planned = {run.id for run in runs}
        planned_entries = [entry for run, entry in lines.items() if run in planned]
        return self._write(
            experiment, sorted(planned_entries, key=lambda entry: order(experiment, entry[0]))
        )

    def _write(self, experiment: Experiment, entries: Sequence[Entry]) -> Path:
        self.root.mkdir(parents=True, exist_ok=True)
        content = b"".join(line.encode() + b"\n" for line in text_lines(entries))
        suffix, other = SUFFIXES if len(content) <= MOST_BYTES else reversed(SUFFIXES)
        path = self.root / (experiment.name + suffix)
        write_whole(path, gzip.compress(content, mtime=0) if suffix == ".jsonl.gz" else content)
        (self.root / (experiment.name + other)).unlink(missing_ok=True)
        self._entries.pop(experiment.name, None)
        return path

    def _files(self) -> list[Path]:
        return [path for suffix in SUFFIXES for path in self.root.glob("*" + suffix)]

    def _entries_of(self, experiment: str) -> Iterator[Entry]:
        if experiment not in self._entries:
            self._entries[experiment] = list(self._parsed(experiment))
        yield from self._entries[experiment]

    def _parsed(self, experiment: str) -> Iterator[Entry]:
        names = find(experiment).sweep
        provenances: dict[str, dict[str, Any]] = {}
        for line in self._lines(experiment):
            if "row" not in line:
                provenances[line.pop("key")] = line
                continue
            row: Row = line["row"]
            parameters = {name: row[name] for name in names if name in row}
            run = {"id": row["run"], "version": line["version"], "parameters": parameters}
            about = provenances[line["by"]]
            yield row, {**about, "dirty": False, "wall_s": line["wall_s"], "run": run}

    def _lines(self, experiment: str) -> Iterator[dict[str, Any]]:
        """Yield the verified lines of a file; ValueError names the file and the line."""
        paths = [self.root / (experiment + suffix) for suffix in SUFFIXES]
        paths = [path for path in paths if path.exists()]
        if len(paths) > 1:
            raise ValueError(f"{paths[0]} and {paths[1].name}: both exist; remove the older one")
        for path in paths:
            keys: set[str] = set()
            runs: set[str] = set()
            for number, text in enumerate(text_of_file(path).splitlines(), 1):
                try:
                    line = verified(text, keys, runs)
                except ValueError as error:
                    raise ValueError(f"{path}:{number}: {error}; {RESTORE}") from None
                yield line


def text_of_file(path: Path) -> bytes:
    """Return the text of a file of the set; ValueError for a damaged archive or too long a text."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            text: bytes = file.read(MOST_TEXT_BYTES + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: no whole gzip archive ({error}); {RESTORE}") from None
    if len(text) > MOST_TEXT_BYTES:
        raise ValueError(f"{path}: its text is longer than {MOST_TEXT_BYTES} bytes; {RESTORE}")
    return text


def verified(text: bytes, keys: set[str], runs: set[str]) -> dict[str, Any]:
    """Return a line of the set; add its key to `keys`, or its run to `runs`.

    Raises:
        ValueError: it has not the schema, a key or a run stands twice, or its provenance is none
            of `keys`.
    """
    try:
        line = json.loads(text, parse_constant=_not_a_number)
    except (ValueError, RecursionError):
        raise ValueError("this is no line of JSON") from None
    if not isinstance(line, dict):
        raise ValueError("a line must be an object of JSON")
    if "row" not in line:
        _refuse_other(line, {"key": (str,), "commit": (str,)})
        return _once(line, "provenance", line["key"], keys)
    _refuse_other(line, ROW_FIELDS)
    row = line["row"]
    _refuse_other(row, ROW_CELLS)
    for name, value in row.items():
        if not all(isinstance(entry, SCALARS) for entry in _entries(value)):
            raise ValueError(f"{name} must be a number, a text, or a list of these")
    if line["by"] not in keys:
        raise ValueError(f"no line before has the provenance {line['by']!r}")
    return _once(line, "run", row["run"], runs)


def _not_a_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _entries(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _refuse_other(values: Mapping[str, Any], types: Mapping[str, tuple[type, ...]]) -> None:
    """Raise ValueError unless `values` has a value of its type for each name of `types`."""
    for name, allowed in types.items():
        if name not in values:
            raise ValueError(f"{name} is missing")
        if not isinstance(values[name], allowed) or isinstance(values[name], bool):
            words = " or ".join(kind.__name__ for kind in allowed)
            raise ValueError(f"{name} must be {words}, got {values[name]!r:.40}")


def _once(line: dict[str, Any], kind: str, name: str, names: set[str]) -> dict[str, Any]:
    """Add `name` to `names` and return `line`; ValueError if it is there."""
    if name in names:
        raise ValueError(f"the {kind} {name} stands twice")
    names.add(name)
    return line


def text_lines(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the lines of a file: provenances, then rows."""
    provenances: dict[str, dict[str, Any]] = {}
    keys = []
    for _, about in entries:
        shared = {name: value for name, value in about.items() if name not in OF_A_ROW}
        text = json.dumps(shared, ensure_ascii=False)
        keys.append(hashlib.sha256(text.encode()).hexdigest()[:8])
        provenances[keys[-1]] = shared
    for key in sorted(provenances):
        yield json.dumps({"key": key, **provenances[key]}, ensure_ascii=False)
    for (row, about), key in zip(entries, keys, strict=True):
        line = {
            "version": about["run"]["version"],
            "by": key,
            "wall_s": float(f"{about['wall_s']:.2g}"),
            "row": row,
        }
        yield json.dumps(line, ensure_ascii=False)


def provenance_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance of a stored row that is published: code and versions, no machine."""
    machine = about.get("inside", about)["machine"]
    kernel = {"kernel": machine["kernel"]} if about["run"]["engine"] == "kernel" else {}
    return {
        "commit": about["commit"],
        "architecture": machine["architecture"],
        **about["arithmetic"],
        **kernel,
        **{name: about[name] for name in OF_A_ROW},
    }


def refuse(experiment: Experiment, row: Row, about: Mapping[str, Any]) -> None:
    """Raise ValueError unless a stored row may be published."""
    title = f"{experiment.name}: run {row['run']}"
    advice = f"commit, then measure it again: weft reproduce {experiment.name} --fresh --publish"
    if not about.get("commit") or about.get("dirty"):
        raise ValueError(f"{title} was measured by code that no commit has; {advice}")
    if "arithmetic" not in about:
        raise ValueError(f"{title} was stored by an older weft; {advice}")
    if row.get("fidelity") == "FAIL":
        raise ValueError(f"{title} failed fidelity, so its row is not published")


def results_in(root: Path) -> Store:
    """Return the published set in `root` if it is one, else the store."""
    published = PublishedSet(root)
    return published if not (root / NAME).exists() and published.experiments() else Store(root)


@cache
def runs_of(experiment: str) -> Mapping[str, Run]:
    """Return the runs of `experiment` that the whole set has, by id.

    They are those of the claims, and of SWEEPS: of the experiment's own file, and of the papers.
    """
    names = [*(f"{paper}.claims" for paper in PAPERS), "collectives.equal_cost"]
    rooms = [import_module(f"weft.experiments.{name}") for name in names]
    rooms.append(module_of(experiment))
    every = (*SWEEPS, *(sweep for room in rooms for sweep in getattr(room, "SWEEPS", ())))
    sweeps = [sweep for sweep in every if sweep.experiment == experiment]
    if find(experiment).engines[0] == "graph":
        sweeps.append(Sweep(experiment))
    runs = [run for claim in all_claims().values() for run in claim.runs]
    runs = [run for run in runs if run.experiment == experiment]
    runs += [run for sweep in sweeps for run in sweep.runs()]
    return {run.id: run for run in runs}


@dataclass(frozen=True)
class PageFigure:
    """A figure of a page.

    where: values of parameters and engine that its rows have, as in `--set`.
    plot: draws the rows on an empty figure; None for the experiment's own figure.
    """

    name: str
    experiment: str
    where: Mapping[str, str] = field(default_factory=dict)
    plot: Callable[[Table, Figure], None] | None = None

    def entries(self, published: PublishedSet) -> list[Entry]:
        """Return the published (row, provenance) pairs that the figure shows."""
        return published.selected(find(self.experiment), self.where)

    def draw(self, published: PublishedSet, folder: Path) -> Path | None:
        """Draw the figure into `folder`; return its path, or None without rows."""
        entries = self.entries(published)
        if not entries:
            return None
        path = folder / f"{self.name}.png"
        plot = self.plot or find(self.experiment).plot
        figures.plot(find(self.experiment), entries, path, plot, {SOURCE: source(entries)})
        return path


def page_figures() -> Iterator[PageFigure]:
    """Yield the figures of all papers."""
    for module in (f"weft.experiments.{paper}.page_figures" for paper in PAPERS):
        if find_spec(module):
            yield from import_module(module).FIGURES


def source(entries: Sequence[Entry]) -> str:
    """Return a hash of the rows."""
    text = json.dumps([row for row, _ in entries], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
