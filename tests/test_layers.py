"""The order of folders and rooms, the size of functions, and names of types."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from weft.daemons.core import registry

ROOT = Path(__file__).parent.parent
CLOCK = {"monotonic", "monotonic_ns", "wall", "wall_ns", "sleep"}
ORDER = ["topologies", "daemons", "testbed", "experiments"]
PURE = ["topologies", "daemons"]
SYSTEM = {
    *(
        "asyncio",
        "concurrent",
        "ctypes",
        "fcntl",
        "glob",
        "io",
        "mininet",
        "mmap",
        "multiprocessing",
        "os",
        "pyroute2",
        "random",
    ),
    *(
        "sched",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "subprocess",
        "tempfile",
        "threading",
    ),
    "time",
}
IO = {"input", "open", "print", "read_bytes", "read_text", "write_bytes", "write_text"}
# mn reads this file, and it is nothing but Mininet's view of what is built elsewhere
ALLOWED = {"topologies/mininet_topo.py": {"mininet"}}
FILES = [
    path.relative_to(ROOT).as_posix()
    for name in ORDER
    for path in sorted((ROOT / name).rglob("*.py"))
]


def statements(tree: ast.AST) -> list[ast.AST]:
    """All statements of `tree`, wherever they stand; not what they are made of, which is most of
    it."""
    nodes: list[ast.AST] = []
    left = [tree]
    while left:
        node = left.pop()
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, None) or []
            left += (
                inner if isinstance(inner, list) else []
            )  # that of a lambda or an x if y else z has no statements
        nodes.append(node)
    return nodes


@cache
def parts(source: str) -> tuple[list[ast.Import | ast.ImportFrom], list[tuple[str, int]]]:
    """Return the imports of `source`, and its functions with their numbers of lines.

    Several tests ask, and parsing takes longest.
    """
    nodes = statements(ast.parse(source))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return imports, [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions]


def imported_packages(source: str) -> set[str]:
    """The packages that `source` imports anywhere in it."""
    packages = set()
    for node in parts(source)[0]:
        if isinstance(node, ast.Import):
            packages |= {top(alias.name) for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                "import by full name: a relative import hides which folder is meant"
            )
            names = (
                [f"weft.{alias.name}" for alias in node.names]
                if node.module == "weft"
                else [node.module or ""]
            )
            packages |= {top(name) for name in names}
    return packages


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
    of_folder = {
        path: imported_packages(text_of(path)) for path in FILES if path.startswith(f"{folder}/")
    }
    right = set(ORDER[ORDER.index(folder) + 1 :])
    assert {path: found & right for path, found in of_folder.items() if found & right} == {}
    if folder in PURE:
        system = {
            path: found & SYSTEM - ALLOWED.get(path, set()) for path, found in of_folder.items()
        }
        assert not any(system.values()), f"take time, randomness and packets as arguments: {system}"
        files = {path: io_calls(text_of(path)) for path in of_folder}
        assert not any(files.values()), f"ask grammar.service() for what does I/O: {files}"


def io_calls(source: str) -> set[str]:
    """The functions and methods of IO that `source` calls."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {getattr(call, "id", None) or getattr(call, "attr", "") for call in calls} & IO


@pytest.mark.parametrize(
    "source", ["def f(): open(p)", "with p.open() as f: 1", "Path(p).read_text()", "print(1)"]
)
def test_calls_that_do_io_are_seen(source):
    assert io_calls(source)
    assert not io_calls("from pathlib import Path\ndef f(open: Path): return PurePath(open).suffix")


# Files that may ask the system for the time, and why.
TIMEKEEPERS = {
    "testbed/linux/clock.py": "is the clock",
}


def test_the_clock_is_asked_for_the_time():
    sources = {path: text_of(path) for path in FILES if path not in TIMEKEEPERS}
    of_the_system = {
        path
        for path, source in sources.items()
        if imported_packages(source) & {"datetime", "sched", "time"}
    }
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
    } & CLOCK


def test_a_function_of_the_clock_that_would_be_kept_is_seen():
    assert kept_functions(
        "def f():\n    from weft.testbed.linux.clock import sleep, wait_until"
    ) == {"sleep"}


