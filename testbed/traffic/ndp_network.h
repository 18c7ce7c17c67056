/* SPDX-License-Identifier: MIT */
/* A simulated network of endpoints of the purified transport, on switches that trim packets.
 *
 * A port has a short queue for data and one with priority for headers (NDP, Handley et al., SIGCOMM
 * 2017, section 3.1).  Tests hold it equal to tests/daemons/transport/python_network.py. */
#pragma once
#include "ndp_machine.h"

/* Choice among the next hops of a packet: any of them at random, or by a hash of its flow. */
enum { NDP_SPRAY, NDP_HASH };

/* Nodes are the hosts, then the switches.  A node's ports are first_port[node] up to
 * first_port[node + 1]; port p leads to node peer[p].  A host has one port; last_port[host] is that
 * of its switch to it.
 *
 * next_hops[first_hop[i]] up to next_hops[first_hop[i + 1]], where
 * i = (layer * n_switches + last switch) * n_switches + switch, are the ports of `switch`, numbered
 * from its first port, to the last switch before the destination. */
struct ndp_wiring {
	const uint32_t *first_port;
	const uint32_t *peer;
	const uint32_t *last_port;
	const uint32_t *first_hop;
	const uint16_t *next_hops;
	uint32_t n_hosts;
	uint32_t n_switches;
	uint32_t layers;
	uint32_t choice;
};

/* trim_bytes: capacity of a switch's data queue; hosts queue without limit.  header_bytes: capacity
 * of the header queue.  share: headers sent for each data packet if both wait. */
struct ndp_link {
	uint64_t rate_bps;
	uint64_t delay_ns;
	uint32_t trim_bytes;
	uint32_t header_bytes;
	uint32_t share;
	uint32_t unused;
};

struct ndp_port_counters {
	uint64_t frames, bytes, trimmed, headers_lost, most_data_bytes, most_header_bytes;
};

struct ndp_network;

/* Return a network in which nothing is sent yet, 0 without memory.  `wiring` must outlive it.
 * seed: of the random choices of switches. */
struct ndp_network *ndp_network_new(const struct ndp_wiring *wiring, const struct ndp_link *link,
				    const struct ndp_parameters *parameters, uint64_t seed);
void ndp_network_free(struct ndp_network *network);

/* Schedule a message; return 0 or -ENOMEM. */
int ndp_network_send(struct ndp_network *network, uint64_t time_ns, uint32_t src, uint32_t dst,
		     uint32_t flow, uint64_t size_bytes);

/* Run all events up to and including `time_ns`.  Return 0, -EINVAL for a message that no endpoint
 * can send, -ENOMEM, or -ENETUNREACH if a switch has no next hop for a packet. */
int ndp_network_run(struct ndp_network *network, uint64_t time_ns);

/* Remove the earliest event of any host and fill in it and its host; 0 if there is none. */
int ndp_network_take_event(struct ndp_network *network, uint32_t *host, struct ndp_event *event);

const struct ndp_counters *ndp_network_counters(const struct ndp_network *network, uint32_t host);
const struct ndp_port_counters *ndp_network_port(const struct ndp_network *network, uint32_t port);

/* Return the number of frames that links have begun to carry. */
uint64_t ndp_network_frames(const struct ndp_network *network);
