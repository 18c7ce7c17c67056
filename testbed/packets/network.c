/* SPDX-License-Identifier: MIT */
#include "network.h"
#include "../data_plane/layer_choice.h"
#include "../data_plane/select.h"
#include "event_merge.h"
#include "flow_table.h"
#include "memory.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NONE UINT32_MAX
#define NS_PER_BYTE_AT_1_BPS 8000000000ull
/* Events of a lane ahead of the first, whose port or frame is fetched, then what these name, then
 * what that names. */
#define FAR_AHEAD 16
#define NEAR_AHEAD 9
#define SET_AHEAD 5
#define NEXT_AHEAD 3
#define CACHE_BYTES (1u << 20) /* of one processor, roughly */
#define FLOWLET_BITS 12 /* of an index of a switch's flowlets */
#define TTL 64 /* of a packet, as Linux sends it */
#define ROOM_FRAME 64 /* bytes of a frame that says pause, go on, or credits */
#define UDP 17
#define ETHERNET_HEADER 14
#define PAIRS_OF_A_HOST 16 /* that it remembers apart from others, about */
#define LONGEST_SPAN_NS (1ull << 31)
#define LOOKS (1 << 15) /* of a thread that waits for others, before it sleeps; some 20 us */

/* Kinds of events, in their order at one instant: a port is idle, a frame arrives, a sender learns of
 * room behind its link, a deadline of a host or of an end of TCP, a message begins.  The first three are
 * ordered by the time at which they were scheduled. */
enum { PORT_IDLE, ARRIVAL, ROOM, DEADLINE, MESSAGE };
enum { SENDER, RECEIVER };
enum { NO_CROSSING = UINT16_MAX };
enum { TRIMMABLE, CONTROL, TRIMMED, TRIMMED_AT_HOST };

/* One line of the cache.
 *
 * step: place of its next port in the steps of all routes; NONE without a route; where nodes look
 * routes up, the address that it carries, 0 at its source.  hops: nodes that have forwarded it.
 * crossing: its output port at the crossbar that it goes to, from the first one, or NO_CROSSING.
 * waypoint: number of the switch that it visits before its destination, + 1, or 0; chosen: 1 once
 * that is chosen.  plane: with several planes, the one that it is in.  of_daemon: message `step` of a
 * daemon to the next switch.
 *
 * Without a transport: departed: 1 once it has begun to leave its host, at departed_ns. */
struct frame {
	_Alignas(LINE_BYTES) uint32_t src;
	uint32_t dst;
	uint8_t code_point : 2, retransmitted : 1, marked : 1, chosen : 1, departed : 1,
		of_daemon : 1, hops;
	union {
		uint16_t crossing;
		uint16_t waypoint;
		uint16_t plane;
	};
	uint32_t step;
	union {
		struct {
			struct ndp_packet packet;
			uint64_t departed_ns;
		};
		struct tcp_segment segment;
	};
};

/* Place of a frame in its queue, apart from it: ports need no more of a frame, and all places fit
 * into a cache that the frames do not.
 *
 * next: the frame behind it; of one on a link, the port by which it will leave the next node, or NONE if
 * that is not known. */
struct place {
	uint32_t next, length_bytes;
};

struct queue {
	uint32_t first, last, bytes, packets;
};

/* Two lines of the cache: what every frame needs, and what few need.
 *
 * again: 1 if retransmitted packets wait. */
struct port {
	_Alignas(LINE_BYTES) struct queue data;
	struct queue headers;
	uint32_t peer, most_data_bytes;
	uint64_t frames, bytes;
	uint16_t link, headers_in_a_row;
	uint8_t busy, to_host, failed, again;
	struct queue retransmitted;
	uint64_t trimmed, headers_lost, dropped, marked;
	uint32_t most_header_bytes;
	uint32_t turn; /* of the link group whose first port this is (LBSP) */
};

/* Flow control of the link behind a port; a frame that ends at the other node needs no room there.
 *
 * known_bytes: with credits, what the sender believes to be held for it.  held_bytes: what the node at
 * the other end holds of the link's frames, and most_bytes the largest of these.  told: the node has
 * told the sender to pause, which has heard it: paused.
 *
 * waits: a frame of the port waits for room, since since_ns.  stuck: for good.  notices: on their way to
 * the sender.
 *
 * leaving_over: port over which the frame came that this one is sending, of leaving_bytes.
 *
 * buffered_bytes: in the port's output buffer, with the frame that it is sending if that lay there
 * (leaves_buffer).  outside: first frame of its queue of data that has no place there, or NONE. */
struct link_room {
	uint32_t known_bytes, held_bytes, most_bytes;
	uint8_t told, paused, waits, stuck;
	uint64_t since_ns, waited_ns;
	uint32_t leaving_over, leaving_bytes, notices;
	uint32_t buffered_bytes, outside;
	uint8_t leaves_buffer;
};

_Static_assert(sizeof(struct frame) == LINE_BYTES, "a frame has one line");
_Static_assert(offsetof(struct port, retransmitted) == LINE_BYTES, "a port has two lines");

/* An end of a flow of TCP, in a line of its own as in struct tcp_flow.
 *
 * choice: of the layer of its data, or of its acknowledgements.  wake: scheduled deadline.  next: message
 * that is the next to be finished, or delivered.  waiting: with small queues, how many packets of data wait
 * in its host's queue; is_throttled: it has stopped sending for them. */
struct flow_end {
	_Alignas(LINE_BYTES) struct flow choice;
	uint64_t wake;
	uint32_t next;
	uint32_t waiting : 31, is_throttled : 1;
};

/* Of TCP alone: connection: number of the first message of the same flow of TCP; end: packets of
 * that flow up to the end of this message; next: number of the next message of the flow.
 *
 * routes: places of the first steps there and back; NONE without a route.
 *
 * The first message of a flow has also the flow, its last message, and both ends.
 *
 * Without a transport: end: packets; next: message that the host sends afterwards. */
struct message {
	_Alignas(LINE_BYTES) uint64_t size_bytes;
	uint32_t src, dst, flow;
	uint32_t routes[2];
	uint32_t connection, end, next, last;
	struct tcp_flow *tcp;
	union {
		struct flow_end ends[2];
		struct stream stream;
	};
};

/* A host without a transport: the first and the last message that it has not sent, packets that it has sent
 * of the first, the earliest time of the next packet, and whether one has not begun to leave.
 *
 * With go-back-N the first is one that has not arrived.  back_ns: when the host goes back to packet `back`,
 * NDP_NEVER: does not; turns: how often it has. */
struct source {
	uint32_t first, last, sent, waits, back;
	uint64_t due_ns, back_ns, turns;
};

/* What a switch remembers of a set of next hops: candidates taken in turn, and DRILL's last winner,
 * counted from 1. */
struct set_memory {
	uint32_t turn, winner;
};

struct flowlet_entry {
	uint64_t last_ns;
	uint32_t candidate;
};

/* What a host remembers of another: flows so far, and the marks of each layer.  As in layers.bpf.c pairs
 * whose hashes are equal share it. */
struct pair_memory {
	uint32_t turn, marks[LAYERS];
};

/* A route that a node has looked up, valid for this version of the node.
 *
 * end: 2 * message, 1 more for answers. */
struct memo {
	uint32_t node, end, address, version;
	struct packet_hop hop;
};

/* order: of the event of the queue from which it comes. */
struct host_event {
	uint32_t host;
	uint64_t order;
	struct ndp_event event;
};

/* An array that grows. */
struct room {
	size_t count, most;
};

/* A frame on its way to a node of another part of the network. */
struct crossing {
	struct frame frame;
	uint64_t time, ahead_ns, order;
	uint32_t node, length_bytes;
};

struct outbox {
	struct crossing *crossings;
	struct room room;
};

/* Parts of a network, which as many threads run at once, span by span (event_merge.h).
 *
 * span_ns: shorter than any way from one part to another.  owner: part of each node.  draws: by node.
 * Threads meet when `arrived` is n_parts, as often as rounds says.  scheduled: events before.  next_ns, ran
 * and errors: of each part, when all threads have met. */
struct crew {
	struct packet_network *parts[EVENT_PARTS];
	uint32_t n_parts;
	uint64_t span_ns;
	uint8_t *owner;
	uint64_t *draws;
	atomic_uint arrived, rounds, sleepers;
	atomic_int started; /* 1: threads may begin, -1: they end, as there are too few */
	uint64_t until_ns, most_events, scheduled;
	uint64_t next_ns[EVENT_PARTS], ran[EVENT_PARTS];
	int errors[EVENT_PARTS];
};

/* A network, or one part of it, which shares what comes before `events` with the others. */
struct packet_network {
	struct packet_wiring wiring;
	struct tcp_parameters tcp;
	struct settings layers; /* of TCP's hosts */
	struct pair_memory *pairs; /* 0 if hosts remember nothing of them */
	uint32_t n_pairs; /* a power of two */
	struct stream_parameters stream;
	struct source *sources; /* hosts; 0 with a transport */
	int is_tcp;
	struct port *ports;
	uint32_t *last_switch; /* by host and plane, numbered from the first switch */
	struct set_memory *memories; /* at the place of the set */
	struct flowlet_entry *flowlets;
	struct ndp_endpoint **endpoints;
	uint64_t *wakes; /* scheduled deadline of each host */
	struct link_room *rooms; /* of ports; 0 without flow control */
	/* by switch and destination, + 1, of flows that go together; or 0 */
	uint32_t *shared_ports;
	uint32_t *owners; /* nodes of ports; with a table of flows, and in parts */
	struct flow_table flows;
	struct message *messages;
	uint32_t *steps; /* ports of all routes */
	packet_lookup *look_up;
	struct memo *memos; /* by a hash of what is looked up; the last one stays */
	uint32_t *versions; /* of each node's routes, from 1 */
	uint32_t n_memos; /* a power of two */
	int is_large; /* its ports do not fit into the cache, and its tables still less */
	int live; /* tables change while packets are under way */
	int is_rerouted; /* tables have changed */
	struct room message_room, step_room;
	struct crew *crew; /* 0 unless the network is in parts */

	struct event_queue events;
	struct arena arena; /* of flows of TCP that begin here */
	struct frame *frames;
	struct place *places; /* of frames */
	uint32_t *over; /* port over which a frame came that takes room, or NONE; with rooms */
	/* port over which a frame came, NONE at its source; with a table of flows */
	uint32_t *came;
	struct host_event *ended;
	struct room ended_room;
	size_t first_ended, frames_made, frames_most;
	uint32_t free_frame;
	uint64_t now, random, unrouted;
	int error;
	uint32_t number; /* of the part */
	struct event event; /* that runs */
	size_t true_orders; /* of how many of `ended` the order is true */
	struct event_log log;
	struct outbox outboxes[EVENT_PARTS];
};

static int grow(struct packet_network *n, void **array, struct room *room, size_t size)
{
	size_t most = room->most ? 2 * room->most : 1024;
	void *larger;

	if (room->count < room->most)
		return 1;
	larger = allocate(most, size);
	if (!larger) {
		n->error = -ENOMEM;
		return 0;
	}
	if (room->count)
		memcpy(larger, *array, room->count * size);
	free(*array);
	*array = larger;
	room->most = most;
	return 1;
}

static struct frame *frame_at(const struct packet_network *n, uint32_t index)
{
	return &n->frames[index];
}

/* Return the node at which an event happens. */
static uint32_t node_of(const struct packet_network *n, const struct event *event)
{
	uint32_t kind = event_kind(event);

	if (kind == PORT_IDLE || kind == ROOM)
		return n->owners[event->subject];
	if (kind == ARRIVAL)
		return event->place;
	if (kind == DEADLINE && !n->is_tcp)
		return event->subject;
	return event->place == RECEIVER ? n->messages[event->subject].dst :
					  n->messages[event->subject].src;
}

