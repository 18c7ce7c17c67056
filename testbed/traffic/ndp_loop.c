/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "ndp_loop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define MOST_READ 4 /* batches of one host before the others have their turn */
#define EVENTS 64
#define TRIMMED 7 /* code point, as in daemons/transport/endpoint.py */
#define MARKED 3 /* of the two bits of ECN: congestion experienced */
#define CONTROL_ROOM CMSG_SPACE(sizeof(int))
#define NO_HOST UINT32_MAX

/* A batch of datagrams to send from one socket. */
struct batch {
	struct mmsghdr messages[BATCH];
	struct iovec parts[BATCH][2];
	struct sockaddr_in to[BATCH];
	uint8_t headers[BATCH][NDP_HEADER];
	unsigned count;
};

struct loop {
	struct ndp_run *run;
	struct ndp_endpoint **endpoints;
	uint64_t *deadlines;
	uint64_t begin;
	uint64_t now; /* read once a round: under a virtual clock, a system call takes time */
	uint32_t waiting; /* first message that has not begun */
	uint32_t open; /* ends of messages, of two each, that have not finished */
	uint8_t *patterns; /* 256 payloads, each of one repeated byte */
	uint32_t *hosts; /* by address: open addressing */
	uint32_t host_places; /* a power of two */
	int epoll, timer;
	size_t frame_room;
	uint8_t *frames; /* BATCH of them */
	struct batch data, control;
	struct mmsghdr in[BATCH];
	struct iovec in_parts[BATCH];
	struct sockaddr_in from[BATCH];
	uint8_t in_control[BATCH][CONTROL_ROOM] __attribute__((aligned(8)));
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static uint32_t *host_slot(struct loop *l, uint32_t address)
{
	uint32_t slot = (address * 0x9e3779b1u) & (l->host_places - 1);

	while (l->hosts[slot] != NO_HOST && l->run->hosts[l->hosts[slot]].address != address)
		slot = (slot + 1) & (l->host_places - 1);
	return &l->hosts[slot];
}

/* Return the payload of a packet: a byte that depends on the packet, repeated, so that the receiver
 * notices another packet's payload. */
static const uint8_t *pattern(const struct loop *l, const struct ndp_packet *packet)
{
	uint8_t value = packet->flow * 31 + packet->sequence;

	return l->patterns + value * (size_t)l->frame_room;
}

static void flush(struct loop *l, struct batch *batch, int socket)
{
	unsigned sent = 0;

	while (sent < batch->count) {
		int count = sendmmsg(socket, batch->messages + sent, batch->count - sent, 0);

		if (count > 0) {
			sent += count;
		} else if (errno != EINTR) { /* the packet is lost, and counted */
			l->run->unsent++;
			sent++;
		}
	}
	batch->count = 0;
}

static void send_packet(struct loop *l, uint32_t host, const struct ndp_transmission *transmission)
{
	const struct ndp_run *run = l->run;
	struct batch *batch = transmission->payload_bytes ? &l->data : &l->control;
	unsigned i = batch->count++;
	uint32_t address = run->hosts[transmission->peer].address;

	if (run->parameters.layers > 1)
		memcpy(&address, &run->octets[transmission->packet.layer], 1);
	ndp_encode(&transmission->packet, batch->headers[i]);
	batch->to[i] = (struct sockaddr_in){ .sin_family = AF_INET,
					     .sin_port = htons(run->port),
					     .sin_addr.s_addr = address };
	batch->parts[i][0] = (struct iovec){ batch->headers[i], NDP_HEADER };
	batch->parts[i][1] = (struct iovec){ (void *)pattern(l, &transmission->packet),
					     transmission->payload_bytes };
	batch->messages[i].msg_hdr =
		(struct msghdr){ .msg_name = &batch->to[i],
				 .msg_namelen = sizeof(batch->to[i]),
				 .msg_iov = batch->parts[i],
				 .msg_iovlen = transmission->payload_bytes ? 2 : 1 };
	if (batch->count == BATCH)
		flush(l, batch,
		      transmission->payload_bytes ? run->hosts[host].data :
						    run->hosts[host].control);
}

/* Record an event.  Its message is of the run: endpoints receive no packets of other messages. */
static void on_event(struct loop *l, const struct ndp_event *event)
{
	struct ndp_message *message = &l->run->messages[event->flow - l->run->first_flow];

	if (event->kind == NDP_DELIVERED) {
		if (message->delivered != NDP_NEVER) /* a late duplicate of its only packet */
			return;
		message->delivered = event->time_ns - l->begin;
		l->open -= !message->packets; /* after a failure its receiver's end is closed
						 already */
		return;
	}
	l->open--;
	message->finished = event->time_ns - l->begin;
	if (event->kind != NDP_FAILED)
		return;
	message->unacknowledged = event->unacknowledged;
	message->packets = event->packets;
	message->silent_ns = event->silent_ns;
	if (message->delivered == NDP_NEVER)
		l->open--; /* the receiver's end closes, too */
}

/* Send the packets of a host, and set its next deadline; -ENOMEM if its endpoint has run out of
 * memory. */
static int serve(struct loop *l, uint32_t host)
{
	struct ndp_endpoint *endpoint = l->endpoints[host];
	const struct ndp_transmission *packets;
	struct ndp_event event;
	ptrdiff_t count = ndp_poll(endpoint, l->now, &packets);

	if (count < 0)
		return count;
	for (ptrdiff_t i = 0; i < count; i++)
		send_packet(l, host, &packets[i]);
	flush(l, &l->control, l->run->hosts[host].control);
	flush(l, &l->data, l->run->hosts[host].data);
	while (ndp_take_event(endpoint, &event))
		on_event(l, &event);
	l->deadlines[host] = ndp_deadline(endpoint);
	return 0;
}

/* Return 1 if another layer may help: data was marked, or trimmed before a link between switches. */
static int is_congested(struct msghdr *header, int whole)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c))
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
			return whole ? (*CMSG_DATA(c) & MARKED) == MARKED :
				       *CMSG_DATA(c) >> 2 == TRIMMED;
	return 0;
}

