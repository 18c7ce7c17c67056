/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The data plane of every switch of a fabric, at the ingress hook of each switch port.
 *
 * The longest prefix of a packet's destination leads to a group of candidate ports.  The rule of
 * the switch chooses one of them (select.h).  The program rewrites MAC addresses and TTL and puts
 * the packet into the queue of that port.
 *
 * Everything but a whole IPv4 packet without options and with a known route is left to the kernel,
 * which has routes of its own: ARP, ICMP errors, packets to the switch, traceroute.  Fragments,
 * packets with options and packets longer than their port's MTU bypass the rule, which is counted.
 * A port that trims admits packets, or their headers, to its queues (trim.h).
 *
 * One program and one set of maps (select_maps.h) serve all switches of a run.  Interface indexes
 * are unique among all runs; their lower 16 bits are unique within a run.
 *
 * To add a rule: a number in `enum rule` (select.h), its parameters in struct switch_, a case in
 * choose_candidate(); then a scheme in daemons/load_balancing/scheme.py, whose parameters have the same
 * names.
 */
#ifdef BLIND
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define NO_QUEUE 0xffffffff
#else
#include "queues.h"
#endif
#include <bpf/bpf_endian.h>
#include <linux/if_packet.h>

#include "packet.h"
#include "select.h"
#include "trim.h"

/* A switch: its identity, what it reads of a destination, and the parameters of its rule, with the
 * names and units of a scheme's specification (daemons/load_balancing/scheme.py). */
struct switch_ {
	__u32 rule;
	__u32 seed;
	__u32 tier; /* from 1, at the hosts */
	__u32 reader; /* of queue lengths; data_plane.py notes it for other processes */
	__u32 flowlet_bits; /* bits of an index of flowlets that are its own */
	struct digit digits[DIGITS];
	__u32 ecn; /* packets in the queue from which packets are marked; 0: never */
	__u32 load; /* 0: loads are packets, 1: bytes */
	__u32 d; /* DRILL: samples; UGAL: compared detours */
	__u32 m; /* 1: the last winner is a candidate again */
	__u32 delta; /* TTC, UGAL: threshold */
	__u32 tie; /* 1: a packet exactly at the threshold is moved */
	__u32 gap_us; /* LetFlow, Valiant, UGAL */
	__u32 groups; /* LBSP: link groups, a power of two */
	__u32 group_bits; /* binary logarithm of `groups` */
	__u32 hash; /* 1: the flow's hash chooses the link group */
	__u32 states; /* 1: crowded groups give packets away */
	__u32 edge_packets; /* thresholds of that: edge switches, and those above */
	__u32 edge_percent;
	__u32 above_packets;
	__u32 above_percent;
	__u32 hosts; /* number of its first ports, which lead to hosts */
	__u32 elephant_kb; /* data after which a flow enters the table */
	__u32 start; /* port at which a flow begins: enum start */
	__u32 key; /* 1: a flow begins at the port of others to its destination */
	__u32 detect; /* 1: report flows whose packets meet queues of `queue` full packets */
	__u32 queue;
	__u32 rest_us; /* for which a flow that was moved, or reported by a spine, is not reported */
	__u32 switches; /* Valiant, UGAL: switches of the network, if `digits` read them */
	__u32 code; /* checksum of the rule of another package in this program; 0: none */
	__u32 own[MOST_PARAMETERS]; /* parameters of that rule, in order of name */
};

#include "select_maps.h"

#define UDP_BYTES 8
#define TCP_DATA_OFFSET 12 /* of the byte with a TCP header's length */
#define LATE_BYTES (1 << 24)
#define DONT_FRAGMENT 0x4000
#define SERVERS 10 /* first octet of a server's address */
#define NO_GROUP 0xffffffff /* beyond all groups */
#define LEAST_MTU_BYTES (ETH_HLEN + 68) /* of a frame that every device takes (RFC 791) */

#define GROUP_MASK ((1 << GROUP_BITS) - 1)
#define GENERATION_MASK ((1 << GENERATION_BITS) - 1)

_Static_assert(sizeof(struct port) == 32, "plane_program.PORT");
_Static_assert(sizeof(struct prefix) == 12, "plane_program.PREFIX");
_Static_assert(sizeof(struct group) == 4 + 4 * CANDIDATES, "plane_program.GROUP");
_Static_assert(sizeof(struct flowlet_entry) == 16, "plane_program.FLOWLET");
_Static_assert(sizeof(struct flow_key) == 20, "plane_program.FLOW_KEY");
_Static_assert(sizeof(struct flow_entry) == 40, "plane_program.FLOW");
_Static_assert(sizeof(struct long_queue) == 24, "plane_program.LONG_QUEUE");
_Static_assert(sizeof(struct recent_flow) == 8, "plane_program.RECENT_FLOW");
_Static_assert(sizeof(struct counters) == 56, "plane_program.COUNTERS");
_Static_assert(CANDIDATES == MOST_CANDIDATES,
	       "select.h compares as many candidates as a group has");