/* SplitMix64 (topologies/low_diameter/random_graphs.py). */
static uint64_t next_bits(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static uint64_t random_bits(struct packet_network *n)
{
	return next_bits(n->crew ? &n->crew->draws[node_of(n, &n->event)] : &n->random);
}

/* Return a random number in [0, 1). */
static double random_fraction(struct packet_network *n)
{
	return (random_bits(n) >> 11) * 0x1p-53;
}

/* context: what hosts remember of a pair, 0 if nothing. */
static __u32 *marks_of(void *context, __u32 layer)
{
	struct pair_memory *memory = context;

	return memory ? &memory->marks[layer & (LAYERS - 1)] : 0;
}

/* `subject`: port, frame, host or message; `place`: node at which a frame arrives, or end of TCP. */
static void schedule(struct packet_network *n, uint64_t time, uint32_t kind, uint32_t subject,
		     uint32_t place)
{
	uint32_t rank = kind <= ROOM ? PORT_IDLE : kind;
	uint64_t ahead_ns = kind <= ROOM ? time - n->now : 0;
	int error;

	if (kind == MESSAGE)
		ahead_ns = EVENT_IN_TURN;
	error = schedule_event(&n->events, time, ahead_ns, rank, kind, subject, place);
	if (error)
		n->error = error;
}

/* Ports. */

static void append(struct packet_network *n, struct queue *queue, uint32_t frame)
{
	n->places[frame].next = NONE;
	if (queue->first == NONE)
		queue->first = frame;
	else
		n->places[queue->last].next = frame;
	queue->last = frame;
	queue->bytes += n->places[frame].length_bytes;
	queue->packets++;
}

static uint32_t take(struct packet_network *n, struct queue *queue)
{
	uint32_t frame = queue->first;

	queue->first = n->places[frame].next;
	queue->bytes -= n->places[frame].length_bytes;
	queue->packets--;
	return frame;
}

static void free_room(struct packet_network *n, uint32_t over, uint32_t length_bytes);

static void free_frame(struct packet_network *n, uint32_t frame)
{
	if (n->rooms)
		free_room(n, n->over[frame], n->places[frame].length_bytes);
	if (n->sources && !n->frames[frame].departed && !n->frames[frame].of_daemon)
		n->sources[n->frames[frame].src].waits = 0;
	n->places[frame].next = n->free_frame;
	n->free_frame = frame;
}

/* Return how long a link carries a frame. */
static uint64_t transmission_ns(const struct packet_link *link, uint32_t length_bytes)
{
	return NS_PER_BYTE_AT_1_BPS * length_bytes / link->rate_bps;
}

static const struct packet_link *link_of(const struct packet_network *n, uint32_t port)
{
	return &n->wiring.links[n->ports[port].link];
}

/* Flow control of links. */

static int is_counted(const struct packet_network *n, uint32_t number, uint32_t frame)
{
	return link_of(n, number)->room_bytes && frame_at(n, frame)->dst != n->ports[number].peer;
}

/* Return 1 if a port may send a frame; note since when it may not. */
static int may_leave(struct packet_network *n, uint32_t number, uint32_t frame)
{
	const struct packet_link *link = link_of(n, number);
	struct link_room *room = &n->rooms[number];
	int may = !room->paused;

	if (!link->resume_bytes && is_counted(n, number, frame))
		may = room->known_bytes + n->places[frame].length_bytes <= link->room_bytes;
	if (may && room->waits)
		room->waited_ns += n->now - room->since_ns;
	if (!may && !room->waits)
		room->since_ns = n->now;
	room->waits = !may;
	return may;
}

/* Move frames into a port's output buffer, as many as have a place there. */
static void fill_buffer(struct packet_network *n, uint32_t number)
{
	struct link_room *room = &n->rooms[number];

	while (room->outside != NONE) {
		uint32_t frame = room->outside, length_bytes = n->places[frame].length_bytes;
		uint32_t over = n->over[frame];

		if (room->buffered_bytes + length_bytes > link_of(n, number)->output_bytes)
			return;
		room->buffered_bytes += length_bytes;
		room->outside = n->places[frame].next;
		n->over[frame] = NONE;
		free_room(n, over, length_bytes);
	}
}

/* Note that a port begins to send a frame. */
static void begin_leaving(struct packet_network *n, uint32_t number, uint32_t frame)
{
	struct link_room *room = &n->rooms[number];
	uint32_t length_bytes = n->places[frame].length_bytes;

	room->leaves_buffer = frame != room->outside && link_of(n, number)->output_bytes;
	if (frame == room->outside)
		room->outside = n->places[frame].next;
	room->leaving_over = n->over[frame];
	room->leaving_bytes = length_bytes;
	n->over[frame] = NONE;
	if (is_counted(n, number, frame)) {
		n->over[frame] = number;
		room->known_bytes += length_bytes;
	}
}

/* Let the sender learn, over the other direction of its link, that it may pause, go on, or has credits. */
static void tell(struct packet_network *n, uint32_t number, uint32_t value)
{
	const struct packet_link *link = link_of(n, number);

	n->rooms[number].notices++;
	schedule(n, n->now + transmission_ns(link, ROOM_FRAME) + link->delay_ns, ROOM, number,
		 value);
}

/* Take room for a frame at the node where it arrives. */
static void take_room(struct packet_network *n, uint32_t frame)
{
	uint32_t number = n->over[frame];
	struct link_room *room = &n->rooms[number];

	room->held_bytes += n->places[frame].length_bytes;
	if (room->held_bytes > room->most_bytes)
		room->most_bytes = room->held_bytes;
	if (link_of(n, number)->resume_bytes && !room->told &&
	    room->held_bytes > link_of(n, number)->room_bytes) {
		room->told = 1;
		tell(n, number, 1);
	}
}

/* Free the room of a frame of this length that came over port `over`; nothing if that is NONE. */
static void free_room(struct packet_network *n, uint32_t over, uint32_t length_bytes)
{
	struct link_room *room;

	if (over == NONE)
		return;
	room = &n->rooms[over];
	room->held_bytes -= length_bytes;
	if (!link_of(n, over)->resume_bytes) {
		tell(n, over, length_bytes);
	} else if (room->told && room->held_bytes <= link_of(n, over)->resume_bytes) {
		room->told = 0;
		tell(n, over, 0);
	}
}

static void serve(struct packet_network *n, uint32_t number);

/* Let a port hear what the node at the other end has told. */
static void hear(struct packet_network *n, uint32_t number, uint32_t value)
{
	n->rooms[number].notices--;
	if (link_of(n, number)->resume_bytes)
		n->rooms[number].paused = value;
	else
		n->rooms[number].known_bytes -= value;
	if (!n->ports[number].busy)
		serve(n, number);
}

/* Return 1 if all room behind a port that waits is held by frames at ports that are stuck. */
static int stays_stuck(const struct packet_network *n, uint32_t number)
{
	const struct packet_wiring *w = &n->wiring;
	uint32_t node = w->peer[number];

	for (uint32_t p = w->first_port[node]; p < w->first_port[node + 1]; p++) {
		const struct port *port = &n->ports[p];
		const struct queue *queues[] = { &port->retransmitted, &port->data,
						 &port->headers };

		if (n->rooms[p].stuck)
			continue;
		if (port->busy && n->rooms[p].leaving_over == number)
			return 0;
		for (int i = 0; i < 3; i++)
			for (uint32_t f = queues[i]->first; f != NONE; f = n->places[f].next)
				if (n->over[f] == number)
					return 0;
	}
	return n->rooms[number].held_bytes && !n->rooms[number].notices;
}

uint32_t packet_network_deadlocked(struct packet_network *n)
{
	uint32_t n_ports = n->wiring.first_port[n->wiring.n_hosts + n->wiring.n_switches];
	uint32_t count = 0, before;

	for (uint32_t p = 0; n->rooms && p < n_ports; p++)
		count += n->rooms[p].stuck = n->rooms[p].waits;
	do {
		before = count;
		for (uint32_t p = 0; n->rooms && p < n_ports; p++) {
			if (n->rooms[p].stuck && !stays_stuck(n, p)) {
				n->rooms[p].stuck = 0;
				count--;
			}
		}
	} while (count != before);
	return count;
}

/* Return the queue whose first frame a port sends next, 0 if nothing waits. */
static struct queue *next_queue(struct port *port, const struct packet_link *link)
{
	struct queue *data = port->again ? &port->retransmitted : &port->data;
	int data_waits = data->first != NONE;

	if (port->headers.first != NONE && (port->headers_in_a_row < link->share || !data_waits))
		return &port->headers;
	return data_waits ? data : 0;
}

/* Return how long it takes until a frame that a port begins to send arrives at the other node, or
 * enough of it to forward it. */
static uint64_t arrival_ns(const struct packet_network *n, uint32_t number, uint32_t frame,
			   uint64_t whole_ns)
{
	const struct packet_link *link = link_of(n, number);

	if (!link->cut_through_bytes || frame_at(n, frame)->dst == n->ports[number].peer)
		return whole_ns + link->delay_ns;
	return transmission_ns(link, link->cut_through_bytes) + link->delay_ns;
}

static void pull(struct packet_network *n, uint32_t host);

/* Note that a packet begins to leave its host, which may make the next. */
static void note_departure(struct packet_network *n, uint32_t index)
{
	struct frame *frame = frame_at(n, index);
	uint32_t host = frame->src;

	frame->departed = 1;
	frame->departed_ns = n->now;
	n->sources[host].waits = 0;
	pull(n, host);
}

/* Return the flow of TCP whose packet of data waits at a port of its own host, 0 for any other packet. */
static struct message *flow_that_waits(const struct packet_network *n, uint32_t number,
				       uint32_t index)
{
	const struct frame *frame = frame_at(n, index);
	const uint32_t *first = &n->wiring.first_port[frame->src];

	if (frame->of_daemon || frame->segment.kind != TCP_DATA || number < first[0] ||
	    number >= first[1])
		return 0;
	return &n->messages[frame->segment.flow];
}

static void transmit(struct packet_network *n, uint32_t number);

/* With small queues: a packet leaves its host's queue, so that its flow may send the next. */
static void make_way(struct packet_network *n, uint32_t number, uint32_t index)
{
	struct message *flow = flow_that_waits(n, number, index);

	if (!flow)
		return;
	flow->ends[SENDER].waiting--;
	if (flow->ends[SENDER].is_throttled)
		transmit(n, flow - n->messages);
}

/* Let a frame go to another part of the network, `ahead_ns` before it arrives there. */
static void hand_over(struct packet_network *n, uint32_t frame, uint32_t node, uint64_t ahead_ns,
		      uint64_t order)
{
	struct outbox *box = &n->outboxes[n->crew->owner[node]];

	if (ahead_ns < n->crew->span_ns)
		n->error = -ERANGE; /* the other part has run beyond that time */
	if (!grow(n, (void **)&box->crossings, &box->room, sizeof(*box->crossings)))
		return;
	box->crossings[box->room.count++] = (struct crossing){
		.frame = *frame_at(n, frame),
		.time = n->now + ahead_ns,
		.ahead_ns = ahead_ns,
		.order = order,
		.node = node,
		.length_bytes = n->places[frame].length_bytes,
	};
	n->places[frame].next = n->free_frame;
	n->free_frame = frame;
}

/* Start transmission of the next frame. */
static void serve(struct packet_network *n, uint32_t number)
{
	struct port *port = &n->ports[number];
	const struct packet_link *link = link_of(n, number);
	struct queue *queue = next_queue(port, link);
	uint64_t whole_ns, ahead_ns, order;
	uint32_t frame;
	int is_crossing;

	port->busy = queue && (!n->rooms || may_leave(n, number, queue->first));
	if (!port->busy)
		return;
	frame = take(n, queue);
	n->places[frame].next = NONE;
	if (queue == &port->headers) {
		port->headers_in_a_row++;
	} else {
		port->again = port->again && queue->first != NONE;
		port->headers_in_a_row = 0;
	}
	if (n->rooms)
		begin_leaving(n, number, frame);
	if (n->came)
		n->came[frame] = number;
	port->frames++;
	port->bytes += n->places[frame].length_bytes;
	whole_ns = transmission_ns(link, n->places[frame].length_bytes);
	schedule(n, n->now + whole_ns, PORT_IDLE, number, 0);
	ahead_ns = arrival_ns(n, number, frame, whole_ns);
	is_crossing = n->crew && n->crew->owner[port->peer] != n->number;
	order = n->events.scheduled << 3 | ARRIVAL;
	if (is_crossing)
		n->events.scheduled++;
	else
		schedule(n, n->now + ahead_ns, ARRIVAL, frame, port->peer);
	if (n->sources && !frame_at(n, frame)->departed && !frame_at(n, frame)->of_daemon)
		note_departure(n, frame);
	if (n->tcp.small_queues)
		make_way(n, number, frame);
	if (is_crossing)
		hand_over(n, frame, port->peer, ahead_ns, order);
}

/* Let a port go on that has sent a frame. */
static void finish(struct packet_network *n, uint32_t number)
{
	if (n->rooms) {
		struct link_room *room = &n->rooms[number];
		uint32_t over = room->leaving_over;

		room->leaving_over = NONE;
		free_room(n, over, room->leaving_bytes);
		if (room->leaves_buffer) {
			room->leaves_buffer = 0;
			room->buffered_bytes -= room->leaving_bytes;
			fill_buffer(n, number);
		}
	}
	serve(n, number);
}

/* Return 1 if a forwarded data packet of this length is trimmed before queue `data`.  A packet for the
 * last place is trimmed with probability 1/2, so that synchronized senders do not always lose the same
 * packets. */
static int trims(struct packet_network *n, const struct packet_link *link, const struct queue *data,
		 uint32_t length_bytes)
{
	int64_t room = (int64_t)link->trim_bytes - data->bytes - length_bytes;

	if (length_bytes <= NDP_FRAME_HEADER || n->rooms)
		return 0;
	return room < 0 || (room < length_bytes && random_fraction(n) < 0.5);
}

static void enqueue_data(struct packet_network *n, uint32_t number, struct queue *data,
			 uint32_t frame)
{
	struct port *port = &n->ports[number];

	append(n, data, frame);
	if (n->rooms && link_of(n, number)->output_bytes) {
		if (n->rooms[number].outside == NONE)
			n->rooms[number].outside = frame;
		fill_buffer(n, number);
	}
	if (data->bytes > port->most_data_bytes)
		port->most_data_bytes = data->bytes;
	if (!port->busy)
		serve(n, number);
}

/* Enqueue a frame of the purified transport; `forwarded`: 0 at the host that sends it. */
static void put(struct packet_network *n, uint32_t number, uint32_t index, int forwarded)
{
	struct port *port = &n->ports[number];
	const struct packet_link *link = link_of(n, number);
	struct frame *frame = frame_at(n, index);
	int is_first = frame->retransmitted && link->retransmissions_first;
	struct queue *data = is_first ? &port->retransmitted : &port->data;

	if (frame->code_point == TRIMMABLE && forwarded &&
	    trims(n, link, data, n->places[index].length_bytes)) {
		port->trimmed++;
		frame->code_point = port->to_host ? TRIMMED_AT_HOST : TRIMMED;
		n->places[index].length_bytes = NDP_FRAME_HEADER;
	}
	if (frame->code_point == TRIMMABLE) {
		if (forwarded && link->mark_packets && data->packets >= link->mark_packets) {
			frame->marked = 1;
			port->marked++;
		}
		port->again |= is_first;
		enqueue_data(n, number, data, index);
		return;
	}
	if (!n->rooms && port->headers.bytes + n->places[index].length_bytes > link->header_bytes) {
		port->headers_lost++;
		free_frame(n, index);
	} else {
		append(n, &port->headers, index);
		if (port->headers.bytes > port->most_header_bytes)
			port->most_header_bytes = port->headers.bytes;
	}
	if (!port->busy)
		serve(n, number);
}

/* Enqueue a frame at a port that drops; 0 if its queue is full.  `forwarded`: 0 at the host that sends
 * it. */
static int put_or_drop(struct packet_network *n, uint32_t number, uint32_t index, int forwarded)
{
	struct port *port = &n->ports[number];
	const struct packet_link *link = link_of(n, number);
	struct frame *frame = frame_at(n, index);

	if (port->data.packets >= link->queue_packets && !(n->rooms && forwarded)) {
		port->dropped += !n->rooms; /* else a host's own, which TCP sends later */
		free_frame(n, index);
		return 0;
	}
	if (forwarded && n->is_tcp && frame->segment.capable && link->mark_packets &&
	    port->data.packets >= link->mark_packets) {
		frame->segment.marked = 1;
		port->marked++;
	}
	if (n->tcp.small_queues && !forwarded) {
		struct message *flow = flow_that_waits(n, number, index);

		if (flow)
			flow->ends[SENDER].waiting++;
	}
	enqueue_data(n, number, &port->data, index);
	return 1;
}

/* Let a frame leave by a port; 0 if a host's queue is full.  `forwarded`: 0 at the host that sends it. */
static int leave(struct packet_network *n, uint32_t number, uint32_t index, int forwarded)
{
	if (n->ports[number].failed) {
		n->ports[number].dropped++;
		free_frame(n, index);
		return 1;
	}
	if (n->is_tcp || n->sources)
		return put_or_drop(n, number, index, forwarded);
	put(n, number, index, forwarded);
	return 1;
}

/* Routes. */

static uint32_t by_table(struct packet_network *n, uint32_t node, struct frame *frame,
			 double random);

static uint32_t flow_of(const struct packet_network *n, const struct frame *frame)
{
	return n->is_tcp ? frame->segment.flow : frame->packet.flow;
}

/* Return 1 if `node` forwards a frame as the server before it decided. */
static int is_crossbar(const struct packet_network *n, uint32_t node, const struct frame *frame)
{
	return n->look_up && node >= n->wiring.n_hosts && frame->crossing != NO_CROSSING;
}

/* Return the port by which a frame leaves `node` as its routes are now, which the caller of the
 * network knows; NONE without a route. */
static uint32_t looked_up(struct packet_network *n, uint32_t node, struct frame *frame)
{
	uint32_t number = flow_of(n, frame), end, hash;
	struct memo *memo;

	if (is_crossbar(n, node, frame))
		return n->wiring.first_port[node] + frame->crossing;
	if (number >= n->message_room.count)
		return NONE;
	end = 2 * number + (frame->src != n->messages[number].src);
	hash = mix(mix(end, node), frame->step);
	memo = &n->memos[hash & (n->n_memos - 1)];
	if (memo->version != n->versions[node] || memo->node != node || memo->end != end ||
	    memo->address != frame->step) {
		*memo = (struct memo){
			node, end, frame->step, n->versions[node], { 0, 0, NO_CROSSING }
		};
		if (!n->look_up(node, number, end & 1, frame->step, &memo->hop)) {
			memo->version = 0;
			return NONE;
		}
	}
	frame->step = memo->hop.address;
	frame->crossing = memo->hop.crossing;
	return memo->hop.port;
}

/* Return the port by which a new frame leaves its host, and note its plane. */
static uint32_t departure(const struct packet_network *n, struct frame *frame)
{
	const struct packet_wiring *w = &n->wiring;
	uint32_t first = w->first_port[frame->src], value;
	const uint32_t *ports;

	if (w->planes == 1)
		return first;
	ports = &w->departures[frame->src * (w->planes + 1)];
	value = n->is_tcp ? mix(w->rule.seed, frame->segment.flow) : frame->packet.layer;
	frame->plane = ports[1 + value % ports[0]] - first;
	return first + frame->plane;
}

/* Return the place of a host's end of a frame's way, in last_switch and in last_port. */
static size_t last_place(const struct packet_network *n, const struct frame *frame)
{
	uint32_t planes = n->wiring.planes;

	return planes == 1 ? frame->dst : (size_t)frame->dst * planes + frame->plane;
}

/* Return the port by which a frame leaves `node`, not its destination; NONE without a next hop. */
static uint32_t next_port(struct packet_network *n, uint32_t node, struct frame *frame)
{
	if (n->look_up)
		return looked_up(n, node, frame);
	if (frame->step != NONE)
		return n->steps[frame->step++];
	if (node >= n->wiring.n_hosts)
		return by_table(n, node, frame, n->crew ? 0 : random_fraction(n));
	return node == frame->src ? departure(n, frame) : NONE;
}

/* Return 1 if message `number` may have a route; flows of the purified transport bear any number. */
static int has_route(const struct packet_network *n, uint32_t number)
{
	return n->step_room.count && number < n->message_room.count &&
	       (n->is_tcp || n->messages[number].flow == number);
}

/* Lose a frame that no port leads on. */
static void lose(struct packet_network *n, uint32_t index)
{
	n->unrouted++;
	free_frame(n, index);
}

/* Let a new frame of message `number` leave its host; 0 if the queue is full. */
static int depart(struct packet_network *n, uint32_t number, uint32_t end, uint32_t index)
{
	struct frame *frame = frame_at(n, index);
	uint32_t port;

	if (n->look_up)
		frame->step = 0;
	else
		frame->step = has_route(n, number) ? n->messages[number].routes[end] : NONE;
	port = next_port(n, frame->src, frame);
	if (port != NONE)
		return leave(n, port, index, 0);
	lose(n, index);
	return 1;
}

/* Hosts. */

static int grow_frames(struct packet_network *n)
{
	size_t most = n->frames_most ? 2 * n->frames_most : 1024;
	struct frame *frames = allocate(most, sizeof(*frames));
	struct place *places = allocate(most, sizeof(*places));
	uint32_t *over = n->rooms ? realloc(n->over, most * sizeof(*over)) : 0;
	uint32_t *came = n->flows.first ? realloc(n->came, most * sizeof(*came)) : 0;

	if (over)
		n->over = over;
	if (came)
		n->came = came;
	if (!frames || !places || (n->rooms && !over) || (n->flows.first && !came)) {
		free(frames);
		free(places);
		n->error = -ENOMEM;
		return 0;
	}
	if (n->frames_made) {
		memcpy(frames, n->frames, n->frames_made * sizeof(*frames));
		memcpy(places, n->places, n->frames_made * sizeof(*places));
	}
	free(n->frames);
	free(n->places);
	n->frames = frames;
	n->places = places;
	n->frames_most = most;
	return 1;
}

/* Return a free frame, NONE without memory. */
static uint32_t new_frame(struct packet_network *n)
{
	uint32_t index = n->free_frame;

	if (index != NONE)
		n->free_frame = n->places[index].next;
	else if (n->frames_made == n->frames_most && !grow_frames(n))
		return NONE;
	else
		index = n->frames_made++;
	if (n->rooms)
		n->over[index] = NONE;
	if (n->came)
		n->came[index] = NONE;
	return index;
}

static void emit(struct packet_network *n, uint32_t host,
		 const struct ndp_transmission *transmission)
{
	uint32_t index = new_frame(n);
	struct frame *frame;

	if (index == NONE)
		return;
	frame = frame_at(n, index);
	frame->packet = transmission->packet;
	frame->src = host;
	frame->dst = transmission->peer;
	n->places[index].length_bytes = NDP_FRAME_HEADER + transmission->payload_bytes;
	frame->code_point = transmission->payload_bytes ? TRIMMABLE : CONTROL;
	frame->retransmitted = transmission->retransmitted;
	frame->marked = 0;
	frame->chosen = 0;
	frame->departed = 0;
	frame->of_daemon = 0;
	frame->waypoint = 0;
	frame->hops = 0;
	depart(n, frame->packet.flow, transmission->packet.kind == NDP_DATA ? SENDER : RECEIVER,
	       index);
}

static void report(struct packet_network *n, uint32_t host, const struct ndp_event *event)
{
	if (grow(n, (void **)&n->ended, &n->ended_room, sizeof(*n->ended)))
		n->ended[n->ended_room.count++] =
			(struct host_event){ host, n->event.order, *event };
}

static void poll_host(struct packet_network *n, uint32_t host)
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
	while (ndp_take_event(endpoint, &event))
		report(n, host, &event);
	deadline = ndp_deadline(endpoint);
	if (deadline < n->wakes[host]) {
		n->wakes[host] = deadline;
		schedule(n, deadline > n->now ? deadline : n->now, DEADLINE, host, 0);
	}
}

