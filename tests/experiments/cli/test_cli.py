import csv
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import quick

from tests.optional_parts import with_and_without
from weft.daemons.core.registry import checked, schemes
from weft.experiments.cli import cli, graph_commands
from weft.experiments.cli.cli import main
from weft.experiments.demo import link_loss
from weft.experiments.runner import console, definition, provenance
from weft.experiments.runner.results import Store
from weft.testbed.machine import doctor
from weft.testbed.network.handle import Handle
from weft.testbed.runs import run
from weft.topologies import build

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(console, "QUIET_S", 1e6)  # no progress is told, however slow the machine is
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


@pytest.fixture
def quick_experiment(monkeypatch):
    """The experiment `quick` beside those that exist."""
    find = definition.find
    monkeypatch.setattr(
        definition, "find", lambda name: quick.EXPERIMENT if name == "quick" else find(name)
    )


@pytest.fixture
def become_root(monkeypatch):
    """Whoever runs the tests is taken for root, and asks nothing of the kernel."""

    def become():
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(doctor, "probe", lambda: [])

    return become


@pytest.fixture
def weft(capsys):
    """Run a command; its status, what it printed, and what it complained of, in lines."""

    def run(*argv):
        status = main(argv)
        out, err = capsys.readouterr()
        return status, out, err.splitlines()

    return run


def json_of(answer):
    """The JSON of a command that went well."""
    status, out, err = answer
    assert status == 0, err
    return json.loads(out)


# -- topo


@pytest.mark.parametrize(
    ("topology", "servers", "switches", "links", "diameter"),
    [
        ("dcell:n=4,k=1", 20, 5, 30, 3),
        ("ficonn:n=4,k=2", 48, 12, 66, 7),
        ("fattree:k=4", 16, 20, 48, 6),
        ("clos:n=8,r=2,m=4", 16, 6, 24, 4),
        ("star:n=8", 8, 1, 8, 2),
        ("complete:n=5,p=4", 20, 5, 30, 3),
        ("slimfly:q=5,p=4", 200, 50, 375, 4),
        ("dragonfly:p=2,palm=0", 72, 36, 162, 5),
        ("slimfly:q=19,p=14", 10108, 722, 20577, 4),
    ],
)
def test_topo_counts(weft, topology, servers, switches, links, diameter):
    description = json_of(weft("topo", topology, "--json"))
    assert description["name"] == topology
    assert (description["servers"], description["switches"], description["links"]) == (
        servers,
        switches,
        links,
    )
    assert description["diameter_hops"] == diameter
    assert sum(description["links_of_level"].values()) == links
    ports = [
        int(ports) * count
        for part in ("server_degree", "switch_degree")
        for ports, count in description[part].items()
    ]
    assert sum(ports) == 2 * links


def test_the_keys_of_topo_are_promised(weft):
    keys = (
        "name family parameters servers switches links server_centric links_of_level links_of_role"
    )
    assert list(json_of(weft("topo", "dcell:k=1,n=4", "--json"))) == [
        *keys.split(),
        *("server_degree", "switch_degree", "diameter_hops"),
    ]
    nodes = json_of(weft("topo", "dcell:n=4,k=1", "--json", "--nodes"))["nodes"]
    assert len(nodes) == 25
    assert nodes[6] == {"name": "h6", "label": "s1.2", "address": "10.0.1.2"}
    assert nodes[20] == {"name": "w0", "label": "w0", "address": None}


def test_topo_for_people(weft):
    status, out, _ = weft("topo", "fattree:k=4", "--nodes")
    assert status == 0
    assert re.search(r"servers +16\n", out)
    assert re.search(r"e0.0 +e0.0 +\d", out)


