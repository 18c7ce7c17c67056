/* SPDX-License-Identifier: MIT */
#include "ndp_network.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define NS_PER_BYTE_AT_1_BPS 8000000000ull
#define CHILDREN 4 /* of a node of the heap of events */

/* Kinds of events, in their order at one instant: a port is idle, a frame arrives, the deadline of
 * an endpoint, a message begins.  The first two are ordered by the time at which they were
 * scheduled. */
enum { PORT_IDLE, ARRIVAL, DEADLINE, MESSAGE };
enum { TRIMMABLE, CONTROL, TRIMMED, TRIMMED_AT_HOST };

struct frame {
	struct ndp_packet packet;
	uint32_t src, dst, next;
	uint32_t length_bytes;
	uint8_t code_point;
};

struct queue {
	uint32_t first, last, bytes;
};

struct port {
	struct queue data, headers;
	uint32_t peer, headers_in_a_row;
	uint8_t busy, trims, to_host;
};

/* subject: port, frame, host or message; node: node at which a frame arrives. */
struct event {
	uint64_t time, order;
	uint32_t kind, subject, node;
};

struct message {
	uint64_t size_bytes;
	uint32_t src, dst, flow;
};

struct host_event {
	uint32_t host;
	struct ndp_event event;
};

/* An array that grows. */
struct room {
	size_t count, most;
};

struct ndp_network {
	struct ndp_wiring wiring;
	struct ndp_link link;
	struct port *ports;
	struct ndp_port_counters *counters;
	struct ndp_endpoint **endpoints;
	uint64_t *wakes; /* scheduled deadline of each host */
	struct event *heap;
	struct frame *frames;
	struct message *messages;
	struct host_event *ended;
	struct room heap_room, frame_room, message_room, ended_room;
	size_t first_ended;
	uint32_t free_frame;
	uint64_t now, scheduled, random;
	int error;
};

static int grow(struct ndp_network *n, void **array, struct room *room, size_t size)
{
	size_t most = room->most ? 2 * room->most : 1024;
	void *larger;

	if (room->count < room->most)
		return 1;
	larger = realloc(*array, most * size);
	if (!larger) {
		n->error = -ENOMEM;
		return 0;
	}
	*array = larger;
	room->most = most;
	return 1;
}

