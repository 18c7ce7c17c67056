/* SPDX-License-Identifier: MIT */
#include "tcp_machine.h"
#include "cubic.h"
#include "memory.h"

#define NONE UINT32_MAX
#define SECOND_NS 1000000000ull
#define MS_NS 1000000ull /* unit of time stamps */
#define INITIAL_WINDOW 10
#define INITIAL_RENO_WINDOW 2 /* RFC 5681, of packets above 2,190 bytes */
#define INITIAL_RECEIVE_BYTES 65535
#define DUPLICATES 3 /* packets that may overtake one before it is taken for lost */
#define MOST_QUICK 16 /* acknowledgements at the beginning that are not delayed */
#define DELAYED_ACK_NS 40000000ull
#define LEAST_TIMEOUT_JIFFIES 2
#define INFINITE_WINDOW 0x7fffffff
#define ALPHA_ONE 1024
#define MOST_BACKOFF 16
#define MOST_PACKETS (1u << 30) /* of a flow */
#define MOST_BLOCKS 4 /* that a receiver remembers */
#define MEMORY_BYTES 960 /* that a packet takes beside its payload */
#define MOST_WAITING_BYTES (4u << 20) /* tcp_limit_output_bytes */

enum { LISTED = 1, SACKED = 2, LOST = 4, AGAIN = 8, EVER_AGAIN = 16 };
enum { OPEN, REDUCING, RECOVERY, LOSS };
enum { TIMER_NONE, TIMER_RTO, TIMER_PROBE, TIMER_REORDERING };

/* A packet.  Those in flight are a list in the order of their last transmission, without those that
 * RACK has marked lost, even if the mark is removed later. */
struct packet {
	uint64_t sent_at;
	uint32_t before, after;
	uint16_t payload_bytes;
	uint8_t flags;
};

struct sender {
	struct packet *packets;
	uint32_t first, last; /* of the list */
	uint32_t acknowledged, next, limit;
	uint32_t window, threshold, growth, most_out, window_limited;
	uint32_t sacked, lost, again, highest_sacked;
	uint32_t recovery_point, prior_window, prior_threshold, recovered, recovery_sent;
	int64_t undo_retransmissions; /* not yet shown to be in vain; -1 before the first */
	uint32_t can_undo, retransmitted_ms;
	uint64_t smoothed_rtt, variation, least_rtt;
	uint64_t rack_sent_at, rack_rtt;
	uint32_t rack_sequence, reordering_seen, reordering_steps;
	uint64_t steps_raised_at, syn_sent_at;
	uint32_t probe_point, probe_again, probe_due;
	uint32_t duplicates, repair_due; /* of Reno */
	uint32_t backoff, state, timer, connected;
	uint64_t deadline;
	uint32_t reduced, alpha, marked_acks, acks, alpha_point;
	uint64_t last_sent_at;
};

/* late, spurious: as in struct tcp_counters; the sender counts the latter unless it is Reno. */
struct receiver {
	uint8_t *received;
	struct tcp_block blocks[MOST_BLOCKS];
	uint32_t n_blocks, expected, window, unanswered, quick, echo, stamp_ms, last_answered;
	uint32_t latest; /* number behind the highest that has arrived */
	uint64_t deadline, late, spurious;
};

/* What both ends read, and what one of them writes, have lines of their own: the ends may lie in two parts
 * of the network, which two threads run. */
struct tcp_flow {
	struct tcp_parameters parameters;
	uint32_t flow, packets, room, payload_bytes;
	struct cubic *cubic; /* 0 without; it follows the flow in memory */
	struct arena *arena;
	_Alignas(LINE_BYTES) struct sender s;
	struct tcp_counters counters;
	_Alignas(LINE_BYTES) struct receiver r;
};

static int is_reno(const struct tcp_flow *f)
{
	return f->parameters.recovery == TCP_RENO;
}

/* Return the number of the kernel's tick, from 1 on. */
static uint64_t tick_of(const struct tcp_flow *f, uint64_t now)
{
	return now / f->parameters.jiffy_ns + 1;
}

/* Return the tick at which a timer of Linux that is set now for `after_ns` expires. */
static uint64_t tick(const struct tcp_flow *f, uint64_t now, uint64_t after_ns)
{
	uint64_t jiffy = f->parameters.jiffy_ns;

	return (now / jiffy + (after_ns + jiffy - 1) / jiffy) * jiffy;
}

struct tcp_flow *tcp_new(const struct tcp_parameters *parameters, uint32_t flow,
			 struct arena *arena)
{
	size_t bytes = sizeof(struct tcp_flow) + (parameters->cubic ? sizeof(struct cubic) : 0);
	struct tcp_flow *f = arena_take(arena, bytes);