def test_the_diameter_is_that_of_a_breadth_first_search():
    from weft.daemons.routing.shortest import distances
    from weft.experiments.cli.graph_commands import diameter_hops
    from weft.topologies import build

    fabrics = "fattree:k=4", "complete:n=4,p=1", "star:n=3", "jellyfish:n=12,r=3,p=1,seed=2"
    for text in ("dcell:n=3,k=1", "beta-dcell:n=3,k=2", "ficonn:n=4,k=1", *fabrics):
        topology = build(text)
        servers = range(topology.servers)
        hops = [distances(topology.adjacency, server) for server in servers]
        assert diameter_hops(topology) == max(hops[a][b] for a in servers for b in servers), text


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
@pytest.mark.slow
def test_topo_draws(weft, tmp_path, suffix):
    path = tmp_path / "figures" / f"picture.{suffix}"
    path.parent.mkdir()
    status, _, err = weft("topo", "dcell:n=3,k=1", "--plot", str(path))
    assert (status, err) == (0, [])
    assert path.read_bytes()[:4] == {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xm"}[suffix]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@with_and_without("display")
def test_what_a_command_makes_others_cannot_write_whatever_the_umask(
    part, weft, quick_experiment, tmp_path
):
    path = tmp_path / "results" / "picture.svg"
    before = os.umask(0)
    try:
        assert weft("run", "quick", "--set", "size=1")[0] == 0
        assert weft("plot", "quick", "-o", str(path))[0] == 0
    finally:
        assert os.umask(before) == 0
    assert [place.stat().st_mode & 0o777 for place in (path, path.parent)] == [0o644, 0o755]


@pytest.mark.parametrize(
    "topology",
    ["slimfly:q=4", "hyperx:l=2,s=7", "hyperx:l=3,s=5", "complete:n=4,p=2", "gqstar:n=3,k=2"],
)
def test_links_are_drawn_within_the_picture(topology):
    from weft.experiments.report.network_drawing import corners, curves
    from weft.experiments.report.network_layout import layout
    from weft.topologies import build

    network = build(topology)
    places = layout(network)
    low, high = corners(network, places)
    a, control, b = curves(network, places)
    for t in np.linspace(0, 1, 33):
        point = (1 - t) ** 2 * a + 2 * t * (1 - t) * control + t**2 * b
        assert low.real < point.real.min() < point.real.max() < high.real
        assert low.imag < point.imag.min() < point.imag.max() < high.imag


@pytest.mark.parametrize(
    "topology", ["slimfly:q=4", "dragonfly:p=2", "hyperx:l=4,s=2", "xpander:r=3,seed=1"]
)
def test_routers_are_drawn_where_no_two_overlap(weft, tmp_path, topology):
    from weft.experiments.report.network_layout import layout
    from weft.topologies import build

    network = build(topology)
    places = layout(network).positions
    apart = abs(places[network.servers :, None] - places[network.servers :])
    assert (apart[np.triu_indices(network.switches, 1)] > 0.9).all()
    assert (
        places[network.links[network.level == 0, 0]] == places[network.links[network.level == 0, 2]]
    ).all()
    status, _, err = weft("topo", topology, "--plot", str(tmp_path / "it.png"))
    assert (status, err) == (0, [])


# -- route


def test_a_route_by_name_and_by_label(weft):
    answer = json_of(weft("route", "dcell:n=4,k=1", "--routing", "dr", "h0", "h19", "--json"))
    path = {"path": ["h0", "h3", "h16", "h19"], "hops": 3}
    assert answer == path | {"choices": [path | {"share": 1.0}]}
    assert (
        json_of(weft("route", "dcell:n=4,k=1", "--routing", "dr", "s0.0", "s4.3", "--json"))
        == answer
    )


def test_the_path_through_a_fabric_has_its_switches(weft):
    answer = json_of(weft("route", "fattree:k=4", "--routing", "ecmp", "h0", "h15", "--json"))
    assert answer["path"] == ["h0", "e0.0", "a0.0", "c0", "a3.0", "e3.1", "h15"]
    assert (answer["hops"], answer["paths"]) == (6, 4)
    answer = json_of(
        weft(
            "route",
            "fattree:k=4",
            "--routing",
            "ecmp",
            "h0",
            "h15",
            "--fail",
            "e0.0-a0.0",
            "--json",
        )
    )
    assert (answer["path"][2], answer["paths"]) == ("a0.1", 2)


@pytest.mark.parametrize("scheme", [scheme for scheme in schemes() if scheme != "tar"])
def test_every_scheme_has_a_path_and_shares_that_add_up(weft, scheme):
    topology = runs_on(scheme)[0]
    answer = json_of(weft("route", topology, "--routing", scheme, "h0", "h9", "--json"))
    assert sum(choice["share"] for choice in answer["choices"]) == pytest.approx(1)
    assert answer["choices"][0]["path"] == answer["path"]
    assert all(
        choice["path"][0] == "h0" and choice["path"][-1] == "h9" for choice in answer["choices"]
    )
    _, out, _ = weft("route", topology, "--routing", scheme, "h0", "h9")
    assert len(out.splitlines()) == len(answer["choices"])


def test_the_path_of_each_layer_is_shown_with_its_share(weft):
    argv = ("route", "slimfly:q=3,p=1", "--routing", "fatpaths:layers=3,rho=0.7", "h0", "h9")
    answer = json_of(weft(*argv, "--json"))
    assert [(choice["layer"], choice["share"]) for choice in answer["choices"]] == [
        (layer, 1 / 3) for layer in range(3)
    ]
    lines = weft(*argv)[1].splitlines()
    assert [
        line.endswith(f" hops, layer {at}, 33.33 % of packets)") for at, line in enumerate(lines)
    ] == [True] * 3


def runs_on(scheme):
    """The networks of these that `scheme` is for."""
    fits = []
    for topology in ("fattree:k=4", "clos:n=4,r=3,m=4", "dcell:n=4,k=1", "complete:n=4,p=3"):
        with suppress(ValueError):
            checked(build(topology), scheme)
            fits.append(topology)
    return fits


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("dcell:n=4,k=1 --routing drr:x=1", "no scheme 'drr'"),
        (
            "dcell:n=4,k=1 --routing ttc",
            "scheme ttc runs on switch fabrics; dcell:n=4,k=1 is a server-centric network",
        ),
        ("dcell:n=4,k=1 --routing tar", "scheme tar needs a ficonn"),
        (
            "fattree:k=4 --routing lbsp:groups=4",
            "LBSP: groups must be a power of two from 2 to k/2 = 2, got 4",
        ),
        ("fattree:k=4 --routing ttc:delta=x", "scheme ttc: delta must be an integer, got 'x'"),
        (
            "fattree:k=4 --routing ttc --rate 10mbit --delay 1ms",
            "scheme ttc and a delay exclude each other",
        ),
    ],
)
def test_a_dry_run_refuses_what_up_refuses(weft, command, says):
    status, out, err = weft("up", *command.split(), "--dry-run")
    assert (status, out, len(err)) == (2, "", 1)
    assert err[0].startswith(f"weft: {says}")


def test_no_path_is_one_line_and_status_1(weft):
    failed = ["--fail", "h3-h16", "--fail", "h0-h4"]
    says = "dr finds no path from h0 to h19 with h3-h16, h0-h4 failed"
    assert weft("route", "dcell:n=4,k=1", "--routing", "dr", "h0", "h19", *failed) == (
        1,
        says + "\n",
        [],
    )
    status, out, _ = weft(
        "route", "dcell:n=4,k=1", "--routing", "dr", "h0", "h19", *failed, "--json"
    )
    assert (status, json.loads(out)) == (1, {"path": None, "hops": None, "reason": says})


def test_a_crossbar_hop_needs_both_of_its_links(weft):
    ends = ["route", "dcell:n=4,k=1", "--routing", "dr", "h0", "h1"]
    assert weft(*ends)[0] == 0
    assert weft(*ends, "--fail", "h1-w0")[0] == 1
    assert weft(*ends, "--fail", "h0-w0")[0] == 1
    assert weft(*ends, "--fail", "h2-w0")[0] == 0


