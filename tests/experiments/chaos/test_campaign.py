"""Campaigns as text, and what is broken after them."""

import random

import pytest

from weft.daemons.shortest_paths.daemon import Bfs
from weft.experiments.chaos.campaign import (
    KINDS,
    Campaign,
    Damage,
    FaultEvent,
    damage,
    parse,
    written,
)
from weft.experiments.chaos.drawing import campaign
from weft.experiments.chaos.prediction import machines
from weft.experiments.demo.chaos import EXPERIMENT, NETWORKS
from weft.experiments.report import figures
from weft.experiments.runner.definition import assignments, split
from weft.topologies import build

DCELL, FATTREE = build("dcell:n=3,k=1"), build("fattree:k=4")


@pytest.mark.parametrize("spec", ["dcell:n=3,k=1", "fattree:k=4", "slimfly:q=3,p=1"])
def test_what_is_written_is_read_again(spec):
    for seed in range(60):
        one = campaign(spec, "bfs", seed, steps=12)
        assert parse(written(one.events), build(spec)) == one.events


def test_the_command_that_repeats_a_campaign_is_one_run_of_it():
    one = campaign("dcell:n=3,k=1", "dr:hello_ms=100,dead=4", 7, steps=8)
    words = one.command("fabric").split()
    given = assignments([word for word in words if "=" in word])
    assert split(given["topology"]) == ["dcell:n=3,k=1"]
    assert split(given["routing"]) == ["dr:hello_ms=100,dead=4"]
    (text,) = split(given["events"])
    assert parse(text, DCELL) == one.events
    assert (
        Campaign("star:n=3", "bfs", ())
        .command("kernel")
        .endswith("--set events=none --set campaign=0")
    )
    assert (
        Campaign("star:n=3", "bfs", (), pairs=5)
        .command("kernel")
        .endswith("--set campaign=0 --set pairs=5")
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("down:h0-h3", "begins with its time"),
        ("-1:down:h0-h3", "begins with its time"),
        ("nan:down:h0-h3", "begins with its time"),
        ("0.1:dwn:h0-h3", "no kind 'dwn', did you mean down"),
        ("0.1:down:h0-h9", "h0"),
        ("0.1:die:h99", "h99"),
        ("0.1:kill:w0", "w0 runs no daemon"),
        ("0.1:deaf:h0-h3:h4", "h4 is no end of h0-h3"),
        ("0.1:lose:all:101", "ends in %, 0 .. 100"),
        ("0.1:lose:all", "ends in %"),
        ("0.1:stop:h0:-5", "ends in ms, 0"),
        ("0.1:pause:h0:5", "concerns all nodes"),
        ("0.1:up:h0-h3:5", "takes no value"),
        ("0.1:clock:h0:inf", "ends in ms"),
    ],
)
def test_what_is_no_event_is_said_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        parse(text, DCELL)
    assert "\n" not in str(error.value)


def test_events_happen_in_order_of_time_and_of_those_at_once_as_they_are_written():
    events = parse("0.2:up:h0-h3+0.1:silent:h0-h3+0.2:down:h0-h3", DCELL)
    assert [event.kind for event in events] == ["silent", "up", "down"]


def test_damage_is_what_has_not_been_mended():
    link, other = DCELL.link("h0-h3"), DCELL.link("h1-w0")
    text = "0:down:h0-h3+0:silent:h0-h3+0:deaf:h1-w0:w0+1:die:h2+1:kill:h2+1:kill:h5+1:kill:h6+2:start:h6"  # noqa: E501
    found = damage(parse(text, DCELL), DCELL)
    assert found == Damage({link}, {(link, 0), (link, 3), (other, 12)}, {2}, {5})
    assert found.links() == {link, other}
    after = damage(parse(f"{text}+3:up:h0-h3+3:live:h2+3:live:h5", DCELL), DCELL)
    assert after == Damage(set(), {(other, 12)})


def test_stops_last():
    assert (
        Campaign(
            "", "", (FaultEvent(1.0, "stop", "h0", "1500"), FaultEvent(2.0, "up", "h0-h3"))
        ).ends_s
        == 2.5
    )


