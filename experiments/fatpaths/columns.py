"""Meanings of the columns of FatPaths' experiments with packets."""

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