	if (!f)
		return 0;
	f->arena = arena;
	f->cubic = parameters->cubic ? (struct cubic *)(f + 1) : 0;
	f->parameters = *parameters;
	f->flow = flow;
	f->payload_bytes = parameters->frame_bytes - TCP_HEADER;
	f->s = (struct sender){
		.first = NONE,
		.last = NONE,
		.window = is_reno(f) ? INITIAL_RENO_WINDOW : INITIAL_WINDOW,
		.threshold = INFINITE_WINDOW,
		.least_rtt = UINT64_MAX,
		.reordering_steps = 1,
		.deadline = TCP_NEVER,
		.alpha = ALPHA_ONE,
	};
	f->r.deadline = TCP_NEVER;
	f->r.window = INITIAL_RECEIVE_BYTES / f->payload_bytes;
	f->r.quick = most(2, least(MOST_QUICK, f->r.window / 2));
	return f;
}

/* The sender's windows. */

static uint32_t in_flight(const struct sender *s)
{
	return s->next - s->acknowledged - s->sacked - s->lost + s->again;
}

/* Return the threshold after a loss. */
static uint32_t threshold_of_loss(struct tcp_flow *f)
{
	return f->cubic ? cubic_threshold(f->cubic, f->s.window) : most(2, f->s.window / 2);
}

static void start_reduction(struct tcp_flow *f, uint32_t state)
{
	struct sender *s = &f->s;

	s->prior_window = s->window;
	s->prior_threshold = s->threshold;
	if (f->parameters.ecn == TCP_DCTCP && state == REDUCING)
		s->threshold = most(2, s->window - (s->window * s->alpha >> 11));
	else
		s->threshold = threshold_of_loss(f);
	s->recovery_point = s->next;
	s->recovered = s->recovery_sent = s->growth = 0;
	s->probe_point = 0;
	s->reduced = f->parameters.ecn != TCP_NO_ECN;
	s->state = state;
	f->counters.reductions++;
}

static void start_recovery(struct tcp_flow *f)
{
	struct sender *s = &f->s;
	int is_reduced = s->state == REDUCING; /* for this round trip */

	if (!is_reduced)
		start_reduction(f, RECOVERY);
	s->state = RECOVERY;
	s->can_undo = !is_reduced;
	s->undo_retransmissions = -1;
	s->retransmitted_ms = 0;
}

/* Proportional rate reduction. */
static void reduce(struct sender *s, uint32_t delivered, uint32_t new_losses, int advanced)
{
	uint32_t pipe = in_flight(s), room = 0;
	int64_t owed;

	if (!delivered || !s->prior_window)
		return;
	s->recovered += delivered;
	if (pipe > s->threshold) {
		owed = ((uint64_t)s->threshold * s->recovered + s->prior_window - 1) /
		       s->prior_window;
		room = owed > s->recovery_sent ? owed - s->recovery_sent : 0;
	} else {
		owed = (int64_t)s->recovered - s->recovery_sent;
		room = owed > (int64_t)delivered ? owed : delivered;
		room += advanced && !new_losses;
		room = least(room, s->threshold - pipe);
	}
	s->window = pipe + most(room, !s->recovery_sent);
}

/* Let the window grow by 1 for each `pace` packets, as tcp_cong_avoid_ai() does. */
static void grow_by_pace(struct sender *s, uint32_t pace, uint32_t acknowledged)
{
	if (s->growth >= pace) { /* the pace has become faster */
		s->growth = 0;
		s->window++;
	}
	s->growth += acknowledged;
	s->window += s->growth / pace;
	s->growth %= pace;
}

static void grow_window(struct tcp_flow *f, uint64_t now, uint32_t acknowledged)
{
	struct sender *s = &f->s;
	uint32_t slow = s->window < s->threshold;

	if (slow ? s->window >= 2 * s->most_out : !s->window_limited)
		return;
	if (slow) {
		uint32_t larger = least((uint64_t)s->window + acknowledged, s->threshold);

		acknowledged -= larger - s->window;
		s->window = larger;
	}
	if (f->cubic) {
		if (acknowledged)
			grow_by_pace(s,
				     cubic_pace(f->cubic, s->window, acknowledged, tick_of(f, now),
						f->parameters.jiffy_ns),
				     acknowledged);
		return;
	}
	s->growth += acknowledged;
	while (s->growth >= s->window) {
		s->growth -= s->window;
		s->window++;
	}
}

static void undo(struct sender *s)
{
	for (uint32_t p = s->acknowledged; p < s->next; p++)
		s->packets[p].flags &= ~LOST;
	s->lost = 0;
	s->window = most(s->window, s->prior_window);
	s->threshold = most(s->threshold, s->prior_threshold);
	s->can_undo = 0;
	s->state = OPEN;
}

/* The list of packets in flight. */

