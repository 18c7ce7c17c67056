/* SPDX-License-Identifier: MIT */
#include "ndp_machine.h"
#include "packet_layers.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x6e
#define MOST_BACKOFF 4
#define NONE UINT32_MAX

enum { UNSENT, IN_FLIGHT, REFUSED, ACKNOWLEDGED };

/* A packet of an outgoing message.  Packets in flight are a list in the order of sending. */
struct slot {
	uint64_t sent_at;
	uint32_t before, after;
	uint8_t state, layer;
};

struct outgoing {
	struct outgoing *next_sender, *next_active, *last_active;
	uint64_t size_bytes, heard_at, silent_at, credits; /* silent_at: of the last silence */
	struct slot *slots;
	uint32_t *refused; /* a ring with room for every packet: each is in it once */
	uint32_t first_refused, listed_refused, refusals;
	uint32_t first_in_flight, last_in_flight;
	uint32_t flow, peer, packets, next, acknowledged, pulls, silences, draws, layer;
	uint32_t arrived; /* the packet that was acknowledged last, if any */
	uint8_t listed, failed;
	uint64_t probes_at; /* next probes of bad layers, if there are any */
	struct layer_history history;
};

struct incoming {
	struct incoming *next_pending, *heard_before, *heard_after;
	uint8_t *received; /* a bitmap of `places` bits until all packets have arrived */
	uint64_t size_bytes, heard_at;
	struct peer_queue *queue;
	uint32_t flow, packets, places, left, trimmed, pulls, queued;
	uint16_t payload_bytes;
	uint8_t window, layer, listed;
};

/* A peer: its messages with pulls to send, and the number of all its messages. */
struct peer_queue {
	struct peer_queue *next_peer;
	struct incoming *first, *last;
	uint32_t peer, messages;
};

/* A hash table with open addressing. */
struct table {
	uint64_t *keys;
	void **values;
	size_t places, used;
};

struct list {
	struct ndp_transmission *items;
	size_t count, most;
};

struct pace {
	uint64_t due, burst_ns;
};

struct ndp_endpoint {
	struct ndp_parameters parameters;
	struct ndp_counters counters;
	struct table outgoing, incoming, peers;
	struct outgoing *first_sender, *last_sender, *first_active, *last_active;
	struct incoming *first_heard, *last_heard;
	struct peer_queue *first_peer, *last_peer; /* that have pulls to send */
	struct pace sending, pulling;
	uint64_t gap_ns, timer;
	struct list answers, output;
	struct ndp_event *events;
	size_t first_event, n_events, most_events;
	int no_memory; /* an allocation has failed: an answer or an event is missing */
};

