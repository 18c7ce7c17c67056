"""Meanings of the columns of the experiments on the kernel."""

from __future__ import annotations

CONNECTIVITY_KERNEL = {
    "failed_links": "links that are dead, with those of dead servers and racks",
    "pairs": "ordered pairs of servers that are alive",
    "pinged_fraction": "pairs that ping",
    "graph_fraction": (
        "pairs that the graph engine connects in both directions; null where it has no such scheme"
    ),
    "connected_fraction": "pairs that it connects in the direction from source to destination",
    "physical_fraction": "pairs that any path connects",
    "equal": "whether exactly the pairs ping that the graph engine says",
    "lost_though_connected": "pairs that the graph engine connects and that did not ping",
    "pinged_though_lost": "pairs that ping though the graph engine does not connect them",
    "settled_s": "from the failures to the time when the pings were as expected, or patience ended",
}
PROXY_FAILOVER = {
    "failed": "failed element, by name; null if none affects a pair",
    "affected_pairs": "pairs, of those traced, whose packets went through it",
    "watched_pairs": "of these, those that ping each other every few ms",
    "outage_ms": "median over watched pairs of the time without answers while the failure lasts",
    "outage_p99_ms": "99th percentile of that",
    "outages_ms": "list: that of each watched pair",
    "recovered": (
        "list: whether each watched pair had an answer again before the failure was mended"
    ),
    "recovered_fraction": "watched pairs that had",
    "predicted_fraction": (
        "watched pairs that the scheme can save, by the graph; null where it does not tell"
    ),
    "as_predicted": "whether exactly those recovered",
    "lost_by_mending_packets": "pings that were lost after the failure was mended",
    "before_hops": "mean path of the pairs that recovered, before the failure",
    "after_hops": "mean path of these while it lasts, by traceroute",
    "shortest_hops": "mean shortest path that is left to them",
    "path_stretch": "after_hops over before_hops",
    "tcp_concerned": "whether the packets of the TCP flow went through what died",
    "tcp_before_bps": "its goodput before the failure",
    "tcp_through_bps": "its goodput while the failure lasts",
    "tcp_stall_ms": "longest time in which it got nothing",
    "tcp_error": "what ended it, if something did",
}
PROXY_LATENCY = {
    "settled": "whether all paths became those that the graph says before they were measured",
    "mean_hops": "mean path, by traceroute",
    "stack_us": "part of a hop: a ping to oneself",
    "propagation_us": (
        "part of a hop: half an empty ping to a server of the same switch, without stack_us"
    ),
    "data_us": "part of a hop: what a full frame takes more",
    "routing_us": "part of a hop: processor time of the search for a path, divided by its hops",
    "hop_us": "sum of these parts",
    "model_latency_us": "mean_hops times hop_us, the model of section 7.4",
    "latency_us": "half a round trip of a full frame, measured, mean over pairs",
    "fitted_base_us": "where the straight line through the measured latencies begins, at no hops",
    "fitted_hop_us": "its slope: what a hop adds",
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
    "graph_rat_bps": "what the graph engine says: all flows get what the fullest link gives (RAT)",
    "graph_uat_bps": "what the graph engine says if links were loaded alike (UAT)",
    "graph_bottleneck_flows": "flows on the fullest directed link by the graph engine",
    "graph_mean_hops": "mean path by the graph engine",
}
