"""The slotted model: what goes in comes out, groups are kept to, and plain Python agrees with the
machine code."""

import numpy as np
import pytest

from weft.experiments.lbsp.lbsp_model import (
    Conditions,
    QueueSums,
    empty,
    many_slots,
    one_slot,
    paced,
    simulate,
    traffic,
)

PAPER = Conditions(4, 1, 0, 5, 150, 20, 200)
SMALL = PAPER._replace(d=2, edge_packets=2, above_packets=3)
EDGES, HOSTS = 32, 128


def nothing():
    return QueueSums(np.zeros(3, np.int64), np.zeros(2), np.zeros(2, np.int64))


def slots(on, to, bursts, count):
    """A fabric after `count` slots in which each host in bursts[slot] begins one; and what was
    seen."""
    fabric, seen = empty(on.d, 1000), nothing()
    for slot in range(count):
        begins = np.full(2 * on.d**2, -1)
        for host in bursts.get(slot, ()):
            begins[host // on.d] = host
        one_slot(on, fabric, to, begins, seen)
    return fabric, seen


def waiting(fabric):
    queues = fabric.hosts, fabric.edge.length, fabric.above.length, fabric.core
    return [int(queue.sum()) for queue in queues]


@pytest.mark.parametrize("at_once", [0, 1])
def test_a_burst_takes_its_path_group_in_turns(at_once):
    """Host 0 to 112 + 1: link group 1 at the edge, group 0 above (least bits 01)."""
    on = PAPER._replace(at_once=at_once, states=0)
    fabric, _ = slots(on, np.full(HOSTS, 113), {0: [0]}, 2)
    assert waiting(fabric)[0] == (0 if at_once else 2)
    fabric, _ = slots(on, np.full(HOSTS, 113), {0: [0]}, 1)
    assert fabric.edge.length[:4].tolist() == ([0, 2, 0, 2] if at_once else [0, 1, 0, 0])
    fabric, _ = slots(on, np.full(HOSTS, 113), {0: [0]}, 3)
    where = np.argwhere(fabric.core).tolist()
    assert {core % 4 for core, _ in where} <= {1, 3}
    assert {core // 4 for core, _ in where} <= {0, 2}
    assert {pod for _, pod in where} == {7}
    fabric, _ = slots(on, np.full(HOSTS, 113), {0: [0]}, 8)
    assert waiting(fabric) == [0, 0, 0, 0]


def test_what_stays_below_does_not_go_up():
    fabric, seen = slots(PAPER, np.full(HOSTS, 1), {0: [0]}, 8)
    assert seen.waiting.tolist() == [0, 0, 0]
    fabric, seen = slots(PAPER, np.full(HOSTS, 5), {0: [0]}, 8)
    assert seen.waiting[0] > 0
    assert seen.waiting[1:].tolist() == [0, 0]
    assert waiting(fabric) == [0, 0, 0, 0]


def test_machine_code_and_plain_python_agree():
    rng = np.random.default_rng(3)
    to = rng.permutation(16)
    begins = np.arange(8) * 2 + rng.integers(2, size=(300, 8))
    begins[rng.random(begins.shape) > 0.95] = -1
    plain, machine = nothing(), nothing()
    many_slots(SMALL, empty(2, 2000), to, begins, plain)
    from weft.daemons.core.compiled import compiled

    compiled(many_slots)(SMALL, empty(2, 2000), to, begins, machine)
    for one, other in zip(plain, machine, strict=True):
        assert one.tolist() == pytest.approx(other.tolist())
    assert plain.changes.sum() > 0


def test_bursts_are_paced_one_packet_a_slot():
    to, begins = traffic(4, 0.5, 50, np.random.default_rng(2))
    sent = paced(4, to, begins)
    assert {
        host: int(dst) for row in sent for host, dst in enumerate(row) if dst >= 0
    }.items() <= dict(enumerate(to.tolist())).items()
    began = np.bincount(begins[begins >= 0], minlength=HOSTS)
    assert ((sent >= 0).sum(axis=0) <= 4 * began).all()
    assert (sent[:3] >= 0).sum() > 0
    early = begins.copy()
    early[5:] = -1
    assert (
        (paced(4, to, early) >= 0).sum(axis=0)
        == 4 * np.bincount(early[early >= 0], minlength=HOSTS)
    ).all()


def test_states_bring_the_link_groups_together():
    found = {
        states: simulate(
            PAPER._replace(states=states), 0.8, slots=300, patterns=4, rng=np.random.default_rng(1)
        )
        for states in (0, 1)
    }
    assert found[1].apart[0] < found[0].apart[0] / 3
    assert found[1].apart[1] < found[0].apart[1]
