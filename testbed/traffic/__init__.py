"""Traffic: TCP flows, streams, iperf3, slotted UDP, multipath TCP, DCTCP."""
