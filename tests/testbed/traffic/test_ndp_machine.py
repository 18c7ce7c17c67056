"""The purified transport in C beside that in Python: the same packets, at the same times, whatever
comes."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
from ctypes import byref, c_int, create_string_buffer
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.daemons.transport import trimming_queue
from tests.daemons.transport.endpoint import Endpoint
from tests.daemons.transport.packets import Ack, Data, MalformedPacket, Nack, Pull, decode, encode
from tests.daemons.transport.python_network import TransportNetwork, Trouble, spray_routing
from tests.testbed.traffic.compiled_endpoint import (
    CompiledEndpoint,
    CPacket,
    CTransmission,
    endpoint_library,
)
from weft.daemons.transport.endpoint import (
    HEADER,
    MOST_INCOMING_OF_PEER,
    Backoff,
    LayerChoice,
    Parameters,
    timeout_ns,
)
from weft.testbed.packets.network import (
    CWiring,
    PacketLink,
    SimulatedPortCounters,
    TcpCounters,
    TcpLayers,
    TcpParameters,
)
from weft.testbed.traffic import ndp_library
from weft.testbed.traffic.ndp_library import (
    CCounters,
    CEvent,
    CHost,
    CMessage,
    CParameters,
    CRun,
)
from weft.topologies import build

RATE = 10**10
PARAMETERS = Parameters(rate_bps=RATE, timeout_ns=timeout_ns(RATE), layers=3, attempts=12)


class Both:
    """An endpoint in Python and one in C that must do the same."""

    def __init__(self, parameters: Parameters, path: Path) -> None:
        self.one, self.other = Endpoint(parameters), CompiledEndpoint(parameters, path)
        self.events = []

    @property
    def counters(self):
        assert self.one.counters == self.other.counters
        return self.one.counters

    def send(self, now, flow, peer, size_bytes):
        refused = []
        for each in (self.one, self.other):
            try:
                each.send(now, flow, peer, size_bytes)
            except ValueError:
                refused.append(each)
        assert len(refused) in (0, 2)

    def receive(self, *given):
        self.one.receive(*given)
        self.other.receive(*given)
        self.same()

    def poll(self, now):
        frames = self.one.poll(now)
        assert frames == self.other.poll(now)
        self.same()
        return frames

    def deadline(self):
        assert self.one.deadline() == self.other.deadline()
        return self.one.deadline()

    def same(self):
        assert self.one.events == self.other.events
        self.events += self.one.events
        self.one.events.clear()
        self.other.events.clear()
        assert self.one.deadline() == self.other.deadline()


def both_on(
    spec: str,
    path: Path,
    *,
    seed: int,
    header_bytes: int,
    trim_packets: int = 8,
    trouble: Trouble | None = None,
    backoff: Backoff = Backoff.PACKET,
) -> TransportNetwork:
    topology = build(spec)
    link = trimming_queue.LinkModel(
        rate_bps=RATE, header_bytes=header_bytes, trim_bytes=trim_packets * 1514
    )
    make = lambda parameters: Both(parameters, path)  # noqa: E731
    return TransportNetwork(
        topology,
        link,
        replace(PARAMETERS, backoff=backoff),
        spray_routing(topology),
        random.Random(seed),
        trouble=trouble,
        make=make,
    )


STRUCTURES = {
    **{
        f"ndp_{structure.__name__[1:].lower()}": structure
        for structure in (
            *(CParameters, CPacket, CTransmission, CEvent, CCounters, CHost, CMessage, CRun),
        )
    },
    "packet_wiring": CWiring,
    "tcp_parameters": TcpParameters,
    "packet_layers": TcpLayers,
    "tcp_counters": TcpCounters,
    "packet_link": PacketLink,
    "packet_port_counters": SimulatedPortCounters,
}


def test_structures_are_laid_out_alike_in_both_languages(tmp_path: Path) -> None:
    lines = ['#include "ndp_loop.h"', '#include "../packets/network.h"']
    for tag, structure in STRUCTURES.items():
        name = f"struct {tag}"
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");')
        for field, _ in structure._fields_:
            offset, size = getattr(structure, field).offset, getattr(structure, field).size
            member = f"(({name} *)0)->{field}"
            lines.append(
                f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name} {field}: offset");'
            )
            lines.append(f'_Static_assert(sizeof({member}) == {size}, "{name} {field}: size");')
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    command = ["gcc", "-std=gnu11", "-fsyntax-only", f"-I{ndp_library.PATH.parent}", str(source)]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize("backoff", Backoff)
@pytest.mark.parametrize(("senders", "header_bytes"), [(3, 72_000), (32, 72_000), (40, 3_000)])
def test_incast_is_the_same_in_both_languages(
    senders: int, header_bytes: int, backoff: Backoff, compiled: Path
) -> None:
    net = both_on(
        f"star:n={senders + 1}", compiled, seed=1, header_bytes=header_bytes, backoff=backoff
    )
    for src in range(1, senders + 1):
        net.send(0, src, 0, src, 20_000)
    net.run_until(10**9)
    assert len(net.delivered) == len(net.finished) == senders
    assert sum(host.counters.timeouts for host in net.hosts) > 0 or header_bytes > 3_000


def test_a_message_whose_packets_are_refused_again_and_again_is_the_same(compiled: Path) -> None:
    """More refusals than the window, in an order that is not that of packets."""
    net = both_on(
        "star:n=4",
        compiled,
        seed=3,
        header_bytes=72_000,
        trim_packets=1,
        trouble=Trouble(jitter_ns=20_000),
    )
    for src in (1, 2, 3):
        net.send(0, src, 0, src, 60_000)
    net.run_until(10**9)
    assert len(net.delivered) == 3
    assert all(net.hosts[src].counters.retransmissions > 16 for src in (1, 2, 3))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.floats(0, 0.6),
    st.floats(0, 0.3),
    st.integers(0, 3_000_000),
    st.integers(1, 40),
    st.sampled_from(Backoff),
    st.lists(
        st.tuples(
            st.integers(0, 4), st.integers(0, 4), st.integers(0, 60_000), st.integers(0, 10**6)
        ),
        min_size=1,
        max_size=20,
    ),
)
def test_whatever_wires_do_both_languages_do_the_same(
    compiled, seed, loss, twice, jitter, headers, backoff, messages
):
    trouble = Trouble(loss_fraction=loss, duplicate_fraction=twice, jitter_ns=jitter)
    net = both_on(
        "star:n=5",
        compiled,
        seed=seed,
        header_bytes=64 * headers,
        trouble=trouble,
        backoff=backoff,
    )
    for flow, (src, dst, size, at) in enumerate(messages):
        if src != dst:
            net.send(at, src, dst, flow % 15, size)  # some numbers are used twice
    net.run_until(10**10)
    assert [host.counters.strange + host.counters.refused for host in net.hosts] == [0] * 5


U8, U32 = st.integers(0, 3), st.integers(0, 12)
PACKETS = st.one_of(
    st.builds(Data, U32, st.integers(0, 5), U8, st.just(8), st.just(6 * 1450), st.just(1450)),
    st.builds(Data, U32, st.integers(0, 5), U8, st.integers(1, 9), st.just(60), st.just(10)),
    st.builds(Data, U32, st.just(0), U8, st.just(8), st.just(1 << 40), st.just(1)),
    st.builds(Data, U32, st.integers(0, 40), U8, st.just(8), st.just(40 * 1450), st.just(1450)),
    st.builds(Ack, U32, U32, U8, U32),
    st.builds(Nack, U32, U32, U8, U32, st.booleans()),
    st.builds(Pull, U32, U8, st.integers(0, (1 << 32) - 1)),
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 2), PACKETS, st.booleans(), st.booleans()),
        max_size=60,
    )
)
def test_whoever_sends_nonsense_gets_the_same_from_both(compiled, arrivals):
    both, now = Both(PARAMETERS, compiled), 0
    for flow, size in enumerate((1, 5_000, 15_000)):
        both.send(0, flow, flow % 2, size)
    for later, peer, packet, whole, congested in arrivals:
        now += later
        both.receive(now, peer, packet, whole or not isinstance(packet, Data), congested)
        both.poll(now)
    while (at := both.deadline()) is not None:
        now = max(now, at)
        both.poll(now)
    assert both.counters.strange >= 0  # compares the counters


def test_bounds_and_what_is_forgotten_are_the_same(compiled: Path) -> None:
    both = Both(PARAMETERS, compiled)
    draw = random.Random(1)
    for flow in range(MOST_INCOMING_OF_PEER + 100):
        both.receive(flow, 5, Data(flow, 0, 0, 8, 1450 << (flow % 25), 1450), draw.random() < 0.5)
    assert both.counters.refused == 100
    while (at := both.deadline()) is not None:  # what is to be pulled is not forgotten
        both.poll(max(at, 20_000))
    now = PARAMETERS.lifetime_ns + 10_000
    for step in range(3_000):  # of those forgotten, of those that are known, and new ones
        flow = draw.randrange(1 << 15)
        both.receive(
            now + step, 5, Data(flow, 0, 0, 8, 1450 << (flow % 25), 1450), draw.random() < 0.5
        )
    assert both.counters.refused == 100
    both.poll(now + 3_000)


def test_c_probes_silent_layers_by_the_same_packets(compiled: Path) -> None:
    """A packet of four gets no answer; `Both` compares the probes for it, packet by packet."""
    parameters = replace(PARAMETERS, layers=4, window=4, choice=LayerChoice.MRC)
    both = Both(parameters, compiled)
    both.send(0, 1, 5, 100 * 1450)
    sent = [both.poll(both.deadline())[0].packet for _ in range(4)]
    for packet in (sent[0], sent[1], sent[3]):
        both.receive(10**4, 5, Ack(1, packet.sequence, packet.layer, 0, False), True)
    probed = []
    while (now := both.deadline()) < 5 * parameters.timeout_ns:
        probed += [transmission.packet.sequence for transmission in both.poll(now)]
    assert probed.count(sent[3].sequence) >= 3


MEMORY = """
from ctypes import byref
from tests.daemons.transport.packets import Data
from tests.testbed.traffic.compiled_endpoint import (
    CompiledEndpoint,
    CPacket,
    CTransmission,
    endpoint_library,
)
from weft.daemons.transport.endpoint import Parameters