static void unlist(struct sender *s, uint32_t sequence)
{
	struct packet *p = &s->packets[sequence];

	if (!(p->flags & LISTED))
		return;
	p->flags &= ~LISTED;
	if (p->before == NONE)
		s->first = p->after;
	else
		s->packets[p->before].after = p->after;
	if (p->after == NONE)
		s->last = p->before;
	else
		s->packets[p->after].before = p->before;
}

static void list(struct sender *s, uint32_t sequence, uint64_t now)
{
	struct packet *p = &s->packets[sequence];

	p->sent_at = now;
	p->flags |= LISTED;
	p->before = s->last;
	p->after = NONE;
	if (s->last == NONE)
		s->first = sequence;
	else
		s->packets[s->last].after = sequence;
	s->last = sequence;
}

/* Timers. */

static uint64_t retransmission_timeout(const struct tcp_flow *f)
{
	const struct sender *s = &f->s;
	uint64_t timeout = SECOND_NS;

	if (s->smoothed_rtt)
		timeout = s->smoothed_rtt + most(4 * s->variation, f->parameters.rto_min_ns);
	return timeout << s->backoff;
}

static void set_timer(struct tcp_flow *f, uint64_t now, uint32_t timer, uint64_t after_ns)
{
	f->s.timer = timer;
	f->s.deadline = timer == TIMER_NONE ? TCP_NEVER : tick(f, now, after_ns);
}

static void set_retransmission_timer(struct tcp_flow *f, uint64_t now)
{
	if (f->s.next == f->s.acknowledged && f->s.connected)
		set_timer(f, now, TIMER_NONE, 0);
	else
		set_timer(f, now, TIMER_RTO, retransmission_timeout(f));
}

/* Make room for `packets`; 0 without memory. */
static int grow(struct tcp_flow *f, uint32_t packets)
{
	uint32_t room = most(packets, 2 * (uint64_t)f->room);
	struct packet *larger = arena_take(f->arena, room * sizeof(*larger));
	uint8_t *received = arena_take(f->arena, room);

	if (!larger || !received)
		return 0;
	if (f->room) {
		memcpy(larger, f->s.packets, f->room * sizeof(*larger));
		memcpy(received, f->r.received, f->room);
	}
	f->s.packets = larger;
	f->r.received = received;
	f->room = room;
	return 1;
}

/* Forget a window that has not been used for longer than a timeout (tcp_cwnd_restart). */
static void restart_after_idling(struct tcp_flow *f, uint64_t now)
{
	struct sender *s = &f->s;
	uint64_t timeout = retransmission_timeout(f), idle = now - s->last_sent_at;
	uint32_t window = s->window;

	if (s->next != s->acknowledged || !s->next || idle <= timeout)
		return;
	s->threshold = most(s->threshold, window / 2 + window / 4);
	for (; idle > timeout && s->window > INITIAL_WINDOW; idle -= timeout)
		s->window /= 2;
	s->window = most(s->window, least(INITIAL_WINDOW, window));
}

uint32_t tcp_write(struct tcp_flow *f, uint64_t now, uint64_t size_bytes)
{
	uint64_t count = (size_bytes + f->payload_bytes - 1) / f->payload_bytes;
	uint32_t end = f->packets + count;

	if (count > MOST_PACKETS - f->packets || (end > f->room && !grow(f, end)))
		return 0;
	restart_after_idling(f, now);
	for (uint32_t p = f->packets; p < end; p++)
		f->s.packets[p].payload_bytes = f->payload_bytes;
	f->s.packets[end - 1].payload_bytes = size_bytes - (uint64_t)(count - 1) * f->payload_bytes;
	f->packets = end;
	return end;
}

/* Set the timer of a tail loss probe, or else of a retransmission. */
static void set_probe_timer(struct tcp_flow *f, uint64_t now)
{
	struct sender *s = &f->s;
	uint32_t out = s->next - s->acknowledged;
	uint64_t after = s->smoothed_rtt ? 2 * s->smoothed_rtt : SECOND_NS;
	uint64_t timeout = retransmission_timeout(f);

	if (is_reno(f)) { /* it has no probes, and its timer runs on while packets are sent */
		if (s->timer == TIMER_NONE)
			set_retransmission_timer(f, now);
		return;
	}
	if (!out || s->state > REDUCING || s->sacked || s->lost) {
		set_retransmission_timer(f, now);
		return;
	}
	if (s->smoothed_rtt)
		after += out == 1 ? f->parameters.rto_min_ns :
				    LEAST_TIMEOUT_JIFFIES * f->parameters.jiffy_ns;
	set_timer(f, now, TIMER_PROBE, least(after, timeout));
}

/* Detection of losses by time. */

