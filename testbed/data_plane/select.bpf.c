/* The data plane of every switch of a fabric: where does this packet go on?
 *
 * At the ingress hook of each switch port.  The packet's destination leads, by longest prefix, to a group of candidate
 * ports; the rule of the switch takes one of them (select.h); MAC addresses and TTL are rewritten and the packet is put
 * into the queue of that port.  Whatever is not a whole IPv4 packet without options, to be forwarded by a known route,
 * goes to the kernel, which has routes of its own: ARP, ICMP errors, packets to the switch, traceroute.
 * Fragments, packets with options and packets that are longer than their port's MTU take the kernel's route instead of
 * the rule's, which is counted.  A port that trims lets packets into its queues, or their headers (trim.h).
 *
 * One program and one set of maps (select_maps.h) serve all switches of a run.  Interface indexes are unique over all
 * runs and tell by their lower 16 bits the port within a run.
 *
 * To add a rule: a number in `enum rule` (select.h) or any other that is free, its parameters in struct switch_, and a
 * case in choose(); then a scheme in daemons/load_balancing/scheme.py.  Parameters are found by their names.
 */
#ifdef BLIND
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#else
#include "queues.h"
#endif
#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>

#include "select.h"
#include "trim.h"

/* A switch: who it is, what it reads of a destination, and the parameters of its rule, named and counted as in the spec
 * of a scheme (daemons/load_balancing/scheme.py); data_plane.py finds each field by its name. */
struct switch_ {
	__u32 rule;
	__u32 seed;
	__u32 tier;   /* from 1, at the hosts */
	__u32 reader; /* of queue lengths, a note of data_plane.py to whoever opens the maps */
	__u32 flowlet_bits; /* it has so many of the bits of an index of flowlets to itself */
	struct digit digits[DIGITS];
	__u32 ecn;	/* packets in the queue from which on packets are marked; 0: never */
	__u32 load;	/* 0: loads are packets, 1: bytes */
	__u32 d, m;	/* DRILL: samples, and whether the last winner is remembered */
	__u32 delta;	/* TTC: threshold */
	__u32 tie;	/* and whether a packet at exactly that is moved */
	__u32 gap_us;	/* LetFlow */
	__u32 groups;	/* LBSP: link groups, a power of two */
	__u32 group_bits; /* and its logarithm */
	__u32 hash;	/* whether the flow's hash chooses among them */
	__u32 states;	/* whether crowded ones give packets away: edge switches, and those above, from when on */
	__u32 edge_packets, edge_percent;
	__u32 above_packets, above_percent;
	__u32 hosts;	   /* DAR: its first ports lead to so many */
	__u32 elephant_kb; /* data from which on a flow is in the table */
	__u32 start;	   /* 0: it begins at port (number of the source modulo ports), else: where its hash has it */
	__u32 key;	   /* 1: but where others to the same destination go already */
	__u32 detect;	   /* 1: packets are compared with the queues that they find, from `queue` packets on */
	__u32 queue;
};

#include "select_maps.h"

#define UDP_BYTES 8
#define TCP_OFFSET 12 /* of the byte that tells a header's length */
#define LATE_BYTES (1 << 24)
#define FRAGMENT 0x3fff		    /* offset, and whether there are more */
#define LEAST_MTU_BYTES (ETH_HLEN + 68) /* of a frame that every device takes (RFC 791) */

#ifdef BLIND /* kernels without type information do not tell where to find a queue's length */
static __always_inline __u32 waiting(struct __sk_buff *ctx, __u32 ifindex, __u32 in_bytes)
{
	return 0;
}

static __always_inline __u32 data_waiting(struct __sk_buff *ctx, __u32 ifindex)
{
	return 0;
}
#else
/* What waits at a port, in packets or in bytes.
 *
 * Not static, so that the verifier checks it once and not at every call: loading takes 0.05 s instead of 1. */
