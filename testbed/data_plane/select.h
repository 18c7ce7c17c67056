/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Which candidate port of a switch takes a packet: daemons/routing/selection.py in C.
 *
 * The reasons are in the Python file.  This is plain C, so that a test can compare the two.  The
 * including file defines load_of() and draw() of own_rule.h, candidates_to() and hops_between(); all
 * receive `context` unchanged.
 */
#pragma once
#include "own_rule.h"

#define DIGITS 4 /* of a destination's address that a switch reads */
#define MOST_SAMPLES 8 /* of DRILL */
#define MOST_DETOURS 4 /* of UGAL */
#define NO_SAMPLE 0xffffffffffffffff

/* Let load_of() concern the candidates towards switch `waypoint` - 1, or towards the destination if
 * it is 0; return their number, 0 without a route. */
static __always_inline __u32 candidates_to(void *context, __u32 waypoint);
/* Draw one of those candidates; return its load << 32 | its number, NO_SAMPLE without a route. */
static __always_inline __u64 sample_towards(void *context, __u32 waypoint);
/* Return the hops of a shortest path between two switches. */
static __always_inline __u32 hops_between(void *context, __u32 a, __u32 b);

/* The same numbers as in daemons/load_balancing/scheme.py. */
enum rule {
	KERNEL,
	D_MOD_K,
	FLOW_HASH,
	RANDOM,
	ROUND_ROBIN,
	DRILL,
	TTC,
	SHORTEST,
	FLOWLET,
	LBSP,
	DAR,
	VALIANT,
	UGAL,
	OWN /* of another package: choose() */
};

/* Where a flow begins (DAR): the words of `start` in daemons/dar/scheme.py.  LIMITED: daemons then move
 * it from an uplink that has no room. */
enum start { START_BY_SOURCE, START_BY_HASH, START_LIMITED, START_BY_DESTINATION };

struct digit {
	__u32 shift;
	__u32 mask;
	__u32 weight;
};

static __always_inline __u32 host_number(__u32 address, const struct digit *digits)
{
	__u32 number = 0;

	for (int i = 0; i < DIGITS; i++)
		number += (address >> (digits[i].shift & 31) & digits[i].mask) * digits[i].weight;
	return number;
}

/* Return the last digit of a host's label: its number among its switch's hosts. */
static __always_inline __u32 host_digit(__u32 address, const struct digit *digits)
{
	return address >> (digits[0].shift & 31) & digits[0].mask;
}

static __always_inline __u32 d_mod_k(__u32 host, __u32 n)
{
	return host % n;
}

static __always_inline __u32 ttc(void *context, __u32 n, __u32 preferred, __u32 delta,
				 __u32 ties_redirect)
{
	__u32 other = another(preferred, draw(context), n);
	__s64 excess = (__s64)load_of(context, preferred) - load_of(context, other);

	return excess + ties_redirect > (__s64)delta ? other : preferred;
}

static __always_inline __u32 drill(void *context, __u32 n, __u32 remembered, __u32 d)
{
	__u32 first = below(draw(context), n);
	__u32 best = first;
	__u32 best_load = load_of(context, first);
	__u64 sampled = 0; /* bit i: the candidate i + 1 behind the first */

	if (remembered < n && remembered != first) {
		__u32 load = load_of(context, remembered);

		if (load <= best_load) {
			best = remembered;
			best_load = load;
		}
	}
	if (d > n)
		d = n;
	for (__u32 i = 1; i < d && i < MOST_SAMPLES; i++) {
		__u32 bound = n - d + i;
		__u32 behind = below(draw(context), bound);
		__u32 candidate;
		__u32 load;

		if (sampled >> (behind & 63) & 1)
			behind = bound - 1;
		sampled |= 1ULL << (behind & 63);
		candidate = wrap(first + 1 + behind, n);
		load = load_of(context, candidate);
		if (load < best_load) {
			best = candidate;
			best_load = load;
		}
	}
	return best;
}

static __always_inline __u32 shortest(void *context, __u32 n)
{
	__u32 start = below(draw(context), n);
	__u32 best = start;
	__u32 best_load = load_of(context, start);

	for (__u32 i = 1; i < n && i < MOST_CANDIDATES; i++) {
		__u32 candidate = wrap(start + i, n);
		__u32 load = load_of(context, candidate);

		if (load < best_load) {
			best = candidate;
			best_load = load;
		}
	}
	return best;
}

