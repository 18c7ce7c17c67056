"""TTC's two models against naive ones that walk the topology's own graph, and against what the paper proves."""

from __future__ import annotations

import random
from collections import Counter, deque

import numpy as np
import pytest

from daemons.routing import load_balancing
from daemons.routing.load_balancing import Rule
from experiments.graph_engine.compiled import compiled
from experiments.graph_engine.workloads import k_permutation
from experiments.ttc import ttc_models
from experiments.ttc.ttc_models import DRAWS, Rules, Shape, rules
from topologies import build

SCHEMES = ["dmodk", "vlb", "micro", "ttc:delta=0", "ttc:delta=0,tie=redirect", "ttc:delta=2", "jsq"]
SHAPES = [Shape(2, 3), Shape(3, 2), Shape(4, 2)]


class Walker:
    """FT(n,d) as its topology: who is behind which port, and how to go down."""

    def __init__(self, ft: Shape) -> None:
        topology = build(f"fattree:n={ft.n},d={ft.d}")
        self.ft, self.hosts = ft, topology.servers
        self.beside = [{port: peer for port, peer, _, _ in topology.ports(node)} for node in range(topology.nodes)]
        self.layer_of = [0] * topology.servers + [
            1 + i // (2 * ft.d ** (ft.n - 1)) for i in range(topology.nodes - topology.servers)
        ]
        self.below = [self.hosts_below(node) for node in range(topology.nodes)]

    def hosts_below(self, node: int) -> set[int]:
        if node < self.hosts:
            return {node}
        lower = [peer for peer in self.beside[node].values() if self.layer_of[peer] < self.layer_of[node]]
        return set().union(*(self.hosts_below(peer) for peer in lower))

    def next(self, node: int, dst: int, loads: list[int], draws: list[int], rule: Rules) -> int:
        """The node after switch `node`; `loads` are those of its up-ports."""
        d, layer = self.ft.d, self.layer_of[node]
        if dst in self.below[node]:
            return next(
                peer for peer in self.beside[node].values() if self.layer_of[peer] < layer and dst in self.below[peer]
            )
        default = dst // d ** (layer - 1) % d
        match Rule(rule.rule):
            case Rule.D_MOD_K:
                up = default
            case Rule.RANDOM:
                up = draws[0] * d >> 32
            case Rule.DRILL:
                first = draws[0] * d >> 32
                other = (first + 1 + (draws[1] * (d - 1) >> 32)) % d
                up = other if loads[other] < loads[first] else first
            case Rule.TTC:
                other = (default + 1 + (draws[0] * (d - 1) >> 32)) % d
                over = loads[default] - loads[other]
                up = other if over > rule.delta or (rule.ties_redirect and over == rule.delta) else default
            case _:
                first = draws[0] * d >> 32
                up = min(((first + i) % d for i in range(d)), key=lambda port: loads[port])
        return self.beside[node][d + up]

    def ups(self, node: int) -> list[int]:
        return [self.beside[node][self.ft.d + up] for up in range(self.ft.d)] if self.layer_of[node] < self.ft.n else []

    def number(self, a: int, b: int) -> int:
        """The model's number of the link from node a to node b."""
        ft, switches = self.ft, 2 * self.ft.d ** (self.ft.n - 1)
        if b < self.hosts:
            return (2 * ft.n - 2) * self.hosts + b
        lower, higher, offset = (a, b, 0) if self.layer_of[a] < self.layer_of[b] else (b, a, ft.n - 1)
        layer, s = self.layer_of[lower], (lower - self.hosts) % switches
        up = next(port for port, peer in self.beside[lower].items() if peer == higher) - ft.d
        return (offset + layer - 1) * self.hosts + s * ft.d + up


def words(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1 << 32, size=(*shape, DRAWS))


@pytest.mark.parametrize("ft", SHAPES, ids=str)
@pytest.mark.parametrize("spec", SCHEMES)
def test_flows_are_assigned_as_on_the_graph(ft: Shape, spec: str) -> None:
    walker, rule = Walker(ft), rules(load_balancing.scheme(spec))
    pairs = np.array(k_permutation(np.random.default_rng(3), ft.hosts, 3))
    draws = words(4, len(pairs), ft.n - 1)
    load: Counter[tuple[int, int]] = Counter()
    for (src, dst), drawn in zip(pairs.tolist(), draws.tolist(), strict=True):
        node = walker.beside[src][0]
        while node != dst:
            loads = [load[node, up] for up in walker.ups(node)]
            to = walker.next(node, dst, loads, drawn[min(walker.layer_of[node], ft.n - 1) - 1], rule)
            load[node, to] += 1
            node = to
    expected = np.zeros((2 * ft.n - 1) * ft.hosts, np.int64)
    for (a, b), flows in load.items():
        expected[walker.number(a, b)] = flows
    assert (ttc_models.assign(ft, pairs[:, 0], pairs[:, 1], draws, rule) == expected).all()


