/* SPDX-License-Identifier: MIT */
#include "ndp_machine.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x6e
#define LONGEST_BACKOFF 4
#define NOWHERE UINT32_MAX

enum { UNSENT, IN_FLIGHT, REFUSED, ACKNOWLEDGED };

/* A packet of an outgoing message.  Those in flight are a list, the earliest sent first. */
struct slot {
	uint64_t sent_at;
	uint32_t before, after;
	uint8_t state;
};

struct outgoing {
	struct outgoing *next_sender, *next_active, *last_active;
	uint64_t size_bytes, heard_at, credits;
	struct slot *slots;
	uint32_t *refused; /* a ring of as many places as there are packets: each is in it once */
	uint32_t first_refused, listed_refused, refusals;
	uint32_t first_in_flight, last_in_flight;
	uint32_t flow, peer, packets, next, acknowledged, pulls, silences, draws, layer;
	uint8_t listed, failed;
};

struct incoming {
	struct incoming *next_wanted, *heard_before, *heard_after;
	uint8_t *received; /* `places` bits, one for each packet, until all have come */
	uint64_t size_bytes, heard_at;
	uint32_t flow, peer, packets, places, left, trimmed, pulls, queued;
	uint16_t payload_bytes;
	uint8_t window, layer, listed;
};

/* A peer: its messages from which something is to be pulled, and the number of all. */
struct wanted {
	struct incoming *first, *last;
	uint32_t next_peer, messages;
};

/* Open addressing. */
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
	struct ndp_parameters of;
	struct ndp_counters counters;
	struct table outgoing, incoming;
	struct outgoing *first_sender, *last_sender, *first_active, *last_active;
	struct incoming *first_heard, *last_heard;
	struct wanted *wanted;
	uint32_t peers, first_peer, last_peer;
	struct pace sending, pulling;
	uint64_t gap_ns, timer;
	struct list answers, found;
	struct ndp_event *events;
	size_t first_event, n_events, most_events;
	int no_memory; /* something could not be kept */
};

