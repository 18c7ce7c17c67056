from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from weft.daemons.core.compiled import compiled
from weft.daemons.routing import dr
from weft.experiments.ccrdn import throughput
from weft.experiments.engines import fluid
from weft.experiments.engines.fluid import Messages, Sharing, fair_rates
from weft.experiments.engines.graph import graph, policy
from weft.experiments.engines.wiring import compiled_for
from weft.experiments.runner.definition import Run
from weft.topologies.recursive.ccrdn import common_level

SIZE_BITS, RATE_BPS = 8e9, 1e9


def naive_rates(routes, capacity):
    """Max-min fair rates: all grow together, those on a link that is full stop, and so on."""
    rates, growing = dict.fromkeys(routes, Fraction(0)), set(routes)
    while growing:
        room = {}
        for channel in {channel for message in growing for channel in routes[message]}:
            users = [message for message in routes if channel in routes[message]]
            room[channel] = (capacity - sum(rates[m] for m in users)) / len(
                [m for m in users if m in growing]
            )
        step = min(room.values())
        for message in growing:
            rates[message] += step
        full = {channel for channel in room if room[channel] == step}
        growing = {message for message in growing if not full & set(routes[message])}
    return rates


def naive_ends(routes, waits_for, size, capacity):
    """When each message ends, one event after the other."""
    left, ends, now = dict.fromkeys(routes, Fraction(size)), {}, Fraction(0)
    while len(ends) < len(routes):
        running = {
            m: r
            for m, r in routes.items()
            if m not in ends and all(b in ends for b in waits_for.get(m, ()))
        }
        rates = naive_rates(running, Fraction(capacity))
        step = min(left[m] / rates[m] for m in running)
        now += step
        for m in running:
            left[m] -= rates[m] * step
            if left[m] == 0:
                ends[m] = now
    return ends


def route_channels(net, src, dst):
    found = []
    path = dr.route(net.rule, net.network.t, src, dst)
    for u, v in pairwise(path):
        level = common_level(net.network.t, u, v)
        found += [u * net.ports + level] + ([(v + 1) * net.ports - 1] if level == 0 else [])
    return found