/* SplitMix64 (topologies/core/seeded.py), scaled to [0, 1). */
static double draw(struct ndp_network *n)
{
	uint64_t z = n->random += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return ((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int earlier(const struct event *a, const struct event *b)
{
	return a->time < b->time || (a->time == b->time && a->order < b->order);
}

static void schedule(struct ndp_network *n, uint64_t time, uint32_t kind, uint32_t subject,
		     uint32_t node)
{
	uint64_t class = kind == ARRIVAL ? PORT_IDLE : kind;
	struct event event = { time, class << 60 | n->scheduled++, kind, subject, node };
	size_t i = n->heap_room.count;

	if (!grow(n, (void **)&n->heap, &n->heap_room, sizeof(*n->heap)))
		return;
	n->heap_room.count++;
	while (i && earlier(&event, &n->heap[(i - 1) / CHILDREN])) {
		n->heap[i] = n->heap[(i - 1) / CHILDREN];
		i = (i - 1) / CHILDREN;
	}
	n->heap[i] = event;
}

static struct event pop(struct ndp_network *n)
{
	struct event first = n->heap[0], last = n->heap[--n->heap_room.count];
	size_t i = 0, count = n->heap_room.count;

	for (;;) {
		size_t child = CHILDREN * i + 1, best = child;
		size_t end = child + CHILDREN < count ? child + CHILDREN : count;

		if (child >= count)
			break;
		while (++child < end)
			if (earlier(&n->heap[child], &n->heap[best]))
				best = child;
		if (!earlier(&n->heap[best], &last))
			break;
		n->heap[i] = n->heap[best];
		i = best;
	}
	n->heap[i] = last;
	return first;
}

/* Ports. */

static void append(struct ndp_network *n, struct queue *queue, uint32_t frame)
{
	n->frames[frame].next = NONE;
	if (queue->first == NONE)
		queue->first = frame;
	else
		n->frames[queue->last].next = frame;
	queue->last = frame;
	queue->bytes += n->frames[frame].length_bytes;
}

static uint32_t take(struct ndp_network *n, struct queue *queue)
{
	uint32_t frame = queue->first;

	queue->first = n->frames[frame].next;
	queue->bytes -= n->frames[frame].length_bytes;
	return frame;
}

static void free_frame(struct ndp_network *n, uint32_t frame)
{
	n->frames[frame].next = n->free_frame;
	n->free_frame = frame;
}

/* Start transmission of the next frame. */
static void serve(struct ndp_network *n, uint32_t number)
{
	struct port *port = &n->ports[number];
	struct ndp_port_counters *counters = &n->counters[number];
	int data_waits = port->data.first != NONE;
	uint32_t frame;
	uint64_t sent;

	port->busy = 1;
	if (port->headers.first != NONE &&
	    (port->headers_in_a_row < n->link.share || !data_waits)) {
		frame = take(n, &port->headers);
		port->headers_in_a_row++;
	} else if (data_waits) {
		frame = take(n, &port->data);
		port->headers_in_a_row = 0;
	} else {
		port->busy = 0;
		return;
	}
	counters->frames++;
	counters->bytes += n->frames[frame].length_bytes;
	sent = n->now +
	       NS_PER_BYTE_AT_1_BPS * n->frames[frame].length_bytes / n->link.rate_bps;
	schedule(n, sent, PORT_IDLE, number, 0);
	schedule(n, sent + n->link.delay_ns, ARRIVAL, frame, port->peer);
}

/* Return 1 if a data packet of this length is trimmed now.  A packet for the last place is trimmed
 * with probability 1/2, so that synchronized senders do not always lose the same packets. */
static int trims(struct ndp_network *n, const struct port *port, uint32_t length_bytes)
{
	int64_t room = (int64_t)n->link.trim_bytes - port->data.bytes - length_bytes;

	if (!port->trims || length_bytes <= NDP_FRAME_HEADER)
		return 0;
	return room < 0 || (room < length_bytes && draw(n) < 0.5);
}

static void put(struct ndp_network *n, uint32_t number, uint32_t index)
{
	struct port *port = &n->ports[number];
	struct ndp_port_counters *counters = &n->counters[number];
	struct frame *frame = &n->frames[index];

	if (frame->code_point == TRIMMABLE && trims(n, port, frame->length_bytes)) {
		counters->trimmed++;
		frame->code_point = port->to_host ? TRIMMED_AT_HOST : TRIMMED;
		frame->length_bytes = NDP_FRAME_HEADER;
	}
	if (frame->code_point == TRIMMABLE) {
		append(n, &port->data, index);
		if (port->data.bytes > counters->most_data_bytes)
			counters->most_data_bytes = port->data.bytes;
	} else if (port->headers.bytes + frame->length_bytes > n->link.header_bytes) {
		counters->headers_lost++;
		free_frame(n, index);
	} else {
		append(n, &port->headers, index);
		if (port->headers.bytes > counters->most_header_bytes)
			counters->most_header_bytes = port->headers.bytes;
	}
	if (!port->busy)
		serve(n, number);
}

/* Hosts. */

static void emit(struct ndp_network *n, uint32_t host, const struct ndp_transmission *transmission)
{
	uint32_t index = n->free_frame;

	if (index == NONE) {
		if (!grow(n, (void **)&n->frames, &n->frame_room, sizeof(*n->frames)))
			return;
		index = n->frame_room.count++;
	} else {
		n->free_frame = n->frames[index].next;
	}
	n->frames[index] = (struct frame){
		.packet = transmission->packet,
		.src = host,
		.dst = transmission->peer,
		.length_bytes = NDP_FRAME_HEADER + transmission->payload_bytes,
		.code_point = transmission->payload_bytes ? TRIMMABLE : CONTROL,
	};
	put(n, n->wiring.first_port[host], index);
}

static void poll_host(struct ndp_network *n, uint32_t host)
{
	struct ndp_endpoint *endpoint = n->endpoints[host];
	const struct ndp_transmission *packets;
	ptrdiff_t count = ndp_poll(endpoint, n->now, &packets);
	struct ndp_event event;
	uint64_t deadline;

	if (count < 0)
		n->error = count;
	for (ptrdiff_t i = 0; i < count; i++)
		emit(n, host, &packets[i]);
	while (ndp_take_event(endpoint, &event)) {
		if (!grow(n, (void **)&n->ended, &n->ended_room, sizeof(*n->ended)))
			return;
		n->ended[n->ended_room.count++] = (struct host_event){ host, event };
	}
	deadline = ndp_deadline(endpoint);
	if (deadline < n->wakes[host]) {
		n->wakes[host] = deadline;
		schedule(n, deadline > n->now ? deadline : n->now, DEADLINE, host, 0);
	}
}

static uint32_t mix(uint32_t a, uint32_t b)
{
	a ^= b;
	a = (a ^ a >> 16) * 0x85ebca6b;
	a = (a ^ a >> 13) * 0xc2b2ae35;
	return a ^ a >> 16;
}

/* Return the output port of `frame` at `node`, a switch; NONE without a next hop. */
static uint32_t route(struct ndp_network *n, uint32_t node, const struct frame *frame)
{
	const struct ndp_wiring *w = &n->wiring;
	uint32_t last = w->peer[w->first_port[frame->dst]], hops, choice;
	double random = draw(n);
	size_t pair;

	if (last == node)
		return w->last_port[frame->dst];
	pair = w->layers > 1 ? frame->packet.layer : 0;
	pair = (pair * w->n_switches + last - w->n_hosts) * w->n_switches + node - w->n_hosts;
	hops = w->first_hop[pair + 1] - w->first_hop[pair];
	if (!hops)
		return NONE;
	if (w->choice == NDP_SPRAY)
		choice = random * hops;
	else
		choice = (uint64_t)mix(mix(frame->packet.flow, frame->src), node) * hops >> 32;
	return w->first_port[node] + w->next_hops[w->first_hop[pair] + choice];
}

static void arrive(struct ndp_network *n, uint32_t index, uint32_t node)
{
	struct frame *frame = &n->frames[index];
	uint32_t port;
	int whole;

	if (node >= n->wiring.n_hosts) {
		port = route(n, node, frame);
		if (port == NONE)
			n->error = -ENETUNREACH;
		else
			put(n, port, index);
		return;
	}
	whole = frame->packet.kind != NDP_DATA || frame->code_point == TRIMMABLE;
	ndp_receive(n->endpoints[node], n->now, frame->src, &frame->packet, whole,
		    frame->code_point == TRIMMED_AT_HOST);
	free_frame(n, index);
	poll_host(n, node);
}

static void begin(struct ndp_network *n, const struct message *m)
{
	int error = ndp_send(n->endpoints[m->src], n->now, m->flow, m->dst, m->size_bytes);

	if (error)
		n->error = error;
	else
		poll_host(n, m->src);
}

static void run_event(struct ndp_network *n, const struct event *event)
{
	n->now = event->time;
	if (event->kind == PORT_IDLE) {
		serve(n, event->subject);
	} else if (event->kind == ARRIVAL) {
		arrive(n, event->subject, event->node);
	} else if (event->kind == MESSAGE) {
		begin(n, &n->messages[event->subject]);
	} else if (n->wakes[event->subject] <= n->now) { /* else superseded by an earlier one */
		n->wakes[event->subject] = NDP_NEVER;
		poll_host(n, event->subject);
	}
}

/* The network. */

static void make_port(struct ndp_network *n, uint32_t node, uint32_t number)
{
	uint32_t peer = n->wiring.peer[number];

	n->ports[number] = (struct port){
		.data = { NONE, NONE, 0 },
		.headers = { NONE, NONE, 0 },
		.peer = peer,
		.trims = node >= n->wiring.n_hosts,
		.to_host = peer < n->wiring.n_hosts,
	};
}

struct ndp_network *ndp_network_new(const struct ndp_wiring *wiring, const struct ndp_link *link,
				    const struct ndp_parameters *parameters, uint64_t seed)
{
	uint32_t nodes = wiring->n_hosts + wiring->n_switches;
	uint32_t n_ports = wiring->first_port[nodes];
	struct ndp_network *n = calloc(1, sizeof(*n));

	if (!n)
		return 0;
	n->wiring = *wiring;
	n->link = *link;
	n->random = seed;
	n->free_frame = NONE;
	n->ports = calloc(n_ports, sizeof(*n->ports));
	n->counters = calloc(n_ports, sizeof(*n->counters));
	n->endpoints = calloc(wiring->n_hosts, sizeof(*n->endpoints));
	n->wakes = calloc(wiring->n_hosts, sizeof(*n->wakes));
	if (!n->ports || !n->counters || !n->endpoints || !n->wakes) {
		ndp_network_free(n);
		return 0;
	}
	for (uint32_t node = 0; node < nodes; node++)
		for (uint32_t p = wiring->first_port[node]; p < wiring->first_port[node + 1]; p++)
			make_port(n, node, p);
	for (uint32_t host = 0; host < wiring->n_hosts; host++) {
		n->wakes[host] = NDP_NEVER;
		n->endpoints[host] = ndp_new(parameters);
		if (!n->endpoints[host]) {
			ndp_network_free(n);
			return 0;
		}
	}
	return n;
}

void ndp_network_free(struct ndp_network *n)
{
	if (!n)
		return;
	for (uint32_t host = 0; n->endpoints && host < n->wiring.n_hosts; host++)
		ndp_free(n->endpoints[host]);
	free(n->ports);
	free(n->counters);
	free(n->endpoints);
	free(n->wakes);
	free(n->heap);
	free(n->frames);
	free(n->messages);
	free(n->ended);
	free(n);
}

int ndp_network_send(struct ndp_network *n, uint64_t time_ns, uint32_t src, uint32_t dst,
		     uint32_t flow, uint64_t size_bytes)
{
	if (grow(n, (void **)&n->messages, &n->message_room, sizeof(*n->messages))) {
		n->messages[n->message_room.count] = (struct message){ size_bytes, src, dst, flow };
		schedule(n, time_ns, MESSAGE, n->message_room.count++, 0);
	}
	return n->error;
}

int ndp_network_run(struct ndp_network *n, uint64_t time_ns)
{
	struct event event;

	while (!n->error && n->heap_room.count && n->heap[0].time <= time_ns) {
		event = pop(n);
		run_event(n, &event);
	}
	return n->error;
}

int ndp_network_take_event(struct ndp_network *n, uint32_t *host, struct ndp_event *event)
{
	if (n->first_ended == n->ended_room.count)
		return 0;
	*host = n->ended[n->first_ended].host;
	*event = n->ended[n->first_ended++].event;
	return 1;
}

const struct ndp_counters *ndp_network_counters(const struct ndp_network *n, uint32_t host)
{
	return ndp_counters(n->endpoints[host]);
}

const struct ndp_port_counters *ndp_network_port(const struct ndp_network *n, uint32_t port)
{
	return &n->counters[port];
}

uint64_t ndp_network_frames(const struct ndp_network *n)
{
	uint64_t frames = 0;

	for (uint32_t p = 0; p < n->wiring.first_port[n->wiring.n_hosts + n->wiring.n_switches]; p++)
		frames += n->counters[p].frames;
	return frames;
}
