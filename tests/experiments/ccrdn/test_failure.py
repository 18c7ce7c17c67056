from types import SimpleNamespace

import numpy as np
import pytest

from weft.experiments.ccrdn import failure
from weft.experiments.ccrdn.failure import KINDS, failures
from weft.testbed.linux.clock import wait_until
from weft.topologies import build
from weft.topologies.core.failures import fail_links, fail_nodes

TOPOLOGY = build("dcell:n=3,k=1")


def first(kind, seed=0):
    return next(iter(failures(kind, TOPOLOGY, np.random.default_rng(seed))))


class Net:
    """Notes what is asked of it."""

    run = SimpleNamespace(directory="run")

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        return lambda *args, **named: self.asked.append((name, *args, *sorted(named.items())))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_comes_in_random_order_and_the_seed_decides(kind):
    names = [failure.name for failure in failures(kind, TOPOLOGY, np.random.default_rng(1))]
    again = [failure.name for failure in failures(kind, TOPOLOGY, np.random.default_rng(1))]
    other = [failure.name for failure in failures(kind, TOPOLOGY, np.random.default_rng(2))]
    assert names == again
    assert len(set(names)) == len(names) == {"node": 12, "daemon": 12, "rack": 4}.get(kind, 6)
    assert other != names


@pytest.mark.parametrize("kind", ["link", "silent-link", "one-way", "flap"])
def test_a_link_concerns_the_paths_over_it_in_either_direction(kind):
    failure = first(kind)
    link = TOPOLOGY.link(failure.name.partition(" ")[0])
    a, _, b, _ = TOPOLOGY.links[link].tolist()
    assert TOPOLOGY.level[link] == 1
    assert failure.passes([a, b])
    assert failure.passes([99, b, a])
    assert not failure.passes([a, 99, b])
    assert not failure.nodes
    assert (failure.after.failed == fail_links(TOPOLOGY, [link]).failed).all()


def test_a_link_to_a_crossbar_concerns_its_server_and_not_others_there():
    topology = build("bcube:n=3,k=1")
    (failure,) = (
        one for one in failures("link", topology, np.random.default_rng(1)) if one.name == "h0-w1.0"
    )
    assert failure.passes([0, 3])
    assert failure.passes([1, 6, 0])
    assert not failure.passes([3, 6])
    assert not failure.passes([7, 1, 0])


@pytest.mark.parametrize("kind", ["node", "daemon"])
def test_a_server_concerns_the_paths_through_it(kind):
    failure = first(kind)
    (node,) = failure.nodes
    assert failure.name == TOPOLOGY.naming.name(node)
    assert failure.passes([0, node, 99])
    assert not failure.passes([98, 99])
    assert (failure.after.failed == fail_nodes(TOPOLOGY, [node]).failed).all()


def test_a_rack_is_a_switch_and_its_servers():
    failure = first("rack")
    switch = TOPOLOGY.naming.node(failure.name)
    servers = {peer for _, peer, _, _ in TOPOLOGY.ports(switch)}
    assert failure.nodes == servers | {switch}
    assert all(failure.passes([98, server, 99]) for server in servers)
    assert failure.after.failed.sum() == 3 + 3  # to the switch, and to the other racks


@pytest.mark.parametrize(
    ("kind", "happens", "mends"),
    [
        ("link", [("fail", ("only_to", None), ("silent", False))], ["restore"]),
        ("silent-link", [("fail", ("only_to", None), ("silent", True))], ["restore"]),
        ("one-way", [("fail", ("only_to", "?"), ("silent", True))], ["restore"]),
        ("node", [("fail",)], ["restore"]),
        ("rack", [("fail",)] * 4, ["restore"] * 4),
        ("daemon", [("kill",)], ["start"]),
    ],
)
def test_what_is_done_to_the_network_is_undone(monkeypatch, kind, happens, mends):
    element, net = first(kind), Net()
    for name in ("kill", "start"):
        note = net.__getattr__(name)
        monkeypatch.setattr(failure.control, name, lambda _, node, note=note: note(node))
    element.happen(net)
    asked = [
        (
            name,
            *(
                ("only_to", value and "?") if key == "only_to" else (key, value)
                for key, value in named
            ),
        )
        for name, _, *named in net.asked
    ]
    assert asked == happens
    done, net.asked = net.asked, []
    element.mend(net)
    assert [name for name, *_ in net.asked] == mends
    assert {at for _, at, *_ in net.asked} == {at for _, at, *_ in done}


@pytest.mark.parametrize("turns", [0, 5])
def test_a_link_flaps_until_it_is_mended_and_works_then(monkeypatch, turns):
    monkeypatch.setattr(failure, "FLAP_DEAD_S", 0.001 if turns else 60)
    monkeypatch.setattr(failure, "FLAP_ALIVE_S", 0.001)
    flap, net = first("flap"), Net()
    assert not flap.lasts
    for _ in range(2):  # it may be done again
        net.asked.clear()
        flap.happen(net)
        assert net.asked[0] == ("fail", flap.name, ("only_to", None), ("silent", True))
        wait_until("it flaps", lambda: len(net.asked) > turns)
        flap.mend(net)
        asked = [name for name, *_ in net.asked]
        assert asked == ["fail", "restore"] * (len(asked) // 2)


def test_what_goes_wrong_while_a_link_flaps_is_told(monkeypatch):
    class Broken(Net):
        def restore(self, name):
            raise OSError(f"no {name}")

    monkeypatch.setattr(failure, "FLAP_DEAD_S", 0.001)
    flap, net = first("flap"), Broken()
    flap.happen(net)
    with pytest.raises(OSError, match=f"no {flap.name}"):
        flap.mend(net)


def test_a_one_way_failure_says_who_hears_nothing():
    failure, net = first("one-way"), Net()
    failure.happen(net)
    link, _, end = failure.name.partition(" to ")
    assert end in link.split("-")
    assert net.asked == [("fail", link, ("only_to", end), ("silent", True))]