/* Hosts without a transport. */

/* Return how many bytes of payload a full packet has. */
static uint32_t payload_of(const struct stream_parameters *stream)
{
	return stream->frame_bytes - stream->header_bytes;
}

static void report_end(struct packet_network *n, const struct message *m, uint32_t kind);

/* Let a host go back, if it is time. */
static void go_back(const struct packet_network *n, struct source *source)
{
	if (n->now < source->back_ns)
		return;
	source->sent = source->back;
	source->back_ns = NDP_NEVER;
	source->turns++;
}

/* Let a host make its next packet, unless one waits there, or it is too early. */
static void pull(struct packet_network *n, uint32_t host)
{
	struct source *source = &n->sources[host];
	uint32_t number = source->first, payload_bytes = payload_of(&n->stream), index;
	struct message *m;
	uint64_t left_bytes;

	if (number == NONE || source->waits || n->now < source->due_ns)
		return;
	m = &n->messages[number];
	go_back(n, source);
	if (source->sent == m->end)
		return;
	index = new_frame(n);
	if (index == NONE)
		return;
	left_bytes = m->size_bytes - (uint64_t)source->sent * payload_bytes;
	if (payload_bytes > left_bytes)
		payload_bytes = left_bytes;
	*frame_at(n, index) = (struct frame){
		.packet = { .number = source->turns,
			    .kind = NDP_DATA,
			    .flow = number,
			    .sequence = source->sent },
		.src = host,
		.dst = m->dst,
	};
	n->places[index].length_bytes = n->stream.header_bytes + payload_bytes;
	source->waits = 1;
	source->due_ns =
		n->now + NS_PER_BYTE_AT_1_BPS * n->places[index].length_bytes / n->stream.rate_bps;
	schedule(n, source->due_ns, DEADLINE, host, 0);
	if (++source->sent == m->end && !n->stream.go_back_ns) {
		source->first = m->next;
		source->sent = 0;
	}
	depart(n, number, SENDER, index);
}

/* Let a message follow those that its host has not sent. */
static void begin_stream(struct packet_network *n, uint32_t number)
{
	struct message *m = &n->messages[number];
	struct source *source = &n->sources[m->src];

	m->next = NONE;
	m->end = (m->size_bytes + payload_of(&n->stream) - 1) / payload_of(&n->stream);
	if (source->first == NONE)
		source->first = number;
	else
		n->messages[source->last].next = number;
	source->last = number;
	pull(n, m->src);
}

/* Go-back-N: drop a packet, and let its host go back if it comes early, and is of the host's last turn. */
static void refuse(struct packet_network *n, struct message *m, const struct ndp_packet *packet)
{
	struct source *source = &n->sources[m->src];

	m->stream.counters.refused += n->now >= n->stream.counted_from_ns;
	if (packet->sequence < m->stream.next || packet->number != source->turns ||
	    source->back_ns != NDP_NEVER)
		return;
	source->back = m->stream.next;
	source->back_ns = n->now + n->stream.go_back_ns;
	schedule(n, source->back_ns, DEADLINE, m->src, 0);
}

/* Go-back-N: begin the message after one that has arrived. */
static void follow(struct packet_network *n, const struct message *m)
{
	struct source *source = &n->sources[m->src];

	source->first = m->next;
	source->sent = 0;
	source->back_ns = NDP_NEVER;
	pull(n, m->src);
}

static void receive_packet(struct packet_network *n, const struct frame *frame)
{
	struct message *m = &n->messages[frame->packet.flow];

	if (n->stream.go_back_ns && frame->packet.sequence != m->stream.next) {
		refuse(n, m, &frame->packet);
		return;
	}
	stream_receive(&m->stream, frame->packet.sequence, n->now - frame->departed_ns,
		       n->now >= n->stream.counted_from_ns);
	if (m->stream.arrived == m->end) {
		report_end(n, m, NDP_DELIVERED);
		report_end(n, m, NDP_FINISHED);
		if (n->stream.go_back_ns)
			follow(n, m);
	}
}