__attribute__((noinline)) __u32 waiting(struct __sk_buff *ctx, __u32 ifindex, __u32 in_bytes)
{
	__u32 index = ifindex & 0xffff, length;
	struct port *port = bpf_map_lookup_elem(&ports, &index);
	int found;

	if (!port)
		return 0;
	length = queue_of(port->device, ifindex, in_bytes, &found);
	if (found)
		return length;
	port->device = find_device(ctx, ifindex);
	return queue_of(port->device, ifindex, in_bytes, &found);
}

/* Bytes of data that wait at a port that trims: those of its headers are not among them.  If its queue is not found,
 * which is as if the port had none, nothing is trimmed. */
__attribute__((noinline)) __u32 data_waiting(struct __sk_buff *ctx, __u32 ifindex)
{
	__u32 index = ifindex & 0xffff, bytes;
	struct port *port = bpf_map_lookup_elem(&ports, &index);
	int found;

	if (!port)
		return 0;
	bytes = bytes_in(port->data_queue, DATA_QUEUE, ifindex, &found);
	if (found)
		return bytes;
	port->data_queue = find_queue(find_device(ctx, ifindex), DATA_QUEUE);
	bytes = bytes_in(port->data_queue, DATA_QUEUE, ifindex, &found);
	return found ? bytes : 0;
}
#endif

struct choice {
	struct __sk_buff *ctx;
	const struct group *group;
	__u32 in_bytes;
	__u32 switch_number;
	__u32 input_port;
};

static __always_inline __u32 port_of(const struct group *group, __u32 candidate)
{
	/* clang knows that a candidate is below CANDIDATES and would drop the mask; the verifier does not know */
	asm volatile("" : "+r"(candidate));
	return group->ports[candidate & (CANDIDATES - 1)];
}

static __always_inline __u32 load_of(void *of, __u32 candidate)
{
	struct choice *choice = of;

	return waiting(choice->ctx, port_of(choice->group, candidate), choice->in_bytes);
}

static __always_inline __u32 draw(void *of)
{
	return bpf_get_prandom_u32();
}

/* The group for `destination` at a switch, its number in *id; 0 if there is no route.
 *
 * The trie takes 110 ns, so its answers are kept: one word with destination, generation and group, written at once. */
static __always_inline struct group *route(__u32 number, __be32 destination, __u32 *id)
{
	__u32 slot = number << CACHE_BITS | destination * 0x9e3779b1u >> (32 - CACHE_BITS);
	__u32 *generation = bpf_map_lookup_elem(&generations, &number);
	__u64 *kept = bpf_map_lookup_elem(&cache, &slot);
	__u64 wanted, word;

	if (!kept || !generation)
		return 0;
	wanted = (__u64)destination << GENERATION_BITS | (*(volatile __u32 *)generation & ((1 << GENERATION_BITS) - 1));
	word = *(volatile __u64 *)kept;
	*id = word & ((1 << GROUP_BITS) - 1);
	if (word >> GROUP_BITS != wanted) {
		struct prefix prefix = { .length = 64, .switch_number = number, .address = destination };
		__u32 *found = bpf_map_lookup_elem(&routes, &prefix);

		if (!found)
			return 0;
		*id = *found;
		*(volatile __u64 *)kept = wanted << GROUP_BITS | *id;
	}
	return bpf_map_lookup_elem(&groups, id);
}

static __always_inline __u32 hash_of(__u32 seed, const struct iphdr *ip, const void *end)
{
	const __u32 *ports = (const void *)(ip + 1);
	__u32 both = 0;

	if ((ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP) && (const void *)(ports + 1) <= end)
		both = *ports;
	return flow_hash(seed, ip->saddr, ip->daddr, both, ip->protocol);
}

static __always_inline __u32 next_flowlet(struct choice *choice, const struct switch_ *s, __u32 n, __u32 hash)
{
	__u32 slot = choice->switch_number << (s->flowlet_bits & 31) | (hash & ((1 << (s->flowlet_bits & 31)) - 1));
	struct flowlet_entry *entry = bpf_map_lookup_elem(&flowlets, &slot);
	__u64 now = bpf_ktime_get_ns();

	if (!entry)
		return 0;
	entry->candidate = flowlet(choice, n, entry->candidate, now - entry->last_ns, s->gap_us * 1000ULL);
	entry->last_ns = now;
	return entry->candidate;
}

