"""Meanings of the columns of collectives."""

from __future__ import annotations

COLLECTIVES = {
    "hosts": "hosts of the network",
    "host_cost_usd": "cost of a host by the model of topology_cost, at its prices",
    "completion_ms": (
        "time of an iteration up to its last rank, mean; null if a message did not arrive"
    ),
    "rank_mean_ms": "time of a rank in an iteration, mean",
    "rank_p99_ms": "99th percentile of that over iterations and ranks",
    "bus_bps": (
        "bus bandwidth as nccl-tests define it, from completion_ms; null for operations "
        "without one, and for traces"
    ),
    "unfinished": "messages that did not arrive in time",
    "late_packets": (
        "packets that arrived behind a later one of their flow; null for the transport ndp, which "
        "has no order, and on the graph"
    ),
    "repeated_packets": "packets that were sent again; null on the graph",
    "fullest_link_fraction": (
        "bits on the most loaded link in one direction, of what it can carry in that time"
    ),
    "alpha_beta_ms": (
        "least time of the schedule with each message alone, or of the busiest host's links"
    ),
    "cut_ms": "least time that the messages across the worst examined cut of the network take",
}
