"""Differences between a running network and a lab, on a network that is data."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from weft.testbed.labs import link_changes
from weft.testbed.labs.lab_file import parse
from weft.testbed.labs.link_changes import apply, changes, link_of

LAB = """
nodes: {a: {hosts: 1}, b: {}, c: {hosts: 1}}
scheme: static
mtu: 4000
link: {rate: 10mbit, queue: 50}
links:
  - {ends: a-b}
  - {ends: a-b, rate: 10mbit, queue: 50, loss: 0.5}
  - {ends: b-c, rate: 1mbit, queue: 9}
"""
RATES = "link: {rate: 10mbit, queue: 50}\n"
SECOND = "  - {ends: a-b, rate: 10mbit, queue: 50, loss: 0.5}\n"


class Running:
    """A network whose links change and fail in this process."""

    def __init__(self, monkeypatch, text=LAB, failed=()):
        self.lab = parse(text, name="lab")
        self.run = SimpleNamespace(id="r")
        self.failed = {self.lab.topology.link(name) for name in failed}
        monkeypatch.setattr(link_changes, "lab_of", lambda network: network.lab)
        monkeypatch.setattr(
            link_changes.faults, "inspect", lambda network: SimpleNamespace(failed=self.failed)
        )

    def impair(self, name, impairment):
        link = self.lab.topology.link(name)
        fields = {key: value for key, value in vars(impairment).items() if value is not None}
        own = {link: replace(link_of(self.lab, link), **fields)}
        self.lab = replace(self.lab, own_links={**self.lab.own_links, **own})

    def fail(self, name):
        self.failed.add(self.lab.topology.link(name))

    def restore(self, name):
        self.failed.remove(self.lab.topology.link(name))


@pytest.mark.parametrize(
    ("failed", "old", "new", "lines"),
    [
        ([], "", "", []),
        (["a-b"], "", "", ["a-b: down -> up"]),
        ([], SECOND, "", ["a-b:2: up -> down"]),
        (["a-b:2"], SECOND, "", []),
        ([], ", loss: 0.5", "", ["a-b:2: loss 0.5 -> none"]),
        (
            [],
            "rate: 10mbit, queue: 50",
            "rate: 2500kbit, queue: 60",
            [
                "a.0-a: rate 10mbit -> 2500kbit, queue 50 -> 60",
                "c.0-c: rate 10mbit -> 2500kbit, queue 50 -> 60",
                "a-b: rate 10mbit -> 2500kbit, queue 50 -> 60",
                "a-b:2: rate 10mbit -> 2500kbit, queue 50 -> 60",
            ],
        ),
        (["b-c"], "1mbit", "7mbit", ["b-c: rate 1mbit -> 7mbit", "b-c: down -> up"]),
    ],
)
def test_after_its_changes_a_network_is_that_of_the_lab(monkeypatch, failed, old, new, lines):
    network, lab = Running(monkeypatch, failed=failed), parse(LAB.replace(old, new), name="lab")
    differing = changes(network, lab)
    assert sorted(map(str, differing)) == sorted(lines)
    apply(network, differing)
    assert changes(network, lab) == []


@pytest.mark.parametrize(
    ("old", "new", "rows"),
    [
        ("static", "ecmp", [("run", "r", {"scheme": "static"}, {"scheme": "ecmp"})]),
        (
            "a: {hosts: 1}",
            "a: {hosts: 2}",
            [
                ("node", "a.1", {"kind": None}, {"kind": "host"}),
                ("link", "a.1-a", {"state": None}, {"state": "up"}),
            ],
        ),
        (
            "4000",
            "5000",
            [
                ("link", name, {"mtu": 4000}, {"mtu": 5000})
                for name in ("a.0-a", "c.0-c", "a-b", "a-b:2", "b-c")
            ],
        ),
        (SECOND, "", [("link", "a-b:2", {"state": "up"}, {"state": None})]),
        (
            RATES,
            "",
            [
                ("link", name, {"rate": "10mbit"}, {"rate": None})
                for name in ("a.0-a", "c.0-c", "a-b")
            ],
        ),
    ],
)
def test_what_only_a_new_network_changes_is_said(monkeypatch, old, new, rows):
    text = LAB if old != RATES else LAB.replace("mtu: 4000\n", "")
    network, lab = Running(monkeypatch, text), parse(text.replace(old, new), name="lab")
    assert [change.row() for change in changes(network, lab, replace=True)] == [
        {kind: name, "before": before, "after": after, "replaces": True}
        for kind, name, before, after in rows
    ]


def test_a_link_of_the_lab_without_a_rate_is_refused(monkeypatch):
    text = LAB.replace("mtu: 4000\n", "")
    network, lab = Running(monkeypatch, text), parse(text.replace(RATES, ""), name="lab")
    with pytest.raises(ValueError, match=r"^a\.0-a has no rate in the lab: weft impair a\.0-a"):
        changes(network, lab)