#ifdef BLIND /* kernels without BTF do not show queues, and let no global function take a context */
#define SHARED static __attribute__((noinline))

static __always_inline __u32 waiting(struct __sk_buff *ctx, __u32 ifindex, __u32 in_bytes)
{
	return 0;
}

static __always_inline __u32 full_packets(struct __sk_buff *ctx, __u32 ifindex)
{
	return 0;
}

static __always_inline __u32 data_waiting(struct __sk_buff *ctx, __u32 ifindex)
{
	return NO_QUEUE;
}
#else
/* The verifier checks a global function once, not at every call.  The program loads in 0.1 s instead of
 * seconds. */
#define SHARED __attribute__((noinline))

/* Return the backlog of a port, in packets or in bytes. */
SHARED __u32 waiting(struct __sk_buff *ctx, __u32 ifindex, __u32 in_bytes)
{
	return root_queue_length(ctx, ifindex, in_bytes);
}

/* Return the backlog of a port in full packets. */
SHARED __u32 full_packets(struct __sk_buff *ctx, __u32 ifindex)
{
	return root_queue_full_packets(ctx, ifindex);
}

/* Return the bytes of data that wait at a port that trims, without the queue of headers; NO_QUEUE
 * if it cannot be read. */
SHARED __u32 data_waiting(struct __sk_buff *ctx, __u32 ifindex)
{
	return child_queue_bytes(ctx, ifindex, DATA_QUEUE);
}
#endif

/* A packet at a switch under a rule with detours.
 *
 * waypoint: as in struct detour; that which it came with, then that which it leaves with. */
struct passage {
	__be32 destination;
	__u32 hash;
	__u32 can_detour;
	__u32 waypoint;
};

/* A packet at a switch, and its candidate ports. */
struct choice {
	struct __sk_buff *ctx;
	struct iphdr *ip;
	const void *end; /* of the packet */
	const struct switch_ *settings;
	const struct group *group;
	struct memory *memory;
	__u32 n; /* candidates */
	__u32 switch_number;
	__u32 input_port;
	__u32 moved;
	struct passage passage;
};

static __always_inline __u32 port_of(const struct group *group, __u32 candidate)
{
	/* hide the candidate's range: clang would drop the mask that the verifier needs */
	asm volatile("" : "+r"(candidate));
	return READ_ONCE(group->ports[candidate & (CANDIDATES - 1)]);
}

static __always_inline __u32 load_of(void *context, __u32 candidate)
{
	struct choice *choice = context;

	return waiting(choice->ctx, port_of(choice->group, candidate), choice->settings->load);
}

static __always_inline __u32 draw(void *context)
{
	return bpf_get_prandom_u32();
}

/* Return the entry of a port of a switch, 0 for any other interface. */
static __always_inline struct port *switch_port(__u32 ifindex)
{
	__u32 index = ifindex & 0xffff;
	struct port *port = bpf_map_lookup_elem(&ports, &index);

	return port && port->switch_number ? port : 0;
}

/* Return the group for `destination` at a switch, and its number in *id; 0 if there is no route.
 *
 * A lookup in the trie takes 110 ns, so results are cached: one word with destination, generation
 * and group, written at once. */
static __always_inline struct group *route(__u32 number, __be32 destination, __u32 *id)
{
	__u32 slot = number << CACHE_BITS | destination * 0x9e3779b1u >> (32 - CACHE_BITS);
	__u32 *generation = bpf_map_lookup_elem(&generations, &number);
	__u64 *cached = bpf_map_lookup_elem(&cache, &slot);
	__u64 tag;
	__u64 word;

	if (!cached || !generation)
		return 0;
	tag = (__u64)destination << GENERATION_BITS | (READ_ONCE(*generation) & GENERATION_MASK);
	word = READ_ONCE(*cached);
	*id = word & GROUP_MASK;
	if (word >> GROUP_BITS != tag) {
		struct prefix prefix = { .length = 64,
					 .switch_number = number,
					 .address = destination };
		__u32 *group = bpf_map_lookup_elem(&routes, &prefix);

		if (!group)
			return 0;
		*id = READ_ONCE(*group);
		WRITE_ONCE(*cached, tag << GROUP_BITS | *id);
	}
	return bpf_map_lookup_elem(&groups, id);
}