static uint64_t mixed(uint64_t origin, uint64_t sequence)
{
	uint64_t x = origin * 0x9e3779b97f4a7c15 + sequence;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static void **place(struct table *table, uint64_t key)
{
	size_t at = mixed(key, 0) & (table->places - 1);

	while (table->values[at] && table->keys[at] != key)
		at = (at + 1) & (table->places - 1);
	table->keys[at] = key;
	return &table->values[at];
}

static void *find(struct table *table, uint64_t key)
{
	return table->places ? *place(table, key) : 0;
}

static int insert(struct table *table, uint64_t key, void *value)
{
	if (2 * table->used >= table->places) {
		struct table old = *table, new = { .places = old.places ? 2 * old.places : 64, .used = old.used };

		new.keys = calloc(new.places, sizeof(*new.keys));
		new.values = calloc(new.places, sizeof(*new.values));
		if (!new.keys || !new.values) {
			free(new.keys);
			free(new.values);
			return -ENOMEM;
		}
		for (size_t i = 0; i < old.places; i++)
			if (old.values[i])
				*place(&new, old.keys[i]) = old.values[i];
		free(old.keys);
		free(old.values);
		*table = new;
	}
	*place(table, key) = value;
	table->used++;
	return 0;
}

/* Remove `key`, which is there, and move up those behind it that would not be found across the gap. */
static void erase(struct table *table, uint64_t key)
{
	size_t last = table->places - 1, gap = place(table, key) - table->values;

	for (size_t i = (gap + 1) & last; table->values[i]; i = (i + 1) & last) {
		size_t first = mixed(table->keys[i], 0) & last;

		if (((i - first) & last) >= ((i - gap) & last)) {
			table->keys[gap] = table->keys[i];
			table->values[gap] = table->values[i];
			gap = i;
		}
	}
	table->values[gap] = 0;
	table->used--;
}

static void took(struct pace *pace, uint64_t now, uint64_t gap_ns)
{
	uint64_t earliest = now > pace->burst_ns ? now - pace->burst_ns : 0;

	pace->due = (pace->due > earliest ? pace->due : earliest) + gap_ns;
}

static uint64_t gap_ns(const struct ndp_endpoint *e, uint32_t frame_bytes)
{
	return 8000000000ull * frame_bytes / e->of.rate_bps;
}

/* Return `array` with room for one more than `count`; 0, and the array stays, if there is no memory. */
static void *with_room(struct ndp_endpoint *e, void *array, size_t count, size_t *most, size_t size)
{
	size_t wanted = *most ? 2 * *most : 64;
	void *larger;

	if (count < *most)
		return array;
	larger = realloc(array, wanted * size);
	if (larger)
		*most = wanted;
	else
		e->no_memory = 1;
	return larger;
}

/* What cannot be kept is as if it were lost on the way. */
static void append(struct ndp_endpoint *e, struct list *list, struct ndp_transmission transmission)
{
	struct ndp_transmission *items = with_room(e, list->items, list->count, &list->most, sizeof(*items));

	if (!items)
		return;
	list->items = items;
	items[list->count++] = transmission;
}

static void tell(struct ndp_endpoint *e, struct ndp_event event)
{
	struct ndp_event *events;

	if (e->first_event == e->n_events)
		e->first_event = e->n_events = 0;
	events = with_room(e, e->events, e->n_events, &e->most_events, sizeof(*events));
	if (!events)
		return;
	e->events = events;
	events[e->n_events++] = event;
}

static void wake(struct ndp_endpoint *e, uint64_t at)
{
	if (at < e->timer)
		e->timer = at;
}

/* Outgoing messages (outgoing.py). */

static uint32_t draw(struct outgoing *m, uint32_t n)
{
	return mixed((uint64_t)m->flow << 32 | m->peer, ++m->draws) % n;
}

static int may_send(const struct outgoing *m)
{
	return !m->failed && m->credits && (m->refusals || m->next < m->packets);
}

static uint64_t timeout_ns(const struct ndp_endpoint *e, const struct outgoing *m)
{
	return e->of.timeout_ns << (m->silences < LONGEST_BACKOFF ? m->silences : LONGEST_BACKOFF);
}

static uint64_t deadline(const struct ndp_endpoint *e, const struct outgoing *m)
{
	if (m->first_in_flight != NOWHERE)
		return m->slots[m->first_in_flight].sent_at + timeout_ns(e, m);
	return may_send(m) ? NDP_NEVER : m->heard_at + timeout_ns(e, m);
}

static void into_flight(struct outgoing *m, uint32_t sequence, uint64_t now)
{
	struct slot *slot = &m->slots[sequence];

	*slot = (struct slot){ .sent_at = now, .before = m->last_in_flight, .after = NOWHERE, .state = IN_FLIGHT };
	if (m->last_in_flight == NOWHERE)
		m->first_in_flight = sequence;
	else
		m->slots[m->last_in_flight].after = sequence;
	m->last_in_flight = sequence;
}

static void out_of_flight(struct outgoing *m, uint32_t sequence, uint8_t state)
{
	struct slot *slot = &m->slots[sequence];

	if (slot->before == NOWHERE)
		m->first_in_flight = slot->after;
	else
		m->slots[slot->before].after = slot->after;
	if (slot->after == NOWHERE)
		m->last_in_flight = slot->before;
	else
		m->slots[slot->after].before = slot->before;
	slot->state = state;
}

static uint32_t pop_refused(struct outgoing *m)
{
	uint32_t sequence;

	do { /* those acknowledged meanwhile are still in line */
		sequence = m->refused[m->first_refused];
		m->first_refused = (m->first_refused + 1) % m->packets;
		m->listed_refused--;
	} while (m->slots[sequence].state != REFUSED);
	m->refusals--;
	return sequence;
}

static struct ndp_packet data_of(const struct ndp_endpoint *e, const struct outgoing *m, uint32_t sequence)
{
	return (struct ndp_packet){
		.number = m->size_bytes,
		.flow = m->flow,
		.sequence = sequence,
		.payload_bytes = e->of.frame_bytes - NDP_FRAME_HEADER,
		.kind = NDP_DATA,
		.layer = m->layer,
		.detail = e->of.window,
	};
}

static void list_sender(struct ndp_endpoint *e, struct outgoing *m)
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

static void retire(struct ndp_endpoint *e, struct outgoing *m)
{
	if (m->last_active)
		m->last_active->next_active = m->next_active;
	else
		e->first_active = m->next_active;
	if (m->next_active)
		m->next_active->last_active = m->last_active;
	else
		e->last_active = m->last_active;
	free(m->slots);
	free(m->refused);
	m->slots = 0;
	m->refused = 0;
}

int ndp_send(struct ndp_endpoint *e, uint64_t now, uint32_t flow, uint32_t peer, uint64_t size_bytes)
{
	uint32_t payload_bytes = e->of.frame_bytes - NDP_FRAME_HEADER;
	uint64_t packets = size_bytes / payload_bytes + (size_bytes % payload_bytes != 0);
	struct outgoing *m;

	if (!packets || packets > NDP_MOST_PACKETS || find(&e->outgoing, flow))
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->slots = calloc(packets, sizeof(*m->slots));
	m->refused = calloc(packets, sizeof(*m->refused));
	if (!m->slots || !m->refused || insert(&e->outgoing, flow, m)) {
		free(m->slots);
		free(m->refused);
		free(m);
		return -ENOMEM;
	}
	m->flow = flow;
	m->peer = peer;
	m->size_bytes = size_bytes;
	m->packets = packets;
	m->credits = packets < e->of.window ? packets : e->of.window;
	m->first_in_flight = m->last_in_flight = NOWHERE;
	m->heard_at = now;
	m->layer = draw(m, e->of.layers);
	m->last_active = e->last_active;
	if (e->last_active)
		e->last_active->next_active = m;
	else
		e->first_active = m;
	e->last_active = m;
	list_sender(e, m);
	return 0;
}

static void acknowledged(struct outgoing *m, uint32_t sequence)
{
	uint8_t state = sequence < m->packets ? m->slots[sequence].state : ACKNOWLEDGED;

	if (state == UNSENT || state == ACKNOWLEDGED)
		return;
	if (state == IN_FLIGHT) {
		out_of_flight(m, sequence, ACKNOWLEDGED);
	} else {
		m->slots[sequence].state = ACKNOWLEDGED;
		m->refusals--;
	}
	m->acknowledged++;
}

static void refused(const struct ndp_endpoint *e, struct outgoing *m, const struct ndp_packet *nack)
{
	if (nack->sequence < m->packets && m->slots[nack->sequence].state == IN_FLIGHT) {
		out_of_flight(m, nack->sequence, REFUSED);
		m->refused[(m->first_refused + m->listed_refused++) % m->packets] = nack->sequence;
		m->refusals++;
	}
	if (nack->detail && e->of.layers > 1 && nack->layer == m->layer)
		m->layer = (m->layer + 1 + draw(m, e->of.layers - 1)) % e->of.layers;
}

static void receive_answer(struct ndp_endpoint *e, uint64_t now, uint32_t peer, const struct ndp_packet *packet)
{
	struct outgoing *m = find(&e->outgoing, packet->flow);

	if (!m || m->peer != peer) {
		e->counters.strange++;
		return;
	}
	if (!m->slots) /* it has come to its end */
		return;
	m->heard_at = now;
	m->silences = 0;
	if (packet->number > m->pulls) {
		m->credits += packet->number - m->pulls;
		m->pulls = packet->number;
	}
	if (packet->kind == NDP_ACK)
		acknowledged(m, packet->sequence);
	else if (packet->kind == NDP_NACK)
		refused(e, m, packet);
	if (m->acknowledged == m->packets) {
		tell(e, (struct ndp_event){ .at = now, .peer = peer, .flow = m->flow, .kind = NDP_FINISHED });
		retire(e, m);
	}
	list_sender(e, m);
}

static void ask(struct ndp_endpoint *e, struct outgoing *m, uint32_t sequence, uint64_t now)
{
	into_flight(m, sequence, now);
	append(e, &e->found, (struct ndp_transmission){ .packet = data_of(e, m, sequence), .peer = m->peer });
	e->counters.timeouts++;
}

/* The deadline of a message has come; 1 if it is given up. */
static int expire_message(struct ndp_endpoint *e, struct outgoing *m, uint64_t now)
{
	uint64_t after = timeout_ns(e, m);
	uint32_t late = 0, last = m->last_in_flight;

	if (m->silences == e->of.attempts) {
		tell(e, (struct ndp_event){ .at = now,
					    .silent_ns = now - m->heard_at,
					    .peer = m->peer,
					    .flow = m->flow,
					    .left = m->packets - m->acknowledged,
					    .packets = m->packets,
					    .kind = NDP_FAILED });
		m->failed = 1;
		retire(e, m);
		return 1;
	}
	m->silences++;
	/* those asked after now go to the end of the list: the first one that was there before is not met again */
	for (uint32_t at = m->first_in_flight; at != NOWHERE && m->slots[at].sent_at + after <= now; late++) {
		uint32_t next = at == last ? NOWHERE : m->slots[at].after;

		out_of_flight(m, at, UNSENT);
		ask(e, m, at, now);
		at = next;
	}
	if (!late && m->first_in_flight == NOWHERE)
		ask(e, m, m->refusals ? pop_refused(m) : m->next++, now);
	return 0;
}

static void expire(struct ndp_endpoint *e, uint64_t now)
{
	struct outgoing *next;

	e->timer = NDP_NEVER;
	for (struct outgoing *m = e->first_active; m; m = next) {
		next = m->next_active;
		if (deadline(e, m) <= now && expire_message(e, m, now))
			continue;
		wake(e, deadline(e, m));
	}
}

static void send_one(struct ndp_endpoint *e, uint64_t now)
{
	struct outgoing *m = e->first_sender;
	struct ndp_packet packet;
	uint32_t sequence, bytes;

	e->first_sender = m->next_sender;
	m->listed = 0;
	if (!may_send(m))
		return;
	m->credits--;
	if (m->refusals) {
		sequence = pop_refused(m);
		e->counters.retransmissions++;
	} else {
		sequence = m->next++;
	}
	into_flight(m, sequence, now);
	packet = data_of(e, m, sequence);
	bytes = ndp_own_bytes(&packet);
	append(e, &e->found, (struct ndp_transmission){ .packet = packet, .peer = m->peer, .payload_bytes = bytes });
	e->counters.sent++;
	took(&e->sending, now, gap_ns(e, NDP_FRAME_HEADER + bytes));
	wake(e, now + timeout_ns(e, m));
	list_sender(e, m);
}

/* Incoming messages (incoming.py). */

static void enter_heard(struct ndp_endpoint *e, struct incoming *m, uint64_t now)
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

static void leave_heard(struct ndp_endpoint *e, struct incoming *m)
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

/* Forget the messages that have been silent for a lifetime (parameters.py). */
static void forget(struct ndp_endpoint *e, uint64_t now)
{
	uint64_t lifetime_ns = (e->of.attempts + 1ull) * (e->of.timeout_ns << LONGEST_BACKOFF);
	struct incoming *m;

	while ((m = e->first_heard) && !m->listed && now - m->heard_at > lifetime_ns) {
		leave_heard(e, m);
		erase(&e->incoming, (uint64_t)m->peer << 32 | m->flow);
		e->wanted[m->peer].messages--;
		free(m->received);
		free(m);
	}
}

/* Let there be a place for `peer`; -ENOMEM. */
static int know_peer(struct ndp_endpoint *e, uint32_t peer)
{
	struct wanted *wanted;

	if (peer < e->peers)
		return 0;
	wanted = realloc(e->wanted, (peer + (size_t)1) * sizeof(*wanted));
	if (!wanted)
		return -ENOMEM;
	memset(wanted + e->peers, 0, (peer + (size_t)1 - e->peers) * sizeof(*wanted));
	e->wanted = wanted;
	e->peers = peer + 1;
	return 0;
}

static struct incoming *refuse(struct ndp_endpoint *e)
{
	e->counters.refused++;
	return 0;
}

static struct incoming *new_incoming(struct ndp_endpoint *e, uint64_t now, uint32_t peer, const struct ndp_packet *data)
{
	uint64_t packets = data->number / data->payload_bytes + (data->number % data->payload_bytes != 0);
	struct incoming *m;

	forget(e, now);
	if (e->incoming.used >= NDP_MOST_INCOMING || know_peer(e, peer) ||
	    e->wanted[peer].messages >= NDP_MOST_INCOMING_OF_PEER)
		return refuse(e);
	if (packets > NDP_MOST_PACKETS) {
		e->counters.strange++;
		return 0;
	}
	m = malloc(sizeof(*m));
	if (!m || insert(&e->incoming, (uint64_t)peer << 32 | data->flow, m)) {
		free(m);
		return refuse(e);
	}
	*m = (struct incoming){ .size_bytes = data->number,
				.flow = data->flow,
				.peer = peer,
				.packets = packets,
				.left = packets,
				.payload_bytes = data->payload_bytes,
				.window = data->detail };
	e->wanted[peer].messages++;
	enter_heard(e, m, now);
	return m;
}

/* Whether the sender of `m` can have sent `data` (incoming.py, belongs). */
static int belongs(const struct incoming *m, const struct ndp_packet *data, int whole)
{
	uint64_t sent = (uint64_t)m->window + m->pulls + m->trimmed + 1;

	return m->size_bytes == data->number && m->payload_bytes == data->payload_bytes &&
	       m->window == data->detail && !(whole && data->sequence >= sent);
}

/* Let there be a bit for packet `sequence`; -ENOMEM. */
static int make_place(struct incoming *m, uint32_t sequence)
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

static void list_wanted(struct ndp_endpoint *e, struct incoming *m)
{
	struct wanted *wanted;

	wanted = &e->wanted[m->peer];
	m->listed = 1;
	m->next_wanted = 0;
	if (wanted->first) {
		wanted->last->next_wanted = m;
		wanted->last = m;
		return;
	}
	wanted->first = wanted->last = m;
	wanted->next_peer = NOWHERE;
	if (e->first_peer == NOWHERE)
		e->first_peer = m->peer;
	else
		e->wanted[e->last_peer].next_peer = m->peer;
	e->last_peer = m->peer;
}

/* The kind of answer to `data`. */
static uint8_t arrive(struct ndp_endpoint *e, struct incoming *m, const struct ndp_packet *data, int whole)
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

static void receive_data(struct ndp_endpoint *e, uint64_t now, uint32_t peer, const struct ndp_packet *data, int whole,
			 int at_host)
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
	if (whole && make_place(m, data->sequence)) {
		refuse(e);
		return;
	}
	leave_heard(e, m);
	enter_heard(e, m, now);
	e->counters.data += whole;
	e->counters.headers += !whole;
	was_left = m->left;
	answer.packet.kind = arrive(e, m, data, whole);
	answer.packet.number = m->pulls;
	answer.packet.payload_bytes = 0;
	answer.packet.detail = answer.packet.kind == NDP_NACK && !at_host;
	append(e, &e->answers, answer);
	if (was_left && !m->left)
		tell(e, (struct ndp_event){ .at = now,
					    .size_bytes = m->size_bytes,
					    .peer = peer,
					    .flow = m->flow,
					    .kind = NDP_DELIVERED });
	if (m->queued && !m->listed)
		list_wanted(e, m);
}