/* TCP. */

static struct pair_memory *pair_of(const struct packet_network *n, uint32_t src, uint32_t dst)
{
	return n->pairs ? &n->pairs[mix(mix(0, src), dst) & (n->n_pairs - 1)] : 0;
}

/* Let an end of a flow leave its layer. */
static void draw_layer(struct packet_network *n, struct flow *choice, struct pair_memory *pair)
{
	choice->layer = next_layer(pair, &n->layers, choice->layer, random_bits(n));
}

/* Choose the first layer of an end of a flow, as a host's program does (layers.bpf.c, new_flow). */
static struct flow first_choice(struct packet_network *n, struct pair_memory *pair)
{
	struct flow choice = { .last_ns = n->now };

	if (n->layers.layers > 1 && n->layers.start == START_RANDOM)
		choice.layer = next_layer(pair, &n->layers, LAYERS, random_bits(n));
	else if (n->layers.layers > 1 && n->layers.start == START_IN_TURN)
		choice.layer = pair->turn++ % n->layers.layers;
	return choice;
}

/* Return the sequence number of a sender's segment: its SYN has one, and each packet of data. */
static uint32_t first_of(const struct tcp_segment *segment)
{
	return segment->kind == TCP_SYN ? 0 : segment->sequence + 1;
}

/* Return the layer of a segment, as a host's program chooses it (layers.bpf.c, layer_of). */
static uint8_t layer_of(struct packet_network *n, struct flow *choice, struct pair_memory *pair,
			const struct tcp_segment *segment, uint32_t length_bytes)
{
	const struct settings *settings = &n->layers;
	uint32_t first = first_of(segment);
	int is_data = segment->kind == TCP_DATA || segment->kind == TCP_SYN, again = 0;

	if (settings->layers < 2)
		return 0;
	if (settings->trigger & ON_GAP)
		again = ends_gap(choice, settings->gap_us, n->now);
	if (settings->trigger & ON_BYTES)
		again |= begins_cell(choice, settings->cell_kb, length_bytes - ETHERNET_HEADER);
	if (!is_data)
		note_answer(choice, segment->sequence + 1);
	if (is_data && settings->trigger & (ON_CUT | ON_ECN | ON_DRAINED))
		again |= events_shown(choice, settings, first, first + 1, segment->reduced) != 0;
	if (again)
		draw_layer(n, choice, pair);
	return choice->layer;
}

/* Send a segment of message `number` from one of its ends; 0 if the host's queue is full. */
static int emit_segment(struct packet_network *n, uint32_t number, uint32_t end,
			struct tcp_segment *segment)
{
	struct message *m = &n->messages[number];
	uint32_t index = new_frame(n), host = end == SENDER ? m->src : m->dst;
	uint32_t peer = end == SENDER ? m->dst : m->src, length_bytes;

	if (index == NONE)
		return 0;
	segment->flow = number;
	length_bytes = tcp_frame_bytes(m->tcp, segment);
	segment->layer = n->tcp.label ? tcp_label(m->tcp, end == RECEIVER) :
					layer_of(n, &m->ends[end].choice, pair_of(n, host, peer),
						 segment, length_bytes);
	*frame_at(n, index) = (struct frame){ .segment = *segment, .src = host, .dst = peer };
	n->places[index].length_bytes = length_bytes;
	return depart(n, number, end, index);
}

static void wake_at(struct packet_network *n, uint32_t number, uint32_t end, uint64_t deadline)
{
	struct message *m = &n->messages[number];

	if (deadline < m->ends[end].wake) {
		m->ends[end].wake = deadline;
		schedule(n, deadline, DEADLINE, number, end);
	}
}

/* Send what the window of message `number` allows. */
static void transmit(struct packet_network *n, uint32_t number)
{
	struct message *m = &n->messages[number];
	struct flow_end *end = &m->ends[SENDER];
	struct tcp_segment segment;

	end->is_throttled = 0;
	while (!n->error && tcp_next(m->tcp, n->now, &segment)) {
		if (n->tcp.small_queues && end->waiting > tcp_most_waiting(m->tcp, &segment)) {
			end->is_throttled = 1;
			break;
		}
		if (!emit_segment(n, number, SENDER, &segment)) {
			tcp_refused(m->tcp, n->now, &segment);
			break;
		}
		tcp_sent(m->tcp, n->now, &segment);
	}
	tcp_pause(m->tcp, n->now);
	wake_at(n, number, SENDER, tcp_sender_deadline(m->tcp));
}

static void report_end(struct packet_network *n, const struct message *m, uint32_t kind)
{
	struct ndp_event event = { .time_ns = n->now,
				   .size_bytes = m->size_bytes,
				   .peer = kind == NDP_DELIVERED ? m->src : m->dst,
				   .flow = m->flow,
				   .kind = kind };

	report(n, kind == NDP_DELIVERED ? m->dst : m->src, &event);
}

static const uint32_t *hop_entry(const struct packet_network *n, uint32_t node,
				 const struct frame *frame);

/* Return the port by which the first packet of a flow would leave `node`; NONE without one.
 *
 * In parts, another thread may run `node`, so that its memory of packets is left alone: where that would
 * choose, the first of the shortest ways stands for all. */
static uint32_t handshake_port(struct packet_network *n, uint32_t node, struct frame *frame)
{
	const struct packet_wiring *w = &n->wiring;
	const uint16_t *set;

	if (!n->crew || frame->step != NONE || node < w->n_hosts || w->rule.rule == FLOW_HASH ||
	    w->rule.rule == KERNEL || n->last_switch[last_place(n, frame)] == node - w->n_hosts)
		return next_port(n, node, frame);
	set = &w->hop_sets[*hop_entry(n, node, frame)];
	return set[0] ? w->first_port[node] + set[1] : NONE;
}

/* Return how long a handshake takes on idle links, if both directions are equally long. */
static uint64_t handshake_ns(struct packet_network *n, uint32_t number)
{
	const struct message *m = &n->messages[number];
	/* on the stack, so without a place in n->frames: what next_port() calls asks only for its fields */
	struct frame frame = { .segment = { .flow = number, .layer = m->ends[SENDER].choice.layer },
			       .src = m->src,
			       .dst = m->dst,
			       .of_daemon = 1, /* no packet of the flow */
			       .step = m->routes[SENDER] };
	uint64_t rtt_ns = 0;

	if (n->look_up)
		frame.step = 0;
	for (uint32_t node = m->src, hops = 0; node != m->dst && hops < 2 * TTL; hops++) {
		uint32_t port = handshake_port(n, node, &frame);

		if (port == NONE)
			break;
		rtt_ns += 2 * (link_of(n, port)->delay_ns +
			       transmission_ns(link_of(n, port), tcp_header_bytes(&n->tcp)));
		node = n->wiring.peer[port];
	}
	return rtt_ns;
}

static void open_connection(struct packet_network *n, uint32_t number)
{
	struct message *m = &n->messages[number];

	m->last = NONE;
	for (int end = SENDER; end <= RECEIVER; end++)
		m->ends[end] = (struct flow_end){ .wake = TCP_NEVER, .next = NONE };
	m->tcp = tcp_new(&n->tcp, number, &n->arena);
	if (!m->tcp) {
		n->error = -ENOMEM;
		return;
	}
	m->ends[SENDER].choice = first_choice(n, pair_of(n, m->src, m->dst));
	m->ends[RECEIVER].choice = first_choice(n, pair_of(n, m->dst, m->src));
	if (n->tcp.one_message)
		tcp_open(m->tcp, n->now, handshake_ns(n, number));
}

static void begin_tcp(struct packet_network *n, uint32_t number)
{
	struct message *m = &n->messages[number], *connection = &n->messages[m->connection];

	if (!connection->tcp)
		open_connection(n, m->connection);
	m->next = NONE;
	m->end = n->error ? 0 : tcp_write(connection->tcp, n->now, m->size_bytes);
	if (!m->end) {
		n->error = -ENOMEM;
		return;
	}
	if (connection->last != NONE)
		n->messages[connection->last].next = number;
	connection->last = number;
	for (int end = SENDER; end <= RECEIVER; end++)
		if (connection->ends[end].next == NONE)
			connection->ends[end].next = number;
	transmit(n, m->connection);
}

/* Report messages of a connection up to packet `end`, and go on to the next in *first. */
static void end_messages(struct packet_network *n, uint32_t *first, uint32_t end, uint32_t kind)
{
	while (*first != NONE && n->messages[*first].end <= end) {
		report_end(n, &n->messages[*first], kind);
		*first = n->messages[*first].next;
	}
}

/* Let the host that sends a flow learn from an acknowledgement (layers.bpf.c, hear). */
static void take_acknowledgement(struct packet_network *n, struct message *m,
				 const struct tcp_segment *segment)
{
	struct pair_memory *pair;

	if (n->layers.layers < 2 || !hears_acknowledgements(&n->layers))
		return;
	pair = pair_of(n, m->src, m->dst);
	if (hear_acknowledgement(pair, &m->ends[SENDER].choice, &n->layers, segment->sequence + 1,
				 segment->kind == TCP_SYN_ACK, segment->congested))
		draw_layer(n, &m->ends[SENDER].choice, pair);
}

/* Let the host that receives a flow learn from what it has acknowledged before (layers.bpf.c, hear). */
static void take_data(struct packet_network *n, struct message *m,
		      const struct tcp_segment *segment)
{
	struct flow *choice = &m->ends[RECEIVER].choice;
	uint32_t first = first_of(segment);

	if (n->layers.layers > 1 && n->layers.trigger & ON_REPEAT &&
	    shows_lost_answers(choice, first, first + 1))
		draw_layer(n, choice, pair_of(n, m->dst, m->src));
}

static void receive_segment(struct packet_network *n, uint32_t host,
			    const struct tcp_segment *segment)
{
	struct message *m = &n->messages[segment->flow];
	struct tcp_segment answers[TCP_MOST_ANSWERS];
	int n_answers;

	if (host == m->src) {
		take_acknowledgement(n, m, segment);
		tcp_answered(m->tcp, n->now, segment);
		end_messages(n, &m->ends[SENDER].next, tcp_acknowledged(m->tcp), NDP_FINISHED);
		transmit(n, segment->flow);
		return;
	}
	take_data(n, m, segment);
	n_answers = tcp_receive(m->tcp, n->now, segment, answers);
	for (int i = 0; i < n_answers; i++)
		emit_segment(n, segment->flow, RECEIVER, &answers[i]);
	wake_at(n, segment->flow, RECEIVER, tcp_receiver_deadline(m->tcp));
	end_messages(n, &m->ends[RECEIVER].next, tcp_delivered(m->tcp), NDP_DELIVERED);
}

/* Handle the deadline of one end, unless it has been put off. */
static void wake_tcp(struct packet_network *n, uint32_t number, uint32_t end)
{
	struct message *m = &n->messages[number];
	struct tcp_segment answer;

	if (m->ends[end].wake > n->now)
		return; /* superseded by an earlier one */
	m->ends[end].wake = TCP_NEVER;
	if (end == SENDER) {
		if (tcp_sender_deadline(m->tcp) <= n->now)
			tcp_expire(m->tcp, n->now);
		transmit(n, number);
		return;
	}
	if (tcp_receiver_deadline(m->tcp) <= n->now) {
		tcp_delayed_answer(m->tcp, &answer);
		emit_segment(n, number, RECEIVER, &answer);
	}
	wake_at(n, number, RECEIVER, tcp_receiver_deadline(m->tcp));
}

/* Switches. */

static int has_detours(const struct packet_rule *rule)
{
	return rule->rule == VALIANT || rule->rule == UGAL;
}

static const uint32_t *hop_entry(const struct packet_network *n, uint32_t node,
				 const struct frame *frame)
{
	const struct packet_wiring *w = &n->wiring;
	uint8_t layer = n->is_tcp ? frame->segment.layer : frame->packet.layer;
	size_t row = (w->layers > 1 ? layer : 0) * (size_t)w->n_switches + node - w->n_hosts;
	uint32_t last = n->last_switch[last_place(n, frame)];

	if (has_detours(&w->rule) && frame->waypoint)
		last = frame->waypoint - 1;
	return &w->hops[row * w->n_switches + last];
}

/* A packet at a switch, and its candidate ports. */
struct choice {
	struct packet_network *network;
	const uint16_t *candidates;
	uint32_t first_port;
	uint32_t node;
	struct frame *frame;
};

static __always_inline __u32 load_of(void *context, __u32 candidate)
{
	const struct choice *choice = context;
	const struct packet_network *n = choice->network;
	const struct port *port = &n->ports[choice->first_port + choice->candidates[candidate]];

	uint32_t bytes = port->data.bytes + port->headers.bytes;
	uint32_t packets = port->data.packets + port->headers.packets;

	if (port->again) {
		bytes += port->retransmitted.bytes;
		packets += port->retransmitted.packets;
	}
	return n->wiring.rule.load ? bytes : packets;
}

static __always_inline __u32 draw(void *context)
{
	return random_bits(((struct choice *)context)->network) >> 32;
}

