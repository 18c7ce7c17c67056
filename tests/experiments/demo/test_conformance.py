"""Schemes whose daemons and predictions differ are found out, and no others."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from weft.daemons.core import registry
from weft.experiments.demo import conformance
from weft.experiments.demo.conformance import cause, findings


@pytest.fixture
def lie(monkeypatch: pytest.MonkeyPatch):
    """Register a scheme in place of the one of its name."""

    def register(name: str, **changes: object) -> None:
        others = dict(registry.schemes())
        others[name] = replace(others[name], **changes)
        monkeypatch.setattr(registry, "schemes", lambda: MappingProxyType(others))

    return register


@pytest.mark.parametrize(
    ("scheme", "network"),
    [
        ("dr", "bcube:n=2,k=1"),
        ("dr", "gqstar:n=2,k=2"),
        ("pr-gpi", "dcell:n=3,k=1"),
        ("bfs", "complete:n=3,p=1"),
        ("ecmp", "clos:n=1,r=3,m=2"),
        ("lbsp", "fattree:k=4"),
    ],
)
def test_schemes_of_weft_do_as_they_predict(scheme: str, network: str) -> None:
    for finding in findings(scheme, [network], seed=1):
        assert finding.checked > 1 or "lbsp" in finding.left_out, finding
        assert not finding.difference, finding


def test_a_pair_that_is_predicted_to_be_lost_is_named_with_both_paths(lie) -> None:
    path = registry.schemes()["dr"].path
    lie(
        "dr",
        connects=lambda t, options, src, dst: (
            (src, dst) != (0, 3) and bool(path(t, options, src, dst))
        ),
    )
    in_simulator, with_packets = findings("dr", ["dcell:n=3,k=1"], seed=1)
    words = "h0 to h3: is lost, path h0 h3 (predicted); "
    assert in_simulator.difference == words + "arrives, path h0 h3 (as it went)"
    assert with_packets.difference == words + "its message arrived (as it went)"


def test_a_longer_path_than_predicted_is_a_difference(lie) -> None:
    def shorter(topology, options, src, dst):
        (path, *_) = honest(topology, options, src, dst) or [None]
        return [path] if path is None or len(path.nodes) < 4 else [replace_nodes(path)]

    honest = registry.schemes()["dr"].path
    replace_nodes = lambda path: type(path)((path.nodes[0], path.nodes[-1]))  # noqa: E731
    lie("dr", path=shorter)
    in_simulator, _ = findings("dr", ["dcell:n=3,k=1"], seed=1)
    assert "(predicted); arrives, path" in in_simulator.difference


def test_what_holds_only_after_a_failure_is_named_with_the_link(lie) -> None:
    """Without `connects` a scheme is to connect what healthy links connect, which dr does not."""
    lie("dr", connects=None)
    in_simulator, _ = findings("dr", ["dcell:n=3,k=1"], seed=1)
    assert in_simulator.checked > 0
    assert in_simulator.difference.startswith("with h")
    assert "dead, h" in in_simulator.difference


def test_a_network_that_the_scheme_refuses_is_left_out_with_the_reason() -> None:
    (finding,) = findings("dr", ["fattree:k=4"], seed=1)
    assert finding.left_out.startswith("scheme dr runs on server-centric networks")


def test_a_scheme_without_daemons_is_refused() -> None:
    with pytest.raises(ValueError, match="scheme static has no daemons: nothing could differ"):
        list(findings("static", ["dcell:n=3,k=1"], seed=1))


@pytest.mark.virtual
def test_linux_is_asked_under_the_virtual_clock() -> None:
    class Count:
        runs = 0

        def ended(self, run, failure, *seconds) -> None:
            self.runs += 1

    watcher = Count()
    finding = conformance.with_linux("dcell:n=3,k=1", "dr", watcher)
    assert finding == ("dcell:n=3,k=1", "Linux, virtual clock", 3, "", "")
    assert watcher.runs == 3


@pytest.mark.parametrize(
    ("network", "why"),
    [
        ("dcell:n=4,k=3", "dcell: 176,820 servers, .* interface indexes for"),
        (
            "dcell:n=6,k=2",
            "1,806 servers, .*; conform compares all pairs, of 1,000 servers at most",
        ),
    ],
)
def test_a_network_too_large_is_refused_before_any_is_tried(network: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        next(findings("dr", ["dcell:n=3,k=1", network], seed=1))


@pytest.mark.parametrize(
    ("failed", "difference", "said"),
    [
        (
            "h0-h3",
            "h9 to h5: arrives, path h9 h5 (graph); is lost, path h9, no route at h9 (fabric)",
            "with h0-h3 dead, Linux does as predicted, the simulator "
            "does not: h9 to h5: arrives, path h9 h5 (predicted); is lost, path h9, no route at h9 "
            "(simulator)",
        ),
        (
            "",
            "h0 to h1: arrives, path h0 h1 (graph); is lost, path h0, no route at h0 (kernel)",
            "h0 to h1: arrives, path h0 h1 (predicted); is lost, path h0, no route at h0 (Linux)",
        ),
    ],
)
def test_a_difference_on_linux_names_dead_links_and_who_differs(
    failed: str, difference: str, said: str
) -> None:
    assert cause({"failed": failed, "difference": difference}) == said
