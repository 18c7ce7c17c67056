"""Results as a kernel sends them to the host, which believes no more than it must."""

import pytest

from weft.testbed.labs import play
from weft.testbed.labs.judgement import CheckVerdict
from weft.testbed.labs.lab_file import parse
from weft.testbed.labs.play import Played

CHECKS = parse(
    "topology: star:n=2\nchecks:\n"
    "  - {reachable: all, points: 2}\n"
    "  - {route: h0-h1, points: 3, hint: Look.}\n",
    name="lab.yaml",
).checks
PLAYED = Played((CheckVerdict(True, "2 of 2 pairs"), CheckVerdict(False, "no route")), 0.25)


def test_what_is_sent_is_received():
    assert play.received(play.sent(PLAYED), checks=2) == PLAYED


def test_points_and_texts_are_those_of_the_lab():
    rows = play.report_of(CHECKS, PLAYED)
    assert (rows["passed"], rows["points"], rows["of"], rows["late_ms"]) == (False, 2, 5, 250)
    assert [row["hint"] for row in rows["checks"]] == ["", "Look."]
    assert [row["points"] for row in rows["checks"]] == [2, 0]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"passed": true, "points": 100}',
        '[0.0, [[true, ""]]]',
        '[0.0, [[true, ""], [true, ""], [true, ""]]]',
        '[0.0, [[true, ""], [1, ""]]]',
        '[0.0, [[true, ""], [true, 1]]]',
        '[0.0, [[true, ""], [true, "", 100]]]',
        '[0.0, [[true, ""], 7]]',
        '["0", [[true, ""], [true, ""]]]',
        '[NaN, [[true, ""], [true, ""]]]',
        2 * play.sent(PLAYED),
    ],
)
def test_a_malformed_report_is_an_error(content):
    with pytest.raises(OSError, match=r"^the report of the lab's kernel is malformed$"):
        play.received(content, checks=2)


def test_what_was_measured_is_short_and_without_control_characters():
    verdict = CheckVerdict(True, "\x1b[31m" + "x" * 10_000)
    text = play.sent(Played((verdict,), 0.0))
    (received,) = play.received(text, checks=1).verdicts
    assert len(received.measured) == play.MOST_CHARACTERS
    assert received.measured.isprintable()
