/* SPDX-License-Identifier: MIT */
/* One order of the events that several threads run, each those of one part of a network: that in which
 * one thread would run all of them.
 *
 * Parts run the same span of time, which is shorter than any way from one part to another, so that no
 * event of the span hangs on one of another part.  An event's number is how many were scheduled before,
 * in all parts, and decides among events at one instant.  In the span a part gives what it schedules young
 * numbers: above all true ones, by the event that schedules, then in order.  Afterwards merge_events() goes
 * through all events of the span in their true order, and so finds the true numbers. */
#pragma once
#include "event_queue.h"

#define YOUNG (1ull << 56) /* of an event's number: a young one */
#define MOST_SCHEDULED 24 /* bits of a young number for the place among what one event schedules */

/* An event that has run, and has scheduled others.
 *
 * after_ns: since the span began.  before: how many events of the span its part had scheduled. */
struct event_run {
	uint32_t after_ns, before;
	uint64_t order;
};

/* What a part has run in the span, and how many events it has scheduled.  Events that schedule nothing are
 * only counted in `ran`: no number hangs on them.  An entry follows the last run.
 *
 * numbers: by run, of the first event that it has scheduled. */
struct event_log {
	struct event_run *runs;
	uint64_t *numbers;
	size_t count, most;
	uint32_t scheduled, ran;
};

static inline void free_log(struct event_log *log)
{
	free(log->runs);
	free(log->numbers);
}

/* Make a place for a run and the entry behind it; return 0 or -ENOMEM. */
static inline int make_place(struct event_log *log)
{
	size_t most = log->most ? 2 * log->most : 1024;
	struct event_run *runs;
	uint64_t *numbers;

	if (log->count + 1 < log->most)
		return 0;
	runs = realloc(log->runs, most * sizeof(*runs));
	log->runs = runs ? runs : log->runs;
	numbers = realloc(log->numbers, most * sizeof(*numbers));
	log->numbers = numbers ? numbers : log->numbers;
	if (!runs || !numbers)
		return -ENOMEM;
	log->most = most;
	return 0;
}

/* Number what the event will schedule that begins to run. */
static inline void begin_run(struct event_log *log, struct event_queue *q)
{
	log->ran++;
	q->scheduled = YOUNG | (uint64_t)log->count << MOST_SCHEDULED;
}

/* Note an event that has run; return 0 or -ENOMEM. */
static inline int end_run(struct event_log *log, const struct event_queue *q,
			  const struct event *event, uint64_t begin_ns)
{
	uint32_t scheduled = q->scheduled & ((1u << MOST_SCHEDULED) - 1);

	if (!scheduled)
		return 0;
	if (make_place(log))
		return -ENOMEM;
	log->runs[log->count++] =
		(struct event_run){ event->time - begin_ns, log->scheduled, event->order };
	log->scheduled += scheduled;
	return 0;
}

/* Begin a span. */
static inline void open_log(struct event_log *log)
{
	log->count = log->scheduled = log->ran = 0;
}

/* End a span; the log has had a place. */
static inline void close_log(struct event_log *log)
{
	log->runs[log->count] = (struct event_run){ UINT32_MAX, log->scheduled, 0 };
}

static inline uint64_t number_of(uint64_t order)
{
	return (order & EVENT_NUMBER) >> 3;
}

/* Return which run of its part has scheduled an event with a young number. */
static inline uint64_t parent_of(uint64_t order)
{
	return (number_of(order) & ~YOUNG) >> MOST_SCHEDULED;
}

/* Return an event's order with its true number; the event that has scheduled it has been merged. */
static inline uint64_t true_order(const struct event_log *log, uint64_t order)
{
	uint64_t number = number_of(order);

	if (!(number & YOUNG))
		return order;
	number = log->numbers[parent_of(order)] + (number & ((1u << MOST_SCHEDULED) - 1));
	return (order & ~EVENT_NUMBER) | number << 3;
}

/* Return 1 if a run of a part comes before one of another part. */
static inline int runs_earlier(const struct event_log *a, const struct event_run *run_a,
			       const struct event_log *b, const struct event_run *run_b)
{
	/* of two young events at one instant that is earlier whose parent is; they are rare */
	while (__builtin_expect((run_a->order & run_b->order & YOUNG << 3) != 0, 0) &&
	       run_a->after_ns == run_b->after_ns && (run_a->order ^ run_b->order) >> 60 == 0) {
		run_a = &a->runs[parent_of(run_a->order)];
		run_b = &b->runs[parent_of(run_b->order)];
	}
	return (run_a->after_ns < run_b->after_ns) |
	       ((run_a->after_ns == run_b->after_ns) & (run_a->order < run_b->order));
}

/* Return a part's first run that is not earlier than `after_ns`. */
static inline size_t first_run(const struct event_log *log, uint64_t after_ns)
{
	size_t low = 0, high = log->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (log->runs[middle].after_ns < after_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Return the time of the span at which a share of its runs begins, about. */
static inline uint32_t share_begins(const struct event_log *log, uint32_t share, uint32_t shares)
{
	return share ? log->runs[log->count * share / shares].after_ns : 0;
}

/* Number what runs of all parts have scheduled in one share of the span, of as many as there are parts, so
 * that as many threads may do it; `number`: of the first event that is scheduled in the span. */
static inline void merge_events(struct event_log *const *logs, uint32_t parts, uint64_t number,
				uint32_t share)
{
	uint32_t until_ns = share_begins(logs[0], share + 1, parts);
	const struct event_run *next[EVENT_PARTS];

	for (uint32_t p = 0; p < parts; p++) {
		next[p] = logs[p]->runs + first_run(logs[p], share_begins(logs[0], share, parts));
		number += next[p]->before;
	}
	for (;;) {
		uint32_t part = 0;

		/* without branches, which nobody could predict */
		for (uint32_t p = 1; p < parts; p++)
			part += (p - part) &
				-runs_earlier(logs[p], next[p], logs[part], next[part]);
		if (next[part]->after_ns >= until_ns)
			return;
		logs[part]->numbers[next[part] - logs[part]->runs] = number;
		number += next[part][1].before - next[part]->before;
		next[part]++;
	}
}

/* Give the events of a part that it scheduled in the span their true numbers; 0 or -ENOMEM. */
static inline int number_events(struct event_queue *q, const struct event_log *log)
{
	struct event_heap *young = &q->heaps[1];

	for (uint32_t i = 0; i < q->n_lanes; i++) {
		struct event_lane *lane = &q->lanes[i];

		for (size_t place = lane->count; place; place--) {
			struct event *event =
				&lane->events[(lane->first + place - 1) & (lane->most - 1)];

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