static void pull_one(struct ndp_endpoint *e, uint64_t now)
{
	uint32_t peer = e->first_peer;
	struct wanted *wanted = &e->wanted[peer];
	struct incoming *m = wanted->first;

	e->first_peer = wanted->next_peer;
	wanted->next_peer = NOWHERE;
	wanted->first = m->next_wanted;
	if (m->queued) {
		m->queued--;
		m->pulls++;
		append(e, &e->found, (struct ndp_transmission){
			.packet = { .number = m->pulls, .flow = m->flow, .kind = NDP_PULL, .layer = m->layer },
			.peer = peer,
		});
		e->counters.pulls++;
		took(&e->pulling, now, e->gap_ns);
	}
	m->listed = m->queued > 0;
	if (m->listed) {
		m->next_wanted = 0;
		if (wanted->first)
			wanted->last->next_wanted = m;
		else
			wanted->first = m;
		wanted->last = m;
	}
	if (!wanted->first)
		return;
	if (e->first_peer == NOWHERE)
		e->first_peer = peer;
	else
		e->wanted[e->last_peer].next_peer = peer;
	e->last_peer = peer;
}

/* The endpoint (endpoint.py). */

struct ndp_endpoint *ndp_new(const struct ndp_parameters *parameters)
{
	struct ndp_endpoint *e = calloc(1, sizeof(*e));