def test_bfs_goes_around_what_stops_dr(weft):
    answer = json_of(
        weft(
            "route", "dcell:n=4,k=1", "--routing", "bfs", "h0", "h19", "--fail", "h3-h16", "--json"
        )
    )
    assert answer["hops"] == 4
    assert (answer["path"][0], answer["path"][-1]) == ("h0", "h19")


@pytest.mark.parametrize("scheme", ["pr-gpe", "pr-gpi", "pr-gp0", "dfr:b=0"])
def test_other_schemes_go_around_it_too(weft, scheme):
    ends = ["dcell:n=4,k=1", "--routing", scheme, "h0", "h19"]
    assert json_of(weft("route", *ends, "--json"))["path"] == ["h0", "h3", "h16", "h19"]
    assert json_of(weft("route", *ends, "--fail", "h3-h16", "--json"))["path"] == [
        "h0",
        "h4",
        "h7",
        "h17",
        "h19",
    ]


def test_tar_bypasses_a_link_that_is_dead(weft):
    ends = ["ficonn:n=4,k=1", "--routing", "tar", "h0", "h4"]
    assert json_of(weft("route", *ends, "--json"))["path"] == ["h0", "h4"]
    assert json_of(weft("route", *ends, "--fail", "h0-h4", "--json"))["path"] == [
        "h0",
        "h2",
        "h8",
        "h10",
        "h6",
        "h4",
    ]


# -- run and plot

SMALL = [
    "run",
    "link_loss",
    "--set",
    "topology=dcell:n=3,k=1,ficonn:n=4,k=1",
    "failed_links=0,3",
    "--seeds",
    "2",
]


@pytest.mark.slow
def test_run_gives_a_row_for_each_cell_and_seed(weft):
    rows = json_of(weft(*SMALL, "--engine", "fabric", "--json"))
    assert [(row["topology"], row["failed_links"], row["seed"]) for row in rows] == [
        (topology, failed, seed)
        for topology in ("dcell:n=3,k=1", "ficonn:n=4,k=1")
        for failed in (0, 3)
        for seed in (0, 1)
    ]
    keys = (
        "topology routing failed_links failed failed_links_fraction pairs "
        "lost_graph_fraction lost_fabric_fraction"
    )
    assert all(list(row) == [*keys.split(), "equal", "seed", "engine", "run"] for row in rows)
    assert all(row["engine"] == "fabric" and row["equal"] for row in rows)
    assert all(row["lost_graph_fraction"] == row["lost_fabric_fraction"] for row in rows)
    assert all((row["lost_graph_fraction"] > 0) == (row["failed_links"] > 0) for row in rows)


def test_equal_seeds_fail_equal_links_on_every_engine(weft):
    rows = json_of(weft(*SMALL, "--engine", "graph,fabric", "--json"))
    by_engine = [
        [row["failed"] for row in rows if row["engine"] == engine] for engine in ("graph", "fabric")
    ]
    assert by_engine[0] == by_engine[1]
    assert len(set(by_engine[0])) == 5  # none, and four draws


def test_engines_that_lose_different_pairs_are_an_alarm(weft, monkeypatch):
    lost_in_fabric = link_loss.lost_in_fabric
    monkeypatch.setattr(
        link_loss, "lost_in_fabric", lambda *run: lost_in_fabric(*run) ^ {(0, 1), (1, 0)}
    )
    status, out, err = weft(*SMALL, "--engine", "fabric", "--jobs", "1", "--json")
    assert status == 1
    assert not any(row["equal"] for row in json.loads(out))
    assert "weft: link_loss: equal does not hold in 8 of 8 runs" in err
    assert err[-1].startswith("weft: link_loss: h0 to h1: ")


def test_a_second_run_measures_nothing_and_gives_the_same(
    weft, quick_experiment, tmp_path, monkeypatch
):
    monkeypatch.setenv("WEFT_TEST_LOG", str(tmp_path / "log"))
    first = json_of(weft("run", "quick", "--json"))
    assert json_of(weft("run", "quick", "--json", "--resume")) == first
    assert len((tmp_path / "log").read_text().split()) == 12
    assert json_of(weft("run", "quick", "--json", "--fresh", "--seeds", "1")) == [
        row for row in first if row["seed"] == 0
    ]
    assert len((tmp_path / "log").read_text().split()) == 18
    assert json_of(weft("run", "quick", "--json", "--fresh", "--set", "size=1"))
    assert len((tmp_path / "log").read_text().split()) == 22


def test_run_for_people(weft, quick_experiment, results):
    status, out, err = weft("run", "quick", "--set", "size=1", "scheme=dr")
    assert (status, err) == (0, [f"quick: 2 measured now; rows in {results}/results.sqlite"])
    assert out.splitlines()[0].split() == [
        "scheme",
        "size",
        "load_fraction",
        "area_bytes",
        "right",
        "seed",
        "engine",
    ]
    assert out.splitlines()[2].split() == ["dr", "1", "0.5", "1", "yes", "0", "graph"]


