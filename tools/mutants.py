"""Plant faults in a room, one at a time, and report those that the room's tests let pass.

    python tools/mutants.py ROOM [--tests PATH ...] [--sample N] [--seed S]

ROOM is a folder or a file of the product.  Its tests are the same path in tests/, unless others are
named.  Each fault is a change of one operator, comparison, condition, constant or returned value in
the syntax tree.  Faults are planted in a copy of the checkout.  A fault survives if all tests pass;
some survivors are equivalent to the original, such as another initial value that is never read.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("topologies", "daemons", "testbed", "experiments")
LEFT_OUT = (".git", ".venv", "*_cache", ".hypothesis", "_build", "build", "dist", "*.egg-info")
MARKS = "not kernel and not uml and not virtual and not slow"
LEAST_LIMIT_S = 20.0
WORDS = 90  # characters of a fault in the report
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class Refusal(Exception):
    """The room cannot be judged; the message says why."""


class Mutant(NamedTuple):
    """A fault: bytes `begin` to `end` of the file `path` become `text`; `path` is from the root."""

    path: Path
    line: int
    begin: int
    end: int
    text: str
    change: str


class Settings(NamedTuple):
    """sample: number of faults that are drawn, 0 for all; seed: of the draw; marks: of tests."""

    sample: int = 0
    seed: int = 0
    marks: str = MARKS


def replacement(node: ast.AST) -> ast.AST | None:
    """Return what is planted in place of `node`; None for a node of another kind."""
    match node:
        case ast.BinOp(left, operator, right):
            return ast.BinOp(left, OPERATORS.get(type(operator), ast.Sub)(), right)
        case ast.AugAssign(target, operator, value):
            return ast.AugAssign(target, OPERATORS.get(type(operator), ast.Sub)(), value)
        case ast.Compare(left, [operator, *others], values):
            return ast.Compare(left, [COMPARISONS[type(operator)](), *others], values)
        case ast.BoolOp(operator, values):
            return ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            return operand
        case ast.Constant(bool(value)):
            return ast.Constant(not value)
        case ast.Constant(int(value)):
            return ast.Constant(value + 1)
        case ast.Constant(float(value)):
            return ast.Constant(2 * value or 1.0)
        case ast.Return(ast.expr() as value) if ast.unparse(value) != "None":
            return ast.Return(ast.Constant(None))
    return None


def conditions(node: ast.AST) -> list[ast.expr]:
    """Return the conditions of branches and of filters that `node` has of its own."""
    match node:
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            return [test]
        case ast.comprehension():
            return node.ifs
    return []


def untested(node: ast.AST) -> list[ast.AST]:
    """Return the parts of `node` that no test can be asked to judge.

    These are annotations, types, texts of errors and of assertions, decorators, and what only type
    checkers or a start as a program execute.  Positions within an f-string are unknown before
    Python 3.12.
    """
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [*node.decorator_list, *filter(None, [getattr(node, "returns", None)])]
        case ast.arg():
            return [node.annotation] if node.annotation else []
        case ast.AnnAssign():
            return [node.annotation]
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            return list(ast.iter_child_nodes(node))
        case ast.If(test) if "TYPE_CHECKING" in ast.unparse(test) or "__main__" in ast.unparse(
            test
        ):
            return list(ast.iter_child_nodes(node))
        case ast.Call(ast.Name("isinstance" | "cast" | "TypeVar")):
            return list(node.args)
        case ast.BinOp(_, ast.BitOr(), right) if is_type(right):
            return list(ast.iter_child_nodes(node))
    return []


def is_type(node: ast.expr) -> bool:
    """Return whether a union ends with this expression: None, or a name of a class."""
    if isinstance(node, ast.Subscript):
        return is_type(node.value)
    if isinstance(node, ast.Constant):
        return node.value is None
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    is_class = name[:1].isupper() and name != name.upper()
    return is_class or name in ("int", "float", "str", "bytes", "bool")


def faults(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield nodes of a module, and what is planted in place of each."""
    skipped = set(map(id, untested(tree)))
    planted = replacement(tree)
    if planted and not (isinstance(tree, ast.BinOp) and skipped):
        yield tree, planted
    for test in conditions(tree):
        if id(test) not in skipped and not isinstance(test, ast.Compare | ast.UnaryOp):
            yield test, ast.UnaryOp(ast.Not(), test)
    for child in ast.iter_child_nodes(tree):
        if id(child) not in skipped:
            yield from faults(child)


def mutants(path: Path, root: Path) -> list[Mutant]:
    """Return all faults that can be planted in a file, in its order."""
    source = (root / path).read_bytes()
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    all_mutants = []
    for node, planted in faults(ast.parse(source)):
        before, after = ast.unparse(node), ast.unparse(planted)
        begin = begins[node.lineno - 1] + node.col_offset
        end = begins[node.end_lineno - 1] + node.end_col_offset
        text = after if isinstance(node, ast.stmt) else f"({after})"
        change = f"{before[:WORDS]}  ->  {after[:WORDS]}"
        all_mutants.append(Mutant(path, node.lineno, begin, end, text, change))
    return sorted(all_mutants, key=lambda mutant: (mutant.begin, mutant.end, mutant.text))


def plant(mutant: Mutant, source: bytes) -> bytes:
    """Return a file with a fault."""
    return source[: mutant.begin] + mutant.text.encode() + source[mutant.end :]


