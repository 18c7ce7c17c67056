/* SPDX-License-Identifier: MIT */
/* The purified transport of one host.  A test holds it equal, packet by packet, to the machine in
 * Python in tests/daemons/transport.
 *
 * An endpoint has no socket and no clock: its owner passes it arriving packets and calls ndp_poll()
 * at its deadline.  The reasons are in the Python files.  Times are nanoseconds.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define NDP_HEADER 22 /* bytes that every packet begins with */
#define NDP_FRAME_HEADER 64 /* of a frame, with the packet's header */
#define NDP_MOST_PACKETS (1u << 24)
#define NDP_MOST_INCOMING (1u << 17) /* messages that a receiver remembers, of all peers */
#define NDP_MOST_INCOMING_OF_PEER (1u << 14)
#define NDP_NEVER UINT64_MAX

enum { NDP_DATA = 1, NDP_ACK, NDP_NACK, NDP_PULL };
enum { NDP_DELIVERED = 1, NDP_FINISHED, NDP_FAILED };

enum { NDP_BACKOFF_BY_PACKET, NDP_BACKOFF_BY_WINDOW };

/* seed: of the draws of layers.  choice: of the layer of each packet (packet_layers.h).
 * backoff: what counts as one timeout in a row (Backoff in daemons/transport/endpoint.py). */
struct ndp_parameters {
	uint64_t rate_bps;
	uint64_t timeout_ns;
	uint32_t frame_bytes;
	uint32_t window;
	uint32_t layers;
	uint32_t attempts;
	uint32_t burst;
	uint32_t seed;
	uint32_t choice;
	uint32_t backoff;
};

/* detail: data: the window; answer: 1 if another layer may help.
 * number: data: bytes of the message; else packets pulled so far.
 * payload_bytes: data: bytes in each packet but the last. */
struct ndp_packet {
	uint64_t number;
	uint32_t flow;
	uint32_t sequence;
	uint16_t payload_bytes;
	uint8_t kind;
	uint8_t layer;
	uint8_t detail;
	uint8_t unused[3];
};

/* payload_bytes: 0 with data: a probe.  retransmitted: 1 for data that was sent before. */
struct ndp_transmission {
	struct ndp_packet packet;
	uint32_t peer;
	uint16_t payload_bytes;
	uint16_t retransmitted;
};

/* size_bytes: of a delivered message.  Of a message that was given up: unacknowledged: packets without an
 * acknowledgement, of `packets`; silent_ns: time since the last packet from the peer. */
struct ndp_event {
	uint64_t time_ns;
	uint64_t size_bytes;
	uint64_t silent_ns;
	uint32_t peer;
	uint32_t flow;
	uint32_t unacknowledged;
	uint32_t packets;
	uint32_t kind;
	uint32_t unused;
};

struct ndp_counters {
	uint64_t data, headers, duplicates, strange, refused, sent, retransmissions, timeouts,
		pulls;
};

struct ndp_endpoint;

/* Return a new endpoint, 0 without memory.  The caller has checked the parameters
 * (daemons/transport/endpoint.py). */
struct ndp_endpoint *ndp_new(const struct ndp_parameters *parameters);
void ndp_free(struct ndp_endpoint *endpoint);

/* Return 0; -EINVAL for a flow used before or a size that no message can have; -ENOMEM. */
int ndp_send(struct ndp_endpoint *endpoint, uint64_t now, uint32_t flow, uint32_t peer,
	     uint64_t size_bytes);

/* whole: 0 for data without its payload.  congested: 1 for data that was marked, or trimmed before a
 * link between switches. */
void ndp_receive(struct ndp_endpoint *endpoint, uint64_t now, uint32_t peer,
		 const struct ndp_packet *packet, int whole, int congested);

/* Return the number of packets to send now, which are valid in *packets until the next call.
 * -ENOMEM if memory has run out by now, so that an answer or an event may be missing. */
ptrdiff_t ndp_poll(struct ndp_endpoint *endpoint, uint64_t now,
		   const struct ndp_transmission **packets);

/* Return the time of the next ndp_poll(); NDP_NEVER: after the next packet. */
uint64_t ndp_deadline(const struct ndp_endpoint *endpoint);

/* Remove the earliest event and fill it in; 0 if there is none. */
int ndp_take_event(struct ndp_endpoint *endpoint, struct ndp_event *event);

const struct ndp_counters *ndp_counters(const struct ndp_endpoint *endpoint);

/* Return the payload bytes of a packet of data. */
uint32_t ndp_own_bytes(const struct ndp_packet *packet);

void ndp_encode(const struct ndp_packet *packet, uint8_t *bytes);

/* Return 0, and in *whole 1 if data has its payload; -1 for a datagram that is no packet of this
 * transport, or whose layer is not below `layers`. */
int ndp_decode(const uint8_t *bytes, size_t length, uint32_t layers, struct ndp_packet *packet,
	       int *whole);
