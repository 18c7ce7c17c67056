import json

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.topologies import build, canonical
from weft.topologies.core import grammar
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.user_graph import MOST_SWITCHES, document, parse, topology_of


def names(topology):
    return [topology.naming.name(node) for node in range(topology.nodes)]


def edges(topology):
    own = names(topology)
    return {frozenset((own[a], own[b])) for a, _, b, _ in topology.links.tolist()}


def triangle():
    graph = nx.Graph()
    graph.add_node("zur", kind="switch")
    graph.add_node("gen", kind="switch")
    graph.add_node("web", kind="host")
    graph.add_node("mil", kind="switch", hosts=2)
    graph.add_edge("zur", "gen", rate="10gbit", role="local")
    graph.add_edge("gen", "mil", rate=1_000_000)
    graph.add_edge("mil", "zur")
    graph.add_edge("gen", "web", rate="1gbit")
    return graph


def test_names_links_rates_and_roles_are_the_graphs():
    topology = topology_of(triangle())
    topology.check()
    assert names(topology) == ["web", "mil.0", "mil.1", "zur", "gen", "mil"]
    assert [topology.naming.node(name) for name in names(topology)] == list(range(6))
    between = {frozenset(pair) for pair in (("zur", "gen"), ("gen", "mil"), ("mil", "zur"))}
    assert edges(topology) == between | {
        frozenset(pair) for pair in (("web", "gen"), ("mil.0", "mil"), ("mil.1", "mil"))
    }
    rates = {topology.link_name(link): int(rate) for link, rate in enumerate(topology.rates_bps)}
    assert {name: rate for name, rate in rates.items() if rate} == {
        "web-gen": 10**9,
        "zur-gen": 10**10,
        "gen-mil": 10**6,
    }
    assert [topology.roles[level] for level in topology.level] == ["host"] * 3 + ["local"] + [
        "global"
    ] * 2
    assert [port for port, *_ in topology.ports(5)] == [0, 1, 2, 3]


def test_addresses_are_those_of_switch_and_host():
    topology = topology_of(triangle())
    addresses = [topology.naming.address(node) for node in range(topology.nodes)]
    assert addresses == [
        10 << 24 | 1 << 8,
        10 << 24 | 2 << 8,
        10 << 24 | 2 << 8 | 1,
        *(0xAC110000 + i for i in range(3)),
    ]
    layout = topology.naming.layout
    assert len({layout.prefix((switch,)) for switch in range(3)}) == 3
    assert [layout.label_of(host) for host in range(3)] == [(1, 0), (2, 0), (2, 1)]
    assert [layout.number_of(layout.label_of(host)) for host in range(3)] == [0, 1, 2]
    for none in ((0, 0), (1, 1), (2, 2), (3, 0), (1,)):
        with pytest.raises(ValueError, match=r"no host s.*: they are s<switch>\.<host>"):
            layout.number_of(none)


@pytest.mark.parametrize(
    "own",
    [["New York", "Rome", "Oslo"], ["a-b", "c", "d"], ["toolongname", "b", "c"], ["X", "x", "y"]],
)
def test_names_that_no_interface_can_have_are_labels(own):
    graph = nx.relabel_nodes(nx.path_graph(3), dict(enumerate(own)))
    topology = topology_of(graph)
    assert names(topology) == ["h0", "h1", "h2", "r0", "r1", "r2"]
    assert [topology.naming.label(node) for node in range(6)] == [f"{name}.0" for name in own] + own
    assert [topology.naming.node(name) for name in own] == [3, 4, 5]
    assert [topology.naming.node(name) for name in names(topology)] == list(range(6))


def test_names_that_look_like_ours_are_kept_and_mean_the_graphs_nodes():
    graph = nx.relabel_nodes(nx.path_graph(3), {0: "s1", 1: "h1", 2: "s2.0"})
    graph.nodes["h1"]["hosts"] = 2
    topology = topology_of(graph)
    assert names(topology) == ["h1.0", "h1.1", "s1", "h1", "s2.0"]
    assert [topology.naming.node(name) for name in names(topology)] == list(range(5))
    with pytest.raises(ValueError, match=r"no node 'h0': the first is h1\.0"):
        topology.naming.node("h0")


def test_what_our_nodes_are_called_goes_before_labels_that_look_alike():
    topology = topology_of(nx.relabel_nodes(nx.path_graph(3), {0: "h2", 1: "h0", 2: "a long name"}))
    assert names(topology) == ["h0", "h1", "h2", "r0", "r1", "r2"]
    assert [topology.naming.node(name) for name in ("h2", "r0", "a long name")] == [2, 3, 5]


