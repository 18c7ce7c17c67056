/* SPDX-License-Identifier: MIT */
#include "cubic.h"

#include <string.h>

#define SECOND_NS 1000000000ull
#define BETA 717 /* of 1024: what a loss leaves of the window */
#define ONE 1024
#define C 410 /* of 1024 packets a cubic second */
#define TIME_BITS 10 /* 1/1024 s */
#define FARTHEST (1u << 17) /* 128 s from the plateau: 410 x^3 stays below 2^64 */
#define RENO_EIGHTHS 15 /* of a window: acknowledged packets for which W_est grows by one */
#define FIRST_PACE 20 /* at most, before the first loss */
#define LEAST_PACE 2
#define LEAST_WINDOW 16 /* of HyStart */
#define ENOUGH_SAMPLES 8
#define TRAIN_GAP_NS 2000000ull
#define LEAST_RISE_NS 4000000ull
#define MOST_RISE_NS 16000000ull

/* Return the greatest number whose cube is at most `value`. */
static uint32_t cube_root(uint64_t value)
{
	uint64_t root = 0;

	for (int bit = 20; bit >= 0; bit--) {
		uint64_t larger = root | 1ull << bit;

		if (larger * larger * larger <= value)
			root = larger;
	}
	return root;
}

uint32_t cubic_threshold(struct cubic *c, uint32_t window)
{
	c->epoch = 0;
	/* fast convergence: who lost twice leaves room for new flows (section 4.7) */
	c->before_loss =
		window < c->before_loss ? (uint64_t)window * (ONE + BETA) / (2 * ONE) : window;
	return most(2, (uint64_t)window * BETA / ONE);
}

static void start_round(struct cubic *c, uint64_t now, uint32_t next)
{
	c->round_at = c->train_at = now;
	c->round_end = next;
	c->round_rtt_ns = UINT64_MAX;
	c->samples = 0;
}

void cubic_reset(struct cubic *c, uint64_t now, uint32_t next)
{
	memset(c, 0, sizeof(*c));
	start_round(c, now, next);
}

void cubic_idle(struct cubic *c, uint64_t from_tick, uint64_t tick)
{
	if (c->epoch)
		c->epoch = least(c->epoch + tick - from_tick, tick);
}

static void start_epoch(struct cubic *c, uint32_t window, uint32_t acknowledged, uint64_t tick)
{
	c->epoch = tick;
	c->answered = acknowledged;
	c->reno = window;
	c->origin = most(c->before_loss, window);
	c->way_ms = cube_root((1ull << 4 * TIME_BITS) / C * (c->origin - window));
}

/* Return the window of the cubic function one round trip from now (section 4.2). */
static uint64_t target(const struct cubic *c, uint64_t tick, uint64_t tick_ns)
{
	uint64_t ticks = tick - c->epoch + (c->least_rtt_ns + tick_ns - 1) / tick_ns;
	uint64_t time = (ticks << TIME_BITS) / (SECOND_NS / tick_ns);
	uint64_t apart = least(FARTHEST, time < c->way_ms ? c->way_ms - time : time - c->way_ms);
	uint64_t rise = C * apart * apart * apart >> 4 * TIME_BITS;

	return time < c->way_ms ? c->origin - least(rise, c->origin) : c->origin + rise;
}

static void follow_curve(struct cubic *c, uint32_t window, uint64_t tick, uint64_t tick_ns)
{
	uint64_t goal = target(c, tick, tick_ns);

	c->pace = goal > window ? window / (goal - window) : 100 * window;
	if (!c->before_loss)
		c->pace = least(c->pace, FIRST_PACE);
}

/* Grow at least as fast as Reno with the same beta would (section 4.3). */
static void follow_reno(struct cubic *c, uint32_t window)
{
	uint32_t step = (uint64_t)window * RENO_EIGHTHS / 8;

	for (; c->answered > step; c->answered -= step)
		c->reno++;
	if (c->reno > window)
		c->pace = least(c->pace, window / (c->reno - window));
}

uint32_t cubic_pace(struct cubic *c, uint32_t window, uint32_t acknowledged, uint64_t tick,
		    uint64_t tick_ns)
{
	c->answered += acknowledged;
	if (c->window == window && tick - c->at <= SECOND_NS / tick_ns / 32)
		return c->pace;
	if (!c->epoch || tick != c->at) { /* the curve moves once a tick */
		c->window = window;
		c->at = tick;
		if (!c->epoch)
			start_epoch(c, window, acknowledged, tick);
		follow_curve(c, window, tick, tick_ns);
	}
	follow_reno(c, window);
	c->pace = most(LEAST_PACE, c->pace);
	return c->pace;
}

/* Return 1 if answers have come closely behind each other for half of the least round trip, and of `held_ns`
 * for which devices may have held them: the path is full (section 4.2.1 of HyStart's paper). */
static int is_train_long(struct cubic *c, uint64_t now, uint64_t held_ns)
{
	if (now - c->train_at > TRAIN_GAP_NS)
		return 0;
	c->train_at = now;
	return now - c->round_at > (c->least_rtt_ns + held_ns) / 2;
}

/* Return 1 if the least of the round's first times lies above that of all (section 4.2.2). */
static int has_delay_risen(struct cubic *c, uint64_t rtt_ns)
{
	uint64_t rise = least(MOST_RISE_NS, most(LEAST_RISE_NS, c->least_rtt_ns / 8));

	c->round_rtt_ns = least(c->round_rtt_ns, rtt_ns);
	if (c->samples < ENOUGH_SAMPLES) {
		c->samples++;
		return 0;
	}
	return c->round_rtt_ns > c->least_rtt_ns + rise;
}

int cubic_sample(struct cubic *c, uint64_t now, uint64_t rtt_ns, uint64_t held_ns, uint32_t window,
		 uint32_t threshold, uint32_t acknowledged, uint32_t next, uint64_t tick_ns)
{
	int is_long, has_risen;

	/* soon after a loss round trips are those of its queue */
	if (c->epoch && now / tick_ns + 1 - c->epoch < SECOND_NS / tick_ns)
		return 0;
	if (!c->least_rtt_ns || rtt_ns < c->least_rtt_ns)
		c->least_rtt_ns = rtt_ns;
	if (c->has_found || window >= threshold)
		return 0;
	if (acknowledged > c->round_end)
		start_round(c, now, next);
	if (window < LEAST_WINDOW)
		return 0;
	is_long = is_train_long(c, now, held_ns);
	has_risen = has_delay_risen(c, rtt_ns);
	c->has_found = is_long || has_risen;
	return c->has_found;
}