/* Return the number of route()'s group, NO_GROUP without a route. */
SHARED __u32 group_towards(__u32 number, __be32 destination)
{
	__u32 id = 0;

	return route(number, destination, &id) ? id : NO_GROUP;
}

/* Return the address of the first host of switch `waypoint` - 1, or of the packet's destination if
 * it is 0. */
static __always_inline __be32 address_towards(const struct choice *choice, __u32 waypoint)
{
	__u32 shift = choice->settings->digits[0].shift & 31;

	return waypoint ? bpf_htonl(SERVERS << 24 | (waypoint - 1) << shift) :
			  choice->passage.destination;
}

static __always_inline __u32 candidates_to(void *context, __u32 waypoint)
{
	struct choice *choice = context;
	__u32 id = group_towards(choice->switch_number, address_towards(choice, waypoint));
	struct group *group = bpf_map_lookup_elem(&groups, &id);

	if (!group)
		return 0;
	choice->passage.waypoint = waypoint;
	choice->group = group;
	choice->n = READ_ONCE(group->n);
	return choice->n;
}

/* Return what sample_towards() does for an address at switch `number`. */
SHARED __u64 sample_group(struct __sk_buff *ctx, __u32 number, __be32 destination, __u32 in_bytes)
{
	__u32 id = group_towards(number, destination);
	struct group *group = bpf_map_lookup_elem(&groups, &id);
	__u32 candidate;
	__u32 n;

	asm volatile("" : "+r"(ctx), "+r"(in_bytes)); /* passed even where no queue is read */
	if (!group)
		return NO_SAMPLE;
	n = READ_ONCE(group->n);
	if (!n)
		return NO_SAMPLE;
	candidate = below(bpf_get_prandom_u32(), n);
	return (__u64)waiting(ctx, port_of(group, candidate), in_bytes) << 32 | candidate;
}

static __always_inline __u64 sample_towards(void *context, __u32 waypoint)
{
	struct choice *choice = context;

	return sample_group(choice->ctx, choice->switch_number, address_towards(choice, waypoint),
			    choice->settings->load);
}

SHARED __u32 distance(__u32 index)
{
	__u8 *hops = bpf_map_lookup_elem(&distances, &index);

	return hops ? *hops : 0;
}

static __always_inline __u32 hops_between(void *context, __u32 a, __u32 b)
{
	const struct choice *choice = context;

	return distance(a * choice->settings->switches + b);
}

/* Return source and destination port, 0 for a packet without. */
static __always_inline __be32 ports_of(const struct choice *choice)
{
	const __be32 *transport_ports = (const void *)(choice->ip + 1);

	if (!has_ports(choice->ip) || (const void *)(transport_ports + 1) > choice->end)
		return 0;
	return *transport_ports;
}

static __always_inline __u32 hash_of(const struct choice *choice, __u32 seed)
{
	const struct iphdr *ip = choice->ip;

	return flow_hash(seed, ip->saddr, ip->daddr, ports_of(choice), ip->protocol);
}

static __always_inline __u32 host_of(const struct choice *choice)
{
	return host_number(bpf_ntohl(choice->ip->daddr), choice->settings->digits);
}

/* Return the slot of a hash in the part of `flowlets` and `recent_flows` that is this switch's. */
static __always_inline __u32 flowlet_slot(const struct choice *choice, __u32 hash)
{
	__u32 bits = choice->settings->flowlet_bits & 31;

	return choice->switch_number << bits | (hash & ((1 << bits) - 1));
}

static __always_inline __u32 next_flowlet(struct choice *choice)
{
	__u32 slot = flowlet_slot(choice, hash_of(choice, choice->settings->seed));
	struct flowlet_entry *entry = bpf_map_lookup_elem(&flowlets, &slot);
	__u64 gap_ns = choice->settings->gap_us * 1000ULL;
	__u64 now = bpf_ktime_get_ns();
	__u32 candidate;

	if (!entry)
		return 0;
	candidate = flowlet(choice, choice->n, READ_ONCE(entry->candidate),
			    now - READ_ONCE(entry->last_ns), gap_ns);
	WRITE_ONCE(entry->candidate, candidate);
	WRITE_ONCE(entry->last_ns, now);
	return candidate;
}

static __always_inline __u32 next_drill(struct choice *choice)
{
	const struct switch_ *settings = choice->settings;
	__u32 remembered = settings->m ? READ_ONCE(choice->memory->winner) - 1 : ~0U;
	__u32 winner = drill(choice, choice->n, remembered, settings->d);

	WRITE_ONCE(choice->memory->winner, winner + 1);
	return winner;
}

/* Return the link group of a packet whose own is `own`, at a switch with states (LBSP, section
 * 5.1). */
