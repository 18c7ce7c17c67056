"""The pictures of README: a run of a terminal as an SVG."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tools import pictures

SVG = "{http://www.w3.org/2000/svg}"
SPINNER = r"\033[32m.\033[0m wait\r\033[2K"
PRINTED = rf"printf '{SPINNER}PASS 1 ms  up & running\r\nPASS  2 ms  <pinged>\n| table |\n'"


def test_lines_with_a_verdict_are_recorded_as_they_stay_visible():
    lines = pictures.recorded(["sh", "-c", PRINTED])
    assert [line.text for line in lines] == ["PASS 1 ms  up & running", "PASS  2 ms  <pinged>"]
    assert 0 < lines[0].at_s <= lines[1].at_s


def test_a_command_that_fails_has_no_film():
    with pytest.raises(subprocess.CalledProcessError):
        pictures.recorded([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_film_shows_each_line_in_order_and_cuts_long_waits():
    lines = [pictures.Printed(at_s, f"PASS {at_s}") for at_s in (0.5, 0.5, 90.0)]
    times = [line.at_s for line in pictures.paced(lines)]
    assert times == [0.5, 0.75, 2.25]
    film = pictures.film("weft run x", lines)
    shares = [float(share) for share in re.findall(r"([\d.]+)%, 100%", film)]
    assert shares == pytest.approx(
        [100 * at_s / (2.25 + pictures.HOLD_S) for at_s in times], abs=0.01
    )
    texts = ["".join(text.itertext()) for text in ElementTree.fromstring(film).iter(f"{SVG}text")]
    assert texts == ["$ weft run x", "PASS 0.5", "PASS 0.5", "PASS 90.0"]


def test_a_long_line_goes_on_below():
    film = pictures.film("x", [pictures.Printed(0.0, "PASS " + "word " * 40)])
    rows = [element.get("y") for element in ElementTree.fromstring(film).iter(f"{SVG}text")]
    assert len(rows) == len(set(rows)) == 4
