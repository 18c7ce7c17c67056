"""Rules of other packages: compiled, refused with their place, and chosen by on Linux."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.testbed.data_plane.test_data_plane import SLOW, Fabric, packet
from weft.daemons.core import registry
from weft.daemons.load_balancing.scheme import own_rule as scheme_of
from weft.experiments.cli.cli import main
from weft.testbed.data_plane import own_rule
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import libbpf
from weft.testbed.network.network import RunningNetwork
from weft.testbed.packets.simulation import simulate
from weft.testbed.plan.network_plan import mac
from weft.topologies import build
from weft.topologies.core.family import IntegerParameter

HEAD = """static __always_inline __u32 choose(void *context, __u32 n, struct arrival *arrival,
				const struct parameters *parameters)
{
"""
# What load_of(), draw(), the packet, the word of the switch and both parameters do shows.
ALL = """	__u32 other = another(arrival->host % n, draw(context), n);

	arrival->memory += parameters->step;
	if (load_of(context, other) > parameters->limit)
		return arrival->memory + arrival->flow;
	return other;
"""
BY_HOST = (
    "	return arrival->host + parameters->step + (load_of(context, 0) > parameters->limit);\n"
)
IN_TURN = "	return arrival->memory++;\n"
TOO_LONG = (
    "	__u32 own = 0;\n	while (load_of(context, own))\n"
    "		own += draw(context);\n	return own;\n"
)
ENDLESS = "	while (draw(context))\n		load_of(context, 0);\n	return 0;\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Register a scheme `own` whose choose() has this body, as an installed package does."""
    code = tmp_path / "mine.c"
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "compiled"))
    count = IntegerParameter("a number", 0, 1000, default=0)
    scheme = scheme_of("own", "a rule", "nowhere", code, {"step": count, "limit": count})
    known = {**registry.schemes(), "own": scheme}
    monkeypatch.setattr(registry, "schemes", lambda: known)

    def write(body: str) -> Path:
        code.write_text(f"{HEAD}{body}}}\n")
        return code

    return write


def twin(
    loads: list[int], draw: int, flow: int, host: int, memory: int, step: int, limit: int
) -> tuple[int, int]:
    """Return what ALL chooses, and the word that it leaves."""
    n = len(loads)
    other = (host % n + 1 + (draw * (n - 1) >> 32)) % n
    memory = (memory + step) % 2**32
    return ((memory + flow) % 2**32 % n if loads[other] > limit else other), memory


def test_c_chooses_as_python(own: Callable[[str], Path]) -> None:
    own(ALL)
    generator = random.Random(3)
    for _ in range(500):
        draw, flow, memory = (generator.randrange(1 << 32) for _ in range(3))
        host, step, limit = (generator.randrange(10) for _ in range(3))
        loads = [generator.randrange(12) for _ in range(generator.randrange(2, 65))]
        rule = registry.rule(f"own:step={step},limit={limit}")
        chosen = own_rule.choose(rule, loads, iter([draw]), flow=flow, host=host, memory=memory)
        assert chosen == twin(loads, draw, flow, host, memory, step, limit)


def test_code_is_compiled_once_for_each_content(own: Callable[[str], Path], tmp_path: Path) -> None:
    def compiled() -> set[Path]:
        own_rule._kept.cache_clear()
        own_rule.choose(registry.rule("own"), [0, 0], iter([]))
        return set((tmp_path / "compiled").iterdir())

    own(IN_TURN)
    first = compiled()
    times = {path.stat().st_mtime_ns for path in first}
    assert {path.stat().st_mtime_ns for path in compiled()} == times
    own(BY_HOST)
    second = compiled()
    assert (len(first), len(second)) == (1, 2)