/* Return 1 if `packet`, from `peer` to `host`, is of a message of the run that has begun. */
static int is_expected(const struct loop *l, uint32_t host, uint32_t peer,
		       const struct ndp_packet *packet)
{
	uint32_t number = packet->flow - l->run->first_flow;
	const struct ndp_parameters *parameters = &l->run->parameters;
	const struct ndp_message *message;

	if (number >= l->waiting)
		return 0;
	message = &l->run->messages[number];
	if (packet->kind != NDP_DATA)
		return message->src == host && message->dst == peer;
	return message->src == peer && message->dst == host &&
	       message->size_bytes == packet->number &&
	       packet->payload_bytes == parameters->frame_bytes - NDP_FRAME_HEADER &&
	       parameters->window == packet->detail;
}

static void receive_datagram(struct loop *l, uint32_t host, unsigned i)
{
	const uint8_t *bytes = l->in_parts[i].iov_base;
	size_t length = l->in[i].msg_len;
	uint32_t peer = *host_slot(l, l->from[i].sin_addr.s_addr);
	struct ndp_packet packet;
	int whole;

	if (peer == NO_HOST || l->in[i].msg_hdr.msg_flags & MSG_TRUNC ||
	    ndp_decode(bytes, length, l->run->parameters.layers, &packet, &whole)) {
		l->run->garbage++;
		return;
	}
	if (!is_expected(l, host, peer, &packet)) {
		l->run->unknown++;
		return;
	}
	if (length > NDP_HEADER &&
	    memcmp(bytes + NDP_HEADER, pattern(l, &packet), length - NDP_HEADER)) {
		l->run->corrupt++;
		return;
	}
	ndp_receive(l->endpoints[host], l->now, peer, &packet, whole,
		    is_congested(&l->in[i].msg_hdr, whole));
}

/* Receive the datagrams of a host. */
static void read_socket(struct loop *l, uint32_t host)
{
	int count = BATCH;

	for (int round = 0; round < MOST_READ && count == BATCH; round++) {
		for (unsigned i = 0; i < BATCH; i++) {
			l->in[i].msg_hdr.msg_namelen = sizeof(l->from[i]);
			l->in[i].msg_hdr.msg_controllen = CONTROL_ROOM;
		}
		count = recvmmsg(l->run->hosts[host].data, l->in, BATCH, MSG_DONTWAIT, 0);
		for (int i = 0; i < count; i++)
			receive_datagram(l, host, i);
	}
}

static int begin_due(struct loop *l)
{
	struct ndp_run *run = l->run;

	while (l->waiting < run->n_messages &&
	       run->messages[l->waiting].due_ns <= l->now - l->begin) {
		struct ndp_message *message = &run->messages[l->waiting];

		int error =
			ndp_send(l->endpoints[message->src], l->now, run->first_flow + l->waiting,
				 message->dst, message->size_bytes);

		if (error)
			return error;
		message->began = l->now - l->begin;
		l->open += 2; /* the receiver's end and the sender's */
		l->waiting++;
		l->deadlines[message->src] = 0;
	}
	return 0;
}

/* Sleep until a datagram arrives or the clock is `deadline_ns`; return the number of events. */
static int sleep_until(struct loop *l, uint64_t deadline_ns, struct epoll_event *events)
{
	struct itimerspec when = { .it_value = { deadline_ns / 1000000000,
						 deadline_ns % 1000000000 } };
	uint64_t expirations;
	int count;

	if (timerfd_settime(l->timer, TFD_TIMER_ABSTIME, &when, 0))
		return -errno;
	count = epoll_wait(l->epoll, events, EVENTS, -1);
	if (count < 0)
		return -errno;
	l->run->wakes++;
	l->now = now_ns();
	for (int i = 0; i < count; i++)
		if (events[i].data.u32 == NO_HOST &&
		    read(l->timer, &expirations, sizeof(expirations)) > 0 && l->now > deadline_ns &&
		    l->now - deadline_ns > l->run->late_ns)
			l->run->late_ns = l->now - deadline_ns;
	return count;
}