def test_parallel_links_are_kept_each_with_what_it_carries():
    graph = nx.MultiGraph(
        [
            ("s1", "s2", {"rate": "10mbit", "queue": 7, "delay": "2ms", "loss": 0.5}),
            ("s1", "s2"),
            ("s2", "s3"),
        ]
    )
    topology = topology_of(graph)
    topology.check()
    named = [topology.link_name(link) for link in range(len(topology.links))]
    assert named[3:] == ["s1-s2", "s1-s2:2", "s2-s3"]
    assert [topology.link(name) for name in named] == list(range(6))
    spec = LinkSpec(rate_bps=10_000_000, queue_packets=7, delay_us=2000, loss_ppb=5_000_000)
    assert topology.own_links == {3: spec}
    again = parse(document(topology), suffix=".json", spec="again")
    assert again.links.tolist() == topology.links.tolist()
    assert again.own_links == topology.own_links
    with pytest.raises(ValueError, match="no link s1-s2:3: 2 join s1 and s2"):
        topology.link("s1-s2:3")


def test_a_directed_graphs_two_edges_are_one_link():
    graph = nx.MultiDiGraph([("a", "b"), ("b", "a"), ("a", "b"), ("b", "c")])
    assert len(topology_of(graph).links) == 3 + 3


@pytest.mark.parametrize(
    ("suffix", "write"),
    [
        (".graphml", lambda graph: "\n".join(nx.generate_graphml(graph))),
        (".json", lambda graph: json.dumps(nx.node_link_data(graph, edges="links"))),
        (".json", lambda graph: json.dumps(nx.node_link_data(graph, edges="edges"))),
        (
            ".edges",
            lambda graph: (
                "# a comment\n"
                + "\n".join(
                    " ".join([a, b, *(f"{key}={value}" for key, value in data.items())])
                    for a, b, data in graph.edges(data=True)
                )
            ),
        ),
    ],
)
def test_every_format_says_the_same(suffix, write):
    graph = nx.relabel_nodes(nx.petersen_graph(), str)
    nx.set_edge_attributes(graph, "2gbit", "rate")
    expected = topology_of(graph, p=2)
    found = parse(write(graph), suffix=suffix, spec="it", p=2)
    own = [expected.naming.label(node) for node in range(expected.nodes)]
    ends = lambda topology: {  # noqa: E731
        frozenset((topology.naming.label(a), topology.naming.label(b)))
        for a, _, b, _ in topology.links.tolist()
    }
    assert ends(found) == ends(expected)
    assert sorted(own) == sorted(found.naming.label(node) for node in range(found.nodes))
    assert sorted(found.rates_bps.tolist()) == sorted(expected.rates_bps.tolist())
    assert found.rates_bps.max() == 2 * 10**9


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 9), st.integers(0, 1000), st.data())
def test_a_document_gives_the_same_network_again(size, seed, data):
    graph = nx.connected_watts_strogatz_graph(size + 2, 2, 0.5, seed=seed)
    for node in list(graph):
        graph.nodes[node]["kind"] = "switch"
        if data.draw(st.booleans()):
            graph.nodes[node]["hosts"] = data.draw(st.integers(0, 3))
    for a, b in graph.edges:
        graph.edges[a, b]["role"] = data.draw(st.sampled_from(["local", "global"]))
    for extra in range(2):
        graph.add_node(f"x{extra}", kind="host")
        graph.add_edge(
            f"x{extra}",
            data.draw(st.integers(0, size)),
            rate=data.draw(st.just(0) | st.integers(8000, 10**10)),
        )
    first = topology_of(graph)
    again = parse(document(first), suffix=".json", spec=first.spec)
    assert (again.links == first.links).all()
    assert (again.level == first.level).all()
    assert again.roles == first.roles
    assert again.naming.own == first.naming.own
    assert again.rates_bps.tolist() == first.rates_bps.tolist()


def test_a_files_name_holds_a_digest(tmp_path):
    path = tmp_path / "ring.edges"
    path.write_text("a b\nb c\nc a\n")
    spec = canonical(f"file:{path}")
    assert spec == build(spec).spec == build(f"file:{path}").spec
    assert build(f"file:{path},p=4").servers == 12
    path.write_text("a b\nb c\n")
    with pytest.raises(ValueError, match=r"the file has changed, it is [0-9a-f]{8} now$"):
        build(spec)
    with pytest.raises(ValueError, match=r"no\.edges: No such file or directory$"):
        build(f"file:{tmp_path}/no.edges")
    with pytest.raises(ValueError, match=r"^'file:': expected file:PATH or file:PATH,p=HOSTS$"):
        build("file:")


