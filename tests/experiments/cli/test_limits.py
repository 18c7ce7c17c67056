"""Networks beyond what a command carries: one line, at once, before they are wired."""

import time
import tracemalloc
from types import SimpleNamespace

import pytest

from weft.experiments.cli.cli import main
from weft.testbed.machine import machine
from weft.topologies import build, families
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.topology import limited

MOST_S, MOST_BYTES = 2.0, 50e6  # of a process that has imported what it needs
FREE_BYTES = 1e9
KERNEL = "a run on the kernel has interface indexes for 14,328 links"
COMMANDS = {  # words, a limit of sizes, and what the line says
    "topo": (["SPEC"], lambda size: size.links > FREE_BYTES / 600, "GB are free"),
    "route": (
        ["SPEC", "--routing", "bfs", "h0", "h1"],
        lambda size: size.links > FREE_BYTES / 600,
        "GB are free",
    ),
    "simulate": (
        ["SPEC"],
        lambda size: size.nodes > 120_000 or size.links > FREE_BYTES / 1500,
        "a simulation has at most 120,000 nodes|GB are free",
    ),
    "up": (
        ["SPEC", "--dry-run"],
        lambda size: size.links > 14_328 or size.switches > 4096,
        KERNEL,
    ),
    "conform": (
        ["bfs", "SPEC"],
        lambda size: size.servers > 1_000,
        f"conform compares all pairs|{KERNEL}",
    ),
    "run": (
        ["one_failure", "--set", "topology=SPEC", "--dry-run"],
        lambda size: size.nodes > 2_000,
        f"one_failure: at most 2000 nodes|{KERNEL}",
    ),
}
GROWING = {"hyperx": "s", "jellyfish": "p"}  # instead of the first parameter


class Known(Exception):
    """The size of a network is known, before it is wired."""


def size_of(spec):
    def note(size):
        raise Known(size)

    with limited(note), pytest.raises(Known) as known:
        build(spec)
    return known.value.args[0]


def smallest_beyond(family, is_beyond):
    """Return a network beyond the limit, by steps of 2 % of one parameter from the example."""
    _, texts = parse(families()[family].example)
    key = GROWING.get(family, next(iter(texts)))
    derived = families()[family].derived({key: 3}) if len(families()[family].parameters) > 1 else {}
    kept = {name: text for name, text in texts.items() if name not in derived}
    value = int(kept[key])
    while True:
        value += 1 + value // 50
        spec = unparse(family, {**kept, key: value})
        try:
            size = size_of(spec)
        except ValueError:  # no power of a prime, or odd
            assert value < 1 << 24
            continue
        if is_beyond(size):
            return spec


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("family", families())
def test_the_smallest_network_beyond_a_limit_is_refused_at_once(
    family, command, monkeypatch, capsys, tmp_path
):
    monkeypatch.setenv("WEFT_RESULTS", str(tmp_path))
    free = SimpleNamespace(available=FREE_BYTES)
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: free)
    words, is_beyond, says = COMMANDS[command]
    spec = smallest_beyond(family, is_beyond)
    tracemalloc.start()
    began_s = time.process_time()
    try:
        status = main([command, *(word.replace("SPEC", spec) for word in words)])
    finally:
        took_s, (_, peak_bytes) = time.process_time() - began_s, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    (line,) = capsys.readouterr().err.splitlines()
    assert status == 2
    assert any(part in line for part in says.split("|")), line
    assert took_s < MOST_S
    assert peak_bytes < MOST_BYTES


@pytest.mark.parametrize("family", families())
def test_the_largest_value_of_each_parameter_is_refused_in_one_line(family, capsys):
    name, texts = parse(families()[family].example)
    sizes = {key: p for key, p in families()[family].parameters.items() if p.most > 1 << 16}
    for key in sizes.keys() & texts.keys() - {"seed"}:
        spec = unparse(name, {**texts, key: sizes[key].most})
        assert main(["topo", spec]) == 2, spec
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"weft: {name}: ")


def test_a_limit_holds_for_a_file_and_for_a_family_that_does_not_ask(tmp_path):
    def refuse(size):
        raise ValueError(f"{size}!")

    path = tmp_path / "graph.edges"
    path.write_text("a b\nb c\n")
    with limited(refuse), pytest.raises(ValueError, match=r"^file:.*: 3 servers, .*5 links!$"):
        build(f"file:{path}")
    build(f"file:{path}")
