"""The example packages, installed beside weft as a user would, and used by every engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.testbed.linux.clock import wait_until

ROOT = Path(__file__).parents[2]
EXAMPLES = ("deflection", "torus")
Python = Callable[..., subprocess.CompletedProcess[str]]
IN_THE_SIMULATOR = """
from weft.daemons.core import registry
from weft.daemons.simulator.simulator import Simulator
from tests.chaos.simulated_network import SimulatedNetwork
from weft.experiments.engines.routes import lengths
from weft.topologies import build
from weft.topologies.core.failures import fail_links

whole = build("dcell:n=4,k=1")
one = Simulator(whole, "deflection")
one.run_until_converged()
scheme, options = registry.scheme("deflection")
detours = 0
for link in (None, whole.link("h3-h16"), whole.link("h0-w0")):
    if link is not None:
        one.fail(link, silent=True)
    one.run_until_quiet()
    left = whole if link is None else fail_links(whole, [link])
    for src in range(20):
        for dst in set(range(20)) - {src}:
            paths, walk = scheme.path(left, options, src, dst), one.walk(src, dst)
            assert walk.path == paths[0].nodes if paths else walk.lost, (link, src, dst, walk, paths)
            assert scheme.connects(left, options, src, dst) == (not walk.lost)
            assert lengths(left, "deflection", [(src, dst)]) == (
                {} if walk.lost else {(src, dst): len(walk.path) - 1}
            )
            detours += bool(paths) and len(paths[0].nodes) > 4
    if link is not None:
        one.restore(link)
        one.run_until_converged()
assert detours
network = SimulatedNetwork(whole.spec, "deflection", 0)
network.fail_link(whole.link("h3-h16"), silent=True)
network.judge()
"""  # noqa: E501
REFUSALS = """
import json
from weft.experiments.runner.definition import discover

refused = {}
for name, experiment in discover().items():
    keys = {"routing", "scheme"} & experiment.axes.keys()
    network = {"topology": "dcell:n=4,k=1"} if keys == {"routing"} else {}
    try:
        experiment.plan(dict.fromkeys(keys, "deflection") | network)
    except ValueError as error:
        refused[name] = str(error)
print(json.dumps(refused))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Run Python with the examples installed, in a folder of their own."""
    target, sources = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("sources")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
    ]
    for name in EXAMPLES:
        shutil.copytree(ROOT / "examples" / name, sources / name)
        subprocess.run([*pip, "--target", str(target), str(sources / name)], check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(target), str(ROOT)])}

    def run(*argv: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *argv], cwd=target, env=environment, capture_output=True, text=True
        )
        assert done.returncode == status, done.stderr
        return done

    return run


@pytest.fixture
def weft(python: Python) -> Python:
    return lambda *argv, status=0: python("-m", "weft.experiments.cli.cli", *argv, status=status)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_one_module(name: str) -> None:
    files = [path.name for path in (ROOT / "examples" / name).iterdir() if path.is_file()]
    assert sorted(files) == ["pyproject.toml", f"weft_{name}.py"]


@pytest.mark.slow
def test_they_are_listed_and_described(weft: Python) -> None:
    listed = json.loads(weft("list", "--json").stdout)
    (scheme,) = [entry for entry in listed["routing"] if entry["name"] == "deflection"]
    assert scheme["parameters"].keys() == {"hello_ms", "dead"}
    assert "torus" in {entry["name"] for entry in listed["topologies"]}
    torus = json.loads(weft("topo", "torus:n=4", "--json").stdout)
    assert (torus["servers"], torus["switches"], torus["links"]) == (16, 16, 16 + 2 * 16)
    assert torus["diameter_hops"] == 2 + 2 + 2


@pytest.mark.slow
def test_a_scheme_of_another_package_is_routed_and_refused_as_any_other(weft: Python) -> None:
    def path(*more: str) -> list[str]:
        return list(
            json.loads(weft("route", "dcell:n=4,k=1", *more, "h0", "h19", "--json").stdout)["path"]
        )

    direct = path("--routing", "dr")
    assert path("--routing", "deflection") == direct
    around = path("--routing", "deflection", "--fail", "h3-w0")
    assert (around[0], around[-1]) == ("h0", "h19")
    assert around != direct
    said = weft("route", "ficonn:n=4,k=1", "--routing", "deflection", "h0", "h5", status=2).stderr
    assert said == "weft: scheme deflection needs a dcell, not ficonn:n=4,k=1\n"
    assert (
        weft("up", "fattree:k=4", "--routing", "deflection", "--dry-run", status=2).stderr.count(
            "\n"
        )
        == 1
    )


@pytest.mark.slow
def test_torus_routes_around_a_dead_link(weft: Python) -> None:
    document = json.loads(
        weft(
            "route", "torus:n=4", "--routing", "ecmp", "h0", "h1", "--fail", "r0-r1", "--json"
        ).stdout
    )
    assert (document["hops"], document["path"][1], document["path"][-2]) == (5, "r0", "r1")
    assert document["paths"] == 3


@pytest.mark.slow
def test_the_simulator_runs_it_as_the_graph_says(python: Python) -> None:
    python("-c", IN_THE_SIMULATOR)


@pytest.mark.slow
def test_experiments_take_it_or_say_why_not(python: Python) -> None:
    """Every experiment that has a parameter for a scheme."""
    refused = json.loads(python("-c", REFUSALS).stdout)
    takes = {"link_loss", "one_failure", "connectivity_kernel"}
    takes |= {"proxy_failover", "proxy_latency", "proxy_throughput"}
    assert not takes & refused.keys(), refused
    # of a model's own words; of kernels without DCTCP
    reasons = ("one_failure", "scheme deflection ", "(there are: ", "congestion control dctcp")
    assert not {
        name: said
        for name, said in refused.items()
        if not any(reason in said for reason in reasons)
    }


@pytest.mark.slow
def test_link_loss_compares_it_in_graph_and_simulator(weft: Python) -> None:
    cell = ["topology=dcell:n=3,k=1", "failed_links=2", "routing=deflection,dr"]
    argv = ["run", "link_loss", "--engine", "fabric", "--seeds", "1", "--set", *cell, "--json"]
    rows = json.loads(weft(*argv).stdout)
    assert [row["equal"] for row in rows] == [True, True]
    assert rows[0]["lost_graph_fraction"] > 0
    assert weft("compare", "link_loss", "routing=dr", "routing=deflection").stderr.startswith(
        "link_loss: 1 pairs"
    )


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("network", "scheme"), [("dcell:n=3,k=1", "deflection"), ("torus:n=3", "ecmp")]
)
def test_one_failure_takes_any_network_and_any_scheme(
    weft: Python, network: str, scheme: str
) -> None:
    cell = [f"topology={network}", f"routing={scheme}", "failure=link", "pairs=4", "failure_s=1"]
    argv = ["run", "one_failure", "--clock", "real", "--set", *cell, "--fresh", "--json"]
    (row,) = json.loads(weft(*argv).stdout)
    assert row["connected_fraction"] == 1
    assert row["as_predicted"]
    assert row["recovered_fraction"] == (scheme == "ecmp")
    assert row["tcp_before_bps"] > 0


@pytest.mark.kernel
def test_the_kernel_runs_it(weft: Python, run_name: str) -> None:
    weft("up", "dcell:n=4,k=1", "--routing", "deflection", "--detach", run_name)
    try:
        exec_words = ["exec", "--run", run_name]
        ping = [*exec_words, "h0", "--", "ping", "-c1", "-W1", "10.0.4.3"]
        assert ", 0% packet loss" in weft(*ping).stdout
        weft("fail", "--run", run_name, "h3-w0")  # through which h0 reaches the rest of the network
        route = [*exec_words, "h0", "--", "ip", "-j", "route", "get", "10.0.4.3"]
        wait_until("h0 deflects", lambda: json.loads(weft(*route).stdout)[0]["dev"] == "h0-eth1")

        def heard() -> int:
            """Echo requests that have come to h19."""
            names, values = (
                line.split()
                for line in weft(
                    *exec_words, "h19", "--", "cat", "/proc/net/snmp"
                ).stdout.splitlines()
                if line.startswith("Icmp:")
            )
            return int(values[names.index("InEchos")])

        before = heard()
        # the answer's way back is dead: DR's, and nobody near it knows another
        weft(*ping, status=1)
        assert heard() == before + 1
    finally:
        weft("down", "--run", run_name)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scheme's package, which prints while it is imported, as one under work may.

    It is a copy, so that nothing is built in the checkout.
    """
    folder = shutil.copytree(
        ROOT / "examples/deflection", tmp_path_factory.mktemp("package") / "deflection"
    )
    with open(folder / "weft_deflection.py", "a", encoding="utf-8") as module:
        module.write("print('imported')\n")
    return folder


