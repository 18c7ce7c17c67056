/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the rule of another package is written with, beside hash.h (docs/tutorials/own_rule.md).
 *
 * Its file defines choose().  `struct parameters` has its parameters, each a __u32, by their names. */
#pragma once
#include "hash.h"

#define MOST_CANDIDATES 64
#define MOST_PARAMETERS 8

/* A packet at a switch.
 *
 * flow: hash of the packet's flow, with a seed of the switch.  host: number of the destination, as
 * the switch's tier reads it.  memory: a word that the switch keeps for this set of candidates, 0 at
 * first; choose() may change it. */
struct arrival {
	__u32 flow;
	__u32 host;
	__u32 memory;
};

/* What own_rule() of own_rule.c is called with: load_of() and draw() of a simulated switch, their
 * context, and the number of candidates. */
struct call {
	void *context;
	__u32 (*load_of)(void *context, __u32 candidate);
	__u32 (*draw)(void *context);
	__u32 n;
};

struct parameters;

/* Return the queue at a candidate, in packets, or in bytes with the parameter load=bytes. */
static __always_inline __u32 load_of(void *context, __u32 candidate);
/* Return 32 random bits. */
static __always_inline __u32 draw(void *context);
#ifdef OWN_RULE
/* Return the candidate, below n, that takes a packet, for 2 <= n <= MOST_CANDIDATES; a larger number
 * counts modulo n. */
static __always_inline __u32 choose(void *context, __u32 n, struct arrival *arrival,
				    const struct parameters *parameters);
#endif
