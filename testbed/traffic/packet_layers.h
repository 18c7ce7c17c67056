/* SPDX-License-Identifier: MIT */
/* The layer of each packet of a message, by the answers to earlier ones:
 * tests/daemons/transport/packet_layers.py in C, with the reasons.
 *
 * `word`: a random number. */
#pragma once
#include <stdint.h>

enum { BY_FLOW, BLIND, REPS, SCOUT, SPRAY, MRC };
/* Answers: the packet was marked, or trimmed before a link between switches. */
enum { GOOD, MARKED_PACKET, TRIMMED_PACKET };
#define RECYCLED 8 /* layers that REPS remembers */
#define MOST_GOOD 9 /* that Spritz remembers */
#define MOST_REPEATED 10 /* packets of Spritz until one explores */
#define MOST_MARKS 8 /* that Scout bears on a good layer */
#define LEAST_USED 4 /* MRC uses at least this part of the layers */
/* Flags of a layer under MRC. */
#define ASSUMED_BAD 1
#define CONGESTED 2

/* layers: good ones, of which there are `filled`.  Of Spritz alone: packets since one has explored,
 * marks on good layers, set of blocked layers.  Of MRC alone: flags of each layer, the number of bad ones,
 * and with REPS `cursor`.  The rest is of REPS. */
struct layer_history {
	uint8_t layers[MOST_GOOD], filled;
	uint8_t repeated, marks;
	uint64_t blocked, frozen_until;
	uint32_t head, fresh, cursor, explore, frozen;
	uint32_t bad;
	uint8_t *flags;
};

/* Return a random layer that is not blocked. */
static inline uint32_t random_layer(const struct layer_history *h, uint32_t layers, uint64_t word)
{
	uint64_t healthy = ~h->blocked & ~0ull >> (64 - layers);

	for (word %= __builtin_popcountll(healthy); word; word--)
		healthy &= healthy - 1;
	return __builtin_ctzll(healthy);
}

static inline uint32_t next_recycled(struct layer_history *h, uint32_t layers, uint64_t word)
{
	if (h->explore) {
		h->explore--;
		return word % layers;
	}
	if (h->fresh)
		return h->layers[(h->head - h->fresh--) % RECYCLED];
	if (h->frozen && h->filled)
		return h->layers[h->cursor++ % h->filled];
	return word % layers;
}

static inline uint32_t place_of(const struct layer_history *h, uint32_t layer)
{
	uint32_t place = 0;

	while (place < h->filled && h->layers[place] != layer)
		place++;
	return place;
}

static inline void forget(struct layer_history *h, uint32_t place)
{
	for (h->filled--; place < h->filled; place++)
		h->layers[place] = h->layers[place + 1];
}

static inline uint32_t next_good(struct layer_history *h, int choice, uint32_t layers,
				 uint64_t word)
{
	uint32_t layer = h->layers[0];

	if (h->repeated > MOST_REPEATED) {
		h->repeated = 0;
		return random_layer(h, layers, word);
	}
	h->repeated += choice == SPRAY || h->filled;
	if (!h->filled)
		return random_layer(h, layers, word);
	if (choice == SPRAY)
		forget(h, 0);
	return layer;
}

static inline uint32_t next_in_turn(struct layer_history *h, uint32_t layers)
{
	for (;;) {
		uint32_t layer = h->cursor;
		uint8_t flags = h->flags[layer];

		h->cursor = layer + 1 < layers ? layer + 1 : 0;
		h->flags[layer] &= ~CONGESTED;
		if (!flags)
			return layer;
	}
}

/* Return the layer of the next packet; not for BY_FLOW. */
static inline uint32_t next_packet_layer(struct layer_history *h, int choice, uint32_t layers,
					 uint64_t word)
{
	if (choice == MRC)
		return next_in_turn(h, layers);
	if (choice == REPS)
		return next_recycled(h, layers, word);
	if (choice == BLIND)
		return word % layers;
	return next_good(h, choice, layers, word);
}

static inline void recycle(struct layer_history *h, uint32_t layer, uint64_t now, uint32_t window)
{
	if (h->frozen && now >= h->frozen_until) {
		h->frozen = h->filled = 0;
		h->head = h->fresh = h->cursor = 0;
		h->explore = window;
	}
	h->layers[h->head++ % RECYCLED] = layer;
	h->fresh += h->fresh < RECYCLED;
	h->filled += h->filled < RECYCLED;
}

static inline void note_state(struct layer_history *h, uint32_t layer, int answer)
{
	h->bad -= h->flags[layer] & ASSUMED_BAD;
	h->flags[layer] = answer == MARKED_PACKET ? CONGESTED : 0;
}

/* Note an answer about a packet that went by `layer`. */
static inline void note_answer(struct layer_history *h, int choice, uint32_t layer, int answer,
			       uint64_t now, uint32_t window)
{
	uint32_t place = choice == SPRAY ? h->filled : place_of(h, layer);

	if (choice == MRC) {
		note_state(h, layer, answer);
	} else if (choice == REPS) {
		if (answer == GOOD)
			recycle(h, layer, now, window);
	} else if (answer == GOOD) {
		if (h->filled < MOST_GOOD && place == h->filled)
			h->layers[h->filled++] = layer;
	} else if (place < h->filled && (answer != MARKED_PACKET || ++h->marks > MOST_MARKS)) {
		h->marks = 0;
		forget(h, place);
	}
}

static inline void retire(struct layer_history *h, uint32_t layer, uint32_t layers)
{
	uint32_t least = layers > LEAST_USED ? layers / LEAST_USED : 1;

	if (h->flags[layer] & ASSUMED_BAD || layers - h->bad <= least)
		return;
	h->flags[layer] |= ASSUMED_BAD;
	h->bad++;
}

/* Note that nothing was heard about a packet that went by `layer`. */
static inline void note_silence(struct layer_history *h, int choice, uint32_t layer,
				uint32_t layers, uint64_t until)
{
	uint32_t place = place_of(h, layer);

	if (choice == MRC) {
		retire(h, layer, layers);
		return;
	}
	if (choice == REPS && !h->frozen && !h->explore) {
		h->frozen = 1;
		h->frozen_until = until;
	}
	if (choice < SCOUT || (choice == SCOUT && place == h->filled))
		return;
	if (choice == SCOUT) {
		h->marks = 0;
		forget(h, place);
	}
	if ((uint32_t)__builtin_popcountll(h->blocked) + 1 < layers)
		h->blocked |= 1ull << layer;
}
