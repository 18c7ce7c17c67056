/* SPDX-License-Identifier: MIT */
/* Events in order of time; at one instant in order of kind, then of scheduling.
 *
 * An event that is scheduled as far ahead as many others (the time of a full packet, the delay of a
 * link) goes to the end of a lane, a ring that is in order by itself; the others go into a heap.
 * Lanes make the next events of a network known, so that their memory can be fetched ahead. */
#pragma once
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#define EVENT_KIND 7 /* bits of an event's order that have its kind */
#define EVENT_NUMBER ((1ull << 60) - 1 - EVENT_KIND) /* those that have its number */
#define EVENT_NEVER UINT64_MAX
/* ahead_ns of events that come in order of time, such as the begins of flows */
#define EVENT_IN_TURN UINT64_MAX
#define EVENT_LANES 8 /* of one part of a network; more between parts */
#define EVENT_PARTS 8 /* that a network may have */
#define MOST_LANES (EVENT_LANES + 4 * (EVENT_PARTS - 1))
#define EVENT_SOURCES (MOST_LANES + 2) /* of the next event: lanes and heaps */
#define HEAP_CHILDREN 4 /* of a node of the heap */

/* order: rank of the kind, then number of the event, then the kind. */
struct event {
	uint64_t time, order;
	uint32_t subject, place;
};

/* Events that are all scheduled `ahead_ns` before their time, by one part of the network: a ring of
 * `most`, a power of two. */
struct event_lane {
	uint64_t ahead_ns;
	uint32_t part;
	struct event *events;
	size_t first, count, most;
};

struct event_heap {
	struct event *events;
	size_t count, most;
};

/* next: time and order of the first event of each lane, and then of each heap.
 *
 * heap: number of the heap that takes new events; see event_merge.h.  scheduled: number of the next. */
struct event_queue {
	struct {
		uint64_t time, order;
	} next[EVENT_SOURCES];
	struct event_lane lanes[MOST_LANES];
	struct event_heap heaps[2];
	uint32_t n_lanes, most_lanes, heap;
	uint64_t scheduled;
};

static inline uint32_t event_kind(const struct event *event)
{
	return event->order & EVENT_KIND;
}

static inline int comes_earlier(const struct event *a, const struct event *b)
{
	return a->time < b->time || (a->time == b->time && a->order < b->order);
}

/* parts: of the network. */
static inline void events_init(struct event_queue *q, uint32_t parts)
{
	q->most_lanes = parts > 1 ? MOST_LANES : EVENT_LANES;
	for (int i = 0; i < EVENT_SOURCES; i++)
		q->next[i].time = q->next[i].order = EVENT_NEVER;
}

static inline void events_free(struct event_queue *q)
{
	for (int i = 0; i < 2; i++)
		free(q->heaps[i].events);
	for (int i = 0; i < MOST_LANES; i++)
		free(q->lanes[i].events);
}

static inline void note_first(struct event_queue *q, uint32_t source, const struct event *first)
{
	q->next[source].time = first ? first->time : EVENT_NEVER;
	q->next[source].order = first ? first->order : EVENT_NEVER;
}

/* Add an event to heap `number`; return 0 or -ENOMEM. */
static inline int push_heap(struct event_queue *q, uint32_t number, const struct event *event)
{
	struct event_heap *heap = &q->heaps[number];
	size_t i = heap->count;

	if (heap->count == heap->most) {
		size_t most = heap->most ? 2 * heap->most : 1024;
		struct event *larger = realloc(heap->events, most * sizeof(*larger));

		if (!larger)
			return -ENOMEM;
		heap->events = larger;
		heap->most = most;
	}
	heap->count++;
	while (i && comes_earlier(event, &heap->events[(i - 1) / HEAP_CHILDREN])) {
		heap->events[i] = heap->events[(i - 1) / HEAP_CHILDREN];
		i = (i - 1) / HEAP_CHILDREN;
	}
	heap->events[i] = *event;
	note_first(q, MOST_LANES + number, heap->events);
	return 0;
}

static inline void pop_heap(struct event_queue *q, uint32_t number)
{
	struct event_heap *heap = &q->heaps[number];
	struct event *events = heap->events, last = events[--heap->count];
	size_t i = 0, count = heap->count;

	for (;;) {
		size_t child = HEAP_CHILDREN * i + 1, best = child;
		size_t end = child + HEAP_CHILDREN < count ? child + HEAP_CHILDREN : count;

		if (child >= count)
			break;
		while (++child < end)
			if (comes_earlier(&events[child], &events[best]))
				best = child;
		if (!comes_earlier(&events[best], &last))
			break;
		events[i] = events[best];
		i = best;
	}
	events[i] = last;
	note_first(q, MOST_LANES + number, count ? events : 0);
}

