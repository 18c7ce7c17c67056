"""Networks from the command line, as a person uses them."""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.experiments.cli import cli, cluster_commands
from weft.testbed.linux import clock, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.network import clean
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs import run
from weft.topologies import build

ROOT = Path(__file__).parents[3]
WEFT = [sys.executable, "-m", "weft.experiments.cli.cli"]


def weft(*argv: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*WEFT, *argv], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def name():
    """A name that no other run has; whatever is left of it afterwards is removed."""
    name = f"t-{os.urandom(3).hex()}"
    yield name
    for record in run.runs():
        if record.id == name:
            clean.remove(record)


def test_a_command_on_several_machines_names_them(monkeypatch, capsys):
    """Each has a clock of its own, and `weft fail` prints it."""
    parts = [SimpleNamespace(machine="a"), SimpleNamespace(machine="b")]
    spread_run = SimpleNamespace(
        parts=parts,
        having=lambda link: [0, 1] if link == "cut" else [1],
        carry_out=lambda numbers, words: [f"{words[0]} {number} s\n" for number in numbers],
    )
    monkeypatch.setattr(cluster_commands, "spread", lambda name: spread_run)
    for link in ("cut", "local"):
        arguments = argparse.Namespace(run="demo", elements=("what",), what=link)
        assert cluster_commands.forwarded(arguments, ["fail"])
    assert capsys.readouterr().out == "a: fail 0 s\nb: fail 1 s\nfail 1 s\n"