static __always_inline __u32 next_drill(struct choice *choice, const struct switch_ *s, __u32 n, struct memory *memory)
{
	__u32 winner = drill(choice, n, s->m ? memory->winner - 1 : ~0U, s->d);

	memory->winner = winner + 1;
	return winner;
}

/* The link group for a packet whose own is `own`, at a switch with states (LBSP, section 5.1). */
static __always_inline __u32 less_crowded(struct choice *choice, const struct switch_ *s, __u32 own)
{
	__u32 zero = port_of(choice->group, 0), one = port_of(choice->group, 1), next;
	__u32 *wanted = bpf_map_lookup_elem(&wants, &choice->switch_number);
	__u32 *state = bpf_map_lookup_elem(&states, &choice->switch_number);
	int edge = s->tier == 1;

	if (!wanted || !state || zero == one) /* of a range that has only one */
		return own;
	next = next_state(*wanted, waiting(choice->ctx, zero, 0), waiting(choice->ctx, one, 0),
			  edge ? s->edge_packets : s->above_packets, edge ? s->edge_percent : s->above_percent);
	if (next != *wanted)
		*wanted = next;
	/* an edge switch decides alone; of those above, several must choose alike */
	return group_in_state(edge ? next : *state, own, choice->input_port);
}

static __always_inline __u32 next_lbsp(struct choice *choice, const struct switch_ *s, __u32 n, const struct iphdr *ip,
				       const void *end)
{
	__u32 number = s->hash ? hash_of(0, ip, end) : host_number(bpf_ntohl(ip->daddr), s->digits);
	__u32 own = (s->tier > 1 ? number >> (s->group_bits & 31) : number) & (s->groups - 1), index;
	struct port *first;

	if (s->states)
		own = less_crowded(choice, s, own);
	index = port_of(choice->group, own) & 0xffff;
	first = bpf_map_lookup_elem(&ports, &index);
	return in_turn(own, first ? __sync_fetch_and_add(&first->turn, 1) : 0, n, s->groups);
}

/* Bytes of data in a packet: what only acknowledges makes no flow, and no load. */
static __always_inline __u32 data_bytes(const struct iphdr *ip, const void *end)
{
	const __u8 *header = (const void *)(ip + 1);
	__u32 bytes = bpf_ntohs(ip->tot_len), headers = sizeof(*ip);

	if (ip->protocol == IPPROTO_UDP)
		headers += UDP_BYTES;
	else if (ip->protocol == IPPROTO_TCP && (const void *)(header + TCP_OFFSET + 1) <= end)
		headers += (header[TCP_OFFSET] >> 4) * 4;
	return bytes > headers ? bytes - headers : 0;
}

/* Whether a flow that is not in the table has sent enough to enter it.
 *
 * Of the flows that share a slot the one that sends most has it: the others' data are taken from its own, and who finds
 * nothing left takes the slot (Boyer and Moore's majority vote). */
static __always_inline int has_grown(const struct choice *choice, const struct switch_ *s, __u32 hash, __u32 bytes)
{
	__u32 slot = choice->switch_number << (s->flowlet_bits & 31) | (hash & ((1 << (s->flowlet_bits & 31)) - 1));
	struct young_flow *flow = bpf_map_lookup_elem(&young, &slot);

	if (!flow)
		return 0;
	if (flow->hash != hash && flow->bytes > bytes) {
		flow->bytes -= bytes;
		return 0;
	}
	flow->bytes = flow->hash == hash ? flow->bytes + bytes : bytes;
	flow->hash = hash;
	if (flow->bytes < s->elephant_kb * 1000)
		return 0;
	flow->bytes = 0;
	return 1;
}

/* Whether a packet of TCP was sent before others that are here already: one that waited on the way that its flow has left,
 * or that is sent again.  What is further behind than any queue holds is another connection. */