@pytest.mark.parametrize(
    ("body", "line", "reason"),
    [
        ("	return 1\n", 4, "expected ';'"),
        ("	return 1 +\n\n		shorter(n);\n", 6, "shorter"),
        ("	return arrival->queue;\n", 4, "queue"),
        ("	return parameters->stop;\n", 4, "stop"),
        ("#include <nowhere.h>\n	return 0;\n", 4, "nowhere.h"),
    ],
)
def test_wrong_c_is_refused_in_one_line_with_its_place(
    own: Callable[[str], Path],
    body: str,
    line: int,
    reason: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    code = own(body)
    flows = tmp_path / "flows.csv"
    flows.write_text("start_s,src,dst,bytes\n0,0,15,1000\n")
    assert main(["simulate", "fattree:k=4", "--routing", "own", "--flows", str(flows)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"weft: {code}:{line}: ")
    assert reason in said
    with pytest.raises(ValueError, match=rf"mine\.c:{line}: .*{reason}"):
        own_rule.program(registry.rule("own"), "select.bpf.o")


def test_a_missing_file_and_a_missing_function_are_refused(own: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match=r"mine\.c: No such file"):
        own_rule.function(registry.rule("own"))
    own("return 0;").write_text("static const int nothing;\n")
    with pytest.raises(ValueError, match=r"mine\.c: .*choose"):
        own_rule.function(registry.rule("own"))
    with pytest.raises(ValueError, match=r"mine\.c: .*choose"):
        own_rule.program(registry.rule("own"), "select.bpf.o")


def test_simulated_switches_need_no_clang(
    own: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own(IN_TURN)
    which = own_rule.shutil.which
    monkeypatch.setattr(
        own_rule.shutil, "which", lambda name: None if name == "clang" else which(name)
    )
    assert simulate(build("fattree:k=4"), "own", [(0, 15, 10_000)]).unfinished == 0
    with pytest.raises(ValueError, match="needs clang on Linux"):
        own_rule.program(registry.rule("own"), "select.bpf.o")


def test_simulated_switches_choose_by_it(own: Callable[[str], Path]) -> None:
    """Packets of one message leave its leaf by both uplinks in turn, or all by one."""

    def uplinks(spec: str) -> list[int]:
        result = simulate(build("fattree:k=4"), spec, [(0, 15, 1_000_000)], transport="plain")
        ports = result.ports
        leaf = (ports["node"] == 16) & (ports["frames"] > 1)
        return sorted(int(count) for count in ports["frames"][leaf])

    own(IN_TURN)
    first, second = uplinks("own")
    assert second - first in (0, 1)
    own(BY_HOST)
    assert len(uplinks("own")) == 1


@pytest.fixture
def fabric() -> Iterator[RunningNetwork]:
    network = RunningNetwork.create(build("fattree:k=4"), SLOW, scheme="static")
    yield network
    network.down()


@pytest.mark.kernel
@pytest.mark.parametrize("spec", ["own", "own:step=1"])
def test_a_packet_leaves_by_the_port_of_simulated_switches(
    own: Callable[[str], Path], fabric: RunningNetwork, spec: str
) -> None:
    own(BY_HOST)
    topology = fabric.topology
    address, differing = topology.naming.address, 0
    with DataPlane.load(fabric, spec, seed=1) as plane:
        plane.attach()
        sender = Fabric(fabric, plane, plane._program or 0)
        for dst in range(4, 16):
            used = simulate(topology, spec, [(0, dst, 1000)], transport="ndp").ports
            of_data = (used["bytes"] > 1000) & (used["node"] >= topology.servers)
            for switch, port in zip(used["node"][of_data], used["port"][of_data], strict=True):
                before = plane.counters()
                sender.put_in(packet(dst=address(dst), to=mac(switch, 0)), 0, int(switch))
                now = plane.counters()
                changed = [
                    key
                    for key in now
                    if key[0] == switch and now[key].packets > before[key].packets
                ]
                assert changed == [(switch, port)], (switch, dst)
                differing += 1
    assert differing > 40


@pytest.mark.kernel
def test_the_word_of_a_switch_lasts_and_a_changed_rule_needs_a_new_run(
    own: Callable[[str], Path], fabric: RunningNetwork
) -> None:
    own(IN_TURN)
    topology = fabric.topology
    with DataPlane.load(fabric, "own") as plane:
        plane.attach()
        sender = Fabric(fabric, plane, plane._program or 0)
        before = plane.counters()
        for _ in range(10):
            sender.put_in(packet(dst=topology.naming.address(15), to=mac(16, 0)), 0, 16)
        now = plane.counters()
        sent = [now[key].packets - before[key].packets for key in now if key[0] == 16]
        assert sorted(sent) == [0, 0, 5, 5]
        plane.set_scheme("drill")
        plane.set_scheme("own")
        with DataPlane.open(fabric) as opened:
            opened.set_scheme("own:limit=3")
            own(BY_HOST)
            with pytest.raises(ValueError, match="own: the program of this run has another rule"):
                opened.set_scheme("own")


@pytest.mark.kernel
def test_the_verifier_s_reason_is_said(own: Callable[[str], Path], fabric: RunningNetwork) -> None:
    code = own(ENDLESS)
    with pytest.raises(ValueError, match="the kernel's verifier refuses choose") as refused:
        DataPlane.load(fabric, "own")
    assert str(refused.value).startswith(f"{code}:4: the kernel's")
    assert "infinite loop" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.kernel
def test_a_loop_without_a_bound_is_refused_with_its_place_by_one_program(
    own: Callable[[str], Path], fabric: RunningNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program without queues would pass, and a whole log takes libbpf a minute."""
    tried: list[str] = []
    compiled = own_rule.program
    monkeypatch.setattr(
        own_rule, "program", lambda rule, name: tried.append(name) or compiled(rule, name)
    )
    code = own(TOO_LONG)
    with pytest.raises(
        ValueError, match=r"program is too large.*; a loop needs a bound"
    ) as refused:
        DataPlane.load(fabric, "own")
    assert str(refused.value).startswith(f"{code}:")
    assert len(tried) == 1
    assert isinstance(refused.value.__cause__, libbpf.BpfError)
    assert sum(map(len, refused.value.__cause__.log)) < 2 * libbpf.LOG_BYTES


@pytest.mark.kernel
def test_a_signal_while_the_verifier_works_is_no_answer_of_the_kernel(
    own: Callable[[str], Path], fabric: RunningNetwork
) -> None:
    class TerminationError(Exception):
        pass

    def stop(*_: object) -> None:
        raise TerminationError

    own(TOO_LONG)
    own_rule.program(registry.rule("own"), "select.bpf.o")
    before = signal.signal(signal.SIGTERM, stop)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    try:
        timer.start()
        with pytest.raises(TerminationError):
            DataPlane.load(fabric, "own")
    finally:
        timer.join()
        signal.signal(signal.SIGTERM, before)
