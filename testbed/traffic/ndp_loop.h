/* SPDX-License-Identifier: MIT */
/* The purified transport of many hosts in one loop: sockets and a clock around ndp_machine.h. */
#pragma once
#include "ndp_machine.h"

/* data, control: UDP sockets in the host's namespace, whose packets have the code points of data and of control; both are
 * non-blocking, and what arrives comes to `data`.  address: IPv4, in network order. */
struct ndp_host {
	int data;
	int control;
	uint32_t address;
	uint32_t unused;
};

/* at: when it is to begin, after the beginning of the run.  The rest is told: when it began, when the receiver had all of it
 * and when the sender knew, after the beginning too, NDP_NEVER for not; and why it was given up, as in struct ndp_event. */
struct ndp_message {
	uint64_t at;
	uint64_t size_bytes;
	uint32_t src;
	uint32_t dst;
	uint64_t began;
	uint64_t delivered;
	uint64_t finished;
	uint64_t silent_ns;
	uint32_t left;
	uint32_t packets;
};

/* late_ns: by how much the timer was late at the most.  garbage: datagrams that are no packets, or come from no host.
 * unknown: packets of no message of the run, or with another size, payload or window than it has.  corrupt: packets whose payload was not what had been sent, which were left.  unsent: packets that a socket refused. */
struct ndp_run {
	const struct ndp_host *hosts;
	struct ndp_message *messages; /* in order of `at` */
	const uint8_t *octets;	      /* first octet of addresses in each layer; with one layer as they are */
	struct ndp_parameters parameters;
	uint64_t deadline; /* after the beginning of the run */
	uint32_t n_hosts;
	uint32_t n_messages;
	uint32_t first_flow; /* number of the first message; the others follow */
	uint16_t port;
	uint16_t unused;
	struct ndp_counters counters;
	uint64_t late_ns, garbage, unknown, corrupt, unsent, wakes;
};

/* 0 when every message has come to an end, or the deadline has come; -errno if the system refuses, -EINTR for a signal. */
int ndp_run(struct ndp_run *run);