def test_run_says_what_was_measured_now_and_what_before(
    weft, quick_experiment, results, monkeypatch
):
    monkeypatch.setattr(provenance, "code", lambda: ("abc", True))
    assert weft("run", "quick", "--set", "size=1", "scheme=dr", "--seeds", "1")[0] == 0
    monkeypatch.setattr(provenance, "code", lambda: ("def", False))
    status, out, err = weft("run", "quick", "--set", "size=1,2", "scheme=dr", "--seeds", "1")
    says = (
        f"quick: 1 measured now, 1 stored before, by commit abc+; rows in {results}/results.sqlite"
        "; code is uncommitted: --fresh measures stored rows again"
    )
    assert (status, err) == (0, [says])
    assert [line.split()[-1] for line in out.splitlines()] == [
        "measured",
        "--------",
        "before",
        "now",
    ]
    _, out, err = weft("run", "quick", "--set", "size=1,2", "scheme=dr", "--seeds", "1", "--json")
    says = (
        f"quick: 0 measured now, 2 stored before, by commit abc+, commit def; rows in "
        f"{results}/results.sqlite"
    )
    advice = "; code is uncommitted: --fresh measures stored rows again"
    assert err == [says + advice]
    assert all("measured" not in row for row in json.loads(out))
    words = ("run", "quick", "--set", "size=2", "scheme=dr", "--seeds", "1")
    assert weft(*words)[2][-1].endswith("results.sqlite")
    monkeypatch.setattr(provenance, "code", lambda: ("def", True))  # changed since, not committed
    assert weft(*words)[2][-1].endswith(advice)


def test_a_demonstration_is_measured_every_time(weft, monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_TEST_LOG", str(tmp_path / "log"))
    always = replace(quick.EXPERIMENT, always_measures=True)
    monkeypatch.setattr(definition, "find", lambda name: always)
    for _ in "12":
        _, _, err = weft("run", "quick", "--set", "size=1", "scheme=dr")
        assert err[-1].startswith("quick: 2 measured now; rows in ")
    assert weft("run", "quick", "--set", "size=1", "scheme=dr", "--resume")[2][-1].startswith(
        "quick: 0 measured now, 2 "
    )
    assert len((tmp_path / "log").read_text().split()) == 4
    monkeypatch.undo()
    assert definition.find("first_light").always_measures


@pytest.mark.slow
def test_cells_that_do_not_go_together_are_left_out_and_named(weft):
    networks = "topology=dcell:n=3,k=1,ficonn:n=4,k=2"
    status, out, err = weft(
        "run", "hop_length", "--set", networks, "routing=dr,tar", "pairs=100", "--json"
    )
    assert status == 0
    assert [(row["topology"], row["routing"]) for row in json.loads(out)] == [
        ("dcell:n=3,k=1", "dr"),
        ("ficonn:n=4,k=2", "dr"),
        ("ficonn:n=4,k=2", "tar"),
    ]
    assert err[0] == (
        "hop_length: 1 cell left out, whose values do not go together: topology=dcell:n=3,k=1 "
        "routing=tar "
        "(tar is for ficonn, whose servers have two ports; got dcell:n=3,k=1)"
    )
    assert sum("left out" in line for line in err) == 1


def test_a_dry_run_says_what_would_be_measured_and_measures_nothing(
    weft, quick_experiment, results, monkeypatch
):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # it needs no root, either
    argv = ["run", "quick", "--set", "size=1,2", "scheme=dr", "--seeds", "1", "--dry-run"]
    assert [row["stored"] for row in json_of(weft(*argv, "--json", "--engine", "kernel"))] == [
        False,
        False,
    ]
    assert not results.exists()
    assert weft("run", "quick", "--set", "size=1", "scheme=dr", "--seeds", "1")[0] == 0
    status, out, err = weft(*argv)
    assert (status, len(err)) == (0, 1)
    assert re.fullmatch(r"1 of 2 runs would be measured, in about \d.*s; 1 are stored", err[0])
    assert [line.split()[-2] for line in out.splitlines()] == ["stored", "------", "yes", "no"]


@pytest.mark.parametrize("command", ["run", "plot", "export"])
def test_help_of_an_experiment_has_its_parameters(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "ttc_theory", "--help"])
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert out.startswith(f"usage: weft {command} ttc_theory [--set ")
    assert "Does TTC's threshold cost the doubly exponential tail of two choices?" in out
    assert re.search(r"default:  60 runs \(12 cells, 5 seeds each\) on the graph engine; ", out)
    assert re.search(r"delta \(packets\): .+\n +default: 0, 1, 2, 3\n +values:  0 \.\. 100\n", out)


@pytest.mark.slow
def test_every_experiment_has_a_help(capsys):
    for name, experiment in definition.discover().items():
        with pytest.raises(SystemExit):
            main(["run", name, "-h"])
        out = capsys.readouterr().out
        words = " ".join(out.split())
        assert all(
            f"  {key}" in out and axis.parameter.meaning in words
            for key, axis in experiment.axes.items()
        )


