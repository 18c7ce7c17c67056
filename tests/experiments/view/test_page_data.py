"""The data that the page draws, and the events for a page that is opened late."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.experiments.view import web_server
from weft.experiments.view.page_data import drawing, results, schemes
from weft.experiments.view.web_server import HISTORY, Hub
from weft.testbed.plan.network_plan import NetworkPlan
from weft.testbed.runs.run import UNNAMED
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)


@pytest.mark.parametrize(
    "spec",
    [
        "dcell:n=3,k=2",
        "ficonn:n=4,k=1",
        "gqstar:n=2,k=1",
        "gqstar:n=4,k=2",
        "fattree:k=4",
        "clos:n=2,r=4,m=2",
        "slimfly:q=5",
        "hyperx:l=2,s=3",
        "star:n=3",
    ],
)
def test_every_node_has_a_place_of_its_own_and_every_link_a_curve(spec: str) -> None:
    topology = build(spec)
    found = drawing(topology)
    places = np.array(found["nodes"])
    assert places.shape == (topology.nodes, 3)
    apart = abs(places[:, None, :2] - places[None, :, :2]).sum(axis=2) + np.eye(topology.nodes)
    assert apart.min() > 0.1
    assert np.isfinite(found["links"]).all()
    assert len(found["links"]) == len(topology.links)
    json.dumps(found)


def test_a_fat_tree_has_its_core_above_its_hosts() -> None:
    nodes = drawing(build("fattree:k=4"))["nodes"]
    assert max(y for _, y, _ in nodes[-4:]) < min(y for _, y, _ in nodes[:16])


def scheme_names(spec: str, scheme: str, link: LinkSpec | None = LINK) -> list[str]:
    return schemes(NetworkPlan(UNNAMED, build(spec), link), {"scheme": scheme})


def test_schemes_are_offered_that_the_run_can_change_to() -> None:
    assert scheme_names("dcell:n=3,k=1", "dr") == []
    names = scheme_names("fattree:k=4", "ttc")
    assert {"ttc", "drill", "ecmp"} <= set(names)
    assert "lbsp" not in names
    assert "ttc" not in scheme_names("fattree:k=4", "ecmp", None), (
        "without queues there is nothing to choose by"
    )
    assert scheme_names("fattree:k=4", "drill:d=2,m=1")[0] == "drill:d=2,m=1"


def test_a_folder_without_results_is_no_error_and_stays_empty(tmp_path: Path) -> None:
    assert results(tmp_path / "none") == {
        "folder": str(tmp_path / "none"),
        "report": False,
        "experiments": {},
    }
    assert list(tmp_path.iterdir()) == []


def line(**event: Any) -> bytes:
    return json.dumps(event).encode()


def snapshot(hub: Hub) -> list[dict[str, Any]]:
    return [
        json.loads(line.removeprefix(b"data: ")) for line in hub.snapshot().split(b"\n\n") if line
    ]


def test_who_comes_late_is_told_the_latest_of_every_link_and_daemon() -> None:
    hub = Hub(requests=-1)
    hub.take(
        [line(event="network", run="x"), line(event="load", links={"a": [1], "b": [2]}, at_s=1.0)]
    )
    hub.take(
        [
            line(event="load", links={"b": [3]}, at_s=2.0),
            line(event="link", link="a", state="down", at_s=2.0),
        ]
    )
    hub.take(
        [line(event="link", link="a", state="up", at_s=3.0), line(event="log", text="t", at_s=3.0)]
    )
    hub.take([line(event="scheme", scheme=scheme, at_s=4.0) for scheme in ("rps", "drill:d=2,m=1")])
    document = snapshot(hub)
    assert [event["event"] for event in document] == [
        "network",
        "load",
        "scheme",
        "link",
        "now",
        "history",
    ]
    assert document[1] == {"event": "load", "links": {"a": [1], "b": [3]}, "at_s": 2.0}
    assert document[2]["scheme"] == "drill:d=2,m=1"
    assert document[3]["state"] == "up"
    assert [event["event"] for event in document[-1]["events"]] == ["link", "link", "log"]


def test_what_is_remembered_has_an_end_and_logs_do_not_push_out_failures() -> None:
    hub = Hub(requests=-1)
    hub.take([line(event="link", link="a", state="down", at_s=0.0)])
    hub.take([line(event="log", text=str(i), at_s=1.0) for i in range(2 * HISTORY)])
    events = snapshot(hub)[-1]["events"]
    assert events[0]["event"] == "link"
    assert len(events) == 1 + HISTORY


def test_the_pages_find_each_part_of_d3_that_they_use_and_load_no_other() -> None:
    folder = Path(web_server.__file__).parent
    library = folder / "static" / "d3.min.js"
    scripts = [path.read_text() for path in folder.glob("*/*.js") if path != library]
    used = set(re.findall(r"\bd3\.(\w+)", "\n".join(scripts)))
    parts = (
        (Path(__file__).parents[3] / "tools/d3_parts.js")
        .read_text()
        .partition("export {")[2]
        .partition("}")[0]
    )
    assert used == set(re.findall(r"\w+", parts))
    assert used == set(re.findall(r"(\w+):\(\)=>\w+[,}]", library.read_text()[:1000]))
