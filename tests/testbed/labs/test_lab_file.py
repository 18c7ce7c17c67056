"""Labs as text: what is read, what is refused, and that what is written says the same."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.testbed.labs.lab_file import Lab, parse, with_mtu, written
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

OWN = """
nodes:
  zur: {kind: switch, hosts: 2}
  gen:
  web: {kind: host}
scheme: ecmp
link: {rate: 20mbit, queue: 100}
links:
  - {ends: zur-gen, rate: 10mbit, queue: 50, delay: 1ms, loss: 0.5}
  - {ends: [gen, zur]}
  - {ends: gen-web, rate: 5mbit}
commands:
  web: ["echo hello"]
"""


def test_a_lab_of_own_nodes_is_read():
    lab = parse(OWN, name="lab.yaml")
    names = [lab.topology.naming.name(node) for node in range(lab.topology.nodes)]
    assert names == ["zur.0", "zur.1", "web", "zur", "gen"]
    assert lab.link == LinkSpec(rate_bps=20 * Mbps, queue_packets=100)
    own = {lab.topology.link_name(link): spec for link, spec in lab.own_links.items()}
    assert own == {
        "web-gen": LinkSpec(rate_bps=5 * Mbps, queue_packets=250),
        "zur-gen": LinkSpec(
            rate_bps=10 * Mbps, queue_packets=50, delay_us=1000, loss_ppb=5_000_000
        ),
    }
    assert lab.topology.link("zur-gen:2") not in lab.own_links
    assert (lab.scheme, lab.commands) == ("ecmp", {"web": ("echo hello",)})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "lab.yaml:1: malformed YAML: expected the node content"),
        ("- 1", "lab.yaml: a lab: keys with values, got [1]"),
        ("nodes: {}\ntopology: star:n=2", "lab.yaml: a lab has either topology"),
        ("topolgy: star:n=2", "lab.yaml:1: a lab: no key 'topolgy', did you mean topology?"),
        ("topology: star:n=x", "lab.yaml:1: star: n"),
        ("topology: 7", "lab.yaml:1: topology: a text, got 7"),
        ("topology: star:n=2\nlink: {queue: 3}", "lab.yaml:2: link: queue needs a rate"),
        ("topology: star:n=2\nlink: {}", "lab.yaml:2: link: rate is missing"),
        ("topology: star:n=2\nlink: {rate: fast}", "lab.yaml:2: link: rate: 'fast' is not a rate"),
        (
            "topology: star:n=2\nlink: {rate: 1mbit, los: 1}",
            "lab.yaml:2: link: no key 'los', did you mean loss?",
        ),
        (
            "topology: star:n=2\nlink: {rate: 1mbit, loss: 101}",
            "lab.yaml:2: link: loss must be 0 to 100 per cent, got 101",
        ),
        ("topology: star:n=2\nlinks: [{ends: h0-h9, rate: 1mbit}]", "lab.yaml:2: no server h9"),
        (
            "topology: star:n=2\nlinks: [{ends: h0, rate: 1mbit}]",
            "lab.yaml:2: links, entry 1: ends: two nodes",
        ),
        ("topology: star:n=2\nlinks: {h0: 1}", "lab.yaml:2: links: a list of entries"),
        ("topology: star:n=2\nmtu: 9000", "lab.yaml:2: an MTU needs a rate of all links"),
        (
            "topology: star:n=2\nlink: {rate: 1mbit}\nmtu: 9k",
            "lab.yaml:3: mtu: a number of bytes such as 9000, got '9k'",
        ),
        (
            "topology: star:n=2\nlink: {rate: 1mbit}\nmtu: 600",
            "lab.yaml:3: link: mtu_bytes must be at least 1500",
        ),
        ("topology: star:n=2\npacked: true", "lab.yaml:2: packed: a number of processes"),
        (
            "topology: star:n=2\ncommands: {h0: ls}",
            "lab.yaml:2: commands of h0: a list of texts, got 'ls'",
        ),
        ("topology: star:n=2\ncommands: {h7: [ls]}", "lab.yaml:2: no server h7"),
        (
            'topology: star:n=2\ncommands: {h0: ["a\\0b"]}',
            "lab.yaml:2: commands of h0: no command h",
        ),
        ("topology: star:n=2\nipv6: true", "lab.yaml:2: a lab: no key 'ipv6'"),
        ("nodes: {a: {kind: router}}", "lab.yaml:1: node a: kind must be host or switch"),
        (
            "nodes: {a: {hosts: 2}}\nlinks: [{ends: a-b}]",
            "lab.yaml:2: link a-b: no node 'b' (there are: a)",
        ),
        ("nodes: {a: {colour: red}}", "lab.yaml:1: node a: no key 'colour'"),
        ("a: &x [1]\ntopology: *x", "lab.yaml:2: *x is an alias; write its value out"),
        ("topology: star:n=2\n\ntopology: star:n=3", "lab.yaml:3: 'topology' occurs twice"),
        ("? [a]\n: 1", "lab.yaml:1: a key is a text, not a list or mapping"),
        ("topology: star:n=2\nlink:\n  rate: 1mbit\n  los: 1", "lab.yaml:4: link: no key 'los'"),
        ("[" * 10_000 + "]" * 10_000, "lab.yaml:1: nested too deeply"),
        (f"packed: {'9' * 5000}\ntopology: star:n=2", "lab.yaml: Exceeds the limit"),
        ("when: 2001-99-99", "lab.yaml: month must be"),
        ("!!python/object/apply:os.getpid []", "lab.yaml:1: malformed YAML: could not determine"),
    ],
)
def test_what_is_no_lab_is_refused_in_one_line(text, line):
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the line is compared
        parse(text, name="lab.yaml")
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


def test_a_file_that_would_grow_without_end_is_refused_at_once():
    """Nine lists of nine aliases each are 9^9 texts; an error quotes no more than a line of any
    value."""
    lines = [
        f"{name}: &{name} [{','.join(['*' + before] * 9)}]"
        for before, name in pairwise("abcdefghi")
    ]
    with pytest.raises(ValueError, match=r":2: \*a is an alias; write its value out$"):
        parse("\n".join(["a: &a [x]", *lines, "topology: *i"]), name="bomb.yaml")
    for text in (
        f"topology: [{'x,' * 100_000}]",
        f"topology: star:n=2\nlinks: [{{ends: '{'x' * 100_000}'}}]",
    ):
        with pytest.raises(ValueError, match=r"^lab\.yaml:\d: ") as raised:
            parse(text, name="lab.yaml")
        assert len(str(raised.value)) < 400


LINKS = st.builds(
    LinkSpec,
    rate_bps=st.integers(8000, 10**11),
    queue_packets=st.integers(1, 5000),
    delay_us=st.integers(0, 10**6),
    trim_packets=st.just(0) | st.just(1),
    loss_ppb=st.integers(0, 10**9),
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_written_says_the_same(data):
    own_nodes = data.draw(st.booleans())
    topology = parse(OWN, name="own").topology if own_nodes else build("fattree:k=4")
    count = len(topology.links)
    lab = Lab(
        topology=topology,
        scheme=data.draw(st.sampled_from(["ecmp", "drill:d=2,m=1"])),
        link=data.draw(st.none() | LINKS),
        host_link=data.draw(st.none() | LINKS),
        own_links=data.draw(st.dictionaries(st.integers(0, count - 1), LINKS, max_size=4)),
        packed=data.draw(st.none() | st.integers(1, 9)),
        commands=data.draw(
            st.dictionaries(
                st.just(topology.naming.name(0)),
                st.tuples(st.text(st.characters(exclude_characters="\0"), min_size=1)),
            )
        ),
    )
    if lab.link and data.draw(st.booleans()):
        lab = with_mtu(lab, 9000)
        assert {
            spec.mtu_bytes for spec in (lab.link, lab.host_link, *lab.own_links.values()) if spec
        } == {9000}
    again = parse(written(lab), name="again")
    assert again.topology.links.tolist() == topology.links.tolist()
    assert [again.topology.naming.label(n) for n in range(again.topology.nodes)] == [
        topology.naming.label(n) for n in range(topology.nodes)
    ]
    for name in ("scheme", "link", "host_link", "own_links", "packed", "commands"):
        assert getattr(again, name) == getattr(lab, name), name
