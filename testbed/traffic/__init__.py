"""Traffic: TCP and MPTCP flows, streams, iperf3, slotted UDP, the purified transport in C."""