def test_help_without_an_experiment_is_that_of_the_command(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "--dry-run" in capsys.readouterr().out
    assert main(["run", "ttc_theori", "--help"]) == 2
    assert capsys.readouterr().err.startswith(
        "weft: no experiment 'ttc_theori', did you mean ttc_theory? "
    )


def test_a_run_that_fails_is_told_and_the_others_are_kept(weft, quick_experiment):
    status, out, err = weft(
        "run", "quick", "--set", "scheme=dr,broken", "--set", "size=1", "--seeds", "1", "--json"
    )
    assert status == 1
    assert [row["scheme"] for row in json.loads(out)] == ["dr"]
    assert err[-1] == (
        "weft: quick: scheme=broken size=1 load_fraction=0.5 seed=0 engine=graph failed: "
        "RuntimeError: the reason"
    )


def test_what_must_hold_and_does_not_is_status_1(weft, quick_experiment):
    status, out, err = weft("run", "quick", "--set", "size=6,7", "--seeds", "1", "--json")
    assert (status, len(json.loads(out))) == (1, 4)
    assert err[-1] == "weft: quick: right does not hold in 2 of 4 runs"


def test_the_kernel_engine_has_fidelity_and_needs_root(
    weft, quick_experiment, become_root, monkeypatch
):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    status, _, err = weft("run", "quick", "--engine", "kernel")
    assert status == 2
    assert err[0].startswith(
        "weft: quick: the kernel engine needs root; --engine graph needs none, and `weft uml -- "
    )
    become_root()
    rows = json_of(weft("run", "quick", "--engine", "kernel", "--json"))
    assert {row["size"]: row["fidelity"] for row in rows} == {1: "PASS", 2: "PASS", 3: "FAIL"}


@pytest.mark.slow
def test_plot_draws_what_is_stored(weft, quick_experiment, tmp_path, become_root):
    become_root()
    assert weft("run", "quick", "--engine", "kernel,graph")[0] == 0
    assert weft("plot", "quick") == (0, f"{tmp_path}/results/quick.png\n", [])
    assert (tmp_path / "results" / "quick.png").read_bytes()[:4] == b"\x89PNG"
    assert weft("plot", "quick", "-o", "some.svg", "--set", "size=3")[0] == 0
    foot = "quick   graph, kernel (real clock)   8 runs, seeds 0 to 1   4 failed fidelity (hollow)"
    assert f"{foot}   commit " in Path("some.svg").read_text()


@pytest.mark.slow
def test_runs_whose_package_is_gone_are_one_line(weft, quick_experiment, monkeypatch, results):
    assert weft("run", "quick")[0] == 0
    monkeypatch.undo()
    for command in ("plot", "export"):
        status, _, (line,) = weft(command, "quick", "--results", str(results))
        assert status == 2
        assert line.startswith(f"weft: quick: {results} has its runs, but no package of ")
    assert weft("plot", "quack")[2][0].startswith("weft: no experiment 'quack' (there are: ")


def test_plot_without_a_name_draws_whatever_is_stored(weft, quick_experiment, results):
    assert weft("run", "quick", "--set", "size=1")[0] == 0
    assert weft(*SMALL, "--engine", "fabric")[0] == 0
    status, out, err = weft("plot", "-o", "figs")
    assert (status, out.split(), err) == (0, ["figs/link_loss.png", "figs/quick.png"], [])
    assert all(Path(path).read_bytes()[:4] == b"\x89PNG" for path in out.split())
    assert weft("plot", "-o", "a.png")[0] == 2
    assert weft("plot", "--results", "none")[2] == [
        "weft: nothing is stored in none; weft run measures"
    ]


def test_compare_gives_ratios_of_runs_that_agree_in_the_rest(weft, quick_experiment, tmp_path):
    assert weft("run", "quick", "--json")[0] == 0
    comparison = json_of(weft("compare", "quick", "size=1", "size=3", "--json"))
    assert comparison == [
        {"figure": "area_bytes", "A": 1, "B": 9, "B/A": pytest.approx(9), "low": pytest.approx(9),
         "high": pytest.approx(9), "pairs": 4, "left_out": 0}
    ]  # fmt: skip
    status, out, err = weft("compare", "quick", "size=1", "size=2", "--by", "scheme", "-o", "c.svg")
    assert (status, err) == (0, ["quick: 4 pairs of runs; A is size=1, B is size=2"])
    assert [line.split()[0] for line in out.splitlines()] == [
        "runs",
        "-" * 10,
        "scheme=bfs",
        "scheme=dr",
        "c.svg",
    ]
    assert (tmp_path / "c.svg").read_text().startswith("<?xml")


def test_compare_takes_what_run_took(weft, monkeypatch, quick_experiment):
    """Values of columns that are no parameters, and a scheme whose package is gone."""
    assert weft("run", "quick", "--engine", "graph", "--seeds", "2")[0] == 0
    assert weft("compare", "quick", "seed=0", "seed=1", "--set", "engine=graph")[0] == 0
    gone = replace(quick.EXPERIMENT.axes["scheme"].parameter, words=("dr",))
    monkeypatch.setitem(quick.EXPERIMENT.axes, "scheme", gone.over("dr"))
    assert weft("compare", "quick", "scheme=dr", "scheme=bfs")[0] == 0


def test_compare_takes_other_folders_of_results(weft, quick_experiment, tmp_path, results):
    assert weft("run", "quick", "--set", "size=2")[0] == 0
    assert weft("run", "quick", "--set", "size=2,3", "--results", "other")[0] == 0
    [comparison] = json_of(weft("compare", "quick", str(results), "other", "--json"))
    assert (comparison["B/A"], comparison["pairs"]) == (pytest.approx(1), 4)
    assert weft("run", "quick", "--set", "size=3", "--results", "third")[0] == 0
    says = f"weft: quick: 4 runs of {results} and 4 of third, none of which agree in the rest"
    assert weft("compare", "quick", str(results), "third")[::2] == (2, [says])


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["size=1", "size=7"], "nothing of quick with size=7 is stored in "),
        (["size=1", "elsewhere"], "'elsewhere': neither KEY=VALUE nor a folder of results"),
        (["size=1", "colour=7"], "quick: no parameter 'colour'"),
        (["size=1", "size=2", "--columns", "volume"], "quick: no figure 'volume'"),
        (["size=1", "size=2", "--by", "volume"], "quick: no parameter 'volume'"),
    ],
)
def test_compare_says_what_is_wrong(weft, quick_experiment, argv, says):
    assert weft("run", "quick")[0] == 0
    status, out, err = weft("compare", "quick", *argv)
    assert (status, out, len(err)) == (2, "", 1)
    assert err[0].startswith(f"weft: {says}")


def test_report_is_one_page_that_loads_nothing(weft, quick_experiment, results, monkeypatch):
    assert weft("report")[::2] == (2, [f"weft: nothing is stored in {results}; weft run measures"])
    assert weft("run", "quick", "--set", "size=2,5")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(Store, "table", raising(AssertionError("it reads the rows first")))
        said = f"weft: {results}: this file cannot be written"
        assert weft("report", "-o", str(results))[::2] == (2, [said])
    assert weft("report") == (0, f"{results}/report.html\n", [])
    page = (results / "report.html").read_text()
    assert "weft run quick --set size=2,5</pre>" in page
    assert "How large is a square?" in page
    assert re.findall(r'(?:src|href)="([^#"]{4})', page) == ["data"]
    assert '<td class="number">25</td>' in page
    assert "<td>the same rows</td><td>right</td>" in page  # of the appendix, for who repeats it
    assert " kB of disk" in page


