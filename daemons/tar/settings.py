"""What a TAR server takes its links to carry, where it sends bypassed flows, and how often it
probes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TarSettings:
    """Times in s, rates per s.

    relay: where a bypassed flow goes, as in routing.py.
    capacity_kbps: what a link carries.  gain_kbps: available bandwidth that a bypass must gain.
    refresh_s: between two probes of a flow that is in use.
    refreshes: such times that servers keep a flow that is not probed again.
    refreshes_per_s: flows that a server probes again at most.  probes_per_s: probes that it sends
        at most.
    probe_s: how long an answer may take.
    idle_s: how long an unused flow is remembered.
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