static __always_inline __u32 less_crowded(struct choice *choice, __u32 own)
{
	const struct switch_ *settings = choice->settings;
	__u32 zero = port_of(choice->group, 0);
	__u32 one = port_of(choice->group, 1);
	__u32 *pending = bpf_map_lookup_elem(&pending_states, &choice->switch_number);
	__u32 *state = bpf_map_lookup_elem(&states, &choice->switch_number);
	int is_edge = settings->tier == 1;
	__u32 threshold = is_edge ? settings->edge_packets : settings->above_packets;
	__u32 percent = is_edge ? settings->edge_percent : settings->above_percent;
	__u32 before;
	__u32 next;

	if (!pending || !state || zero == one) /* a range with one link group */
		return own;
	before = READ_ONCE(*pending);
	next = next_state(before, waiting(choice->ctx, zero, 0), waiting(choice->ctx, one, 0),
			  threshold, percent);
	if (next != before)
		WRITE_ONCE(*pending, next);
	/* an edge switch decides alone; of those above, several must choose alike */
	return group_in_state(is_edge ? next : READ_ONCE(*state), own, choice->input_port);
}

static __always_inline __u32 next_lbsp(struct choice *choice)
{
	const struct switch_ *settings = choice->settings;
	__u32 number = settings->hash ? hash_of(choice, 0) : host_of(choice);
	__u32 shift = settings->tier > 1 ? settings->group_bits & 31 : 0;
	__u32 own = number >> shift & (settings->groups - 1);
	struct port *first;
	__u32 turn;

	if (settings->states)
		own = less_crowded(choice, own);
	first = switch_port(port_of(choice->group, own));
	turn = first ? __sync_fetch_and_add(&first->turn, 1) : 0;
	return in_turn(own, turn, choice->n, settings->groups);
}

/* Return the bytes of data in a packet.  A pure acknowledgement makes no flow and no load. */
static __always_inline __u32 data_bytes(const struct choice *choice)
{
	const struct iphdr *ip = choice->ip;
	const __u8 *transport = (const void *)(ip + 1);
	__u32 bytes = bpf_ntohs(ip->tot_len);
	__u32 headers = sizeof(*ip);

	if (ip->protocol == IPPROTO_UDP)
		headers += UDP_BYTES;
	else if (ip->protocol == IPPROTO_TCP &&
		 (const void *)(transport + TCP_DATA_OFFSET + 1) <= choice->end)
		headers += (transport[TCP_DATA_OFFSET] >> 4) * 4;
	return bytes > headers ? bytes - headers : 0;
}

/* Return 1 once a flow that is not in the table has sent enough to enter it.
 *
 * The flow that sends most has the slot that several share (Boyer and Moore's majority vote): the
 * data of others is subtracted, and a flow that finds nothing left takes the slot. */
static __always_inline int is_elephant(const struct choice *choice, __u32 bytes)
{
	__u32 hash = hash_of(choice, choice->settings->seed);
	__u32 slot = flowlet_slot(choice, hash);
	struct recent_flow *flow = bpf_map_lookup_elem(&recent_flows, &slot);

	if (!flow)
		return 0;
	if (flow->hash != hash && flow->bytes > bytes) {
		flow->bytes -= bytes;
		return 0;
	}
	flow->bytes = flow->hash == hash ? flow->bytes + bytes : bytes;
	flow->hash = hash;
	if (flow->bytes < choice->settings->elephant_kb * 1000)
		return 0;
	flow->bytes = 0;
	return 1;
}

/* Return 1 for a TCP packet that was sent before one that came already: it waited on the flow's old
 * path, or is a retransmission.  A packet further behind than any queue holds is of another
 * connection. */
static __always_inline int is_late(const struct flow_entry *flow, __u32 sequence)
{
	__u32 behind = flow->sequence - sequence;

	return behind && behind < LATE_BYTES;
}

/* Return the port at which a flow from a host begins if all to its destination go together (DAR):
 * the port of those flows, or else `start`, which is theirs from now on. */
static __attribute__((noinline)) __u32 shared_port(__be32 switch_number, __be32 destination,
						   __u32 start)
{
	struct flow_key key = {
		.switch_number = switch_number,
		.destination = destination,
		.protocol = bpf_htonl(ANY_PROTOCOL),
	};
	struct flow_entry entry = { .last_ns = bpf_ktime_get_ns(), .port = start };
	struct flow_entry *shared;

	bpf_map_update_elem(&flows, &key, &entry, BPF_NOEXIST);
	shared = bpf_map_lookup_elem(&flows, &key);
	return shared ? READ_ONCE(shared->port) : start;
}