static uint64_t reordering_window(const struct sender *s)
{
	if (!s->reordering_seen && (s->state >= RECOVERY || s->sacked >= DUPLICATES))
		return 0;
	return least(s->least_rtt / 4 * s->reordering_steps, s->smoothed_rtt);
}

static int sent_after(uint64_t a_at, uint32_t a, uint64_t b_at, uint32_t b)
{
	return a_at > b_at || (a_at == b_at && a > b);
}

/* Mark a packet lost, unless it has arrived: a probe may repeat one that has. */
static void mark(struct sender *s, uint32_t sequence)
{
	struct packet *packet = &s->packets[sequence];

	unlist(s, sequence);
	if (packet->flags & SACKED)
		return;
	s->again -= !!(packet->flags & AGAIN);
	s->lost += !(packet->flags & LOST);
	packet->flags = (packet->flags & ~AGAIN) | LOST;
}

/* Mark packets lost that were sent long enough before one that has arrived.  Return the time after
 * which the next one is, 0 if there is none. */
static uint64_t mark_lost(struct sender *s, uint64_t now)
{
	uint64_t allowed = s->rack_rtt + reordering_window(s), wait = 0;
	uint32_t next;

	for (uint32_t p = s->first; p != NONE; p = next) {
		struct packet *packet = &s->packets[p];

		next = packet->after;
		if (!sent_after(s->rack_sent_at, s->rack_sequence, packet->sent_at, p))
			break;
		if (packet->sent_at + allowed > now) {
			wait = most(wait, packet->sent_at + allowed - now);
			continue;
		}
		mark(s, p);
	}
	return wait;
}

static void detect_losses(struct tcp_flow *f, uint64_t now)
{
	uint64_t wait = mark_lost(&f->s, now);

	if (wait)
		set_timer(f, now, TIMER_REORDERING,
			  wait + LEAST_TIMEOUT_JIFFIES * f->parameters.jiffy_ns);
	if (f->s.lost && f->s.state < RECOVERY)
		start_recovery(f);
}

/* Note that packet `sequence` has arrived, by its acknowledgement or a block. */
static void advance_rack(struct sender *s, uint32_t sequence, uint64_t now)
{
	const struct packet *p = &s->packets[sequence];
	uint64_t rtt = now - p->sent_at;

	if (p->flags & EVER_AGAIN && rtt < s->least_rtt)
		return; /* probably the original */
	s->rack_rtt = rtt;
	if (sent_after(p->sent_at, sequence, s->rack_sent_at, s->rack_sequence)) {
		s->rack_sent_at = p->sent_at;
		s->rack_sequence = sequence;
	}
}

static void sample_rtt(struct sender *s, uint64_t rtt)
{
	uint64_t deviation;

	s->least_rtt = least(s->least_rtt, rtt);
	if (!s->smoothed_rtt) {
		s->smoothed_rtt = rtt;
		s->variation = rtt / 2;
		return;
	}
	deviation = rtt > s->smoothed_rtt ? rtt - s->smoothed_rtt : s->smoothed_rtt - rtt;
	s->variation = (3 * s->variation + deviation) / 4;
	s->smoothed_rtt = (7 * s->smoothed_rtt + rtt) / 8;
}

/* Take a packet out of the counts of those in flight; return 1 if it had not arrived before. */
static int take_out(struct sender *s, uint32_t sequence, uint64_t now)
{
	struct packet *p = &s->packets[sequence];
	int is_new = !(p->flags & SACKED);

	if (!is_new)
		return 0;
	if (!(p->flags & EVER_AGAIN) && s->highest_sacked > sequence)
		s->reordering_seen = 1;
	unlist(s, sequence);
	s->lost -= !!(p->flags & LOST);
	s->again -= !!(p->flags & AGAIN);
	advance_rack(s, sequence, now);
	p->flags &= ~(LOST | AGAIN);
	return 1;
}

/* Apply the acknowledged packets and blocks of `ack`; return the number of packets that have newly
 * arrived. */
static uint32_t apply(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack)
{
	struct sender *s = &f->s;
	uint32_t delivered = 0;
	uint64_t rtt = 0;

	for (uint32_t i = ack->repeated; i < ack->n_blocks; i++)
		for (uint32_t p = most(ack->blocks[i].first, s->acknowledged);
		     p < ack->blocks[i].end && p < s->next; p++) {
			if (!take_out(s, p, now))
				continue;
			if (!(s->packets[p].flags & EVER_AGAIN) && !rtt)
				rtt = now - s->packets[p].sent_at;
			s->packets[p].flags |= SACKED;
			s->sacked++;
			delivered++;
			s->highest_sacked = most(s->highest_sacked, p);
		}
	for (uint32_t p = s->acknowledged; p < ack->sequence; p++) {
		delivered += take_out(s, p, now);
		s->sacked -= !!(s->packets[p].flags & SACKED);
		if (!(s->packets[p].flags & (EVER_AGAIN | SACKED)))
			rtt = now - s->packets[p].sent_at;
	}
	/* by the time stamp, of retransmitted packets; Reno has none */
	if (!rtt && ack->sequence > s->acknowledged && !is_reno(f))
		rtt = MS_NS * most(1, now / MS_NS + 1 - ack->stamp_ms);
	s->acknowledged = most(s->acknowledged, ack->sequence);
	if (rtt)
		sample_rtt(s, rtt);
	if (rtt && f->cubic &&
	    cubic_sample(f->cubic, now, rtt, s->window, s->threshold, s->acknowledged, s->next,
			 f->parameters.jiffy_ns))
		s->threshold = s->window;
	return delivered;
}

