"""TTC's two models against naive ones that walk the topology's own graph, and against what the
paper proves."""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Any

import numpy as np
import pytest

from weft.daemons.core.compiled import compiled
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.experiments.engines.workloads import k_permutation, transpose
from weft.experiments.ttc import fabric_gain, packet_model, ttc_flow, ttc_packet
from weft.experiments.ttc.fat_tree_links import (
    DRAWS,
    LayeredTreeShape,
    SchemeRules,
    UpwardChoices,
    links,
    no_choices,
    rules,
)
from weft.experiments.ttc.ttc_flow import assign, throw
from weft.topologies import build

SCHEMES = ["dmodk", "vlb", "micro", "ttc:delta=0", "ttc:delta=0,tie=redirect", "ttc:delta=2", "jsq"]
SHAPES = [LayeredTreeShape(2, 3), LayeredTreeShape(3, 2), LayeredTreeShape(4, 2)]


class Walker:
    """FT(n,d) as its topology: who is behind which port, and how to go down."""

    def __init__(self, ft: LayeredTreeShape) -> None:
        topology = build(f"fattree:n={ft.n},d={ft.d}")
        self.ft, self.hosts = ft, topology.servers
        self.beside = [
            {port: peer for port, peer, _, _ in topology.ports(node)}
            for node in range(topology.nodes)
        ]
        self.layer_of = [0] * topology.servers + [
            1 + i // (2 * ft.d ** (ft.n - 1)) for i in range(topology.nodes - topology.servers)
        ]
        self.below = [self.hosts_below(node) for node in range(topology.nodes)]

    def hosts_below(self, node: int) -> set[int]:
        if node < self.hosts:
            return {node}
        lower = [
            peer for peer in self.beside[node].values() if self.layer_of[peer] < self.layer_of[node]
        ]
        return set().union(*(self.hosts_below(peer) for peer in lower))

    def next(
        self, node: int, dst: int, loads: list[int], draws: list[int], rule: SchemeRules
    ) -> int:
        """The node after switch `node`; `loads` are those of its up-ports."""
        d, layer = self.ft.d, self.layer_of[node]
        if dst in self.below[node]:
            return next(
                peer
                for peer in self.beside[node].values()
                if self.layer_of[peer] < layer and dst in self.below[peer]
            )
        default = dst // d ** (layer - 1) % d
        match ChoiceRule(rule.rule):
            case ChoiceRule.D_MOD_K:
                up = default
            case ChoiceRule.RANDOM:
                up = draws[0] * d >> 32
            case ChoiceRule.DRILL:
                first = draws[0] * d >> 32
                other = (first + 1 + (draws[1] * (d - 1) >> 32)) % d
                up = other if loads[other] < loads[first] else first
            case ChoiceRule.TTC:
                other = (default + 1 + (draws[0] * (d - 1) >> 32)) % d
                over = loads[default] - loads[other]
                up = (
                    other
                    if over > rule.delta or (rule.ties_redirect and over == rule.delta)
                    else default
                )
            case _:
                first = draws[0] * d >> 32
                up = min(((first + i) % d for i in range(d)), key=lambda port: loads[port])
        return self.beside[node][d + up]

    def ups(self, node: int) -> list[int]:
        return (
            [self.beside[node][self.ft.d + up] for up in range(self.ft.d)]
            if self.layer_of[node] < self.ft.n
            else []
        )

    def number(self, a: int, b: int) -> int:
        """The model's number of the link from node a to node b."""
        ft, switches = self.ft, 2 * self.ft.d ** (self.ft.n - 1)
        if b < self.hosts:
            return (2 * ft.n - 2) * self.hosts + b
        lower, higher, offset = (
            (a, b, 0) if self.layer_of[a] < self.layer_of[b] else (b, a, ft.n - 1)
        )
        layer, s = self.layer_of[lower], (lower - self.hosts) % switches
        up = next(port for port, peer in self.beside[lower].items() if peer == higher) - ft.d
        return (offset + layer - 1) * self.hosts + s * ft.d + up