def test_imports_are_seen_wherever_they_stand():
    assert imported_packages(
        "import os.path\ndef f():\n    from weft.testbed.mininet.net import Net"
    ) == {
        "os",
        "testbed",
    }
    nested = "try:\n x\nexcept E:\n import a\nelse:\n import b\nfinally:\n import c\n"
    nested += (
        "match x:\n case 1:\n  import d\nfor x in y:\n import e\nelse:\n if x: import "
        "f\n else: import g\n"
    )
    assert imported_packages(nested) == set("abcdefg")


def test_statements_are_those_that_a_walk_finds():
    for path in FILES[::20]:
        tree = ast.parse(text_of(path))
        assert {*statements(tree)} >= {
            node for node in ast.walk(tree) if isinstance(node, ast.stmt)
        }


def module(path: str) -> str:
    """The name by which the file at `path` is imported."""
    return "weft." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def modules_imported(source: str, known: set[str]) -> set[str]:
    """Those of the modules `known` that `source` imports anywhere: late imports and those for types
    alone count."""
    modules = set()
    for node in parts(source)[0]:
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules |= names & known or {node.module or ""}
            modules |= {node.module or ""} if names - known else set()
    return modules & known


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
    assert (
        modules_imported(late, known)
        == modules_imported(for_types, known)
        == {"weft.daemons.core.wire"}
    )
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not cycle({"a": {"b", "c"}, "b": {"c"}})


