/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* When a flow of a host takes another layer, and which: tests/daemons/fatpaths/layer_choice.py in C.
 *
 * The reasons are in the Python file.  This is plain C, so that a test can compare the two.  The
 * including file defines marks_of(), the congestion marks of a layer, which receives `context`
 * unchanged.
 */
#pragma once
#include "hash.h"

#define LAYERS 64 /* at most, a power of two */
#define MARKS_SHIFT 4
#define FADE_SHIFT 3
#define ALL_MARKED (1 << 16)
#define MOST_WINDOW (1 << 30) /* bytes that may be on the way, RFC 7323 */

static __always_inline __u32 *marks_of(void *context, __u32 layer);

/* The same numbers as in daemons/fatpaths/scheme.py. */
enum { ON_GAP = 1, ON_CUT = 2, ON_ECN = 4, ON_DRAINED = 8, ON_BYTES = 16, ON_REPEAT = 32 };
enum { START_FIRST, START_RANDOM, START_IN_TURN };
enum { TAKE_RANDOM, TAKE_LEAST_MARKED, TAKE_IN_TURN };

/* The settings of all hosts, with the names of the scheme's parameters. */
struct settings {
	__u32 layers; /* 0: packets leave unchanged */
	__u32 trigger; /* ON_... */
	__u32 gap_us;
	__u32 cell_kb; /* of ON_BYTES */
	__u32 start; /* START_... */
	__u32 choice; /* TAKE_... */
	__u32 ecn_percent;
	__u32 ecn_rounds;
	__u32 seed;
};

struct flow {
	__u64 last_ns;
	__u32 layer;
	__u32 known; /* 1: the sequence numbers below are set */
	__u32 next_seq; /* after the highest that was sent */
	__u32 acked; /* the highest acknowledgement that came */
	__u32 recover; /* next_seq at the last cut, as Linux' high_seq */
	__u32 again_seq; /* the newest retransmission */
	__u32 round_end;
	__u32 acks; /* in this round */
	__u32 echoes; /* in this round */
	__u32 rounds; /* congested ones, in a row */
	__u32 draws; /* of layers */
	__u32 bytes; /* in this cell */
	__u32 sent_ack; /* acknowledgement number that this end sent last */
	__u32 repeat_seq; /* of the newest data that came again, or sent_ack */
};

static __always_inline int comes_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

/* Return 1 if a packet with sequence numbers `seq` up to, but not including, `end` shows that the
 * flow's window was cut. */
static __always_inline int shows_cut(struct flow *flow, __u32 seq, __u32 end, int reduced)
{
	int cut = reduced;

	if (!flow->known) {
		flow->known = 1;
		flow->next_seq = flow->round_end = end;
		flow->recover = flow->acked = seq;
		flow->again_seq = seq - 1;
		return 0;
	}
	if (comes_before(seq, flow->next_seq)) {
		if (!comes_before(seq, flow->recover)) /* the newest, once: a tail-loss probe */
			cut |= end != flow->next_seq || seq == flow->again_seq;
		else if (comes_before(flow->again_seq, flow->recover))
			cut |= !comes_before(flow->again_seq, seq);
		flow->again_seq = seq;
	} else if (reduced && flow->recover != flow->next_seq) {
		flow->again_seq = flow->next_seq - MOST_WINDOW; /* none yet */
	}
	/* this packet goes by the new layer, and may be lost there */
	if (cut)
		flow->recover = flow->next_seq;
	if (comes_before(flow->next_seq, end))
		flow->next_seq = end;
	if (flow->next_seq - flow->recover > MOST_WINDOW)
		flow->recover = flow->next_seq - MOST_WINDOW;
	return cut;
}

/* Note the acknowledgement number of a packet that this end sends. */
static __always_inline void note_answer(struct flow *flow, __u32 ack)
{
	if (ack != flow->sent_ack)
		flow->sent_ack = flow->repeat_seq = ack;
}

/* Return 1 if a packet that arrives shows that the acknowledgements of this end are lost; arguments as
 * of shows_cut(). */
static __always_inline int shows_lost_answers(struct flow *flow, __u32 seq, __u32 end)
{
	int shows;

	if (seq == end || comes_before(flow->sent_ack, end))
		return 0;
	/* twice: what comes again once may be a probe, or was taken for lost since others overtook it */
	shows = seq == flow->repeat_seq;
	flow->repeat_seq = seq;
	return shows;
}

