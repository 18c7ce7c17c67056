"""Rules of other packages: their C, compiled for BPF and for simulated switches.

A scheme of own_rule() (daemons/load_balancing/scheme.py) names a file that defines choose() of
own_rule.h.  Compiled code is kept in the folder of the kernel for virtual time (virtual_kernel.py),
named by a hash of the preprocessed source and of the compiler's arguments.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from weft.daemons.core.scheme import SelectionRule
from weft.testbed.linux.libbpf import DIRECTORY, BpfError
from weft.testbed.runs import private_files
from weft.testbed.uml import virtual_kernel
from weft.topologies.core.grammar import quoted

MOST_PARAMETERS = 8
COMMON = ("ecn", "load")  # parameters of every rule, which are not in struct parameters
UNIT = DIRECTORY / "own_rule.c"
STRICT = (
    "-Wno-all",
    "-Werror=implicit-function-declaration",
    "-Werror=implicit-int",
    "-Werror=int-conversion",
    "-Werror=return-type",
)
NATIVE = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,defs")
COMPILERS = ("gcc", "cc", "clang")  # the first that is installed, unless $CC names one
MACHINES = {"x86_64": "x86", "aarch64": "arm64"}  # as libbpf's headers name processors
PLACE = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<why>.*)$", re.M
)
UNDEFINED = re.compile(r"undefined reference to .(\w+)")
TOO_LARGE = "BPF program is too large."  # the verifier's words after a million instructions
PLACE_IN_LOG = re.compile(r"@ ([^:]+):\d+$")
STATE = re.compile(r"(cur|old) state:|[;\d]")  # of the verifier's log: no reason

LoadCall = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
DrawCall = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)


class Arrival(ctypes.Structure):
    """A packet at a switch: struct arrival."""

    _fields_ = (("flow", ctypes.c_uint32), ("host", ctypes.c_uint32), ("memory", ctypes.c_uint32))


class RuleCall(ctypes.Structure):
    """struct call of own_rule.c."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("load_of", LoadCall),
        ("draw", DrawCall),
        ("n", ctypes.c_uint32),
    )


class OwnChoice(NamedTuple):
    """A chosen candidate, and the word that the switch keeps from then on."""

    candidate: int
    memory: int


def own_names(rule: SelectionRule) -> list[str]:
    """Return the names of a package's parameters, in order.

    Raises:
        ValueError: there are more than MOST_PARAMETERS.
    """
    names = sorted(set(rule.parameters) - set(COMMON)) if rule.code else []
    if len(names) > MOST_PARAMETERS:
        raise ValueError(f"{rule.code}: a rule has at most {MOST_PARAMETERS} parameters of its own")
    return names


def parameters(rule: SelectionRule) -> list[int]:
    """Return the values of a package's parameters, in order of name, filled up with 0."""
    values = [rule[name] for name in own_names(rule)]
    return values + [0] * (MOST_PARAMETERS - len(values))


def common_parameters(rule: SelectionRule) -> Mapping[str, int]:
    """Return the parameters that struct switch_ has by name."""
    own = set(own_names(rule))
    return {name: value for name, value in rule.parameters.items() if name not in own}


def checksum(rule: SelectionRule) -> int:
    """Return a checksum of a package's rule, never 0; 0 for a rule of select.h."""
    if not rule.code:
        return 0
    return zlib.crc32(" ".join(own_names(rule)).encode(), zlib.crc32(_source(rule.code))) or 1


def _source(code: Path) -> bytes:
    try:
        return code.read_bytes()
    except OSError as error:
        raise ValueError(f"{code}: {error.strerror}") from None


def program(rule: SelectionRule, variant: str) -> Path:
    """Return the data plane's program with the rule in it, compiled by clang.

    Args:
        rule: of another package.
        variant: name of the program, as in plane_program.READERS.

    Raises:
        ValueError: clang is missing, or refuses the code; one line with file and line.
    """
    if not shutil.which("clang"):
        raise ValueError(
            f"{rule.code}: a rule of your own needs clang on Linux (apt-get install clang "
            f"libbpf-dev); weft simulate needs a C compiler only"
        )
    machine = platform.machine()
    options = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-fdebug-compilation-dir=.", "-c"]
    options += [f"-D__TARGET_ARCH_{MACHINES.get(machine, machine)}"]
    options += [f"-I/usr/include/{machine}-linux-gnu"]
    unit = DIRECTORY / variant.replace(".o", ".c")
    return _compiled(rule, ["clang", *options, "-Werror=undefined-internal"], unit, ".bpf.o")


@cache
def _library(path: Path) -> ctypes.CDLL:
    """Return a compiled rule, which stays loaded."""
    return ctypes.CDLL(str(path))


def _own_rule(rule: SelectionRule) -> Any:
    """Return own_rule() of own_rule.c with the rule in it.

    Raises:
        ValueError: there is no C compiler, or it refuses the code; one line with file and line.
    """
    named = shlex.split(os.environ.get("CC", ""))
    compiler = named or [name for name in COMPILERS if shutil.which(name)][:1]
    if not compiler:
        raise ValueError(f"{rule.code}: no C compiler: install gcc or clang")
    return _library(_compiled(rule, [*compiler, *NATIVE], UNIT, ".so")).own_rule


