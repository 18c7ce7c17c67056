/* SPDX-License-Identifier: MIT */
/* One order of the events that several threads run, each those of one part of a network: that in which
 * one thread would run all of them.
 *
 * Parts run the same span of time, which is shorter than any way from one part to another, so that no
 * event of the span hangs on one of another part.  An event's number is how many were scheduled before,
 * in all parts, and decides among events at one instant.  In the span a part gives what it schedules young
 * numbers: above all true ones, by the event that schedules, then in order.  Afterwards merge_events() goes
 * through all events of the span in their true order, and so learns the true numbers. */
#pragma once
#include "event_queue.h"

#define YOUNG (1ull << 56) /* of an event's number: a young one */
#define MOST_SCHEDULED 24  /* bits of a young number for the place among what one event schedules */

/* An event that has run.
 *
 * after_ns: since the span began.  scheduled: how many events it has scheduled.  order: its own, and then
 * the number of the first event that it has scheduled. */
struct event_run {
	uint32_t after_ns, scheduled;
	uint64_t order;
};

/* What a part has run in the span. */
struct event_log {
	struct event_run *runs;
	size_t count, most;
};

/* Note that an event begins to run, and number what it will schedule; return 0 or -ENOMEM. */
static inline int begin_run(struct event_log *log, struct event_queue *q, const struct event *event,
			    uint64_t begin_ns)
{
	if (log->count == log->most) {
		size_t most = log->most ? 2 * log->most : 1024;
		struct event_run *larger = realloc(log->runs, most * sizeof(*larger));

		if (!larger)
			return -ENOMEM;
		log->runs = larger;
		log->most = most;
	}
	log->runs[log->count] = (struct event_run){ event->time - begin_ns, 0, event->order };
	q->scheduled = YOUNG | (uint64_t)log->count++ << MOST_SCHEDULED;
	return 0;
}

static inline void end_run(struct event_log *log, const struct event_queue *q)
{
	log->runs[log->count - 1].scheduled = q->scheduled & ((1u << MOST_SCHEDULED) - 1);
}

/* Return an event's order with its true number; the event that has scheduled it has been merged. */
static inline uint64_t true_order(const struct event_log *log, uint64_t order)
{
	uint64_t number = (order & EVENT_NUMBER) >> 3, place = number & ((1u << MOST_SCHEDULED) - 1);

	if (!(number & YOUNG))
		return order;
	number = log->runs[(number & ~YOUNG) >> MOST_SCHEDULED].order + place;
	return (order & ~EVENT_NUMBER) | number << 3;
}

/* The next event of a log that is to be merged. */
struct merge_head {
	uint64_t after_ns, order;
	struct event_run *run, *end;
};

static inline struct merge_head head_of(const struct event_log *log, struct event_run *run)
{
	struct event_run *end = log->runs + log->count;

	if (run == end)
		return (struct merge_head){ EVENT_NEVER, EVENT_NEVER, run, end };
	return (struct merge_head){ run->after_ns, true_order(log, run->order), run, end };
}

/* Number what all parts have scheduled in the span, from `number` on; return the number behind. */
static inline uint64_t merge_events(struct event_log *const *logs, uint32_t parts, uint64_t number)
{
	struct merge_head heads[EVENT_PARTS];

	for (uint32_t p = 0; p < parts; p++)
		heads[p] = head_of(logs[p], logs[p]->runs);
	for (;;) {
		struct event_run *run;
		uint32_t part = 0;

		for (uint32_t p = 1; p < parts; p++) { /* without branches, which nobody could predict */
			const struct merge_head *a = &heads[p], *b = &heads[part];

			part = (a->after_ns < b->after_ns) |
					       ((a->after_ns == b->after_ns) & (a->order < b->order)) ?
				       p :
				       part;
		}
		run = heads[part].run;
		if (run == heads[part].end)
			return number;
		run->order = number;
		number += run->scheduled;
		heads[part] = head_of(logs[part], run + 1);
	}
}

/* Give the events of a part that it scheduled in the span their true numbers; 0 or -ENOMEM. */
static inline int number_events(struct event_queue *q, const struct event_log *log)
{
	struct event_heap *young = &q->heaps[1];

	for (uint32_t i = 0; i < q->n_lanes; i++) {
		struct event_lane *lane = &q->lanes[i];

		for (size_t place = lane->count; place; place--) {
			struct event *event = &lane->events[(lane->first + place - 1) & (lane->most - 1)];

			if (!(event->order & YOUNG << 3))
				break;
			event->order = true_order(log, event->order);
		}
		note_first(q, i, lane->count ? &lane->events[lane->first] : 0);
	}
	for (size_t i = 0; i < young->count; i++) {
		young->events[i].order = true_order(log, young->events[i].order);
		if (push_heap(q, 0, &young->events[i]))
			return -ENOMEM;
	}
	young->count = 0;
	note_first(q, MOST_LANES + 1, 0);
	return 0;
}