/* Handle a block that had arrived before: a retransmission was in vain. */
static void note_repetition(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack)
{
	struct sender *s = &f->s;

	if (!(s->packets[ack->blocks[0].first].flags & EVER_AGAIN))
		return;
	f->counters.spurious++;
	if (now - s->steps_raised_at > s->smoothed_rtt) {
		s->reordering_steps = least(255, s->reordering_steps + 1);
		s->steps_raised_at = now;
	}
	if (s->undo_retransmissions > 0)
		s->undo_retransmissions--;
}

static void update_alpha(struct tcp_flow *f, const struct tcp_segment *ack, uint32_t delivered)
{
	struct sender *s = &f->s;

	s->acks += delivered;
	s->marked_acks += ack->congested ? delivered : 0;
	if (s->acknowledged <= s->alpha_point)
		return;
	s->alpha -= most(s->alpha >> 4, s->alpha ? 1 : 0);
	if (s->acks)
		s->alpha = least(ALPHA_ONE, s->alpha + ((s->marked_acks << 6) / s->acks));
	s->acks = s->marked_acks = 0;
	s->alpha_point = s->next;
}

static void end_probe(struct tcp_flow *f, const struct tcp_segment *ack)
{
	struct sender *s = &f->s;

	if (!s->probe_point || ack->sequence < s->probe_point)
		return;
	if (s->probe_again && !ack->repeated) { /* the probe has repaired a loss */
		start_reduction(f, REDUCING);
		s->window = s->threshold;
		s->state = OPEN;
	}
	s->probe_point = 0;
}

/* Leave the state of recovery or reduction if it has come to its end. */
static void leave_state(struct sender *s, const struct tcp_segment *ack, int advanced)
{
	if (s->state == OPEN)
		return;
	if (s->can_undo && s->state >= RECOVERY) {
		int by_repetition = ack->repeated && !s->undo_retransmissions;
		int by_stamp =
			advanced && s->retransmitted_ms && ack->stamp_ms < s->retransmitted_ms;

		if (by_repetition || by_stamp) {
			undo(s);
			return;
		}
	}
	if (s->acknowledged < s->recovery_point)
		return;
	if (s->state == RECOVERY || s->state == REDUCING)
		s->window = s->threshold;
	s->state = OPEN;
}

void tcp_open(struct tcp_flow *f, uint64_t now, uint64_t rtt_ns)
{
	f->s.connected = 1;
	f->s.backoff = 0;
	f->s.limit = f->r.window;
	sample_rtt(&f->s, rtt_ns);
	set_timer(f, now, TIMER_NONE, 0);
}

static void halve(struct tcp_flow *f, uint32_t state)
{
	start_reduction(f, state);
	f->s.window = f->s.threshold;
}

/* Handle a repeated acknowledgement: in recovery it stands for a packet that has left the network,
 * the third begins it. */
static void reno_repeated(struct tcp_flow *f)
{
	struct sender *s = &f->s;

	s->duplicates++;
	if (s->state == RECOVERY) {
		s->sacked += in_flight(s) > 0;
	} else if (s->duplicates == DUPLICATES && s->state != LOSS) {
		halve(f, RECOVERY);
		mark(s, s->acknowledged);
		s->sacked = least(DUPLICATES, in_flight(s));
		s->repair_due = 1;
	}
}

static void reno_answered(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack)
{
	struct sender *s = &f->s;
	uint32_t before = s->acknowledged, was_recovery = s->state == RECOVERY;

	apply(f, now, ack);
	s->limit = most(s->limit, ack->sequence + ack->window);
	if (s->acknowledged == before) {
		if (s->next > before)
			reno_repeated(f);
		return;
	}
	s->backoff = s->duplicates = s->repair_due = s->sacked = 0;
	set_retransmission_timer(f, now);
	if (was_recovery)
		s->window = s->threshold;
	if (was_recovery || s->acknowledged >= s->recovery_point)
		s->state = OPEN;
	if (ack->congested && s->state == OPEN && s->acknowledged < s->next)
		halve(f, REDUCING);
	else if (!was_recovery && !ack->congested)
		grow_window(f, now, 1); /* for each acknowledgement, whatever it covers */
}