static __always_inline int is_late(const struct flow_entry *flow, __u32 sequence)
{
	__u32 behind = flow->sequence - sequence;

	return behind && behind < LATE_BYTES;
}

/* Where a flow begins that a host of this switch sends, if all to its destination go together (DAR): by the port of
 * those that are here, or else by `start`, and so do others after it. */
static __attribute__((noinline)) __u32 shared_port(__be32 switch_number, __be32 destination, __u32 start)
{
	struct flow_key key = {
		.switch_number = switch_number,
		.destination = destination,
		.protocol = bpf_htonl(ANY_PROTOCOL),
	};
	struct flow_entry begun = { .last_ns = bpf_ktime_get_ns(), .port = start }, *shared;

	bpf_map_update_elem(&flows, &key, &begun, BPF_NOEXIST);
	shared = bpf_map_lookup_elem(&flows, &key);
	return shared ? shared->port : start;
}

/* Note that a packet's flow is here, and by which port (DAR); returns the port that it is to leave by.
 *
 * out: where it would go that is in no table.  start: where it begins that enters the table now.
 * in: 0 if a host of this switch sends it; else the port that it came by is noted, if it is not late, and it goes out. */
static __always_inline __u32 follow_flow(struct choice *choice, const struct switch_ *s, const struct iphdr *ip,
					 const void *end, __u32 out, __u32 start, __u32 in)
{
	const __u32 *ports = (const void *)(ip + 1);
	struct flow_key key = {
		.switch_number = bpf_htonl(choice->switch_number),
		.source = ip->saddr,
		.destination = ip->daddr,
		.protocol = bpf_htonl(ip->protocol),
	};
	struct flow_entry begun = {}, *flow;
	__u32 bytes = data_bytes(ip, end), sequence = 0;

	if (ip->protocol == IPPROTO_TCP && (const void *)(ports + 2) <= end)
		sequence = bpf_ntohl(ports[1]);
	if ((ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP) && (const void *)(ports + 1) <= end)
		key.ports = *ports;
	flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow) {
		if (!bytes || !has_grown(choice, s, hash_of(s->seed, ip, end), bytes))
			return out;
		if (!in && s->key)
			start = shared_port(key.switch_number, key.destination, start);
		begun.last_ns = bpf_ktime_get_ns();
		begun.bytes = bytes;
		begun.port = in ? in : start;
		begun.sequence = sequence;
		bpf_map_update_elem(&flows, &key, &begun, BPF_NOEXIST);
		return in ? out : start;
	}
	if (bytes) {
		flow->last_ns = bpf_ktime_get_ns();
		flow->bytes += bytes;
		if (in && !is_late(flow, sequence)) {
			flow->sequence = sequence;
			if (flow->port != in)
				flow->moved_ns = flow->last_ns;
			flow->port = in;
		}
	}
	if (!in)
		out = flow->port;
	if (s->detect && waiting(choice->ctx, out, 0) >= s->queue)
		flow->queued_ns = flow->last_ns;
	return out;
}

/* The port of a packet that a host of this switch sends, by hash or as its flow was placed, for n >= 2 (DAR). */
static __always_inline __u32 placed_port(struct choice *choice, const struct switch_ *s, __u32 n,
					 const struct iphdr *ip, const void *end)
{
	__u32 hashed = below(hash_of(s->seed, ip, end), n);
	__u32 first = host_digit(bpf_ntohl(ip->saddr), s->digits) % n;

	return follow_flow(choice, s, ip, end, port_of(choice->group, hashed),
			   port_of(choice->group, s->start ? hashed : first), 0);
}

/* Candidate `hashed`, or the next one where the packet would go back to where it came from: as long as not all switches
 * know of a failure, some send packets by way of another leaf (DAR). */
static __always_inline __u32 onward(struct choice *choice, __u32 n, __u32 hashed)
{
	return port_of(choice->group, hashed) == choice->ctx->ifindex ? wrap(hashed + 1, n) : hashed;
}

/* Whether flows that come by one of the switch's links to others and leave at port `number` are noted: where they
 * arrive, and where they are compared with queues on their way (DAR). */