def function(rule: SelectionRule) -> int | None:
    """Return the address of the rule's function for simulated switches; errors of _own_rule()."""
    return ctypes.cast(_own_rule(rule), ctypes.c_void_p).value


def choose(
    rule: SelectionRule,
    loads: Sequence[int],
    draws: Iterator[int],
    *,
    flow: int = 0,
    host: int = 0,
    memory: int = 0,
) -> OwnChoice:
    """Return what the rule chooses for one packet, to compare it with a function in Python.

    Args:
        rule: of another package, as registry.rule() returns it.
        loads: queue of each candidate; there are at least two.
        draws: numbers below 2^32 that draw() returns in turn.
        flow: hash of the flow.
        host: number of the destination.
        memory: the word that the switch keeps.

    Raises:
        ValueError: as of _own_rule().
    """
    call = RuleCall(
        None,
        LoadCall(lambda _, candidate: loads[candidate]),
        DrawCall(lambda _: next(draws)),
        len(loads),
    )
    arrival = Arrival(flow, host, memory)
    values = (ctypes.c_uint32 * MOST_PARAMETERS)(*parameters(rule))
    chosen = _own_rule(rule)(ctypes.byref(call), ctypes.byref(arrival), values)
    return OwnChoice(int(chosen), int(arrival.memory))


def is_at_fault(rule: SelectionRule, error: BpfError) -> bool:
    """Return whether the verifier refused a package's rule: no variant would help."""
    places = [place[1] for line in error.log if (place := PLACE_IN_LOG.search(line))]
    is_too_large = any(line.startswith(TOO_LARGE) for line in error.log)
    return rule.code is not None and (is_too_large or places[-1:] == [rule.code.name])


def explain(rule: SelectionRule, error: BpfError) -> None:
    """Raise ValueError with the verifier's reason if it refused a program with a package's rule."""
    lines = error.log
    end = next((index for index, line in enumerate(lines) if line.startswith("processed ")), 0)
    reasons = [line for line in lines[:end] if not STATE.match(line)]
    if not rule.code or not reasons:
        return
    places = re.findall(rf"@ {re.escape(rule.code.name)}:(\d+)", " ".join(lines[:end]))
    place = f"{rule.code}:{places[-1]}" if places else f"{rule.code}"
    why = reasons[-1]
    if why.startswith(TOO_LARGE):
        why += "; a loop needs a bound that is small"
    raise ValueError(f"{place}: the kernel's verifier refuses choose(): {why}") from error


def _compiled(rule: SelectionRule, command: Sequence[str], unit: Path, suffix: str) -> Path:
    """Return `unit` with the rule in it, compiled unless it is in the cache."""
    assert rule.code
    text = _source(rule.code)
    return _kept(rule.code, text, tuple(own_names(rule)), tuple(command), unit, suffix)


@cache
def _kept(
    code: Path, text: bytes, names: Sequence[str], command: Sequence[str], unit: Path, suffix: str
) -> Path:
    """Return the compiled `unit`; a process preprocesses each `text` once."""
    members = " ".join(f"__u32 {name};" for name in names)
    defines = [f"-DOWN_RULE={_c_string(code)}", f"-DOWN_PARAMETERS={members}"]
    how = [*command, *STRICT, *defines, str(unit)]
    preprocessed = _run(code, [*how, "-E"])
    digest = hashlib.sha256(preprocessed + "\0".join(how).encode()).hexdigest()[:16]
    folder = virtual_kernel.writable_folder()
    path = folder / f"{code.stem}-{unit.name.partition('.')[0]}-{digest}{suffix}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as draft:
            output = Path(draft, path.name)
            _run(code, [*how, "-o", str(output)])
            output.replace(path)
    return private_files.trusted_file(path)


def _c_string(path: Path) -> str:
    """Return a path as a string in C; ValueError for one that has no such form."""
    if any(character in '"\\\n' for character in str(path)):
        raise ValueError(f"{quoted(str(path))}: the path of a rule has no quotes and backslashes")
    return f'"{path}"'


def _run(code: Path, command: Sequence[str]) -> bytes:
    """Run a compiler, and return its output; ValueError names the place of the first error."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
    except OSError as error:
        raise ValueError(f"{code}: {command[0]}: {error.strerror}") from None
    if done.returncode == 0:
        return done.stdout
    messages = done.stderr.decode(errors="replace")
    places = list(PLACE.finditer(messages))
    for place in places:
        if place["file"] == str(code):
            raise ValueError(f"{code}:{place['line']}: {place['why']}")
    if undefined := UNDEFINED.search(messages):
        raise ValueError(f"{code}: {undefined[1]}() is not defined")
    first = places[0]["why"] if places else next(iter(messages.splitlines()), "it failed")
    raise ValueError(f"{code}: {command[0]}: {first}")
