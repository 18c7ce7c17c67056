"""Meanings of the columns of FatPaths' experiments, with packets and then on the graph engine."""

from __future__ import annotations

from weft.experiments.engines.common_parameters import LAYERS, ORDER, UNFINISHED

FCT = {
    **UNFINISHED,
    "long_mean_ms": (
        "mean time of long flows (1 MiB times size_fraction, and more); null if there is none"
    ),
    "long_p99_ms": "99th percentile of that",
    "short_mean_ms": "mean time of the other flows; null if there is none",
    "short_p99_ms": "99th percentile of that",
    "warm_long_mean_ms": (
        "mean time of long flows that begin in the second half of the time (section VII-A8)"
    ),
    "warm_long_p99_ms": "99th percentile of that",
    "long_flows": "how many flows are long",
    "sizes_bytes": "list: size of each flow, in order of their beginning",
    "times_ms": "list: time of each flow",
    "repeated": "list: segments of each flow that TCP sent again",
    "repeated_in_vain": "list: packets that each flow sent again although the receiver had them",
    "timeouts": (
        "list: expiries of each flow's retransmission timer; 0 before Linux 6.7, which does not "
        "tell"
    ),
    "timeout_ms": (
        "list: how long it took each flow to recover, from the expiries on; 0 before Linux 6.7"
    ),
    **LAYERS,
    **ORDER,
}
STENCIL = {
    "completion_s": "time of all rounds together",
    "rounds_s": "list: time of each round, up to its last flow",
    "unfinished": "flows that did not end in time",
    "flow_mean_s": "mean time of a flow",
    **LAYERS,
    **ORDER,
}
GAPS = {
    "packets": "packets that left hosts",
    "median_packet_times": (
        "median silence of a flow before its packet, over the time of a full packet on a link"
    ),
    "p99_packet_times": "99th percentile of that",
    "beyond_*_fraction": (
        "packets before which their flow was silent for longer than so many packet times"
    ),
    "gaps": (
        "list: packets by the silence before them, in the classes of bounds_us() of "
        "testbed/measure/reordering.py"
    ),
    "goodput_bps": "payload of all flows that arrives in a second",
    "fluid_bps": (
        "the same of max-min fair fluids on the same paths; null where flows end, or paths are not "
        "known"
    ),
    **ORDER,
}
ENDED = {
    "*_ended_flows": "flows of that length that ended",
    "*_ended_mean_ms": "mean time of those that ended; null without any",
    "*_ended_p99_ms": "99th percentile of that",
    "*_flows": "flows of that length that were counted",
    "*_unfinished_fraction": "share of these that did not end; null without any",
    "*_median_ms": "median time of all of these; null if half of them did not end",
}
TRANSPORT = {
    "timeouts": "retransmission timeouts; null under TCP, which does not count them",
    "retransmissions": "packets that were sent again",
    "duplicates": "packets that arrived twice, under TCP those that it sent again in vain",
    "given_up": "messages that their sender gave up, or connections that broke",
    "trimmed_packets": "packets that switches trimmed to their headers",
    "header_drops": "headers, and packets that wait with them, that a full queue dropped",
    "queue_drops": "packets that a full queue dropped",
}
INCAST = {
    "ideal_ms": "when the last message would come if the busiest link never rested",
    "first_ratio": "when the first message came, over ideal_ms",
    "mean_ratio": "when a message came, mean, over ideal_ms",
    "last_ratio": "when the last message came, over ideal_ms; null if one did not",
    "messages": "messages that were sent",
    "undelivered": "messages that did not arrive",
    **TRANSPORT,
}
LOAD = {
    "load_fraction": "load of a host's link that lambda_per_s makes",
    **UNFINISHED,
    "long_throughput_mean_fraction": "throughput of a long flow, of a link's rate, mean",
    "long_throughput_p10_fraction": "10th percentile of that",
    "long_normalised_mean": "time of long flows over size / mu + delta (figure 21), mean",
    "short_normalised_mean": "the same of short flows",
    "short_normalised_p99": "99th percentile of that of short flows",
    "long_times_ms": "list: time of each long flow, shortest first",
    **TRANSPORT,
}
VS_FATTREE = {
    "hosts": "hosts of the network",
    "edge_density": "cables for each host",
    "host_cost_usd": "cost of a host by the model of topology_cost, at its prices",
    "flows": "flows that were counted: those that began in the second half",
    "unfinished": "flows that did not end; they count with the time that they had",
    "throughput_mean_fraction": "throughput of a flow, size over time, of a link's rate, mean",
    "throughput_p1_fraction": "1st percentile of that",
    **{
        name: FCT[name]
        for name in ("long_mean_ms", "long_p99_ms", "short_mean_ms", "short_p99_ms", "long_flows")
    },
    "step_bytes": "list: sizes of flows",
    "step_throughput_fraction": "list: throughput of a flow of each size, mean",
    "step_throughput_p1_fraction": "list: 1st percentile of that",
    "step_mean_ms": "list: time of a flow of each size, mean",
    "step_p99_ms": "list: 99th percentile of that",
    "long_percentiles_ms": "list: percentiles 0 to 100 of the times of long flows",
    **TRANSPORT,
}
FEEDBACK = {
    "hosts": VS_FATTREE["hosts"],
    "flows": VS_FATTREE["flows"],
    "unfinished": "flows that did not end; no mean or percentile counts them",
    "unfinished_fraction": "share of those, of all flows",
    **ENDED,
    **TRANSPORT,
}