class Copy:
    """A copy of the checkout at `root`, and the tests that run in it.

    The links of weft/ are relative, so that they lead into the copy.
    """

    def __init__(self, root: Path, tests: Sequence[Path], marks: str) -> None:
        self.root = root
        self.limit_s: float | None = None
        words = ["-x", "-q", "--hypothesis-seed=0", "-m", marks, *map(str, tests)]
        self._tests = [sys.executable, "-m", "pytest", *words]
        # The copy goes before the installed checkout, also in programs that tests start.
        self._environment = os.environ | {"PYTHONPATH": str(root)}

    def run(self, words: Sequence[str]) -> tuple[int | None, str]:
        """Return status and output of a command; None for the status after the time limit."""
        process = subprocess.Popen(
            words,
            cwd=self.root,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""
        return process.returncode, output

    def check(self, room: Sequence[Path]) -> None:
        """Raise Refusal unless tests pass here, and fail where the room is no Python."""
        module = "weft." + room[0].with_suffix("").as_posix().replace("/", ".")
        find = f"import importlib.util; print(importlib.util.find_spec({module!r}).origin)"
        status, origin = self.run([sys.executable, "-c", find])
        if status or not Path(origin.strip()).resolve().is_relative_to(self.root.resolve()):
            raise Refusal(f"{module} would be imported from elsewhere: {origin.strip()}")
        begin_s = time.monotonic()
        status, output = self.run(self._tests)
        if status:
            raise Refusal(f"tests fail without a fault, or there are none:\n{output}")
        self.limit_s = LEAST_LIMIT_S + 3 * (time.monotonic() - begin_s)
        # Bytecode is valid for a source of the same second and length, so no more of it is kept.
        self._environment["PYTHONDONTWRITEBYTECODE"] = "1"
        sources = {path: (self.root / path).read_bytes() for path in room}
        for path in room:
            self._write(path, b"(\n")
        if self.run(self._tests)[0] == 0:
            raise Refusal("tests pass where the room is no Python: they do not import it")
        for path, source in sources.items():
            self._write(path, source)

    def survives(self, mutant: Mutant) -> bool:
        """Return whether all tests pass with a fault; they fail if they take too long."""
        source = (self.root / mutant.path).read_bytes()
        self._write(mutant.path, plant(mutant, source))
        try:
            return self.run(self._tests)[0] == 0
        finally:
            self._write(mutant.path, source)

    def _write(self, path: Path, source: bytes) -> None:
        """Write a file of the product, whose old bytecode goes."""
        for bytecode in (self.root / path).parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            bytecode.unlink()
        (self.root / path).write_bytes(source)


def files(room: Path, root: Path) -> list[Path]:
    """Return the Python files of a room, from the root; Refusal if there are none."""
    if not room.parts or room.parts[0] not in PRODUCT:
        raise Refusal(f"{room}: a room is a folder or a file in {', '.join(PRODUCT)}")
    paths = [root / room] if room.suffix else sorted((root / room).glob("*.py"))
    present = [path.relative_to(root) for path in paths if path.is_file()]
    if not present:
        raise Refusal(f"{room}: no Python files")
    return present


def folder_of_tests(room: Path, root: Path) -> list[Path]:
    """Return the tests of a room: the folder of the same name, or of the folder of a file."""
    folder = Path("tests") / (room.parent if room.suffix else room)
    if not (root / folder).is_dir():
        raise Refusal(f"{folder}: no such tests; name those of {room} by --tests")
    return [folder]


def judge(copied: Path, room: Path, tests: Sequence[Path], settings: Settings) -> float:
    """Print each survivor, and at the end how many were caught; return the share caught.

    Args:
        copied: root of the checkout that is copied.
        room: from there.
        tests: from there; none for those of the room.
        settings: of the draw, and of the tests.
    """
    paths = files(room, copied)
    planted = [mutant for path in paths for mutant in mutants(path, copied)]
    if settings.sample and settings.sample < len(planted):
        planted = random.Random(settings.seed).sample(planted, settings.sample)
    survivors: Counter[Path] = Counter()
    with tempfile.TemporaryDirectory(prefix="weft-mutants-") as folder:
        root = Path(folder) / "weft"
        shutil.copytree(copied, root, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        copy = Copy(root, tests or folder_of_tests(room, copied), settings.marks)
        copy.check(paths)
        for mutant in sorted(planted):
            if copy.survives(mutant):
                survivors[mutant.path] += 1
                print(f"{mutant.path}:{mutant.line}: {mutant.change}", flush=True)
    caught = len(planted) - survivors.total()
    print(f"{room}: {caught} of {len(planted)} faults caught, {caught / len(planted):.0%}")
    return caught / len(planted)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("room", type=Path, help="a folder or a file of the product")
    parser.add_argument("--tests", type=Path, nargs="+", default=[], help="in place of tests/ROOM")
    parser.add_argument("--sample", type=int, default=0, help="number of faults, drawn; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--marks", default=MARKS, help="of the tests to run, as for pytest -m")
    parser.add_argument("--least", type=float, default=0.0, help="share to catch, else status 1")
    options = parser.parse_args()
    room = options.room.resolve()
    try:
        room = room.relative_to(ROOT) if room.is_relative_to(ROOT) else options.room
        settings = Settings(options.sample, options.seed, options.marks)
        share = judge(ROOT, room, options.tests, settings)
    except Refusal as refusal:
        print(f"mutants: {refusal}", file=sys.stderr)
        sys.exit(2)
    sys.exit(share < options.least)


if __name__ == "__main__":
    main()
