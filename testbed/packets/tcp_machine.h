/* SPDX-License-Identifier: MIT */
/* TCP of Linux as a model: both ends of one flow, without sockets, clock or wires.  A flow carries
 * messages, one after the other.
 *
 * Sequence numbers count full packets.  Loss is found by time (RACK and TLP, RFC 8985), recovery
 * is proportional rate reduction (RFC 6937), with selective acknowledgements and their duplicates
 * (RFC 2018, 2883); windows are those of Reno or CUBIC, and congestion is echoed as in RFC 3168 or 8257.
 * Constants and the order of steps are those of Linux 6.12, whose timers tick in jiffies.
 *
 * With TCP_RENO both ends are those of RFC 5681 alone, as in simulators of that time: no selective
 * acknowledgements, every packet is acknowledged, three repetitions of an acknowledgement stand for
 * a loss, the first new one ends recovery, and what follows a timeout is sent again in order. */
#pragma once
#include <stdint.h>

#define TCP_HEADER 66 /* of a frame: Ethernet, IPv4, TCP with time stamps */
#define TCP_IPV6_BYTES 20 /* that an IPv6 header is longer */
#define TCP_SENT_BLOCKS 3 /* beside time stamps */
#define TCP_MOST_ANSWERS 2 /* to one segment */
#define TCP_NEVER UINT64_MAX

enum { TCP_NO_ECN, TCP_CLASSIC_ECN, TCP_DCTCP };
enum { TCP_RACK, TCP_RENO };
enum { TCP_NO_LABEL, TCP_LABEL_STAYS, TCP_PRR, TCP_PLB };
enum { TCP_SYN = 1, TCP_SYN_ACK, TCP_DATA, TCP_ACK };

/* one_message: 1 if a connection has one message alone: it is open before, so that no handshake is
 * lost, and is closed with the last packet, which is acknowledged at once.
 * recovery: how losses are found and repaired: TCP_RACK or TCP_RENO.  cubic: 1 if windows are those of
 * CUBIC, with TCP_RACK.  small_queues: 1 if a host lets few packets of a flow wait in its queue.
 *
 * label: 0 over IPv4.  Else segments have IPv6's flow label, one for each end: TCP_LABEL_STAYS, or drawn
 * again after a timeout, and by a receiver when data come twice (TCP_PRR), and also after plb_rounds rounds
 * of DCTCP in a row with half of the packets marked (TCP_PLB). */
struct tcp_parameters {
	uint64_t jiffy_ns;
	uint64_t rto_min_ns;
	uint32_t frame_bytes;
	uint32_t ecn;
	uint32_t one_message;
	uint32_t recovery;
	uint32_t cubic;
	uint32_t small_queues;
	uint32_t label;
	uint32_t plb_rounds;
};

struct tcp_block {
	uint32_t first, end;
};

/* sequence: number of the packet, or of the next one that is expected.  reduced: the window has
 * been reduced (CWR).  congested: echo of a mark (ECE).  capable: may be marked.  stamp_ms: time
 * stamp, or its echo.  window: packets that the receiver has room for behind `sequence`; of data, the
 * sender's round trip in microseconds.
 * repeated: the first block has arrived before.  layer: of FatPaths, or the label: how often it has been
 * drawn, modulo 256. */
struct tcp_segment {
	uint32_t flow, sequence, stamp_ms, window;
	uint8_t kind, n_blocks, layer, reduced, congested, repeated, marked, capable;
	struct tcp_block blocks[TCP_SENT_BLOCKS];
};

/* late: packets that arrived behind a later one.  timeout_rehashes, duplicate_rehashes, plb_rehashes: labels drawn
 * after timeouts, by the receiver, and by PLB.  new_labels: that have arrived beside the sender's first. */
struct tcp_counters {
	uint64_t sent, retransmissions, spurious, timeouts, probes, reductions, late;
	uint64_t timeout_rehashes, duplicate_rehashes, plb_rehashes, new_labels;
};

struct arena;
struct tcp_flow;

/* Fetch one end of a flow into the processor's cache, before it handles a segment. */
void tcp_fetch(const struct tcp_flow *flow, int is_receiver);

/* Return a flow without data, 0 without memory.  It is freed with the arena. */
struct tcp_flow *tcp_new(const struct tcp_parameters *parameters, uint32_t flow,
			 struct arena *arena);

/* Open the connection, by a handshake that took `rtt_ns`; else the first segment begins one. */
void tcp_open(struct tcp_flow *flow, uint64_t now, uint64_t rtt_ns);

/* Add a message behind those that are there, in packets of its own; return the number of packets of
 * all messages, 0 without memory. */
uint32_t tcp_write(struct tcp_flow *flow, uint64_t now, uint64_t size_bytes);

/* Fill in the next segment that the sender may send now; 0 if there is none.  Call tcp_sent() if
 * the host's queue has taken it, else tcp_refused(). */
int tcp_next(struct tcp_flow *flow, uint64_t now, struct tcp_segment *segment);
void tcp_sent(struct tcp_flow *flow, uint64_t now, const struct tcp_segment *segment);
void tcp_refused(struct tcp_flow *flow, uint64_t now, const struct tcp_segment *segment);
/* Note that nothing else is sent before something happens. */
void tcp_pause(struct tcp_flow *flow, uint64_t now);

/* Return with how many packets in the host's queue the flow still sends `segment` (TCP small queues). */
uint32_t tcp_most_waiting(const struct tcp_flow *flow, const struct tcp_segment *segment);

/* Handle a segment at the receiver; return how many answers are to be sent. */
int tcp_receive(struct tcp_flow *flow, uint64_t now, const struct tcp_segment *segment,
		struct tcp_segment answers[TCP_MOST_ANSWERS]);

/* Handle a segment at the sender. */
void tcp_answered(struct tcp_flow *flow, uint64_t now, const struct tcp_segment *segment);

/* Deadlines of both ends, and what is to be done then.  tcp_delayed_answer() fills in the
 * acknowledgement that has been delayed. */
uint64_t tcp_sender_deadline(const struct tcp_flow *flow);
uint64_t tcp_receiver_deadline(const struct tcp_flow *flow);
void tcp_expire(struct tcp_flow *flow, uint64_t now);
void tcp_delayed_answer(struct tcp_flow *flow, struct tcp_segment *answer);

/* Return the packets before the first that the receiver lacks. */
uint32_t tcp_delivered(const struct tcp_flow *flow);
/* Return those up to the latest that has arrived. */
uint32_t tcp_latest(const struct tcp_flow *flow);
/* Return those of which the sender knows that. */
uint32_t tcp_acknowledged(const struct tcp_flow *flow);

/* Return the label of an end. */
uint8_t tcp_label(const struct tcp_flow *flow, int is_receiver);

uint32_t tcp_header_bytes(const struct tcp_parameters *parameters);
uint32_t tcp_frame_bytes(const struct tcp_flow *flow, const struct tcp_segment *segment);
const struct tcp_counters *tcp_counters(struct tcp_flow *flow);
