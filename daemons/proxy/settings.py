"""What a source of proxy routing asks about its paths, and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.daemons.proxy import routing as proxy


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """What a source asks, and how often: times in s, rates per s.

    policy: which proxies are tried.
    cost: of a path, by its hops and load.
    hello_s: time between hellos.  refresh_s: between questions about a path in use.
    probe_s: how long an urgent answer may take.
    hold_s, most_hold_s: how long a path that broke is held down, at first and at most.
    table_s: how long a server tells others that the way through its copy is broken; 0: it does not.
    idle_s: how long an unused destination is remembered.
    probes_per_s, urgent_per_s: routine and urgent questions at most.
    wakes_per_s: times that another server is woken at most.
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