def test_nothing_reads_a_file_where_weft_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(grammar, "SERVICES", "weft.other")
    with pytest.raises(ValueError, match=r"^file:ring\.edges: weft is not installed here, so no "):
        build("file:ring.edges")
    assert build("star:n=2")._repr_svg_() is None


def graph_with(**data):
    graph = nx.path_graph(3)
    for key, value in data.items():
        nx.set_node_attributes(graph, {0: value}, key)
    return graph


@pytest.mark.parametrize(
    ("graph", "line"),
    [
        (nx.Graph([(0, 1), (1, 1)]), "it: 1 is joined to itself"),
        (
            nx.Graph([("a", "b", {"queue": 3})]),
            "it: a-b: queue needs a rate: without one a link is as fast as the machine",
        ),
        (
            nx.Graph([("a", "b", {"rate": 5})]),
            "it: a-b: link: rate_bps must be at least 8000, got 5",
        ),
        (nx.Graph([(0, 1), (2, 3)]), "it: no path leads from 0 to 2"),
        (nx.Graph(), "it: there must be 1 .. 65536 switches, got 0"),
        (graph_with(kind="router"), "node 0: kind must be host or switch, got 'router'"),
        (graph_with(hosts="many"), "node 0: hosts must be an integer, 0 .. 65536, got 'many'"),
        (graph_with(hosts=1), "it: a network has at least 2 hosts, got 1"),
        (
            nx.Graph([("a", "b", {"rate": "fast"})]),
            "it: a-b: rate: 'fast' is not a rate; write it as in 20mbit",
        ),
        (
            nx.Graph([("a", "b", {"role": "far"})]),
            "it: the role of a-b must be local or global, got 'far'",
        ),
        (
            nx.Graph([("a", "b"), ("b", "a.0")]),
            "it: an attached host would have the name of a node",
        ),
    ],
)
def test_what_is_no_network_is_refused_in_one_line(graph, line):
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the line is compared whole
        topology_of(graph, spec="it")
    assert str(raised.value) == line


def test_a_host_has_one_link_to_a_switch():
    for more in ([], [("h", "a"), ("h", "b")], [("h", "g")]):
        graph = nx.Graph([("a", "b"), *more])
        graph.add_node("h", kind="host")
        if "g" in graph:
            graph.nodes["g"]["kind"] = "host"
        with pytest.raises(ValueError, match=r"^it: host . must have one link, to a switch$"):
            topology_of(graph, spec="it")


@pytest.mark.parametrize(
    ("text", "suffix", "says"),
    [
        ("a b c", ".txt", "it: line 1: expected two names and perhaps key=value, got 'a b c'"),
        ("\n\nlonely", "", "it: line 3: expected two names and perhaps key=value, got 'lonely'"),
        (
            "{",
            ".json",
            "it: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        ("[1, 2]", ".json", "it is no json file of a graph: "),
        ('{"links": []}', ".json", "it is no json file of a graph: it has no 'nodes'"),
        ('{"nodes": [1]}', ".json", "it is no json file of a graph: "),
        ("<graphml", ".graphml", "it is no graphml file of a graph: "),
        ("", ".graphml", "it is no graphml file of a graph: "),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text, suffix, says):
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the line is compared
        parse(text, suffix=suffix, spec="it")
    assert str(raised.value).startswith(says)
    assert "\n" not in str(raised.value)


def test_two_edges_of_a_directed_graph_are_one_link():
    topology = topology_of(nx.DiGraph([(0, 1), (1, 0), (1, 2)]))
    assert len(topology.links) == 3 + 2


def test_hosts_are_summed_before_any_is_made(monkeypatch):
    """400 switches of 65,536 hosts each, from 26 kB, filled the memory."""
    graph = nx.path_graph(400)
    nx.set_node_attributes(graph, MOST_SWITCHES, "hosts")
    monkeypatch.setattr(
        "weft.topologies.core.user_graph._assemble", lambda *_: pytest.fail("hosts were made")
    )
    with pytest.raises(
        ValueError,
        match=r"^it: a network has at most 1048576 hosts attached by number, got 26214400$",
    ):
        topology_of(graph, spec="it")
