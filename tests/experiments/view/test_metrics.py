"""The metrics of a run: a parser of the format takes them, and they hold what was read."""

from __future__ import annotations

import re

import pytest

from weft.experiments.view import page_data

NETWORK = {
    "run": "demo",
    "topology": "file:a\\b.json",
    "scheme": "ecmp",
    "links": [
        {"link": "h0-r0", "ends": ["h0", "r0"]},
        {"link": 'h1-"r"', "ends": ["h1", '"r"']},
    ],
}
ROW = {"neighbours": 1, "of": 2, "routes": 7, "converged": False, "losses": 3, "restarts": 0}
DAEMONS = {"daemons": {"r0": ROW | {"refused": 4, "pid": None}}}
PORTS = {"h0-r0": [1000, 2000, 3, 4, 5, 6], 'h1-"r"': [0, 0, 0, 0, 0, 0]}

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"(?P<name>{NAME})(?:\{{(?P<labels>(?:{LABEL},)*{LABEL})\}})? (?P<value>\d+)")
META = re.compile(rf"# (?P<what>TYPE|UNIT|HELP) (?P<name>{NAME}) (?P<text>.+)")
ENDINGS = {"counter": "_total", "gauge": "", "info": "_info"}


def parse(text):
    """Return the values by sample, as written; an assertion fails where the grammar is broken.

    The rules are those of OpenMetrics 1.0: metadata before its samples, no family twice, the unit
    at the end of the name, the ending of the type, and # EOF as the last line.
    """
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""]
    families = {}
    samples = {}
    family = None
    for line in lines[:-2]:
        if meta := META.fullmatch(line):
            if meta["name"] != family:
                family = meta["name"]
                assert family not in families
                families[family] = {}
            assert meta["what"] not in families[family]
            families[family][meta["what"]] = meta["text"]
            if meta["what"] == "UNIT":
                assert family.endswith(f"_{meta['text']}")
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            assert sample["name"] == family + ENDINGS[families[family]["TYPE"]]
            key = sample["name"], sample["labels"]
            assert key not in samples
            samples[key] = int(sample["value"])
    return samples


def test_the_text_has_the_grammar_and_the_values_of_the_run():
    latest = {"network": NETWORK, "scheme": {"scheme": "ttc"}, "daemons": DAEMONS}
    samples = parse(page_data.openmetrics(latest, {"h0-r0": {"state": "silent"}}, PORTS))
    run = 'run="demo",topology="file:a\\\\b.json",scheme="ttc"'
    assert samples["weft_run_info", run] == 1
    assert samples["weft_link_up", 'link="h0-r0"'] == 0
    assert samples["weft_link_up", 'link="h1-\\"r\\""'] == 1
    there, back = 'link="h0-r0",from="h0",to="r0"', 'link="h0-r0",from="r0",to="h0"'
    names = ("sent_bytes_total", "dropped_packets_total", "waiting_packets")
    values = [samples[f"weft_link_{name}", end] for name in names for end in (there, back)]
    assert values == [1000, 2000, 3, 4, 5, 6]
    daemon = {name: value for (name, labels), value in samples.items() if labels == 'node="r0"'}
    assert daemon == {
        "weft_daemon_neighbours": 1,
        "weft_daemon_expected_neighbours": 2,
        "weft_daemon_routes": 7,
        "weft_daemon_converged": 0,
        "weft_daemon_neighbour_losses_total": 3,
        "weft_daemon_restarts_total": 0,
        "weft_daemon_refused_messages_total": 4,
    }


def test_a_run_without_daemons_has_the_families_alone():
    samples = parse(page_data.openmetrics({"network": NETWORK}, {}, PORTS))
    assert samples["weft_run_info", 'run="demo",topology="file:a\\\\b.json",scheme="ecmp"'] == 1
    assert not any(name.startswith("weft_daemon") for name, _ in samples)


@pytest.mark.parametrize(
    "text",
    [
        "# TYPE a counter\na 1\n# EOF\n",
        "# TYPE a gauge\n# UNIT a bytes\n# EOF\n",
        'a{b="c"d"} 1\n# EOF\n',
        "# TYPE a gauge\na 1\na 1\n# EOF\n",
        "# TYPE a gauge\na 1\n",
    ],
)
def test_the_grammar_of_this_test_refuses_what_is_wrong(text):
    with pytest.raises((AssertionError, TypeError)):
        parse(text)