@pytest.mark.parametrize("ft", [*SHAPES, Shape(3, 4)], ids=str)
def test_d_mod_k_shares_no_link_downwards(ft: Shape) -> None:
    """Theorem 2.1: flows to different destinations never meet on the way down."""
    pairs = np.array(k_permutation(np.random.default_rng(5), ft.hosts, 1))
    load = ttc_models.assign(
        ft, pairs[:, 0], pairs[:, 1], words(0, len(pairs), ft.n - 1), rules(load_balancing.scheme("dmodk"))
    )
    assert load[(ft.n - 1) * ft.hosts :].max() == 1
    assert load[: (ft.n - 1) * ft.hosts].max() > 1


def slow_slots(
    walker: Walker, sent: list[list[int]], starts: list[int], draws: list[list[list[int]]], rule: Rules
) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """(slot sent, latency) of every packet in order of arrival, and all queue lengths after each slot."""
    queues: list[deque[tuple[int, int, int]]] = [deque() for _ in range((2 * walker.ft.n - 1) * walker.hosts)]
    far = {
        walker.number(a, b): b
        for a in range(len(walker.beside))
        for b in walker.beside[a].values()
        if a >= walker.hosts
    }
    arrived, lengths = [], []

    def arrive(packet: tuple[int, int, int], node: int, drawn: list[int]) -> None:
        loads = [len(queues[walker.number(node, up)]) for up in walker.ups(node)]
        queues[walker.number(node, walker.next(node, packet[0], loads, drawn, rule))].append(packet)

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
    return arrived, lengths


@pytest.mark.parametrize("ft", [Shape(2, 2), Shape(3, 2)], ids=str)
@pytest.mark.parametrize("spec", SCHEMES)
def test_packets_move_as_on_the_graph(ft: Shape, spec: str) -> None:
    walker, rule, slots = Walker(ft), rules(load_balancing.scheme(spec)), 60
    rng = np.random.default_rng(6)
    sent = np.array([rng.permutation(ft.hosts) for _ in range(slots)])
    sent[rng.random(sent.shape) > 0.9] = -1
    links = (2 * ft.n - 1) * ft.hosts
    starts, draws = rng.integers(links, size=slots), words(7, slots, links + ft.hosts)
    arrived, lengths = slow_slots(walker, sent.tolist(), starts.tolist(), draws.tolist(), rule)
    state = ttc_models.empty(ft, slots=slots, packets=ft.hosts * slots)
    for slot in range(slots):
        ttc_models.one_slot(ft, state, slot, sent[slot], int(starts[slot]), draws[slot], rule)
        assert state.length.tolist() == lengths[slot]
    for born in range(slots):
        latencies = [latency for at, latency in arrived if at == born]
        assert state.delivered[born] == len(latencies)
        assert state.latency[born] == sum(latencies)
        assert state.worst[born] == max(latencies, default=0)


def test_a_lonely_packet_takes_a_slot_on_each_link() -> None:
    ft, rule = Shape(3, 2), rules(load_balancing.scheme("vlb"))
    for dst, hops in [(1, 2), (2, 4), (3, 4), (4, 6), (15, 6)]:
        state = ttc_models.empty(ft, slots=8, packets=4)
        for slot in range(8):
            sent = np.full(ft.hosts, -1)
            sent[0] = dst if slot == 0 else -1
            ttc_models.one_slot(ft, state, slot, sent, random.Random(dst).randrange(80), words(slot, 96), rule)
        assert (state.delivered[0], state.latency[0]) == (1, hops)


def test_machine_code_gives_what_python_gives() -> None:
    ft, rule, rng = Shape(2, 3), rules(load_balancing.scheme("ttc:delta=1")), np.random.default_rng(8)
    sent = np.array([rng.permutation(ft.hosts) for _ in range(40)])
    starts, draws = rng.integers(54, size=40), words(9, 40, 54 + ft.hosts)
    found = []
    for run in (ttc_models.many_slots, compiled(ttc_models.many_slots)):
        state = ttc_models.empty(ft, slots=40, packets=1000)
        queues = ttc_models.Queues(np.zeros(3, np.int64), np.zeros(3, np.int64), np.zeros((3, 8), np.int64))
        run(ft, state, 0, sent, starts, draws, rule, queues)
        found.append([*state, *queues])
    assert all((a == b).all() for a, b in zip(*found, strict=True))


def test_a_threshold_of_two_gives_the_least_latency_at_a_high_load() -> None:
    """Figure 6, and the reconstruction of (7)."""
    latency = {}
    for spec in ["dmodk", "vlb", "micro", "ttc:delta=0", "ttc:delta=2"]:
        of, rng = rules(load_balancing.scheme(spec)), np.random.default_rng(8)
        _, found = ttc_models.simulate(Shape(3, 4), of, 0.95, slots=1000, watched=300, lengths=8, rng=rng)
        latency[spec] = found.mean.mean()
    assert latency["ttc:delta=2"] < latency["ttc:delta=0"] < latency["dmodk"] < latency["vlb"]
    assert latency["ttc:delta=0"] < latency["micro"] < latency["vlb"]


@pytest.mark.parametrize("spec", ["drill", "ttc:load=bytes", "letflow", "rr", "drill:d=3,m=0"])
def test_what_the_models_lack_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="the models of TTC"):
        rules(load_balancing.scheme(spec))
