"""Meanings of the columns of the demos."""

from __future__ import annotations

from weft.experiments.ccrdn.columns import PROXY_FAILOVER

FIRST_LIGHT = {
    "up_s": "time to bring the network up, until its daemons have converged",
    "pairs": "ordered pairs of servers",
    "pairs_reached": "pairs that have an answer",
    "rtt_median_us": "median round-trip time of their pings",
    "paths_equal": "pairs whose packets take the path that DR computes, by traceroute",
    "goodput_bps": "payload that iperf3 carries between the first and the last server",
    "goodput_fraction": "of the payload that a link can carry",
    "*_link": "the link that died, announced (its carrier goes) or silent (packets vanish)",
    "*_predicted_pairs": (
        "pairs that the graph predicts to be lost or, for other schemes, saved where DR loses them"
    ),
    "*_lost_pairs": "pairs that did not ping while it was dead",
    "*_exact": "whether these were the predicted ones",
    "*_noticed_ms": "until the last affected daemon noticed; null if one never did",
    "*_restored_ms": "from the link's return to the last answer of a watched pair",
    "*_saved_pairs": (
        "of the pairs that DR loses, those that still ping under the scheme "
        "that the name begins with"
    ),
    "*_tcp_stall_ms": "longest time without data in a TCP flow over the failed link",
    "*_tcp_after_bps": "its goodput afterwards",
    "passed": "whether every step went as it must",
}
ONE_FAILURE = {
    "pinged_pairs": "ordered pairs that ping before the failure: all, or a random sample",
    "connected_fraction": "pairs that have an answer, of those pinged",
    "rtt_median_us": "median round-trip time of these pings",
    **PROXY_FAILOVER,
}
FLOW_COMPLETION = {
    "flows": "flows that begin",
    "unfinished": "flows that did not end in 60 s; no time counts them",
    "mean_ms": "mean time of the flows that ended",
    "median_ms": "their median",
    "p99_ms": "their 99th percentile",
    "last_ms": "the longest of these times",
    "retransmissions": "packets that were sent again",
    "queue_drops": "packets that full queues dropped",
    "times_ms": "percentiles 1 to 100 of the times",
}
LINK_LOSS = {
    "failed": "the links that failed, by name",
    "failed_links_fraction": "of all links",
    "pairs": "ordered pairs of servers",
    "lost_*_fraction": (
        "pairs that lose each other, by the engine of the name: graph, fabric or kernel"
    ),
    "equal": "whether the engines lose exactly the same pairs",
    "difference": "where engines differ: a pair, and its path on the graph and on the other",
}
