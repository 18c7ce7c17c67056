from __future__ import annotations

import pytest

from weft.daemons.core import registry
from weft.daemons.dfr import routing
from weft.daemons.dfr.routing import NO_SUBNETWORK, NOWHERE, PROXY, Dfr, HopState
from weft.topologies import build
from weft.topologies.recursive.ccrdn import BETA_DCELL, DCELL, FICONN, Ccrdn

CASES = [
    (Ccrdn(DCELL, 3, 2), 1),
    (Ccrdn(BETA_DCELL, 3, 1), 0),
    (Ccrdn(FICONN, 4, 2), 0),
    (Ccrdn(DCELL, 4, 1), 1),
]


@pytest.mark.parametrize(
    ("network", "settings", "count"),
    [
        (Ccrdn(FICONN, 4, 2), Dfr(), 16),
        (Ccrdn(DCELL, 3, 2), Dfr(), 43),
        (Ccrdn(DCELL, 4, 2), Dfr(), 67),
        (Ccrdn(DCELL, 4, 2), Dfr(b=2), 1),
        (Ccrdn(DCELL, 4, 1), Dfr(b=0, retry=0), 1),
        (Ccrdn(DCELL, 5, 1), Dfr(b=0, retry=18), 127),  # as many as there are octets
    ],
)
def test_the_number_of_states_follows_the_formula(
    network: Ccrdn, settings: Dfr, count: int
) -> None:
    states = routing.states(network, settings)
    assert len(set(states)) == len(states) == count
    packet = [0] * routing.FIELDS
    routing.start(settings, packet)
    assert routing.state_of(network, packet) == states[0]


def test_too_many_states_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"need 223 addresses of each server, and there are 127; .* than 3, or"
    ):
        routing.states(Ccrdn(DCELL, 8, 2), Dfr())


def test_a_packet_makes_no_more_hops_than_ip_counts() -> None:
    topology = build("dcell:n=3,k=1")
    assert registry.checked(topology, "dfr:ttl=255")[1]["ttl"] == 255
    with pytest.raises(ValueError, match=r"ttl must be .*255, got 256"):
        registry.checked(topology, "dfr:ttl=256")


@pytest.mark.parametrize(("network", "b"), CASES)
def test_every_server_of_the_scope_decodes_the_same_proxy(network: Ccrdn, b: int) -> None:
    t = network.t
    for cur in range(t[-1]):
        for level in range(b + 1, network.k + 1):
            proxy = network.peer(cur, level)
            if proxy < 0:
                continue
            packet = [proxy, 1, 1, level]
            state = routing.state_of(network, packet)
            first = cur - cur % t[b]
            for other in range(first, first + t[b]):
                assert routing.packet_in(network, state, other) == packet
            assert routing.packet_in(network, state, proxy)[PROXY] == proxy


def test_a_packet_without_a_proxy_has_none() -> None:
    network = Ccrdn(DCELL, 3, 2)
    packet = routing.packet_in(network, HopState(2, NO_SUBNETWORK, 1), 5)
    assert packet[PROXY] == NOWHERE
    assert routing.state_of(network, packet) == HopState(2, NO_SUBNETWORK, 1)
