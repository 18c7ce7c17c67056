import json
import pickle
import re
import subprocess
import sys
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from weft.daemons.core import registry
from weft.daemons.core.node_config import routers
from weft.daemons.core.registry import configure, rule, scheme, schemes
from weft.daemons.core.registry import machine as make_machine
from weft.daemons.core.scheme import SelectionRule
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.daemons.routing.candidates import candidates
from weft.experiments.cli.cli import main
from weft.topologies import build
from weft.topologies.core.grammar import unparse

ROOT = Path(__file__).parents[3]
NETWORKS = ["dcell:n=4,k=1", "beta-dcell:n=3,k=1", "ficonn:n=4,k=1", "fattree:k=4", "star:n=4"]


def runs_on(name, topology):
    try:
        schemes()[name].check(topology, schemes()[name].options({}))
    except ValueError:
        return False
    return schemes()[name].machine is not None


def refusal(topology, spec):
    try:
        configure(topology, spec)
    except ValueError as error:
        return str(error)
    return None


def test_a_scheme_is_named_with_its_options():
    registration, options = scheme("dr:dead=5")
    assert (registration.name, options) == ("dr", {"hello_ms": 30, "dead": 5})
    assert scheme("bfs")[1] == {"hello_ms": 30, "dead": 3, "hold_ms": 2, "lifetime_s": 300}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "dfrr",
            f"no scheme 'dfrr', did you mean dfr? (there are: {', '.join(sorted(schemes()))}; "
            f"packages of {sys.prefix} are searched)",
        ),
        (
            "dr:helo_ms=3",
            "scheme dr: no parameter 'helo_ms', did you mean hello_ms? (there are: dead, hello_ms)",
        ),
        ("dr:hello_ms=0", "scheme dr: hello_ms must be at least 1, got 0"),
        ("dr:dead=x", "scheme dr: dead must be an integer, got 'x'"),
        ("dr:hello_ms=100000", "scheme dr: hello_ms must be at most 10000, got 100000"),
        ("", "'': expected name:key=value,... such as dcell:n=4,k=1 or dr:hello_ms=50"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(spec, message):
    assert refusal(build("dcell:n=4,k=1"), spec) == message


@pytest.mark.parametrize(
    ("spec", "name", "message"),
    [
        (
            "fattree:k=4",
            "dr",
            "scheme dr runs on server-centric networks; fattree:k=4 is a switch fabric, take ecmp",
        ),
        (
            "star:n=4",
            "dr",
            "scheme dr runs on server-centric networks; star:n=4 is a switch fabric, take ecmp",
        ),
        (
            "dcell:n=4,k=1",
            "ecmp",
            (
                "scheme ecmp runs on switch fabrics; dcell:n=4,k=1 is a server-centric network, "
                "take dr"
            ),
        ),
    ],
)
def test_a_scheme_is_refused_where_it_does_not_run(spec, name, message):
    assert refusal(build(spec), name) == message


def plain(value):
    """Return a plain value as one that JSON has a form for."""
    return list(value) if isinstance(value, range) else bytes.hex(value)


@pytest.mark.parametrize("spec", NETWORKS)
@pytest.mark.parametrize("name", schemes())
def test_every_router_has_a_configuration_of_plain_numbers_and_a_state_machine(spec, name):
    topology = build(spec)
    if not runs_on(name, topology):
        return
    configs = configure(topology, name)
    assert list(configs) == list(routers(topology))
    for node, config in configs.items():
        assert config.node == node
        assert 0 < config.phase_fraction <= 1
        json.dumps(asdict(config), default=plain)  # a number of an array library is not plain
        assert pickle.loads(pickle.dumps(config)) == config
        machine = make_machine(config, 1)
        assert machine.start(0.0) != []
        assert machine.deadline <= 0.030
        assert {"neighbours", "routes", "routes_lost", "hellos_sent"} <= set(
            json.loads(json.dumps(machine.status()))
        )


@pytest.mark.parametrize("spec", NETWORKS)
def test_hellos_are_promised_by_both_sides_and_by_no_host(spec):
    topology = build(spec)
    configs = configure(topology, "bfs")
    pairs = [
        (node, other)
        for node, view in configs.items()
        for _, nodes in view.ports
        for other in nodes
    ]
    assert sorted(pairs) == sorted((other, node) for node, other in pairs)
    wired = {
        (node, other)
        for node in routers(topology)
        for nodes in topology.neighbours(node).values()
        for other in nodes
        if other in routers(topology)
    }
    assert set(pairs) == wired


def test_ticks_are_spread_over_the_interval():
    phases = sorted(
        view.phase_fraction for view in configure(build("dcell:n=4,k=1"), "dr").values()
    )
    assert max(b - a for a, b in pairwise([0.0, *phases, 1.0])) < 2 / len(phases)


@pytest.mark.parametrize("spec", NETWORKS)
def test_every_candidate_hop_is_a_neighbour(spec):
    topology = build(spec)
    for node in routers(topology):
        near = topology.neighbours(node)
        assert candidates(topology, node)
        assert all(
            hop.node in near[hop.port] for _, hops in candidates(topology, node) for hop in hops
        )


def test_a_daemon_needs_no_array_library_no_graph_and_no_other_scheme():
    dcell, fabric = build("dcell:n=3,k=1"), build("fattree:k=4")
    for topology, name, room in [
        (dcell, "dr", "dr"),
        (dcell, "dfr", "dfr"),
        (fabric, "ttc", "shortest_paths"),
    ]:
        pickled = pickle.dumps(configure(topology, name)[min(routers(topology))])
        program = (
            "import pickle, sys\n"
            "from weft.daemons.core.registry import machine\n"
            f"machine(pickle.loads({pickled!r}), 1).start(0.0)\n"
            "heavy = {'numpy', 'networkx', 'weft.topologies.core.topology', 'importlib.metadata', "
            "'pkgutil'}\n"
            "rooms = {name.split('.')[2] for name in sys.modules if name.endswith('.scheme') and "
            "'core' not in name}\n"
            "print(heavy & set(sys.modules), rooms)\n"
        )
        done = subprocess.run(
            [sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True
        )
        assert done.stdout == f"set() {{{room!r}}}\n", done.stderr


def test_every_scheme_says_what_it_is():
    for name, registration in schemes().items():
        assert registration.name == name
        assert registration.summary
        assert registration.source
        for parameter in registration.parameters.values():
            assert parameter.meaning
            assert parameter.default is not None
            assert not parameter.words or (parameter.least, parameter.most) == (
                0,
                len(parameter.words) - 1,
            )


PROXY = {"pr-gp0", "pr-gpe", "pr-gpi"}


@pytest.mark.parametrize(
    ("promise", "names"),
    [
        ("loop_free", {"dr"} | PROXY),
        ("fixed_path", {"dr", "dfr", "bfs"} | PROXY),
        ("handles_degraded_links", {"lbsp"}),
    ],
)
def test_a_scheme_promises_no_more_than_its_paper(promise, names):
    kept = {name for name, registration in schemes().items() if getattr(registration, promise)}
    assert kept == names


def test_what_a_carrier_must_have_is_said_before_and_with_each_node():
    for topology in map(build, NETWORKS):
        for name, registration in schemes().items():
            if runs_on(name, topology):
                needs = {
                    type(need)
                    for config in configure(topology, name).values()
                    for need in config.needs
                }
                assert needs == registration.needs


def test_what_daemons_do_not_read_is_refused_where_there_are_none():
    assert rule("ttc:delta=3,tie=redirect") == SelectionRule(
        ChoiceRule.TTC, {"delta": 3, "tie": 1, "load": 0, "ecn": 0}, compares_queues=True
    )
    for spec, said in [
        ("ttc:hello_ms=3", "ttc: no parameter 'hello_ms'"),
        ("bfs", "no scheme 'bfs'"),
    ]:
        with pytest.raises(ValueError, match=re.escape(said)):
            rule(spec)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("SCHEMES = (", "SyntaxError: "),
        ("", "AttributeError: "),
        ("raise KeyError('lost')", "KeyError: 'lost'"),
        ("import itertools\nSCHEMES = itertools.count()", "TypeError: 0 is no Scheme"),
    ],
)
def test_a_package_that_fails_is_named_and_no_other(text, reason, tmp_path, monkeypatch, capsys):
    name = f"weft_broken_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_entry_points", lambda: [name])
    forget()
    try:
        assert registry.of_packages() == {}
        assert registry.find("dr").name == "dr"  # what does not ask for its schemes goes on
        for ask in (registry.find, registry.data_plane):
            with pytest.raises(
                ValueError, match=f"no scheme 'mine'.*; schemes of {name}: {reason}"
            ):
                ask("mine")
        assert main(["list", "schemes"]) == 0
        assert f"weft: left out: schemes of {name}: {reason}" in capsys.readouterr().err
    finally:
        monkeypatch.undo()
        forget()


def forget() -> None:
    """Let packages be looked up anew."""
    registry.schemes.cache_clear()
    registry._packages.cache_clear()


@pytest.mark.parametrize("name", sorted(registry.schemes()))
def test_whoever_writes_all_defaults_gets_what_he_gets_without_them(name):
    """So a default is a value that may be written, and is written as it is read."""
    scheme, options = registry.scheme(name)
    written = {
        key: parameter.written(options[key])
        for key, parameter in scheme.parameters.items()
        if key in options
    }
    assert registry.scheme(unparse(name, written)) == (scheme, options)
