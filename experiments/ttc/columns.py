"""Meanings of the columns of TTC's experiments.

Layers of links are up1, up2, ... from the edge switches to the top, down1, down2, ... back, and
hosts: down to the hosts.
"""

from __future__ import annotations

from weft.experiments.engines.common_parameters import ORDER

CHOICES = {
    "up*_redirected_fraction": "choices at switches of that layer that left D-mod-k's port; null "
    "where there were none, and on the kernel under schemes other than TTC",
    "default_path_fraction": "of what goes over the top layer, what keeps to D-mod-k's path",
}
QUEUES = {
    "*_mean_queue_packets": (
        "mean queue of a port of that layer of links, since the first slot or since TCP's warm-up"
    ),
    "*_max_queue_packets": "longest queue of a port of that layer of links",
}
TTC_FLOW = {
    "delta_flows": (
        "the threshold: a flow is redirected if that makes a difference of more flows than this"
    ),
    "max_load_flows": "flows on the most loaded link, mean over the repetitions",
    "max_load_sd_flows": "their standard deviation",
    "estimate_flows": "the paper's estimate: k + ln ln N / ln 2 + delta",
    "*_max_load_flows": "flows on the most loaded link of that layer, mean over the repetitions",
    **CHOICES,
    "max_loads_flows": "list: flows on the most loaded link in each repetition",
}
TTC_PACKET = {
    "mean_latency_slots": (
        "from the slot in which a packet is sent to that in which it arrives, mean"
    ),
    "tail_latency_slots": (
        "the largest latency of the packets sent in the same slot, mean over slots"
    ),
    **CHOICES,
    **QUEUES,
    "up1_at_least": (
        "list: the fraction of up-ports of edge switches with at least 0, 1, 2, ... packets"
    ),
}
TTC_THEORY = {
    "mean_queue_packets": "mean queue at the fixed point of equation (9)",
    "simulated_mean_queue_packets": "mean queue of the simulated queues",
    "worst_error_fraction": (
        "largest difference between the two in the fraction of queues with i packets or more"
    ),
    "z": "the factor by which log 1/s_i grows with i: the root of z^(delta+1) = z^delta + 1",
    "measured_z": (
        "the same, measured at the end of the fixed point; null where too few s_i are known"
    ),
    "at_least": "list: s_i, the fraction of queues with at least i packets, at the fixed point",
    "simulated_at_least": "list: the same of the simulated queues",
}
TTC_KERNEL = {
    **QUEUES,
    "delay_mean_slots": (
        "mean time of a packet from the first switch to the receiver, in packet times; queueing "
        "alone"
    ),
    "delay_p99_slots": "99th percentile of that time, with the delays that links themselves have",
    "lost_packets": "packets that did not arrive",
    **CHOICES,
    "model_delay_mean_slots": "prediction of the slotted model for delay_mean_slots",
    "model_*": "prediction of the slotted model for the column named after model_",
    "goodput_bps": "payload of all TCP flows that arrives in a second",
    **ORDER,
}
FABRIC_GAIN = {
    "goodput_bps": "payload of all flows that arrives in a second",
    "ideal_goodput_bps": "most that the fabric could carry of these flows",
    "goodput_fraction": "goodput_bps of ideal_goodput_bps",
    "slowest_flow_bps": "goodput of the slowest flow",
    "flows_bps": "list: goodput of each flow",
    **ORDER,
}
