"""The animation that the page saves, under node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from weft.experiments.view import worker

NODE = shutil.which("node")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.skipif(NODE is None, reason="no node: the animation is not made")
def test_an_animation_has_the_packets_and_changes_of_its_time() -> None:
    assert NODE
    program = Path(__file__).with_name("print_film.mjs")
    text = subprocess.run(
        [NODE, str(program), str(worker.STATIC / "film.js")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    svg = ElementTree.fromstring(text)
    failed, same = svg.findall(f"{SVG}path")
    changes = [
        [change.attrib[key] for key in ("attributeName", "keyTimes", "values")]
        for change in failed.findall(f"{SVG}animate")
    ]
    assert changes == [
        ["stroke", "0;0.2;0.7", "rgb(1, 2, 3);rgb(9, 2, 3);rgb(1, 2, 3)"],
        ["stroke-dasharray", "0;0.2", "1px, 0px;2px, 1px"],  # browsers animate no "none"
    ]
    assert not list(same), "a link without a change stands still"
    circles = svg.findall(f"{SVG}circle")
    assert [circle.attrib["r"] for circle in circles] == ["1", "2"], "the first packet is too old"
    motions = [circle.find(f"{SVG}animateMotion") for circle in circles]
    assert [motion.attrib["keyPoints"] for motion in motions if motion is not None] == [
        "0;0;1;1",
        "1;1;0.5;0.5",  # from the end of its link to the middle, where it is lost
    ]
    assert {shape.attrib["dur"] for shape in svg.iter() if "dur" in shape.attrib} == {"10s"}
