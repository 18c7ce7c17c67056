"""Hostile messages against every scheme's daemons: python -m tests.fuzz.hostile_messages --messages
10000000.

A small network of each scheme runs in the simulator.  What its daemons say is overheard, changed
and said to any of them at any port: bits flip, numbers become such as lie at the edge of something,
ends are cut off, two messages are joined.  What does something new, by type of message, actions
that follow or why it is no message, is changed further: so a search that knows nothing of formats
gets past their checks.  No state machine may raise anything but Garbage, then or later, and when it
is over the network heals.  A message over which one raises is printed as a line for corpus.txt,
whose messages are said to every network first.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from weft.daemons.core import registry
from weft.daemons.core.actions import Send
from weft.daemons.core.contract import DaemonEvent, DestinationInUse, FlowInUse, QueuesCall
from weft.daemons.core.wire import MalformedMessage
from weft.daemons.simulator import packet_walk
from weft.daemons.simulator.simulator import Simulator
from weft.topologies import build

CORPUS = Path(__file__).with_name("corpus.txt")
COVERAGE_CORPUS = Path(__file__).with_name("coverage_corpus.txt")
NETWORKS = ("dcell:n=3,k=1", "ficonn:n=4,k=1", "fattree:k=4", "clos:n=3,m=3,r=3", "slimfly:q=5,p=1")
EDGES = (
    0,
    1,
    2,
    3,
    5,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**63,
)
MOST_KEPT = 600  # messages that are changed further
BETWEEN_TICKS = 200  # messages, of which a millisecond passes
# longer than a neighbour may be silent by the longest interval that a hello can tell
HEALS_S = 45.0
WORD = re.compile(r"\b[a-z]+\b")


@dataclass(frozen=True)
class Failure:
    """A state machine raised `error` at `node` of the network `spec` of `scheme`, which had heard
    `payload` last."""

    scheme: str
    spec: str
    node: int
    port: int
    payload: bytes
    error: str

    def line(self) -> str:
        """As corpus.txt has it, and why."""
        return (
            f"{self.payload.hex()} # {self.scheme} on {self.spec}, h{self.node} port "
            f"{self.port}: {self.error}"
        )


def schemes() -> list[str]:
    """Those that say anything: what a data plane chooses by is said to nobody, so one of those is
    enough."""
    balancing = set(registry.with_data_plane()) - {"ecmp"}
    unlike = {
        name
        for name in balancing
        if registry.schemes()[name].machine is not registry.schemes()["ecmp"].machine
    }
    return [
        name
        for name, registration in registry.schemes().items()
        if registration.machine and name not in balancing - unlike
    ]


def network_for(scheme: str) -> str:
    """A small network that `scheme` can route; ValueError if there is none among NETWORKS."""
    why = ""
    for spec in NETWORKS:
        try:
            registry.checked(build(spec), scheme)
        except ValueError as error:
            why = str(error)
        else:
            return spec
    raise ValueError(f"scheme {scheme} routes none of {NETWORKS}, add one that it does: {why}")


def corpus() -> list[bytes]:
    """Messages that have been trouble."""
    lines = (line.partition("#")[0].strip() for line in CORPUS.read_text().splitlines())
    return [bytes.fromhex(line) for line in lines if line]


def input_of(scheme: str, node: int, port: int, payload: bytes) -> bytes:
    """Return the coverage-guided fuzzer's input for a payload to a daemon."""
    return bytes([schemes().index(scheme), node, port]) + payload


def coverage_corpus() -> list[tuple[str, int, int, bytes]]:
    """The scheme, node, port and payload of each message of which one reaches code that none before
    it has reached."""
    inputs = []
    for line in COVERAGE_CORPUS.read_text().splitlines():
        scheme, node, port, *payload = line.split()
        inputs.append((scheme, int(node), int(port), bytes.fromhex("".join(payload))))
    return inputs


def inputs() -> list[bytes]:
    """Return the coverage-guided fuzzer's first inputs.

    They are its own corpus, messages that once did harm, and some messages of daemons.
    """
    inputs = [input_of(*message) for message in coverage_corpus()]
    for name in schemes():
        draw = Random(f"1 {name}")
        inputs += [
            input_of(name, draw.randrange(16), draw.randrange(4), payload)
            for payload in Campaign(name, draw).kept[:100]
        ]
    return inputs


