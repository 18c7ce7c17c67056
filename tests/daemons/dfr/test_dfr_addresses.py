from __future__ import annotations

import pytest

from weft.daemons.dfr import dfr_addresses
from weft.daemons.dfr import routing as dfr
from weft.daemons.dfr.dfr_addresses import NO_SUBNETWORK, HopState
from weft.daemons.dfr.routing import Dfr
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
    ],
)
def test_there_are_as_many_states_as_was_worked_out(
    network: Ccrdn, settings: Dfr, count: int
) -> None:
    assert (
        len(set(dfr_addresses.states(network, settings)))
        == len(dfr_addresses.states(network, settings))
        == count
    )


def test_too_many_states_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"takes 223 addresses of each server, and there are 127; .* than 3, or"
    ):
        dfr_addresses.states(Ccrdn(DCELL, 8, 2), Dfr())


@pytest.mark.parametrize(("network", "b"), CASES)
def test_what_a_rerouted_packet_carries_is_read_and_written_alike_wherever_it_goes(
    network: Ccrdn, b: int
) -> None:
    """Every server of the X(b) in which it was rerouted knows the proxy by level and copy."""
    t = network.t
    for cur in range(t[-1]):
        for level in range(b + 1, network.k + 1):
            proxy = network.peer(cur, level)
            if proxy < 0:
                continue
            packet = [0] * dfr.FIELDS
            packet[dfr.PROXY], packet[dfr.RETRY], packet[dfr.LEVEL] = proxy, 1, level
            state = dfr_addresses.read(network, packet)
            first = cur - cur % t[b]
            for other in range(first, first + t[b]):
                again = [0] * dfr.FIELDS
                dfr_addresses.write(network, state, other, again)
                assert (again[dfr.PROXY], again[dfr.RETRY], again[dfr.LEVEL]) == (proxy, 1, level)
            dfr_addresses.write(network, state, proxy, packet)
            assert packet[dfr.PROXY] == proxy


def test_a_packet_without_a_proxy_has_none() -> None:
    network, packet = Ccrdn(DCELL, 3, 2), [0] * dfr.FIELDS
    dfr_addresses.write(network, HopState(2, NO_SUBNETWORK, 1), 5, packet)
    assert packet[dfr.PROXY] == dfr.NOWHERE
    assert dfr_addresses.read(network, packet) == HopState(2, NO_SUBNETWORK, 1)
