"""Meanings of the columns of this room's experiments."""

from __future__ import annotations

from weft.experiments.engines.common_parameters import ORDER

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
TIERS = {
    "edge_iterations": "iterations until no link of edge switches is bad, mean over permutations",
    "edge_standard_error_iterations": "its standard error",
    "plane_iterations": "the same for cores, from then on, in the slowest plane",
    "plane_standard_error_iterations": "its standard error",
    "edge_moves_per_flow": "moves and swaps of a flow to another plane",
    "plane_moves_per_flow": "moves and swaps of a flow to another core",
    "requests_per_flow": "requests that outputs of both levels sent",
    "excess_growths": "iterations in which the excess of a level grew",
}
CHURN = {
    "bad_flows_fraction": "flows on a link that has another flow, mean over measured periods",
    "equal_share_fraction": (
        "rate of a flow, of a link's, if each link is shared equally, by its most loaded link; mean"
    ),
    "moves_per_flow": "moves and swaps of flows, for each flow that ended",
    "requests_per_flow": "requests of output leaves, for each flow that ended",
    "ended_flows": "flows that ended in the measured periods",
    "sampled_periods": "list: some periods from the beginning on",
    "bad_flows_shares": "list: flows on a link that has another flow, in each of those",
}
PERMUTATIONS = {
    "ideal_us": (
        "time of a message alone: its packets at the host's rate, and its path without queues; so "
        "long takes a permutation through an ideal crossbar"
    ),
    "completion_us": "time of the slowest message of a permutation, mean over permutations",
    "completion_ratio": "completion_us over ideal_us",
    "host_mean_us": "time of a message, mean over hosts and permutations",
    "goodput_fraction": (
        "rate of a message, of that through an ideal crossbar: ideal_us over host_mean_us"
    ),
    "late_fraction": (
        "packets that arrived behind a later one of their message, of all; null under NDP, which "
        "has no order, and where they are dropped"
    ),
    "sent_again_fraction": (
        "packets that NDP sent again, which switches had trimmed, or that go-back-N dropped, over "
        "those that messages have"
    ),
    "moves_per_flow": "moves and swaps of a flow; null without DAR's daemons, as below",
    "requests_per_flow": "requests that output leaves sent, for each flow",
}
P = {"p": "flows that a link carries"}
SETTLING = {
    **P,
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
        "messages that began more than 5 us later than their permutation (kernel), or that arrived "
        "5 us later than their host could have sent them (packet)"
    ),
    "period_us": "the time that an entry of the lists below stands for",
    "mean_reroutes": (
        "list: reroutes of a leaf in each such period from the beginning, mean over leaves"
    ),
    "max_reroutes": "list: those of the leaf that has most",
}
TABLE = {
    **P,
    "mean_throughput_gbps": "throughput of a receiving host, mean",
    "min_throughput_gbps": "throughput of the receiver that has least",
    "throughput_change_fraction": (
        "throughput in the second half of the time that counts, relative to the first, less 1"
    ),
    "mean_latency_us": "latency of a packet, from its host to its arrival, mean over receivers",
    "max_latency_us": "the longest of all packets",
    "mean_jump_ratio": (
        "the authors' statistic: sum of jumps over packets in order, mean over receivers"
    ),
    "max_jump_ratio": "ratio of the receiver that has most",
    "mean_jump_packets": "the authors' window: mean jump, mean over receivers",
    "max_jump_packets": "the largest of the receivers' mean jumps",
    "go_back_fraction": (
        "packets that go-back-N would send again, of all: for each jump, the jump and what two "
        "mean latencies carry; an estimate from above"
    ),
    "late_fraction": "packets that arrived behind a later one of their message, of all",
    "mean_extent_packets": "how far behind it late packets are, mean",
    "reroutes_per_message": "reroutes of a message",
    "ears_per_message": "requests to move a flow (EARs) sent for a message",
    "ear_bytes_fraction": (
        "bytes of EARs, of bytes of data: 8 bytes (section 5.2), informed ones with a bit a spine"
    ),
    "stale_ears_fraction": "EARs that came when their flow had moved already",
    "paper_*": "the paper's value of the column named behind paper_, in its three cells",
}
FAILURE = {
    **P,
    "flows_hit": "flows that were on what failed",
    "off_dead_ms": "from the failure until no flow was on a dead link",
    "settled_ms": (
        "from the failure until, in addition, no link had more than p flows or than an even share"
    ),
    "most_flows": "flows on the most loaded link at the end",
    "goodput_fraction": "goodput of a flow, of what the host's link can carry, mean",
    "slowest_fraction": "that of the slowest flow",
    "moves": "moves and swaps of flows",
    "replaced": "flows that left links that were taken for dead",
    **ORDER,
}
GOODPUT = {
    "p": "flows that a link carries, as DAR's daemons have it; null without them",
    "goodput_fraction": "goodput of a flow, of what the host's link can carry, mean",
    "slowest_fraction": "that of the slowest flow",
    **ORDER,
    "most_flows": "flows on the most loaded link at the end; null under schemes that place none",
    "settled_ms": "from the flows' beginning to their last move",
    "moves_per_flow": "moves and swaps of a flow; null without DAR's daemons, as below",
    "swaps": "swaps of two flows",
    "replaced": "flows that left links that were taken for dead",
    "requests": "requests that leaves sent",
    "stale_requests": "requests that arrived when their flow had already moved",
    "late_moves": "moves after the warm-up",
}