def messages_of(pairs, waits_for):
    src, dst = np.ascontiguousarray(np.array(pairs).T)
    count = len(pairs)
    then = sorted((before, after) for after, befores in waits_for.items() for before in befores)
    return Messages(
        src,
        dst,
        np.array([len(waits_for.get(m, ())) for m in range(count)]),
        np.array([after for _, after in then], dtype=np.int64),
        np.searchsorted([before for before, _ in then], np.arange(count + 1)),
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_ends_are_those_of_one_event_after_the_other(seed):
    net, rng = graph("dcell:n=3,k=1"), np.random.default_rng(seed)
    pairs = [tuple(map(int, rng.choice(net.servers, 2, replace=False))) for _ in range(24)]
    waits_for = {m: {int(b) for b in rng.choice(m, min(m, 2), replace=False)} for m in range(8, 24)}
    work = messages_of(pairs, waits_for)
    routes = {m: route_channels(net, *pair) for m, pair in enumerate(pairs)}
    expected = naive_ends(routes, waits_for, 8, 1)
    sharing = Sharing(net.channels, SIZE_BITS, RATE_BPS, 0.0, True)
    args = (policy("dr"), work, sharing)
    end_s, times = compiled_for(net.rule, fluid.completion)(net.tables, *args)
    assert end_s.tolist() == pytest.approx([float(expected[m]) for m in range(24)])
    assert times <= 24


@pytest.mark.parametrize("seed", range(5))
def test_rates_are_max_min_fair(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, size=30)
    routes = np.zeros((30, 5), np.int32)
    for message, length in enumerate(lengths):
        routes[message, :length] = rng.choice(12, length, replace=False)
    flows = np.bincount(
        np.concatenate([routes[m, :n] for m, n in enumerate(lengths)]), minlength=12
    ).astype(np.uint32)
    rates, weighted = np.zeros(30), np.zeros(30)
    everybody = np.arange(30)
    compiled(fair_rates)(everybody, routes, lengths, None, flows, 1.0, rates)
    expected = naive_rates({m: routes[m, :n].tolist() for m, n in enumerate(lengths)}, Fraction(1))
    assert rates.tolist() == pytest.approx([float(expected[m]) for m in range(30)])
    whole = np.ones(routes.shape)
    compiled(fair_rates)(everybody, routes, lengths, whole, flows, 1.0, weighted)
    assert weighted.tolist() == rates.tolist()


def test_the_bottleneck_rule_gives_a_message_its_smallest_share():
    messages = messages_of([(0, 1), (2, 1), (0, 3)], {})
    state = fluid.new_state(messages, 2, 4)
    state.routes[:], state.lengths[:] = [[0, 1], [2, 1], [0, 3]], 2
    state.flows[:] = np.bincount(state.routes.ravel())
    fluid.update_rates(state, np.arange(3), 3, 1.0, Sharing(4, SIZE_BITS, RATE_BPS, 0.0, False))
    assert state.rates.tolist() == [RATE_BPS / 2] * 3
    state.flows[3] += 2
    fluid.update_rates(state, np.arange(3), 0, 1.0, Sharing(4, SIZE_BITS, RATE_BPS, 0.0, False))
    assert state.rates.tolist() == pytest.approx([RATE_BPS / 2, RATE_BPS / 2, RATE_BPS / 3])


def run(**parameters):
    defaults = {
        **{
            "topology": "dcell:n=3,k=2",
            "routing": "dr",
            "workload": "many-all-to-all:group=5",
            "causality": "rounds",
        },
        **{"sharing": "max-min", "resolution": 0.0, "apply": "algorithm"},
    }
    return Run(
        experiment="completion_time",
        version=1,
        parameters={**defaults, **parameters},
        seed=0,
        engine="graph",
    )


@pytest.mark.parametrize(
    "workload", ["uniform:messages=3", "many-all-to-all:group=5", "one-to-all"]
)
def test_workloads_are_what_they_say(workload):
    src, dst = throughput.ends(run(workload=workload))
    assert (src != dst).all()
    if workload == "one-to-all":
        assert len(set(src)) == 1
        assert sorted({*dst, src[0]}) == list(range(156))
    elif workload == "uniform:messages=3":
        assert (np.bincount(src) == 3).all()
        assert sorted(src[:156]) == list(range(156))
    else:
        peers = {}
        for one, other in zip(src.tolist(), dst.tolist(), strict=True):
            peers.setdefault(one, set()).add(other)
        assert sorted(len(others) for others in peers.values()) == [4] * 155  # 156 = 31 * 5 + 1
        assert all(one in peers[other] for one, others in peers.items() for other in others)
        assert len(src) == 155 * 4


def test_a_message_waits_for_what_its_sender_sends_and_gets_before():
    after, before = throughput.dependencies(np.array([0, 1, 0, 1, 2]), np.array([1, 2, 1, 0, 0]), 3)
    assert sorted(zip(after.tolist(), before.tolist(), strict=True)) == [
        (1, 0),
        (2, 0),
        (3, 1),
        (3, 2),
        (4, 1),
    ]


def test_messages_begin_after_what_they_wait_for_and_coarser_steps_change_little():
    exact, coarse = (
        throughput.measure_completion(run(resolution=step)).figures for step in (0.0, 0.02)
    )
    assert coarse["rate_updates"] < exact["rate_updates"]
    assert coarse["completion_s"] == pytest.approx(exact["completion_s"], rel=0.02)
    assert coarse["mean_end_s"] == pytest.approx(exact["mean_end_s"], rel=0.02)
    work = throughput.messages(run())
    net = graph("dcell:n=3,k=2")
    end_s, _ = compiled_for(net.rule, fluid.completion)(
        net.tables, policy("dr"), work, Sharing(net.channels, SIZE_BITS, RATE_BPS, 0.0, True)
    )
    for before in range(len(end_s)):
        for after in work.then[work.then_from[before] : work.then_from[before + 1]]:
            assert end_s[after] > end_s[before]
    assert end_s.min() >= 8


def test_waiting_takes_longer_than_sending_all_at_once_on_idle_links():
    alone = throughput.measure_completion(
        run(workload="uniform:messages=1", causality="none")
    ).figures
    rounds = throughput.measure_completion(run(workload="uniform:messages=1")).figures
    assert alone["completion_s"] <= rounds["completion_s"]


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"workload": "unifrom:messages=1"}, "did you mean uniform"),
        ({"workload": "uniform"}, "write uniform:messages=10"),
        ({"workload": "one-to-all:group=3"}, "write one-to-all"),
        ({"workload": "many-all-to-all:group=1"}, "group must be at least 2"),
        ({"causality": "some"}, "no causality 'some'"),
        ({"sharing": "fair"}, "no sharing 'fair'"),
        ({"routing": "bfs"}, "this experiment routes millions of pairs by compiled schemes"),
        ({"resolution": "0.99"}, "resolution must lie in"),
        (
            {"topology": "dcell:n=3,k=1", "workload": "many-all-to-all:group=13"},
            "group must be at most 12 in dcell",
        ),
    ],
)
def test_what_there_is_not_is_refused(parameters, what):
    with pytest.raises(ValueError, match=what):
        throughput.COMPLETION_TIME.runs(parameters)