class HopwiseChoices:
    """Choices counted hop by hop, to be compared with Choices."""

    def __init__(self, walker: Walker) -> None:
        self.walker, self.choices = walker, no_choices(walker.ft)

    def hop(self, node: int, to: int, dst: int) -> bool:
        """Count the hop from switch `node` to `to`; whether it strays from D-mod-k's path."""
        layer, d = self.walker.layer_of[node], self.walker.ft.d
        if self.walker.layer_of[to] < layer:
            return False
        strays = to != self.walker.beside[node][d + dst // d ** (layer - 1) % d]
        self.choices.decisions[layer] += 1
        self.choices.redirected[layer] += strays
        return strays

    def turn(self, node: int, strayed: bool) -> None:
        """Something turned at switch `node`."""
        if self.walker.layer_of[node] == self.walker.ft.n:
            self.choices.over_top[0] += 1
            self.choices.default_over_top[0] += not strayed


def are_equal(one: UpwardChoices, other: UpwardChoices) -> bool:
    return all((a == b).all() for a, b in zip(one, other, strict=True))


def assign_flows(
    ft: LayeredTreeShape, pairs: np.ndarray, draws: np.ndarray, rule: SchemeRules
) -> tuple[np.ndarray, UpwardChoices]:
    load, choices = np.zeros(ft.links, np.int64), no_choices(ft)
    assign(links(ft), load, pairs[:, 0], pairs[:, 1], draws, rule, choices)
    return load, choices


def words(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1 << 32, size=(*shape, DRAWS))


def test_a_ball_falls_into_the_emptier_of_two_bins() -> None:
    """Two choices of section 1: never the fuller bin, and one bin twice is no choice."""
    bins, draws = np.zeros(8, np.int64), words(5, 400)
    for drawn in draws.tolist():
        before = bins.copy()
        first = drawn[0] * 8 >> 32
        second = (first + 1 + (drawn[1] * 7 >> 32)) % 8
        throw(bins, np.array([drawn]), ttc_flow.scheme("balls", 50, 8))
        (bin_,) = np.flatnonzero(bins != before)
        assert bin_ in (first, second)
        assert before[bin_] == min(before[first], before[second])
    assert bins.sum() == len(draws)


def test_bins_of_balls_have_no_links() -> None:
    parameters = {"topology": "fattree:n=2,d=3", "scheme": "balls", "k": "5", "repetitions": "4"}
    run, _ = ttc_flow.EXPERIMENT.runs(parameters)
    figures = ttc_flow.measure(run).figures
    assert figures["up1_max_load_flows"] == figures["max_load_flows"] > 5
    assert figures["down1_max_load_flows"] == figures["hosts_max_load_flows"] == 0
    assert figures["default_path_fraction"] is None


@pytest.mark.parametrize("ft", SHAPES, ids=str)
@pytest.mark.parametrize("spec", SCHEMES)
def test_flows_are_assigned_as_on_the_graph(ft: LayeredTreeShape, spec: str) -> None:
    walker, rule = Walker(ft), rules(spec)
    pairs = np.array(k_permutation(np.random.default_rng(3), ft.hosts, 3))
    draws = words(4, len(pairs), ft.n - 1)
    load: Counter[tuple[int, int]] = Counter()
    counted = HopwiseChoices(walker)
    for (src, dst), drawn in zip(pairs.tolist(), draws.tolist(), strict=True):
        node, strayed = walker.beside[src][0], False
        while node != dst:
            loads = [load[node, up] for up in walker.ups(node)]
            to = walker.next(
                node, dst, loads, drawn[min(walker.layer_of[node], ft.n - 1) - 1], rule
            )
            load[node, to] += 1
            strayed |= counted.hop(node, to, dst)
            counted.turn(node, strayed)
            node = to
    expected = np.zeros((2 * ft.n - 1) * ft.hosts, np.int64)
    for (a, b), flows in load.items():
        expected[walker.number(a, b)] = flows
    found, choices = assign_flows(ft, pairs, draws, rule)
    assert (found == expected).all()
    assert are_equal(choices, counted.choices)
    assert choices.over_top[0] > 0


@pytest.mark.parametrize("ft", [*SHAPES, LayeredTreeShape(3, 4)], ids=str)
def test_d_mod_k_shares_no_link_downwards(ft: LayeredTreeShape) -> None:
    """Theorem 2.1: flows to different destinations never meet on the way down."""
    pairs = np.array(k_permutation(np.random.default_rng(5), ft.hosts, 1))
    load, choices = assign_flows(ft, pairs, words(0, len(pairs), ft.n - 1), rules("dmodk"))
    assert choices.figures()["default_path_fraction"] == 1
    assert load[(ft.n - 1) * ft.hosts :].max() == 1
    assert load[: (ft.n - 1) * ft.hosts].max() > 1


def slow_slots(
    walker: Walker,
    sent: list[list[int]],
    starts: list[int],
    draws: list[list[list[int]]],
    rule: SchemeRules,
) -> tuple[list[tuple[int, int]], list[list[int]], UpwardChoices]:
    """(slot sent, latency) of every packet in order of arrival, all queue lengths after each slot,
    and choices."""
    counted, strayed = HopwiseChoices(walker), set[tuple[int, int, int]]()
    queues: list[deque[tuple[int, int, int]]] = [
        deque() for _ in range((2 * walker.ft.n - 1) * walker.hosts)
    ]
    far = {
        walker.number(a, b): b
        for a in range(len(walker.beside))
        for b in walker.beside[a].values()
        if a >= walker.hosts
    }
    arrived, lengths = [], []

    def arrive(packet: tuple[int, int, int], node: int, drawn: list[int]) -> None:
        loads = [len(queues[walker.number(node, up)]) for up in walker.ups(node)]
        to = walker.next(node, packet[0], loads, drawn, rule)
        queues[walker.number(node, to)].append(packet)
        if counted.hop(node, to, packet[0]):
            strayed.add(packet)
        counted.turn(node, packet in strayed)

    for slot, (row, start, drawn) in enumerate(zip(sent, starts, draws, strict=True)):
        moving = [queue.popleft() if queue else None for queue in queues]
        for i in range(len(queues)):
            packet = moving[(start + i) % len(queues)]
            node = far[(start + i) % len(queues)]
            if packet is None:
                continue
            if node < walker.hosts:
                assert node == packet[0]
                arrived.append((packet[1], slot - packet[1] + 1))
            else:
                arrive(packet, node, drawn[i])
        for host, dst in enumerate(row):
            if dst >= 0:
                arrive((dst, slot, host), walker.beside[host][0], drawn[len(queues) + host])
        lengths.append([len(queue) for queue in queues])
    return arrived, lengths, counted.choices


@pytest.mark.parametrize("ft", [LayeredTreeShape(2, 2), LayeredTreeShape(3, 2)], ids=str)
@pytest.mark.parametrize("spec", SCHEMES)
def test_packets_move_as_on_the_graph(ft: LayeredTreeShape, spec: str) -> None:
    walker, rule, slots = Walker(ft), rules(spec), 60
    rng = np.random.default_rng(6)
    sent = np.array([rng.permutation(ft.hosts) for _ in range(slots)])
    sent[rng.random(sent.shape) > 0.9] = -1
    starts, draws = rng.integers(ft.links, size=slots), words(7, slots, ft.links + ft.hosts)
    arrived, lengths, counted = slow_slots(
        walker, sent.tolist(), starts.tolist(), draws.tolist(), rule
    )
    state = packet_model.empty(ft, slots=slots, packets=ft.hosts * slots)
    net, choices = links(ft), no_choices(ft)
    for slot in range(slots):
        drawn = packet_model.SlotDraws(sent, starts, draws)
        packet_model.one_slot(net, state, slot, drawn, slot, rule, choices)
        assert state.length.tolist() == lengths[slot]
    for born in range(slots):
        latencies = [latency for at, latency in arrived if at == born]
        assert state.delivered[born] == len(latencies)
        assert state.latency[born] == sum(latencies)
        assert state.worst[born] == max(latencies, default=0)
    assert are_equal(choices, counted)
    assert state.room == ft.hosts * slots - sum(lengths[-1])


def test_lengths_that_are_watched_are_added_and_the_last_class_has_all_longer_ones() -> None:
    ft = LayeredTreeShape(2, 3)
    state = packet_model.empty(ft, slots=1, packets=1)
    state.length[:] = np.arange(len(state.length)) % 7
    by_layer = state.length.reshape(len(ft.layers), -1)
    watched = packet_model.nothing_watched(ft, 4)
    for _ in range(2):
        packet_model.watch(state, watched)
    assert watched.total.tolist() == (2 * by_layer.sum(axis=1)).tolist()
    assert watched.largest.tolist() == by_layer.max(axis=1).tolist()
    assert watched.histogram.tolist() == [
        [2 * (lengths == n).sum() for n in range(3)] + [2 * (lengths >= 3).sum()]
        for lengths in by_layer
    ]


@pytest.mark.parametrize(
    ("topology", "hosts"),
    [("clos:n=8,r=2,m=4", 8), ("fattree:k=4,oversubscription=3", 6), ("star:n=5", 5)],
)
def test_cross_traffic_leaves_an_edge_switch(topology: str, hosts: int) -> None:
    run, *_ = fabric_gain.EXPERIMENT.runs({"traffic": "cross", "delay_us": "0"})
    assert fabric_gain.traffic(run, build(topology)) == f"cross:group={hosts}"


def test_a_lonely_packet_takes_a_slot_on_each_link() -> None:
    ft, rule = LayeredTreeShape(3, 2), rules("vlb")
    for dst, hops in [(1, 2), (2, 4), (3, 4), (4, 6), (15, 6)]:
        state = packet_model.empty(ft, slots=8, packets=4)
        for slot in range(8):
            sent = np.full(ft.hosts, -1)
            sent[0] = dst if slot == 0 else -1
            start = random.Random(dst).randrange(80)
            drawn = packet_model.SlotDraws(sent[None], np.array([start]), words(slot, 96)[None])
            packet_model.one_slot(links(ft), state, slot, drawn, 0, rule, no_choices(ft))
        assert (state.delivered[0], state.latency[0]) == (1, hops)


@pytest.mark.slow
def test_machine_code_gives_what_python_gives() -> None:
    ft, rule, rng = LayeredTreeShape(2, 3), rules("ttc:delta=1"), np.random.default_rng(8)
    sent = np.array([rng.permutation(ft.hosts) for _ in range(40)])
    starts, draws = rng.integers(54, size=40), words(9, 40, 54 + ft.hosts)
    found = []
    for run in (packet_model.many_slots, compiled(packet_model.many_slots)):
        state, watched = (
            packet_model.empty(ft, slots=40, packets=1000),
            packet_model.nothing_watched(ft, 8),
        )
        run(links(ft), state, 0, packet_model.SlotDraws(sent, starts, draws), rule, watched)
        found.append([*state, *watched[:3], *watched.choices])
    assert all((a == b).all() for a, b in zip(*found, strict=True))
    assert watched.choices.redirected.sum() > 0


def test_a_threshold_of_two_gives_the_least_latency_at_a_high_load() -> None:
    """Figure 6, and the reconstruction of (7)."""
    latency = {}
    for spec in ["dmodk", "vlb", "micro", "ttc:delta=0", "ttc:delta=2"]:
        scheme_rules, rng = rules(spec), np.random.default_rng(8)
        _, found = packet_model.simulate(
            LayeredTreeShape(3, 4), scheme_rules, 0.95, slots=1000, watched=300, lengths=8, rng=rng
        )
        latency[spec] = found.mean.mean()
    assert latency["ttc:delta=2"] < latency["ttc:delta=0"] < latency["dmodk"] < latency["vlb"]
    assert latency["ttc:delta=0"] < latency["micro"] < latency["vlb"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("drill", "the models of TTC have dmodk, vlb, rps, ecmp, micro, ttc, jsq, and not drill"),
        ("letflow", "and not letflow"),
        ("rr", "and not rr"),
        ("lbsp", "and not lbsp"),
        ("ttc:load=bytes", "have no load=bytes: of ttc they know delta and tie"),
        ("ttc:ecn=3", "have no ecn=3: of ttc they know delta and tie"),
        ("vlb:ecn=1", "have no ecn=1: of vlb they know per"),
        ("dmodk:ecn=1", "have no ecn=1: of dmodk they know no parameters"),
    ],
)
def test_what_the_models_lack_is_refused(spec: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^the models of TTC") as error:
        rules(spec)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "spec",
    ["ttc:delta=0,tie=redirect", "ttc:load=packets,ecn=0", "vlb:per=packet", "micro", "ecmp"],
)
def test_what_the_models_have_is_taken(spec: str) -> None:
    assert rules(spec).rule == {"ttc": ChoiceRule.TTC, "mic": ChoiceRule.DRILL}.get(
        spec[:3], ChoiceRule.RANDOM
    )