def kib():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])

endpoint = CompiledEndpoint(Parameters(rate_bps=10**10, timeout_ns=10**6))
def forge(flows):
    for flow in flows:
        endpoint.receive(0, 1, Data(flow, (1 << 24) - 1, 0, 8, 1450 << 24, 1450), False)
forge(range(1000, 1010))
before = kib()
forge(range(200))
print(endpoint.counters.headers, kib() - before)
"""  # noqa: E501


def test_headers_that_claim_large_messages_cost_hardly_any_memory() -> None:
    command = [sys.executable, "-c", MEMORY]
    headers, grown_kib = map(
        int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    )
    assert headers == 210
    assert grown_kib < 1000


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        PACKETS.map(encode),
        PACKETS.map(lambda packet: encode(packet) + bytes(10)),
    )
)
def test_bytes_are_read_and_written_alike(compiled, payload):
    packet, whole = CPacket(), c_int()
    lib = endpoint_library(compiled)
    refused = (
        lib.ndp_decode(payload, len(payload), PARAMETERS.layers, byref(packet), byref(whole)) != 0
    )
    try:
        wanted, is_whole = decode(payload, PARAMETERS.layers)
    except MalformedPacket:
        assert refused
        return
    assert not refused
    assert (packet.packet(), bool(whole.value)) == (wanted, is_whole)
    written = create_string_buffer(HEADER.size)
    lib.ndp_encode(byref(packet), written)
    assert written.raw == encode(wanted)
