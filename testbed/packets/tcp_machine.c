/* SPDX-License-Identifier: MIT */
#include "tcp_machine.h"
#include "../data_plane/hash.h"
#include "cubic.h"
#include "memory.h"

#define NONE UINT32_MAX
#define SECOND_NS 1000000000ull
#define MS_NS 1000000ull /* unit of time stamps */
#define MOST_STAMP_AGE 1 /* below that of the last packet in order (PAWS) */
#define INITIAL_WINDOW 10
#define INITIAL_RENO_WINDOW 2 /* RFC 5681, of packets above 2,190 bytes */
#define INITIAL_RECEIVE_BYTES 65535
#define DUPLICATES 3 /* packets that may overtake one before it is taken for lost */
#define MOST_QUICK 16 /* acknowledgements at the beginning that are not delayed */
#define MARK_QUICK 2 /* after a mark */
#define DELAYED_ACK_NS 40000000ull
#define LEAST_TIMEOUT_JIFFIES 2
#define INFINITE_WINDOW 0x7fffffff
#define ALPHA_ONE 1024
#define MOST_BACKOFF 16
#define MOST_PACKETS (1u << 30) /* of a flow */
#define MOST_BLOCKS 4 /* that a receiver remembers */
#define MOST_OVERTAKEN 300 /* tcp_max_reordering */
#define KEPT_RECOVERIES 16 /* for which a longer reordering window is kept, RFC 8985, section 6.2 */
#define MEMORY_BYTES 832 /* that a packet takes beside its payload, in a kernel without tunnels */
#define RECEIVE_BUFFER_BYTES 131072 /* at first (tcp_rmem) */
#define MOST_RECEIVE_BYTES (6u << 20)
#define MOST_SEND_BYTES (4u << 20) /* tcp_wmem */
#define HEADS_BYTES 524 /* of a packet and of the memory of its head, before they are rounded up */
#define SOCKET_BUFFER_BYTES 256 /* struct sk_buff */
#define MOST_WAITING_BYTES (4u << 20) /* tcp_limit_output_bytes */
#define MOST_OFFLOADED_BYTES 65536 /* of one transmission to the device */
#define WHEEL_BITS 3 /* by which a level of the timer wheel is coarser than that below */
#define WHEEL_TICKS 63 /* that the finest level reaches */
#define PLB_IDLE_ROUNDS 3 /* tcp_plb_idle_rehash_rounds */
#define PLB_PAUSE_MS 60000 /* tcp_plb_suspend_rto_sec */

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
	uint32_t written; /* by the program, as far as the send buffer lets it */
	uint32_t room; /* window for which the send buffer is large enough */
	uint32_t window, threshold, growth;
	uint32_t most_out, use_point; /* of the window in use, and where it ends (note_use) */
	uint32_t sacked, lost, again;
	uint32_t losses; /* ever */
	uint32_t sacked_end; /* behind the highest of sacked packets */
	uint32_t recovery_point, prior_window, recovered, recovery_sent;
	uint32_t prior_threshold; /* 0 if an undo leaves window and threshold */
	int64_t undo_retransmissions; /* not yet shown to be in vain; -1 before the first */
	uint32_t undo_from, retransmitted_ms;
	uint64_t smoothed_rtt, least_rtt;
	uint64_t deviation, most_deviation, variation; /* 4 times that of round trips */
	uint32_t deviation_point; /* where the round ends of which most_deviation is */
	uint64_t rack_sent_at, rack_rtt;
	uint32_t rack_sequence, overtaken, reordering_steps, kept_recoveries;
	uint64_t steps_raised_at, syn_sent_at;
	uint32_t probe_point;
	uint32_t duplicates; /* of Reno */
	uint32_t backoff;
	uint8_t state, timer, connected, window_limited, can_undo, reordering_seen, rack_advanced;
	uint8_t has_timed_out; /* since the last new packet was acknowledged */
	uint8_t probe_again, probe_due, repair_due, reduced;
	uint8_t may_be_late; /* what a timeout marked lost (F-RTO, RFC 5682) */
	uint8_t prefers_new; /* packets to those that are lost, until it pauses */
	uint8_t label, marked_rounds;
	uint32_t plb_resumes_ms; /* after a timeout */
	uint64_t deadline;
	uint32_t alpha, marked_acks, acks, alpha_point;
	uint64_t last_sent_at;
};

/* late, spurious and others: as in struct tcp_counters; the sender counts spurious ones unless it is Reno.
 * heard_label: of the last data; newest_label: of the sender's latest draw. */
struct receiver {
	uint8_t *received;
	struct tcp_block blocks[MOST_BLOCKS];
	uint32_t n_blocks, expected, window, unanswered, quick, echo, stamp_ms, last_answered;
	uint32_t knows_ecn; /* a packet has arrived that may be marked */
	uint32_t buffer, early; /* packets that the buffer holds, and those behind a missing one */
	uint32_t edge; /* of the window, which never goes back */
	uint32_t measured_from, measured; /* packets since the last measurement, and by it */
	uint32_t latest; /* number behind the highest that has arrived */
	uint32_t round_end; /* where the window ended when a round trip began to be timed */
	uint64_t round_at, round_ns; /* when it began, and the shortest one */
	uint64_t deadline, in_order_at, measured_at, late, spurious;
	uint64_t duplicate_rehashes, new_labels;
	uint8_t label, heard_label, newest_label, had_syn;
};

/* What one acknowledgement has shown.  original: a packet has arrived that was never sent again, of those
 * before a timeout.  repaired: one has that was.  first_rtt, latest_rtt: round trips of the first and the
 * latest that were not, which is acknowledged; sacked_rtt, latest_sacked_rtt: which a block has; 0 without. */
