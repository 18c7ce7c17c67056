"""The order of folders and rooms, which keeps protocols apart from the system they run on, and the size of files."""

import ast
import dataclasses
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from weft.testbed.linux.clock import Clock

ROOT = Path(__file__).parent.parent
ORDER = ["topologies", "daemons", "testbed", "experiments"]
PURE = ["topologies", "daemons"]
SYSTEM = {
    *("asyncio", "concurrent", "ctypes", "fcntl", "mininet", "mmap", "multiprocessing", "os", "pyroute2", "random"),
    *("sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "subprocess", "tempfile", "threading"),
    "time",
}
# mn reads this file, and it is nothing but Mininet's view of what is built elsewhere
ALLOWED = {"topologies/mininet_topo.py": {"mininet"}}
FILES = [path.relative_to(ROOT).as_posix() for name in ORDER for path in sorted((ROOT / name).rglob("*.py"))]
MOST_FILE_LINES, MOST_FUNCTION_LINES = 300, 50  # of code in a file, docstrings and comments aside; in a function, all
# Files and functions that are still longer.  Take one out when it has been split; put none in.
LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()


def statements(tree: ast.AST) -> list[ast.AST]:
    """All statements of `tree`, wherever they stand; not what they are made of, which is most of it."""
    found: list[ast.AST] = []
    left = [tree]
    while left:
        node = left.pop()
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, None) or []
            left += inner if isinstance(inner, list) else []  # that of a lambda or an x if y else z has no statements
        found.append(node)
    return found


@cache
def parts(source: str) -> tuple[list[ast.Import | ast.ImportFrom], list[tuple[str, int]]]:
    """What is looked at here of `source`, wherever it stands: its imports; its functions, and how many lines each has.
    Several tests ask, and parsing takes longest."""
    nodes = statements(ast.parse(source))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return imports, [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions]


