/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The rule of another package, for simulated switches and tests: own_rule.py compiles it.
 *
 * OWN_RULE is its file, OWN_PARAMETERS the members of struct parameters. */
#include "own_rule.h"

struct parameters {
	OWN_PARAMETERS
};

static __always_inline __u32 load_of(void *context, __u32 candidate)
{
	const struct call *call = context;

	return call->load_of(call->context, (candidate & (MOST_CANDIDATES - 1)) % call->n);
}

static __always_inline __u32 draw(void *context)
{
	const struct call *call = context;

	return call->draw(call->context);
}

#include OWN_RULE

__u32 own_rule(struct call *call, struct arrival *arrival, const __u32 *parameters)
{
	return choose(call, call->n, arrival, (const struct parameters *)parameters) % call->n;
}
