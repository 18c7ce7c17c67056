/* SPDX-License-Identifier: MIT */
/* A host without a transport: it sends its messages one after the other, in order of their start, and
 * nobody acknowledges a packet or sends it again.  It makes a packet when the one before begins to leave
 * it, so that a packet waits at most for room behind the host's link. */
#pragma once
#include <stdint.h>

/* rate_bps: of a host.  frame_bytes: of a full packet, of which header_bytes are no payload.
 * counted_from_ns: receivers count what arrives from then on.
 * go_back_ns: 0: receivers keep what comes early.  Else go-back-N: they drop it, and the host hears so much
 * later from which packet on it sends again, once for all that it sent before.  It hears at once of the last
 * packet, and begins the next message then. */
struct stream_parameters {
	uint64_t rate_bps;
	uint64_t counted_from_ns;
	uint64_t go_back_ns;
	uint32_t frame_bytes;
	uint32_t header_bytes;
};

/* Packets of a message that its receiver has counted.
 *
 * latency_ns: since they left their host, summed, and worst_ns the longest.  A packet whose number is one
 * above the highest so far is in order; one further above is a jump by the difference, and jumped the sum
 * of these; any other is late (reordered in RFC 4737), and extent how far their numbers are below the
 * highest, summed.  refused: what go-back-N drops, early or for the second time. */
struct stream_counters {
	uint64_t packets, latency_ns, worst_ns, in_order, jumps, jumped, late, extent, refused;
};

/* arrived: packets, counted or not.  next: above the highest number. */
struct stream {
	struct stream_counters counters;
	uint32_t arrived, next;
};

static inline void stream_receive(struct stream *stream, uint32_t number, uint64_t latency_ns,
				  int is_counted)
{
	struct stream_counters *counters = &stream->counters;
	int64_t ahead = (int64_t)number + 1 - stream->next;

	stream->arrived++;
	if (ahead > 0)
		stream->next = number + 1;
	if (!is_counted)
		return;
	counters->packets++;
	counters->latency_ns += latency_ns;
	if (latency_ns > counters->worst_ns)
		counters->worst_ns = latency_ns;
	if (ahead == 1) {
		counters->in_order++;
	} else if (ahead > 1) {
		counters->jumps++;
		counters->jumped += ahead;
	} else {
		counters->late++;
		counters->extent -= ahead;
	}
}
