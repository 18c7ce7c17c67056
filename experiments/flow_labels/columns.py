"""Meanings of the columns of this room's experiment."""

from __future__ import annotations

FLOW_LABELS = {
    "flows": "endless flows",
    "goodput_fraction": "payload that a flow received, over what its host's link carries of IPv4, "
    "whose header is 20 bytes shorter; mean",
    "slowest_fraction": "the same of the slowest flow",
    "goodputs_fraction": "list: the same of every flow, in order",
    "stopped_flows": "flows that received no later data in the second half of the counted time",
    "still_ms": "list: longest time without later data, of every flow",
    "longest_still_ms": "the longest of these",
    "new_labels": "labels in arrived packets of data beside each flow's first; 0 over IPv4; on "
    "the engine packet, as all rehashes, with labels alone",
    "layer_draws": "draws of another layer for a flow, by the program of the hosts; null without",
    "detoured_packets": "packets that switches sent to a detour, by their program; null without",
    "timeout_rehashes": "new hashes after a retransmission timeout (TcpTimeoutRehash); "
    "IPv4 does not carry them",
    "duplicate_rehashes": "new hashes of receivers that got data twice (TcpDuplicateDataRehash)",
    "plb_rehashes": "new hashes after rounds with marks (TCPPLBRehash)",
    "timeouts": "expiries of the retransmission timer",
    "marked_fraction": "segments that were delivered with a mark, of all sent; not on the engine "
    "packet",
    "retransmitted_fraction": "segments that were sent again, of all sent",
}