void tcp_answered(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack)
{
	struct sender *s = &f->s;
	uint32_t before = s->acknowledged, delivered, lost = s->lost;
	int advanced;

	if (ack->kind == TCP_SYN_ACK) {
		if (!s->connected)
			tcp_open(f, now, now - s->syn_sent_at);
		return;
	}
	if (is_reno(f)) {
		reno_answered(f, now, ack);
		return;
	}
	if (ack->repeated)
		note_repetition(f, now, ack);
	delivered = apply(f, now, ack);
	advanced = s->acknowledged > before;
	s->limit = most(s->limit, ack->sequence + ack->window);
	if (f->parameters.ecn == TCP_DCTCP)
		update_alpha(f, ack, delivered);
	end_probe(f, ack);
	if (advanced) {
		s->backoff = 0;
		set_probe_timer(f, now);
	}
	leave_state(s, ack, advanced);
	if (delivered)
		detect_losses(f, now);
	if (ack->congested && s->state == OPEN && s->acknowledged < s->next)
		start_reduction(f, REDUCING);
	if (s->state == REDUCING || s->state == RECOVERY)
		reduce(s, delivered, s->lost > lost, advanced);
	else if (advanced)
		grow_window(f, now, s->acknowledged - before);
}

/* Transmission. */

static struct tcp_segment data_of(const struct tcp_flow *f, uint64_t now, uint32_t sequence)
{
	return (struct tcp_segment){
		.flow = f->flow,
		.sequence = sequence,
		.stamp_ms = now / MS_NS + 1,
		.kind = TCP_DATA,
	};
}

int tcp_next(struct tcp_flow *f, uint64_t now, struct tcp_segment *segment)
{
	struct sender *s = &f->s;

	if (!s->connected) {
		*segment = (struct tcp_segment){ .flow = f->flow, .kind = TCP_SYN };
		return s->timer == TIMER_NONE;
	}
	if (s->probe_due) { /* a tail loss probe goes beyond the window */
		*segment = data_of(
			f, now, s->next < f->packets && s->next < s->limit ? s->next : s->next - 1);
		segment->capable = segment->sequence == s->next && f->parameters.ecn;
		return 1;
	}
	if (s->repair_due) { /* as does Reno's retransmission */
		*segment = data_of(f, now, s->acknowledged);
		return 1;
	}
	if (in_flight(s) >= s->window) {
		s->window_limited = 1;
		return 0;
	}
	if (s->lost > s->again)
		for (uint32_t p = s->acknowledged; p < s->next; p++)
			if ((s->packets[p].flags & (LOST | AGAIN)) == LOST) {
				*segment = data_of(f, now, p);
				return 1;
			}
	if (s->next == f->packets || s->next >= s->limit)
		return 0;
	*segment = data_of(f, now, s->next);
	segment->capable = f->parameters.ecn != TCP_NO_ECN;
	segment->reduced = s->reduced;
	return 1;
}

void tcp_sent(struct tcp_flow *f, uint64_t now, const struct tcp_segment *segment)
{
	struct sender *s = &f->s;
	struct packet *p = s->packets + segment->sequence;
	int is_probe = s->probe_due;

	if (segment->kind == TCP_SYN) {
		s->syn_sent_at = now;
		set_timer(f, now, TIMER_RTO, SECOND_NS << s->backoff);
		return;
	}
	f->counters.sent++;
	if (f->cubic && !in_flight(s))
		cubic_idle(f->cubic, tick_of(f, s->last_sent_at), tick_of(f, now));
	s->last_sent_at = now;
	if (is_probe) {
		s->probe_due = 0;
		s->probe_point = most(s->next, segment->sequence + 1);
		s->probe_again = segment->sequence < s->next;
		f->counters.probes++;
	}
	if (segment->sequence == s->next) {
		s->next++;
		s->reduced = 0;
		p->flags = 0;
		list(s, segment->sequence, now);
		s->most_out = most(s->most_out, s->next - s->acknowledged);
		if (!is_probe && s->timer != TIMER_REORDERING)
			set_probe_timer(f, now);
	} else {
		f->counters.retransmissions++;
		s->repair_due = 0;
		unlist(s, segment->sequence);
		if (p->flags & LOST) {
			p->flags |= AGAIN;
			s->again++;
		}
		p->flags |= EVER_AGAIN;
		list(s, segment->sequence, now);
		if (s->can_undo) {
			s->undo_retransmissions =
				(s->undo_retransmissions > 0 ? s->undo_retransmissions : 0) + 1;
			if (!s->retransmitted_ms)
				s->retransmitted_ms = segment->stamp_ms;
		}
		if (s->timer == TIMER_NONE)
			set_retransmission_timer(f, now);
	}
	if (is_probe)
		set_retransmission_timer(f, now);
	if (s->state == REDUCING || s->state == RECOVERY)
		s->recovery_sent++;
	s->window_limited = in_flight(s) >= s->window;
}

