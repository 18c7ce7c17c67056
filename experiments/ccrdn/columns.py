"""Meanings of the columns of the experiments on the graph engine."""

from __future__ import annotations

MEAN_HOPS = {
    "mean_hops": "mean length of the routes of connected pairs, in moves from server to server",
    "se_hops": "standard error of mean_hops, from the number of pairs or sources; 0 for all pairs",
    "measured_pairs": "ordered pairs of servers that were routed",
}
PROPERTIES = {
    "servers": "servers of the network",
    "switches": "switches of the network",
    "links": "links of the network, those to switches included",
    "dr_bound_hops": "2^(k+1) - 1, which no route of DR exceeds",
    "copies_*": (
        "networks of the level below in one of the level that the name ends in; null above k"
    ),
    "longest_seen_hops": "longest route of DR among a million random pairs",
    "as_in_paper": (
        "whether the counts are those of the paper's table 1; missing where it has no such network"
    ),
}
HOP_LENGTH = {
    "servers": "servers of the network",
    **MEAN_HOPS,
    "candidates_per_pair": "proxies that the scheme tries for a pair, mean",
    "se_candidates_per_pair": "standard error of candidates_per_pair",
    "no_longer_routes_per_pair": "routes by a proxy that are no longer than DR's, of a pair, mean",
    "se_no_longer_routes_per_pair": "standard error of no_longer_routes_per_pair",
    "shorter_fraction": "pairs for which a proxy gives a shorter route than DR's",
}
CONNECTIVITY = {
    "connected_fraction": "pairs with a route, of those whose ends are alive",
    "se_connected_fraction": (
        "standard error of connected_fraction; null where pairs are not drawn alone"
    ),
    **MEAN_HOPS,
}
HOP_HISTOGRAM = {
    "pairs_by_hops_fraction": "list: which fraction of all pairs has a route of 0, 1, 2, ... "
    "hops; what is missing "
    "from 1 is not connected",
    "mean_hops": "mean length of the routes of connected pairs",
    "longest_hops": "longest route; null if no pair is connected",
    "connected_fraction": "pairs with a route, of all",
}
LOADS = {
    "mean_flows": "flows on a directed link, mean",
    "bottleneck_flows": "flows on the fullest directed link",
}
FLOW_HISTOGRAM = {
    "links_by_flows": (
        "list: how many directed links carry 0 .. b-1, b .. 2b-1, ... flows, b being bin_flows"
    ),
    "bin_flows": "width of a bin of links_by_flows",
    **LOADS,
    "p99_flows": "99th percentile over directed links of their flows",
    "idle_fraction": "directed links without a flow",
}
THROUGHPUT = {
    "uat_bps": (
        "throughput of all flows if links were loaded alike: delivered flows x 1 "
        "Gbit/s / mean_flows (UAT)"
    ),
    "rat_bps": (
        "throughput of all flows if all get what the most loaded link gives: ... / "
        "bottleneck_flows (RAT)"
    ),
    **LOADS,
    "routed_flows": "flows of the traffic",
    "delivered_flows": "flows that have a route",
    "mean_hops": "mean length of their routes",
}
LATENCY = {
    "mean_hops": "mean length of a route",
    "routing_us": "processor time of the search for a route, divided by its hops",
    "hop_us": "latency of one hop: routing_us and the costs",
    "latency_ms": "latency of a mean route without load",
}
COMPLETION = {
    "completion_s": "when the last message has arrived",
    "mean_end_s": "when a message has arrived, mean",
    "sent_messages": "messages of the workload",
    "rate_updates": "how often the rates of flows were worked out anew",
}
