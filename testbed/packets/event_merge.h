/* SPDX-License-Identifier: MIT */
/* One order of the events that several threads run, each those of one part of a network: that in which
 * one thread would run all of them.
 *
 * Parts run the same span of time, which is shorter than any way from one part to another, so that no
 * event of the span hangs on one of another part.  An event's number is how many were scheduled before,
 * in all parts, and decides among events at one instant.  In the span a part numbers what it schedules
 * from the common number on, as if it were alone: that is more than all numbers before, and so these
 * events are in order among themselves.  Afterwards merge_events() goes through all events of the span
 * in their true order, and gives what each has scheduled its true number. */
#pragma once
#include "event_queue.h"

/* An event that has run, and how many events it has scheduled. */
struct event_run {
	uint64_t time, order;
	uint64_t scheduled;
};

/* What a part has run and scheduled in the span.
 *
 * numbers: true ones of what it has scheduled, in its own order. */
struct event_log {
	struct event_run *runs;
	uint64_t *numbers;
	size_t n_runs, most_runs, n_numbers, most_numbers;
};

static inline void free_log(struct event_log *log)
{
	free(log->runs);
	free(log->numbers);
}

/* Note that an event begins to run; return 0 or -ENOMEM. */
static inline int note_run(struct event_log *log, const struct event *event)
{
	if (log->n_runs == log->most_runs) {
		size_t most = log->most_runs ? 2 * log->most_runs : 1024;
		struct event_run *larger = realloc(log->runs, most * sizeof(*larger));

		if (!larger)
			return -ENOMEM;
		log->runs = larger;
		log->most_runs = most;
	}
	log->runs[log->n_runs++] = (struct event_run){ event->time, event->order, 0 };
	return 0;
}

/* Return an event's order with its true number.  first: common number at the beginning of the span. */
static inline uint64_t true_order(const struct event_log *log, uint64_t order, uint64_t first)
{
	uint64_t number = (order & EVENT_NUMBER) >> 3;

	if (number < first)
		return order;
	return (order & ~EVENT_NUMBER) | log->numbers[number - first] << 3;
}

/* Make room for the numbers of what a part has scheduled; 0 or -ENOMEM. */
static inline int make_numbers(struct event_log *log, uint64_t scheduled)
{
	size_t most = log->most_numbers ? log->most_numbers : 1024;
	uint64_t *larger;

	while (most < scheduled)
		most *= 2;
	log->n_numbers = 0;
	if (most == log->most_numbers)
		return 0;
	larger = realloc(log->numbers, most * sizeof(*larger));
	if (!larger)
		return -ENOMEM;
	log->numbers = larger;
	log->most_numbers = most;
	return 0;
}

/* Number what all parts have scheduled in the span; return the next common number.
 *
 * first: common number at its beginning.  Each log has room for its numbers. */
static inline uint64_t merge_events(struct event_log *const *logs, uint32_t parts, uint64_t first)
{
	struct event head[EVENT_PARTS];
	size_t place[EVENT_PARTS] = { 0 };
	uint64_t next = first;

	for (uint32_t p = 0; p < parts; p++)
		head[p] = logs[p]->n_runs ? (struct event){ logs[p]->runs[0].time,
							    logs[p]->runs[0].order, 0, 0 } :
					    (struct event){ EVENT_NEVER, EVENT_NEVER, 0, 0 };
	for (;;) {
		struct event_log *log;
		uint32_t part = 0;

		for (uint32_t p = 1; p < parts; p++)
			part = comes_earlier(&head[p], &head[part]) ? p : part;
		log = logs[part];
		if (place[part] == log->n_runs)
			return next;
		for (uint64_t i = log->runs[place[part]].scheduled; i; i--)
			log->numbers[log->n_numbers++] = next++;
		if (++place[part] == log->n_runs) {
			head[part].time = head[part].order = EVENT_NEVER;
		} else {
			head[part].time = log->runs[place[part]].time;
			head[part].order = true_order(log, log->runs[place[part]].order, first);
		}
	}
}

/* Give the events of a part that it scheduled in the span their true numbers; 0 or -ENOMEM.
 *
 * next: common number after the span. */
static inline int number_events(struct event_queue *q, const struct event_log *log, uint64_t first,
				uint64_t next)
{
	struct event_heap *young = &q->heaps[1];

	for (uint32_t i = 0; i < q->n_lanes; i++) {
		struct event_lane *lane = &q->lanes[i];

		for (size_t place = lane->count; place; place--) {
			struct event *event = &lane->events[(lane->first + place - 1) & (lane->most - 1)];

			if ((event->order & EVENT_NUMBER) >> 3 < first)
				break;
			event->order = true_order(log, event->order, first);
		}
		note_first(q, i, lane->count ? &lane->events[lane->first] : 0);
	}
	for (size_t i = 0; i < young->count; i++) {
		young->events[i].order = true_order(log, young->events[i].order, first);
		if (push_heap(q, 0, &young->events[i]))
			return -ENOMEM;
	}
	young->count = 0;
	note_first(q, MOST_LANES + 1, 0);
	q->scheduled = next;
	return 0;
}
