import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from weft.daemons.routing import shortest
from weft.daemons.simulator.flows import Flows
from weft.daemons.simulator.viewer_session import ALL, HIDDEN, URGENT, ViewerSession
from weft.topologies import build
from weft.topologies.core.failures import fail_links
from weft.topologies.core.plain_topology import PlainTopology

NETWORK = "dcell:n=4,k=1"


def open_session(scheme="dr", spec=NETWORK):
    return ViewerSession(build(spec), scheme, Random(1))


def events(session, until_us, packets=HIDDEN):
    return json.loads(session.run(until_us, packets))


def do(session, **request):
    return json.loads(session.do(json.dumps(request)))


def events_of_kind(rows, kind):
    return [row for row in rows if row["event"] == kind]


def lost_pairs(rows):
    return [row["lost"] for row in events_of_kind(rows, "pairs")]


@pytest.mark.parametrize("seed", range(4))
def test_where_daemons_look_at_flows_each_host_sends_one_to_another(seed, monkeypatch):
    begun = []
    monkeypatch.setattr(Flows, "begin", lambda flows, src, dst: begun.append((src, dst)))
    events(ViewerSession(build("clos:n=3,r=3,m=3"), "dar", Random(seed)), 2_000_000)
    assert [src for src, _ in begun] == list(range(9))
    assert all(src != dst for src, dst in begun)


def test_pairs_are_lost_while_a_link_is_silent():
    session = open_session()
    start = events(session, 1_000_000)
    assert start[0]["event"] == "network"
    assert (len(start[0]["nodes"]), len(start[0]["links"])) == (25, 30)
    assert lost_pairs(start)[0] == 380, "nothing arrives before daemons have started"
    assert lost_pairs(start)[-1] == 0
    assert do(session, do="fail", what="h0-h4", silent=True) == {}
    failed = events(session, 2_000_000)
    assert lost_pairs(failed) == [32]
    assert {row["node"] for row in events_of_kind(failed, "neighbour")} == {"h0", "h4"}
    assert do(session, do="path", src="h0", dst="h4")["reason"] == "no route at h0"
    do(session, do="restore", what="h0-h4")
    assert lost_pairs(events(session, 3_000_000)) == [0]
    assert do(session, do="path", src="h0", dst="h4") == {
        "nodes": ["h0", "h4"],
        "links": ["h0-h4"],
        "reason": "",
    }


def test_the_division_of_time_changes_nothing():
    whole, parts = open_session("dfr"), open_session("dfr")
    once = []
    pieces = []
    for us in (700_000, 2_000_000):
        once += events(whole, us)
        pieces += [row for part in range(9, -1, -1) for row in events(parts, us - part * 1000)]
        for session in (whole, parts):
            do(session, do="fail", what="h12")
    changes = ("neighbour", "log", "link", "pairs")
    for kind in changes:
        assert events_of_kind(once, kind) == events_of_kind(pieces, kind)


@pytest.mark.parametrize(
    ("spec", "scheme"),
    [(NETWORK, "pr-gpi"), (NETWORK, "bfs"), ("fattree:k=4", "lbsp"), ("ficonn:n=4,k=1", "tar")],
)
def test_a_topology_of_lists_gives_the_same_events(spec, scheme):
    topology = build(spec)
    sessions = [
        ViewerSession(network, scheme, Random(5)) for network in (topology, PlainTopology(topology))
    ]
    for session in sessions:
        do(session, do="fail", what=topology.link_name(len(topology.links) - 1))
    first, second = (session.run(1_500_000, ALL) for session in sessions)
    assert first == second


def test_a_session_needs_no_numpy(tmp_path):
    import pickle

    (tmp_path / "network").write_bytes(pickle.dumps(PlainTopology(build("fattree:k=4"))))
    program = (
        "import pickle, random, sys\n"
        "sys.modules['numpy'] = None\n"
        "from weft.daemons.simulator.viewer_session import ViewerSession\n"
        "topology = pickle.load(open(sys.argv[1], 'rb'))\n"
        "for scheme in ('ecmp', 'lbsp'):\n"
        "    ViewerSession(topology, scheme, random.Random(1)).run(1_000_000, 0)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "network")], check=True)
    assert Path(tmp_path / "network").stat().st_size < 10_000


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"do": "impair", "loss": "200"}, "loss: per cent of packets, 0 to 100, got '200'"),
        ({"do": "impair", "loss": "nan"}, "loss: per cent of packets, 0 to 100, got 'nan'"),
        ({"do": "impair", "delay": "-5ms"}, "delay: '-5ms' is not a delay; write it as in 1ms"),
        ({"do": "impair", "delay": "infms"}, "delay: 'infms' is not a delay; write it as in 1ms"),
        ({"do": "fail", "silent": "false"}, "silent: true or false, got 'false'"),
    ],
)
def test_a_wrong_value_changes_nothing(request_, error):
    session = open_session()
    events(session, 1_000)
    name = "what" if request_["do"] == "fail" else "link"
    assert do(session, **request_, **{name: "h0-h4"}) == {"error": error}
    assert not events_of_kind(events(session, 2_000), "link")