COLLISIONS = {
    "hosts": "hosts of the network",
    "flow_shares": "list: which share of the ordered pairs of routers has 0, 1, 2, ... flows",
    "over_three_fraction": "pairs of routers with more than three flows",
    "nine_or_more_fraction": "pairs of routers with nine or more",
    "most_flows": "flows of the pair that has most",
}
DIVERSITY = {
    "used_hops": "links of a path that counts, at the most",
    "radix": "links of a router to other routers, k'",
    "shortest_length_shares": "list: which share of pairs has shortest paths of 0, 1, 2, ... links",
    "minimal_disjoint_shares": (
        "list: which share of the sampled pairs has 0, 1, 2, ... disjoint shortest paths, c_min"
    ),
    "one_shortest_fraction": "pairs with a single shortest path",
    "cdp_mean_fraction": "disjoint paths of a pair (CDP), of k', mean",
    "cdp_mean_error_fraction": "half of its 95 % interval, from the number of pairs",
    "cdp_tail_fraction": "the CDP, of k', that 99 % of the pairs reach",
    "cdp_shares": "list: which share of pairs has 0, 1, 2, ... disjoint paths",
    "interference_mean_fraction": "paths that two pairs take from each other (PI), of k', mean",
    "interference_mean_error_fraction": (
        "half of its 95 % interval, from the number of fours of routers"
    ),
    "interference_tail_fraction": "the PI, of k', that 99.9 % do not exceed",
    "paper_*_fraction": "the value of table IV",
    "interference_shares": "list: the shares of fours with a PI of 0 or less, of 1, of 2 and so on",
}
LAYERED_THROUGHPUT = {
    "throughput": (
        "T: how many times the worst-case demands can be sent over the scheme's paths (MAT)"
    ),
    "bound_throughput": (
        "T over all paths of at most D + 1 links (bound=short), or over all paths (bound=flow)"
    ),
    "fewest_paths": "different paths of the demand that has fewest; missing under valiant",
    "mean_paths": "different paths of a demand, mean",
    "fewest_paths_of_any_pair": (
        "different paths of the pair of routers that has fewest; of schemes with layers"
    ),
    "mean_paths_of_all_pairs": "different paths of a pair of routers, mean",
    "three_disjoint_fraction": (
        "ordered pairs of routers whose paths in the layers include three disjoint ones"
    ),
    "mean_hops": "mean links of a path over all pairs and layers",
}
SIZES = {
    "diameter": "links of the longest of all shortest paths between routers with hosts, D",
    "radix": "links of a router to other routers, k'",
    "routers": "routers, N_r",
    "hosts": "hosts, N",
    "router_links": "links between routers",
    "mean_hops": "mean links between two routers with hosts, d",
    "total_network_load": "TNL, k' N_r / d: the most flows on shortest paths that share no link",
    "as_in_paper": (
        "whether D, k', N_r and N are those of table IV; missing where it has no such network"
    ),
    "as_table_v": "whether routers, k' and D agree with the formulas of table V",
    "printed_hosts_of_router": "hosts of a router by the forms of table V",
}
COST = {
    "network": "the family's network of nearest size",
    "network_hosts": "its hosts",
    "radix": "ports of a router",
    "edge_density": "cables for each host",
    "router_cost_usd": "routers and their ports, for each host",
    "copper_cost_usd": "copper cables, for each host",
    "fibre_cost_usd": "fibre cables, for each host",
    "host_cost_usd": "all of it, for each host",
}
DETOUR_LOAD = {
    "offered_fraction": "packets that hosts sent while others were counted, of those that fit",
    "accepted_fraction": "packets that arrived, of those that fit",
    "least_accepted_fraction": "the same of the host whose packets arrived least",
    "latency_slots": "mean time of these packets, in packet times; null without any",
}