static __always_inline __u32 candidates_to(void *context, __u32 waypoint)
{
	struct choice *choice = context;
	struct packet_network *n = choice->network;
	const uint16_t *set;

	choice->frame->waypoint = waypoint;
	set = &n->wiring.hop_sets[*hop_entry(n, choice->node, choice->frame)];
	choice->candidates = set + 1;
	return set[0];
}

static __always_inline __u64 sample_towards(void *context, __u32 waypoint)
{
	__u32 towards = candidates_to(context, waypoint);
	__u32 candidate;

	if (!towards)
		return NO_SAMPLE;
	candidate = below(draw(context), towards);
	return (__u64)load_of(context, candidate) << 32 | candidate;
}

static __always_inline __u32 hops_between(void *context, __u32 a, __u32 b)
{
	const struct packet_wiring *w = &((struct choice *)context)->network->wiring;

	return w->distances[(size_t)a * w->n_switches + b];
}

static uint32_t host_of(const struct packet_network *n, uint32_t number, const struct frame *frame)
{
	const struct digit *digits = (const struct digit *)n->wiring.digits + DIGITS * number;

	return host_number(n->wiring.addresses[frame->dst], digits);
}

/* An entropy value or a label makes of a flow another: layer 0 is the flow itself. */
static uint32_t hash_of(const struct packet_network *n, uint32_t number, const struct frame *frame)
{
	uint32_t seed = mix(n->wiring.rule.seed, number), value;

	if (n->is_tcp)
		value = n->tcp.label ? frame->segment.layer : 0;
	else
		value = frame->packet.layer;
	return flow_hash(seed, frame->src, frame->dst, flow_of(n, frame) ^ value << 24, UDP);
}

/* Return what a switch remembers of a frame's flow. */
static struct flowlet_entry *flowlet_of(const struct packet_network *n, uint32_t number,
					const struct frame *frame)
{
	uint32_t hash = hash_of(n, number, frame);

	return &n->flowlets[number << FLOWLET_BITS | (hash & ((1 << FLOWLET_BITS) - 1))];
}

static uint32_t next_flowlet(struct choice *choice, uint32_t number, const struct frame *frame,
			     uint32_t hops)
{
	struct packet_network *n = choice->network;
	struct flowlet_entry *entry = flowlet_of(n, number, frame);

	entry->candidate = flowlet(choice, hops, entry->candidate, n->now - entry->last_ns,
				   n->wiring.rule.gap_us * 1000ull);
	entry->last_ns = n->now;
	return entry->candidate;
}

_Static_assert(sizeof(((struct packet_rule *)0)->own) == MOST_PARAMETERS * sizeof(uint32_t),
	       "a rule has as many parameters in both headers");

static uint32_t load_of_candidate(void *context, uint32_t candidate)
{
	return load_of(context, candidate);
}

static uint32_t draw_bits(void *context)
{
	return draw(context);
}

static uint32_t own_candidate(struct choice *choice, uint32_t number, const struct frame *frame,
			      struct set_memory *memory, uint32_t hops)
{
	struct packet_network *n = choice->network;
	struct call call = { choice, load_of_candidate, draw_bits, hops };
	struct arrival arrival = {
		.flow = hash_of(n, number, frame),
		.host = host_of(n, number, frame),
		.memory = memory->turn,
	};
	uint32_t chosen = n->wiring.choose(&call, &arrival, n->wiring.rule.own);

	memory->turn = arrival.memory;
	return chosen;
}

/* Return the port whose turn it is in the link group of a frame (LBSP, section 3.2). */
static uint32_t next_lbsp(struct choice *choice, uint32_t number, const struct frame *frame,
			  uint32_t hops)
{
	struct packet_network *n = choice->network;
	const struct packet_rule *rule = &n->wiring.rule;
	/* a switch of hosts groups by the first bits, one above by the next (as select.bpf.c) */
	uint32_t shift =
		n->wiring.peer[choice->first_port] < n->wiring.n_hosts ? 0 : rule->group_bits;
	uint32_t flow = rule->hash ? flow_hash(0, frame->src, frame->dst, flow_of(n, frame), UDP) :
				     host_of(n, number, frame);
	uint32_t own = flow >> (shift & 31) & (rule->groups - 1);
	struct port *first = &n->ports[choice->first_port + choice->candidates[own % hops]];

	return in_turn(own, first->turn++, hops, rule->groups);
}

/* Return the candidate for a packet at switch `number`, as select.bpf.c does (choose_candidate()).
 *
 * frame: its packet is all that a rule may read; that of handshake_ns() has no place in n->frames, so
 * data_bytes() and n->places do not know it.  random: in [0, 1). */
static uint32_t choose_candidate(struct packet_network *n, uint32_t number,
				 const struct frame *frame, const uint16_t *set, double random)
{
	const struct packet_rule *rule = &n->wiring.rule;
	uint32_t hops = set[0], node = n->wiring.n_hosts + number;
	struct choice choice = { n, set + 1, n->wiring.first_port[node], node, 0 };
	struct set_memory *memory = &n->memories[set - n->wiring.hop_sets];
	uint32_t winner;

	if (rule->rule == RANDOM)
		return (n->crew ? random_fraction(n) : random) * hops;
	if (rule->rule == FLOW_HASH || rule->rule == KERNEL)
		return below(hash_of(n, rule->alike ? 0 : number, frame), hops);
	if (hops == 1)
		return 0;
	/* without default: the compiler asks for a case for each rule */
	switch ((enum rule)rule->rule) {
	case D_MOD_K:
		return d_mod_k(host_of(n, number, frame), hops);
	case TTC:
		return ttc(&choice, hops, d_mod_k(host_of(n, number, frame), hops), rule->delta,
			   rule->tie);
	case ROUND_ROBIN: /* switches begin at different ports */
		return (mix(rule->seed, number) + memory->turn++) % hops;
	case DRILL:
		winner = drill(&choice, hops, rule->m ? memory->winner - 1 : ~0u, rule->d);
		memory->winner = winner + 1;
		return winner;
	case FLOWLET:
		return next_flowlet(&choice, number, frame, hops);
	case LBSP:
		return next_lbsp(&choice, number, frame, hops);
	case OWN:
		return own_candidate(&choice, number, frame, memory, hops);
	case SHORTEST:
		return shortest(&choice, hops);
	case KERNEL: /* these choose before, or elsewhere */
	case FLOW_HASH:
	case RANDOM:
	case DAR:
	case VALIANT:
	case UGAL:
		break;
	}
	n->error = -ENOSYS;
	return 0;
}

/* Choose the waypoint of a frame at its source's switch; return its candidate there. */
static uint32_t choose_detour(struct choice *choice)
{
	struct packet_network *n = choice->network;
	const struct packet_rule *rule = &n->wiring.rule;
	struct trip trip = {
		.source = choice->node - n->wiring.n_hosts,
		.destination = n->last_switch[choice->frame->dst],
		.switches = n->wiring.n_switches,
	};
	struct detour chosen;

	if (rule->rule == UGAL)
		chosen = ugal(choice, &trip, rule->d, rule->delta);
	else
		chosen = valiant(choice, &trip);
	candidates_to(choice, chosen.waypoint);
	return chosen.candidate;
}

/* Choose a frame's waypoint as choose_detour() does, or as for the last frame of its flowlet. */
static uint32_t next_detour(struct choice *choice)
{
	struct packet_network *n = choice->network;
	struct frame *frame = choice->frame;
	uint64_t gap_ns = n->wiring.rule.gap_us * 1000ull, idle_ns;
	struct flowlet_entry *entry;
	uint32_t candidate;

	if (!gap_ns)
		return choose_detour(choice);
	entry = flowlet_of(n, choice->node - n->wiring.n_hosts, frame);
	idle_ns = n->now - entry->last_ns;
	entry->last_ns = n->now;
	if (!keeps_detour(choice, entry->candidate, idle_ns, gap_ns)) {
		candidate = choose_detour(choice);
		entry->candidate = packed_detour(frame->waypoint, candidate);
	}
	return candidate_of(entry->candidate);
}

/* Return the output port of a frame at a switch under a rule with detours; NONE without a next hop. */
static uint32_t by_detour(struct packet_network *n, uint32_t node, struct frame *frame)
{
	const struct packet_wiring *w = &n->wiring;
	struct choice choice = { n, 0, w->first_port[node], node, frame };
	uint32_t number = node - w->n_hosts, hops, candidate;
	int is_first = !frame->chosen && n->last_switch[frame->dst] != number;

	if (frame->waypoint &&
	    (frame->waypoint == number + 1 || !candidates_to(&choice, frame->waypoint)))
		frame->waypoint = 0;
	if (!frame->waypoint && n->last_switch[frame->dst] == number)
		return w->last_port[frame->dst];
	hops = candidates_to(&choice, frame->waypoint);
	if (!hops)
		return NONE;
	if (is_first)
		candidate = next_detour(&choice);
	else if (w->rule.gap_us)
		candidate = below(hash_of(n, number, frame), hops);
	else
		candidate = below(draw(&choice), hops);
	frame->chosen = 1;
	return choice.first_port + choice.candidates[candidate];
}

/* Flows that daemons place (DAR), as in ../data_plane/select.bpf.c. */

static int is_host_of(const struct packet_network *n, uint32_t node, uint32_t host)
{
	return n->last_switch[host] == node - n->wiring.n_hosts;
}

/* Return the bytes of data in a frame of n->frames; an acknowledgement makes no flow. */
static uint32_t data_bytes(const struct packet_network *n, const struct frame *frame)
{
	uint32_t length_bytes = n->places[frame - n->frames].length_bytes;

	if (n->is_tcp)
		return frame->segment.kind == TCP_DATA ? length_bytes - tcp_header_bytes(&n->tcp) :
							 0;
	if (n->sources)
		return length_bytes - n->stream.header_bytes;
	return frame->packet.kind == NDP_DATA ? length_bytes - NDP_FRAME_HEADER : 0;
}

/* Return the port at which a flow begins if all to its destination go together: that of those flows, or
 * else `start`, which is theirs from now on. */
static uint32_t shared_port(struct packet_network *n, uint32_t node, uint32_t host, uint32_t start)
{
	uint32_t *port =
		&n->shared_ports[(size_t)(node - n->wiring.n_hosts) * n->wiring.n_hosts + host];

	if (!*port)
		*port = start + 1;
	return *port - 1;
}

static void update_flow(struct packet_network *n, struct noted_flow *flow, uint32_t bytes,
			uint32_t sequence, uint32_t came)
{
	flow->last_ns = n->now;
	flow->bytes += bytes;
	if (came == NONE || sequence < flow->sequence)
		return;
	flow->sequence = sequence;
	if (flow->port != came)
		flow->moved_ns = n->now;
	flow->port = came;
}

/* Report a packet that joins a queue beyond the threshold, unless its flow rests (DAR, figure 8). */
static void report_queue(struct packet_network *n, uint32_t node, struct noted_flow *flow,
			 uint32_t came)
{
	uint64_t last_ns = came == NONE ? flow->moved_ns : flow->queued_ns;
	struct ndp_event event = {
		.time_ns = n->now, .flow = flow->message, .peer = flow->port, .kind = PACKET_QUEUED
	};

	if (last_ns && n->now - last_ns < n->wiring.rule.rest_us * 1000ull)
		return;
	if (came != NONE)
		flow->queued_ns = n->now;
	report(n, node, &event);
}

/* Return the full packets that wait for a port, beyond its output buffer. */
static uint32_t full_packets(const struct packet_network *n, uint32_t number)
{
	const struct port *port = &n->ports[number];
	uint32_t bytes = port->data.bytes + port->headers.bytes + port->retransmitted.bytes;

	if (n->rooms) {
		const struct link_room *room = &n->rooms[number];

		bytes -= room->buffered_bytes - (room->leaves_buffer ? room->leaving_bytes : 0);
	}
	return bytes / n->wiring.rule.frame_bytes;
}

/* Note a frame's flow; return the port that the frame leaves by.
 *
 * out: the port of a flow that is in no table.  start: at which a flow begins that enters the table now.
 * came: NONE for a frame from a host of this switch. */
static uint32_t follow_flow(struct packet_network *n, uint32_t node, const struct frame *frame,
			    uint32_t out, uint32_t start, uint32_t came)
{
	const struct packet_rule *rule = &n->wiring.rule;
	uint32_t message = flow_of(n, frame), bytes = data_bytes(n, frame), host = frame->dst;
	uint32_t sequence = n->is_tcp ? frame->segment.sequence : frame->packet.sequence;
	struct noted_flow *flow;

	if (!bytes)
		return out;
	flow = flow_find(&n->flows, node, message);
	if (!flow)
		flow = flow_add(&n->flows, node, message);
	if (!flow) {
		n->error = -ENOMEM;
		return out;
	}
	if (flow->noted) {
		update_flow(n, flow, bytes, sequence, came);
		if (came == NONE)
			out = flow->port;
		/* at the last switch nobody could move the flow away from its destination's port */
		if (rule->detect && !is_host_of(n, node, host) &&
		    full_packets(n, out) >= rule->queue)
			report_queue(n, node, flow, came);
		return out;
	}
	flow->bytes += bytes;
	if (flow->bytes < rule->elephant_kb * 1000ull)
		return out;
	if (came == NONE && n->shared_ports)
		start = shared_port(n, node, host, start);
	flow->noted = 1;
	flow->port = came == NONE ? start : came;
	flow->last_ns = n->now;
	flow->moved_ns = flow->queued_ns = 0;
	flow->sequence = sequence;
	return came == NONE ? start : out;
}

