/* SPDX-License-Identifier: MIT */
/* The layer of each packet of a message, by the answers to earlier ones:
 * tests/daemons/transport/packet_layers.py in C, with the reasons.
 *
 * `word`: a random number.  An answer is bad if the packet was marked, or trimmed before a link
 * between switches. */
#pragma once
#include <stdint.h>

enum { BY_FLOW, BLIND, REPS, SCOUT, SPRAY };
#define RECYCLED 8 /* layers that REPS remembers */

/* good, blocked: sets of layers; the rest is of REPS, but `last`. */
struct layer_history {
	uint64_t good, blocked, blocked_until, frozen_until;
	uint8_t recycled[RECYCLED];
	uint32_t head, fresh, filled, cursor, explore;
	uint8_t frozen, last;
};

static inline uint32_t next_recycled(struct layer_history *h, uint32_t layers, uint64_t word)
{
	if (h->explore) {
		h->explore--;
		return word % layers;
	}
	if (h->fresh)
		return h->recycled[(h->head - h->fresh--) % RECYCLED];
	if (h->frozen && h->filled)
		return h->recycled[h->cursor++ % h->filled];
	return word % layers;
}

/* Return the first layer of the set `layers_in` from `first` on; `n` if the set is empty. */
static inline uint32_t first_in(uint64_t layers_in, uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (layers_in >> (first + i) % n & 1)
			return (first + i) % n;
	return n;
}

static inline uint32_t next_good(struct layer_history *h, int choice, uint64_t now, uint32_t layers,
				 uint64_t word)
{
	uint32_t layer = first_in(h->good, h->last + (choice == SPRAY), layers);

	if (now >= h->blocked_until)
		h->blocked = 0;
	if (layer == layers)
		layer = first_in(~h->blocked, word % layers, layers);
	if (layer == layers)
		layer = word % layers;
	h->last = layer;
	return layer;
}

/* Return the layer of the next packet; not for BY_FLOW. */
static inline uint32_t next_packet_layer(struct layer_history *h, int choice, uint64_t now,
					 uint32_t layers, uint64_t word)
{
	if (choice == REPS)
		return next_recycled(h, layers, word);
	if (choice == BLIND)
		return word % layers;
	return next_good(h, choice, now, layers, word);
}

/* Note an answer about a packet that went by `layer`. */
static inline void note_answer(struct layer_history *h, uint32_t layer, int is_bad, uint64_t now,
			       uint32_t window)
{
	if (is_bad) {
		h->good &= ~(1ull << layer);
		return;
	}
	h->good |= 1ull << layer;
	h->blocked &= ~(1ull << layer);
	h->recycled[h->head++ % RECYCLED] = layer;
	h->fresh += h->fresh < RECYCLED;
	h->filled += h->filled < RECYCLED;
	if (h->frozen && now >= h->frozen_until) {
		h->frozen = 0;
		h->explore = window;
	}
}

/* Note that nothing was heard about a packet that went by `layer`. */
static inline void note_silence(struct layer_history *h, uint32_t layer, uint64_t until)
{
	h->good &= ~(1ull << layer);
	h->blocked |= 1ull << layer;
	h->blocked_until = until;
	if (!h->frozen && !h->explore) {
		h->frozen = 1;
		h->frozen_until = until;
	}
}