/* As tcp_small_queue_check(): what the flow sends in a millisecond, by tcp_update_pacing_rate(), and at
 * least two packets. */
uint32_t tcp_most_waiting(const struct tcp_flow *f)
{
	const struct sender *s = &f->s;
	uint64_t memory = f->payload_bytes + MEMORY_BYTES, limit = MOST_WAITING_BYTES;
	uint64_t out = most(s->window, s->next - s->acknowledged);
	uint32_t percent = s->window < s->threshold / 2 ? 200 : 120;

	if (s->smoothed_rtt) {
		uint64_t rate =
			f->payload_bytes * out * percent * (SECOND_NS / 100) / s->smoothed_rtt;

		limit = least(limit, rate >> 10);
	}
	return (most(2 * memory, limit) - 1) / memory;
}

void tcp_refused(struct tcp_flow *f, uint64_t now, const struct tcp_segment *segment)
{
	if (segment->kind == TCP_SYN) { /* repeated as one that is lost */
		tcp_sent(f, now, segment);
		return;
	}
	if (f->s.state == OPEN && !is_reno(f))
		start_reduction(f, REDUCING);
	f->s.probe_due = f->s.repair_due = 0;
	if (f->s.timer == TIMER_NONE)
		set_timer(f, now, TIMER_RTO, retransmission_timeout(f));
}

static void time_out(struct tcp_flow *f, uint64_t now)
{
	struct sender *s = &f->s;
	int is_first = s->state == LOSS ? !s->backoff : s->state == OPEN;

	f->counters.timeouts++;
	if (s->backoff < MOST_BACKOFF)
		s->backoff++;
	s->sacked = is_reno(f) ? 0 : s->sacked;
	s->duplicates = s->repair_due = 0;
	/* not yet reduced for this loss; Reno reduces each time */
	if (is_first || s->acknowledged >= s->recovery_point || is_reno(f)) {
		s->prior_window = s->window;
		s->prior_threshold = s->threshold;
		s->threshold = threshold_of_loss(f);
		s->can_undo = 1;
		s->undo_retransmissions = -1;
		s->retransmitted_ms = 0;
	}
	for (uint32_t p = s->acknowledged; p < s->next; p++) {
		struct packet *packet = &s->packets[p];

		if (p != s->acknowledged && packet->sent_at + s->rack_rtt > now && !is_reno(f))
			continue; /* sent a moment ago */
		mark(s, p);
	}
	s->window = in_flight(s) + 1;
	s->growth = 0;
	s->recovery_point = s->next;
	s->probe_point = 0;
	s->state = LOSS;
	if (f->cubic)
		cubic_reset(f->cubic, now, s->next);
	set_retransmission_timer(f, now);
}

void tcp_expire(struct tcp_flow *f, uint64_t now)
{
	struct sender *s = &f->s;
	uint32_t timer = s->timer;

	set_timer(f, now, TIMER_NONE, 0);
	if (!s->connected) {
		s->backoff++;
		f->counters.timeouts++;
	} else if (timer == TIMER_PROBE) {
		s->probe_due = 1;
	} else if (timer == TIMER_REORDERING) {
		detect_losses(f, now);
		if (s->timer == TIMER_NONE)
			set_retransmission_timer(f, now);
	} else if (timer == TIMER_RTO) {
		time_out(f, now);
	}
}

/* The receiver. */

/* Insert a block, most recent first, and merge what touches it. */
static void insert_block(struct receiver *r, uint32_t sequence)
{
	struct tcp_block block = { sequence, sequence + 1 };
	uint32_t kept = 0;

	for (uint32_t i = 0; i < r->n_blocks; i++) {
		if (r->blocks[i].end == block.first)
			block.first = r->blocks[i].first;
		else if (r->blocks[i].first == block.end)
			block.end = r->blocks[i].end;
		else
			r->blocks[kept++] = r->blocks[i];
	}
	kept = least(kept, MOST_BLOCKS - 1);
	memmove(r->blocks + 1, r->blocks, kept * sizeof(*r->blocks));
	r->blocks[0] = block;
	r->n_blocks = kept + 1;
}

static void drop_blocks(struct receiver *r)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < r->n_blocks; i++)
		if (r->blocks[i].end > r->expected)
			r->blocks[kept++] = r->blocks[i];
	r->n_blocks = kept;
}

