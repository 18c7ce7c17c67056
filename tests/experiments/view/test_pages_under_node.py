"""Parts of the pages under node: the address of a simulation, the time line, the panel."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.experiments.view import simulation_page, worker

NODE = shutil.which("node")
ACTIONS = ["10~fail~h0-h4~silent=true", "20~restore~h0-h4"]


def other_network(net: str = "dcell:n=4,k=1") -> str:
    """The line for a network that the page lacks."""
    return (
        f"there is no network {net} here, so this is star:n=8 with dr, "
        "without the address's actions and path"
    )


def left_out(key: str) -> str:
    """The line for a word that no address has."""
    return f"{key} is left out: an address has net, scheme, seed, pace, path, do"


@pytest.mark.skipif(NODE is None, reason="no node: the parts of pages are not used")
def test_parts_of_pages_take_odd_input_and_long_runs() -> None:
    assert NODE
    folders = simulation_page.HERE / "simulation", worker.STATIC
    command = [NODE, str(Path(__file__).with_name("use_page.mjs")), *map(str, folders)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    right, actions, *others = map(json.loads, printed.split("\n")[:-1])
    wrong, networks = others[:6], others[6:12]
    bounded, incident, filled, *panels = others[12:]
    assert (right["wrong"], right["choices"]["net"], right["choices"]["seed"]) == (
        "",
        "star:n=8",
        "7",
    )
    assert right["past"][0] == [10, {"do": "fail", "what": "h0-h4", "silent": True}]
    assert actions == ACTIONS
    assert [row["wrong"].split(",")[0] for row in wrong] == [
        "pace=fast is not a number from 0.0001 to 100",
        "pace=1e9 is not a number from 0.0001 to 100",
        "seed=nan is not a whole number from 0",
        "seed=-1 is not a whole number from 0",
        "1~fail~h0-h4~silent is no action",
        " is no action",
    ]
    assert {row["choices"]["pace"] for row in wrong} == {"0.1"}
    assert [
        (row["choices"]["net"], row["choices"]["scheme"], row["wrong"]) for row in networks
    ] == [
        ("star:n=8", "dr", other_network("dcell:n=4,k=1")),
        ("star:n=8", "dr", other_network("100%")),
        ("star:n=8", "dr", other_network("dcell:n=5,k=1")),
        (
            "fattree:k=4",
            "ecmp",
            "fattree:k=4 has no scheme fatpaths here, so this is ecmp; it has ecmp, lbsp",
        ),
        ("fattree:k=4", "lbsp:x=1", ""),
        ("star:n=8", "dr", f"{left_out('nett')}; {left_out('toString')}; {other_network()}"),
    ]
    assert [row["network"]["spec"] for row in networks] == [
        row["choices"]["net"] for row in networks
    ]
    assert (networks[2]["past"], networks[2]["choices"]["path"]) == ([], "")
    assert bounded, "a page in the background keeps no more marks than it shows"
    assert incident == [200.2, None], "a link that fails again is a new incident"
    assert filled == ["h0", "h1", "h1"], "a panel that changes while it waits is filled"
    before, after = panels
    assert "scheme ecmp" in before
    assert "scheme drill:d=2,m=1" in after, "the panel shows the scheme of now"