def test_report_explains_the_columns(weft, results, monkeypatch):
    explained = replace(quick.EXPERIMENT, columns={"area_bytes": "its <area>"})
    monkeypatch.setattr(definition, "find", lambda name: explained)
    assert weft("run", "quick", "--set", "size=2")[0] == 0
    assert weft("report")[0] == 0
    page = (results / "report.html").read_text()
    assert (
        '<code>area_bytes</code></td><td>bytes</td><td class="words">its &lt;area&gt;</td>' in page
    )
    assert "<code>delays_us</code>" not in page  # nobody says what it is


def test_export_writes_what_is_stored(weft, quick_experiment, tmp_path):
    rows = json_of(
        weft(
            "run",
            "quick",
            "--set",
            "size=1,2",
            "scheme=dr",
            "--seeds",
            "1",
            "--engine",
            "graph",
            "--json",
        )
    )
    status, out, err = weft("export", "quick", "--format", "json")
    assert (status, json.loads(out), err) == (0, rows, [])
    with_it = json.loads(weft("export", "quick", "--format", "json", "--provenance")[1])
    assert [row.pop("provenance")["seen"] for row in with_it] == ["here", "here"]
    assert with_it == rows
    _, out, _ = weft("export", "quick", "--set", "size=2")
    read = list(csv.DictReader(io.StringIO(out)))
    assert [(row["size"], row["area_bytes"], row["delays_us"], row["right"]) for row in read] == [
        ("2", "4", "[1.5, 0]", "true")
    ]
    assert weft("export", "quick", "-o", "a.csv")[:2] == (0, "")
    assert len(Path("a.csv").read_text().splitlines()) == 3


def test_export_to_parquet(weft, quick_experiment, tmp_path, become_root):
    parquet = pytest.importorskip("pyarrow.parquet")
    engines = ["--engine", "graph,kernel"]  # of which only one has fidelity
    become_root()
    rows = json_of(
        weft("run", "quick", "--set", "size=1", "scheme=dr", "--seeds", "1", *engines, "--json")
    )
    assert weft("export", "quick", "--format", "parquet", "-o", "a.parquet") == (0, "", [])
    read = parquet.read_table("a.parquet").to_pylist()
    assert [{key: value for key, value in row.items() if value is not None} for row in read] == rows


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["export", "quick"], "nothing of quick is stored in "),
        (["export", "quick", "--set", "size=-1"], "quick: size must be at least 0, got -1"),
        (
            ["export", "quick", "--format", "parquet"],
            "--format parquet needs -o FILE: Parquet is binary",
        ),
        (
            ["export", "quick", "--format", "xml"],
            "no --format 'xml' (there are: csv, json, parquet)",
        ),
        (["export", "quick", "--provenance"], "--provenance needs --format json, not csv"),
    ],
)
def test_what_cannot_be_exported_is_one_line(weft, quick_experiment, argv, says, results):
    status, out, err = weft(*argv)
    assert (status, out, len(err)) == (2, "", 1)
    assert err[0].startswith(f"weft: {says}")
    assert not results.exists()


