"""Who reaches whom in a network that is up in the kernel, by its forwarding tables and by pings."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from testbed.measured import Measured, all_pairs
from testbed.paths import Fib, fib_paths
from testbed.ping import PingTable, ping
from testbed.wait import wait_until

if TYPE_CHECKING:
    from experiments.routes import Pairs

NOTICE_S = 10.0  # by then daemons have noticed what they ever will: a hundred times what three hellos of 30 ms take
RETRIES = 2  # of a ping without an answer: a packet lost to load is no broken path


def without_route(net: Measured) -> Pairs:
    """The ordered pairs of servers between which a forwarding table on the way has no route."""
    lost = set()
    with Fib(net) as fib:
        for src, dst in all_pairs(net):
            try:
                fib_paths(fib, src, dst)
            except OSError:
                lost.add((src, dst))
    return lost


def wait_for_routes(net: Measured, expected: Pairs) -> bool:
    """Return when exactly the pairs `expected` are without a route; False if that does not come about."""
    with suppress(TimeoutError):
        return wait_until("routes", lambda: without_route(net) == expected, timeout_s=NOTICE_S)
    return False


def pinged(net: Measured) -> PingTable:
    """A ping of every ordered pair of servers."""
    return ping(net, all_pairs(net), retries=RETRIES)


def lost(table: PingTable) -> Pairs:
    """The pairs that had no answer."""
    return {(one.src, one.dst) for one in table.lost}