/* Return the port at which a flow begins, of those in `set`. */
static uint32_t start_port(const struct packet_network *n, uint32_t node, const struct frame *frame,
			   const uint16_t *set, uint32_t hashed)
{
	const struct packet_wiring *w = &n->wiring;
	const struct digit *digits = (const struct digit *)w->digits + DIGITS * (node - w->n_hosts);
	uint32_t number;

	if (w->rule.start == START_BY_SOURCE)
		number = host_digit(w->addresses[frame->src], digits);
	else if (w->rule.start == START_BY_DESTINATION)
		number = host_number(w->addresses[frame->dst], digits);
	else
		return hashed;
	return w->first_port[node] + set[1 + number % set[0]];
}

/* Return the output port of a frame at a switch that follows flows.
 *
 * Until all switches know of a failure, some packets take a detour by another leaf, which must not send
 * them back. */
static uint32_t by_flow(struct packet_network *n, uint32_t node, const struct frame *frame,
			const uint16_t *set)
{
	const struct packet_wiring *w = &n->wiring;
	uint32_t number = node - w->n_hosts, first = w->first_port[node], came;
	uint32_t candidate = below(hash_of(n, number, frame), set[0]);
	uint32_t hashed = first + set[1 + candidate];
	int is_spine = w->peer[first] >= w->n_hosts;

	if (frame->of_daemon)
		return hashed;
	if (is_host_of(n, node, frame->src)) {
		if (set[0] == 1)
			return hashed;
		return follow_flow(n, node, frame, hashed, start_port(n, node, frame, set, hashed),
				   NONE);
	}
	came = n->came[frame - n->frames];
	if (w->peer[hashed] == n->owners[came] && set[0] > 1)
		hashed = first + set[1 + wrap(candidate + 1, set[0])];
	if (is_spine && w->rule.detect)
		follow_flow(n, node, frame, hashed, 0, came);
	return hashed;
}

/* Return the output port of `frame` at `node`, a switch, by its table; NONE without a next hop.
 *
 * random: in [0, 1). */
static uint32_t by_table(struct packet_network *n, uint32_t node, struct frame *frame,
			 double random)
{
	const struct packet_wiring *w = &n->wiring;
	uint32_t number = node - w->n_hosts;
	const uint16_t *set;

	if (!w->hops)
		return NONE;
	if (has_detours(&w->rule))
		return by_detour(n, node, frame);
	if (n->last_switch[last_place(n, frame)] == number) {
		if (w->rule.rule == DAR && !frame->of_daemon && !is_host_of(n, node, frame->src))
			follow_flow(n, node, frame, 0, 0, n->came[frame - n->frames]);
		return w->last_port[last_place(n, frame)];
	}
	set = &w->hop_sets[*hop_entry(n, node, frame)];
	if (!set[0])
		return NONE;
	if (w->rule.rule == DAR)
		return by_flow(n, node, frame, set);
	return w->first_port[node] + set[1 + choose_candidate(n, number, frame, set, random)];
}

/* Return 1 if a node that forwards a frame ends it, because tables that change may form a loop. */
static int expires(const struct packet_network *n, uint32_t node, struct frame *frame)
{
	return n->live && !is_crossbar(n, node, frame) && ++frame->hops == TTL;
}

/* Return the port by which an arriving frame leaves `node`, as fetch_behind_arrival() has found. */
static uint32_t known_port(struct packet_network *n, uint32_t index, uint32_t node)
{
	uint32_t port = n->places[index].next;

	if (port == NONE || n->is_rerouted || n->live)
		return next_port(n, node, frame_at(n, index));
	if (!n->crew)
		random_bits(n); /* as next_port() draws */
	return port;
}

static void arrive(struct packet_network *n, uint32_t index, uint32_t node)
{
	struct frame *frame = frame_at(n, index);
	uint32_t port;
	int whole;

	if (node != frame->dst) {
		if (n->rooms && n->over[index] != NONE)
			take_room(n, index);
		port = expires(n, node, frame) ? NONE : known_port(n, index, node);
		if (port == NONE)
			lose(n, index);
		else
			leave(n, port, index, 1);
		return;
	}
	if (frame->of_daemon) {
		struct ndp_event event = { .time_ns = n->now,
					   .flow = frame->step,
					   .kind = PACKET_HEARD };

		free_frame(n, index);
		report(n, node, &event);
		return;
	}
	if (n->is_tcp) {
		struct tcp_segment segment = frame->segment;

		free_frame(n, index);
		receive_segment(n, node, &segment);
		return;
	}
	if (n->sources) {
		receive_packet(n, frame);
		free_frame(n, index);
		return;
	}
	whole = frame->packet.kind != NDP_DATA || frame->code_point == TRIMMABLE;
	ndp_receive(n->endpoints[node], n->now, frame->src, &frame->packet, whole,
		    whole ? frame->marked : frame->code_point == TRIMMED);
	free_frame(n, index);
	poll_host(n, node);
}

static void begin(struct packet_network *n, uint32_t number)
{
	const struct message *m = &n->messages[number];
	int error;

	if (n->is_tcp) {
		begin_tcp(n, number);
		return;
	}
	if (n->sources) {
		begin_stream(n, number);
		return;
	}
	error = ndp_send(n->endpoints[m->src], n->now, m->flow, m->dst, m->size_bytes);
	if (error)
		n->error = error;
	else
		poll_host(n, m->src);
}

static void run_event(struct packet_network *n, const struct event *event)
{
	uint32_t kind = event_kind(event);

	n->now = event->time;
	if (kind == PORT_IDLE) {
		finish(n, event->subject);
	} else if (kind == ARRIVAL) {
		arrive(n, event->subject, event->place);
	} else if (kind == ROOM) {
		hear(n, event->subject, event->place);
	} else if (kind == MESSAGE) {
		begin(n, event->subject);
	} else if (n->is_tcp) {
		wake_tcp(n, event->subject, event->place);
	} else if (n->sources) {
		pull(n, event->subject);
	} else if (n->wakes[event->subject] <= n->now) { /* else superseded by an earlier one */
		n->wakes[event->subject] = NDP_NEVER;
		poll_host(n, event->subject);
	}
}

/* These are inline, as GCC takes a function that only fetches for one without effect, and drops its calls. */

/* Fetch what an arrival needs beside its frame. */
static __always_inline void fetch_of_arrival(struct packet_network *n, const struct event *arrival)
{
	const struct frame *frame = frame_at(n, arrival->subject);

	if (arrival->place == frame->dst) {
		if (frame->of_daemon)
			return;
		if (n->is_tcp || n->sources)
			__builtin_prefetch(&n->messages[flow_of(n, frame)].tcp);
		else
			__builtin_prefetch(n->endpoints[arrival->place], 1);
	} else if (frame->step != NONE && !n->look_up) {
		__builtin_prefetch(&n->steps[frame->step]);
	} else if (arrival->place >= n->wiring.n_hosts && n->wiring.hops) {
		__builtin_prefetch(hop_entry(n, arrival->place, frame));
	}
}

static __always_inline void fetch_set(struct packet_network *n, const struct event *arrival)
{
	const struct frame *frame = frame_at(n, arrival->subject);

	if (frame->step == NONE && arrival->place >= n->wiring.n_hosts && n->wiring.hops)
		__builtin_prefetch(&n->wiring.hop_sets[*hop_entry(n, arrival->place, frame)]);
}

/* Fetch the port by which an arriving frame will leave, if it is known, or its flow of TCP. */
static __always_inline void fetch_behind_arrival(struct packet_network *n,
						 const struct event *arrival)
{
	struct frame *frame = frame_at(n, arrival->subject);
	uint32_t node = arrival->place, rule = n->wiring.rule.rule;

	if (node == frame->dst) {
		if (n->is_tcp && !frame->of_daemon)
			tcp_fetch(n->messages[frame->segment.flow].tcp,
				  frame->segment.kind == TCP_DATA);
	} else if (frame->step != NONE && !n->look_up) {
		__builtin_prefetch(&n->ports[n->steps[frame->step]], 1);
	} else if ((rule == FLOW_HASH || rule == KERNEL) && node >= n->wiring.n_hosts) {
		uint32_t port = by_table(n, node, frame, 0);

		if (port != NONE)
			__builtin_prefetch(&n->ports[port], 1);
		n->places[arrival->subject].next = port;
	}
}

/* Fetch the memory that the next events of a lane will use. */
static void fetch_ahead(struct packet_network *n, uint32_t lane)
{
	const struct event *far = event_ahead(&n->events, lane, FAR_AHEAD);
	const struct event *near = event_ahead(&n->events, lane, NEAR_AHEAD);
	const struct event *set = event_ahead(&n->events, lane, SET_AHEAD);
	const struct event *next = event_ahead(&n->events, lane, NEXT_AHEAD);

	if (event_kind(&n->event) == MESSAGE) /* so are all of its lane */
		return;
	if (far && event_kind(far) != ARRIVAL)
		__builtin_prefetch(&n->ports[far->subject], 1);
	else if (far) {
		__builtin_prefetch(frame_at(n, far->subject), 1);
		__builtin_prefetch(&n->places[far->subject], 1);
	}
	if (near && event_kind(near) != ARRIVAL) {
		const struct port *port = &n->ports[near->subject];

		if (port->data.first != NONE)
			__builtin_prefetch(&n->places[port->data.first], 1);
	} else if (near && n->is_large) {
		fetch_of_arrival(n, near);
	}
	if (set && n->is_large && event_kind(set) == ARRIVAL)
		fetch_set(n, set);
	if (next && event_kind(next) == ARRIVAL)
		fetch_behind_arrival(n, next);
}

/* The network. */

static void make_port(struct packet_network *n, uint32_t number)
{
	uint32_t peer = n->wiring.peer[number];

	n->ports[number] = (struct port){
		.retransmitted = { .first = NONE },
		.data = { .first = NONE },
		.headers = { .first = NONE },
		.peer = peer,
		.link = n->wiring.link[number],
		.to_host = peer < n->wiring.n_hosts,
	};
}

/* Make room behind ports, if a link has flow control; 0 without memory. */
static int make_rooms(struct packet_network *n, uint32_t n_ports)
{
	int has_flow_control = 0;

	for (uint32_t p = 0; p < n_ports; p++)
		has_flow_control |= link_of(n, p)->room_bytes != 0;
	if (!has_flow_control)
		return 1;
	n->rooms = calloc(n_ports, sizeof(*n->rooms));
	for (uint32_t p = 0; n->rooms && p < n_ports; p++)
		n->rooms[p].leaving_over = n->rooms[p].outside = NONE;
	return n->rooms != 0;
}

/* Make the table of flowlets, if the rule has them; 0 without memory. */
static int make_flowlets(struct packet_network *n)
{
	size_t count = (size_t)n->wiring.n_switches << FLOWLET_BITS;

	if (n->wiring.rule.rule != FLOWLET && !has_detours(&n->wiring.rule))
		return 1;
	n->flowlets = allocate(count, sizeof(*n->flowlets));
	for (size_t i = 0; n->flowlets && i < count; i++)
		n->flowlets[i] = (struct flowlet_entry){ .candidate = NONE };
	return n->flowlets != 0;
}

/* Make what hosts remember of each other for their choice of layers; 0 without memory. */
static int make_pairs(struct packet_network *n)
{
	if (n->layers.start != START_IN_TURN && n->layers.choice != TAKE_LEAST_MARKED)
		return 1;
	n->n_pairs = 1;
	while (n->n_pairs < PAIRS_OF_A_HOST * n->wiring.n_hosts)
		n->n_pairs *= 2;
	n->pairs = calloc(n->n_pairs, sizeof(*n->pairs));
	return n->pairs != 0;
}

/* Make hosts without a transport; 0 without memory. */
static int make_sources(struct packet_network *n, const struct stream_parameters *stream)
{
	if (!stream)
		return 1;
	n->stream = *stream;
	n->sources = calloc(n->wiring.n_hosts, sizeof(*n->sources));
	for (uint32_t host = 0; n->sources && host < n->wiring.n_hosts; host++)
		n->sources[host] = (struct source){ .first = NONE, .back_ns = NDP_NEVER };
	return n->sources != 0;
}

/* Note the node of each port; 0 without memory. */
static int note_owners(struct packet_network *n)
{
	const uint32_t *first = n->wiring.first_port;
	uint32_t nodes = n->wiring.n_hosts + n->wiring.n_switches;

	n->owners = calloc(first[nodes], sizeof(*n->owners));
	for (uint32_t node = 0; n->owners && node < nodes; node++)
		for (uint32_t p = first[node]; p < first[node + 1]; p++)
			n->owners[p] = node;
	return n->owners != 0;
}

/* Make the table of flows, if the rule has one; 0 without memory. */
static int make_flow_table(struct packet_network *n, uint32_t nodes)
{
	const struct packet_wiring *w = &n->wiring;

	if (w->rule.rule != DAR || !w->hops)
		return 1;
	n->flows.first = calloc(nodes, sizeof(*n->flows.first));
	if (w->rule.key)
		n->shared_ports =
			calloc((size_t)w->n_switches * w->n_hosts, sizeof(*n->shared_ports));
	if (!n->flows.first || (w->rule.key && !n->shared_ports))
		return 0;
	for (uint32_t node = 0; node < nodes; node++)
		n->flows.first[node] = NO_FLOW;
	return note_owners(n);
}