static struct tcp_segment answer_of(struct tcp_flow *f)
{
	struct receiver *r = &f->r;
	struct tcp_segment answer = { .flow = f->flow,
				      .sequence = r->expected,
				      .stamp_ms = r->stamp_ms,
				      .window = r->window,
				      .kind = TCP_ACK,
				      .congested = r->echo };

	r->unanswered = 0;
	r->deadline = TCP_NEVER;
	r->last_answered = r->expected;
	r->quick -= r->quick > 0;
	return answer;
}

static void add_blocks(struct tcp_flow *f, struct tcp_segment *answer, uint32_t repeated)
{
	if (is_reno(f)) {
		f->r.spurious += repeated != NONE;
		return;
	}
	if (repeated != NONE) {
		answer->repeated = 1;
		answer->blocks[answer->n_blocks++] = (struct tcp_block){ repeated, repeated + 1 };
	}
	for (uint32_t i = 0; i < f->r.n_blocks && answer->n_blocks < TCP_SENT_BLOCKS; i++)
		answer->blocks[answer->n_blocks++] = f->r.blocks[i];
}

/* Return 1 if the marks ask for an immediate acknowledgement. */
static int note_marks(struct tcp_flow *f, const struct tcp_segment *data)
{
	struct receiver *r = &f->r;
	uint32_t before = r->echo;

	if (f->parameters.ecn == TCP_DCTCP) {
		r->echo = data->marked;
		return r->echo != before;
	}
	if (data->reduced)
		r->echo = 0;
	if (data->marked)
		r->echo = 1;
	return data->marked;
}

int tcp_receive(struct tcp_flow *f, uint64_t now, const struct tcp_segment *data,
		struct tcp_segment *answer)
{
	struct receiver *r = &f->r;
	uint32_t repeated = NONE, was_expected = r->expected, had_blocks = r->n_blocks;
	int at_once;

	if (data->kind == TCP_SYN) {
		*answer = (struct tcp_segment){ .flow = f->flow,
						.window = r->window,
						.kind = TCP_SYN_ACK };
		return 1;
	}
	at_once = note_marks(f, data);
	r->late += data->sequence + 1 < r->latest;
	r->latest = most(r->latest, data->sequence + 1);
	if (data->sequence <= r->last_answered)
		r->stamp_ms = data->stamp_ms;
	if (r->received[data->sequence]) {
		repeated = data->sequence;
	} else {
		r->received[data->sequence] = 1;
		r->window += 2; /* the receive buffer grows with what arrives */
		if (data->sequence != r->expected)
			insert_block(r, data->sequence);
		while (r->expected < f->packets && r->received[r->expected])
			r->expected++;
		if (r->expected > was_expected)
			drop_blocks(r);
	}
	r->unanswered++;
	at_once |= repeated != NONE || had_blocks || r->n_blocks || r->quick || r->unanswered >= 2;
	at_once |= is_reno(f) || (f->parameters.one_message && r->expected == f->packets);
	if (!at_once) {
		r->deadline = tick(f, now, DELAYED_ACK_NS);
		return 0;
	}
	*answer = answer_of(f);
	add_blocks(f, answer, repeated);
	return 1;
}

void tcp_delayed_answer(struct tcp_flow *f, struct tcp_segment *answer)
{
	*answer = answer_of(f);
	add_blocks(f, answer, NONE);
}

uint64_t tcp_sender_deadline(const struct tcp_flow *f)
{
	return f->s.deadline;
}

uint64_t tcp_receiver_deadline(const struct tcp_flow *f)
{
	return f->r.deadline;
}

uint32_t tcp_delivered(const struct tcp_flow *f)
{
	return f->r.expected;
}

uint32_t tcp_latest(const struct tcp_flow *f)
{
	return f->r.latest;
}

uint32_t tcp_acknowledged(const struct tcp_flow *f)
{
	return f->s.acknowledged;
}

uint32_t tcp_frame_bytes(const struct tcp_flow *f, const struct tcp_segment *segment)
{
	if (segment->kind == TCP_DATA)
		return TCP_HEADER + f->s.packets[segment->sequence].payload_bytes;
	return TCP_HEADER + 8 * segment->n_blocks + (segment->n_blocks ? 4 : 0);
}

void tcp_fetch(const struct tcp_flow *f, int is_receiver)
{
	const char *end = is_receiver ? (const char *)&f->r : (const char *)&f->s;
	size_t bytes = is_receiver ? sizeof(f->r) : sizeof(f->s);

	__builtin_prefetch(f);
	for (size_t i = 0; i < bytes; i += LINE_BYTES)
		__builtin_prefetch(end + i, 1);
}

const struct tcp_counters *tcp_counters(struct tcp_flow *f)
{
	f->counters.late = f->r.late;
	if (is_reno(f))
		f->counters.spurious = f->r.spurious;
	return &f->counters;
}