static inline int grow_lane(struct event_lane *lane)
{
	size_t most = lane->most ? 2 * lane->most : 1024;
	struct event *events = malloc(most * sizeof(*events));

	if (!events)
		return -ENOMEM;
	for (size_t i = 0; i < lane->count; i++)
		events[i] = lane->events[(lane->first + i) & (lane->most - 1)];
	free(lane->events);
	*lane = (struct event_lane){ lane->ahead_ns, lane->part, events, 0, lane->count, most };
	return 0;
}

/* Return the lane of events `ahead_ns` before their time, from `part` of the network, 0 for its own;
 * MOST_LANES if all have events of others.
 *
 * The last packets of flows have many lengths: their lanes are soon empty, and then another's. */
static inline uint32_t lane_of(struct event_queue *q, uint64_t ahead_ns, uint32_t part)
{
	uint32_t number = q->n_lanes < q->most_lanes ? q->n_lanes : MOST_LANES;

	for (uint32_t i = 0; i < q->n_lanes; i++) {
		if (q->lanes[i].ahead_ns == ahead_ns && q->lanes[i].part == part)
			return i;
		if (number == MOST_LANES && !q->lanes[i].count)
			number = i;
	}
	if (number != MOST_LANES) {
		q->n_lanes += number == q->n_lanes;
		q->lanes[number].ahead_ns = ahead_ns;
		q->lanes[number].part = part;
	}
	return number;
}

/* Return 1 if an event of lane `number` comes after `time`. */
static inline int is_behind(const struct event_queue *q, uint32_t number, uint64_t time)
{
	const struct event_lane *lane = &q->lanes[number];
	size_t last = lane->first + lane->count - 1;

	return lane->count && lane->events[last & (lane->most - 1)].time > time;
}

/* Add an event to lane `number`, of which it is the last; return 0 or -ENOMEM. */
static inline int push_lane(struct event_queue *q, uint32_t number, const struct event *event)
{
	struct event_lane *lane = &q->lanes[number];

	if (lane->count == lane->most && grow_lane(lane))
		return -ENOMEM;
	if (!lane->count)
		note_first(q, number, event);
	lane->events[(lane->first + lane->count++) & (lane->most - 1)] = *event;
	return 0;
}

/* Schedule an event; return 0 or -ENOMEM.
 *
 * ahead_ns: by which many are scheduled before their time, or EVENT_IN_TURN; 0 for others.
 * rank: order of its kind at one instant. */
static inline int schedule_event(struct event_queue *q, uint64_t time, uint64_t ahead_ns,
				 uint64_t rank, uint32_t kind, uint32_t subject, uint32_t place)
{
	struct event event = { time, rank << 60 | q->scheduled++ << 3 | kind, subject, place };
	uint32_t number = ahead_ns ? lane_of(q, ahead_ns, 0) : MOST_LANES;

	if (ahead_ns == EVENT_IN_TURN && number != MOST_LANES && is_behind(q, number, time))
		number = MOST_LANES;
	return number == MOST_LANES ? push_heap(q, q->heap, &event) : push_lane(q, number, &event);
}

/* Return the event that lies `places` behind the first of lane `number`, 0 if there is none. */
static inline const struct event *event_ahead(const struct event_queue *q, uint32_t number,
					      size_t places)
{
	const struct event_lane *lane = &q->lanes[number];

	if (number >= MOST_LANES || lane->count <= places)
		return 0;
	return &lane->events[(lane->first + places) & (lane->most - 1)];
}

static inline int source_is_earlier(const struct event_queue *q, uint32_t a, uint32_t b)
{
	return q->next[a].time < q->next[b].time ||
	       (q->next[a].time == q->next[b].time && q->next[a].order < q->next[b].order);
}

/* Return the lane of the earliest event, or behind them the heap; any if there is no event. */
static inline uint32_t earliest_source(const struct event_queue *q)
{
	uint32_t source = MOST_LANES + source_is_earlier(q, MOST_LANES + 1, MOST_LANES);

	for (uint32_t i = 0; i < q->n_lanes; i++)
		source = source_is_earlier(q, i, source) ? i : source;
	return source;
}

/* Remove the earliest event up to `time_ns`, fill it in, and return its lane, or MOST_LANES and more
 * for a heap; -1 if there is none. */
static inline int pop_event(struct event_queue *q, uint64_t time_ns, struct event *event)
{
	uint32_t source = earliest_source(q);
	struct event_lane *lane = &q->lanes[source];

	if (q->next[source].time > time_ns || q->next[source].time == EVENT_NEVER)
		return -1;
	if (source >= MOST_LANES) {
		*event = q->heaps[source - MOST_LANES].events[0];
		pop_heap(q, source - MOST_LANES);
		return source;
	}
	*event = lane->events[lane->first];
	lane->first = (lane->first + 1) & (lane->most - 1);
	note_first(q, source, --lane->count ? &lane->events[lane->first] : 0);
	return source;
}