static __always_inline int notes(const struct switch_ *s, __u32 number)
{
	return s->hosts ? number < s->hosts : s->detect;
}

/* The candidate of `group`, which has n >= 2, for this packet. */
static __always_inline __u32 choose(struct choice *choice, const struct switch_ *s, __u32 n, struct memory *memory,
				    const struct iphdr *ip, const void *end)
{
	switch (s->rule) {
	case D_MOD_K:
	case TTC:
		return d_mod_k(host_number(bpf_ntohl(ip->daddr), s->digits), n);
	case FLOW_HASH:
		return below(hash_of(s->seed, ip, end), n);
	case ROUND_ROBIN:
		return (s->seed + __sync_fetch_and_add(&memory->turn, 1)) % n; /* switches begin at different ports */
	case DRILL:
		return next_drill(choice, s, n, memory);
	case SHORTEST:
		return shortest(choice, n);
	case FLOWLET:
		return next_flowlet(choice, s, n, hash_of(s->seed, ip, end));
	case LBSP:
		return next_lbsp(choice, s, n, ip, end);
	case DAR:
		return onward(choice, n, below(hash_of(s->seed, ip, end), n));
	default:
		return below(draw(choice), n);
	}
}

/* Whether the packet is for others, and may be sent on. */
static __always_inline int goes_on(const struct __sk_buff *ctx, const struct iphdr *ip)
{
	return ctx->pkt_type == PACKET_HOST && ip->version == 4 && ip->ttl > 1;
}

/* Whether it is whole and plain, as the rules need it; everything else is the kernel's. */
static __always_inline int is_plain(const struct iphdr *ip)
{
	return ip->ihl == 5 && !(ip->frag_off & bpf_htons(FRAGMENT));
}

/* Leave a packet to the kernel that the rule of the switch would have sent on had it been whole, plain or shorter. */
static __attribute__((noinline)) int bypass(struct __sk_buff *ctx, __be32 destination)
{
	__u32 index = ctx->ifindex & 0xffff, number, id;
	struct counters *counters = bpf_map_lookup_elem(&counted, &index);
	struct port *port = bpf_map_lookup_elem(&ports, &index);
	struct switch_ *s;
	struct group *group;

	if (!port || !port->switch_number || !counters)
		return TC_ACT_OK;
	number = port->switch_number - 1;
	s = bpf_map_lookup_elem(&switches, &number);
	group = route(number, destination, &id);
	if (s && s->rule != KERNEL && group && group->n)
		counters->bypassed++;
	return TC_ACT_OK;
}

/* Whether a frame is longer than the device that it would leave by takes, where somebody has set a smaller MTU than the
 * run's links have.  The kernel fragments it or answers; redirected, it would vanish behind the device. */
static __always_inline int is_too_long(struct __sk_buff *ctx, __u32 out)
{
	__u32 mtu = 0;

	return ctx->len > LEAST_MTU_BYTES && bpf_check_mtu(ctx, out, &mtu, 0, 0) == BPF_MTU_CHK_RET_FRAG_NEEDED;
}

/* Let a packet into the queues of `port`, an IPv4 packet without options: in which of them it will wait, and whether it
 * is trimmed first; 1 if it was.  Pointers into the packet are void afterwards. */
static __always_inline int admit(struct __sk_buff *ctx, const struct iphdr *ip, const struct port *port, __u32 out)
{
	__u32 code_point = ip->tos >> 2;

	ctx->priority = is_for_headers(code_point) ? HEADERS : 0;
	if (code_point != TRIMMABLE || ip->protocol != IPPROTO_UDP || ctx->len <= TRIM_SIZE)
		return 0;
	if (!is_to_trim(port->trim_bytes, data_waiting(ctx, out), ctx->len, bpf_get_prandom_u32()))
		return 0;
	if (trim(ctx, port->trimmed_as))
		return 0;
	ctx->priority = HEADERS;
	return 1;
}