/* Return 1 if all that the flow has sent is acknowledged, so that no packet can be overtaken. */
static __always_inline int is_drained(const struct flow *flow)
{
	return flow->known && !comes_before(flow->acked, flow->next_seq);
}

/* Return 1 if a packet follows a gap in its flow. */
static __always_inline int ends_gap(struct flow *flow, __u32 gap_us, __u64 now_ns)
{
	int is_gap = now_ns - flow->last_ns > gap_us * 1000ULL;

	flow->last_ns = now_ns;
	return is_gap;
}

/* Return 1 if a packet of this length, behind Ethernet, begins another cell of its flow. */
static __always_inline int begins_cell(struct flow *flow, __u32 cell_kb, __u32 bytes)
{
	int begins = flow->bytes + bytes > cell_kb * 1000;

	flow->bytes = begins ? bytes : flow->bytes + bytes;
	return begins;
}

static __always_inline void note_acknowledgement(struct flow *flow, __u32 ack)
{
	if (comes_before(flow->acked, ack))
		flow->acked = ack;
}

/* Return 1 if an acknowledgement ends the last of enough congested rounds. */
static __always_inline int ends_congested_rounds(struct flow *flow, const struct settings *settings,
						 __u32 ack, int echo)
{
	int is_congested;

	flow->acks++;
	flow->echoes += echo;
	if (!flow->known || comes_before(ack, flow->round_end))
		return 0;
	is_congested = flow->echoes * 100 >= settings->ecn_percent * flow->acks;
	flow->rounds = is_congested ? flow->rounds + 1 : 0;
	flow->acks = flow->echoes = 0;
	flow->round_end = flow->next_seq;
	if (flow->rounds < settings->ecn_rounds)
		return 0;
	flow->rounds = 0;
	return 1;
}

static __always_inline void note_echo(void *context, __u32 layer, int echo)
{
	__u32 *marks = marks_of(context, layer);

	if (marks)
		*marks = *marks - (*marks >> MARKS_SHIFT) + (echo ? ALL_MARKED >> MARKS_SHIFT : 0);
}

static __always_inline __u32 least_marked(void *context, __u32 n, __u32 left, __u32 word)
{
	__u32 start = below(word, n);
	__u32 best = start;
	__u32 least = ~0U;

	for (__u32 i = 0; i < n && i < LAYERS; i++) {
		__u32 layer = start + i < n ? start + i : start + i - n;
		__u32 *marks = marks_of(context, layer);
		__u32 value;

		if (!marks)
			continue;
		value = layer == left ? ALL_MARKED + 1 : *marks;
		if (value < least) {
			best = layer;
			least = value;
		}
		*marks -= (*marks + (1 << FADE_SHIFT) - 1) >> FADE_SHIFT;
	}
	return best;
}

/* Return the layer of a flowlet; its flow leaves layer `left`, LAYERS for a new flow. */
static __always_inline __u32 next_layer(void *context, const struct settings *settings, __u32 left,
					__u32 word)
{
	__u32 n = settings->layers;

	if (settings->choice == TAKE_LEAST_MARKED)
		return least_marked(context, n, left, word);
	if (left >= n || n == 1)
		return below(word, n);
	if (settings->choice == TAKE_IN_TURN)
		return left + 1 < n ? left + 1 : 0;
	return another(left, word, n);
}

/* Return which of the settings' triggers a packet of TCP with data shows; arguments as of
 * shows_cut(). */
static __always_inline __u32 events_shown(struct flow *flow, const struct settings *settings,
					  __u32 seq, __u32 end, int reduced)
{
	__u32 events = is_drained(flow) ? ON_DRAINED : 0;

	if (shows_cut(flow, seq, end, reduced))
		events |= ON_CUT;
	return events & settings->trigger;
}

/* Take an acknowledgement of TCP; return 1 if its flow draws another layer. */
static __always_inline int hear_acknowledgement(void *context, struct flow *flow,
						const struct settings *settings, __u32 ack,
						int is_syn, int echo)
{
	note_acknowledgement(flow, ack);
	if (is_syn)
		return 0;
	if (settings->choice == TAKE_LEAST_MARKED)
		note_echo(context, flow->layer, echo);
	return settings->trigger & ON_ECN && ends_congested_rounds(flow, settings, ack, echo);
}

/* Return 1 if hosts need hear_acknowledgement(). */
static __always_inline int hears_acknowledgements(const struct settings *settings)
{
	return settings->trigger & (ON_ECN | ON_DRAINED) || settings->choice == TAKE_LEAST_MARKED;
}