def imported(source: str) -> set[str]:
    """The packages that `source` imports anywhere in it."""
    found = set()
    for node in parts(source)[0]:
        if isinstance(node, ast.Import):
            found |= {top(alias.name) for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "import by full name: a relative import hides which folder is meant"
            names = [f"weft.{alias.name}" for alias in node.names] if node.module == "weft" else [node.module or ""]
            found |= {top(name) for name in names}
    return found


def top(module: str) -> str:
    """The package that has `module`; of weft's own, which of its folders."""
    first, _, rest = module.partition(".")
    assert first not in ORDER, f"{first} is weft.{first}: a user may have a folder of that name"
    return rest.partition(".")[0] if first == "weft" else first


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text()


@pytest.mark.parametrize("folder", ORDER)
def test_a_file_imports_only_from_its_left(folder):
    of_folder = {path: imported(text_of(path)) for path in FILES if path.startswith(f"{folder}/")}
    right = set(ORDER[ORDER.index(folder) + 1 :])
    assert {path: found & right for path, found in of_folder.items() if found & right} == {}
    if folder in PURE:
        system = {path: found & SYSTEM - ALLOWED.get(path, set()) for path, found in of_folder.items()}
        assert not any(system.values()), f"take time, randomness and packets as arguments: {system}"


# Files that may ask the system for the time, and why.
TIMEKEEPERS = {
    "testbed/linux/clock.py": "is the clock",
}


def test_the_clock_is_asked_for_the_time():
    sources = {path: text_of(path) for path in FILES if path not in TIMEKEEPERS}
    of_the_system = {path for path, source in sources.items() if imported(source) & {"datetime", "sched", "time"}}
    assert of_the_system == set(), "ask testbed.linux.clock"
    kept = {path for path, source in sources.items() if kept_functions(source)}
    assert kept == set(), "write clock.monotonic(): a function imported by name is never replaced"


def kept_functions(source: str) -> set[str]:
    """The functions of a clock that `source` imports by name."""
    return {
        alias.name
        for node in parts(source)[0]
        if isinstance(node, ast.ImportFrom) and node.module == "weft.testbed.linux.clock"
        for alias in node.names
    } & {field.name for field in dataclasses.fields(Clock)}


def test_a_function_of_the_clock_that_would_be_kept_is_seen():
    assert kept_functions("def f():\n    from weft.testbed.linux.clock import sleep, wait_until") == {"sleep"}


def test_imports_are_seen_wherever_they_stand():
    assert imported("import os.path\ndef f():\n    from weft.testbed.mininet.net import Net") == {"os", "testbed"}
    nested = "try:\n x\nexcept E:\n import a\nelse:\n import b\nfinally:\n import c\n"
    nested += "match x:\n case 1:\n  import d\nfor x in y:\n import e\nelse:\n if x: import f\n else: import g\n"
    assert imported(nested) == set("abcdefg")


def test_statements_are_those_that_a_walk_finds():
    for path in FILES[::20]:
        tree = ast.parse(text_of(path))
        assert {*statements(tree)} >= {node for node in ast.walk(tree) if isinstance(node, ast.stmt)}


def module(path: str) -> str:
    """The name by which the file at `path` is imported."""
    return "weft." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def modules_imported(source: str, known: set[str]) -> set[str]:
    """Those of the modules `known` that `source` imports anywhere: late imports and those for types alone count."""
    found = set()
    for node in parts(source)[0]:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & known or {node.module or ""}
            found |= {node.module or ""} if names - known else set()
    return found & known


@cache
def imports() -> dict[str, set[str]]:
    """By module, what it imports of this project."""
    known = {module(path) for path in FILES}
    return {module(path): modules_imported(text_of(path), known) - {module(path)} for path in FILES}


def room(name: str) -> str:
    """The room of a module; files that are in none belong to their folder."""
    _, *parts = name.split(".")
    return ".".join(parts[:2]) if (ROOT / "/".join(parts[:2])).is_dir() else parts[0]


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """A circle of imports, the first module twice; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other_in_a_circle():
    assert cycle(imports()) == []


def test_no_rooms_import_each_other_in_a_circle():
    rooms = defaultdict(set)
    for name, others in imports().items():
        rooms[room(name)] |= {room(other) for other in others} - {room(name)}
    assert cycle(rooms) == []


def test_circles_are_found_however_the_import_is_written():
    known = {"weft.daemons.core.wire", "weft.daemons.core"}
    late = "def f():\n    from weft.daemons.core.wire import encode"
    for_types = "if TYPE_CHECKING:\n    from weft.daemons.core import wire"
    assert modules_imported(late, known) == modules_imported(for_types, known) == {"weft.daemons.core.wire"}
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not cycle({"a": {"b", "c"}, "b": {"c"}})


def code_lines(source: str) -> int:
    """Lines of `source` with code on them: no docstring, no comment, not empty."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            lines |= set(range(token.start[0], token.end[0] + 1)) if token.string.strip() else set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def long_functions(source: str) -> set[str]:
    """The functions of `source` that have more lines than they may."""
    return {name for name, lines in parts(source)[1] if lines > MOST_FUNCTION_LINES}


def test_only_lines_of_code_count():
    assert code_lines('"""What\nit is."""\n\n# why\nx = 1\ny = """a\nb"""\n') == 3


def test_files_and_functions_are_short():
    sources = {path: text_of(path) for path in FILES}
    # Which lines are code is not asked where there are not that many.
    perhaps = {path: source for path, source in sources.items() if source.count("\n") > MOST_FILE_LINES}
    assert {path for path, source in perhaps.items() if code_lines(source) > MOST_FILE_LINES} == LONG_FILES
    assert {f"{path}:{name}" for path in sources for name in long_functions(sources[path])} == LONG_FUNCTIONS


def test_a_daemon_does_without_the_array_library():
    modules = [
        "weft.topologies",
        "weft.topologies.recursive.ccrdn",
        "weft.topologies.recursive.dcell",
        "weft.topologies.recursive.ficonn",
        "weft.topologies.tiered.fattree",
    ]
    modules += [
        "weft.topologies.tiered.clos",
        "weft.topologies.tiered.star",
        *(f"weft.topologies.low_diameter.{name}" for name in ("complete", "slimfly", "dragonfly", "hyperx")),
        *(f"weft.topologies.low_diameter.{name}" for name in ("jellyfish", "xpander")),
        "weft.topologies.core.family",
        "weft.topologies.core.link",
    ]
    modules += [
        "weft.daemons.core.contract",
        "weft.daemons.routing.dr",
        "weft.daemons.routing.shortest",
        "weft.daemons.routing.updown",
    ]
    program = f"import sys, {', '.join(modules)}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_a_daemon_needs_no_package_but_ours():
    """Without site-packages a daemon begins sooner, and smaller."""
    command = [sys.executable, "-S", "-c", "import weft.testbed.node_daemon.supervisor"]
    subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=True)
