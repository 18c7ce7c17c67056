"""The slotted model of DAR's section 5.2 against a slow, obvious version and what must hold, and
its experiments."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.experiments.dar.slow_clos import SlowClos
from weft.daemons.dar.iteration import DEST, FLOW, LIMITED, RANDOM, IterationRules
from weft.experiments.dar import dar_settling, dar_table
from weft.experiments.dar.dar_settling import SettlingMoves
from weft.experiments.dar.slotted_control import (
    COUNT,
    D_MOD_K,
    DRILL,
    GIVEN,
    HASH,
    QUEUE,
    SHORTEST,
    SlottedPlan,
    SpineScheme,
)
from weft.experiments.dar.slotted_control import RANDOM as BY_PACKET
from weft.experiments.dar.slotted_model import (
    SlottedOutcome,
    destinations,
    optimum,
    simulate,
)

BASE = IterationRules(p=2, folded=1, rest=6)
SMALL = (3, 4, 3)
WAYS = {
    "dar": SpineScheme(QUEUE, BASE._replace(key=DEST), 1, 5, 0),
    "dar by flow": SpineScheme(QUEUE, BASE._replace(start=LIMITED, p=1), 2, 5, 1),
    "dar without swaps": SpineScheme(QUEUE, BASE._replace(swap=0, start=RANDOM), 1, 5, 0),
    "counts": SpineScheme(COUNT, BASE._replace(start=RANDOM), 1, 5, 0),
    "informed": SpineScheme(COUNT, BASE._replace(informed=1, key=DEST, p=1, every_link=1), 1, 7, 0),
    "central": SpineScheme(GIVEN, BASE, 1, 5, 0),
    "ecmp": SpineScheme(HASH, BASE, 1, 5, 0),
    "dmodk": SpineScheme(D_MOD_K, BASE, 1, 5, 0),
    "rps": SpineScheme(BY_PACKET, BASE, 1, 5, 0),
    "drill": SpineScheme(DRILL, BASE, 1, 5, 0),
    "jsq": SpineScheme(SHORTEST, BASE, 1, 5, 0),
}


def run(
    way: SpineScheme,
    rate: float,
    slots: int,
    *,
    shape: tuple[int, int, int] = SMALL,
    size: int = 8,
    room: int = 3,
    seed: int = 1,
) -> SlottedOutcome:
    rng = np.random.default_rng(seed)
    return simulate(SlottedPlan(shape, rate, "random", size, room, slots, 0, 10), way, rng)


def slow(
    way: SpineScheme, rate: float, slots: int, *, size: int = 8, room: int = 3, seed: int = 1
) -> SlowClos:
    """The same from the same random numbers, drawn in the order of simulate()."""
    n, r, m = SMALL
    rng = np.random.default_rng(seed)
    destination = destinations(n, r, "random", int(slots * rate / size) + 2, rng)
    given = optimum(n, m, destination).tolist() if way.kind == GIVEN else []
    found = SlowClos(n, r, m, room, way, rng.integers(1, 1 << 32, 4).tolist(), given)
    due = rng.random(n * r).tolist()
    found.run(due, rate, size, destination.tolist(), rng.integers(1 << 32, size=slots).tolist())
    return found


def orders(found: SlowClos, host: int) -> tuple[int, int, int, int, int]:
    """Packets of `host` in order, jumps and their sum, late ones and by how many in sum, by all
    that came before."""
    in_order = jumps = jumped = late = extent = 0
    before: dict[tuple[int, int], list[int]] = {}
    for _, packet in found.arrived:
        numbers = before.setdefault((packet.source, packet.message), [-1])
        ahead = packet.number - max(numbers)
        if packet.destination == host:
            in_order += ahead == 1
            jumps += ahead > 1
            jumped += ahead * (ahead > 1)
            late += ahead < 0
            extent -= min(0, ahead)
        numbers.append(packet.number)
    return in_order, jumps, jumped, late, extent


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.55, 1.0])
@pytest.mark.parametrize("name", WAYS)
def test_the_model_is_the_slow_one(name: str, rate: float) -> None:
    way, slots = WAYS[name], 150
    fast, found = run(way, rate, slots), slow(way, rate, slots)
    seen, flows = fast.net.received, fast.known.flows
    for host in range(12):
        mine = [(slot, packet) for slot, packet in found.arrived if packet.destination == host]
        latencies = [slot - packet.born + 1 for slot, packet in mine]
        assert (seen.packets[:, host].sum(), seen.latency[host]) == (len(mine), sum(latencies))
        assert seen.worst_latency[host] == max(latencies, default=0)
        counted = seen.in_order, seen.jumps, seen.jumped, seen.late, seen.extent
        assert tuple(int(column[host]) for column in counted) == orders(found, host)
    assert list(flows.spine) == found.flows.spine
    assert (list(flows.up), list(flows.down)) == (found.flows.up, found.flows.down)
    assert fast.known.ears.tolist() == [found.sent, found.stale, found.resting]
    moved = [sum(count for slot, count in found.reroutes if slot // 10 == at) for at in range(15)]
    assert fast.known.reroutes.sum(axis=0).tolist() == moved
    if way.kind in (QUEUE, COUNT):
        assert sum(moved)
        assert found.sent


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dar", "ecmp", "jsq"])
def test_no_packet_is_lost_or_doubled_and_room_is_kept(name: str) -> None:
    found = run(WAYS[name], 1.0, 400, room=2)
    queues, seen, packets = found.net.queues, found.net.received, found.net.packets
    waiting = int(queues.length.sum())
    assert (
        int(found.hosts.sent.sum() + found.known.message.sum() * 8)
        == int(seen.packets.sum()) + waiting
    )
    assert seen.packets.sum() == (seen.in_order + seen.jumps + seen.late).sum()
    assert len(packets.source) - packets.free_count[0] == waiting == int(queues.occupied.sum())
    assert queues.occupied.max() <= 2
    assert (seen.latest < 8).all()


@pytest.mark.slow
def test_the_central_optimum_lets_nobody_wait() -> None:
    """Four links, a slot each, and now and then a slot for a packet of the message before."""
    found = run(WAYS["central"], 0.9, 2000, size=50, room=8)
    seen = found.net.received
    assert seen.jumps.sum() == seen.late.sum() == 0
    assert seen.latency.sum() / seen.packets.sum() < 4.2
    assert (seen.packets.sum(axis=0) / 2000).min() > 0.88


@pytest.mark.slow
def test_half_rate_settles_and_what_two_flows_do_not_fit_does_not() -> None:
    """In CLOS(8,8,8) at 0.48 and 0.52: the last move of a permutation, and the links once it is
    settled."""
    way = SpineScheme(QUEUE, IterationRules(p=2, folded=1, rest=16, key=FLOW), 3, 16, 0)
    half = run(way, 0.48, 400, shape=(8, 8, 8), size=1000, room=16)
    assert max(half.known.flows.up) <= 2
    assert max(half.known.flows.down) <= 2
    assert half.known.reroutes[:, -10:].sum() == 0
    assert half.known.reroutes.sum()
    more = run(way, 0.52, 2000, shape=(8, 8, 8), size=1000, room=16)
    assert more.known.reroutes[:, -10:].sum()


def test_a_permutation_settles_with_its_last_move() -> None:
    moved = np.array([[5, 30], [0, 0], [2, 199], [7, 260], [0, 0]])
    moves = SettlingMoves(np.array([0, 100, 190, 250, -1]), moved, np.zeros((1, 1)), 300)
    took, flows, length = moves.finished()
    assert took.tolist() == [31, 0, 10]  # the last one that began is not over
    assert flows.tolist() == [5, 0, 2]
    assert length.tolist() == [100, 90, 60]


def test_the_two_halves_of_the_window_make_the_mean() -> None:
    (one,) = dar_table.EXPERIMENT.runs(
        {**TINY, "scheme": "dar", "preset": "ours", "host_gbps": "40"}, seeds=1
    )
    figures = dar_table.EXPERIMENT.measure(one).figures
    packets = dar_table.outcome(one).net.received.packets
    halves = packets.sum(axis=1)
    assert figures["throughput_change_fraction"] == pytest.approx(
        halves[1] / halves[0] - 1, abs=0.02
    )


def test_the_paper_is_beside_its_three_cells() -> None:
    predicted = [dar_table.predict(one) for one in dar_table.EXPERIMENT.runs(seeds=1)]
    cells = [figures for figures in predicted if figures]
    assert len(cells) == 6  # with both presets
    assert all(len(figures) == 8 for figures in cells)


ENGINES = ("graph", "fabric")
SIX = {"topology": "clos:n=6,r=6,m=6", "traffic": "worst"}
TINY = {"topology": "clos:n=4,r=4,m=4", "time_us": "300", "message_kb": "64"}


@pytest.mark.slow
def test_the_table_measures_and_draws() -> None:
    runs = dar_table.EXPERIMENT.runs({**TINY, "skipped_us": "50", "preset": "ours"}, seeds=1)
    rows = [{**one.parameters, **dar_table.EXPERIMENT.measure(one).figures} for one in runs]
    of = {(row["scheme"], row["host_gbps"]): row for row in rows}
    assert len(of) == 20
    for row in rows:
        assert (
            0
            < float(row["min_throughput_gbps"])
            <= float(row["mean_throughput_gbps"])
            <= float(row["host_gbps"]) * 1.01
        )
        assert float(row["mean_jump_ratio"]) <= float(row["max_jump_ratio"])
    assert float(of["dar", 19.2]["mean_throughput_gbps"]) > 19
    assert of["dar", 40.0]["reroutes_per_message"]  # at half rate it may have settled before
    assert float(of["ecmp", 40.0]["mean_throughput_gbps"]) < 35
    assert of["central", 40.0]["mean_throughput_gbps"] == pytest.approx(40, rel=0.01)
    figure = Figure()
    dar_table.EXPERIMENT.plot(rows, figure)
    assert len([axes for part in figure.subfigs for axes in part.axes]) == 10


@pytest.mark.slow
def test_settling_measures_and_draws() -> None:
    given = {**TINY, "host_gbps": "19.2,20.8", "scheme": "dar", "time_us": "600"}
    runs = dar_settling.EXPERIMENT.runs({**given, "topology": "clos:n=8,r=8,m=8"}, seeds=1)
    half, more = rows = [
        {**one.parameters, **dar_settling.EXPERIMENT.measure(one).figures} for one in runs
    ]
    assert (half["host_gbps"], more["host_gbps"]) == (19.2, 20.8)
    assert half["in_step"]
    assert float(half["median_settling_us"]) < 20
    assert more["moving_in_last_quarter_fraction"] > half["moving_in_last_quarter_fraction"]
    figure = Figure()
    dar_settling.EXPERIMENT.plot(rows, figure)
    assert [len(axes.lines) for part in figure.subfigs for axes in part.axes] == [2, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"host_gbps": "50"}, "host_gbps=50"),
        ({"topology": "clos:n=8,r=8,m=3", "host_gbps": "19.2"}, "take m >= 4"),
        ({"topology": "fattree:k=4"}, "must be clos:n=..,r=..,m=.."),
        ({"skipped_us": "1300"}, "skipped_us must be less than time_us"),
        ({"time_us": "1000000"}, "take too long"),
        ({"room_packets": "10000", "topology": "clos:n=24,r=100,m=48"}, "more packets than memory"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dar_table.EXPERIMENT.runs(given)


@pytest.mark.slow
def test_the_daemons_settle_where_the_model_does() -> None:
    """CLOS(6,6,6), queues as the detector and p = 2 at both rates: flows of 0.48 settle within the
    paper's 80 us, flows of 0.52 never, in the slotted model and under the daemons."""
    given = {
        **SIX,
        "host_gbps": "19.2,20.8",
        "scheme": "dar",
        "key": "flow",
        "preset": "ours",
        "time_us": "450",
    }
    measured = {}
    for engine in ENGINES:
        for one in dar_settling.EXPERIMENT.runs(given, seeds=1, engines=[engine]):
            figures = dar_settling.EXPERIMENT.measure(one).figures
            measured[engine, one.number("host_gbps")] = figures
    for engine in ENGINES:
        half, more = measured[engine, 19.2], measured[engine, 20.8]
        assert half["p"] == more["p"] == 2
        assert half["within_80_us_fraction"] == 1
        assert more["within_80_us_fraction"] == 0
        assert more["moving_in_last_quarter_fraction"] == 1
        assert more["moves_per_flow"] > 2 * half["moves_per_flow"]
    model, daemons = (float(measured[engine, 19.2]["moves_per_flow"]) for engine in ENGINES)
    assert 0.3 < model / daemons < 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key": "flow", "start": "limited"}, "modulo or random, got limited"),
        ({"key": "flow", "topology": "clos:n=24,r=48,m=24"}, "at most 256 hosts on fabric"),
    ],
)
def test_what_daemons_lack_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dar_settling.EXPERIMENT.runs({**TINY, "host_gbps": "19.2", **given}, engines=["fabric"])
