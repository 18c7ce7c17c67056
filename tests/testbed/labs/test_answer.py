"""Answers to labs: what a lab allows is set, and everything else is refused in one line."""

import pytest

from weft.testbed.labs.lab_file import NamedText, parse
from weft.topologies.core.link import LinkSpec, Mbps

LAB = """topology: star:n=3
scheme: rps
link: {rate: 20mbit, queue: 8}
"""
OWN = "topology: complete:n=3,p=1\n"


def parse_answer(allowed, answer, lab=LAB):
    return parse(f"{lab}answer: {allowed}\n", name="lab.yaml", answer=NamedText(answer, "a.yaml"))


@pytest.mark.parametrize(
    ("allowed", "answer", "link"),
    [
        ("{link: {trim: 1..8}}", "link: {trim: 1}", {"trim_packets": 1}),
        ("{link: {trim: 1..8}}", "link: {rate: 20mbit, queue: 8, trim: 8}", {"trim_packets": 8}),
        ("{link: {trim: [2, 4..5]}}", "link: {trim: 2}", {"trim_packets": 2}),
        ("{link: {queue: any}}", "link: {queue: 900}", {"queue_packets": 900}),
        ("{link: {rate: 5mbit..1gbit}}", "link: {rate: 5000kbit}", {"rate_bps": 5 * Mbps}),
        ("{link: {delay: 1ms..2ms}}", "link: {delay: 1500us}", {"delay_us": 1500}),
        ("{link: {loss: 0..0.5}}", "link: {loss: 0.25}", {"loss_ppb": 2_500_000}),
        ("{mtu: 1500..9000}", "mtu: 9000", {"mtu_bytes": 9000}),
        ("{scheme: any}", "scheme: rps", {}),
        ("{scheme: any}", "{}", {}),
    ],
)
def test_a_value_that_is_allowed_is_set_and_the_others_stay(allowed, answer, link):
    lab = parse_answer(allowed, answer)
    expected = {"rate_bps": 20 * Mbps, "queue_packets": 8} | link
    assert lab.link == LinkSpec(**expected)
    assert lab.scheme == "rps"


@pytest.mark.parametrize(
    ("allowed", "scheme"),
    [
        ("any", "bfs:hello_ms=7"),
        ("[ecmp, rr]", "rr"),
        ('"bfs:hello_ms=10..100,dead=3"', "bfs:hello_ms=100"),
        ('"bfs:hello_ms=10..100,dead=3"', "bfs:dead=3,hello_ms=10"),
        ('"vlb:per=packet"', "vlb:per=packet"),
    ],
)
def test_schemes_and_ranges_of_their_parameters(allowed, scheme):
    assert parse_answer(f"{{scheme: {allowed}}}", f"scheme: {scheme}").scheme == scheme