def test_a_daemon_is_killed_and_started_and_a_node_loses_power():
    session = open_session()
    events(session, 1_000_000)

    def row(until_us):
        return events_of_kind(events(session, until_us), "daemons")[-1]["daemons"]["h5"]

    do(session, do="stop", node="h5")
    assert row(1_010_000)["pid"] is None
    assert not do(session, do="path", src="h5", dst="h6")["reason"], "it goes on forwarding"
    do(session, do="restart", node="h5")
    assert row(1_500_000)["converged"]
    do(session, do="power", node="h5")
    assert row(1_510_000)["pid"] is None
    assert do(session, do="path", src="h6", dst="h5")["reason"] == "h5 has no power"


def test_a_failure_is_reported_before_its_detection():
    session = open_session()
    events(session, 1_000_000)
    do(session, do="fail", what="h0-h4")
    kinds = [row["event"] for row in events(session, 1_001_000)]
    assert kinds.index("link") < kinds.index("neighbour")


def test_packets_are_named_by_their_messages():
    session = open_session("dfr")
    packets = events_of_kind(events(session, 300_000, ALL), "packets")[0]["packets"]
    assert {kind for _, _, _, kind in packets} >= {"hello", "link_states"}
    do(session, do="fail", what="h0-h4")
    packets = events_of_kind(events(session, 400_000, URGENT), "packets")[0]["packets"]
    assert "link_states" in {kind for _, _, _, kind in packets}


def test_a_link_is_impaired_and_reported_as_degraded():
    session = open_session("lbsp", "fattree:k=4")
    events(session, 1_000_000)
    link = "e1.0-a1.0"
    do(session, do="impair", link=link, loss="10", delay="5ms")
    do(session, do="degrade", link=link)
    assert do(session, do="link", link=link) == {
        "loss_percent": 10.0,
        "delay_us": 5000,
        "degraded": True,
    }
    assert events_of_kind(events(session, 1_100_000), "link")[-1]["altered"]
    do(session, do="restore", what=link)
    assert not do(session, do="link", link=link)["degraded"]
    assert "lbsp does" in do(open_session(), do="degrade", link="h0-h4")["error"]


def test_a_wrong_request_is_answered_by_one_line():
    session = open_session()
    assert "unknown request" in do(session, do="explode")["error"]
    assert "unknown request" in do(session, do="fail", where="h0")["error"]
    assert "no server h99" in do(session, do="fail", what="h99")["error"]
    assert do(session, do="stop", node="w0") == {"error": "w0 has no daemon"}


def enumerate_paths(topology, src, dst):
    """Return all shortest paths by name, each with its share: 1 / branches at each switch."""
    paths = [tuple(path) for path in shortest.paths(topology.adjacency, src, dst)]
    shares = {}
    for path in paths:
        share = 1.0
        for length in range(1, len(path)):
            share /= len({other[length] for other in paths if other[:length] == path[:length]})
        shares[tuple(map(topology.naming.name, path))] = share
    return shares


@pytest.mark.parametrize("plain", [True, False])
def test_paths_of_a_pair_have_the_shares_of_an_enumeration(plain):
    topology = build("fattree:k=4")
    session = ViewerSession(PlainTopology(topology) if plain else topology, "ecmp", Random(1))
    events(session, 1_000_000)

    def path_reply():
        reply = do(session, do="path", src="h0", dst="h15")
        assert not reply["by_queues"]
        assert {link for path in reply["paths"] for link in path["links"]} >= set(reply["links"])
        return {tuple(path["nodes"]): path["share"] for path in reply["paths"]}

    assert path_reply() == enumerate_paths(topology, 0, 15)
    assert list(path_reply().values()) == [0.25] * 4
    path = next(iter(path_reply()))
    core = f"{path[2]}-{path[3]}"
    do(session, do="fail", what=core)
    events(session, 2_000_000)
    live = fail_links(topology, [topology.link(core)])
    assert path_reply() == pytest.approx(enumerate_paths(live, 0, 15))
    assert sorted(path_reply().values()) == [0.25, 0.25, 0.5]
    do(session, do="restore", what=core)
    do(session, do="power", node=path[2])
    events(session, 3_000_000)
    assert sorted(path_reply().values()) == [0.5, 0.5]


def test_shares_of_queues_are_named_and_a_single_path_has_none():
    fabric = open_session("drill", "fattree:k=4")
    events(fabric, 1_000_000)
    reply = do(fabric, do="path", src="h0", dst="h15")
    assert reply["by_queues"]
    assert [path["share"] for path in reply["paths"]] == [0.25] * 4
    assert "paths" not in do(fabric, do="path", src="h0", dst="h1")
    servers = open_session()
    events(servers, 1_000_000)
    assert "paths" not in do(servers, do="path", src="h0", dst="h4")
