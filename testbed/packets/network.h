/* SPDX-License-Identifier: MIT */
/* A simulated network of hosts, with the purified transport, TCP or none, and switches.
 *
 * A message goes by its own route, which may lead through other hosts, or as the switches choose
 * among the next hops of their tables.
 *
 * With the purified transport switches trim: a port has a short queue for data and one with
 * priority for headers (NDP, Handley et al., SIGCOMM 2017, section 3.1).  Tests hold this equal to
 * tests/daemons/transport/python_network.py.  With TCP a port has one queue, which marks and drops
 * packets, and so it is without a transport.  Links with flow control lose nothing: a node neither trims
 * nor drops what it forwards. */
#pragma once
#include "../traffic/ndp_machine.h"
#include "stream.h"
#include "tcp_machine.h"

/* How switches choose among the next hops of a packet: a rule of the data plane and its parameters,
 * with the names that schemes give them.
 *
 * rule: enum rule of ../data_plane/select.h; KERNEL is FLOW_HASH.  seed: of round robin and of hashes. */
struct packet_rule {
	uint32_t rule;
	uint32_t seed;
	uint32_t alike; /* 1: all switches hash a flow alike */
	uint32_t frame_bytes; /* of a full packet */
	uint32_t load; /* 0: loads are packets, 1: bytes */
	uint32_t d; /* DRILL: samples; UGAL: compared detours */
	uint32_t m; /* 1: the last winner is a candidate again */
	uint32_t delta; /* TTC, UGAL: threshold */
	uint32_t tie; /* 1: a packet exactly at the threshold is moved */
	uint32_t gap_us; /* LetFlow, Valiant, UGAL */
	uint32_t elephant_kb; /* DAR, from here on as in ../data_plane/select.bpf.c */
	uint32_t start;
	uint32_t key;
	uint32_t detect;
	uint32_t queue;
	uint32_t rest_us;
	uint32_t groups; /* LBSP: link groups, a power of two */
	uint32_t group_bits;
	uint32_t hash; /* LBSP: 1: a flow's hash chooses its group */
	uint32_t own[8]; /* OWN: parameters, in order of name */
};

/* The rule of another package: own_rule() of ../data_plane/own_rule.c. */
struct call;
struct arrival;
typedef uint32_t packet_choose(struct call *call, struct arrival *arrival,
			       const uint32_t *parameters);

/* A kind of link.
 *
 * trim_bytes: capacity of a queue for data that a node forwards; its own data queues without limit.
 * header_bytes: capacity of the header queue.  share: headers sent for each data packet if both wait.
 * retransmissions_first: 1 if retransmitted packets have a queue of their own, as long, before other
 * data (FatPaths, section III-C).  mark_packets: packets of data in a queue from which on a node marks
 * those that it forwards, 0: never.
 *
 * With TCP: queue_packets: capacity of a queue, also for a host's own packets.
 *
 * room_bytes: 0 without flow control; a network has it on all links or on none.  With credits, as in
 * InfiniBand, the node at the end of the link holds at most so many bytes of frames that came over it,
 * and the sender waits for room.  With resume_bytes, as in IEEE 802.1Qbb, the node lets the sender pause
 * once it holds more, and go on at resume_bytes.  cut_through_bytes: of a frame, at most the shortest,
 * that a node must have before it forwards it; 0: all of it.
 * output_bytes: of an output buffer at the link's beginning, with flow control: the first frames that wait
 * for the link lie there, and no longer where they came in. */
struct packet_link {
	uint64_t rate_bps;
	uint64_t delay_ns;
	uint32_t trim_bytes;
	uint32_t header_bytes;
	uint32_t share;
	uint32_t queue_packets;
	uint32_t mark_packets;
	uint32_t retransmissions_first;
	uint32_t room_bytes;
	uint32_t resume_bytes;
	uint32_t cut_through_bytes;
	uint32_t output_bytes;
};

