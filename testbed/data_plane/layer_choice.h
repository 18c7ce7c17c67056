/* When a flow of a host takes another layer, and which: daemons/fatpaths/layer_choice.py in C; the reasons are there.
 *
 * Plain C, for a test holds the two equal.  Whoever includes this defines draw(), 32 random bits, and marks_of(), where
 * what is known of a layer is kept; `of` is handed through to them.
 */
#pragma once
#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#define LAYERS 64 /* below this many, a power of two */
#define MARKS_SHIFT 4
#define FADE_SHIFT 3
#define ALL_MARKED (1 << 16)

static __always_inline __u32 draw(void *of);
static __always_inline __u32 *marks_of(void *of, __u32 layer);

/* The same numbers as in daemons/fatpaths/layer_choice.py. */
enum { ON_GAP = 1, ON_CUT = 2, ON_ECN = 4 };
enum { START_FIRST, START_RANDOM, START_IN_TURN };
enum { TAKE_RANDOM, TAKE_LEAST_MARKED };

/* What hosts do; layer_program.py finds each field by its name, which is that of the scheme's parameter. */
struct settings {
	__u32 layers;  /* 0: packets leave as they are */
	__u32 trigger; /* ON_... */
	__u32 gap_us;
	__u32 start;
	__u32 choice;
	__u32 ecn_percent;
	__u32 ecn_rounds;
};

struct flow {
	__u64 last_ns;
	__u32 layer;
	__u32 known;	 /* whether there are sequence numbers below */
	__u32 next_seq;	 /* behind the highest that was sent */
	__u32 recover;	 /* what is sent again before this belongs to a cut that is over or has been answered */
	__u32 again_seq; /* where that cut began */
	__u32 round_end;
	__u32 acks, echoes; /* in this round */
	__u32 rounds;	    /* congested ones, in a row */
	__u32 unused;
};

static __always_inline int comes_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

/* Whether a packet with the sequence numbers from `seq` up to, not including, `end` shows that its window was cut. */
static __always_inline int shows_cut(struct flow *flow, __u32 seq, __u32 end, int reduced)
{
	int cut = reduced;

	if (!flow->known) {
		flow->known = 1;
		flow->next_seq = flow->round_end = end;
		flow->recover = seq;
		flow->again_seq = seq - 1;
		return 0;
	}
	if (comes_before(seq, flow->next_seq) && (!comes_before(seq, flow->recover) || seq == flow->again_seq)) {
		cut = 1;
		flow->recover = flow->next_seq;
		flow->again_seq = seq;
	}
	if (comes_before(flow->next_seq, end))
		flow->next_seq = end;
	if (reduced)
		flow->recover = flow->next_seq;
	return cut;
}

/* Whether an acknowledgement ends the last of enough rounds that were congested. */
static __always_inline int ends_congested_rounds(struct flow *flow, const struct settings *set, __u32 ack, int echo)
{
	flow->acks++;
	flow->echoes += echo;
	if (!flow->known || comes_before(ack, flow->round_end))
		return 0;
	flow->rounds = flow->echoes * 100 >= set->ecn_percent * flow->acks ? flow->rounds + 1 : 0;
	flow->acks = flow->echoes = 0;
	flow->round_end = flow->next_seq;
	if (flow->rounds < set->ecn_rounds)
		return 0;
	flow->rounds = 0;
	return 1;
}

static __always_inline void note_echo(void *of, __u32 layer, int echo)
{
	__u32 *marks = marks_of(of, layer);

	if (marks)
		*marks = *marks - (*marks >> MARKS_SHIFT) + (echo ? ALL_MARKED >> MARKS_SHIFT : 0);
}

static __always_inline __u32 scaled(__u32 random, __u32 n)
{
	return (__u64)random * n >> 32;
}

static __always_inline __u32 least_marked(void *of, __u32 n)
{
	__u32 start = scaled(draw(of), n), best = start, least = ~0U;

	for (__u32 i = 0; i < n && i < LAYERS; i++) {
		__u32 layer = start + i < n ? start + i : start + i - n, *marks = marks_of(of, layer);

		if (!marks)
			continue;
		if (*marks < least) {
			best = layer;
			least = *marks;
		}
		*marks -= (*marks + (1 << FADE_SHIFT) - 1) >> FADE_SHIFT;
	}
	return best;
}

static __always_inline __u32 next_layer(void *of, const struct settings *set)
{
	return set->choice == TAKE_LEAST_MARKED ? least_marked(of, set->layers) : scaled(draw(of), set->layers);
}
