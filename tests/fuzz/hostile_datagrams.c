/* SPDX-License-Identifier: MIT */
/* Hostile datagrams for the transport in C: its loop's receive_datagram() and send_packet(), and its machine alone, under the sanitizers.
 *
 *     hostile_datagrams COUNT SEED
 *
 * Each datagram is a forged one, whose fields are at their limits, or a changed one of those that hosts have sent; some
 * allocations fail.  It prints what was counted, and ends by a sanitizer's report, or by assert(), at the first fault.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static uint64_t state = 1;
static unsigned failing; /* one in so many allocations fails; 0: none */

static uint64_t pick(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

static int no_memory(void)
{
	return failing && !pick(failing);
}

static void *failing_malloc(size_t size)
{
	return no_memory() ? 0 : malloc(size);
}

static void *failing_calloc(size_t count, size_t size)
{
	return no_memory() ? 0 : calloc(count, size);
}

static void *failing_realloc(void *array, size_t size)
{
	return no_memory() ? 0 : realloc(array, size);
}

static int swallow(int socket, struct mmsghdr *messages, unsigned count, int flags);

#define malloc failing_malloc
#define calloc failing_calloc
#define realloc failing_realloc
#define sendmmsg swallow
#include "ndp_machine.c"
#include "ndp_loop.c"
#undef malloc
#undef calloc
#undef realloc

#define HOSTS 4
#define MESSAGES 64
#define KEPT 256
#define ROOM 200 /* of a frame of 128 bytes, and more */
#define ROUND 25000 /* datagrams for one endpoint, or for one loop */

static uint8_t kept[KEPT][ROOM];
static size_t kept_bytes[KEPT];
static uint64_t n_kept, next_kept, sent_bytes;

static void keep(const struct iovec *parts, size_t count)
{
	uint8_t *to = kept[n_kept % KEPT];
	size_t length = 0;

	for (size_t i = 0; i < count; i++) {
		assert(length + parts[i].iov_len <= ROOM);
		memcpy(to + length, parts[i].iov_base,
		       parts[i].iov_len); /* which reads all that would be sent */
		length += parts[i].iov_len;
	}
	kept_bytes[n_kept++ % KEPT] = length;
	sent_bytes += length;
}

static int swallow(int socket, struct mmsghdr *messages, unsigned count, int flags)
{
	(void)socket;
	(void)flags;
	for (unsigned i = 0; i < count; i++)
		keep(messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen);
	return count;
}

static uint64_t edge(uint64_t usual)
{
	static const uint64_t edges[] = { 0,
					  1,
					  2,
					  3,
					  7,
					  8,
					  9,
					  63,
					  64,
					  65,
					  127,
					  200,
					  255,
					  256,
					  1 << 14,
					  65535,
					  1 << 24,
					  (1 << 24) - 1,
					  UINT32_MAX - 1,
					  UINT32_MAX,
					  1ull << 40,
					  UINT64_MAX };

	return pick(3) ? usual : edges[pick(sizeof(edges) / sizeof(*edges))];
}

/* Write a datagram of some kind; return its length. */
static size_t forge(const struct ndp_parameters *of, uint8_t *bytes)
{
	uint32_t payload = of->frame_bytes - NDP_FRAME_HEADER;
	struct ndp_packet packet = { .flow = edge(pick(MESSAGES)),
				     .sequence = edge(pick(16)),
				     .layer = edge(pick(of->layers)),
				     .kind = edge(1 + pick(4)) };
	size_t length = NDP_HEADER;

	if (n_kept && pick(2)) {
		size_t i =
			pick(8) ? next_kept++ % n_kept % KEPT : pick(n_kept < KEPT ? n_kept : KEPT);

		memcpy(bytes, kept[i], length = kept_bytes[i]);
		for (unsigned changes = pick(2) * pick(4); changes; changes--)
			bytes[pick(length)] = pick(2) ? edge(0) : pick(256);
		return pick(8) ? length : pick(length + 1);
	}
	packet.number = packet.kind == NDP_DATA ? edge(payload * (1 + pick(20))) : edge(pick(100));
	packet.payload_bytes = packet.kind == NDP_DATA ? edge(payload) : edge(0);
	packet.detail = edge(packet.kind == NDP_DATA ? of->window : pick(2));
	ndp_encode(&packet, bytes);
	if (packet.kind == NDP_DATA && pick(2) && ndp_own_bytes(&packet) <= ROOM - NDP_HEADER) {
		length += ndp_own_bytes(&packet);
		memset(bytes + NDP_HEADER, (uint8_t)(packet.flow * 31 + packet.sequence),
		       length - NDP_HEADER);
	}
	return pick(16) ? length : pick(ROOM);
}

/* A copy of the datagram that ends where its memory ends. */
static uint8_t *exact(const uint8_t *bytes, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);

	memcpy(copy, bytes, length);
	return copy;
}