/* Nodes are the hosts, then the switches.  A node's ports are first_port[node] up to
 * first_port[node + 1]; port p leads to node peer[p], and is of the kind links[link[p]].
 *
 * The rest is for messages without a route of their own; hops is 0 if there are none.  Each host
 * then has a port to each of `planes` networks that have no other common nodes.  departures has, for each
 * host, the number of ports that it sends by, and planes places with them.  A packet of the purified
 * transport takes port v % number by its entropy value v, its layer; one of TCP by a hash of its flow.  It
 * stays in the plane to which the port leads.  last_port[host * planes + plane] is the port of the host's
 * switch to it.  Switches that hash a flow hash its packets' entropy values, too.
 *
 * hop_sets[h], where h = hops[(layer * n_switches + switch) * n_switches + last switch], is the number
 * of ports of `switch` that lead to the last switch before the destination; they follow, numbered from
 * its first port.  Equal sets of a switch are there once: they share the memory of its rule, and stay
 * in the processor's cache.
 *
 * addresses: of hosts, IPv4.  digits: that a switch reads of a destination's address, DIGITS of
 * ../data_plane/select.h's struct digit for each switch.  distances: hops between two switches, shape
 * (n_switches, n_switches), for rules with detours, else 0.  choose: of the rule OWN, else 0. */
struct packet_wiring {
	const uint32_t *first_port;
	const uint32_t *peer;
	const uint16_t *link;
	const struct packet_link *links;
	const uint32_t *last_port;
	const uint32_t *departures;
	const uint32_t *hops;
	const uint16_t *hop_sets;
	const uint32_t *addresses;
	const uint32_t *digits;
	const uint8_t *distances;
	uint32_t n_hosts;
	uint32_t n_switches;
	uint32_t n_hop_sets; /* numbers in hop_sets */
	uint32_t layers;
	uint32_t planes; /* 1 without tables */
	struct packet_rule rule;
	packet_choose *choose;
};

/* How TCP's hosts choose layers: those of struct settings in ../data_plane/layer_choice.h that are for
 * flows. */
struct packet_layers {
	uint32_t trigger, gap_us, cell_kb, start, choice, ecn_percent, ecn_rounds;
};

/* waited_ns: time in which a frame could not be sent, because there was no room behind the link.
 * most_room_bytes: most that the node behind it held of its frames.  deadlocked: as
 * packet_network_deadlocked() found. */
struct packet_port_counters {
	uint64_t frames, bytes, trimmed, headers_lost, most_data_bytes, most_header_bytes;
	uint64_t dropped, marked, waited_ns, most_room_bytes, deadlocked;
};

/* Where a node sends a packet: its output port; the address that the packet carries from there; the
 * output port, from the first one, at a crossbar that lies between, which stays as it is without. */
struct packet_hop {
	uint32_t port, address, crossing;
};

/* Fill in where `node` sends a packet of a message that carries `address`, 0 at its source; 0 if it
 * has no route.  back: 1 for answers. */
typedef int packet_lookup(uint32_t node, uint32_t message, uint32_t back, uint32_t address,
			  struct packet_hop *hop);

/* A flow in the table of a switch.
 *
 * port: by which it leaves a switch to whose hosts its source belongs; else that at the other end of the
 * link by which it comes.  moved_ns: of its last change, 0: never. */
struct packet_flow {
	uint64_t last_ns, moved_ns;
	uint32_t message, port;
};

/* What packet_network_take_event() returns beside deliveries: a packet of message `flow` joined a long
 * queue at a switch, with its port as `peer` (struct packet_flow); message `flow` of a daemon has come. */
enum { PACKET_QUEUED = NDP_FAILED + 1, PACKET_HEARD };

struct packet_network;

/* Return a network in which nothing is sent yet, 0 without memory.  `wiring` must outlive it.
 * ndp, tcp, stream: parameters of the transport, or of hosts without; two of them are 0.  layers: of TCP's
 * hosts.  seed: of all random choices. */
struct packet_network *packet_network_new(const struct packet_wiring *wiring,
					  const struct ndp_parameters *ndp,
					  const struct tcp_parameters *tcp,
					  const struct stream_parameters *stream,
					  const struct packet_layers *layers, uint64_t seed);
void packet_network_free(struct packet_network *network);

/* Let as many threads run the network, each the nodes that it owns; owner: part of each node, below n_parts,
 * which is at most 8.  Each node then draws random numbers of its own, so that results are the same for any
 * parts, of 1 to 8.  Nothing has been sent.
 *
 * Return 0, -ENOMEM, -EINVAL if a connection has several messages, or -EOPNOTSUPP if a part would have to know of another at once: with flow control or
 * a table of flows (DAR), where hosts go back, or choose a layer by their other flows to the same host, or if a
 * packet takes no time from one part to another.  Tables then change by packet_network_reroute() alone. */
int packet_network_split(struct packet_network *network, const uint8_t *owner, uint32_t n_parts);

/* Schedule a message; return 0 or -ENOMEM.  Messages are numbered from 0 in the order of these
 * calls.  Those of one `connection`, the number of the first of them, follow each other in one
 * flow of TCP; -EINVAL if threads run the network. */
