"""The experiment: engines agree, nothing is faster than its bounds, bad input gets one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments.collectives.training_step import (
    GRADIENTS_NS,
    GROUP_BYTES,
    GROUPS,
    LOSS_NS,
    UPDATE_NS,
    training_step,
)
from weft.experiments.collectives.collectives import TRACES
from weft.experiments.runner.definition import Row, find
from weft.experiments.runner.rows import row_of
from weft.testbed.schedules import goal

ROOT = Path(__file__).resolve().parents[3]
TRACE = ROOT / "tests" / "testbed" / "schedules" / "training_step.goal"
EXPERIMENT = find("collectives")
SMALL = {
    "topology": "star:n=8",
    "ranks": "8",
    "scheme": "rps",
    "algorithm": "ring",
    "size_bytes": "1048576",
    "transport": "tcp:control=dctcp",
}
AGREEMENT = 0.05  # of completion times on graph and fabric without congestion


def row(engine: str, **texts: str) -> Row:
    """Return the row of a small cell with some other values."""
    (run,) = EXPERIMENT.plan({**SMALL, **texts}, seeds=1, engines=[engine]).runs
    return row_of(run, EXPERIMENT.measure(run))


def number(row: Row, key: str) -> float:
    return float(str(row[key]))


@pytest.mark.parametrize("transport", ["ndp", "tcp:control=dctcp"])
@pytest.mark.parametrize("size_bytes", ["8", "65536", "2097152"])
@pytest.mark.parametrize(
    ("operation", "algorithm"),
    [
        ("all-reduce", "ring"),
        ("all-reduce", "rabenseifner"),
        ("all-to-all", "pairwise"),
        ("broadcast", "binomial"),
        ("barrier", "dissemination"),
    ],
)
def test_graph_and_fabric_agree(
    operation: str, algorithm: str, size_bytes: str, transport: str
) -> None:
    texts = {"operation": operation, "algorithm": algorithm, "transport": transport}
    graph, fabric = (row(engine, size_bytes=size_bytes, **texts) for engine in ("graph", "packet"))
    expected_ms = pytest.approx(number(graph, "completion_ms"), rel=AGREEMENT)
    assert number(fabric, "completion_ms") == expected_ms


@pytest.mark.parametrize("engine", ["graph", "packet"])
@pytest.mark.parametrize("topology", ["slimfly:q=3,p=2", "fattree:k=4", "complete:n=4,p=4"])
@pytest.mark.parametrize(
    "operation", ["all-reduce ring", "all-to-all linear", "halo grid", "broadcast scatter-ring"]
)
def test_nothing_is_faster_than_its_bounds(engine: str, topology: str, operation: str) -> None:
    name, algorithm = operation.split()
    texts = {"topology": topology, "operation": name, "algorithm": algorithm, "ranks": "12"}
    measured = row(engine, transport="ndp", size_bytes="262144", **texts)
    bound_ms = max(number(measured, "alpha_beta_ms"), number(measured, "cut_ms"))
    assert number(measured, "completion_ms") > 0.9999 * bound_ms
    assert 0 < number(measured, "fullest_link_fraction") < 1.0001


def test_the_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """With n ranks, an all-reduce counts 2 (n - 1) / n times the size over the time."""
    measured = row("packet")
    expected_bps = 2 * 7 / 8 * 8 * 1_048_576 / (number(measured, "completion_ms") / 1000)
    assert number(measured, "bus_bps") == pytest.approx(expected_bps)
    assert row("graph", operation="barrier", algorithm="dissemination")["bus_bps"] is None


@pytest.mark.parametrize("topology", ["dcell:n=3,k=1", "ficonn:n=4,k=1"])
def test_servers_forward_fluids_and_packets_over_the_same_links(topology: str) -> None:
    """The busiest link carries the same messages; TCP's answers add a few bytes."""
    texts = {"topology": topology, "scheme": "dr", "placement": "random"}
    graph, packet = (row(engine, **texts) for engine in ("graph", "packet"))
    loads = [
        number(measured, "fullest_link_fraction") * number(measured, "completion_ms")
        for measured in (graph, packet)
    ]
    assert loads[1] == pytest.approx(loads[0], rel=0.02)
    assert number(packet, "completion_ms") == pytest.approx(number(graph, "completion_ms"), rel=0.2)
    assert number(graph, "completion_ms") >= number(graph, "alpha_beta_ms")
    assert not row("packet", **texts, transport="ndp")["unfinished"]