/* Update the entry of a flow in the table for a packet with data (DAR). */
static __always_inline void update_flow(struct flow_entry *flow, __u32 bytes, __u32 sequence,
					__u32 input)
{
	WRITE_ONCE(flow->last_ns, bpf_ktime_get_ns());
	flow->bytes += bytes;
	if (!input || is_late(flow, sequence))
		return;
	flow->sequence = sequence;
	if (flow->port != input)
		flow->moved_ns = flow->last_ns;
	flow->port = input;
}

/* Report a packet that joins a queue beyond the threshold, unless its flow rests (DAR, figure 8).
 *
 * The leaf of a flow's host times moves, a spine its own reports.  A full ring takes no report, and
 * the next packet makes another. */
static __attribute__((noinline)) int report_queue(const struct switch_ *settings,
						  struct long_queue *report,
						  struct flow_entry *flow, __u32 input)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 last_ns = input ? flow->queued_ns : READ_ONCE(flow->moved_ns);
	__u32 number = bpf_ntohl(report->flow.switch_number);
	void *ring;

	if (last_ns && now_ns - last_ns < settings->rest_us * 1000ULL)
		return 0;
	ring = bpf_map_lookup_elem(&long_queues, &number);
	report->port = READ_ONCE(flow->port);
	if (!ring || bpf_ringbuf_output(ring, report, sizeof(*report), 0))
		return 0;
	if (input)
		flow->queued_ns = now_ns;
	return 1;
}

/* Note a packet's flow and its port in the table (DAR); return the port that the packet leaves by.
 *
 * out: the port of a flow that is in no table.
 * start: the port at which a flow begins that enters the table now.
 * input: 0 for a packet from a host of this switch; else its input port, which is noted unless the
 *        packet is late. */
static __always_inline __u32 follow_flow(struct choice *choice, __u32 out, __u32 start, __u32 input)
{
	const struct switch_ *settings = choice->settings;
	const struct iphdr *ip = choice->ip;
	const __be32 *words = (const void *)(ip + 1);
	struct long_queue report = { .flow = {
					     .switch_number = bpf_htonl(choice->switch_number),
					     .source = ip->saddr,
					     .destination = ip->daddr,
					     .protocol = bpf_htonl(ip->protocol),
					     .ports = ports_of(choice),
				     } };
	const struct flow_key *key = &report.flow;
	struct flow_entry *flow = bpf_map_lookup_elem(&flows, key);
	__u32 bytes = data_bytes(choice);
	__u32 sequence = 0;

	if (ip->protocol == IPPROTO_TCP && (const void *)(words + 2) <= choice->end)
		sequence = bpf_ntohl(words[1]);
	if (!flow) {
		struct flow_entry entry = { .bytes = bytes, .sequence = sequence };

		if (!bytes || !is_elephant(choice, bytes))
			return out;
		if (!input && settings->key)
			start = shared_port(key->switch_number, key->destination, start);
		entry.last_ns = bpf_ktime_get_ns();
		entry.port = input ? input : start;
		bpf_map_update_elem(&flows, key, &entry, BPF_NOEXIST);
		return input ? out : start;
	}
	if (bytes)
		update_flow(flow, bytes, sequence, input);
	if (!input)
		out = READ_ONCE(flow->port);
	if (settings->detect && full_packets(choice->ctx, out) >= settings->queue)
		report_queue(settings, &report, flow, input);
	return out;
}

/* Return the port of a packet by DAR, for n >= 2: as its flow was placed if a host of this switch
 * sends it, else by hash.
 *
 * Until all switches know of a failure, some packets take a detour by another leaf.  The next
 * candidate takes a packet that its hash would send back to where it came from. */
static __always_inline __u32 dar_port(struct choice *choice)
{
	const struct switch_ *settings = choice->settings;
	__u32 candidate = below(hash_of(choice, settings->seed), choice->n);
	__u32 hashed = port_of(choice->group, candidate);
	__u32 start = hashed;

	if (choice->input_port >= settings->hosts) {
		if (hashed != choice->ctx->ifindex)
			return hashed;
		return port_of(choice->group, wrap(candidate + 1, choice->n));
	}
	if (settings->start == START_BY_SOURCE) {
		__u32 host = host_digit(bpf_ntohl(choice->ip->saddr), settings->digits);

		start = port_of(choice->group, host % choice->n);
	} else if (settings->start == START_BY_DESTINATION) {
		start = port_of(choice->group, d_mod_k(host_of(choice), choice->n));
	}
	return follow_flow(choice, hashed, start, 0);
}

static __always_inline __u32 ttc_candidate(struct choice *choice)
{
	const struct switch_ *settings = choice->settings;
	__u32 preferred = d_mod_k(host_of(choice), choice->n);
	__u32 candidate = ttc(choice, choice->n, preferred, settings->delta, settings->tie);

	choice->moved = candidate != preferred;
	return candidate;
}