struct packet_network *packet_network_new(const struct packet_wiring *wiring,
					  const struct ndp_parameters *ndp,
					  const struct tcp_parameters *tcp,
					  const struct stream_parameters *stream,
					  const struct packet_layers *layers, uint64_t seed)
{
	uint32_t nodes = wiring->n_hosts + wiring->n_switches;
	uint32_t n_ports = wiring->first_port[nodes];
	struct packet_network *n = calloc(1, sizeof(*n));

	if (!n)
		return 0;
	n->wiring = *wiring;
	n->random = seed;
	n->is_tcp = tcp != 0;
	/* a host does not know in which planes others have lost links */
	n->live = wiring->planes > 1;
	if (tcp) {
		n->tcp = *tcp;
		n->layers = (struct settings){
			.layers = wiring->layers,
			.trigger = layers->trigger,
			.gap_us = layers->gap_us,
			.cell_kb = layers->cell_kb,
			.start = layers->start,
			.choice = layers->choice,
			.ecn_percent = layers->ecn_percent,
			.ecn_rounds = layers->ecn_rounds,
		};
	}
	n->free_frame = NONE;
	events_init(&n->events, 1);
	n->ports = allocate(n_ports, sizeof(*n->ports));
	n->is_large = n_ports * sizeof(*n->ports) > CACHE_BYTES;
	n->last_switch = calloc((size_t)wiring->n_hosts * wiring->planes, sizeof(*n->last_switch));
	n->memories = calloc(wiring->n_hop_sets, sizeof(*n->memories));
	n->endpoints = calloc(wiring->n_hosts, sizeof(*n->endpoints));
	n->wakes = calloc(wiring->n_hosts, sizeof(*n->wakes));
	if (!n->ports || !n->last_switch || !n->memories || !n->endpoints || !n->wakes ||
	    !make_flowlets(n) || !make_pairs(n) || !make_sources(n, stream) ||
	    !make_flow_table(n, nodes)) {
		packet_network_free(n);
		return 0;
	}
	for (uint32_t p = 0; p < n_ports; p++)
		make_port(n, p);
	if (!make_rooms(n, n_ports)) {
		packet_network_free(n);
		return 0;
	}
	for (size_t place = 0; wiring->hops && place < (size_t)wiring->n_hosts * wiring->planes;
	     place++) {
		uint32_t port = wiring->first_port[place / wiring->planes] + place % wiring->planes;

		n->last_switch[place] = wiring->peer[port] - wiring->n_hosts;
	}
	for (uint32_t host = 0; ndp && host < wiring->n_hosts; host++) {
		n->wakes[host] = NDP_NEVER;
		n->endpoints[host] = ndp_new(ndp);
		if (!n->endpoints[host]) {
			packet_network_free(n);
			return 0;
		}
	}
	return n;
}

/* Free what a part has of its own. */
static void free_part(struct packet_network *part)
{
	events_free(&part->events);
	arena_free(&part->arena);
	free_log(&part->log);
	free(part->frames);
	free(part->places);
	free(part->over);
	free(part->came);
	free(part->ended);
	for (uint32_t to = 0; to < EVENT_PARTS; to++)
		free(part->outboxes[to].crossings);
}

/* Free a crew with all parts but the first, which is the network itself. */
static void free_crew(struct crew *crew)
{
	for (uint32_t p = 1; p < crew->n_parts; p++) {
		if (crew->parts[p])
			free_part(crew->parts[p]);
		free(crew->parts[p]);
	}
	free(crew->owner);
	free(crew->draws);
	free(crew);
}

void packet_network_free(struct packet_network *n)
{
	if (!n)
		return;
	for (uint32_t host = 0; n->endpoints && host < n->wiring.n_hosts; host++)
		ndp_free(n->endpoints[host]);
	if (n->crew)
		free_crew(n->crew);
	free_part(n);
	free(n->ports);
	free(n->last_switch);
	free(n->memories);
	free(n->flowlets);
	free(n->pairs);
	free(n->endpoints);
	free(n->wakes);
	free(n->rooms);
	free(n->sources);
	free(n->owners);
	free(n->shared_ports);
	free(n->flows.flows);
	free(n->flows.slots);
	free(n->flows.first);
	free(n->messages);
	free(n->steps);
	free(n->memos);
	free(n->versions);
	free(n);
}

/* Let all parts know what the first knows now. */
static void share(struct packet_network *n)
{
	for (uint32_t p = 1; p < n->crew->n_parts; p++)
		memcpy(n->crew->parts[p], n, offsetof(struct packet_network, events));
}

/* Return the shortest time from one part to another, 0 if a link has none. */
static uint64_t span_between(const struct packet_network *n, const uint8_t *owner)
{
	uint32_t least_bytes =
		n->sources ? n->stream.header_bytes : NDP_FRAME_HEADER; /* TCP has more */
	uint64_t span_ns = LONGEST_SPAN_NS;

	for (uint32_t p = 0; p < n->wiring.first_port[n->wiring.n_hosts + n->wiring.n_switches];
	     p++) {
		const struct packet_link *link = link_of(n, p);
		uint64_t way_ns = link->delay_ns + transmission_ns(link, least_bytes);

		if (owner[n->owners[p]] != owner[n->ports[p].peer] && way_ns < span_ns)
			span_ns = way_ns;
	}
	return span_ns;
}

int packet_network_split(struct packet_network *n, const uint8_t *owner, uint32_t n_parts)
{
	uint32_t nodes = n->wiring.n_hosts + n->wiring.n_switches;
	struct crew *crew;
	uint64_t seed = n->random;

	if (n->rooms || n->flows.first || n->pairs || n->stream.go_back_ns)
		return -EOPNOTSUPP;
	for (size_t m = 0; m < n->message_room.count; m++)
		if (n->messages[m].connection != m)
			return -EINVAL; /* as packet_network_send() */
	crew = calloc(1, sizeof(*crew));
	if (!crew)
		return -ENOMEM;
	n->crew = crew;
	crew->n_parts = n_parts;
	crew->parts[0] = n;
	crew->owner = malloc(nodes);
	crew->draws = malloc(nodes * sizeof(*crew->draws));
	if (!crew->owner || !crew->draws || (!n->owners && !note_owners(n)))
		return -ENOMEM;
	memcpy(crew->owner, owner, nodes);
	for (uint32_t node = 0; node < nodes; node++)
		crew->draws[node] = next_bits(&seed);
	crew->span_ns = span_between(n, owner);
	if (!crew->span_ns)
		return -EOPNOTSUPP;
	events_init(&n->events, n_parts);
	for (uint32_t p = 1; p < n_parts; p++) {
		struct packet_network *part = calloc(1, sizeof(*part));

		if (!part)
			return -ENOMEM;
		crew->parts[p] = part;
		part->number = p;
		part->free_frame = NONE;
		events_init(&part->events, n_parts);
	}
	for (uint32_t p = 0; p < n_parts; p++)
		if (make_place(&crew->parts[p]->log))
			return -ENOMEM;
	share(n);
	return 0;
}

/* Return the part of a node, between two runs: at the time of the last event of all parts, and with a number
 * behind those of all events. */
static struct packet_network *part_at(struct packet_network *n, uint32_t node)
{
	struct packet_network *own;

	if (!n->crew)
		return n;
	share(n);
	own = n->crew->parts[n->crew->owner[node]];
	for (uint32_t p = 0; p < n->crew->n_parts; p++) {
		const struct packet_network *part = n->crew->parts[p];

		if (part->events.scheduled > own->events.scheduled)
			own->events.scheduled = part->events.scheduled;
		if (part->now > own->now)
			own->now = part->now;
	}
	return own;
}

int packet_network_send(struct packet_network *n, uint64_t time_ns, uint32_t src, uint32_t dst,
			uint32_t flow, uint64_t size_bytes, uint32_t connection)
{
	struct packet_network *own = n;

	if (n->crew && connection != n->message_room.count)
		return -EINVAL; /* another message moves the packets that a connection's ends read */
	if (grow(n, (void **)&n->messages, &n->message_room, sizeof(*n->messages))) {
		n->messages[n->message_room.count] = (struct message){
			.size_bytes = size_bytes,
			.src = src,
			.dst = dst,
			.flow = flow,
			.routes = { NONE, NONE },
			.connection = connection,
		};
		n->message_room.count++;
		own = part_at(n, src);
		schedule(own, time_ns, MESSAGE, n->message_room.count - 1, SENDER);
	}
	return own->error;
}

/* Return 1 if `ports` lead from `src` to `dst`. */
static int leads(const struct packet_wiring *w, const uint32_t *ports, uint32_t count, uint32_t src,
		 uint32_t dst)
{
	uint32_t node = src;

	for (uint32_t i = 0; i < count; i++) {
		if (ports[i] < w->first_port[node] || ports[i] >= w->first_port[node + 1] ||
		    (i && node == dst))
			return 0;
		node = w->peer[ports[i]];
	}
	return count && node == dst;
}

int packet_network_route(struct packet_network *n, uint32_t number, const uint32_t *ports,
			 uint32_t n_there, uint32_t n_back)
{
	struct message *m = &n->messages[number];

	if (number >= n->message_room.count || (!n->is_tcp && m->flow != number) ||
	    !leads(&n->wiring, ports, n_there, m->src, m->dst) ||
	    !leads(&n->wiring, ports + n_there, n_back, m->dst, m->src))
		return -EINVAL;
	m->routes[SENDER] = n->step_room.count;
	m->routes[RECEIVER] = n->step_room.count + n_there;
	for (uint32_t i = 0; i < n_there + n_back; i++) {
		if (!grow(n, (void **)&n->steps, &n->step_room, sizeof(*n->steps)))
			return -ENOMEM;
		n->steps[n->step_room.count++] = ports[i];
	}
	return 0;
}

void packet_network_fail(struct packet_network *n, uint64_t time_ns, uint32_t number, int failed)
{
	struct port *port = &n->ports[number];
	struct queue *queues[] = { &port->retransmitted, &port->data, &port->headers };

	if (n->crew)
		n = part_at(n, n->owners[number]);
	port->failed = failed;
	if (n->rooms && time_ns > n->now)
		n->now = time_ns; /* at which the room of lost packets is told */
	if (failed && n->rooms) {
		n->rooms[number].waited_ns +=
			n->rooms[number].waits ? n->now - n->rooms[number].since_ns : 0;
		n->rooms[number].waits = 0;
		n->rooms[number].outside = NONE;
		n->rooms[number].buffered_bytes =
			n->rooms[number].leaves_buffer ? n->rooms[number].leaving_bytes : 0;
	}
	for (int i = 0; failed && i < 3; i++) {
		while (queues[i]->first != NONE) {
			uint32_t index = take(n, queues[i]);

			if (n->tcp.small_queues)
				make_way(n, number, index);
			free_frame(n, index);
			port->dropped++;
		}
	}
	port->again = port->again && !failed;
}

int packet_network_reroute(struct packet_network *n, const uint32_t *departures,
			   const uint32_t *hops, const uint16_t *hop_sets, uint32_t n_hop_sets)
{
	struct set_memory *memories = calloc(n_hop_sets, sizeof(*memories));

	if (!memories)
		return -ENOMEM;
	free(n->memories);
	n->memories = memories;
	n->is_rerouted = 1;
	n->wiring.departures = departures;
	n->wiring.hops = hops;
	n->wiring.hop_sets = hop_sets;
	n->wiring.n_hop_sets = n_hop_sets;
	return 0;
}

int packet_network_live(struct packet_network *n, packet_lookup *look_up, uint32_t n_memos)
{
	uint32_t nodes = n->wiring.n_hosts + n->wiring.n_switches;

	n->live = 1;
	if (!look_up)
		return 0;
	n->memos = calloc(n_memos, sizeof(*n->memos));
	n->versions = calloc(nodes, sizeof(*n->versions));
	if (!n->memos || !n->versions)
		return -ENOMEM;
	for (uint32_t node = 0; node < nodes; node++)
		n->versions[node] = 1;
	n->n_memos = n_memos;
	n->look_up = look_up;
	return 0;
}

int packet_network_tell(struct packet_network *n, uint64_t time_ns, uint32_t number,
			uint32_t length_bytes, uint32_t message)
{
	uint32_t index = new_frame(n);

	if (time_ns > n->now)
		n->now = time_ns;
	if (index == NONE)
		return n->error;
	*frame_at(n, index) = (struct frame){ .src = n->ports[number].peer,
					      .dst = n->ports[number].peer,
					      .step = message,
					      .of_daemon = 1 };
	n->places[index].length_bytes = length_bytes;
	if (n->ports[number].failed)
		free_frame(n, index);
	else
		enqueue_data(n, number, &n->ports[number].data, index);
	return n->error;
}