def test_a_seed_draws_one_campaign_and_every_kind_is_drawn():
    many = [campaign("dcell:n=3,k=1", "dr", seed, steps=12) for seed in range(150)]
    assert many == [campaign("dcell:n=3,k=1", "dr", seed, steps=12) for seed in range(150)]
    assert {event.kind for one in many for event in one.events} == set(KINDS)
    assert len(set(many)) > 140


@pytest.mark.parametrize("topology", [DCELL, FATTREE], ids=["dcell", "fattree"])
def test_only_what_is_asked_for_is_drawn_and_never_is_too_much_broken(topology):
    allowed = [kind for kind in KINDS if kind not in ("clock", "die", "corrupt")]
    for seed in range(60):
        one = campaign(topology.spec, "bfs", seed, steps=25, kinds=allowed)
        found = Damage()
        for event in one.events:
            assert event.kind in allowed
            found.add(event, topology)
            assert len(found.dead | found.headless) <= topology.nodes / 3
    assert campaign(topology.spec, "bfs", 1, steps=9, kinds=["clock"]).events
    assert not campaign(topology.spec, "bfs", 1, steps=9, kinds=[]).events


def test_nothing_is_mended_that_was_not_broken():
    draw = random.Random(3)
    one = campaign("fattree:k=4", "ecmp", draw.randrange(1000), steps=40)
    dead: set[str] = set()
    for event in one.events:
        if event.kind == "live":
            assert event.where in dead
        dead = (
            dead | {event.where}
            if event.kind == "die"
            else dead - {event.where}
            if event.kind == "live"
            else dead
        )


def test_only_a_virtual_clock_is_set():
    given = {"topology": "dcell:n=3,k=1", "routing": "dr", "events": "0:clock:h0:200"}
    assert EXPERIMENT.plan(given, engines=["fabric"]).runs
    assert EXPERIMENT.plan(given, clock="virtual").runs
    with pytest.raises(ValueError, match="this machine's clock is not only the run's"):
        EXPERIMENT.plan(given, engines=["kernel"])


def test_the_sweep_has_every_scheme_on_every_network_that_it_can_route():
    cells = {
        (run.text("topology"), run.text("routing").partition(":")[0]) for run in EXPERIMENT.runs()
    }
    assert {name for _, name in cells} == set(machines())
    assert {spec for spec, name in cells if name == "bfs"} == set(NETWORKS)
    assert {spec for spec, name in cells if name == "lbsp"} == {"fattree:k=4"}


@pytest.mark.slow
def test_a_run_is_measured_and_drawn(tmp_path, capsys):
    given = {"topology": "complete:n=4,p=1", "routing": "bfs", "campaigns": "2", "steps": "3"}
    (run,) = EXPERIMENT.runs(given)
    row = {**run.parameters, **EXPERIMENT.measure(run).figures, "seed": 0, "engine": "fabric"}
    assert (row["passed"], row["failed"], len(row["settled_s"]), len(row["healed_s"])) == (
        True,
        0,
        2,
        2,
    )
    with figures.new() as figure:
        EXPERIMENT.plot([row], figure)
        figures.save(figure, tmp_path / "chaos.png")
    assert capsys.readouterr().err == ""


def test_what_fails_is_told_with_the_command_that_repeats_it(monkeypatch, capsys):
    monkeypatch.setattr(Bfs, "link_changed", lambda self, port, up, now: 1 / 0)
    name = build("complete:n=4,p=1").link_name(5)
    events = f"0.1:lose:all:5+0.2:down:{name}+0.3:clear:all"
    (run,) = EXPERIMENT.runs({"topology": "complete:n=4,p=1", "routing": "bfs", "events": events})
    found = EXPERIMENT.measure(run).figures
    assert (found["passed"], found["failed"]) == (False, 1)
    (command,) = found["repeat"]
    assert f"--set events=0:down:{name} " in command
    told = capsys.readouterr().err
    assert "crash: ZeroDivisionError" in told
    assert command in told