/* Choose a packet's waypoint at its source's switch; return its candidate there. */
static __always_inline __u32 choose_detour(struct choice *choice, __u32 destination)
{
	const struct switch_ *settings = choice->settings;
	struct trip trip = {
		.source = choice->switch_number,
		.destination = destination,
		.switches = settings->switches,
	};
	struct detour chosen;

#ifndef BLIND
	if (settings->rule == UGAL)
		chosen = ugal(choice, &trip, settings->d, settings->delta);
	else
#endif
		chosen = valiant(choice, &trip);
	candidates_to(choice, chosen.waypoint);
	return chosen.candidate;
}

/* Choose as choose_detour() does, or as for the last packet of the flowlet. */
static __always_inline __u32 next_detour(struct choice *choice, __u32 destination)
{
	__u32 slot = flowlet_slot(choice, choice->passage.hash);
	struct flowlet_entry *entry = bpf_map_lookup_elem(&flowlets, &slot);
	__u64 gap_ns = choice->settings->gap_us * 1000ULL;
	__u64 now = bpf_ktime_get_ns();
	__u64 idle_ns;
	__u32 last;

	if (!entry)
		return 0;
	last = READ_ONCE(entry->candidate);
	idle_ns = now - READ_ONCE(entry->last_ns);
	if (!gap_ns || !keeps_detour(choice, last, idle_ns, gap_ns)) {
		last = choose_detour(choice, destination);
		last = packed_detour(choice->passage.waypoint, last);
		WRITE_ONCE(entry->candidate, last);
	}
	WRITE_ONCE(entry->last_ns, now);
	return candidate_of(last);
}

static __always_inline int has_detours(const struct switch_ *settings)
{
	return settings->rule == VALIANT || settings->rule == UGAL;
}

/* Return the port of a packet under a rule with detours, 0 without.  One that takes none goes a
 * shortest path. */
SHARED __u32 detour_port(struct __sk_buff *ctx, struct passage *passage)
{
	const struct port *input = switch_port(ctx->ifindex);
	struct choice choice = { .ctx = ctx };
	__u32 destination, waypoint, number, candidate;
	int is_from_host;

	if (!input || !passage)
		return 0;
	number = choice.switch_number = input->switch_number - 1;
	choice.passage = *passage;
	choice.settings = bpf_map_lookup_elem(&switches, &number);
	if (!choice.settings)
		return 0;
	destination = host_number(bpf_ntohl(passage->destination), choice.settings->digits);
	is_from_host = input->number < choice.settings->hosts;
	waypoint = is_from_host || !passage->can_detour ? 0 : passage->waypoint;
	if (waypoint == number + 1 || waypoint > choice.settings->switches ||
	    (waypoint && !candidates_to(&choice, waypoint)))
		waypoint = 0;
	if (!candidates_to(&choice, waypoint))
		return 0;
	if (is_from_host && passage->can_detour && destination != number)
		candidate = next_detour(&choice, destination);
	else
		candidate =
			below(choice.settings->gap_us ? passage->hash : draw(&choice), choice.n);
	passage->waypoint = choice.passage.waypoint;
	return port_of(choice.group, candidate);
}

/* Return 1 for a packet whose identification is free to carry a waypoint: it must not be fragmented,
 * so that no other device may read that field (RFC 6864, section 4). */
static __always_inline int takes_detours(const struct iphdr *ip)
{
	return (ip->frag_off & bpf_htons(DONT_FRAGMENT)) != 0;
}

static __always_inline void write_waypoint(struct iphdr *ip, __u32 waypoint)
{
	__be16 id = bpf_htons(waypoint);

	ip->check = updated_checksum(ip->check, ip->id, id);
	ip->id = id;
}

#ifdef OWN_RULE
struct parameters {
	OWN_PARAMETERS
};
#include OWN_RULE

static __always_inline __u32 own_candidate(struct choice *choice)
{
	const struct switch_ *settings = choice->settings;
	__u32 memory = READ_ONCE(choice->memory->turn);
	struct arrival arrival = {
		.flow = hash_of(choice, settings->seed),
		.host = host_of(choice),
		.memory = memory,
	};
	__u32 chosen = choose(choice, choice->n, &arrival, (const void *)settings->own);

	if (arrival.memory != memory)
		WRITE_ONCE(choice->memory->turn, arrival.memory);
	return chosen % choice->n;
}
#endif

