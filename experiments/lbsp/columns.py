"""Meanings of the columns of LBSP's experiments."""

from __future__ import annotations

from weft.experiments.engines.common_parameters import ORDER, UNFINISHED

TIMES = {
    **UNFINISHED,
    "mean_ms": "mean time of a flow",
    "p50_ms": "median time of a flow",
    "p99_ms": "99th percentile of the flows' times",
    "p999_ms": "99.9th percentile of the flows' times",
    "times_ms": "list: time of each flow; empty for more than 10,000",
    **ORDER,
    "dropped_packets": "packets that queues of switches had no room for; null on Linux",
}
QUEUES = {
    "*_queue_packets": (
        "mean queue of a port of that hop: up from edge, up from aggregation, down from core "
        "switches"
    ),
    "*_means_apart_packets": (
        "distance between the mean queues of a switch's two link groups, mean over switches"
    ),
    "*_apart_packets": (
        "distance between the queues of a switch's two link groups, mean over switches and slots"
    ),
    "*_changes_per_1000_slots": "how often such a switch changes its state",
    "late_slots_fraction": "slots that the senders began too late",
}
RECOVERY = {
    "pairs_hit": "pairs that lost a ping to the failure",
    "outage_ms": "from the failure to the first answer after the last lost ping, over all pairs; "
    "of a degraded link, until it is avoided, null if it never is",
    "median_ms": "the same of a pair that was hit, median",
    "unreachable_pairs": "pairs without an answer until the repair",
    "lost_pings": "pings lost to the failure",
    "lost_by_mending": "pings lost after the repair",
    "sent_packets": "UDP packets that were sent meanwhile",
    "lost_packets": "packets that did not arrive",
    "overtaken_packets": "packets that arrived behind a later one of their flow",
    "neighbours_lost": (
        "neighbours given up, counted at both ends; more than the failure's are false alarms"
    ),
    "prober_late_ms": "how late the pings were sent at the worst",
    "pss_median_kib": (
        "proportional set size of a switch's daemons, median; null where switches share processes"
    ),
    "pss_max_kib": "proportional set size of a switch's daemons, the largest",
}
