/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Hashes and draws of daemons/routing/selection.py in C. */
#pragma once
#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

static __always_inline __u32 below(__u32 random, __u32 n)
{
	return (__u64)random * n >> 32;
}

/* Return v modulo n, for v < 2n. */
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

static __always_inline __u32 flow_hash(__u32 seed, __u32 source, __u32 destination, __u32 ports,
				       __u32 protocol)
{
	return mix(mix(mix(mix(seed, source), destination), ports), protocol);
}