/* With the checksum, as RFC 1141 has it. */
static __always_inline void decrease_ttl(struct iphdr *ip)
{
	__u32 check = ip->check + bpf_htons(0x0100);

	ip->check = check + (check >= 0xffff);
	ip->ttl--;
}

static __always_inline void count(struct __sk_buff *ctx, __u32 out, int moved, int marked, int trimmed)
{
	__u32 index = out & 0xffff;
	struct counters *counters = bpf_map_lookup_elem(&counted, &index);

	if (!counters)
		return;
	counters->packets++;
	counters->bytes += ctx->len;
	counters->moved += moved;
	counters->marked += marked;
	counters->trimmed += trimmed;
}

SEC("tc")
int forward(struct __sk_buff *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u32 index = ctx->ifindex & 0xffff, number, id, n, out, candidate = 0;
	__u16 *header = data;
	struct choice choice = { .ctx = ctx };
	struct memory *memory;
	struct switch_ *s;
	struct group *group;
	struct port *port;
	int moved = 0, marked = 0, trimmed = 0;

	if (ctx->protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end || !goes_on(ctx, ip))
		return TC_ACT_OK;
	if (!is_plain(ip))
		return bypass(ctx, ip->daddr);
	port = bpf_map_lookup_elem(&ports, &index);
	if (!port || !port->switch_number)
		return TC_ACT_OK;
	number = port->switch_number - 1;
	s = bpf_map_lookup_elem(&switches, &number);
	if (!s)
		return TC_ACT_OK;
	if (s->rule == KERNEL) {
		/* A packet brings its sender's hash along, and the kernel takes that before it would work out one with the
		 * switch's own seed: all switches would choose alike, and half of the links above the first tier lie idle. */
		bpf_set_hash_invalid(ctx);
		return TC_ACT_OK;
	}
	group = route(number, ip->daddr, &id);
	memory = bpf_map_lookup_elem(&memories, &id);
	if (!group || !memory || !group->n)
		return TC_ACT_OK;
	n = group->n;
	choice.group = group;
	choice.in_bytes = s->load;
	choice.switch_number = number;
	choice.input_port = port->number;
	if (n > 1) {
		candidate = choose(&choice, s, n, memory, ip, end);
		if (s->rule == TTC) {
			__u32 preferred = candidate;

			candidate = ttc(&choice, n, preferred, s->delta, s->tie);
			moved = candidate != preferred;
		}
	}
	out = port_of(group, candidate);
	if (s->rule == DAR && n > 1 && choice.input_port < s->hosts)
		out = placed_port(&choice, s, n, ip, end);
	index = out & 0xffff;
	port = bpf_map_lookup_elem(&ports, &index);
	if (!port || !port->switch_number) /* there is no port 0 */
		return TC_ACT_OK;
	if (s->rule == DAR && choice.input_port >= s->hosts && notes(s, port->number))
		follow_flow(&choice, s, ip, end, out, 0, ctx->ifindex);
	if (is_too_long(ctx, out))
		return bypass(ctx, ip->daddr);
	if (port->trim_bytes) {
		trimmed = admit(ctx, ip, port, out);
		header = (void *)(long)ctx->data;
		ip = (void *)(long)ctx->data + sizeof(struct ethhdr);
		if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
			return TC_ACT_SHOT;
	}
	for (int i = 0; i < 6; i++)
		header[i] = port->addresses[i]; /* packets lie on even addresses, and no better on some machines */
	decrease_ttl(ip);
	if (s->ecn && waiting(ctx, out, 0) >= s->ecn)
		marked = bpf_skb_ecn_set_ce(ctx) == 1;
	count(ctx, out, moved, marked, trimmed);
	if (!ctx->sk)
		return bpf_redirect(out, 0);
	/* A packet keeps its sender's socket across namespaces, and the sender's TCP would hold back for what waits in our
	 * queue as if it were its own.  Routing by the kernel lets go of the socket; so does a clone. */
	bpf_clone_redirect(ctx, out, 0);
	return TC_ACT_STOLEN;
}

char _license[] SEC("license") = "GPL";
