"""The random sequences of test_sequences.py on wires that are slow, reorder and double, with old
requests sent again, flows back on the same ports, daemons that stall or begin anew, and queues
instead of counts."""

import random

import pytest

from tests.daemons.dar.dar_fabric import Fabric
from tests.daemons.dar.test_sequences import NETWORKS, NOTICE_S, OPTIONS, Sequence
from weft.daemons.core.actions import Send
from weft.daemons.dar import daemon
from weft.daemons.simulator.wires import Wire

QUEUES = [
    "detect=queue",
    "detect=queue,rest_us=0",
    "detect=queue,swap=0,start=hash",
    "detect=queue,p=1",
]
STEPS = 10


class HardSequence(Sequence):
    """One network, and what is known to have happened to it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        options = self.random.choice([*OPTIONS, *QUEUES])
        network = "clos:n=2,r=3,m=4" if "p=1" in options else self.random.choice(NETWORKS)
        wire = Wire(
            delay_s=self.random.choice([1e-5, 1e-3]),
            jitter_s=self.random.choice([0, 5e-3]),
            duplicate_fraction=self.random.choice([0, 0.3]),
        )
        self.fabric = Fabric(
            network, f"{options},hello_ms=100".strip(","), wire=wire, random=random.Random(seed)
        )
        self.loss_fraction = self.random.choice([0.0, 0.2, 0.6])
        self.dead_links, self.dead_spines, self.ports = set(), set(), 0
        self.replayed = 0
        self.repeat_requests()

    def repeat_requests(self) -> None:
        """Requests are lost, and with others that are sent old ones come again."""
        wires = self.fabric.simulator._wires
        send, sent_before = wires.send, []

        def repeating(node: int, sent: Send) -> None:
            if daemon.decode(sent.payload) is None:
                send(node, sent)
                return
            sent_before.append((node, sent))
            if self.random.random() >= self.loss_fraction:
                send(node, sent)
            if self.random.random() < 0.3:
                self.replayed += 1
                send(*self.random.choice(sent_before))

        wires.send = repeating

    def run(self) -> None:
        for _ in range(STEPS):
            steps = [
                self.arrive,
                self.arrive,
                self.arrive,
                self.depart,
                self.fail,
                self.mend,
                self.kill,
                self.start,
            ]
            self.random.choice([*steps, self.stall, self.begin_anew])()
            self.fabric.simulator.run_for(self.random.choice([0.003, 0.02, 0.1]))
        self.fabric.simulator.run_for(NOTICE_S + 0.2)
        self.check()

    def arrive(self) -> None:
        """As before, and some flows have one back, whose 5-tuple is theirs with ends exchanged."""
        super().arrive()
        ends = self.fabric.flows._live
        for flow, (src, dst) in list(ends.items()):
            busy = {one for one, _ in ends.values()}, {other for _, other in ends.values()}
            if dst not in busy[0] and src not in busy[1] and self.random.random() < 0.5:
                self.fabric.flows.begin(dst, src, flow.ports)

    def stall(self) -> None:
        live = sorted(set(range(self.fabric.m)) - self.dead_spines)
        nodes = [self.fabric.spine(spine) for spine in live] + [
            self.fabric.leaf(at) for at in range(self.fabric.r)
        ]
        self.fabric.simulator.stall(
            self.random.choice(nodes), self.random.choice([0.01, 0.05, 0.15])
        )

    def begin_anew(self) -> None:
        live = sorted(set(range(self.fabric.m)) - self.dead_spines)
        self.fabric.simulator.restart(self.fabric.spine(self.random.choice(live)))


def test_flows_settle_whatever_happens_to_requests():
    replayed = 0
    for seed in range(4):
        sequence = HardSequence(seed)
        sequence.run()
        replayed += sequence.replayed
    assert replayed


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_and_two_hundred_times(part):
    for seed in range(1000 + 25 * part, 1025 + 25 * part):
        HardSequence(seed).run()