	if (!e)
		return 0;
	e->of = *parameters;
	e->gap_ns = gap_ns(e, e->of.frame_bytes);
	e->sending.burst_ns = e->pulling.burst_ns = e->of.burst * e->gap_ns;
	e->first_peer = NOWHERE;
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
			free(m->slots);
			free(m->refused);
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
	free(e->outgoing.keys);
	free(e->outgoing.values);
	free(e->incoming.keys);
	free(e->incoming.values);
	free(e->wanted);
	free(e->answers.items);
	free(e->found.items);
	free(e->events);
	free(e);
}

void ndp_receive(struct ndp_endpoint *e, uint64_t now, uint32_t peer, const struct ndp_packet *packet, int whole,
		 int at_host)
{
	if (packet->layer >= e->of.layers)
		e->counters.strange++;
	else if (packet->kind == NDP_DATA)
		receive_data(e, now, peer, packet, whole, at_host);
	else
		receive_answer(e, now, peer, packet);
}

ptrdiff_t ndp_poll(struct ndp_endpoint *e, uint64_t now, const struct ndp_transmission **found)
{
	e->found.count = 0;
	if (e->timer <= now)
		expire(e, now);
	for (size_t i = 0; i < e->answers.count; i++)
		append(e, &e->found, e->answers.items[i]);
	e->answers.count = 0;
	while (e->first_peer != NOWHERE && e->pulling.due <= now)
		pull_one(e, now);
	while (e->first_sender && e->sending.due <= now)
		send_one(e, now);
	*found = e->found.items;
	return e->no_memory ? -ENOMEM : (ptrdiff_t)e->found.count;
}