@pytest.mark.kernel
def test_daemons_run_without_real_time_priority_where_the_kernel_refuses_it(name):
    """As a kernel with CONFIG_RT_GROUP_SCHED does in a control group without a share of it."""
    up = ("up", "dcell:n=3,k=1", "--routing", "dr", "--rate", "20mbit", "--detach", name)
    subprocess.run(
        ["setpriv", "--bounding-set", "-sys_nice", *WEFT, *up],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    daemon = json.loads(weft("status", "--run", name, "h0", "--json").stdout)
    assert (daemon["real_time"], daemon["converged"]) == (False, True)
    assert "no real-time priority: other processes" in weft("log", "--run", name, "h0").stdout


@pytest.mark.kernel
def test_a_detached_network_from_up_to_down(name):
    output = weft(
        "up", "dcell:n=3,k=1", "--routing", "dr", "--rate", "20mbit", "--detach", name
    ).stderr
    assert f"{name} is up: dcell:n=3,k=1, 12 servers, 4 switches, 18 links" in output
    assert name in [
        row["run"] for row in json.loads(weft("ps", "--json").stdout) if row["state"] == "up"
    ]
    of_run = ["--run", name]
    assert (
        ", 0% packet loss"
        in weft("exec", *of_run, "h0", "--", "ping", "-c1", "-W2", "10.0.3.2").stdout
    )
    assert (
        ", 0% packet loss"
        in weft("exec", *of_run, "s0.0", "--", "ping", "-c1", "-W2", "10.0.3.2").stdout
    )

    began_s = clock.monotonic()
    words = weft("fail", *of_run, "h0-h3").stdout.split()
    assert words[:3] == ["h0-h3", "failed", "at"]
    assert began_s < float(words[3]) < clock.monotonic()
    wait_until("h0 and h3 noticed", lambda: missing(of_run) == {"h0": 1, "h3": 1})
    assert status(of_run)["failed"] == ["h0-h3"]
    weft("restore", *of_run, "h0-h3")
    wait_until("all converged", lambda: all(row["converged"] for row in status(of_run)["nodes"]))

    weft("fail", *of_run, "h0")
    around = {"h0": 3, "h1": 1, "h2": 1, "h3": 1}
    wait_until("h0 and its three neighbours noticed", lambda: missing(of_run) == around)
    weft("restore", *of_run, "h0")
    wait_until("all converged", lambda: all(row["converged"] for row in status(of_run)["nodes"]))
    assert "h99" in weft("fail", *of_run, "h99", status=2).stderr

    daemon = json.loads(weft("status", *of_run, "h0", "--json").stdout)
    assert [n["state"] for n in daemon["protocol"]["neighbours"]] == ["up"] * 3
    again = weft("up", "star:n=2", "--detach", name, status=2)
    assert f"a run called {name} is up; take it down by `weft down --run {name}`" in again.stderr
    for words in (("log", "-f"), ("status",)):
        says = f"{name} is a run, and no node of run {name}: write --run {name}"
        assert says in weft(*words, *of_run, name, status=2).stderr

    assert "neighbour" in weft("log", *of_run, "h0").stdout
    output = weft("log", *of_run).stdout.splitlines()
    assert {line.split()[0] for line in output} >= {"h0", "h1", "h11"}
    times = [float(line.split()[2]) for line in output if line.split()[1].startswith("20")]
    assert times == sorted(times)
    assert "h99" in weft("log", *of_run, "h99", status=2).stderr
    assert (
        f"run {name} is up; `weft down --run {name}` takes it down"
        in weft("clean", "--run", name, status=2).stderr
    )
    assert (
        json.loads(weft("exec", *of_run, "h0", "--", *WEFT, "status", "--json").stdout)["run"]
        == name
    )

    names = next(record for record in run.runs() if record.id == name).journal["namespaces"]
    assert clean.processes(name, names)
    weft("down", "--run", name)
    assert not clean.processes(name, names)
    assert not set(names) & set(os.listdir(netns.NAMES))
    assert f"no run {name!r} is up" in weft("status", *of_run, status=2).stderr


@pytest.mark.kernel
def test_json_of_what_comes_up_and_of_its_logs(name):
    facts = json.loads(
        weft("up", "star:n=2", "--rate", "20mbit", "--detach", name, "--json").stdout
    )
    stages_s = facts.pop("stages_s")
    assert facts.pop("topology") == "star:n=2"
    assert facts == {"run": name, "servers": 2, "switches": 1, "links": 2, "daemons": 1}
    assert all(seconds >= 0 for seconds in stages_s.values())
    assert json.loads(weft("hosts", "--run", name, "--json").stdout) == ["h0", "h1"]
    lines = [json.loads(line) for line in weft("log", "--run", name, "--json").stdout.splitlines()]
    assert {"r0", "supervisor"} >= {line["node"] for line in lines} > set()
    of_node = weft("log", "r0", "--run", name, "--json").stdout.splitlines()
    assert [json.loads(line) for line in of_node] == [
        line for line in lines if line["node"] == "r0"
    ]
    weft("down", "--run", name)


def test_json_of_what_is_cleaned(monkeypatch, capsys):
    monkeypatch.setattr(clean, "clean", lambda name: [name])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cli.main(["clean", "--run", "dead", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": ["dead"]}


def status(of_run: list[str]) -> dict:
    return json.loads(weft("status", *of_run, "--json").stdout)


@pytest.mark.kernel
def test_ctrl_c_while_a_network_is_up_leaves_nothing():
    process = subprocess.Popen(
        [*WEFT, "up", "dcell:n=3,k=1"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    mine = wait_until(
        "the run",
        lambda: [
            record for record in run.runs() if record.journal_or_empty().get("pid") == process.pid
        ],
    )
    wait_until("daemons", lambda: (mine[0].directory / "supervisor.sock").exists())
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode in (130, 143), said
    assert b"Traceback" not in said
    assert mine[0].id not in [record.id for record in run.runs()]


@pytest.mark.kernel
def test_the_foreground_takes_commands_and_takes_everything_down_at_the_end():
    script = "h0 ping -c1 -W2 h11\nlink h0 h3 down\nh0 ping -c1 -W1 h3\nexit\n"
    done = subprocess.run(
        [*WEFT, "up", "dcell:n=3,k=1"],
        cwd=ROOT,
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert said.count(", 0% packet loss") == 1
    # Whether the kernel has withdrawn the route by then, or the daemon has, or the packet is on its
    # way into the void.
    assert any(words in said for words in ("No route to host", "nreachable", "100% packet loss"))
    assert said.split("run ")[1].split(" is up")[0] not in [record.id for record in run.runs()]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["up", "dcell:n=1,k=1"], "dcell: n must be at least 3, got 1"),
        (
            ["up", "dcell:n=1000,k=1"],
            "1,001,000 servers, 1,001 switches, 1,501,500 links; a run on the kernel has",
        ),
        (["up", "dcell:n=3,k=1", "--queue", "5"], "--queue needs --rate"),
        (["up", "dcell:n=3,k=1", "--mtu", "9000"], "--mtu needs --rate"),
        (
            ["up", "dcell:n=3,k=1", "--mtu", "9217", "--rate", "5mbit"],
            "mtu_bytes must be at most 9216, got 9217",
        ),
        (["up", "dcell:n=3,k=1", "--delay", "1ms"], "--delay needs --rate"),
        (["up", "fattree:k=4", "--host-rate", "5mbit"], "--host-rate needs --rate"),
        (
            ["up", "dcell:n=3,k=1", "--rate", "fast"],
            "rate: 'fast' is not a rate; write it as in 20mbit",
        ),
        (["up", "dcell:n=3,k=1", "--rate", ""], "rate: '' is not a rate; write it as in 20mbit"),
        (["up", "dcell:n=3,k=1", "--rate", "0"], "rate: '0' has no unit"),
        (["up", "dcell:n=3,k=1", "--rate=-5mbit"], "'-5mbit' is not a rate"),
        (
            ["up", "dcell:n=3,k=1", "--rate", "1001gbit"],
            "rate_bps must be at most 1000000000000, got 1001000000000",
        ),
        (
            ["up", "fattree:k=4", "--rate", "5mbit", "--host-rate", "0.001bit"],
            "'0.001bit' is not a whole number",
        ),
        (
            ["up", "fattree:k=4", "--rate", "5mbit", "--host-rate", "7kbit"],
            "rate_bps must be at least 8000, got 7000",
        ),
        (
            ["up", "dcell:n=3,k=1", "--rate", "5mbit", "--host-rate", "1mbit"],
            "dcell:n=3,k=1 has no host links",
        ),
        (
            ["up", "dcell:n=3,k=1", "--rate", "1mbit", "--queue", "0"],
            "queue_packets must be at least 1, got 0",
        ),
        (
            ["up", "dcell:n=3,k=1", "--rate", "1mbit", "--queue", "5000000000"],
            "queue_packets must be at most 4294967295",
        ),
        (
            ["up", "dcell:n=3,k=1", "--rate", "1mbit", "--queue", "1.5"],
            "must be a whole number, got '1.5'",
        ),
        (
            ["up", "dcell:n=3,k=1", "--rate", "1mbit", "--delay", ""],
            "'' is not a delay; write it as in 1ms",
        ),
        (
            ["up", "dcell:n=3,k=1", "--rate", "1mbit", "--delay", "3601s"],
            "delay_us must be at most 3600000000",
        ),
        (
            ["up", "dcell:n=3,k=1", "--packed=-3"],
            "shared by 1 process or more (0: one for each node), not by -3",
        ),
        (
            ["up", "dcell:n=3,k=1", "--packed", "2", "--routing", "static"],
            "--packed: scheme static has no daemons",
        ),
        (["up", "dcell:n=3,k=1", "--detach", ""], "run name '': up to 16 of a-z"),
        (["up", "dcell:n=3,k=1", "--detach", "UPPER"], "run name 'UPPER': up to 16 of a-z"),
        (["up", "dcell:n=3,k=1", "--routing", ""], "'': expected name:key=value"),
        (["up", "dcell:n=3,k=1", "--routing", "ttc"], "scheme ttc runs on switch fabrics"),
        (["up", "dcell:n=3,k=1", "--routing", "dr:hello_ms=0"], "hello_ms"),
        (["up", "fattree:k=4", "--routing", "dr"], "scheme dr runs on server-centric networks"),
        (
            ["up", "fattree:k=4", "--routing", "ecmp:ipv6=1"],
            "scheme ecmp routes IPv4 alone; for IPv6 take static:ipv6=1",
        ),
        (["up", "star:n=3", "--routing", "nonsense"], "no scheme 'nonsense'"),
        (["exec", "--run", "no-such-run", "h0", "--", "true"], "no run 'no-such-run' is up"),
        (["uml", "--"], "uml: no command"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(argv, words, capsys):
    message = refusal(argv, capsys)
    assert message.count("\n") == 1
    assert words in message or (os.geteuid() and "need root" in message)
    if argv[0] == "up" and "need root" not in message:
        assert refusal([*argv, "--dry-run"], capsys) == message


def refusal(argv, capsys):
    """Return the error message of a command that ends with status 2."""
    try:
        status = cli.main(argv)
    except SystemExit as end:
        status = end.code
    assert status == 2
    return capsys.readouterr().err


def test_a_dry_run_needs_no_root_and_prints_commands():
    lines = weft(
        "up", "dcell:n=3,k=1", "--routing", "static", "--rate", "20mbit", "--dry-run"
    ).stdout.splitlines()
    assert lines[0] == "ip netns add weft.RUN.h0"
    assert "tc -n weft.RUN.h0 qdisc add dev h0-eth0 parent 1:10 handle 10: pfifo limit 250" in lines
    assert sum(" route replace " in line for line in lines) == 12 * 5


def test_a_dry_run_has_the_name_of_the_run_and_the_rate_of_host_links():
    rates = ["--rate", "20mbit", "--host-rate", "5mbit"]
    lines = weft("up", "fattree:k=4", *rates, "--detach", "demo", "--dry-run").stdout.splitlines()
    assert lines[0] == "ip netns add weft.demo.h0"
    rate = {
        words[6]: words[words.index("rate") + 1]
        for words in map(str.split, lines)
        if words[3] == "class"
    }
    topology = build("fattree:k=4")
    name = topology.naming.name
    assert rate == {
        f"{name(node)}-eth{port}": "20000000bit" if level else "5000000bit"
        for (a, pa, b, pb), level in zip(
            topology.links.tolist(), topology.level.tolist(), strict=True
        )
        for node, port in ((a, pa), (b, pb))
    }


@pytest.mark.kernel
def test_a_daemon_that_was_killed_can_be_started_by_hand(name):
    """Its routes stay while it is dead, its neighbours find out; by hand it comes back, and Ctrl-C
    ends it."""
    of_run = ["--run", name]
    weft("up", "dcell:n=3,k=1", "--routing", "dr", "--detach", name)
    refused = weft("daemon", "h0", *of_run, status=2).stderr
    assert "h0 has a daemon already" in refused
    weft("daemon", "h0", *of_run, "--stop")
    # on a busy machine others may have been late for a moment
    wait_until("its three neighbours noticed", lambda: losers(of_run) >= {"h1", "h2", "h3"})
    kept = subprocess.run(
        ["ip", "-n", f"weft.{name}.h0", "route"], capture_output=True, text=True, check=True
    ).stdout
    assert kept.count("proto 177") == 5

    by_hand = subprocess.Popen(
        [*WEFT, "daemon", "s0.0", "dr", *of_run],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(
            "all converged", lambda: all(row["converged"] for row in status(of_run)["nodes"])
        )
        assert (
            next(row["pid"] for row in status(of_run)["nodes"] if row["node"] == "h0")
            == by_hand.pid
        )
        by_hand.send_signal(signal.SIGINT)
        assert "interrupted" in by_hand.communicate()[1]
        assert by_hand.returncode == 130
    finally:
        by_hand.kill()
    weft("down", "--run", name)


@pytest.mark.kernel
def test_without_restarts_what_dies_stays_dead_until_somebody_asks(name):
    weft("up", "dcell:n=3,k=1", "--routing", "dr", "--no-restart", "--detach", name)
    network = RunningNetwork.open(name)
    try:
        before = network.rows()[0]
        os.kill(before.pid, signal.SIGKILL)
        wait_until("its death is counted", lambda: network.rows()[0].deaths == 1)
        assert not network.rows()[0].pid
        weft("restart", "--run", name, "h0")
        network.wait_until_converged()
        after = network.rows()[0]
        assert after.pid not in (0, before.pid)
        assert (after.deaths, after.restarts) == (1, 0), "somebody asked for it"
        weft("restart", "--run", name, "h0")  # also one that is well
        assert network.rows()[0].pid not in (0, after.pid)
        assert "w0" in weft("restart", "--run", name, "w0", status=2).stderr
    finally:
        network.close()
    weft("down", "--run", name)


@pytest.mark.kernel
def test_a_daemon_by_hand_knows_of_its_links_what_the_supervisor_s_did(name):
    of_run = ["--run", name]
    weft("up", "ficonn:n=4,k=1", "--routing", "tar", "--rate", "20mbit", "--detach", name)

    def known_capacity() -> int:
        return json.loads(weft("status", *of_run, "h0", "--json").stdout)["protocol"][
            "capacity_kbps"
        ]

    assert known_capacity() == 20_000
    weft("daemon", "h0", *of_run, "--stop")
    by_hand = subprocess.Popen([*WEFT, "daemon", "h0", *of_run], cwd=ROOT, stderr=subprocess.PIPE)
    try:
        wait_until(
            "all converged",
            lambda: all(row["converged"] and row["pid"] for row in status(of_run)["nodes"]),
        )
        assert (
            next(row["pid"] for row in status(of_run)["nodes"] if row["node"] == "h0")
            == by_hand.pid
        )
        assert known_capacity() == 20_000
        assert (
            ", 0% packet loss"
            in weft("exec", *of_run, "h0", "--", "ping", "-c2", "-i0.2", "-W2", "10.0.2.3").stdout
        )
        weft("down", "--run", name)
        assert by_hand.wait() == -signal.SIGKILL
    finally:
        by_hand.kill()
        by_hand.communicate()


def losers(of_run: list[str]) -> set[str]:
    """Return the nodes that have lost a neighbour."""
    return {row["node"] for row in status(of_run)["nodes"] if row["losses"]}


def missing(of_run: list[str]) -> dict[str, int]:
    """Return the number of neighbours that each node does not hear, where there are any."""
    rows = status(of_run)["nodes"]
    unheard = {row["node"]: row["of"] - row["neighbours"] for row in rows}
    return {node: count for node, count in unheard.items() if count}


@pytest.mark.kernel
def test_a_command_on_a_running_network_imports_what_it_uses(name):
    """Imports are nearly all of the time that such a command takes."""
    weft("up", "dcell:n=3,k=1", "--routing", "dr", "--detach", name)
    parts = {f"weft.experiments.cli.{part}" for part in cli.COMMANDS}
    needless = {"psutil", "pyroute2", "networkx", "numba", "rich", "matplotlib", "mininet"}
    of_status = {"weft.daemons.core.registry", "weft.testbed.data_plane.data_plane"}
    needless |= of_status | {
        "weft.daemons.tar.scheme",
        "weft.experiments.runner.definition",
        "weft.testbed.machine.doctor",
        "weft.testbed.network.bring_up",
    }
    for words, used in {
        ("fail", "h0-h3"): {"network_commands"},
        ("restore", "h0-h3"): {"network_commands"},
        ("status", "h0"): {"network_commands", "watch_commands"},
        ("status",): {"network_commands", "watch_commands"},
        ("log", "h0"): {"watch_commands"},
    }.items():
        code = "import sys; from weft.experiments.cli import cli; cli.main(sys.argv[1:])"
        code += "; print('MODULES', *sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "--run", name],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        modules = set(done.stdout.partition("MODULES ")[2].split())
        assert not done.stderr
        assert needless & modules <= (of_status if words == ("status",) else set()), words
        used_parts = {f"weft.experiments.cli.{part}" for part in used | {"cluster_commands"}}
        assert parts & modules == used_parts, words


def test_each_command_is_in_the_table_by_which_its_module_is_imported():
    def commands(parser: cli.Parser) -> set[str]:
        action = next(a for a in parser._actions if isinstance(a.choices, dict))
        return set(action.choices)

    for part, names in cli.COMMANDS.items():
        assert names, part
        for name in names:
            assert commands(cli.parser([name])) == names
    assert commands(cli.parser()) == set().union(*cli.COMMANDS.values())


@pytest.mark.kernel
def test_a_run_of_another_version_says_so_and_is_taken_down(name):
    weft("up", "star:n=2", "--detach", name)
    record = run.find(name)
    for key in ("scheme_module", "static"):
        entries = record.journal
        del entries[key]
        run.write_journal(record, entries)
        says = f"run {name} was made by another version of weft, whose journal has no {key}: "
        assert says + f"take it down by `weft down --run {name}`" in (
            weft("status", "--run", name, status=2).stderr
        )
    weft("down", "--run", name)
    assert name not in {record.id for record in run.runs()}