@pytest.mark.slow
def test_nothing_but_parquet_needs_pyarrow(weft, quick_experiment, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert weft("run", "quick", "--set", "size=1", "--jobs", "2")[0] == 0
    assert [weft(command, "quick")[0] for command in ("plot", "export")] == [0, 0]
    assert weft("list")[0] == 0


def test_parquet_without_pyarrow_says_what_to_install(weft, quick_experiment, monkeypatch):
    assert weft("run", "quick", "--set", "size=1")[0] == 0
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    says = "weft: --format parquet needs pyarrow: pip install 'weft-testbed[parquet]'"
    assert weft("export", "quick", "--format", "parquet", "-o", "a") == (2, "", [says])
    assert not Path("a").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_figures_and_exports_made_under_sudo_belong_to_who_called_it(
    weft, quick_experiment, monkeypatch
):
    Path("old.csv").write_text("")
    monkeypatch.setenv("SUDO_UID", "1234")
    assert weft("run", "quick", "--set", "size=1")[0] == 0
    assert weft("plot", "-o", "new")[0] == 0
    for name in ("a.csv", "old.csv"):
        assert weft("export", "quick", "-o", name)[0] == 0
    owners = {
        name: Path(name).stat().st_uid
        for name in ("new", "new/quick.png", "a.csv", "old.csv", "results")
    }
    assert owners == {
        "new": 1234,
        "new/quick.png": 1234,
        "a.csv": 1234,
        "old.csv": 0,
        "results": 1234,
    }


def test_link_loss_is_drawn(weft, tmp_path):
    assert weft(*SMALL, "--engine", "fabric")[0] == 0
    assert weft("plot", "link_loss", "-o", "a.pdf")[0] == 0
    assert Path("a.pdf").read_bytes()[:4] == b"%PDF"


# -- list, version, help, errors


def test_list_names_what_there_is(weft, monkeypatch):
    catalogue = json_of(weft("list", "--json"))
    assert {"first_light", "link_loss"} <= {entry["name"] for entry in catalogue["experiments"]}
    assert {"dcell", "fattree"} <= {entry["name"] for entry in catalogue["topologies"]}
    assert {"dr", "bfs", "ecmp"} <= {entry["name"] for entry in catalogue["routing"]}
    _, out, _ = weft("list")
    for kind in catalogue.values():
        assert all(entry["name"] in out for entry in kind)
    assert len(out.splitlines()) == sum(map(len, catalogue.values())) + 6 + 2, (
        "a line each, six titles, planes and file:PATH"
    )
    _, schemes_out, _ = weft("list", "schemes")
    assert {line.split()[0] for line in schemes_out.splitlines()[1:]} == set(schemes())
    assert "n: servers of a level-0 switch, at least 3" in weft("list", "dcell")[1]
    assert "delta: " in weft("list", "ttc")[1]
    assert "8, or on several planes as many for each, 1 to 255, may" in weft("list", "ndp")[1]
    with monkeypatch.context() as patch:
        patch.setattr(definition, "names", lambda: pytest.fail("experiments are imported"))
        assert weft("list", "networks")[0] == weft("list", "ficonn")[0] == 0
    status, _, err = weft("list", "dcel")
    assert (status, len(err)) == (2, 1)
    assert "did you mean dcell?" in err[0]


@pytest.mark.parametrize("section", ["networks", "schemes", "transports", "patterns"])
def test_every_line_of_a_list_names_an_entry(weft, section):
    for line in weft("list", section)[1].splitlines()[1:]:
        name = line.split()[0]
        for what in (name, name.partition(":")[0]):
            assert weft("list", what)[0] == 0
    assert "K copies of a switch fabric" in weft("list", "planes:k=2,of=star:n=3")[1]
    assert "a graph file" in weft("list", "file")[1]


def test_version(weft):
    assert re.fullmatch(rf"weft \d+\.\d+\.\d+ \({ROOT}\)\n", weft("--version")[1])


def raising(error):
    def command(parameters):
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (PermissionError(13, "Permission denied", "/x"), 1, "weft: /x: Permission denied"),
        (
            PermissionError(13, "Permission denied", "star:n=4"),
            2,
            "weft: star:n=4: Permission denied",
        ),
        (
            PermissionError(13, "Permission denied", "star:n=4/results.sqlite"),
            2,
            "weft: star:n=4/results.sqlite: Permission denied",
        ),
        (PermissionError(13, "Permission denied", "star"), 1, "weft: star: Permission denied"),
        (PermissionError(13, "interface h0"), 1, "weft: [Errno 13] interface h0"),
        (TimeoutError("10 routes on h1:\n still 3"), 1, "weft: 10 routes on h1: still 3"),
        (KeyboardInterrupt(), 130, "weft: interrupted"),
        (cli.Terminated(), 143, "weft: terminated"),
    ],
)
def test_what_the_system_refuses_is_one_line(weft, monkeypatch, error, status, says):
    monkeypatch.setattr(graph_commands, "topo", raising(error))
    assert weft("topo", "star:n=4") == (status, "", [says])


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (
            "mininet.net",
            "weft: this needs Mininet of the system: `apt-get install mininet`",
        ),
        ("distributed", "weft: this needs dask.distributed: pip install 'weft-testbed[cluster]'"),
        ("scapy.all", "weft: this needs scapy: pip install 'weft-testbed[packets]'"),
        ("seaborn", f"weft: this needs the Python package seaborn, which {sys.prefix} lacks"),
    ],
)
def test_a_missing_package_is_one_line_that_says_how_to_get_it(weft, monkeypatch, module, says):
    def missing(parameters):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(graph_commands, "list_all", missing)
    status, out, err = weft("list")
    assert (status, out, len(err)) == (2, "", 1)
    assert err[0].startswith(says)


def test_what_is_not_foreseen_is_one_line_and_a_file(weft, monkeypatch):
    monkeypatch.setattr(graph_commands, "topo", raising(KeyError("odd")))
    status, _, (line,) = weft("topo", "star:n=4")
    match = re.fullmatch(r"weft: KeyError: 'odd' \(all of it in (\S+)\)", line)
    text = Path(match[1]).read_text()
    Path(match[1]).unlink()
    assert status == 1
    assert "Traceback" in text
    assert "raise error" in text


def test_the_list_of_runs_says_how_to_remove_what_a_dead_one_left(weft, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "DIRECTORY", tmp_path / "runs")
    assert weft("ps") == (0, "", ["no run is up"])
    kept = run.reserve("demo")
    assert weft("ps")[::2] == (0, [])
    kept.release()
    assert weft("ps")[::2] == (0, ["dead: demo; `weft clean` removes what is left"])
    status, text, complaints = weft("ps", "--json")
    assert (status, json.loads(text)[0]["state"], complaints) == (0, "dead", [])


def test_events_of_a_run_whose_package_is_gone_are_one_line(weft, become_root, monkeypatch):
    become_root()
    monkeypatch.setattr(Handle, "open", raising(ValueError("no family 'gone'")))
    assert weft("events") == (2, "", ["weft: no family 'gone'"])


def test_an_error_in_code_of_a_package_names_package_file_and_line(weft, monkeypatch, tmp_path):
    about = tmp_path / "weft_odd-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: weft-odd\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[weft.schemes]\nodd = weft_odd\n")
    code = tmp_path / "weft_odd.py"
    code.write_text("def order(hops):\n    return hops['odd']\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        graph_commands, "topo", lambda arguments: importlib.import_module("weft_odd").order({})
    )
    status, _, (line,) = weft("topo", "star:n=4")
    assert status == 1
    assert line.startswith(f"weft: weft_odd, {code}:2: KeyError: 'odd' (all of it in ")
    Path(line.rpartition(" ")[2].removesuffix(")")).unlink()


