/* SPDX-License-Identifier: MIT */
/* The purified transport of many hosts in one loop: sockets and a clock around ndp_machine.h. */
#pragma once
#include "ndp_machine.h"

/* data, control: non-blocking UDP sockets in the host's namespace, whose packets have the code
 * points of data and of control.  Packets arrive at `data`.  address: IPv4, in network order. */
struct ndp_host {
	int data;
	int control;
	uint32_t address;
	uint32_t unused;
};

/* Times are ns after the beginning of the run.  due_ns: time at which the message is to begin.
 *
 * Results: began; delivered: its receiver has all of it; finished: its sender knows; NDP_NEVER for
 * an event that did not happen.  silent_ns, unacknowledged, packets: as in struct ndp_event. */
struct ndp_message {
	uint64_t due_ns;
	uint64_t size_bytes;
	uint32_t src;
	uint32_t dst;
	uint64_t began;
	uint64_t delivered;
	uint64_t finished;
	uint64_t silent_ns;
	uint32_t unacknowledged;
	uint32_t packets;
};

/* late_ns: largest delay of the timer.
 * garbage: datagrams that are no packets, or not from a host of the run.
 * unknown: packets of no message of the run, or with another size, payload or window.
 * corrupt: packets with another payload than was sent; they are dropped.
 * unsent: packets that a socket refused. */
struct ndp_run {
	const struct ndp_host *hosts;
	struct ndp_message *messages; /* in order of due_ns */
	const uint8_t *octets; /* first octet of addresses in each layer; unused with one layer */
	struct ndp_parameters parameters;
	uint64_t deadline; /* after the beginning of the run */
	uint32_t n_hosts;
	uint32_t n_messages;
	uint32_t first_flow; /* number of the first message's flow; the others follow */
	uint16_t port;
	uint16_t unused;
	struct ndp_counters counters;
	uint64_t late_ns, garbage, unknown, corrupt, unsent, wakes;
};

/* Return 0 when every message has ended or the deadline is over; -errno of a failed system call,
 * -EINTR after a signal. */
int ndp_run(struct ndp_run *run);