int packet_network_send(struct packet_network *network, uint64_t time_ns, uint32_t src,
			uint32_t dst, uint32_t flow, uint64_t size_bytes, uint32_t connection);

/* Let message `number`, and answers to it, go by routes from now on: the ports that its packets leave
 * by, `n_there` from the source and then `n_back` from the destination.  Packets under way stay on
 * the route that they were sent by.
 *
 * Return 0, -ENOMEM, or -EINVAL if the ports are no such route, or the message's flow is not its
 * number. */
int packet_network_route(struct packet_network *network, uint32_t number, const uint32_t *ports,
			 uint32_t n_there, uint32_t n_back);

/* Let a port lose all packets, also those that wait, or carry them again; no node notices.  All events
 * up to `time_ns` have been run. */
void packet_network_fail(struct packet_network *network, uint64_t time_ns, uint32_t port,
			 int failed);

/* Route packets by other next hops and departures of the same wiring, which must outlive `network`; 0 or
 * -ENOMEM. */
int packet_network_reroute(struct packet_network *network, const uint32_t *departures,
			   const uint32_t *hops, const uint16_t *hop_sets, uint32_t n_hop_sets);

/* Let tables change while packets are under way: one without a next hop, or forwarded too often, is
 * lost, and packet_network_run() returns.
 *
 * look_up: 0, or of all messages, each of which is its own flow, from now on; what it fills in is
 * remembered up to packet_network_forget() for that node.  n_memos: a power of two; more are faster.
 * Return 0 or -ENOMEM. */
int packet_network_live(struct packet_network *network, packet_lookup *look_up, uint32_t n_memos);
void packet_network_forget(struct packet_network *network, uint32_t node);

/* Let a packet of a daemon, of so many bytes, wait with the data at a port, and report it as `message` at
 * the port's other end; 0 or -ENOMEM.  All events up to `time_ns` have been run. */
int packet_network_tell(struct packet_network *network, uint64_t time_ns, uint32_t port,
			uint32_t length_bytes, uint32_t message);

/* Let a message leave a switch by a port from now on, if its source is a host of the switch.
 * with_destination: 1: also flows from there to the same host that will begin.  Return 0 or -ENOMEM. */
int packet_network_place(struct packet_network *network, uint64_t time_ns, uint32_t node,
			 uint32_t message, uint32_t port, uint32_t with_destination);

/* Fill in the flows that have sent within idle_ns, at most `most`, and forget the others; return how many
 * there are. */
uint32_t packet_network_flows(struct packet_network *network, uint64_t time_ns, uint32_t node,
			      uint64_t idle_ns, struct packet_flow *flows, uint32_t most);

/* Run all events up to and including `time_ns`, or until there is an event to take, or
 * `most_events` have been run.  Return 0 if none is left up to that time, else 1; -EINVAL for a message
 * that no endpoint can send, or -ENOMEM. */
int packet_network_run(struct packet_network *network, uint64_t time_ns, uint64_t most_events);

/* Return the time of the last event. */
uint64_t packet_network_now(const struct packet_network *network);

/* Remove the earliest event of any host and fill in it and its host; 0 if there is none. */
int packet_network_take_event(struct packet_network *network, uint32_t *host,
			      struct ndp_event *event);

/* Return the counters of a host's endpoint, of a flow of TCP, of a port. */
const struct ndp_counters *packet_network_host(const struct packet_network *network, uint32_t host);
const struct tcp_counters *packet_network_flow(const struct packet_network *network, uint32_t flow);
const struct stream_counters *packet_network_stream(const struct packet_network *network,
						    uint32_t message);
/* Return the packets of a flow of TCP that its receiver has, without a gap before them, or those of a
 * message without a transport. */
uint32_t packet_network_delivered(const struct packet_network *network, uint32_t flow);
/* Return the packets of a flow of TCP up to the latest that its receiver has, or 0. */
uint32_t packet_network_latest(const struct packet_network *network, uint32_t flow);
struct packet_port_counters packet_network_port(const struct packet_network *network,
						uint32_t port);

/* Return the number of ports that wait for each other in a circle, and will never send again. */
uint32_t packet_network_deadlocked(struct packet_network *network);

/* Return the number of packets that no node had a next hop for, or that were forwarded too often. */
uint64_t packet_network_unrouted(const struct packet_network *network);

/* Return the number of frames that links have begun to carry. */
uint64_t packet_network_frames(const struct packet_network *network);