/* Return the candidate for this packet by any rule but DAR and those with detours, for n >= 2. */
static __always_inline __u32 choose_candidate(struct choice *choice)
{
	const struct switch_ *settings = choice->settings;

	/* without default: the compiler asks for a case for each rule */
	switch ((enum rule)settings->rule) {
	case D_MOD_K:
		return d_mod_k(host_of(choice), choice->n);
	case TTC:
		return ttc_candidate(choice);
	case FLOW_HASH:
		return below(hash_of(choice, settings->seed), choice->n);
	case ROUND_ROBIN: /* switches begin at different ports */
		return (settings->seed + __sync_fetch_and_add(&choice->memory->turn, 1)) %
		       choice->n;
	case DRILL:
		return next_drill(choice);
	case SHORTEST:
		return shortest(choice, choice->n);
	case FLOWLET:
		return next_flowlet(choice);
	case LBSP:
		return next_lbsp(choice);
	case OWN:
#ifdef OWN_RULE
		return own_candidate(choice);
#endif
	case KERNEL: /* these choose before */
	case DAR:
	case VALIANT:
	case UGAL:
	case RANDOM:
		break;
	}
	return below(draw(choice), choice->n);
}

static __always_inline __u32 choose_detour_port(struct choice *choice)
{
	__u32 out;

	choice->passage = (struct passage){
		.destination = choice->ip->daddr,
		.hash = hash_of(choice, choice->settings->seed),
		.can_detour = takes_detours(choice->ip),
		.waypoint = bpf_ntohs(choice->ip->id),
	};
	out = detour_port(choice->ctx, &choice->passage);
	choice->moved = choice->passage.can_detour && choice->passage.waypoint &&
			choice->input_port < choice->settings->hosts;
	return out;
}

static __always_inline __u32 choose_port(struct choice *choice)
{
	if (has_detours(choice->settings))
		return choose_detour_port(choice);
	if (choice->n == 1)
		return port_of(choice->group, 0);
	if (choice->settings->rule == DAR)
		return dar_port(choice);
	return port_of(choice->group, choose_candidate(choice));
}

/* Note the flow of a packet from another switch that leaves at port `number` (DAR): where flows
 * arrive, and where they are compared with queues on their path. */
static __always_inline void note_flow(struct choice *choice, __u32 out, __u32 number)
{
	const struct switch_ *settings = choice->settings;

	if (settings->rule != DAR || choice->input_port < settings->hosts)
		return;
	if (settings->hosts ? number < settings->hosts : settings->detect)
		follow_flow(choice, out, 0, choice->ctx->ifindex);
}

/* Return 1 for an IPv4 packet that is to be forwarded. */
static __always_inline int is_forwarded(const struct choice *choice)
{
	const struct __sk_buff *ctx = choice->ctx;
	const struct iphdr *ip = choice->ip;

	if (ctx->protocol != bpf_htons(ETH_P_IP) || (const void *)(ip + 1) > choice->end)
		return 0;
	return ctx->pkt_type == PACKET_HOST && ip->version == 4 && ip->ttl > 1;
}

/* Return 1 for a packet that rules can handle: no fragment, no options. */
static __always_inline int is_plain(const struct iphdr *ip)
{
	return ip->ihl == 5 && !(ip->frag_off & bpf_htons(FRAGMENT));
}

/* Leave a packet to the kernel, and count it if a rule would have forwarded it had it been plain or
 * shorter. */
static __attribute__((noinline)) int bypass(struct __sk_buff *ctx, __be32 destination)
{
	__u32 index = ctx->ifindex & 0xffff;
	struct counters *counters = bpf_map_lookup_elem(&counted, &index);
	struct port *port = switch_port(ctx->ifindex);
	struct switch_ *settings;
	struct group *group;
	__u32 number;
	__u32 id = 0;

	if (!port || !counters)
		return TC_ACT_OK;
	number = port->switch_number - 1;
	settings = bpf_map_lookup_elem(&switches, &number);
	group = route(number, destination, &id);
	if (settings && settings->rule != KERNEL && group && group->n)
		counters->bypassed++;
	return TC_ACT_OK;
}

/* Return 1 for a frame longer than the MTU of its output device, where a user has set a smaller one
 * than the run's links have.  The kernel fragments it or answers; redirected, it would be lost. */
static __always_inline int is_too_long(struct __sk_buff *ctx, __u32 out)
{
	__u32 mtu = 0;

	return ctx->len > LEAST_MTU_BYTES &&
	       bpf_check_mtu(ctx, out, &mtu, 0, 0) == BPF_MTU_CHK_RET_FRAG_NEEDED;
}

/* Choose the queue of `port` for an IPv4 packet without options, and trim the packet if the queue
 * of data is full.  Pointers into the packet are invalid afterwards.
 *
 * Return 1 for a packet that was trimmed, -1 for one that could not be. */
