"""Lanes of events (event_queue.h): which events have one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from weft.testbed.packets import network

PROGRAM = """
#include "event_queue.h"
#include <stdio.h>
static void add(struct event_queue *q, uint64_t time, uint64_t ahead_ns)
{
	schedule_event(q, time, ahead_ns, 0, 0, 0, 0);
}
int main(void)
{
	static struct event_queue q;
	struct event event;
	uint64_t last = 0;
	int in_order = 1;

	events_init(&q, 1);
	for (uint64_t rare = 1; rare <= EVENT_LANES; rare++)
		add(&q, 1000, rare); /* each takes a lane */
	add(&q, 1000, 500);
	printf("%zu ", q.heaps[0].count); /* the next has none */
	pop_event(&q, 1000, &event);
	add(&q, 1001, 500);
	printf("%zu ", q.heaps[0].count); /* until one is empty */
	while (pop_event(&q, 2000, &event) >= 0)
		;
	for (uint64_t time = 2000; time < 2010; time++)
		add(&q, time, EVENT_IN_TURN);
	printf("%zu ", q.heaps[0].count);
	add(&q, 2001, EVENT_IN_TURN); /* not in turn */
	add(&q, 2001, 0); /* as no other */
	printf("%zu ", q.heaps[0].count);
	while (pop_event(&q, 3000, &event) >= 0) {
		in_order &= event.time >= last;
		last = event.time;
	}
	printf("%d", in_order);
	events_free(&q);
}
"""


def test_frequent_events_take_the_lanes_that_rare_ones_leave(tmp_path: Path) -> None:
    source, program = tmp_path / "queue.c", tmp_path / "queue"
    source.write_text(PROGRAM)
    room = Path(network.__file__).parent
    subprocess.run(["gcc", "-O1", f"-I{room}", "-o", str(program), str(source)], check=True)
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "1", "0", "2", "1"]