static void check_bounds(const struct ndp_endpoint *e)
{
	uint64_t bits = 0, arrived = e->counters.data + e->counters.headers;

	assert(e->incoming.used <= NDP_MOST_INCOMING);
	for (size_t i = 0; i < e->peers.places; i++) {
		const struct peer_queue *queue = e->peers.values[i];

		assert(!queue || queue->messages <= NDP_MOST_INCOMING_OF_PEER);
	}
	for (const struct incoming *m = e->first_heard; m; m = m->heard_after)
		bits += m->places;
	assert(bits <= 2 * (512 * e->incoming.used + 2 * arrived)); /* it grows by what arrives */
}

static const struct ndp_parameters PARAMETERS[] = {
	{ .rate_bps = 10000000000,
	  .timeout_ns = 20000,
	  .frame_bytes = 128,
	  .window = 8,
	  .layers = 3,
	  .attempts = 3,
	  .burst = 8 },
	{ .rate_bps = 100000000,
	  .timeout_ns = 1000,
	  .frame_bytes = 65,
	  .window = 255,
	  .layers = 1,
	  .attempts = 1,
	  .burst = 1 },
	{ .rate_bps = 1000000000,
	  .timeout_ns = 50000,
	  .frame_bytes = 200,
	  .window = 1,
	  .layers = 64,
	  .attempts = 10,
	  .burst = 50 },
};

static struct ndp_counters totals;

static void add_counters(const struct ndp_counters *counters)
{
	for (size_t i = 0; i < sizeof(totals) / sizeof(uint64_t); i++)
		((uint64_t *)&totals)[i] += ((const uint64_t *)counters)[i];
}

/* The machine alone, which does not know the messages of the run. */
static void attack_machine(const struct ndp_parameters *of, uint64_t count)
{
	struct ndp_endpoint *e = ndp_new(of);
	const struct ndp_transmission *packets;
	uint8_t bytes[ROOM] = { 0 };
	struct ndp_event event;
	uint64_t now = 0;

	for (uint64_t i = 0; e && i < count; i++) {
		size_t length = forge(of, bytes);
		uint8_t *datagram = exact(bytes, length);
		struct ndp_packet packet;
		int whole;

		now += pick(500);
		if (!pick(50))
			ndp_send(e, now, pick(1 << 20), pick(HOSTS), edge(pick(20) * 64) & 0xffff);
		if (!ndp_decode(datagram, length, of->layers, &packet, &whole))
			ndp_receive(e, now, pick(HOSTS), &packet, whole, pick(2));
		free(datagram);
		if (pick(4))
			continue;
		ptrdiff_t n = ndp_poll(e, now, &packets);
		for (ptrdiff_t j = 0; j < n; j++)
			assert(packets[j].packet.layer < of->layers &&
			       packets[j].payload_bytes <= of->frame_bytes);
		while (ndp_take_event(e, &event))
			;
		if (n < 0)
			break;
		if (!pick(10000))
			check_bounds(e);
	}
	if (e) {
		check_bounds(e);
		add_counters(ndp_counters(e));
	}
	ndp_free(e);
}

/* Let a host receive the datagram: mostly the one that it is for, from the one that sends such. */
static void receive(struct loop *l, const uint8_t *bytes, size_t length)
{
	const struct ndp_message *message = &l->run->messages[bytes[7] % MESSAGES];
	int data = bytes[1] == NDP_DATA;
	uint32_t host = pick(16) ? (data ? message->dst : message->src) : pick(HOSTS);
	uint32_t peer = pick(16) ? (data ? message->src : message->dst) : pick(HOSTS);
	unsigned i = pick(BATCH);
	uint8_t *frame = l->in_parts[i].iov_base;
	struct cmsghdr *control = (struct cmsghdr *)l->in_control[i];

	if (length > l->frame_room)
		length = l->frame_room;
	l->in_parts[i].iov_base = exact(bytes, length);
	l->in[i].msg_len = length;
	l->in[i].msg_hdr.msg_flags = pick(100) ? 0 : MSG_TRUNC;
	l->from[i] =
		(struct sockaddr_in){ .sin_family = AF_INET,
				      .sin_addr.s_addr = pick(20) ? l->run->hosts[peer].address :
								    pick(1u << 31) };
	*control = (struct cmsghdr){ .cmsg_len = CMSG_LEN(1),
				     .cmsg_level = IPPROTO_IP,
				     .cmsg_type = IP_TOS };
	*CMSG_DATA(control) = pick(256);
	l->in[i].msg_hdr.msg_controllen = pick(2) ? CMSG_LEN(1) : 0;
	receive_datagram(l, host, i);
	free(l->in_parts[i].iov_base);
	l->in_parts[i].iov_base = frame;
}

