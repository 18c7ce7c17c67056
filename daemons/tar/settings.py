"""Settings of a TAR server: link capacity, targets of bypassed flows, and rates of probes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TarSettings:
    """Settings of a TAR server; times in s, rates per s.

    relay: target of a bypassed flow, as in routing.py.
    capacity_kbps: capacity of a link.
    gain_kbps: available bandwidth that a bypass must gain.
    refresh_s: time between two probes of an active flow.
    refreshes: refresh intervals after which a flow without a probe expires.
    refreshes_per_s: maximum rate of refreshed flows.
    probes_per_s: maximum rate of probes.
    probe_s: maximum time for an answer.
    idle_s: time after which an unused flow is forgotten.
    """

    relay: int
    capacity_kbps: int
    gain_kbps: int
    refresh_s: float
    refreshes: int
    refreshes_per_s: int
    probes_per_s: int
    probe_s: float
    idle_s: float