@pytest.fixture(scope="module", params=["below the checkout", "elsewhere", "wheel"])
def environment_python(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Python of an environment: a checkout's .venv, one elsewhere that uses a checkout, or one that
    has weft itself.

    What weft needs comes from the environment of the tests.
    """
    checkout = tmp_path_factory.mktemp("checkout")
    below = request.param == "below the checkout"
    folder = checkout / ".venv" if below else tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", folder],
        check=True,
    )
    (site,) = folder.glob("lib/python*/site-packages")
    holder = site if request.param == "wheel" else checkout
    (holder / "weft").symlink_to(ROOT / "weft")
    (site / "needed.pth").write_text(f"{holder}\n{sysconfig.get_path('purelib')}\n")
    return folder / "bin/python"


@pytest.mark.kernel
@pytest.mark.parametrize("how", ["ordinary", "editable"])
def test_the_kernel_runs_it_however_it_is_installed(
    environment_python: Path, sources: Path, how: str
) -> None:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        environment_python,
        "--quiet",
        "--disable-pip-version-check",
    ]
    options = [
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        *["--editable"] * (how == "editable"),
    ]
    subprocess.run([*pip, "install", *options, sources], check=True, timeout=100)
    name, weft = (
        f"x-{os.urandom(3).hex()}",
        [environment_python, "-P", "-m", "weft.experiments.cli.cli"],
    )
    up = ["up", "dcell:n=3,k=1", "--routing", "deflection", "--detach", name]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        done = subprocess.run(
            [*weft, *up], env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stderr
    finally:
        subprocess.run(
            [*weft, "down", "--run", name],
            env=environment,
            capture_output=True,
            timeout=100,
            check=False,
        )
        subprocess.run([*pip, "uninstall", "--yes", "weft-deflection"], check=True, timeout=100)


@pytest.mark.kernel
def test_link_loss_gives_links_a_rate_for_a_scheme_that_compares_queues(weft: Python) -> None:
    cell = ["topology=clos:n=2,r=2,m=2", "routing=jsq", "failed_links=1"]
    (row,) = json.loads(
        weft(
            *("run", "link_loss", "--clock", "real", "--seeds", "1"),
            *("--set", *cell, "--fresh", "--json"),
        ).stdout
    )
    assert row["equal"]