int packet_network_place(struct packet_network *n, uint64_t time_ns, uint32_t node,
			 uint32_t message, uint32_t port, uint32_t with_destination)
{
	struct noted_flow *flow = flow_find(&n->flows, node, message);
	uint32_t host = n->messages[message].dst;

	if (!flow)
		flow = flow_add(&n->flows, node, message);
	if (!flow)
		return -ENOMEM;
	if (!flow->noted)
		flow->last_ns = time_ns;
	flow->noted = 1;
	flow->port = port;
	flow->moved_ns = time_ns;
	if (with_destination && n->shared_ports)
		n->shared_ports[(size_t)(node - n->wiring.n_hosts) * n->wiring.n_hosts + host] =
			port + 1;
	return 0;
}

/* Forget the port of flows from a switch to a host, unless there is one. */
static void forget_destination(struct packet_network *n, uint32_t node, uint32_t host)
{
	const struct noted_flow *flows = n->flows.flows;

	for (uint32_t f = n->flows.first[node]; f != NO_FLOW; f = flows[f].next)
		if (flows[f].noted && n->messages[flows[f].message].dst == host)
			return;
	n->shared_ports[(size_t)(node - n->wiring.n_hosts) * n->wiring.n_hosts + host] = 0;
}

uint32_t packet_network_flows(struct packet_network *n, uint64_t time_ns, uint32_t node,
			      uint64_t idle_ns, struct packet_flow *rows, uint32_t most)
{
	struct noted_flow *flows = n->flows.flows;
	uint32_t count = 0;

	for (uint32_t f = n->flows.first[node]; f != NO_FLOW; f = flows[f].next) {
		if (!flows[f].noted)
			continue;
		if (time_ns - flows[f].last_ns > idle_ns) {
			flows[f].noted = 0;
			flows[f].bytes = 0;
			if (n->shared_ports)
				forget_destination(n, node, n->messages[flows[f].message].dst);
			continue;
		}
		if (count < most)
			rows[count] = (struct packet_flow){
				.last_ns = flows[f].last_ns,
				.moved_ns = flows[f].moved_ns,
				.message = flows[f].message,
				.port = flows[f].port,
			};
		count++;
	}
	return count;
}

void packet_network_forget(struct packet_network *n, uint32_t node)
{
	n->versions[node]++;
}

/* Parts: each thread runs the events of its own. */

/* Wait until all threads are here. */
static void meet(struct crew *crew)
{
	unsigned int round = atomic_load(&crew->rounds);

	if (atomic_fetch_add(&crew->arrived, 1) + 1 == crew->n_parts) {
		atomic_store(&crew->arrived, 0);
		atomic_fetch_add(&crew->rounds, 1);
		if (atomic_load(&crew->sleepers))
			syscall(SYS_futex, &crew->rounds, FUTEX_WAKE_PRIVATE, EVENT_PARTS, 0, 0, 0);
		return;
	}
	for (uint32_t looks = 0; looks < LOOKS; looks++)
		if (atomic_load(&crew->rounds) != round)
			return;
	atomic_fetch_add(&crew->sleepers, 1);
	while (atomic_load(&crew->rounds) == round)
		syscall(SYS_futex, &crew->rounds, FUTEX_WAIT_PRIVATE, round, 0, 0, 0);
	atomic_fetch_sub(&crew->sleepers, 1);
}

/* Run a part's events from `begin_ns` up to `until_ns`. */
static void run_span(struct packet_network *n, uint64_t begin_ns, uint64_t until_ns)
{
	int lane;

	open_log(&n->log);
	n->events.heap = 1;
	for (uint32_t to = 0; to < n->crew->n_parts; to++)
		n->outboxes[to].room.count = 0;
	while (!n->error && (lane = pop_event(&n->events, until_ns, &n->event)) >= 0) {
		fetch_ahead(n, lane);
		begin_run(&n->log, &n->events);
		run_event(n, &n->event);
		if (end_run(&n->log, &n->events, &n->event, begin_ns))
			n->error = -ENOMEM;
	}
	close_log(&n->log);
	n->events.heap = 0;
}

/* Take over the frames that another part has sent here. */
static void take_over(struct packet_network *n, const struct packet_network *from)
{
	const struct outbox *box = &from->outboxes[n->number];

	for (size_t i = 0; i < box->room.count; i++) {
		const struct crossing *c = &box->crossings[i];
		uint32_t index = new_frame(n),
			 lane = lane_of(&n->events, c->ahead_ns, 1 + from->number);
		struct event event = { c->time, true_order(&from->log, c->order), index, c->node };
		int error;

		if (index == NONE)
			return;
		*frame_at(n, index) = c->frame;
		n->places[index] = (struct place){ NONE, c->length_bytes };
		error = lane == MOST_LANES ? push_heap(&n->events, 0, &event) :
					     push_lane(&n->events, lane, &event);
		if (error)
			n->error = error;
	}
}

/* Bring a part to the end of the span: its events have their numbers, and frames of others have come. */
static void end_span(struct packet_network *n)
{
	struct crew *crew = n->crew;
	int error = number_events(&n->events, &n->log);

	if (error)
		n->error = error;
	for (; n->true_orders < n->ended_room.count; n->true_orders++)
		n->ended[n->true_orders].order =
			true_order(&n->log, n->ended[n->true_orders].order);
	for (uint32_t p = 0; p < crew->n_parts; p++)
		if (p != n->number)
			take_over(n, crew->parts[p]);
	crew->next_ns[n->number] = n->events.next[earliest_source(&n->events)].time;
	crew->ran[n->number] += n->log.ran;
	crew->errors[n->number] = n->error;
}

/* Return 1 if the next span is to be run, and fill in its first and last moment. */
static int next_span(const struct crew *crew, uint64_t *begin, uint64_t *until_ns)
{
	uint64_t begin_ns = EVENT_NEVER, ran = 0;

	for (uint32_t p = 0; p < crew->n_parts; p++) {
		if (crew->errors[p])
			return 0;
		if (crew->next_ns[p] < begin_ns)
			begin_ns = crew->next_ns[p];
		ran += crew->ran[p];
	}
	*begin = begin_ns;
	*until_ns = crew->until_ns;
	if (crew->until_ns - begin_ns >= crew->span_ns)
		*until_ns = begin_ns + crew->span_ns - 1;
	return begin_ns <= crew->until_ns && begin_ns != EVENT_NEVER && ran < crew->most_events;
}

/* Run a part, span by span, as long as all of them do. */
static void run_part(struct packet_network *n)
{
	struct crew *crew = n->crew;
	struct event_log *logs[EVENT_PARTS];
	uint64_t begin_ns, until_ns, scheduled = crew->scheduled;

	for (uint32_t p = 0; p < crew->n_parts; p++)
		logs[p] = &crew->parts[p]->log;
	while (next_span(crew, &begin_ns, &until_ns)) {
		run_span(n, begin_ns, until_ns);
		meet(crew);
		merge_events(logs, crew->n_parts, scheduled, n->number);
		for (uint32_t p = 0; p < crew->n_parts; p++)
			scheduled += logs[p]->scheduled;
		meet(crew);
		end_span(n);
		meet(crew);
	}
	n->events.scheduled = scheduled;
}

static void *begin_thread(void *part)
{
	struct crew *crew = ((struct packet_network *)part)->crew;

	while (!atomic_load(&crew->started))
		sched_yield();
	if (atomic_load(&crew->started) > 0)
		run_part(part);
	return 0;
}

/* Move what parts have to report to the first of them, in order of time. */
static void gather(struct packet_network *n)
{
	const struct crew *crew = n->crew;
	struct host_event *ended = 0;
	struct room room = { 0, 0 };
	size_t place[EVENT_PARTS] = { n->first_ended };

	for (;;) {
		const struct host_event *best = 0;
		uint32_t from = 0;

		for (uint32_t p = 0; p < crew->n_parts; p++) {
			const struct packet_network *part = crew->parts[p];
			const struct host_event *own = &part->ended[place[p]];

			if (place[p] < part->ended_room.count &&
			    (!best || own->event.time_ns < best->event.time_ns ||
			     (own->event.time_ns == best->event.time_ns &&
			      own->order < best->order))) {
				best = own;
				from = p;
			}
		}
		if (!best || !grow(n, (void **)&ended, &room, sizeof(*ended)))
			break;
		ended[room.count++] = *best;
		place[from]++;
	}
	for (uint32_t p = 0; p < crew->n_parts; p++)
		crew->parts[p]->ended_room.count = crew->parts[p]->true_orders = 0;
	free(n->ended);
	n->ended = ended;
	n->ended_room = room;
	n->true_orders = room.count;
	n->first_ended = 0;
}

/* Run all parts as packet_network_run() does, but do not stop for what there is to take. */
static int run_parts(struct packet_network *n, uint64_t time_ns, uint64_t most_events)
{
	struct crew *crew = n->crew;
	pthread_t threads[EVENT_PARTS];
	uint32_t n_threads = 1;
	int goes_on = 0;

	crew->scheduled = part_at(n, 0)->events.scheduled;
	crew->until_ns = time_ns;
	crew->most_events = most_events;
	atomic_store(&crew->started, 0);
	for (uint32_t p = 0; p < crew->n_parts; p++) {
		struct packet_network *part = crew->parts[p];

		crew->next_ns[p] = part->events.next[earliest_source(&part->events)].time;
		crew->ran[p] = 0;
		crew->errors[p] = part->error;
	}
	while (n_threads < crew->n_parts && !n->error) {
		n->error = -pthread_create(&threads[n_threads], 0, begin_thread,
					   crew->parts[n_threads]);
		n_threads += !n->error;
	}
	atomic_store(&crew->started, n->error ? -1 : 1);
	if (!n->error)
		run_part(n);
	while (--n_threads)
		pthread_join(threads[n_threads], 0);
	for (uint32_t p = 0; p < crew->n_parts; p++) {
		struct packet_network *part = crew->parts[p];

		n->error = n->error ? n->error : part->error;
		goes_on |= crew->next_ns[p] <= time_ns && crew->next_ns[p] != EVENT_NEVER;
	}
	gather(n);
	return n->error ? n->error : goes_on || n->ended_room.count;
}

int packet_network_run(struct packet_network *n, uint64_t time_ns, uint64_t most_events)
{
	uint64_t unrouted = n->unrouted;
	int lane;

	if (n->crew && n->crew->n_parts > 1)
		return run_parts(n, time_ns, most_events);
	while (!n->error && n->first_ended == n->ended_room.count && n->unrouted == unrouted &&
	       most_events--) {
		lane = pop_event(&n->events, time_ns, &n->event);
		if (lane < 0)
			return 0;
		fetch_ahead(n, lane);
		run_event(n, &n->event);
	}
	return n->error ? n->error : 1;
}

uint64_t packet_network_now(const struct packet_network *n)
{
	uint64_t now = n->now;

	for (uint32_t p = 1; n->crew && p < n->crew->n_parts; p++)
		if (n->crew->parts[p]->now > now)
			now = n->crew->parts[p]->now;
	return now;
}

int packet_network_take_event(struct packet_network *n, uint32_t *host, struct ndp_event *event)
{
	if (n->first_ended == n->ended_room.count)
		return 0;
	*host = n->ended[n->first_ended].host;
	*event = n->ended[n->first_ended++].event;
	return 1;
}

const struct ndp_counters *packet_network_host(const struct packet_network *n, uint32_t host)
{
	return ndp_counters(n->endpoints[host]);
}

const struct tcp_counters *packet_network_flow(const struct packet_network *n, uint32_t flow)
{
	return n->messages[flow].tcp ? tcp_counters(n->messages[flow].tcp) : 0;
}

const struct stream_counters *packet_network_stream(const struct packet_network *n,
						    uint32_t message)
{
	return &n->messages[message].stream.counters;
}

uint32_t packet_network_delivered(const struct packet_network *n, uint32_t flow)
{
	if (n->sources)
		return n->messages[flow].stream.arrived;
	return n->messages[flow].tcp ? tcp_delivered(n->messages[flow].tcp) : 0;
}

uint32_t packet_network_latest(const struct packet_network *n, uint32_t flow)
{
	return n->messages[flow].tcp ? tcp_latest(n->messages[flow].tcp) : 0;
}

struct packet_port_counters packet_network_port(const struct packet_network *n, uint32_t number)
{
	const struct port *port = &n->ports[number];
	struct link_room room = n->rooms ? n->rooms[number] : (struct link_room){ 0 };

	return (struct packet_port_counters){
		.frames = port->frames,
		.bytes = port->bytes,
		.trimmed = port->trimmed,
		.headers_lost = port->headers_lost,
		.most_data_bytes = port->most_data_bytes,
		.most_header_bytes = port->most_header_bytes,
		.dropped = port->dropped,
		.marked = port->marked,
		.waited_ns = room.waited_ns + (room.waits ? n->now - room.since_ns : 0),
		.most_room_bytes = room.most_bytes,
		.deadlocked = room.stuck,
	};
}

uint64_t packet_network_unrouted(const struct packet_network *n)
{
	uint64_t unrouted = n->unrouted;

	for (uint32_t p = 1; n->crew && p < n->crew->n_parts; p++)
		unrouted += n->crew->parts[p]->unrouted;
	return unrouted;
}

uint64_t packet_network_frames(const struct packet_network *n)
{
	uint64_t frames = 0;

	for (uint32_t p = 0; p < n->wiring.first_port[n->wiring.n_hosts + n->wiring.n_switches];
	     p++)
		frames += n->ports[p].frames;
	return frames;
}
