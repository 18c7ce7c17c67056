/* Which of a switch's candidate ports takes a packet: daemons/routing/selection.py in C; the reasons are there.
 *
 * Plain C, for a test holds the two equal.  Whoever includes this defines load_of(), what waits at a candidate, and
 * draw(), 32 random bits; `of` is handed through to them.
 */
#pragma once
#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#define DIGITS 4 /* of a destination's address, that a switch reads */

static __always_inline __u32 load_of(void *of, __u32 candidate);
static __always_inline __u32 draw(void *of);

/* The same numbers as in daemons/load_balancing/scheme.py. */
enum rule { KERNEL, D_MOD_K, FLOW_HASH, RANDOM, ROUND_ROBIN, DRILL, TTC, SHORTEST, FLOWLET, LBSP, DAR };

struct digit {
	__u32 shift, mask, weight;
};

static __always_inline __u32 below(__u32 random, __u32 n)
{
	return (__u64)random * n >> 32;
}

/* v modulo n, where v < 2n */
static __always_inline __u32 wrap(__u32 v, __u32 n)
{
	return v < n ? v : v - n;
}

static __always_inline __u32 another(__u32 first, __u32 random, __u32 n)
{
	return wrap(first + 1 + below(random, n - 1), n);
}

static __always_inline __u32 mix(__u32 a, __u32 b)
{
	a ^= b;
	a = (a ^ a >> 16) * 0x85ebca6b;
	a = (a ^ a >> 13) * 0xc2b2ae35;
	return a ^ a >> 16;
}

static __always_inline __u32 flow_hash(__u32 seed, __u32 source, __u32 destination, __u32 ports, __u32 protocol)
{
	return mix(mix(mix(mix(seed, source), destination), ports), protocol);
}

static __always_inline __u32 host_number(__u32 address, const struct digit *read)
{
	__u32 number = 0;

	for (int i = 0; i < DIGITS; i++)
		number += (address >> (read[i].shift & 31) & read[i].mask) * read[i].weight;
	return number;
}

/* The last digit of a host's label: which of its switch's hosts it is. */
static __always_inline __u32 host_digit(__u32 address, const struct digit *read)
{
	return address >> (read[0].shift & 31) & read[0].mask;
}

static __always_inline __u32 d_mod_k(__u32 host, __u32 n)
{
	return host % n;
}

static __always_inline __u32 ttc(void *of, __u32 n, __u32 preferred, __u32 delta, __u32 ties_redirect)
{
	__u32 other = another(preferred, draw(of), n);
	__s64 excess = (__s64)load_of(of, preferred) - load_of(of, other);

	return excess + ties_redirect > (__s64)delta ? other : preferred;
}

static __always_inline __u32 drill(void *of, __u32 n, __u32 remembered, __u32 d)
{
	__u32 best = below(draw(of), n), first = best, best_load = load_of(of, first);
	__u64 chosen = 0;

	if (remembered < n && remembered != first) {
		__u32 load = load_of(of, remembered);

		if (load <= best_load) {
			best = remembered;
			best_load = load;
		}
	}
	if (d > n)
		d = n;
	for (__u32 i = 1; i < d && i < 8; i++) {
		__u32 bound = n - d + i, behind = below(draw(of), bound), candidate, load;

		if (chosen >> (behind & 63) & 1)
			behind = bound - 1;
		chosen |= 1ULL << (behind & 63);
		candidate = wrap(first + 1 + behind, n);
		load = load_of(of, candidate);
		if (load < best_load) {
			best = candidate;
			best_load = load;
		}
	}
	return best;
}

static __always_inline __u32 shortest(void *of, __u32 n)
{
	__u32 start = below(draw(of), n), best = start, best_load = load_of(of, start);

	for (__u32 i = 1; i < n && i < 64; i++) {
		__u32 candidate = wrap(start + i, n), load = load_of(of, candidate);

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

/* These two: daemons/lbsp/routing.py. */
static __always_inline __u32 next_state(__u32 state, __u32 zero, __u32 one, __u32 threshold, __u32 percent)
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

static __always_inline __u32 flowlet(void *of, __u32 n, __u32 last, __u64 idle_ns, __u64 gap_ns)
{
	return idle_ns <= gap_ns && last < n ? last : below(draw(of), n);
}