static __always_inline int admit(struct __sk_buff *ctx, const struct iphdr *ip,
				 const struct port *port, __u32 out)
{
	__u32 code_point = ip->tos >> 2, bytes;

	ctx->priority = is_for_headers(code_point) ? HEADERS : 0;
	if (code_point != TRIMMABLE || ip->protocol != IPPROTO_UDP || ctx->len <= TRIM_SIZE)
		return 0;
	bytes = data_waiting(ctx, out);
	if (bytes == NO_QUEUE)
		return -1;
	if (!is_to_trim(port->trim_bytes, bytes, ctx->len, bpf_get_prandom_u32()))
		return 0;
	if (trim(ctx, port->trimmed_as))
		return -1;
	ctx->priority = HEADERS;
	return 1;
}

/* Decrease the TTL and update the checksum (RFC 1141). */
static __always_inline void decrease_ttl(struct iphdr *ip)
{
	__u32 check = ip->check + bpf_htons(0x0100);

	ip->check = check + (check >= 0xffff);
	ip->ttl--;
}

static __always_inline void count(const struct choice *choice, __u32 out, int marked, int trimmed)
{
	__u32 index = out & 0xffff;
	struct counters *counters = bpf_map_lookup_elem(&counted, &index);

	if (!counters)
		return;
	counters->packets++;
	counters->bytes += choice->ctx->len;
	counters->moved += choice->moved;
	counters->marked += marked;
	counters->trimmed += trimmed > 0;
	counters->untrimmed += trimmed < 0;
}

/* Fill in the switch and the candidate ports of a packet; 0 if it is the kernel's. */
static __always_inline int find_candidates(struct choice *choice)
{
	const struct port *port = switch_port(choice->ctx->ifindex);
	__u32 id = 0;

	if (!port)
		return 0;
	choice->input_port = port->number;
	choice->switch_number = port->switch_number - 1;
	choice->settings = bpf_map_lookup_elem(&switches, &choice->switch_number);
	if (!choice->settings)
		return 0;
	if (choice->settings->rule == KERNEL) {
		/* A packet carries its sender's hash, which the kernel would use instead of one
		 * with the switch's own seed.  All switches would choose alike, and half of the
		 * links above the first tier lie idle. */
		bpf_set_hash_invalid(choice->ctx);
		return 0;
	}
	choice->group = route(choice->switch_number, choice->ip->daddr, &id);
	choice->memory = bpf_map_lookup_elem(&memories, &id);
	if (!choice->group || !choice->memory)
		return 0;
	choice->n = READ_ONCE(choice->group->n);
	return choice->n > 0;
}

/* Rewrite the packet for the link at `port` and put it into the queue of its device. */
static __always_inline int send(struct choice *choice, const struct port *port, __u32 out)
{
	struct __sk_buff *ctx = choice->ctx;
	struct iphdr *ip = choice->ip;
	int trimmed = 0;
	int marked = 0;
	__u16 *header;

	if (port->trim_bytes) {
		trimmed = admit(ctx, ip, port, out);
		ip = (void *)(long)ctx->data + sizeof(struct ethhdr);
		if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
			return TC_ACT_SHOT;
	}
	/* in units of two bytes: some machines align packets no better */
	header = (void *)ip - sizeof(struct ethhdr);
	for (int i = 0; i < ETH_ALEN; i++)
		header[i] = port->addresses[i];
	if (has_detours(choice->settings) && takes_detours(ip))
		write_waypoint(ip, choice->passage.waypoint);
	decrease_ttl(ip);
	if (choice->settings->ecn && waiting(ctx, out, 0) >= choice->settings->ecn)
		marked = bpf_skb_ecn_set_ce(ctx) == 1;
	count(choice, out, marked, trimmed);
	return transmit(ctx, out);
}

SEC("tc")
int forward(struct __sk_buff *ctx)
{
	struct choice choice = {
		.ctx = ctx,
		.ip = (void *)(long)ctx->data + sizeof(struct ethhdr),
		.end = (void *)(long)ctx->data_end,
	};
	const struct port *port;
	__u32 out;

	if (!is_forwarded(&choice))
		return TC_ACT_OK;
	if (!is_plain(choice.ip))
		return bypass(ctx, choice.ip->daddr);
	if (!find_candidates(&choice))
		return TC_ACT_OK;
	out = choose_port(&choice);
	port = switch_port(out);
	if (!port)
		return TC_ACT_OK;
	note_flow(&choice, out, port->number);
	if (is_too_long(ctx, out))
		return bypass(ctx, choice.ip->daddr);
	return send(&choice, port, out);
}

char _license[] SEC("license") = "Dual MIT/GPL";