uint64_t ndp_deadline(const struct ndp_endpoint *e)
{
	uint64_t at = e->timer;

	if (e->answers.count)
		return 0;
	if (e->first_peer != NOWHERE && e->pulling.due < at)
		at = e->pulling.due;
	if (e->first_sender && e->sending.due < at)
		at = e->sending.due;
	return at;
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

/* Bytes (packets.py). */

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

int ndp_decode(const uint8_t *bytes, size_t length, uint32_t layers, struct ndp_packet *packet, int *whole)
{
	uint32_t flow, sequence;
	uint64_t number;
	uint16_t each;
	size_t rest = length - NDP_HEADER;

	if (length < NDP_HEADER || bytes[0] != MAGIC || bytes[2] >= layers)
		return -1;
	memcpy(&flow, bytes + 4, 4);
	memcpy(&sequence, bytes + 8, 4);
	memcpy(&number, bytes + 12, 8);
	memcpy(&each, bytes + 20, 2);
	*packet = (struct ndp_packet){ .number = be64toh(number),
				       .flow = be32toh(flow),
				       .sequence = be32toh(sequence),
				       .payload_bytes = be16toh(each),
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
	if (packet->kind < NDP_ACK || packet->kind > NDP_PULL || rest || each || packet->number >> 32)
		return -1;
	if (packet->detail > (packet->kind == NDP_NACK) || (packet->kind == NDP_PULL && packet->sequence))
		return -1;
	return 0;
}