@pytest.mark.parametrize(
    ("entry", "code", "status", "says"),
    [
        ("odd = weft_odd", "raise SystemExit(3)", 2, "family odd, weft_odd: SystemExit: 3"),
        (
            "odd = weft_odd",
            "FAMILIES = {'odd': 5}",
            2,
            "family odd, weft_odd: TypeError: 5 is no",
        ),
        ("odd = weft_odd", "raise GeneratorExit('skip')", 1, "weft_odd, .*:1: GeneratorExit: skip"),
        ("odd = weft_odd:", "raise KeyError", 2, "family odd, weft_odd: KeyError"),
        ("odd = 1:2:3", "", 2, "family odd, 1: ModuleNotFoundError: "),
        ("odd =", "", 2, "family odd, : ValueError: Empty module name"),
    ],
)
def test_a_package_that_fails_in_any_way_is_one_line(
    weft, monkeypatch, tmp_path, entry, code, status, says
):
    about = tmp_path / "weft_odd-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: weft-odd\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[weft.topologies]\n{entry}\n")
    (tmp_path / "weft_odd.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "weft_odd", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert weft("topo", "star:n=4")[0] == 0
    found, _, (line,) = weft("topo", "odd:n=3")
    assert found == status
    assert re.match(f"weft: {says}", line)
    assert line.endswith("(no temporary folder takes its traceback)") == (status == 1)


@pytest.mark.parametrize(
    ("group", "words", "kind"),
    [
        ("topologies", ["networks"], "family odd, weft_odd"),
        ("topologies", ["ficonn"], "family odd, weft_odd"),
        ("experiments", ["experiments"], "experiment odd, weft_odd"),
        ("experiments", ["--json"], "experiment odd, weft_odd"),
    ],
)
def test_a_package_that_fails_is_left_out_of_a_list(
    weft, monkeypatch, tmp_path, group, words, kind
):
    before, listed, _ = weft("list", *words)
    about = tmp_path / "weft_odd-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: weft-odd\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[weft.{group}]\nodd = weft_odd\n")
    (tmp_path / "weft_odd.py").write_text("raise KeyError('lost')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "weft_odd", raising=False)
    failure = f"weft: left out: {kind}: KeyError: 'lost'"
    assert weft("list", *words) == (before, listed, [failure]) == (0, listed, [failure])


@pytest.mark.parametrize(
    ("words", "closed", "status", "said"),
    [
        ("star:n=2", ">&-", 0, ""),
        ("star:n=0", "2>&-", 2, ""),
        ("star:n=0", "2>/dev/full", 2, ""),
        ("star:n=2", "<&-", 0, "name"),
    ],
)
def test_streams_that_are_closed_or_full_change_no_status(words, closed, status, said):
    command = f"exec {sys.executable} -m weft.experiments.cli.cli topo {words} {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout[:4], done.stderr) == (status, said, "")


def test_an_interrupt_while_modules_are_imported_is_one_line():
    code = """
import sys
from importlib import metadata

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "weft.experiments.cli.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
(program,) = metadata.entry_points(group="console_scripts", name="weft")
sys.exit(program.load()())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"weft: interrupted\n")


def test_nothing_is_said_when_the_reader_goes_away():
    command = [sys.executable, "-m", "weft.experiments.cli.cli", "topo", "dcell:n=4,k=2", "--nodes"]
    # Through a pipe that does not hold all of it, or it may have ended before the reader goes.
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, pipesize=4096
    ) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert (process.wait(), process.stderr.read()) == (141, b"")


def test_no_command_is_help(weft):
    status, out, _ = weft()
    assert status == 2
    assert out.startswith("usage: weft ")


def test_help_comes_at_once():
    """Without what takes long to import, whatever the machine's load."""
    code = "import sys; from weft.experiments.cli.cli import main; main(['--help'])"
    code = f"try:\n {code}\nexcept SystemExit:\n pass\nprint('MODULES', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    text, _, modules = done.stdout.partition("MODULES")
    assert all(
        name in text for name in ("list", "topo", "route", "run", "plot", "up", "down", "doctor")
    )
    assert not {"numpy", "matplotlib", "pyarrow", "rich", "mininet", "numba", "networkx"} & set(
        modules.split()
    )


def test_progress_is_plain_lines_where_there_is_no_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(console, "QUIET_S", 0.0)
    runs = quick.EXPERIMENT.runs(seeds=1)
    with console.Bar("quick", 6, ticking=False, beginning="code is compiled") as bar:
        bar.timer.join()
        bar.began -= 1000
        for run in runs:
            bar.ended(run, None, 1.0, 999.0)  # code that is compiled is not compiled again
    first, *others = stream.getvalue().splitlines()
    assert first == "quick: 0 of 6 runs, code is compiled"
    assert others == [
        f"quick: {count} of 6 runs, {console.duration((6 - count) / count)} left"
        for count in range(1, 6)
    ]


def test_a_drawing_says_that_it_goes_on(weft, monkeypatch, tmp_path):
    monkeypatch.setattr(console, "QUIET_S", 0.0)
    monkeypatch.setattr(console, "_file", lambda: tmp_path / "times.json")
    status, _, err = weft("topo", "fattree:k=4", "--plot", str(tmp_path / "network.png"))
    assert (status, err) == (0, ["drawing"])


def test_a_table_tells_its_rows_apart_by_parameters_however_long_they_are():
    from weft.experiments.cli.run_commands import columns

    long = "jellyfish:n=1056,r=32,p=16,seed="
    rows = [
        {
            "topology": f"{long}{seed}",
            "scheme": "a" * 40,
            "seed": 0,
            "note": f"{seed}" * 40,
            "list": [1],
            "run": "x",
        }
        for seed in (1, 2)
    ]
    assert columns(rows, ["topology", "scheme"]) == ["topology", "seed"]


def test_every_command_names_a_run_by_the_same_option():
    commands = next(
        action for action in cli.parser()._actions if isinstance(action.choices, dict)
    ).choices
    of_a_run = {
        name: action.option_strings
        for name, command in commands.items()
        for action in command._actions
        if action.dest == "run"
    }
    assert {"down", "view", "events", "save", "clean", "exec", "status", "log", "capture"} <= set(
        of_a_run
    )
    assert all(options == ["--run"] for options in of_a_run.values())