@pytest.mark.parametrize(
    "ft",
    [
        LayeredTreeShape(2, 4),
        LayeredTreeShape(3, 4),
        LayeredTreeShape(3, 8),
        LayeredTreeShape(4, 3),
    ],
    ids=str,
)
def test_the_adversarial_permutation_collides_under_d_mod_k_and_not_under_ttc(
    ft: LayeredTreeShape,
) -> None:
    """At layer l, d^l hosts are below a switch and 2 d^(n-l) hosts have the digits to which one of
    its uplinks leads; those of them that are below the switch as well do not take it."""
    layer = -(-ft.n // 2)
    worst = min(ft.d**layer, 2 * ft.d ** (ft.n - layer))
    dst = ttc_flow.destinations("adversarial", ft, 2, np.random.default_rng(0))
    assert sorted(dst[0]) == list(range(ft.hosts))
    assert (dst[0] != np.arange(ft.hosts)).all()
    assert (dst[0] == dst[1]).all()
    pairs = np.array(list(enumerate(dst[0].tolist())))
    most = {}
    for spec in ("dmodk", "ttc:delta=0", "vlb"):
        load, _ = assign_flows(ft, pairs, words(1, len(pairs), ft.n - 1), rules(spec))
        most[spec] = load.max()
    assert worst - 1 <= most["dmodk"] <= worst
    assert most["ttc:delta=0"] < most["dmodk"]


def test_a_matrix_transposed_twice_is_as_it_was() -> None:
    once, back = dict(transpose(24, 4)), dict(transpose(24, 6))
    fixed = {0, 23}
    assert all(back[once[i]] == i for i in range(24) if i not in fixed)
    assert (once[1], once[4], once[6]) == (4, 16, 1)
    assert {i: once[i] for i in fixed} == {0: 23, 23: 0}


@pytest.mark.parametrize(("hosts", "rows"), [(24, 5), (24, 1), (24, 24), (2, 2), (3, 3)])
def test_a_matrix_needs_whole_rows(hosts: int, rows: int) -> None:
    with pytest.raises(
        ValueError, match=f"transpose: rows must be 2 to {hosts // 2} and divide {hosts}"
    ):
        transpose(hosts, rows)


def test_the_quarter_that_keeps_to_its_path_lies_between_the_two_tie_rules() -> None:
    """Section 3 estimates that without a threshold a half stays at each layer; a threshold keeps
    more."""
    kept = {}
    for spec in ("ttc:delta=0", "ttc:delta=0,tie=redirect", "ttc:delta=2"):
        parameters = {
            "topology": "fattree:n=3,d=4",
            "scheme": spec,
            "k": "16",
            "repetitions": "5",
            "traffic": "random",
        }
        (run,) = ttc_flow.EXPERIMENT.runs(parameters)
        figures = ttc_flow.measure(run).figures
        kept[spec] = figures["default_path_fraction"]
        product = (1 - figures["up1_redirected_fraction"]) * (
            1 - figures["up2_redirected_fraction"]
        )
        assert kept[spec] == pytest.approx(product, rel=0.2)
    assert (
        0.05 < kept["ttc:delta=0,tie=redirect"] < 0.25 < kept["ttc:delta=0"] < kept["ttc:delta=2"]
    )


def test_packets_that_nobody_sent_have_no_latency() -> None:
    parameters = {
        "load_fraction": "0.01",
        "slots": "1",
        "watched_slots": "1",
        "topology": "fattree:n=2,d=2",
        "scheme": "vlb",
    }
    said = []
    for run in ttc_packet.EXPERIMENT.runs(parameters):
        try:
            ttc_packet.measure(run)
        except ValueError as error:
            said.append(str(error))
    assert said, "eight hosts have sent in each of five slots, at load 0.01"
    assert all("no host sent in the watched slots" in line for line in said)


@pytest.mark.parametrize(
    ("experiment", "parameters", "said"),
    [
        (
            ttc_packet,
            {"slots": "1000000", "topology": "fattree:n=3,d=16"},
            "take too long: take at most 488281",
        ),
        (
            ttc_flow,
            {"repetitions": "100000", "k": "4096"},
            "repetitions with 4194304 flows take too long: take at most 4768",
        ),
        (
            ttc_flow,
            {"topology": "clos:n=2,r=2,m=2"},
            "ttc_flow: topology must be a fattree, got clos:n=2,r=2,m=2",
        ),
        (ttc_flow, {"topology": "fattree:k=4,pods=2"}, "ttc_flow: a whole fattree"),
    ],
)
def test_what_takes_too_long_or_is_no_fat_tree_is_refused(
    experiment: Any, parameters: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        experiment.EXPERIMENT.runs(parameters)
    assert said in str(error.value)