static __always_inline __u32 in_turn(__u32 own, __u32 turn, __u32 n, __u32 groups)
{
	__u32 rows = groups ? n / groups : 0;

	return rows ? turn % rows * groups + own : own % n;
}

/* next_state() and group_in_state(): daemons/lbsp/routing.py. */
static __always_inline __u32 next_state(__u32 state, __u32 zero, __u32 one, __u32 threshold,
					__u32 percent)
{
	if (state == 1 && zero > one + 1)
		return 1;
	if (state == 2 && one > zero + 1)
		return 2;
	if (zero > threshold && (__u64)zero * 100 > (__u64)one * percent)
		return 1;
	if (one > threshold && (__u64)one * 100 > (__u64)zero * percent)
		return 2;
	return 0;
}

static __always_inline __u32 group_in_state(__u32 state, __u32 own, __u32 input_port)
{
	__u32 by_input_port = (state == 1 && own == 0) || (state == 2 && own == 1);

	return by_input_port ? input_port & 1 : own;
}

static __always_inline __u32 flowlet(void *context, __u32 n, __u32 last, __u64 idle_ns,
				     __u64 gap_ns)
{
	return idle_ns <= gap_ns && last < n ? last : below(draw(context), n);
}

/* Switches at which a packet enters and leaves a network of so many switches. */
struct trip {
	__u32 source;
	__u32 destination;
	__u32 switches;
};

/* The switch that a packet visits before its destination, + 1, or 0; and a candidate towards it. */
struct detour {
	__u32 waypoint;
	__u32 candidate;
};

/* Return a switch that is at no end of a trip, whose ends differ, of at least three. */
static __always_inline __u32 random_waypoint(__u32 random, const struct trip *trip)
{
	__u32 low = trip->source, high = trip->destination;
	__u32 chosen = below(random, trip->switches - 2);

	if (low > high) {
		low = trip->destination;
		high = trip->source;
	}
	chosen += chosen >= low;
	return chosen + (chosen >= high);
}

static __always_inline struct detour valiant(void *context, const struct trip *trip)
{
	__u32 waypoint = 1 + random_waypoint(draw(context), trip);
	__u64 sample = sample_towards(context, waypoint);

	if (sample == NO_SAMPLE)
		return (struct detour){ 0, sample_towards(context, 0) };
	return (struct detour){ waypoint, sample };
}

static __always_inline struct detour ugal(void *context, const struct trip *trip, __u32 d,
					  __u32 delta)
{
	__u64 sample = sample_towards(context, 0);
	__u64 cost = (sample >> 32) * hops_between(context, trip->source, trip->destination);
	struct detour direct = { 0, sample };
	struct detour best = direct;
	__u64 best_cost = NO_SAMPLE;

	for (__u32 i = 0; i < d && i < MOST_DETOURS; i++) {
		__u32 other = random_waypoint(draw(context), trip);
		__u32 hops;

		sample = sample_towards(context, other + 1);
		if (sample == NO_SAMPLE)
			continue;
		hops = hops_between(context, trip->source, other) +
		       hops_between(context, other, trip->destination);
		if ((sample >> 32) * hops < best_cost) {
			best = (struct detour){ other + 1, sample };
			best_cost = (sample >> 32) * hops;
		}
	}
	if (best_cost == NO_SAMPLE || cost <= best_cost + delta)
		return direct;
	return best;
}

/* What a flow's next packet needs of its last one's detour, as one number. */
#define CANDIDATE_BITS 15
#define NO_DETOUR 0xffffffff

static __always_inline __u32 packed_detour(__u32 waypoint, __u32 candidate)
{
	return waypoint << CANDIDATE_BITS | candidate;
}

static __always_inline __u32 candidate_of(__u32 packed)
{
	return packed & ((1 << CANDIDATE_BITS) - 1);
}

/* Return 1 if a packet follows the one before on its detour, whose candidates load_of() then
 * concerns. */
static __always_inline int keeps_detour(void *context, __u32 last, __u64 idle_ns, __u64 gap_ns)
{
	return last != NO_DETOUR && idle_ns <= gap_ns &&
	       candidate_of(last) < candidates_to(context, last >> CANDIDATE_BITS);
}
