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
#define EVENT_NEVER UINT64_MAX
#define EVENT_LANES 8
#define HEAP_CHILDREN 4 /* of a node of the heap */

/* order: rank of the kind, then number of the event, then the kind. */
struct event {
	uint64_t time, order;
	uint32_t subject, place;
};

/* Events that are all scheduled `ahead_ns` before their time: a ring of `most`, a power of two. */
struct event_lane {
	uint64_t ahead_ns;
	struct event *events;
	size_t first, count, most;
};

/* next: time and order of the first event of each lane, and of the heap in the last place. */
struct event_queue {
	struct {
		uint64_t time, order;
	} next[EVENT_LANES + 1];
	struct event_lane lanes[EVENT_LANES];
	struct event *heap;
	size_t heap_count, heap_most;
	uint32_t n_lanes;
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

static inline void events_init(struct event_queue *q)
{
	for (int i = 0; i <= EVENT_LANES; i++)
		q->next[i].time = q->next[i].order = EVENT_NEVER;
}

static inline void events_free(struct event_queue *q)
{
	free(q->heap);
	for (int i = 0; i < EVENT_LANES; i++)
		free(q->lanes[i].events);
}

static inline void note_first(struct event_queue *q, uint32_t source, const struct event *first)
{
	q->next[source].time = first ? first->time : EVENT_NEVER;
	q->next[source].order = first ? first->order : EVENT_NEVER;
}

/* Add an event to the heap; return 0 or -ENOMEM. */
static inline int push_heap(struct event_queue *q, const struct event *event)
{
	size_t i = q->heap_count;

	if (q->heap_count == q->heap_most) {
		size_t most = q->heap_most ? 2 * q->heap_most : 1024;
		struct event *larger = realloc(q->heap, most * sizeof(*larger));

		if (!larger)
			return -ENOMEM;
		q->heap = larger;
		q->heap_most = most;
	}
	q->heap_count++;
	while (i && comes_earlier(event, &q->heap[(i - 1) / HEAP_CHILDREN])) {
		q->heap[i] = q->heap[(i - 1) / HEAP_CHILDREN];
		i = (i - 1) / HEAP_CHILDREN;
	}
	q->heap[i] = *event;
	note_first(q, EVENT_LANES, q->heap);
	return 0;
}

static inline void pop_heap(struct event_queue *q)
{
	struct event last = q->heap[--q->heap_count];
	size_t i = 0, count = q->heap_count;

	for (;;) {
		size_t child = HEAP_CHILDREN * i + 1, best = child;
		size_t end = child + HEAP_CHILDREN < count ? child + HEAP_CHILDREN : count;

		if (child >= count)
			break;
		while (++child < end)
			if (comes_earlier(&q->heap[child], &q->heap[best]))
				best = child;
		if (!comes_earlier(&q->heap[best], &last))
			break;
		q->heap[i] = q->heap[best];
		i = best;
	}
	q->heap[i] = last;
	note_first(q, EVENT_LANES, count ? q->heap : 0);
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
	*lane = (struct event_lane){ lane->ahead_ns, events, 0, lane->count, most };
	return 0;
}

/* Return the lane of events `ahead_ns` before their time; EVENT_LANES if all are of other times. */
static inline uint32_t lane_of(struct event_queue *q, uint64_t ahead_ns)
{
	for (uint32_t i = 0; i < q->n_lanes; i++)
		if (q->lanes[i].ahead_ns == ahead_ns)
			return i;
	if (q->n_lanes < EVENT_LANES)
		q->lanes[q->n_lanes++].ahead_ns = ahead_ns;
	else
		return EVENT_LANES;
	return q->n_lanes - 1;
}

/* Schedule an event `ahead_ns` before its time; return 0 or -ENOMEM.
 *
 * rank: order of its kind at one instant.  frequent: 1 if many are scheduled as far ahead. */
static inline int schedule_event(struct event_queue *q, uint64_t time, uint64_t ahead_ns,
				 uint64_t rank, uint32_t kind, int frequent, uint32_t subject,
				 uint32_t place)
{
	struct event event = { time, rank << 60 | q->scheduled++ << 3 | kind, subject, place };
	uint32_t number = frequent ? lane_of(q, ahead_ns) : EVENT_LANES;
	struct event_lane *lane = &q->lanes[number];

	if (number == EVENT_LANES)
		return push_heap(q, &event);
	if (lane->count == lane->most && grow_lane(lane))
		return -ENOMEM;
	if (!lane->count)
		note_first(q, number, &event);
	lane->events[(lane->first + lane->count++) & (lane->most - 1)] = event;
	return 0;
}

/* Return the event that lies `places` behind the first of lane `number`, 0 if there is none. */
static inline const struct event *event_ahead(const struct event_queue *q, uint32_t number,
					      size_t places)
{
	const struct event_lane *lane = &q->lanes[number];

	if (number == EVENT_LANES || lane->count <= places)
		return 0;
	return &lane->events[(lane->first + places) & (lane->most - 1)];
}

/* Remove the earliest event up to `time_ns`, fill it in, and return its lane, or EVENT_LANES for
 * the heap; -1 if there is none. */
static inline int pop_event(struct event_queue *q, uint64_t time_ns, struct event *event)
{
	uint32_t source = EVENT_LANES;
	struct event_lane *lane;

	for (uint32_t i = 0; i < q->n_lanes; i++) {
		int later = q->next[i].time > q->next[source].time ||
			    (q->next[i].time == q->next[source].time &&
			     q->next[i].order >= q->next[source].order);

		source = later ? source : i;
	}
	if (q->next[source].time > time_ns || q->next[source].time == EVENT_NEVER)
		return -1;
	if (source == EVENT_LANES) {
		*event = q->heap[0];
		pop_heap(q);
		return source;
	}
	lane = &q->lanes[source];
	*event = lane->events[lane->first];
	lane->first = (lane->first + 1) & (lane->most - 1);
	note_first(q, source, --lane->count ? &lane->events[lane->first] : 0);
	return source;
}