struct news {
	uint32_t delivered, sacked, advanced, original, repaired;
	uint64_t first_rtt, latest_rtt, sacked_rtt, latest_sacked_rtt;
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

/* Return the tick at which a timer of Linux that is set now for `after_ns` expires: the next one of a level
 * of its wheel, never early (calc_wheel_index).  Simulators of Reno's time have no wheel. */
static uint64_t tick(const struct tcp_flow *f, uint64_t now, uint64_t after_ns)
{
	uint64_t jiffy = f->parameters.jiffy_ns, ticks = (after_ns + jiffy - 1) / jiffy;
	uint64_t expiry = now / jiffy + ticks;
	uint32_t shift = 0;

	if (is_reno(f))
		return expiry * jiffy;
	while (ticks >= (uint64_t)WHEEL_TICKS << shift)
		shift += WHEEL_BITS;
	return (((expiry >> shift) + 1) << shift) * jiffy;
}

/* Return how many of the next acknowledgements are not delayed, if at most `asked` are (tcp_incr_quickack). */
static uint32_t quick_of(const struct receiver *r, uint32_t asked)
{
	return most(r->quick, least(asked, r->window < 2 ? 2 : r->window / 2));
}

/* Return the memory of a packet in a kernel, in bytes. */
static uint32_t memory_of(const struct tcp_flow *f)
{
	return f->payload_bytes + MEMORY_BYTES;
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
	f->payload_bytes = parameters->frame_bytes - tcp_header_bytes(parameters);
	f->s = (struct sender){
		.first = NONE,
		.last = NONE,
		.window = is_reno(f) ? INITIAL_RENO_WINDOW : INITIAL_WINDOW,
		.threshold = INFINITE_WINDOW,
		.least_rtt = UINT64_MAX,
		.reordering_steps = 1,
		.overtaken = DUPLICATES,
		.room = INITIAL_WINDOW,
		.deadline = TCP_NEVER,
		.alpha = ALPHA_ONE,
	};
	f->r.deadline = TCP_NEVER;
	f->r.buffer = RECEIVE_BUFFER_BYTES / memory_of(f);
	f->r.round_ns = TCP_NEVER;
	f->r.window = INITIAL_RECEIVE_BYTES / f->payload_bytes;
	f->r.measured = least(INITIAL_WINDOW, f->r.window);
	f->r.quick = quick_of(&f->r, MOST_QUICK);
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

/* Return whether a packet that is missing has been sent again. */
static int is_repaired(const struct sender *s)
{
	return s->again ||
	       (s->acknowledged != s->next && s->packets[s->acknowledged].flags & EVER_AGAIN);
}

/* Return the threshold that an undo restores (tcp_current_ssthresh). */
static uint32_t current_threshold(const struct sender *s)
{
	if (s->state == REDUCING || s->state == RECOVERY)
		return s->threshold;
	return most(s->threshold, s->window / 2 + s->window / 4);
}

/* Begin to look for signs that what is taken for lost was late (tcp_init_undo). */
static void allow_undo(struct sender *s)
{
	s->can_undo = 1;
	s->undo_from = s->acknowledged;
	s->undo_retransmissions = s->again + (s->probe_point && s->probe_again);
	if (!s->undo_retransmissions)
		s->undo_retransmissions = -1;
}

static void start_reduction(struct tcp_flow *f, uint32_t state)
{
	struct sender *s = &f->s;

	s->prior_window = s->window;
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

/* Reduce the window by marks or by a full queue of the host, once a round trip (tcp_enter_cwr). */
static void slow_down(struct tcp_flow *f)
{
	f->s.prior_threshold = 0;
	if (f->s.state != OPEN)
		return;
	f->s.can_undo = 0;
	start_reduction(f, REDUCING);
}

/* Begin to repair losses.  A reduction by marks that is under way goes on, and is not taken back. */
static void start_recovery(struct tcp_flow *f, int is_marked)
{
	struct sender *s = &f->s;

	if (!is_repaired(s))
		s->retransmitted_ms = 0;
	allow_undo(s);
	s->prior_threshold = 0;
	if (s->state != REDUCING) {
		if (!is_marked)
			s->prior_threshold = current_threshold(s);
		start_reduction(f, RECOVERY);
	} else if (f->parameters.ecn == TCP_DCTCP) {
		s->threshold = threshold_of_loss(f); /* as dctcp_react_to_loss() */
	}
	s->state = RECOVERY;
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

/* Note that a packet was sent, or none for lack of window.  Whether the window limits the flow holds for as
 * long as what was sent by then is out (tcp_cwnd_validate); with Reno, until the next packet. */
static void note_use(struct tcp_flow *f)
{
	struct sender *s = &f->s;
	uint32_t out = s->next - s->acknowledged;
	int is_limited = in_flight(s) >= s->window;

	if (is_reno(f))
		out = most(out, s->most_out);
	else if (s->acknowledged < s->use_point && !is_limited &&
		 (s->window_limited || out <= s->most_out))
		return;
	s->window_limited = is_limited;
	s->most_out = out;
	s->use_point = s->next;
}

static void grow_window(struct tcp_flow *f, uint64_t now, uint32_t acknowledged)
{
	struct sender *s = &f->s;
	uint32_t slow = s->window < s->threshold;

	if (!s->window_limited && !(slow && s->window < 2 * s->most_out))
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

/* Take a recovery back, and with `marks` those of lost packets. */
static void undo(struct sender *s, int marks)
{
	if (marks) {
		for (uint32_t p = s->acknowledged; p < s->next; p++)
			s->packets[p].flags &= ~LOST;
		s->lost = 0;
	}
	if (s->prior_threshold) {
		s->window = most(s->window, s->prior_window);
		if (s->prior_threshold > s->threshold) {
			s->threshold = s->prior_threshold;
			s->reduced = 0;
		}
	}
	if (!is_repaired(s))
		s->retransmitted_ms = 0;
	s->can_undo = 0;
	s->rack_advanced = 1;
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

/* Labels. */

static int draws_labels(const struct tcp_flow *f)
{
	return f->parameters.label >= TCP_PRR;
}

/* Draw a label after a timeout (tcp_write_timeout). */
static void leave_dead_path(struct tcp_flow *f)
{
	f->s.label += draws_labels(f);
	f->counters.timeout_rehashes += draws_labels(f);
}

/* Draw a label after rounds with many marks, or after few if nothing is under way (tcp_plb_check_rehash). */
static void leave_marked_path(struct tcp_flow *f, uint64_t now)
{
	struct sender *s = &f->s;
	uint32_t rounds = f->parameters.plb_rounds;

	if (s->next == s->acknowledged)
		rounds = least(rounds, PLB_IDLE_ROUNDS);
	if (f->parameters.label != TCP_PLB || s->marked_rounds < rounds ||
	    now / MS_NS < s->plb_resumes_ms)
		return;
	s->label++;
	s->marked_rounds = 0;
	f->counters.plb_rehashes++;
}

/* Note the end of a round of DCTCP, as tcp_plb_update_state(). */
static void note_round(struct tcp_flow *f, uint64_t now)
{
	struct sender *s = &f->s;

	if (!s->acks)
		return;
	if (2 * s->marked_acks < s->acks)
		s->marked_rounds = 0;
	else
		s->marked_rounds = least(s->marked_rounds + 1, f->parameters.plb_rounds);
	leave_marked_path(f, now);
}

/* Keep PLB from a path that a timeout has left, for one to two minutes (tcp_plb_update_state_upon_rto). */
static void pause_plb(struct tcp_flow *f, uint64_t now)
{
	uint32_t pause_ms = PLB_PAUSE_MS + below(mix(f->flow, now), PLB_PAUSE_MS);

	f->s.marked_rounds = 0;
	f->s.plb_resumes_ms = now / MS_NS + pause_ms;
}

/* Note the label of data.  Old data that come by another one than the last draw one for answers: the sender
 * draws labels after timeouts, so it has not heard of them (tcp_rcv_spurious_retrans). */
static void note_label(struct tcp_flow *f, const struct tcp_segment *data)
{
	struct receiver *r = &f->r;
	uint8_t draws = data->layer - r->newest_label;

	if (!f->parameters.label)
		return;
	if (draws_labels(f) && data->sequence < r->expected && data->layer != r->heard_label) {
		r->label++;
		r->duplicate_rehashes++;
	}
	r->heard_label = data->layer;
	if (draws && draws <= UINT8_MAX / 2) { /* else it has been overtaken */
		r->newest_label = data->layer;
		r->new_labels++;
	}
}

/* Draw a label for the answer to a SYN that comes again (tcp_rtx_synack). */
static void note_syn(struct tcp_flow *f, const struct tcp_segment *syn)
{
	f->r.label += f->r.had_syn && draws_labels(f);
	f->r.had_syn = 1;
	f->r.newest_label = syn->layer;
}

uint8_t tcp_label(const struct tcp_flow *f, int is_receiver)
{
	return is_receiver ? f->r.label : f->s.label;
}

/* Timers. */

static uint64_t retransmission_timeout(const struct tcp_flow *f)
{
	const struct sender *s = &f->s;
	uint64_t timeout = SECOND_NS;

	if (s->smoothed_rtt)
		timeout = s->smoothed_rtt + s->variation;
	return timeout << s->backoff;
}

static void set_timer(struct tcp_flow *f, uint64_t now, uint32_t timer, uint64_t after_ns)
{
	f->s.timer = timer;
	f->s.deadline = timer == TIMER_NONE ? TCP_NEVER : tick(f, now, after_ns);
}

/* Return for how long the timer of a retransmission would still run, 0 if it is overdue. */
static uint64_t left_of_timeout(const struct tcp_flow *f, uint64_t now)
{
	uint64_t due = f->s.packets[f->s.acknowledged].sent_at + retransmission_timeout(f);

	return due > now ? due - now : 0;
}

/* Time out when the first packet is due. */
static void resume_timer(struct tcp_flow *f, uint64_t now)
{
	set_timer(f, now, TIMER_RTO, most(1, left_of_timeout(f, now)));
}

static void set_retransmission_timer(struct tcp_flow *f, uint64_t now)
{
	uint32_t timer = f->s.timer;

	if (f->s.next == f->s.acknowledged && f->s.connected)
		set_timer(f, now, TIMER_NONE, 0);
	else if (timer == TIMER_PROBE || timer == TIMER_REORDERING)
		resume_timer(f, now);
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
	leave_marked_path(f, now);
	for (uint32_t p = f->packets; p < end; p++)
		f->s.packets[p].payload_bytes = f->payload_bytes;
	f->s.packets[end - 1].payload_bytes = size_bytes - (uint64_t)(count - 1) * f->payload_bytes;
	f->packets = end;
	return end;
}

/* Set the timer of a tail loss probe, at the latest after `latest_ns`; return 0 if there is none now. */
static int set_probe_timer(struct tcp_flow *f, uint64_t now, uint64_t latest_ns)
{
	struct sender *s = &f->s;
	uint32_t out = s->next - s->acknowledged;
	int is_disordered = s->sacked || s->lost || is_repaired(s);
	uint64_t after = s->smoothed_rtt ? 2 * s->smoothed_rtt : SECOND_NS;

	if (!out || s->state > REDUCING || (s->state == OPEN && is_disordered))
		return 0;
	if (s->smoothed_rtt)
		after += out == 1 ? f->parameters.rto_min_ns :
				    LEAST_TIMEOUT_JIFFIES * f->parameters.jiffy_ns;
	set_timer(f, now, TIMER_PROBE, least(after, latest_ns));
	return 1;
}

static void set_timer_of_answer(struct tcp_flow *f, uint64_t now)
{
	if (!set_probe_timer(f, now, retransmission_timeout(f)))
		set_retransmission_timer(f, now);
}

/* Set the timer after a new packet has been sent. */
static void set_timer_of_sending(struct tcp_flow *f, uint64_t now)
{
	struct sender *s = &f->s;
	uint64_t left = left_of_timeout(f, now);

	if (is_reno(f)) { /* it has no probes, and its timer runs on while packets are sent */
		if (s->timer == TIMER_NONE)
			set_retransmission_timer(f, now);
		return;
	}
	if (s->next - s->acknowledged == 1 || s->timer == TIMER_PROBE)
		set_retransmission_timer(f, now);
	set_probe_timer(f, now, left ? left : TCP_NEVER);
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

/* Mark a packet lost, unless it has arrived: a probe may repeat one that has.  If it was sent again and then
 * taken for late, the repetition is still out (tcp_mark_skb_lost). */
static void mark(struct sender *s, uint32_t sequence)
{
	struct packet *packet = &s->packets[sequence];

	if (packet->flags & SACKED || (packet->flags & (LOST | AGAIN)) == LOST)
		return;
	s->losses++;
	if (packet->flags & LOST) {
		packet->flags &= ~AGAIN;
		s->again--;
	} else {
		packet->flags |= LOST;
		s->lost++;
	}
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
		if ((packet->flags & (LOST | AGAIN)) == LOST)
			continue; /* by a timeout */
		if (!sent_after(s->rack_sent_at, s->rack_sequence, packet->sent_at, p))
			break;
		if (packet->sent_at + allowed > now) {
			wait = most(wait, packet->sent_at + allowed - now);
			continue;
		}
		unlist(s, p);
		mark(s, p);
	}
	return wait;
}

/* Mark packets lost if another one has arrived; return whether a timer waits for more. */
static int detect_losses(struct tcp_flow *f, uint64_t now)
{
	uint64_t wait;

	if (!f->s.rack_advanced)
		return 0;
	f->s.rack_advanced = 0;
	wait = mark_lost(&f->s, now);
	if (wait)
		set_timer(f, now, TIMER_REORDERING,
			  wait + LEAST_TIMEOUT_JIFFIES * f->parameters.jiffy_ns);
	return wait > 0;
}

/* Note that packet `sequence` arrived behind later ones. */
static void note_reordering(struct sender *s, uint32_t sequence)
{
	if (sequence >= s->sacked_end)
		return;
	s->reordering_seen = 1;
	s->overtaken = least(MOST_OVERTAKEN, most(s->overtaken, s->sacked_end - sequence));
}

/* Note that packet `sequence` has arrived, by its acknowledgement or a block. */
static void advance_rack(struct sender *s, uint32_t sequence, uint64_t now)
{
	const struct packet *p = &s->packets[sequence];
	uint64_t rtt = now - p->sent_at;

	if (p->flags & EVER_AGAIN && rtt < s->least_rtt)
		return; /* probably the original */
	s->rack_advanced = 1;
	s->rack_rtt = rtt;
	if (sent_after(p->sent_at, sequence, s->rack_sent_at, s->rack_sequence)) {
		s->rack_sent_at = p->sent_at;
		s->rack_sequence = sequence;
	}
}

/* Return how `error`, of the round trip that was expected, changes the deviation.  After a decrease it grows
 * slowly. */
static int64_t change_of_deviation(uint64_t deviation, int64_t error)
{
	int64_t change = (error < 0 ? -error : error) - (int64_t)(deviation / 4);

	return error < 0 && change > 0 ? change / 8 : change;
}

/* Estimate the timeout, as tcp_rtt_estimator(); Reno as RFC 6298.  `latest` is the round trip of the last
 * packet that has arrived, `rtt` that of the first. */
static void sample_rtt(struct tcp_flow *f, uint64_t rtt, uint64_t latest)
{
	struct sender *s = &f->s;
	int64_t error = rtt - s->smoothed_rtt;
	uint64_t least_ns = f->parameters.rto_min_ns;

	s->least_rtt = least(s->least_rtt, latest);
	if (!s->smoothed_rtt) {
		s->smoothed_rtt = rtt;
		s->deviation = 4 * (rtt / 2);
		s->variation = s->most_deviation = most(s->deviation, least_ns);
		s->deviation_point = s->next;
		return;
	}
	s->smoothed_rtt = (7 * s->smoothed_rtt + rtt) / 8;
	if (is_reno(f)) {
		s->deviation = 4 * ((3 * (s->deviation / 4) + (error < 0 ? -error : error)) / 4);
		s->variation = most(s->deviation, least_ns);
		return;
	}
	s->deviation += change_of_deviation(s->deviation, error);
	s->most_deviation = most(s->most_deviation, s->deviation);
	s->variation = most(s->variation, s->most_deviation);
	if (s->acknowledged > s->deviation_point) {
		s->variation -= (s->variation - s->most_deviation) / 4;
		s->most_deviation = least_ns;
		s->deviation_point = s->next;
	}
}

/* Take a packet out of the counts of those in flight; return 1 if it had not arrived before.  One that was sent
 * again and then taken for late counts on, until it is acknowledged or arrives twice (tcp_sacktag_one). */
static int take_out(struct sender *s, uint32_t sequence, uint64_t now, int is_late)
{
	struct packet *p = &s->packets[sequence];

	unlist(s, sequence);
	if (p->flags & SACKED)
		return 0;
	if (!(p->flags & EVER_AGAIN))
		note_reordering(s, sequence);
	if (!is_late)
		advance_rack(s, sequence, now);
	if (p->flags & LOST) {
		s->lost--;
		s->again -= !!(p->flags & AGAIN);
		p->flags &= ~(LOST | AGAIN);
	}
	return 1;
}

static uint32_t stamp(uint64_t now)
{
	return now / MS_NS + 1;
}

/* Take out what the blocks of `ack` say has arrived. */
static void apply_blocks(struct sender *s, uint64_t now, const struct tcp_segment *ack,
			 struct news *news)
{
	for (uint32_t i = ack->repeated; i < ack->n_blocks; i++)
		for (uint32_t p = most(ack->blocks[i].first, s->acknowledged);
		     p < ack->blocks[i].end && p < s->next; p++) {
			if (!take_out(s, p, now, 0))
				continue;
			if (!(s->packets[p].flags & EVER_AGAIN)) {
				news->original |= p < s->recovery_point;
				news->latest_sacked_rtt = now - s->packets[p].sent_at;
				if (!news->sacked_rtt)
					news->sacked_rtt = news->latest_sacked_rtt;
			}
			s->packets[p].flags |= SACKED;
			s->sacked++;
			news->sacked++;
			s->sacked_end = most(s->sacked_end, p + 1);
		}
	news->delivered += news->sacked;
}

/* Take out the packets before the one that `ack` expects. */
static void apply_sequence(struct sender *s, uint64_t now, const struct tcp_segment *ack,
			   struct news *news)
{
	for (uint32_t p = s->acknowledged; p < ack->sequence; p++) {
		struct packet *packet = &s->packets[p];
		int was_again = packet->flags & EVER_AGAIN;

		news->advanced++;
		news->delivered +=
			take_out(s, p, now, was_again && ack->stamp_ms < stamp(packet->sent_at));
		s->sacked -= !!(packet->flags & SACKED);
		s->again -= !!(packet->flags & AGAIN);
		if (!(packet->flags & (EVER_AGAIN | SACKED))) {
			news->original |= p < s->recovery_point;
			news->latest_rtt = now - packet->sent_at;
			if (!news->first_rtt)
				news->first_rtt = news->latest_rtt;
		}
		news->repaired |= was_again;
	}
	s->acknowledged = most(s->acknowledged, ack->sequence);
}

/* Return the bytes a second of tcp_update_pacing_rate(); 0 before a round trip is known. */
static uint64_t pacing_rate(const struct tcp_flow *f)
{
	const struct sender *s = &f->s;
	uint64_t out = most(s->window, s->next - s->acknowledged);
	uint32_t percent = s->window < s->threshold / 2 ? 200 : 120;

	if (!s->smoothed_rtt)
		return 0;
	return f->payload_bytes * out * percent * (SECOND_NS / 100) / s->smoothed_rtt;
}

/* Return for how long devices may hold acknowledgements back to handle them together (hystart_ack_delay). */
static uint64_t held_ns(const struct tcp_flow *f)
{
	uint64_t rate = pacing_rate(f);

	return rate ? least(MS_NS, 4 * MOST_OFFLOADED_BYTES * SECOND_NS / rate) : 0;
}

/* Estimate round trips, as tcp_ack_update_rtt(). */
static void estimate(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack,
		     const struct news *news)
{
	struct sender *s = &f->s;
	uint64_t first = is_reno(f) ? news->latest_rtt : news->first_rtt, latest = news->latest_rtt;

	if (news->repaired && !is_reno(f)) /* Karn's algorithm */
		first = latest = 0;
	if (news->latest_sacked_rtt)
		latest = news->latest_sacked_rtt;
	if (!first)
		first = news->sacked_rtt;
	/* by the time stamp, of retransmitted packets; Reno has none */
	if (!first && news->advanced && !is_reno(f))
		first = latest = MS_NS * most(1, stamp(now) - ack->stamp_ms);
	if (!first)
		return;
	s->backoff = 0;
	sample_rtt(f, first, latest);
	if (f->cubic && cubic_sample(f->cubic, now, latest, held_ns(f), s->window, s->threshold,
				     s->acknowledged, s->next, f->parameters.jiffy_ns))
		s->threshold = s->window;
}

/* Apply the acknowledged packets and blocks of `ack`. */
static struct news apply(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack)
{
	struct news news = { 0 };

	apply_blocks(&f->s, now, ack, &news);
	apply_sequence(&f->s, now, ack, &news);
	estimate(f, now, ack, &news);
	return news;
}

/* Handle a block that had arrived before: a retransmission was in vain.  Return 1 if there was one. */
static int note_repetition(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack)
{
	struct sender *s = &f->s;
	uint32_t sequence = ack->blocks[0].first;
	int is_of_probe = s->probe_point && sequence + 1 == s->probe_point;

	if (!(s->packets[sequence].flags & EVER_AGAIN))
		return 0;
	f->counters.spurious++;
	if (sequence >= s->acknowledged && s->packets[sequence].flags & SACKED)
		note_reordering(s, sequence);
	if (sequence >= ack->sequence && s->packets[sequence].flags & AGAIN) {
		s->packets[sequence].flags &= ~AGAIN;
		s->again--;
	}
	if (s->reordering_seen && !is_of_probe && now - s->steps_raised_at > s->smoothed_rtt) {
		s->reordering_steps = least(255, s->reordering_steps + 1);
		s->steps_raised_at = now;
		s->kept_recoveries = KEPT_RECOVERIES;
	}
	if (s->undo_retransmissions > 0 && sequence >= s->undo_from)
		s->undo_retransmissions--;
	return 1;
}

static void update_alpha(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack,
			 uint32_t delivered)
{
	struct sender *s = &f->s;

	s->acks += delivered;
	s->marked_acks += ack->congested ? delivered : 0;
	if (s->acknowledged < s->alpha_point)
		return;
	note_round(f, now);
	s->alpha -= s->alpha >> 4 ? s->alpha >> 4 : s->alpha;
	if (s->acks)
		s->alpha = least(ALPHA_ONE, s->alpha + ((s->marked_acks << 6) / s->acks));
	s->acks = s->marked_acks = 0;
	s->alpha_point = s->next;
}

/* As tcp_process_tlp_ack(). */
static void end_probe(struct tcp_flow *f, const struct tcp_segment *ack, const struct news *news)
{
	struct sender *s = &f->s;

	if (!s->probe_point || ack->sequence < s->probe_point)
		return;
	if (!s->probe_again || (ack->repeated && ack->blocks[0].end == s->probe_point)) {
		s->probe_point = 0;
	} else if (ack->sequence > s->probe_point) { /* the probe has repaired a loss */
		start_reduction(f, REDUCING);
		s->window = s->threshold;
		s->state = OPEN;
	} else if (!news->sacked && !news->advanced) {
		s->probe_point = 0;
	}
}

/* Return whether an acknowledgement of new packets answers what was sent before any was sent again. */
static int is_early(const struct sender *s, const struct tcp_segment *ack)
{
	return !s->retransmitted_ms || ack->stamp_ms < s->retransmitted_ms;
}

static int is_in_vain(const struct sender *s, const struct tcp_segment *ack)
{
	return s->can_undo && (!s->undo_retransmissions || is_early(s, ack));
}

/* Take back what repetitions show to be in vain (tcp_try_undo_dsack). */
static void undo_by_repetition(struct sender *s)
{
	if (!s->can_undo || s->undo_retransmissions)
		return;
	s->kept_recoveries = least(KEPT_RECOVERIES, s->kept_recoveries + 1);
	undo(s, 0);
}

/* Leave a state of losses at its end (tcp_try_undo_recovery). */
static void end_losses(struct sender *s, const struct tcp_segment *ack)
{
	if (is_in_vain(s, ack))
		undo(s, 0);
	else if (s->kept_recoveries && !--s->kept_recoveries)
		s->reordering_steps = 1;
	s->state = OPEN;
}

/* Leave the state of recovery or reduction if it has come to its end. */
static void leave_state(struct sender *s, const struct tcp_segment *ack)
{
	if (s->state == OPEN && !is_repaired(s))
		s->retransmitted_ms = 0;
	/* until a packet is acknowledged that tells the receiver of the reduction */
	if (s->state == REDUCING && s->acknowledged > s->recovery_point) {
		s->window = s->threshold;
		s->state = OPEN;
	}
	if (s->state == RECOVERY && s->acknowledged >= s->recovery_point) {
		end_losses(s, ack);
		if (s->can_undo)
			s->window = s->threshold;
	}
}

/* Handle an acknowledgement after a timeout, with F-RTO (tcp_process_loss). */
static void answer_timeout(struct tcp_flow *f, const struct tcp_segment *ack,
			   const struct news *news)
{
	struct sender *s = &f->s;

	if ((news->advanced && is_in_vain(s, ack)) || (s->may_be_late && news->original)) {
		undo(s, 1);
		s->has_timed_out = 0;
		return;
	}
	if (s->may_be_late && s->next > s->recovery_point) {
		s->may_be_late = !news->sacked && (news->advanced || ack->repeated);
	} else if (s->may_be_late && news->advanced && s->acknowledged < s->recovery_point) {
		s->prefers_new = s->may_be_late = s->next < s->written && s->next < s->limit;
		return;
	}
	if (s->acknowledged >= s->recovery_point)
		end_losses(s, ack);
}

/* Change the sender's state, as tcp_fastretrans_alert(); return whether a timer waits for more losses. */
static int change_state(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack,
			const struct news *news)
{
	struct sender *s = &f->s;
	uint32_t was_again, waits;

	if (ack->congested)
		s->prior_threshold = 0;
	leave_state(s, ack);
	if (s->state == RECOVERY) {
		if (news->advanced && s->can_undo && is_early(s, ack)) {
			note_reordering(s, s->acknowledged - news->advanced);
			s->prefers_new = s->again > 0;
			if (s->prefers_new) /* nor is more taken for lost */
				return 0;
			undo(s, 1);
		}
		undo_by_repetition(s);
		waits = detect_losses(f, now);
		if (s->state != RECOVERY && s->lost)
			start_recovery(f, ack->congested);
		return waits;
	}
	if (s->state == LOSS)
		answer_timeout(f, ack, news);
	else if (s->state == OPEN)
		undo_by_repetition(s);
	was_again = s->again;
	waits = detect_losses(f, now);
	if (s->state == LOSS && s->again >= was_again)
		return waits;
	if (s->lost) {
		start_recovery(f, ack->congested);
		return waits;
	}
	if (!is_repaired(s))
		s->retransmitted_ms = 0;
	if (ack->congested)
		slow_down(f);
	return waits;
}

void tcp_open(struct tcp_flow *f, uint64_t now, uint64_t rtt_ns)
{
	f->s.connected = 1;
	f->s.backoff = 0;
	f->s.limit = f->r.window;
	if (f->parameters.one_message) /* there is no handshake */
		f->r.measured_at = now;
	sample_rtt(f, rtt_ns, rtt_ns);
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

/* Handle an acknowledgement that a later one has overtaken: its blocks alone count. */
static void apply_overtaken(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack)
{
	struct tcp_segment blocks = *ack;
	struct news news = { 0 };

	if (!ack->n_blocks)
		return;
	if (ack->repeated)
		note_repetition(f, now, ack);
	apply_blocks(&f->s, now, ack, &news);
	blocks.congested = 0;
	change_state(f, now, &blocks, &news);
}

void tcp_answered(struct tcp_flow *f, uint64_t now, const struct tcp_segment *ack)
{
	struct sender *s = &f->s;
	uint32_t losses = s->losses, was_out, repetitions, waits;
	struct news news;

	if (ack->kind == TCP_SYN_ACK) {
		if (!s->connected)
			tcp_open(f, now, now - s->syn_sent_at);
		return;
	}
	if (is_reno(f)) {
		reno_answered(f, now, ack);
		return;
	}
	if (ack->sequence < s->acknowledged) {
		apply_overtaken(f, now, ack);
		return;
	}
	was_out = s->next != s->acknowledged;
	repetitions = ack->repeated && note_repetition(f, now, ack);
	news = apply(f, now, ack);
	news.delivered += repetitions;
	s->limit = most(s->limit, ack->sequence + ack->window);
	if (f->parameters.ecn == TCP_DCTCP)
		update_alpha(f, now, ack, news.delivered);
	end_probe(f, ack, &news);
	if (news.advanced)
		s->has_timed_out = 0;
	waits = (was_out || repetitions) && change_state(f, now, ack, &news);
	if (!was_out)
		return;
	/* also if the first missing packet was sent again after the one of which a block tells */
	if (!waits &&
	    (news.advanced || news.sacked_rtt > now - s->packets[s->acknowledged].sent_at))
		set_timer_of_answer(f, now);
	if (s->state == REDUCING || s->state == RECOVERY)
		reduce(s, news.delivered, s->losses > losses, news.advanced);
	else if (news.advanced || (news.sacked && s->overtaken > DUPLICATES))
		grow_window(f, now, news.delivered);
}

/* Transmission. */

static struct tcp_segment data_of(const struct tcp_flow *f, uint64_t now, uint32_t sequence)
{
	return (struct tcp_segment){
		.flow = f->flow,
		.sequence = sequence,
		.stamp_ms = stamp(now),
		.window = f->s.smoothed_rtt / 1000,
		.kind = TCP_DATA,
		.capable = f->parameters.ecn == TCP_DCTCP,
	};
}

/* Fill in what marks mean for a new packet; those that are sent again are marked with DCTCP alone. */
static void mark_new(const struct tcp_flow *f, struct tcp_segment *segment)
{
	segment->capable = f->parameters.ecn != TCP_NO_ECN;
	segment->reduced = f->s.reduced;
}

/* Let the send buffer grow with a window that is not full (tcp_should_expand_sndbuf). */
static void grow_send_buffer(struct sender *s)
{
	if (in_flight(s) < s->window)
		s->room = most(s->room, most(s->window, s->overtaken + 1));
}

/* Return how many packets the send buffer holds (tcp_sndbuf_expand). */
static uint32_t send_packets(const struct tcp_flow *f)
{
	uint64_t slot_bytes = 1;

	while (slot_bytes < f->payload_bytes + HEADS_BYTES)
		slot_bytes *= 2;
	slot_bytes += SOCKET_BUFFER_BYTES;
	return least(MOST_SEND_BYTES, 2 * f->s.room * slot_bytes) / memory_of(f);
}

/* Return 1 if there is a new packet to send.  The program writes when a third of the send buffer is free, until
 * it is full (sk_stream_is_writeable). */
static int has_new(struct tcp_flow *f)
{
	struct sender *s = &f->s;
	uint32_t packets;

	if (is_reno(f))
		s->written = f->packets;
	if (s->next < s->written || s->written == f->packets)
		return s->next < s->written;
	grow_send_buffer(s);
	packets = send_packets(f);
	if (3 * (s->written - s->acknowledged) > 2 * packets)
		return 0;
	s->written = least(f->packets, s->acknowledged + packets + 1);
	return s->next < s->written;
}

int tcp_next(struct tcp_flow *f, uint64_t now, struct tcp_segment *segment)
{
	struct sender *s = &f->s;

	if (!s->connected) {
		*segment = (struct tcp_segment){ .flow = f->flow, .kind = TCP_SYN };
		return s->timer == TIMER_NONE;
	}
	if (s->probe_due) { /* a tail loss probe goes beyond the window */
		*segment =
			data_of(f, now, has_new(f) && s->next < s->limit ? s->next : s->next - 1);
		if (segment->sequence == s->next)
			mark_new(f, segment);
		return 1;
	}
	if (s->repair_due) { /* as does Reno's retransmission */
		*segment = data_of(f, now, s->acknowledged);
		return 1;
	}
	if (in_flight(s) >= s->window) {
		if (is_reno(f) || s->next < s->written)
			note_use(f);
		return 0;
	}
	if (s->lost > s->again && !s->prefers_new)
		for (uint32_t p = s->acknowledged; p < s->next; p++)
			if ((s->packets[p].flags & (LOST | AGAIN)) == LOST) {
				*segment = data_of(f, now, p);
				return 1;
			}
	if (!has_new(f) || s->next >= s->limit)
		return 0;
	*segment = data_of(f, now, s->next);
	mark_new(f, segment);
	return 1;
}

/* Note that a packet that had been sent before was sent again, as a probe or because it is lost. */
static void note_sent_again(struct tcp_flow *f, uint64_t now, const struct tcp_segment *segment,
			    int is_probe)
{
	struct sender *s = &f->s;
	struct packet *p = s->packets + segment->sequence;

	f->counters.retransmissions++;
	s->repair_due = 0;
	unlist(s, segment->sequence);
	if (p->flags & LOST && !is_probe) {
		p->flags |= AGAIN;
		s->again++;
	}
	p->flags |= EVER_AGAIN;
	list(s, segment->sequence, now);
	if (!is_probe) {
		if (s->undo_retransmissions < 0)
			s->undo_retransmissions = 0;
		s->undo_retransmissions++;
		if (!s->retransmitted_ms)
			s->retransmitted_ms = segment->stamp_ms;
	}
	if (s->timer == TIMER_NONE ||
	    (segment->sequence == s->acknowledged && s->timer != TIMER_REORDERING && !is_reno(f)))
		set_timer(f, now, TIMER_RTO, retransmission_timeout(f));
}

void tcp_sent(struct tcp_flow *f, uint64_t now, const struct tcp_segment *segment)
{
	struct sender *s = &f->s;
	struct packet *p = s->packets + segment->sequence;
	int is_probe = s->probe_due, is_new = segment->sequence == s->next;

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
	if (is_new) {
		s->next++;
		s->reduced = 0;
		p->flags = 0;
		list(s, segment->sequence, now);
		grow_send_buffer(s);
		if (!is_probe)
			set_timer_of_sending(f, now);
	} else {
		note_sent_again(f, now, segment, is_probe);
	}
	if (is_probe)
		set_retransmission_timer(f, now);
	if ((s->state == REDUCING || s->state == RECOVERY) && (is_new || !is_probe))
		s->recovery_sent++;
	if (is_new || is_reno(f))
		note_use(f);
}

void tcp_pause(struct tcp_flow *f, uint64_t now)
{
	f->s.prefers_new = 0;
	if (!f->s.probe_due)
		return;
	f->s.probe_due = 0; /* the host's queue had no room */
	resume_timer(f, now);
}

/* As tcp_small_queue_check(): what the flow sends in a millisecond, at least two packets, and twice that of
 * those that are sent again.  Timers do not ask. */
uint32_t tcp_most_waiting(const struct tcp_flow *f, const struct tcp_segment *segment)
{
	const struct sender *s = &f->s;
	uint64_t memory = memory_of(f), limit = MOST_WAITING_BYTES;
	int is_again = segment->sequence < s->next && !is_reno(f);

	if (is_again && (s->repair_due || s->probe_due))
		return NONE;
	if (s->smoothed_rtt)
		limit = least(limit, pacing_rate(f) >> 10);
	return ((most(2 * memory, limit) << is_again) - 1) / memory;
}

void tcp_refused(struct tcp_flow *f, uint64_t now, const struct tcp_segment *segment)
{
	if (segment->kind == TCP_SYN) { /* repeated as one that is lost */
		tcp_sent(f, now, segment);
		return;
	}
	if (!is_reno(f))
		slow_down(f);
	f->s.repair_due = 0;
	if (f->s.timer == TIMER_NONE)
		set_timer(f, now, TIMER_RTO, retransmission_timeout(f));
}

static void time_out(struct tcp_flow *f, uint64_t now)
{
	struct sender *s = &f->s;
	int is_first = s->state == LOSS ? !s->has_timed_out : s->state == OPEN;

	s->may_be_late = s->state < RECOVERY || s->has_timed_out;
	s->has_timed_out = 1;
	f->counters.timeouts++;
	if (s->backoff < MOST_BACKOFF)
		s->backoff++;
	s->sacked = is_reno(f) ? 0 : s->sacked;
	s->duplicates = 0;
	s->repair_due = !is_reno(f);
	for (uint32_t p = s->acknowledged; p < s->next; p++)
		/* what was sent a moment ago may still arrive */
		if (p == s->acknowledged || s->packets[p].sent_at + s->rack_rtt <= now ||
		    is_reno(f))
			mark(s, p);
	/* not yet reduced for this loss; Reno reduces each time */
	if (is_first || s->acknowledged >= s->recovery_point || is_reno(f)) {
		s->prior_window = s->window;
		s->prior_threshold = current_threshold(s);
		s->threshold = threshold_of_loss(f);
		pause_plb(f, now);
		allow_undo(s);
	}
	if (s->state == OPEN && s->sacked >= DUPLICATES)
		s->overtaken = DUPLICATES;
	s->window = in_flight(s) + 1;
	s->growth = 0;
	s->recovery_point = s->next;
	s->probe_point = 0;
	s->reduced |= f->parameters.ecn != TCP_NO_ECN && !is_reno(f);
	s->state = LOSS;
	if (f->cubic)
		cubic_reset(f->cubic, now, s->next);
	set_retransmission_timer(f, now);
}

/* As tcp_rack_reo_timeout(). */
static void wait_no_longer(struct tcp_flow *f, uint64_t now)
{
	struct sender *s = &f->s;
	uint32_t was_in_flight = in_flight(s), losses = s->losses;

	mark_lost(s, now);
	if (in_flight(s) != was_in_flight && s->state != RECOVERY) {
		start_recovery(f, 0);
		reduce(s, 1, s->losses > losses, 0);
	}
	set_retransmission_timer(f, now);
}

void tcp_expire(struct tcp_flow *f, uint64_t now)
{
	struct sender *s = &f->s;
	uint32_t timer = s->timer;

	if (timer == TIMER_REORDERING)
		wait_no_longer(f, now);
	else
		set_timer(f, now, TIMER_NONE, 0);
	if (timer == TIMER_RTO)
		leave_dead_path(f);
	if (!s->connected) {
		s->backoff++;
		f->counters.timeouts++;
	} else if (timer == TIMER_PROBE && s->probe_point) { /* one at a time */
		resume_timer(f, now);
	} else if (timer == TIMER_PROBE) {
		s->probe_due = 1;
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
	uint32_t free = r->buffer - least(r->buffer, r->early);
	struct tcp_segment answer = { .flow = f->flow,
				      .sequence = r->expected,
				      .stamp_ms = r->stamp_ms,
				      .kind = TCP_ACK,
				      .congested = r->echo };

	r->edge = most(r->edge, r->expected + (is_reno(f) ? r->window : least(r->window, free)));
	answer.window = r->edge - r->expected;
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

/* Note the marks of a packet that is new; return 1 if they ask for an immediate acknowledgement. */
static int note_marks(struct tcp_flow *f, const struct tcp_segment *data)
{
	struct receiver *r = &f->r;
	uint32_t before = r->echo;

	if (data->reduced)
		r->echo = 0;
	if (data->sequence < r->expected && !is_reno(f))
		return data->reduced;
	if (f->parameters.ecn == TCP_DCTCP) {
		r->echo = data->marked;
		return r->echo != before || data->reduced;
	}
	/* one that may not be marked was probably sent again */
	if (data->capable ? data->marked && !r->echo : r->knows_ecn)
		r->quick = quick_of(r, MARK_QUICK);
	r->knows_ecn |= data->capable;
	r->echo |= data->marked;
	return data->reduced;
}

/* Return the round trip that the receiver reckons with: the shortest time of a window (tcp_rcv_rtt_measure), or
 * that of the sender, in whole units of stamps, by which Linux' receiver learns it. */
static uint64_t round_trip(struct receiver *r, uint64_t now, uint32_t sender_us)
{
	if (r->expected >= r->round_end) {
		if (r->round_end)
			r->round_ns = least(r->round_ns, now - r->round_at);
		r->round_end = r->edge;
		r->round_at = now;
	}
	return least(r->round_ns, most(MS_NS, 1000ull * sender_us));
}

/* Let the buffer grow with what arrives in a round trip, as tcp_rcv_space_adjust(). */
static void grow_buffer(struct tcp_flow *f, uint64_t now, uint32_t sender_us)
{
	struct receiver *r = &f->r;
	uint64_t arrived = r->expected - r->measured_from, larger;

	if (now - r->measured_at < round_trip(r, now, sender_us))
		return;
	if (arrived > r->measured) {
		larger = 2 * arrived + 16;
		larger += 2 * (larger * (arrived - r->measured) / r->measured);
		r->buffer = most(r->buffer, least(larger, MOST_RECEIVE_BYTES / memory_of(f)));
		r->measured = arrived;
	}
	r->measured_from = r->expected;
	r->measured_at = now;
}

/* Store a packet; return 1 if it has arrived before. */
static int store(struct tcp_flow *f, uint64_t now, const struct tcp_segment *data)
{
	struct receiver *r = &f->r;
	uint32_t sequence = data->sequence, was_expected = r->expected;

	if (r->received[sequence]) {
		if (sequence < was_expected)
			r->quick = quick_of(r, MOST_QUICK);
		return 1;
	}
	r->received[sequence] = 1;
	if (is_reno(f) || r->window + r->early < r->buffer) /* tcp_grow_window() */
		r->window += 2;
	if (sequence != was_expected) {
		insert_block(r, sequence);
		r->early++;
		return 0;
	}
	/* the sender's window was not restarted after a pause */
	if (now - r->in_order_at > f->parameters.rto_min_ns)
		r->quick = quick_of(r, MOST_QUICK);
	r->in_order_at = now;
	while (r->expected < f->packets && r->received[r->expected])
		r->expected++;
	r->early -= r->expected - was_expected - 1;
	drop_blocks(r);
	if (!is_reno(f))
		grow_buffer(f, now, data->window);
	return 0;
}

/* Return for how long an acknowledgement waits at most, less than a timeout (tcp_delack_max). */
static uint64_t longest_delay_ns(const struct tcp_parameters *parameters)
{
	uint64_t jiffy = parameters->jiffy_ns;

	return least(DELAYED_ACK_NS, most(parameters->rto_min_ns, 2 * jiffy) - jiffy);
}

/* Answer a packet that is out of the window, or older than the last in order (PAWS, RFC 7323, section 5). */
static void refuse(struct tcp_flow *f, const struct tcp_segment *data, struct tcp_segment *answer)
{
	int is_old = data->sequence < f->r.expected;

	if (is_old)
		note_label(f, data);
	*answer = answer_of(f);
	add_blocks(f, answer, is_old ? data->sequence : NONE);
	if (is_old)
		f->r.quick = quick_of(&f->r, MOST_QUICK);
}

/* Answer what waits for its acknowledgement and had the other mark than `data`, with DCTCP (RFC 8257, section
 * 3.2); return 1 if there was any. */
static int answer_other_mark(struct tcp_flow *f, const struct tcp_segment *data,
			     struct tcp_segment *answer)
{
	const struct receiver *r = &f->r;

	if (f->parameters.ecn != TCP_DCTCP || data->sequence < r->expected ||
	    r->echo == data->marked || r->deadline == TCP_NEVER)
		return 0;
	*answer = answer_of(f);
	add_blocks(f, answer, NONE);
	return 1;
}

int tcp_receive(struct tcp_flow *f, uint64_t now, const struct tcp_segment *data,
		struct tcp_segment answers[TCP_MOST_ANSWERS])
{
	struct receiver *r = &f->r;
	uint32_t n_answers, had_blocks = r->n_blocks, sequence = data->sequence;
	int at_once, is_repeated;

	if (data->kind == TCP_SYN) {
		r->measured_at = now;
		note_syn(f, data);
		*answers = (struct tcp_segment){ .flow = f->flow,
						 .window = r->window,
						 .kind = TCP_SYN_ACK };
		return 1;
	}
	r->late += sequence + 1 < r->latest;
	r->latest = most(r->latest, sequence + 1);
	if (!is_reno(f) &&
	    (sequence + 1 < r->last_answered || data->stamp_ms + MOST_STAMP_AGE < r->stamp_ms)) {
		refuse(f, data, answers);
		return 1;
	}
	n_answers = answer_other_mark(f, data, answers);
	note_label(f, data);
	at_once = note_marks(f, data);
	if (sequence <= r->last_answered && data->stamp_ms >= r->stamp_ms)
		r->stamp_ms = data->stamp_ms;
	is_repeated = store(f, now, data);
	r->unanswered++;
	at_once |= is_repeated || had_blocks || r->n_blocks || r->quick || r->unanswered >= 2;
	at_once |= is_reno(f) || (f->parameters.one_message && r->expected == f->packets);
	if (!at_once) {
		r->deadline = tick(f, now, longest_delay_ns(&f->parameters));
		return n_answers;
	}
	answers[n_answers] = answer_of(f);
	add_blocks(f, &answers[n_answers], is_repeated ? sequence : NONE);
	return n_answers + 1;
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

uint32_t tcp_header_bytes(const struct tcp_parameters *parameters)
{
	return TCP_HEADER + (parameters->label ? TCP_IPV6_BYTES : 0);
}

uint32_t tcp_frame_bytes(const struct tcp_flow *f, const struct tcp_segment *segment)
{
	uint32_t header_bytes = tcp_header_bytes(&f->parameters);

	if (segment->kind == TCP_DATA)
		return header_bytes + f->s.packets[segment->sequence].payload_bytes;
	return header_bytes + 8 * segment->n_blocks + (segment->n_blocks ? 4 : 0);
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
	f->counters.duplicate_rehashes = f->r.duplicate_rehashes;
	f->counters.new_labels = f->r.new_labels;
	if (is_reno(f))
		f->counters.spurious = f->r.spurious;
	return &f->counters;
}