def test_a_trace_computes_and_sends_at_a_time() -> None:
    """Layers are computed for 1.15 ms; the ring begins after 0.7 ms and takes three steps."""
    texts = {"trace": str(TRACE), "ranks": "4", "topology": "star:n=4"}
    graph, fabric = (row(engine, **texts) for engine in ("graph", "packet"))
    frames_bits = 8 * (250_000 + 28 * 66)
    steps_ms = 3 * frames_bits / 10e6
    latency_ms = 3 * (2e-3 + 8 * 9000 / 10e6)
    assert number(graph, "completion_ms") == pytest.approx(0.75 + steps_ms + latency_ms, rel=0.01)
    expected_ms = pytest.approx(number(graph, "completion_ms"), rel=AGREEMENT)
    assert number(fabric, "completion_ms") == expected_ms
    slow = row("graph", rate_mbps="1000", **texts)
    assert number(slow, "completion_ms") > 0.75 + 10 * steps_ms


def test_the_recorded_training_step_is_that_of_its_writer() -> None:
    """Reductions take longer than gradients, so they follow each other after the first group."""
    assert goal.read(TRACES["training-step"]) == goal.parsed(goal.written(training_step()))
    texts = {"topology": "star:n=16", "ranks": "16", "algorithm": "rabenseifner"}
    step = row("graph", trace="training-step", **texts)
    reduction = row("graph", size_bytes=str(GROUP_BYTES), **texts)
    reducing_ms = GROUPS * number(reduction, "completion_ms")
    expected_ms = (LOSS_NS + GRADIENTS_NS + UPDATE_NS) / 1e6 + reducing_ms
    assert number(step, "completion_ms") == pytest.approx(expected_ms, rel=0.01)


@pytest.mark.parametrize(
    ("engine", "texts", "reason"),
    [
        ("graph", {"ranks": "9"}, "9 ranks, but star:n=8 has 8 hosts with 1 each"),
        (
            "graph",
            {"operation": "broadcast"},
            "no algorithm of broadcast 'ring' (there are: binomial, scatter-ring)",
        ),
        (
            "graph",
            {"operation": "all-gather", "algorithm": "recursive-doubling", "ranks": "6"},
            "recursive-doubling takes a power of two of ranks, got 6; take ring",
        ),
        ("graph", {"size_bytes": "7"}, "blocks without a byte in 7 bytes; take 8 or more"),
        ("graph", {"scheme": "dr"}, "scheme dr runs on server-centric networks"),
        ("graph", {"scheme": "drill"}, "the engine graph has no model of drill; take ecmp"),
        (
            "packet",
            {"topology": "planes:k=2,of=star:n=8"},
            "a host has one link, and those of planes",
        ),
        ("graph", {"scheme": "fatpaths"}, "has no model of fatpaths; take trigger=none"),
        (
            "packet",
            {"topology": "clos:n=4,r=4,m=4", "scheme": "dar"},
            "no model of dar; take another scheme of switches, such as ecmp or drill",
        ),
        (
            "packet",
            {"transport": "ndp:choice=reps"},
            "choice=reps chooses among layers, and rps has none; take scheme=fatpaths",
        ),
        ("packet", {"size_bytes": "67108865"}, "takes at most 67108864 bytes"),
        ("kernel", {"transport": "ndp", "delay_us": "0"}, "transport ndp needs --engine packet"),
        ("graph", {"trace": str(TRACE)}, "has 4 ranks; set ranks=4"),
        ("graph", {"trace": "/no/such.goal"}, "/no/such.goal: No such file or directory"),
    ],
)
def test_bad_input_gets_one_line(engine: str, texts: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        EXPERIMENT.plan({**SMALL, **texts}, seeds=1, engines=[engine])
    assert "\n" not in str(caught.value)


def test_a_bad_trace_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.goal"
    path.write_text("num_ranks 2\nrank 0 {\nsend 8b to 5\n}\nrank 1 {\n}\n")
    with pytest.raises(ValueError, match=r"bad\.goal:3: no rank 5"):
        EXPERIMENT.plan({**SMALL, "trace": str(path), "ranks": "2"}, engines=["graph"])


@pytest.mark.virtual
@pytest.mark.slow
def test_linux_and_fabric_agree(tmp_path: Path) -> None:
    """Within 10 %: windows of Linux grow while the first iteration runs, and acknowledge late."""
    texts = {**SMALL, "topology": "star:n=4", "ranks": "4", "frame_bytes": "1514"}
    texts |= {"rate_mbps": "1000", "scheme": "ecmp"}
    cell = [f"{key}={value}" for key, value in texts.items()]
    command = [sys.executable, "-m", "weft.experiments.cli.cli", "run", "collectives", "--json"]
    command += ["--clock", "virtual", "--seeds", "1", "--results", str(tmp_path), "--set", *cell]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (kernel,) = json.loads(done.stdout)
    assert kernel["fidelity"] == "PASS"
    expected_ms = pytest.approx(number(row("packet", **texts), "completion_ms"), rel=0.1)
    assert kernel["completion_ms"] == expected_ms