static uint64_t hash(uint64_t origin, uint64_t sequence)
{
	uint64_t x = origin * 0x9e3779b97f4a7c15 + sequence;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static void **slot_of(struct table *table, uint64_t key)
{
	size_t i = hash(key, 0) & (table->places - 1);

	while (table->values[i] && table->keys[i] != key)
		i = (i + 1) & (table->places - 1);
	table->keys[i] = key;
	return &table->values[i];
}

static void *find(struct table *table, uint64_t key)
{
	return table->places ? *slot_of(table, key) : 0;
}

static int insert(struct table *table, uint64_t key, void *value)
{
	if (2 * table->used >= table->places) {
		struct table old = *table,
			     new = { .places = old.places ? 2 * old.places : 64, .used = old.used };

		new.keys = calloc(new.places, sizeof(*new.keys));
		new.values = calloc(new.places, sizeof(*new.values));
		if (!new.keys || !new.values) {
			free(new.keys);
			free(new.values);
			return -ENOMEM;
		}
		for (size_t i = 0; i < old.places; i++)
			if (old.values[i])
				*slot_of(&new, old.keys[i]) = old.values[i];
		free(old.keys);
		free(old.values);
		*table = new;
	}
	*slot_of(table, key) = value;
	table->used++;
	return 0;
}

/* Remove `key`, which must be in the table, and close the gap for later keys of the same chain. */
static void erase(struct table *table, uint64_t key)
{
	size_t last = table->places - 1, gap = slot_of(table, key) - table->values;

	for (size_t i = (gap + 1) & last; table->values[i]; i = (i + 1) & last) {
		size_t first = hash(table->keys[i], 0) & last;

		if (((i - first) & last) >= ((i - gap) & last)) {
			table->keys[gap] = table->keys[i];
			table->values[gap] = table->values[i];
			gap = i;
		}
	}
	table->values[gap] = 0;
	table->used--;
}

static void charge(struct pace *pace, uint64_t now, uint64_t gap_ns)
{
	uint64_t earliest = now > pace->burst_ns ? now - pace->burst_ns : 0;

	pace->due = (pace->due > earliest ? pace->due : earliest) + gap_ns;
}

static uint64_t gap_ns(const struct ndp_endpoint *e, uint32_t frame_bytes)
{
	return 8000000000ull * frame_bytes / e->parameters.rate_bps;
}

/* Return `array` with room for one more than `count`; 0 without memory, and `array` stays valid. */
static void *grow(struct ndp_endpoint *e, void *array, size_t count, size_t *most, size_t size)
{
	size_t room = *most ? 2 * *most : 64;
	void *larger;

	if (count < *most)
		return array;
	larger = realloc(array, room * size);
	if (larger)
		*most = room;
	else
		e->no_memory = 1;
	return larger;
}

/* Without memory the packet is lost, as on the wire. */
static void append(struct ndp_endpoint *e, struct list *list, struct ndp_transmission transmission)
{
	struct ndp_transmission *items =
		grow(e, list->items, list->count, &list->most, sizeof(*items));

	if (!items)
		return;
	list->items = items;
	items[list->count++] = transmission;
}

static void add_event(struct ndp_endpoint *e, struct ndp_event event)
{
	struct ndp_event *events;

	if (e->first_event == e->n_events)
		e->first_event = e->n_events = 0;
	events = grow(e, e->events, e->n_events, &e->most_events, sizeof(*events));
	if (!events)
		return;
	e->events = events;
	events[e->n_events++] = event;
}

static void set_timer(struct ndp_endpoint *e, uint64_t deadline_ns)
{
	if (deadline_ns < e->timer)
		e->timer = deadline_ns;
}

/* Outgoing messages (outgoing.py). */

static uint64_t draw(const struct ndp_endpoint *e, struct outgoing *m)
{
	uint64_t origin = hash(e->parameters.seed, (uint64_t)m->flow << 32 | m->peer);

	return hash(origin, ++m->draws);
}

/* Let a message that leaves `layer` take another. */
static void leave_layer(const struct ndp_endpoint *e, struct outgoing *m, uint32_t layer)
{
	uint32_t layers = e->parameters.layers;

	if (layers > 1 && layer == m->layer)
		m->layer = (m->layer + 1 + draw(e, m) % (layers - 1)) % layers;
}

static int may_send(const struct outgoing *m)
{
	return !m->failed && m->credits && (m->refusals || m->next < m->packets);
}

/* Return 1 for a packet that was sent before the last silence, and belongs to it. */
static int is_of_last_silence(const struct ndp_endpoint *e, const struct outgoing *m,
			      uint64_t sent_at)
{
	return e->parameters.backoff == NDP_BACKOFF_BY_WINDOW && m->silences &&
	       sent_at < m->silent_at;
}

static uint64_t timeout_ns(const struct ndp_endpoint *e, const struct outgoing *m, uint64_t sent_at)
{
	uint32_t silences = m->silences - is_of_last_silence(e, m, sent_at);

	return e->parameters.timeout_ns << (silences < MOST_BACKOFF ? silences : MOST_BACKOFF);
}

static uint64_t deadline(const struct ndp_endpoint *e, const struct outgoing *m)
{
	uint64_t sent_at;

	if (m->first_in_flight != NONE) {
		sent_at = m->slots[m->first_in_flight].sent_at;
		return sent_at + timeout_ns(e, m, sent_at);
	}
	return may_send(m) ? NDP_NEVER : m->heard_at + timeout_ns(e, m, m->heard_at);
}

static void enter_flight(struct outgoing *m, uint32_t sequence, uint64_t now)
{
	struct slot *slot = &m->slots[sequence];

	*slot = (struct slot){ .sent_at = now,
			       .before = m->last_in_flight,
			       .after = NONE,
			       .state = IN_FLIGHT,
			       .layer = m->layer };
	if (m->last_in_flight == NONE)
		m->first_in_flight = sequence;
	else
		m->slots[m->last_in_flight].after = sequence;
	m->last_in_flight = sequence;
}

static void leave_flight(struct outgoing *m, uint32_t sequence, uint8_t state)
{
	struct slot *slot = &m->slots[sequence];

	if (slot->before == NONE)
		m->first_in_flight = slot->after;
	else
		m->slots[slot->before].after = slot->after;
	if (slot->after == NONE)
		m->last_in_flight = slot->before;
	else
		m->slots[slot->after].before = slot->before;
	slot->state = state;
}

static uint32_t pop_refused(struct outgoing *m)
{
	uint32_t sequence;

	do { /* skip packets that were acknowledged meanwhile */
		sequence = m->refused[m->first_refused];
		m->first_refused = (m->first_refused + 1) % m->packets;
		m->listed_refused--;
	} while (m->slots[sequence].state != REFUSED);
	m->refusals--;
	return sequence;
}

static struct ndp_packet data_of(const struct ndp_endpoint *e, const struct outgoing *m,
				 uint32_t sequence)
{
	return (struct ndp_packet){
		.number = m->size_bytes,
		.flow = m->flow,
		.sequence = sequence,
		.payload_bytes = e->parameters.frame_bytes - NDP_FRAME_HEADER,
		.kind = NDP_DATA,
		.layer = m->layer,
		.detail = e->parameters.window,
	};
}

static void queue_sender(struct ndp_endpoint *e, struct outgoing *m)
{
	if (!may_send(m) || m->listed)
		return;
	m->listed = 1;
	m->next_sender = 0;
	if (e->first_sender)
		e->last_sender->next_sender = m;
	else
		e->first_sender = m;
	e->last_sender = m;
}

/* Make the arrays of a message; 0 without memory. */
static int make_arrays(const struct ndp_endpoint *e, struct outgoing *m, size_t packets)
{
	int has_flags = e->parameters.choice == MRC;

	m->slots = calloc(packets, sizeof(*m->slots));
	m->refused = calloc(packets, sizeof(*m->refused));
	if (has_flags)
		m->history.flags = calloc(e->parameters.layers, sizeof(*m->history.flags));
	return m->slots && m->refused && (m->history.flags || !has_flags);
}

static void free_arrays(struct outgoing *m)
{
	free(m->slots);
	free(m->refused);
	free(m->history.flags);
}

static void remove_outgoing(struct ndp_endpoint *e, struct outgoing *m)
{
	if (m->last_active)
		m->last_active->next_active = m->next_active;
	else
		e->first_active = m->next_active;
	if (m->next_active)
		m->next_active->last_active = m->last_active;
	else
		e->last_active = m->last_active;
	free_arrays(m);
	m->slots = 0;
	m->refused = 0;
	m->history.flags = 0;
}

int ndp_send(struct ndp_endpoint *e, uint64_t now, uint32_t flow, uint32_t peer,
	     uint64_t size_bytes)
{
	uint32_t payload_bytes = e->parameters.frame_bytes - NDP_FRAME_HEADER;
	uint64_t packets = size_bytes / payload_bytes + (size_bytes % payload_bytes != 0);
	struct outgoing *m;

	if (!packets || packets > NDP_MOST_PACKETS || find(&e->outgoing, flow))
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	if (!make_arrays(e, m, packets) || insert(&e->outgoing, flow, m)) {
		free_arrays(m);
		free(m);
		return -ENOMEM;
	}
	m->flow = flow;
	m->peer = peer;
	m->size_bytes = size_bytes;
	m->packets = packets;
	m->credits = packets < e->parameters.window ? packets : e->parameters.window;
	m->first_in_flight = m->last_in_flight = NONE;
	m->heard_at = now;
	m->layer = draw(e, m) % e->parameters.layers;
	if (e->parameters.choice == MRC)
		m->history.cursor = m->layer;
	m->last_active = e->last_active;
	if (e->last_active)
		e->last_active->next_active = m;
	else
		e->first_active = m;
	e->last_active = m;
	queue_sender(e, m);
	return 0;
}

static void on_ack(struct outgoing *m, uint32_t sequence)
{
	uint8_t state = sequence < m->packets ? m->slots[sequence].state : ACKNOWLEDGED;

	if (state == UNSENT || state == ACKNOWLEDGED)
		return;
	if (state == IN_FLIGHT) {
		leave_flight(m, sequence, ACKNOWLEDGED);
	} else {
		m->slots[sequence].state = ACKNOWLEDGED;
		m->refusals--;
	}
	m->arrived = sequence;
	m->acknowledged++;
}

static void on_nack(struct outgoing *m, const struct ndp_packet *nack)
{
	if (nack->sequence < m->packets && m->slots[nack->sequence].state == IN_FLIGHT) {
		leave_flight(m, nack->sequence, REFUSED);
		m->refused[(m->first_refused + m->listed_refused++) % m->packets] = nack->sequence;
		m->refusals++;
	}
}

/* Learn from an answer about the layer of its packet. */
static void learn(const struct ndp_endpoint *e, struct outgoing *m, uint64_t now,
		  const struct ndp_packet *answer)
{
	int bad = answer->kind == NDP_NACK ? TRIMMED_PACKET : MARKED_PACKET;

	if (e->parameters.choice != BY_FLOW)
		note_answer(&m->history, e->parameters.choice, answer->layer,
			    answer->detail ? bad : GOOD, now, e->parameters.window);
	else if (answer->kind == NDP_NACK && answer->detail)
		leave_layer(e, m, answer->layer);
}

static void receive_answer(struct ndp_endpoint *e, uint64_t now, uint32_t peer,
			   const struct ndp_packet *packet)
{
	struct outgoing *m = find(&e->outgoing, packet->flow);

	if (!m || m->peer != peer) {
		e->counters.strange++;
		return;
	}
	if (!m->slots) /* the message has ended */
		return;
	m->heard_at = now;
	m->silences = 0;
	if (packet->number > m->pulls) {
		m->credits += packet->number - m->pulls;
		m->pulls = packet->number;
	}
	if (packet->kind == NDP_ACK)
		on_ack(m, packet->sequence);
	else if (packet->kind == NDP_NACK)
		on_nack(m, packet);
	if (packet->kind != NDP_PULL)
		learn(e, m, now, packet);
	if (m->acknowledged == m->packets) {
		add_event(e, (struct ndp_event){ .time_ns = now,
						 .peer = peer,
						 .flow = m->flow,
						 .kind = NDP_FINISHED });
		remove_outgoing(e, m);
	}
	queue_sender(e, m);
}

/* Choose the layer of the next packet. */
static void choose_layer(const struct ndp_endpoint *e, struct outgoing *m)
{
	int choice = e->parameters.choice;

	if (choice != BY_FLOW)
		m->layer = next_packet_layer(&m->history, choice, e->parameters.layers, draw(e, m));
}

/* Handle that nothing was heard about a packet. */
static void on_silence(const struct ndp_endpoint *e, struct outgoing *m, uint32_t sequence,
		       uint64_t now)
{
	uint32_t layer = m->slots[sequence].layer;

	if (e->parameters.choice == BY_FLOW)
		leave_layer(e, m, layer);
	else
		note_silence(&m->history, e->parameters.choice, layer, e->parameters.layers,
			     now + (e->parameters.timeout_ns << MOST_BACKOFF));
}

static void probe(struct ndp_endpoint *e, struct outgoing *m, uint32_t sequence, uint64_t now)
{
	choose_layer(e, m);
	enter_flight(m, sequence, now);
	append(e, &e->output,
	       (struct ndp_transmission){ .packet = data_of(e, m, sequence), .peer = m->peer });
	e->counters.timeouts++;
}

/* Ask, by the bare header of a packet that has arrived, whether bad layers carry packets again. */
static void probe_layers(struct ndp_endpoint *e, struct outgoing *m)
{
	for (uint32_t layer = 0; m->acknowledged && layer < e->parameters.layers; layer++) {
		struct ndp_transmission probe = { .packet = data_of(e, m, m->arrived),
						  .peer = m->peer };

		probe.packet.layer = layer;
		if (m->history.flags[layer] & ASSUMED_BAD)
			append(e, &e->output, probe);
	}
}

/* Probe the bad layers of a message each timeout, and set the timer for the next probes. */
static void keep_probing(struct ndp_endpoint *e, struct outgoing *m, uint32_t bad_before,
			 uint64_t now)
{
	if (!m->history.bad)
		return;
	if (!bad_before) {
		m->probes_at = now + e->parameters.timeout_ns;
	} else if (m->probes_at <= now) {
		probe_layers(e, m);
		m->probes_at = now + e->parameters.timeout_ns;
	}
	set_timer(e, m->probes_at);
}

/* Handle the deadline of a message; 1 if the message is given up. */
static int expire_message(struct ndp_endpoint *e, struct outgoing *m, uint64_t now)
{
	uint32_t late = 0, first = m->first_in_flight, last = m->last_in_flight;
	int again = first != NONE && is_of_last_silence(e, m, m->slots[first].sent_at);

	if (!again && m->silences == e->parameters.attempts) {
		add_event(e, (struct ndp_event){ .time_ns = now,
						 .silent_ns = now - m->heard_at,
						 .peer = m->peer,
						 .flow = m->flow,
						 .unacknowledged = m->packets - m->acknowledged,
						 .packets = m->packets,
						 .kind = NDP_FAILED });
		m->failed = 1;
		remove_outgoing(e, m);
		return 1;
	}
	/* probes go to the end of the list: stop at the packet that was last before */
	for (uint32_t sequence = first; sequence != NONE; late++) {
		uint64_t sent_at = m->slots[sequence].sent_at;

		if (sent_at + timeout_ns(e, m, sent_at) > now)
			break;
		uint32_t next = sequence == last ? NONE : m->slots[sequence].after;

		leave_flight(m, sequence, UNSENT);
		on_silence(e, m, sequence, now);
		probe(e, m, sequence, now);
		sequence = next;
	}
	if (!late && m->first_in_flight == NONE)
		probe(e, m, m->refusals ? pop_refused(m) : m->next++, now);
	if (!again) {
		m->silences++;
		m->silent_at = now;
	}
	return 0;
}

static void expire(struct ndp_endpoint *e, uint64_t now)
{
	struct outgoing *next;

	e->timer = NDP_NEVER;
	for (struct outgoing *m = e->first_active; m; m = next) {
		uint32_t bad = m->history.bad;

		next = m->next_active;
		if (deadline(e, m) <= now && expire_message(e, m, now))
			continue;
		set_timer(e, deadline(e, m));
		keep_probing(e, m, bad, now);
	}
}

static void send_one(struct ndp_endpoint *e, uint64_t now)
{
	struct outgoing *m = e->first_sender;
	struct ndp_packet packet;
	uint32_t sequence, bytes;
	int refused;

	e->first_sender = m->next_sender;
	m->listed = 0;
	if (!may_send(m))
		return;
	m->credits--;
	refused = m->refusals > 0;
	if (refused) {
		sequence = pop_refused(m);
		e->counters.retransmissions++;
	} else {
		sequence = m->next++;
	}
	choose_layer(e, m);
	enter_flight(m, sequence, now);
	packet = data_of(e, m, sequence);
	bytes = ndp_own_bytes(&packet);
	append(e, &e->output,
	       (struct ndp_transmission){ .packet = packet,
					  .peer = m->peer,
					  .payload_bytes = bytes,
					  .retransmitted = refused });
	e->counters.sent++;
	charge(&e->sending, now, gap_ns(e, NDP_FRAME_HEADER + bytes));
	set_timer(e, now + timeout_ns(e, m, now));
	queue_sender(e, m);
}

/* Incoming messages (incoming.py). */

static void add_heard(struct ndp_endpoint *e, struct incoming *m, uint64_t now)
{
	m->heard_at = now;
	m->heard_before = e->last_heard;
	m->heard_after = 0;
	if (e->last_heard)
		e->last_heard->heard_after = m;
	else
		e->first_heard = m;
	e->last_heard = m;
}

static void remove_heard(struct ndp_endpoint *e, struct incoming *m)
{
	if (m->heard_before)
		m->heard_before->heard_after = m->heard_after;
	else
		e->first_heard = m->heard_after;
	if (m->heard_after)
		m->heard_after->heard_before = m->heard_before;
	else
		e->last_heard = m->heard_before;
}

/* Remove the messages that have been silent for a lifetime (endpoint.py). */
static void remove_expired(struct ndp_endpoint *e, uint64_t now)
{
	uint64_t lifetime_ns =
		(e->parameters.attempts + 1ull) * (e->parameters.timeout_ns << MOST_BACKOFF);
	struct incoming *m;

	while ((m = e->first_heard) && !m->listed && now - m->heard_at > lifetime_ns) {
		remove_heard(e, m);
		erase(&e->incoming, (uint64_t)m->queue->peer << 32 | m->flow);
		m->queue->messages--;
		free(m->received);
		free(m);
	}
}

/* Return the queue of `peer`, 0 without memory. */
static struct peer_queue *queue_of(struct ndp_endpoint *e, uint32_t peer)
{
	struct peer_queue *queue = find(&e->peers, peer);

	if (queue || !(queue = calloc(1, sizeof(*queue))))
		return queue;
	queue->peer = peer;
	if (insert(&e->peers, peer, queue)) {
		free(queue);
		return 0;
	}
	return queue;
}

static struct incoming *count_refused(struct ndp_endpoint *e)
{
	e->counters.refused++;
	return 0;
}

static struct incoming *new_incoming(struct ndp_endpoint *e, uint64_t now, uint32_t peer,
				     const struct ndp_packet *data)
{
	uint64_t packets =
		data->number / data->payload_bytes + (data->number % data->payload_bytes != 0);
	struct peer_queue *queue;
	struct incoming *m;

	remove_expired(e, now);
	queue = queue_of(e, peer);
	if (!queue || e->incoming.used >= NDP_MOST_INCOMING ||
	    queue->messages >= NDP_MOST_INCOMING_OF_PEER)
		return count_refused(e);
	if (packets > NDP_MOST_PACKETS) {
		e->counters.strange++;
		return 0;
	}
	m = malloc(sizeof(*m));
	if (!m || insert(&e->incoming, (uint64_t)peer << 32 | data->flow, m)) {
		free(m);
		return count_refused(e);
	}
	*m = (struct incoming){ .size_bytes = data->number,
				.queue = queue,
				.flow = data->flow,
				.packets = packets,
				.left = packets,
				.payload_bytes = data->payload_bytes,
				.window = data->detail };
	queue->messages++;
	add_heard(e, m, now);
	return m;
}

/* Return 1 if the sender of `m` can have sent `data` (incoming.py, belongs). */
static int belongs(const struct incoming *m, const struct ndp_packet *data, int whole)
{
	uint64_t sent = (uint64_t)m->window + m->pulls + m->trimmed + 1;

	return m->size_bytes == data->number && m->payload_bytes == data->payload_bytes &&
	       m->window == data->detail && !(whole && data->sequence >= sent);
}

/* Make room for the bit of packet `sequence`; 0, or -ENOMEM. */
static int make_room(struct incoming *m, uint32_t sequence)
{
	uint32_t places = 2 * m->places > sequence ? 2 * m->places : (sequence | 63) + 1;
	uint8_t *received;

	if (!m->left || sequence < m->places)
		return 0;
	received = realloc(m->received, places / 8);
	if (!received)
		return -ENOMEM;
	memset(received + m->places / 8, 0, (places - m->places) / 8);
	m->received = received;
	m->places = places;
	return 0;
}

/* Queue `queue`, which has pulls to send, behind the other peers. */
static void add_peer(struct ndp_endpoint *e, struct peer_queue *queue)
{
	queue->next_peer = 0;
	if (e->first_peer)
		e->last_peer->next_peer = queue;
	else
		e->first_peer = queue;
	e->last_peer = queue;
}

/* Queue `m` behind the other messages of its peer. */
static void add_pending(struct incoming *m)
{
	struct peer_queue *queue = m->queue;

	m->next_pending = 0;
	if (queue->first)
		queue->last->next_pending = m;
	else
		queue->first = m;
	queue->last = m;
}

static void queue_pull(struct ndp_endpoint *e, struct incoming *m)
{
	int idle = !m->queue->first;

	m->listed = 1;
	add_pending(m);
	if (idle)
		add_peer(e, m->queue);
}

/* Register `data` and return the kind of its answer. */
static uint8_t arrive(struct ndp_endpoint *e, struct incoming *m, const struct ndp_packet *data,
		      int whole)
{
	uint8_t bit = 1 << (data->sequence & 7);
	uint32_t window = m->window < m->packets ? m->window : m->packets;

	m->layer = data->layer;
	if (!m->left || (data->sequence < m->places && m->received[data->sequence / 8] & bit)) {
		e->counters.duplicates += whole;
		return NDP_ACK;
	}
	if (whole) {
		m->received[data->sequence / 8] |= bit;
		m->left--;
	} else {
		m->trimmed++;
	}
	if (!m->left) {
		m->queued = 0;
		free(m->received);
		m->received = 0;
	} else if ((uint64_t)window + m->pulls + m->queued < (uint64_t)m->packets + m->trimmed) {
		m->queued++;
	}
	return whole ? NDP_ACK : NDP_NACK;
}

static void receive_data(struct ndp_endpoint *e, uint64_t now, uint32_t peer,
			 const struct ndp_packet *data, int whole, int congested)
{
	struct incoming *m = find(&e->incoming, (uint64_t)peer << 32 | data->flow);
	struct ndp_transmission answer = { .packet = *data, .peer = peer };
	uint32_t was_left;

	if (!m && !(m = new_incoming(e, now, peer, data)))
		return;
	if (!belongs(m, data, whole)) {
		e->counters.strange++;
		return;
	}
	if (whole && make_room(m, data->sequence)) {
		count_refused(e);
		return;
	}
	remove_heard(e, m);
	add_heard(e, m, now);
	e->counters.data += whole;
	e->counters.headers += !whole;
	was_left = m->left;
	answer.packet.kind = arrive(e, m, data, whole);
	answer.packet.number = m->pulls;
	answer.packet.payload_bytes = 0;
	answer.packet.detail = congested;
	append(e, &e->answers, answer);
	if (was_left && !m->left)
		add_event(e, (struct ndp_event){ .time_ns = now,
						 .size_bytes = m->size_bytes,
						 .peer = peer,
						 .flow = m->flow,
						 .kind = NDP_DELIVERED });
	if (m->queued && !m->listed)
		queue_pull(e, m);
}

static void pull_one(struct ndp_endpoint *e, uint64_t now)
{
	struct peer_queue *queue = e->first_peer;
	struct incoming *m = queue->first;

	e->first_peer = queue->next_peer;
	queue->first = m->next_pending;
	if (m->queued) {
		m->queued--;
		m->pulls++;
		append(e, &e->output,
		       (struct ndp_transmission){
			       .packet = { .number = m->pulls,
					   .flow = m->flow,
					   .kind = NDP_PULL,
					   .layer = m->layer },
			       .peer = queue->peer,
		       });
		e->counters.pulls++;
		charge(&e->pulling, now, e->gap_ns);
	}
	m->listed = m->queued > 0;
	if (m->listed)
		add_pending(m);
	if (queue->first)
		add_peer(e, queue);
}

/* The endpoint (endpoint.py). */

struct ndp_endpoint *ndp_new(const struct ndp_parameters *parameters)
{
	struct ndp_endpoint *e = calloc(1, sizeof(*e));

	if (!e)
		return 0;
	e->parameters = *parameters;
	e->gap_ns = gap_ns(e, e->parameters.frame_bytes);
	e->sending.burst_ns = e->pulling.burst_ns = e->parameters.burst * e->gap_ns;
	e->timer = NDP_NEVER;
	return e;
}

void ndp_free(struct ndp_endpoint *e)
{
	if (!e)
		return;
	for (size_t i = 0; i < e->outgoing.places; i++) {
		struct outgoing *m = e->outgoing.values[i];

		if (m) {
			free_arrays(m);
			free(m);
		}
	}
	for (size_t i = 0; i < e->incoming.places; i++) {
		struct incoming *m = e->incoming.values[i];

		if (m) {
			free(m->received);
			free(m);
		}
	}
	for (size_t i = 0; i < e->peers.places; i++)
		free(e->peers.values[i]);
	free(e->peers.keys);
	free(e->peers.values);
	free(e->outgoing.keys);
	free(e->outgoing.values);
	free(e->incoming.keys);
	free(e->incoming.values);
	free(e->answers.items);
	free(e->output.items);
	free(e->events);
	free(e);
}

void ndp_receive(struct ndp_endpoint *e, uint64_t now, uint32_t peer,
		 const struct ndp_packet *packet, int whole, int congested)
{
	if (packet->layer >= e->parameters.layers)
		e->counters.strange++;
	else if (packet->kind == NDP_DATA)
		receive_data(e, now, peer, packet, whole, congested);
	else
		receive_answer(e, now, peer, packet);
}

ptrdiff_t ndp_poll(struct ndp_endpoint *e, uint64_t now, const struct ndp_transmission **packets)
{
	e->output.count = 0;
	if (e->timer <= now)
		expire(e, now);
	for (size_t i = 0; i < e->answers.count; i++)
		append(e, &e->output, e->answers.items[i]);
	e->answers.count = 0;
	while (e->first_peer && e->pulling.due <= now)
		pull_one(e, now);
	while (e->first_sender && e->sending.due <= now)
		send_one(e, now);
	*packets = e->output.items;
	return e->no_memory ? -ENOMEM : (ptrdiff_t)e->output.count;
}

uint64_t ndp_deadline(const struct ndp_endpoint *e)
{
	uint64_t deadline_ns = e->timer;

	if (e->answers.count)
		return 0;
	if (e->first_peer && e->pulling.due < deadline_ns)
		deadline_ns = e->pulling.due;
	if (e->first_sender && e->sending.due < deadline_ns)
		deadline_ns = e->sending.due;
	return deadline_ns;
}

int ndp_take_event(struct ndp_endpoint *e, struct ndp_event *event)
{
	if (e->first_event == e->n_events)
		return 0;
	*event = e->events[e->first_event++];
	return 1;
}

const struct ndp_counters *ndp_counters(const struct ndp_endpoint *e)
{
	return &e->counters;
}

/* Bytes (endpoint.py). */

uint32_t ndp_own_bytes(const struct ndp_packet *packet)
{
	uint64_t left = packet->number - (uint64_t)packet->sequence * packet->payload_bytes;

	return left < packet->payload_bytes ? left : packet->payload_bytes;
}

void ndp_encode(const struct ndp_packet *packet, uint8_t *bytes)
{
	uint32_t flow = htobe32(packet->flow), sequence = htobe32(packet->sequence);
	uint64_t number = htobe64(packet->number);
	uint16_t payload_bytes = htobe16(packet->payload_bytes);

	bytes[0] = MAGIC;
	bytes[1] = packet->kind;
	bytes[2] = packet->layer;
	bytes[3] = packet->detail;
	memcpy(bytes + 4, &flow, 4);
	memcpy(bytes + 8, &sequence, 4);
	memcpy(bytes + 12, &number, 8);
	memcpy(bytes + 20, &payload_bytes, 2);
}

int ndp_decode(const uint8_t *bytes, size_t length, uint32_t layers, struct ndp_packet *packet,
	       int *whole)
{
	uint32_t flow, sequence;
	uint64_t number;
	uint16_t payload_bytes;
	size_t rest = length - NDP_HEADER;

	if (length < NDP_HEADER || bytes[0] != MAGIC || bytes[2] >= layers)
		return -1;
	memcpy(&flow, bytes + 4, 4);
	memcpy(&sequence, bytes + 8, 4);
	memcpy(&number, bytes + 12, 8);
	memcpy(&payload_bytes, bytes + 20, 2);
	*packet = (struct ndp_packet){ .number = be64toh(number),
				       .flow = be32toh(flow),
				       .sequence = be32toh(sequence),
				       .payload_bytes = be16toh(payload_bytes),
				       .kind = bytes[1],
				       .layer = bytes[2],
				       .detail = bytes[3] };
	*whole = 1;
	if (packet->kind == NDP_DATA) {
		if (!packet->payload_bytes || !packet->detail ||
		    packet->number <= (uint64_t)packet->sequence * packet->payload_bytes)
			return -1;
		*whole = rest > 0;
		return rest && rest != ndp_own_bytes(packet) ? -1 : 0;
	}
	if (packet->kind < NDP_ACK || packet->kind > NDP_PULL || rest || payload_bytes ||
	    packet->number >> 32)
		return -1;
	if (packet->detail > (packet->kind != NDP_PULL) ||
	    (packet->kind == NDP_PULL && packet->sequence))
		return -1;
	return 0;
}
