"""Meanings of the columns of this room's experiments."""

from __future__ import annotations

from weft.experiments.engines.common_columns import ORDER

CONVERGENCE = {
    "sampled_permutations": "permutations that were measured",
    "mean_iterations": (
        "iterations until no link is bad, mean over permutations; null if one did not settle, as "
        "below"
    ),
    "standard_error_iterations": "its standard error",
    "median_iterations": "median over permutations",
    "p99_iterations": "99th percentile over permutations",
    "worst_iterations": "most over permutations",
    "settled_fraction": "permutations that settled within most_iterations",
    "requests_per_flow": "requests that outputs sent",
    "moves_per_flow": "moves of flows to another spine",
    "swaps_per_flow": "swaps of two flows",
    "new_bad_links_per_move": "links to output leaves that became bad, for a move or a swap",
    "excess_growths": "iterations in which the flows above p, summed over links, grew",
    "*_model_iterations": "what the paper's models of sections 3.1 (single output) and 3.2 or 3.3 "
    "(last step) expect; null where they say nothing",
}
SETTLING = {
    "permutations": "permutations that were over when the run ended",
    "in_step": (
        "whether all hosts go from one permutation to the next together; else the times below are "
        "null"
    ),
    "median_settling_us": "from the beginning of a permutation to its last move, median",
    "p99_settling_us": "99th percentile of that",
    "max_settling_us": "the longest",
    "within_80_us_fraction": "permutations that settled in the paper's 80 us",
    "moving_in_last_quarter_fraction": (
        "permutations in which flows still moved in the last quarter"
    ),
    "moves_per_flow": "moves of a flow in a permutation",
    "late_begins_fraction": (
        "messages that began more than 5 us later than their permutation, of the kernel's"
    ),
    "period_us": "the time that an entry of the lists below stands for",
    "mean_reroutes": (
        "list: reroutes of a leaf in each such period from the beginning, mean over leaves"
    ),
    "max_reroutes": "list: those of the leaf that has most",
}
TABLE = {
    "mean_throughput_gbps": "what a host receives, mean",
    "min_throughput_gbps": "what the host receives that gets least",
    "mean_latency_us": "of a packet, from its message's turn to its arrival, mean over receivers",
    "max_latency_us": "the longest of all packets",
    "mean_held_ratio": "packets that came out of order, over those in order, mean over receivers",
    "max_held_ratio": "that of the receiver that has most",
    "mean_window_packets": (
        "how far ahead of the first missing packet those out of order are, mean over receivers"
    ),
    "max_window_packets": "the largest of the receivers' means",
    "late_fraction": "packets that arrived behind a later one of their message, of all",
    "mean_extent_packets": "how far behind it late packets are, mean",
    "reroutes_per_message": "reroutes of a message",
    "ears_per_message": "requests to move a flow (EARs) sent for a message",
    "stale_ears_fraction": "of these, those that came when their flow had moved already",
}
FAILURE = {
    "flows_hit": "flows that were on what failed",
    "off_dead_ms": "from the failure until no flow was on a dead link",
    "settled_ms": (
        "from the failure until no flow was on a dead link and none had more than p flows"
    ),
    "most_flows": "flows on the fullest link at the end",
    "goodput_fraction": "goodput of a flow, of what the host's link can carry, mean",
    "slowest_fraction": "that of the slowest flow",
    "moves": "moves and swaps of flows",
    "replaced": "flows that left links that were taken for dead",
    **ORDER,
}
GOODPUT = {
    "goodput_fraction": "goodput of a flow, of what the host's link can carry, mean",
    "slowest_fraction": "that of the slowest flow",
    **ORDER,
    "most_flows": "flows on the fullest link at the end; null under schemes that place none",
    "settled_ms": "from the flows' beginning to their last move",
    "moves_per_flow": "moves and swaps of a flow; null without DAR's daemons, as below",
    "swaps": "swaps of two flows",
    "replaced": "flows that left links that were taken for dead",
    "requests": "requests that leaves sent",
    "stale_requests": "of these, those that came when their flow had moved already",
    "late_moves": "moves after the warm-up",
}
