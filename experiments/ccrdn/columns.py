"""Meanings of the columns of the experiments, on the graph engine and then on the kernel."""

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


CONNECTIVITY_KERNEL = {
    "failed_links": "links that are dead, with those of dead servers and racks",
    "pairs": "ordered pairs of servers that are alive",
    "pinged_fraction": "pairs that ping",
    "graph_fraction": (
        "pairs that the graph engine connects in both directions; null where it has no such scheme"
    ),
    "connected_fraction": "pairs that it connects in the direction from source to destination",
    "physical_fraction": "pairs that any path connects",
    "equal": "whether exactly the pairs ping that the graph engine predicts",
    "lost_though_connected": "pairs that the graph engine connects and that did not ping",
    "pinged_though_lost": "pairs that ping though the graph engine does not connect them",
    "settled_s": "from the failures to the time when the pings were as expected, or patience ended",
}
PROXY_FAILOVER = {
    "failed": "failed element, by name; null if none affects a pair",
    "affected_pairs": "pairs, of those traced, whose packets went through it",
    "watched_pairs": "affected pairs that ping each other every few ms",
    "outage_ms": "median over watched pairs of the time without answers while the failure lasts",
    "outage_p99_ms": "99th percentile of that",
    "outages_ms": "list: outage of each watched pair",
    "recovered": "list: whether each watched pair had an answer again before the repair",
    "recovered_fraction": "watched pairs that had an answer again",
    "predicted_fraction": (
        "watched pairs that the scheme can save, by the graph; null where it predicts nothing"
    ),
    "as_predicted": "whether exactly the predicted pairs recovered",
    "lost_by_mending_packets": "pings lost after the repair",
    "before_hops": "mean path of the pairs that recovered, before the failure",
    "after_hops": "mean path of the pairs that recovered, while the failure lasts, by traceroute",
    "shortest_hops": "mean shortest path that is left to these pairs",
    "path_stretch": "after_hops over before_hops",
    "tcp_concerned": "whether the TCP flow's path crossed the failed element",
    "tcp_before_bps": "goodput of a TCP flow before the failure",
    "tcp_through_bps": "goodput of the TCP flow while the failure lasts",
    "tcp_stall_ms": "longest time without data in the TCP flow",
    "tcp_error": "error that ended the TCP flow, if any",
}
PROXY_LATENCY = {
    "settled": "whether all paths were those of the graph before the measurement",
    "mean_hops": "mean path, by traceroute",
    "stack_us": "part of a hop: a ping to oneself",
    "propagation_us": (
        "part of a hop: half an empty ping to a server of the same switch, without stack_us"
    ),
    "data_us": "part of a hop: the extra time of a full frame",
    "routing_us": "part of a hop: processor time of the search for a path, divided by its hops",
    "hop_us": "sum of the parts of a hop",
    "model_latency_us": "mean_hops times hop_us, the model of section 7.4",
    "latency_us": "half a round trip of a full frame, measured, mean over pairs",
    "fitted_base_us": "where the straight line through the measured latencies begins, at no hops",
    "fitted_hop_us": "slope of the fit: the time of a hop",
    "fitted_r2": "how well it fits (R^2)",
    "hops": "list: hops of each ping",
    "rtts_us": "list: round-trip time of each ping",
}
PROXY_THROUGHPUT = {
    "flows": "TCP flows",
    "goodput_bps": "payload of all flows that arrives in a second",
    "slowest_flow_bps": "goodput of the slowest flow",
    "goodputs_bps": "list: goodput of each flow",
    "bottleneck_flows": (
        "flows on the fullest directed link, by the paths traced; null if a "
        "path could not be traced"
    ),
    "mean_hops": "mean path, by traceroute",
    "fair_bps": "payload of all flows if they shared their paths' links max-min fairly",
    "slowest_fair_bps": "that of the slowest",
    "graph_rat_bps": "prediction of the graph engine, RAT: all flows get the fullest link's share",
    "graph_uat_bps": "prediction of the graph engine, UAT: all links are loaded alike",
    "graph_bottleneck_flows": "flows on the fullest directed link by the graph engine",
    "graph_mean_hops": "mean path by the graph engine",
}
