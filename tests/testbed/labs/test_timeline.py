"""Events and checks of labs as text: times, subjects, refusals with lines, hostile content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.testbed.labs import mahimahi
from weft.testbed.labs.lab_file import KEYS, parse
from weft.testbed.labs.timeline import CHECKS, EVENTS, REQUIRED, rate
from weft.testbed.network.impair import Impairment

STAR = "topology: star:n=3\nlink: {rate: 10mbit}\n"
LAB = f"""{STAR}
events:
  - {{at: 2s, restore: h0-r0}}
  - {{at: 500ms, fail: h0-r0, silent: true}}
  - {{at: 1, impair: h1-r0, loss: 1, delay: 2ms}}
  - {{at: 1s, traffic: [h0-h1, [h1, h2]], for: 3s, name: bulk}}
  - {{at: 1s, start: "sleep 9 &", node: h2}}
  - {{at: 3s, stop: "sleep 9 &"}}
checks:
  - {{reachable: all, points: 2, hint: "Look at h0."}}
  - {{at: 1s, path: [h0, r0, h1]}}
  - {{at: 500ms, recovers: h0-h1, within: 40ms}}
  - {{at: 0, loss: h0-h1, below: 0.5, for: 2s}}
  - {{goodput: bulk, above: 5mbit}}
  - {{output: "cat x", node: h0, matches: "^a.b$"}}
"""


def test_events_are_in_order_of_time_and_checks_in_that_of_the_file():
    lab = parse(LAB, name="lab.yaml")
    times = [(event.at_s, event.kind) for event in lab.events]
    kinds = ["fail", "impair", "traffic", "start", "restore", "stop"]
    assert times == list(zip([0.5, 1, 1, 1, 2, 3], kinds, strict=True))
    assert lab.events[1].options == {"change": Impairment(loss_ppb=10_000_000, delay_us=2000)}
    assert lab.events[2].subject == ((0, 1), (1, 2))
    first, path, _, loss, goodput, _ = lab.checks
    assert (first.points, first.hint, first.at_s, len(first.subject)) == (2, "Look at h0.", 4, 6)
    assert (path.subject, path.at_s, path.points) == ((0, 3, 1), 1, 1)
    assert (loss.options, loss.line) == ({"for": 2.0, "below": 0.5}, 15)
    assert goodput.subject.options["name"] == "bulk"
    assert lab.command_lines() == ["h2: sleep 9 &", "h0: cat x"]


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("events: {at: 1}", ":3: events: a list"),
        ("events: [fail]", ":3: events, entry 1: keys with values, got 'fail'"),
        ("events:\n  - at: 1s\n    fial: h0", ":5: events, entry 1: no key 'fial', did you mean f"),
        ("events: [{at: 1s}]", ":3: events, entry 1: one of fail, "),
        ("events: [{at: 1s, fail: h0, restore: h1}]", ":3: events, entry 1: one of fail, "),
        ("events: [{at: 1s, fail: h0, rate: 1mbit}]", ":3: events, entry 1, fail: no key 'rate'"),
        ("events: [{fail: h0}]", ":3: events, entry 1, fail: at is missing"),
        ("events: [{at: -1, fail: h0}]", ":3: events, entry 1, fail: at: 0 to 3600 seconds"),
        ("events: [{at: .nan, fail: h0}]", ":3: events, entry 1, fail: at: 0 to 3600 seconds"),
        ("events: [{at: 1s, fail: h9}]", ":3: events, entry 1: fail: no server h9"),
        ("events: [{at: 1s, impair: h0-r0}]", ":3: impair: either clear, or some of"),
        (
            "events: [{at: 1s, stop: web}]",
            ":3: events, entry 1: stop: no command 'web' (there are none)",
        ),
        ("events: [{at: 1s, traffic: h0-h1}]", ":3: traffic needs a size, or tcp and a time"),
        ("events: [{at: 1s, traffic: h0-r0, for: 1s}]", ":3: traffic leads from hosts to hosts"),
        (
            "events: [{at: 1s, traffic: h0-h0, for: 1s}]",
            ":3: events, entry 1: traffic: 'h",
        ),
        ("events: [{at: 1s, rates: h0-r0, trace: ../x, for: 1s}]", ":3: trace: x must lie in"),
        ("events: [{at: 1s, rates: h0-r0, trace: none, for: 1s}]", ":3: none: No such file"),
        ("checks: [{reachable: h0-h1, hnit: x}]", ":3: checks, entry 1: no key 'hnit', did you me"),
        ("checks: [{reachable: h0-h1, points: 1.5}]", ":3: checks, entry 1: points: 0 to 1000"),
        ("checks: [{goodput: bulk, above: 1mbit}]", ":3: checks, entry 1: goodput: no traffic"),
        ("checks: [{loss: h0-h1}]", ":3: checks, entry 1, loss: below is missing"),
        ("checks: [{loss: h0-h1, below: .inf}]", ":3: checks, entry 1, loss: below: per cent"),
        (
            "checks: [{output: x, node: h0, matches: '('}]",
            ":3: checks, entry 1, output: matches: n",
        ),
        (
            "events: [{at: 3s, start: x, node: h0}, {at: 1s, stop: x}]",
            ":3: events, entry 2: the command starts later, at 3 s",
        ),
        ("checks: [{path: [h0]}]", ":3: checks, entry 1: path: a list of nodes"),
        ("checks: [{path: [h0, r0, h0]}]", ":3: checks, entry 1: path: a path leads from"),
        (
            "events: [{at: 1s, fail: h0-r0, only_to: h0}]",
            ":3: only to h0: the failure must be silent",
        ),
        (
            "events: [{at: 1s, fail: h0-r0, only_to: h1, silent: true}]",
            ":3: only to h1: the failure must be of a link that ends there",
        ),
        ("events: [{at: 1s, rates: h0-r0, trace: loop, for: 1s}]", ":3: "),
        (
            "events: [{at: -1s, fail: h0}]",
            ":3: events, entry 1, fail: at: time: '-1s' is not a time",
        ),
        ("events: [{at: 1s, impair: h0-r0, queue: 0}]", ":3: queue: a number of packets from 1"),
        (f"checks: [{{at: '{'9' * 400}s', path: [h0, h1]}}]", ":3: checks, entry 1, path: at: t"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_line(entry, line, tmp_path):
    name = str(tmp_path / "lab.yaml")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the line is compared
        parse(STAR + entry, name=name)
    assert str(raised.value).startswith(name + line)
    assert "\n" not in str(raised.value)


NAMES = sorted({*KEYS, *EVENTS, *CHECKS, *(key for keys in REQUIRED.values() for key in keys)})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from(["h0", "h0-h1", "h0-r0", "all", "1s", "1mbit", "(", "tcp", "ndp"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)


@st.composite
def entries(draw):
    """Draw an entry that is nearly right: the keys of a kind with any values."""
    kinds = draw(st.sampled_from([EVENTS, CHECKS]))
    kind = draw(st.sampled_from(sorted(kinds)))
    present = (
        {kind, "at", *REQUIRED.get(kind, ()), *draw(st.sets(st.sampled_from(kinds[kind])))}
        if kinds[kind]
        else {kind, "at"}
    )
    entry = {key: draw(VALUES) for key in sorted(present)}
    return "events" if kinds is EVENTS else "checks", entry


def refusal(text):
    """Return the message about a lab's text; its name if the text is a lab."""
    try:
        parse(text, name="lab.yaml")
    except ValueError as error:
        return str(error)
    return "lab.yaml"