/* Carry the run of `l` on by `count` datagrams; 0, or -ENOMEM. */
static int attack_run(struct loop *l, uint64_t count)
{
	uint8_t bytes[ROOM] = { 0 };
	int error = begin_due(l);

	for (uint64_t i = 0; !error && i < count; i++) {
		l->now += pick(500);
		receive(l, bytes, forge(&l->run->parameters, bytes));
		if (!pick(4))
			error = serve(l, pick(HOSTS));
		if (!error && !pick(64))
			error = begin_due(l);
	}
	return error;
}

/* The loop, with the messages of a run. */
static void attack_loop(const struct ndp_parameters *of, uint64_t count, struct ndp_run *sum)
{
	struct ndp_host hosts[HOSTS];
	struct ndp_message messages[MESSAGES];
	uint8_t *octets = malloc(of->layers);
	struct ndp_run run = { .hosts = hosts,
			       .messages = messages,
			       .octets = octets,
			       .parameters = *of,
			       .deadline = UINT64_MAX / 2,
			       .n_hosts = HOSTS,
			       .n_messages = MESSAGES,
			       .port = 6331 };
	struct loop *l = calloc(1, sizeof(*l));

	memset(octets, 64, of->layers);
	for (unsigned i = 0; i < HOSTS; i++) {
		int pair[2];

		if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair))
			abort();
		hosts[i] = (struct ndp_host){ .data = pair[0],
					      .control = pair[1],
					      .address = 0x0100000a + (i << 24) };
	}
	for (unsigned i = 0; i < MESSAGES; i++)
		messages[i] = (struct ndp_message){ .due_ns = i * 50000ull,
						    .size_bytes = 1 + pick(2000),
						    .src = i % HOSTS,
						    .dst = (i + 1 + pick(HOSTS - 1)) % HOSTS,
						    .began = NDP_NEVER,
						    .delivered = NDP_NEVER,
						    .finished = NDP_NEVER };
	l->run = &run;
	l->epoll = l->timer = -1;
	if (!prepare(l)) {
		l->begin = l->now = 1;
		attack_run(l, count);
		sum_counters(l);
		add_counters(&run.counters);
		for (unsigned i = 0; i < HOSTS; i++)
			check_bounds(l->endpoints[i]);
	}
	sum->garbage += run.garbage;
	sum->unknown += run.unknown;
	sum->corrupt += run.corrupt;
	for (unsigned i = 0; i < MESSAGES; i++)
		sum->n_messages += messages[i].delivered != NDP_NEVER;
	free_loop(l);
	for (unsigned i = 0; i < HOSTS; i++) {
		close(hosts[i].data);
		close(hosts[i].control);
	}
	free(octets);
}

int main(int argc, char **argv)
{
	uint64_t count = argc > 1 ? strtoull(argv[1], 0, 10) : 100000;
	struct ndp_run sum = { 0 };

	state = 0x9e3779b97f4a7c15 * (2 * (argc > 2 ? strtoull(argv[2], 0, 10) : 1) + 1);
	for (uint64_t round = 0, done = 0; done < count; round++) {
		const struct ndp_parameters *of = &PARAMETERS[round / 2 % 3];
		uint64_t datagrams = count - done < ROUND ? count - done : ROUND;

		failing = round % 8 > 5 ? 500 : 0;
		n_kept = next_kept = 0;
		if (round % 2)
			attack_loop(of, datagrams, &sum);
		else
			attack_machine(of, datagrams);
		done += datagrams;
	}
	printf("data %lu headers %lu strange %lu refused %lu sent %lu timeouts %lu garbage %lu "
	       "unknown %lu corrupt %lu delivered %u\n",
	       totals.data, totals.headers, totals.strange, totals.refused, totals.sent,
	       totals.timeouts, sum.garbage, sum.unknown, sum.corrupt, sum.n_messages);
	return 0;
}