def test_a_daemon_does_without_the_array_library():
    modules = [
        "weft.topologies",
        "weft.topologies.recursive.ccrdn",
        "weft.topologies.recursive.dcell",
        "weft.topologies.recursive.hypercubes",
        "weft.topologies.tiered.clos",
        "weft.topologies.core.family",
        "weft.topologies.core.link",
        *(
            f"weft.topologies.low_diameter.{name}"
            for name in ("cliques", "diameter_two", "random_graphs")
        ),
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


MOST_TOKENS = 250
# Functions that still have more.  Take one out when it has been split; put none in.
LONG_FUNCTIONS: set[str] = {
    "experiments/engines/graph.py:Graph.route",
}


@cache
def kernels() -> set[tuple[str, str]]:
    """Return the path and name of each function that is given to compiled(), or that such a
    function calls."""
    paths = {module(path): path for path in FILES}
    homes: dict[tuple[str, str], tuple[str, str]] = {}
    called: dict[tuple[str, str], set[str]] = defaultdict(set)
    left = []
    for path in FILES:
        tree = ast.parse(text_of(path))
        for node in parts(text_of(path))[0]:
            if isinstance(node, ast.ImportFrom) and node.module in paths:
                homes |= {
                    (path, alias.asname or alias.name): (paths[node.module], alias.name)
                    for alias in node.names
                }
        for top_level in tree.body:
            for node in ast.walk(top_level):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    called[path, getattr(top_level, "name", "")].add(node.func.id)
                    if (
                        node.func.id.startswith("compiled")
                        and node.args
                        and isinstance(node.args[0], ast.Name)
                    ):
                        left.append((path, node.args[0].id))
    compiled_functions = set()
    while left:
        path, name = left.pop()
        path, name = homes.get((path, name), (path, name))
        if (path, name) not in compiled_functions:
            compiled_functions.add((path, name))
            left += [(path, other) for other in called[path, name]]
    return compiled_functions


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function of a module and its name with those of what it stands in."""

    def walk(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ast.FunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield ".".join((*names, child.name)), child
            inner = (
                (*names, child.name) if hasattr(child, "body") and hasattr(child, "name") else names
            )
            yield from walk(child, inner)

    return walk(tree, ())


def long_functions(source: str, most: int = MOST_TOKENS) -> set[str]:
    """Return the functions of `source` with more than `most` tokens; docstrings and comments do not
    count."""
    if len(source) < most:
        return set()
    tree = ast.parse(source)
    layout = (
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.COMMENT,
        tokenize.ENDMARKER,
    )
    lines = [
        t.start[0]
        for t in tokenize.generate_tokens(io.StringIO(source).readline)
        if t.type not in layout
    ]
    long = set()
    for name, function in functions(tree):
        first, last = function.lineno, function.end_lineno or 0
        count = bisect_right(lines, last) - bisect_left(lines, first)
        count -= ast.get_docstring(function, clean=False) is not None
        if count > most:
            long.add(name)
    return long


def test_tokens_of_functions_are_counted():
    source = 'class A:\n    def f(self):\n        """One."""\n        # two\n        return 1\n'
    assert long_functions(source, 7) == {"A.f"}  # def f ( self ) : return 1
    assert long_functions(source, 8) == set()


def test_functions_are_short():
    long = {
        f"{path}:{name}"
        for path in FILES
        for name in long_functions(text_of(path))
        if (path, name) not in kernels()
    }
    assert long - LONG_FUNCTIONS == set(), f"split what has more than {MOST_TOKENS} tokens"
    assert LONG_FUNCTIONS - long == set(), "take out of LONG_FUNCTIONS what is short now"


# Rooms whose decisions rest on fields of a scheme's registration, not on its name.
NAMELESS = ("testbed/", "experiments/cli/", "experiments/engines/", "experiments/runner/")
# The compiled functions of the graph engine, by the schemes that they implement.
CATALOGUE = "experiments/engines/graph.py"


def literals(node: ast.AST) -> set[str]:
    """Return the strings in `node`: a literal, or a tuple, list, set or dictionary of them."""
    constants = (inner for inner in ast.walk(node) if isinstance(inner, ast.Constant))
    return {inner.value for inner in constants if isinstance(inner.value, str)}


def compared_names(source: str, names: set[str]) -> set[str]:
    """Return those of `names` by which `source` decides: it compares a value with them, or with a
    constant of the module that lists them, or looks a value up in a dictionary that has them."""
    tree = ast.parse(source)
    constants = {
        target.id: literals(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    decisions: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                decisions += [node.left, *node.comparators]
            case ast.MatchValue():
                decisions.append(node.value)
            case ast.Subscript(value=ast.Dict() as table):
                decisions.append(table)
            case ast.Call(func=ast.Attribute(attr="get", value=ast.Dict() as table)):
                decisions.append(table)
            case ast.Call(func=ast.Attribute(attr="startswith"), args=[prefix]):
                decisions.append(prefix)
    words: set[str] = set()
    for node in decisions:
        words |= constants.get(node.id, set()) if isinstance(node, ast.Name) else literals(node)
    return words & names


@pytest.fixture(scope="module")
def scheme_names() -> set[str]:
    return set(registry.schemes())


def test_no_engine_asks_for_a_scheme_by_its_name(scheme_names):
    by_name = {
        path: compared_names(text_of(path), scheme_names)
        for path in FILES
        if path.startswith(NAMELESS) and path != CATALOGUE
    }
    assert {path: names for path, names in by_name.items() if names} == {}, (
        "declare it as a field of Scheme (daemons/core/scheme.py)"
    )
    rules = {
        path for path in FILES if path.startswith("testbed/") and "ChoiceRule" in text_of(path)
    }
    assert rules == set(), "declare it as a field of SelectionRule or Selection"


@pytest.mark.parametrize(
    "source",
    [
        'scheme.name == "dr"',
        'name in ("dr", "other")',
        'OWN = ("dr",)\ndef f(name): return name not in OWN',
        'match name:\n case "dr": pass',
        '{"dr": 1}.get(name)',
        '{"dr": 1}[name]',
        'name.startswith("dr")',
    ],
)
def test_names_of_schemes_are_seen(source):
    assert compared_names(source, {"dr"}) == {"dr"}
    assert compared_names('axis.over("dr")\nSTYLES = {"dr": 1}', {"dr"}) == set()


def public_types(source: str) -> list[str]:
    """Return the classes and type aliases that `source` defines for others."""
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name)]


def test_public_types_have_names_of_their_own():
    modules = defaultdict(set)
    for path in FILES:
        for name in public_types(text_of(path)):
            modules[name].add(path)
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


def test_public_types_are_found():
    source = (
        "class A1b: ...\nPair = tuple[int, int]\nMOST = 3\nclass _Own: ...\nRow: TypeAlias = int\n"
    )
    assert public_types(source) == ["A1b", "Pair", "Row"]
