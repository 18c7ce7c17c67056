/* SPDX-License-Identifier: MIT */
/* Windows of CUBIC (RFC 9438) with HyStart (Ha and Rhee, Computer Networks 2011), in packets.
 *
 * Constants, rounding and the order of steps are those of Linux 6.12, which counts time in ticks
 * where it computes windows. */
#pragma once
#include <stdint.h>

static inline uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* epoch: tick after which the window has grown without a loss, 0 before the first growth.  before_loss:
 * window at the last loss (W_max), less if two losses have come without reaching it again.  origin,
 * way_ms: height of the plateau, and time from the epoch to it (K), in 1/1024 s.  pace: acknowledged
 * packets for each by which the window grows, computed for `window` at tick `at`.  reno, answered:
 * window that Reno would have, and packets acknowledged since it last grew (W_est).
 *
 * HyStart, of one round trip: round_end is the packet whose acknowledgement ends it. */
struct cubic {
	uint64_t epoch, at;
	uint64_t least_rtt_ns;
	uint32_t before_loss, origin, way_ms, pace, window, reno, answered;
	uint32_t has_found, round_end, samples;
	uint64_t round_at, train_at, round_rtt_ns;
};

/* Return the threshold after a loss in a window, at least 2, and note the loss. */
uint32_t cubic_threshold(struct cubic *cubic, uint32_t window);

/* Forget everything, after a timeout. */
void cubic_reset(struct cubic *cubic, uint64_t now, uint32_t next);

/* Shift the epoch by the ticks in which nothing was in flight. */
void cubic_idle(struct cubic *cubic, uint64_t from_tick, uint64_t tick);

/* Return how many packets must be acknowledged before `window` grows by one, at least 2.
 *
 * acknowledged: newly.  tick_ns: of `tick`, which counts from 1. */
uint32_t cubic_pace(struct cubic *cubic, uint32_t window, uint32_t acknowledged, uint64_t tick,
		    uint64_t tick_ns);

/* Take in a round trip time; return 1 if slow start must end (HyStart), of which it is 0 otherwise.
 *
 * held_ns: for how long devices may hold answers back.  acknowledged, next: first packet that has not been
 * acknowledged, or sent. */
int cubic_sample(struct cubic *cubic, uint64_t now, uint64_t rtt_ns, uint64_t held_ns,
		 uint32_t window, uint32_t threshold, uint32_t acknowledged, uint32_t next,
		 uint64_t tick_ns);
