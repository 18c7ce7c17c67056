"""Settings of a source of proxy routing: its candidate paths, and the times and rates of probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.daemons.proxy import routing as proxy


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """Settings of a source; times in s, rates per s.

    policy: proxies that are tried.
    cost: cost of a path by hops and load.
    hello_s: time between hellos.
    refresh_s: time between probes of an active path.
    probe_s: least timeout of an urgent probe.
    hold_s: first hold-down time of a path that broke.
    most_hold_s: maximum hold-down time.
    table_s: time for which a server answers for a broken path through its sub-network; 0: never.
    idle_s: time after which an unused destination is forgotten.
    probes_per_s: maximum rate of routine probes.
    urgent_per_s: maximum rate of urgent probes.
    wakes_per_s: maximum rate at which other servers are woken.
    """

    policy: proxy.Policy
    cost: Callable[[int, int], int] = proxy.shortest_first
    hello_s: float
    refresh_s: float
    probe_s: float
    hold_s: float
    most_hold_s: float
    table_s: float
    idle_s: float
    probes_per_s: int
    urgent_per_s: int
    wakes_per_s: int