static int loop(struct loop *l)
{
	struct ndp_run *run = l->run;
	struct epoll_event events[EVENTS];
	int count = 0, error;

	for (;;) {
		uint64_t next = l->begin + run->deadline;

		for (int i = 0; i < count; i++)
			if (events[i].data.u32 != NO_HOST) {
				read_socket(l, events[i].data.u32);
				l->deadlines[events[i].data.u32] = 0;
			}
		if (l->now - l->begin >= run->deadline)
			return 0;
		if ((error = begin_due(l)))
			return error;
		for (uint32_t host = 0; host < run->n_hosts; host++) {
			if (l->deadlines[host] <= l->now && (error = serve(l, host)))
				return error;
			if (l->deadlines[host] < next)
				next = l->deadlines[host];
		}
		if (l->waiting == run->n_messages && !l->open)
			return 0;
		if (l->waiting < run->n_messages &&
		    l->begin + run->messages[l->waiting].due_ns < next)
			next = l->begin + run->messages[l->waiting].due_ns;
		count = sleep_until(l, next ? next : 1, events);
		if (count < 0)
			return count;
	}
}

static int watch(struct loop *l, int fd, uint32_t host)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = host };

	return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int prepare(struct loop *l)
{
	struct ndp_run *run = l->run;
	int error;

	for (l->host_places = 64; l->host_places < 2 * run->n_hosts; l->host_places *= 2)
		;
	l->frame_room = run->parameters.frame_bytes;
	l->hosts = malloc(l->host_places * sizeof(*l->hosts));
	l->endpoints = calloc(run->n_hosts, sizeof(*l->endpoints));
	l->deadlines = malloc(run->n_hosts * sizeof(*l->deadlines));
	l->patterns = malloc(256 * l->frame_room);
	l->frames = malloc(BATCH * l->frame_room);
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (l->epoll < 0 || l->timer < 0)
		return -errno;
	if (!l->hosts || !l->endpoints || !l->deadlines || !l->patterns || !l->frames)
		return -ENOMEM;
	memset(l->hosts, 0xff, l->host_places * sizeof(*l->hosts));
	for (int value = 0; value < 256; value++)
		memset(l->patterns + value * l->frame_room, value, l->frame_room);
	for (unsigned i = 0; i < BATCH; i++) {
		l->in_parts[i] = (struct iovec){ l->frames + i * l->frame_room, l->frame_room };
		l->in[i].msg_hdr = (struct msghdr){ .msg_name = &l->from[i],
						    .msg_iov = &l->in_parts[i],
						    .msg_iovlen = 1,
						    .msg_control = l->in_control[i] };
	}
	if ((error = watch(l, l->timer, NO_HOST)))
		return error;
	for (uint32_t host = 0; host < run->n_hosts; host++) {
		*host_slot(l, run->hosts[host].address) = host;
		l->deadlines[host] = NDP_NEVER;
		l->endpoints[host] = ndp_new(&run->parameters);
		if (!l->endpoints[host])
			return -ENOMEM;
		if ((error = watch(l, run->hosts[host].data, host)))
			return error;
	}
	return 0;
}

static void sum_counters(struct loop *l)
{
	uint64_t *sum = (uint64_t *)&l->run->counters;

	for (uint32_t host = 0; host < l->run->n_hosts && l->endpoints[host]; host++) {
		const uint64_t *more = (const uint64_t *)ndp_counters(l->endpoints[host]);

		for (size_t i = 0; i < sizeof(struct ndp_counters) / sizeof(*sum); i++)
			sum[i] += more[i];
	}
}

static void free_loop(struct loop *l)
{
	for (uint32_t host = 0; l->endpoints && host < l->run->n_hosts; host++)
		ndp_free(l->endpoints[host]);
	if (l->epoll >= 0)
		close(l->epoll);
	if (l->timer >= 0)
		close(l->timer);
	free(l->hosts);
	free(l->endpoints);
	free(l->deadlines);
	free(l->patterns);
	free(l->frames);
	free(l);
}

int ndp_run(struct ndp_run *run)
{
	struct loop *l = calloc(1, sizeof(*l));
	int error;

	if (!l)
		return -ENOMEM;
	l->run = run;
	l->epoll = l->timer = -1;
	for (uint32_t i = 0; i < run->n_messages; i++) {
		struct ndp_message *message = &run->messages[i];

		message->began = message->delivered = message->finished = NDP_NEVER;
	}
	error = prepare(l);
	if (!error) {
		l->begin = l->now = now_ns();
		error = loop(l);
		sum_counters(l);
	}
	free_loop(l);
	return error;
}