@pytest.mark.parametrize(
    ("allowed", "answer", "line"),
    [
        (
            "{scheme: any}",
            "\nlink: {queue: 9}",
            "2: link.queue: lab.yaml lets an answer set scheme",
        ),
        ("{scheme: any}", "links: []", "1: links: lab.yaml lets an answer set scheme alone"),
        ("{scheme: any}", "commands: {h0: [ls]}", "1: commands: lab.yaml lets an answer set"),
        ("{scheme: any}", "checks: []", "1: no key 'checks': lab.yaml lets an answer set scheme"),
        ("{scheme: any}", "topology: star:n=2", "1: no key 'topology': lab.yaml lets"),
        ("{scheme: any}", "answer: {link: any}", "1: no key 'answer': lab.yaml lets"),
        ("{scheme: any}", "\n\nscheme: ecpm", "3: no scheme 'ecpm', did you mean ecmp?"),
        ("{scheme: any}", "scheme: dr", "1: scheme dr runs on server-centric"),
        ("{scheme: any}", "scheme:", "1: scheme: a value is missing after the colon"),
        ("{scheme: any}", "shceme: ecmp", "1: no key 'shceme': did you mean scheme? lab.yaml lets"),
        ("{scheme: any}", "scheme: ECMP", "1: 'ECMP': expected name:key=value"),
        ("{scheme: any}", "scheme: [ecmp]", "1: scheme: a text, got ['ecmp']"),
        (
            "{scheme: any}",
            "scheme: 'ecmp:hello_ms=0'",
            "1: scheme ecmp: hello_ms must be at least 1",
        ),
        ("{scheme: any}", "", " an answer has keys with values, got nothing; lab.yaml"),
        ("{scheme: any}", "ecmp", " an answer has keys with values, got 'ecmp'; lab"),
        ("{scheme: any}", "scheme: ecmp: 3", "1: malformed YAML"),
        ("{scheme: [ecmp, rr]}", "scheme: bfs", "1: scheme: lab.yaml allows ecmp or rr, got 'bfs'"),
        ("{scheme: ecmp}", "scheme: 'ecmp:hello_ms=9'", "1: scheme: lab.yaml allows ecmp, got"),
        ("{scheme: 'bfs:dead=2..4'}", "scheme: 'bfs:dead=5'", "1: scheme: lab.yaml allows bfs:de"),
        ("{scheme: 'bfs:dead=2..4'}", "scheme: 'bfs:dead=x'", "1: scheme: a whole number, got 'x'"),
        ("{scheme: 'bfs:dead=2..4'}", "scheme: 'bfs:hold_ms=0'", "1: scheme: lab.yaml allows bfs"),
        ("{link: {trim: 1..8}}", "link: {trim: 9}", "1: link.trim: lab.yaml allows 1..8, got 9"),
        ("{link: {trim: 1..8}}", "link: {trim: -1}", "1: link.trim: lab.yaml allows 1..8, got -1"),
        ("{link: {trim: 1..8}}", "link: {trim: true}", "1: link.trim: a whole number, got 'True'"),
        ("{link: {trim: 1..8}}", "link: {trim: 4.5}", "1: link.trim: a whole number, got '4.5'"),
        ("{link: {trim: 1..8}}", "link: 4", "1: an answer: link: keys with values, got 4"),
        ("{link: {trim: 1..8}}", "link: {rate: 40mbit}", "1: link.rate: lab.yaml lets an answer"),
        ("{link: {trim: 1..9}}", "\nlink: {trim: 9}", "2: link: link: a queue of 8 packets drops"),
        ("{link: {trim: 1..8}}", "host_link: {trim: 4}", "1: host_link.trim: lab.yaml lets an"),
        ("{link: {rate: 1mbit..9mbit}}", "link: {rate: 9.1mbit}", "1: link.rate: lab.yaml allows"),
        ("{link: {rate: 1mbit..9mbit}}", "link: {rate: fast}", "1: link.rate: rate: 'fast' is not"),
    ],
)
def test_every_other_value_is_refused_in_one_line_with_its_place(allowed, answer, line):
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the line is compared
        parse_answer(allowed, answer)
    assert str(raised.value).startswith(f"a.yaml:{line}")
    assert "\n" not in str(raised.value)


def test_a_lab_without_the_key_takes_no_answer():
    with pytest.raises(ValueError, match=r"^a.yaml:1: scheme: lab.yaml lets an answer set nothing"):
        parse(LAB, name="lab.yaml", answer=NamedText("scheme: ecmp", "a.yaml"))


def test_commands_and_links_are_replaced_as_a_whole():
    lab = parse_answer("{commands: any, links: any}", "commands: {h1: [ls]}\nlinks: []")
    assert (lab.commands, lab.own_links) == ({"h1": ("ls",)}, {})


@pytest.mark.parametrize("spec", ["bfs", "static", "bfs:hello_ms=9"])
def test_a_scheme_of_weft_is_none_of_ones_own(spec):
    with pytest.raises(ValueError, match=r"^a.yaml:1: scheme: .* allows a scheme of your own, got"):
        parse_answer("{scheme: own}", f"scheme: {spec}", lab=OWN)
    with pytest.raises(ValueError, match=r"^a.yaml:1: scheme: no scheme 'mine'"):
        parse_answer("{scheme: own}", "scheme: mine", lab=OWN)


@pytest.mark.parametrize(
    ("allowed", "line"),
    [
        ("scheme", "4: answer: keys with values, got 'scheme'"),
        ("{schema: any}", "4: answer: no key 'schema', did you mean scheme?"),
        ("{scheme: []}", "4: answer: scheme: "),
        ("{scheme: ecpm}", "4: answer: scheme: no scheme 'ecpm', did you mean ecmp?"),
        ("{scheme: 'bfs:dead=0..3'}", "4: answer: scheme: scheme bfs: dead must be at least 1"),
        ("{scheme: 'bfs:daed=1..3'}", "4: answer: scheme: scheme bfs: no parameter 'daed'"),
        ("{link: any}", "4: answer: link: keys with values, got 'any'"),
        ("{link: {trim: few}}", "4: answer: link.trim: a whole number, got 'few'"),
        ("{link: {trim: 8..1}}", "4: answer: link.trim: 8..1 is empty"),
        ("{links: [a-b]}", "4: answer: links: any, or leave the key out; got 'a-b'"),
    ],
)
def test_a_lab_that_allows_nonsense_is_refused(allowed, line):
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the line is compared
        parse(f"{LAB}answer: {allowed}\n", name="lab.yaml")
    assert str(raised.value).startswith(f"lab.yaml:{line}")