@given(entries(), VALUES)
def test_hostile_content_is_read_or_refused_in_one_line(entry, other):
    import yaml

    section, item = entry
    for content in ({section: [item]}, {section: other}, other):
        text = yaml.safe_dump(content, allow_unicode=True)
        message = refusal(STAR + text if content is not other else text)
        assert message.startswith("lab.yaml")
        assert len(message) < 2000


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    assert refusal(text).startswith("lab.yaml")


def test_a_trace_of_mahimahi_becomes_rates(tmp_path):
    """Ten packets in the first 100 ms of each 200 ms, five in the second."""
    times_ms = [*range(10, 101, 10), *range(120, 201, 20)]
    (tmp_path / "trace").write_text("\n".join(map(str, times_ms)))
    read = mahimahi.read(tmp_path / "trace")
    fast, slow = 10 * 1504 * 8 * 10, 5 * 1504 * 8 * 10
    assert mahimahi.rates(read, 0.4) == [(0, fast), (0.1, slow), (0.2, fast), (0.3, slow)]
    lab = STAR + "events: [{at: 1s, rates: h0-r0, trace: trace, for: 200ms}]"
    events = parse(lab, name=str(tmp_path / "lab.yaml")).events
    assert [(e.at_s, e.kind, e.options) for e in events] == [
        (1.0, "degrade", {"rate": fast, "for": 0.2}),
        (1.1, "degrade", {"rate": slow, "for": 0.1}),
    ]
    assert events[-1].end_s == pytest.approx(1.2)
    for wrong in ("3", "1234567890", "-5", "x", ""):
        (tmp_path / "trace").write_text(f"5\n{wrong}\n123456789\n")
        with pytest.raises(ValueError, match=r"^trace:2: milliseconds, not before the line above"):
            mahimahi.read(tmp_path / "trace")
    (tmp_path / "trace").write_text("5\n123456789\n")
    assert mahimahi.read(tmp_path / "trace") == [5, 123456789]
    (tmp_path / "trace").write_text("1\n" * mahimahi.MOST_BYTES)
    with pytest.raises(ValueError, match=r"^trace: a trace has at most"):
        mahimahi.read(tmp_path / "trace")


@given(st.lists(st.integers(0, 399), max_size=99), st.integers(1, 5))
def test_the_rates_of_a_trace_carry_every_packet_of_it(times_ms, periods):
    changes = mahimahi.rates([*sorted(times_ms), 400], 0.4 * periods)
    ends_s = [begin_s for begin_s, _ in changes[1:]] + [0.4 * periods]
    carried = sum(
        bps * (end_s - begin_s)
        for (begin_s, bps), end_s in zip(changes, ends_s, strict=True)
        if bps != mahimahi.LEAST_BPS
    )
    assert carried == pytest.approx(1504 * 8 * periods * (len(times_ms) + 1))


def test_all_pairs_of_a_large_network_are_refused():
    text = "topology: fattree:k=12\nchecks: [{reachable: all}]"
    with pytest.raises(ValueError, match=r"reachable: all: 186192 pairs, of 1 to"):
        parse(text, name="lab.yaml")


def test_a_rate_is_one_bit_per_second_or_more():
    assert rate("1bit") == 1
    with pytest.raises(ValueError, match="a rate such as 5mbit, got"):
        rate("0bit")
