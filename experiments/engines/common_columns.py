"""Columns that several experiments have."""

from __future__ import annotations

# Of fabric_run.order_figures().
ORDER = {
    "late_fraction": "packets that arrived behind a later one of their flow, of those received",
    "extent_p99_packets": (
        "packets since the first later one, 99th percentile of late packets (RFC 4737); at most 255"
    ),
    "delay_mean_us": "mean time of a packet from the first switch to the receiver",
    "delay_p99_us": "99th percentile of that time, up to the next class of a histogram",
    "retransmitted_fraction": "segments that TCP sent again, of all packets",
    "spurious_fraction": "segments sent again although they had arrived, of all packets",
}
# Of flows that end.
UNFINISHED = {
    "flows": "flows that began",
    "unfinished": (
        "flows that had not ended when the run did; they count with the time that they had"
    ),
}
# Of layered_network.layer_figures(): None where hosts choose no layers.
LAYERS = {
    "layer_flows": "flows that drew a first layer; null where hosts choose no layers",
    "layer_gaps": "draws of another layer because a flow had been silent",
    "layer_cuts": "draws of another layer because TCP reduced its window",
    "layer_echoes": "draws of another layer because congestion was echoed to the sender",
    "layer_errors": "draws of another layer because an ICMP error came back",
    "first_layer_fraction": "packets that went by layer 0, of all",
}