class Campaign:
    """Messages against the network `spec` of `scheme`, as `draw` says."""

    def __init__(self, scheme: str, draw: Random) -> None:
        self.scheme, self.spec, self.draw = scheme, network_for(scheme), draw
        self.simulator = Simulator(build(self.spec), scheme)
        self.failures: list[Failure] = []
        self.seen: Counter[tuple[object, ...]] = Counter()
        self.kept = corpus()
        self._overhear()

    def _overhear(self) -> None:
        """Let the network converge, use it, and break and restore links, and keep some of what is
        said of each type and length."""
        simulator, heard = self.simulator, Counter[tuple[int, int]]()
        send = simulator._wires.send

        def listen(node: int, action: Send) -> None:
            kind = (action.payload[2], len(action.payload))
            heard[kind] += 1
            if heard[kind] <= 3:
                self.kept.append(action.payload)
            send(node, action)

        simulator._wires.send = listen  # type: ignore[method-assign]
        simulator.run_for(1.0)
        self._use()
        for link, (a, _, b, _) in enumerate(simulator.topology.links.tolist()):
            if {a, b} <= simulator._nodes.keys() and len(self.kept) < MOST_KEPT // 2:
                simulator.fail(link)
                simulator.run_for(0.15)
                self._use()
                simulator.restore(link)
        simulator.run_for(1.0)
        simulator._wires.send = send  # type: ignore[method-assign]

    def _use(self) -> None:
        """Let servers send, as far as the scheme wants to know."""
        topology = self.simulator.topology
        for _ in range(8):
            src, dst = self.draw.sample(range(topology.servers), 2)
            self.simulator.send(src, dst)
            flow = packet_walk.pings(topology, src, dst)
            for node in (src, *topology.neighbours(src)[0]):
                self._tell(node, FlowInUse(flow))
                self._tell(node, DestinationInUse(flow.destination))
        for state in (1, 0):
            for node in self.simulator._nodes:
                self._tell(node, QueuesCall(state))
            self.simulator.run_for(0.1)

    def _tell(self, node: int, event: DaemonEvent) -> None:
        """Let `event` happen there, if the scheme has any use for it."""
        if node in self.simulator._nodes:
            with suppress(ValueError):
                self.simulator.tell(node, event)

    def run(self, messages: int) -> None:
        """Say so many, and look whether the network is in order afterwards; stops at the first
        failure."""
        for payload in corpus():
            for node, simulated in self.simulator._nodes.items():
                for port, _ in simulated.config.ports:
                    self._say(node, port, payload)
        for number in range(messages):
            node, port = self._somewhere()
            self._say(node, port, self._changed(self.draw.choice(self.kept), node))
            if number % BETWEEN_TICKS == 0:
                self.pass_time(0.001)
            if self.failures:
                return
        self.pass_time(HEALS_S)
        if not self.failures:
            self._look()

    def say_input(self, data: bytes) -> None:
        """Say what the coverage-guided fuzzer, whose input `data` is, wants said."""
        nodes = list(self.simulator._nodes)
        node = nodes[data[1] % len(nodes)]
        ports = [port for port, _ in self.simulator.node(node).config.ports]
        self._say(node, ports[data[2] % len(ports)], data[3:])

    def pass_time(self, seconds: float) -> None:
        """Let daemons do what they do when it is time."""
        self._guarded(0, 0, b"", lambda: self.simulator.run_for(seconds))

    def _look(self) -> None:
        topology = self.simulator.topology
        waiting = self.simulator._unconverged()
        pairs = [
            (src, dst)
            for src in range(topology.servers)
            for dst in range(topology.servers)
            if src != dst
        ]
        lost = [pair for pair in pairs if self.simulator.walk(*pair).lost]
        if lost or waiting is not None:
            said = f"not healed: {len(lost)} pairs lost, first {lost[:1]}; not converged: {waiting}"
            self.failures.append(Failure(self.scheme, self.spec, waiting or 0, 0, b"", said))

    def _somewhere(self) -> tuple[int, int]:
        node = self.draw.choice(list(self.simulator._nodes))
        return node, self.draw.choice(self.simulator.node(node).config.ports)[0]

    def _say(self, node: int, port: int, payload: bytes) -> None:
        did: list[object] = []

        def say() -> None:
            protocol = self.simulator.protocol(node)
            try:
                actions = protocol.receive(payload, port, self.simulator.now)
            except MalformedMessage as error:
                did.extend(WORD.findall(str(error))[:3])
                return
            did.extend(sorted({type(action).__name__ for action in actions}))
            self.simulator._act(node, self.simulator.node(node), actions)

        self._guarded(node, port, payload, say)
        outcome = (payload[2:3], *did)
        self.seen[outcome] += 1
        if self.seen[outcome] == 1 and payload and len(payload) <= 1500:
            self.kept.append(payload)
            if len(self.kept) > MOST_KEPT:
                del self.kept[self.draw.randrange(len(self.kept))]

    def _guarded(self, node: int, port: int, payload: bytes, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            self.failures.append(Failure(self.scheme, self.spec, node, port, payload, told))

    def _changed(self, payload: bytes, node: int) -> bytes:
        draw, altered = self.draw, bytearray(payload)
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            at = draw.randrange(len(altered)) if altered else 0
            kind = draw.randrange(6)
            if kind == 0 and altered:
                altered[at] ^= 1 << draw.randrange(8)
            elif kind in (1, 2):
                width = draw.choice((1, 2, 4, 8))
                near = (node, draw.randrange(self.simulator.topology.nodes + 2))
                number = draw.choice((*EDGES, *near)) % (1 << 8 * width)
                altered[at : at + width] = number.to_bytes(width, "big")
            elif kind == 3:
                del altered[at:]
            elif kind == 4:
                altered[at:at] = altered[draw.randrange(at + 1) : at]
            else:
                other = draw.choice(self.kept)
                altered[at:] = other[at:]
        if draw.random() < 0.7 and len(altered) >= 11 and altered[2] >= 4:
            altered[7:11] = node.to_bytes(4, "big")  # else hardly any would be for who hears it
        return bytes(altered)


def main() -> None:
    """Say messages to all schemes in turn; exit status 1 if a state machine raised."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=10_000_000, help="in all")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--scheme", action="append", help="default: each of them")
    options = arguments.parse_args()
    wanted = options.scheme or schemes()
    failures: list[Failure] = []
    for name in wanted:
        began_s = time.monotonic()
        campaign = Campaign(name, Random(f"{options.seed} {name}"))
        campaign.run(options.messages // len(wanted))
        failures += campaign.failures
        said, took_s = sum(campaign.seen.values()), time.monotonic() - began_s
        print(
            f"{name}: {said} messages in {took_s:.0f} s, {len(campaign.seen)} outcomes", flush=True
        )
        for failure in campaign.failures:
            print(failure.line(), flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
