/* The data plane of every switch of a fabric: where does this packet go on?
 *
 * At the ingress hook of each switch port.  The packet's destination leads, by longest prefix, to a group of candidate
 * ports; the rule of the switch takes one of them (select.h); MAC addresses and TTL are rewritten and the packet is put
 * into the queue of that port.  Whatever is not a whole IPv4 packet without options, to be forwarded by a known route,
 * goes to the kernel, which has routes of its own: ARP, ICMP errors, packets to the switch, traceroute.
 *
 * One program and one set of maps serve all switches of a run.  dataplane.py writes ports and switches; routes, groups
 * and generations are written by whoever routes, mostly a daemon for each switch (tables.py).  Interface indexes are
 * unique over all runs and tell by their lower 16 bits the port within a run.
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

#define CANDIDATES 64 /* in a group, a power of two */
#define CACHE_BITS 10 /* of a destination, for each switch */
#define GROUP_BITS 20
#define GENERATION_BITS 12
#define FLOWLETS (1 << 16)
#define FRAGMENT 0x3fff /* offset, and whether there are more */

struct port {
	__u32 switch_number; /* of the switch it belongs to, + 1; 0: nobody's */
	__u16 addresses[6];  /* the first 12 bytes of a frame sent here: the peer's address, our own */
	__u64 device;	     /* where its device was found; the program remembers it here */
	__u32 number;	     /* within its switch */
	__u32 turn;	     /* of the link group whose first port this is (LBSP) */
};

struct switch_ {
	__u32 rule;
	__u32 seed;
	__u32 d, m;
	__u32 delta, ties_redirect;
	__u32 in_bytes;
	__u32 ecn_packets;
	__u64 gap_ns;
	__u32 reader; /* of queue lengths, a note of dataplane.py to whoever opens the maps */
	struct digit digits[DIGITS];
	__u32 groups, shift; /* LBSP: link groups, and which bits of a destination's number choose one */
	__u32 hashed;
	__u32 crowded_packets, crowded_percent; /* 0: there are no states */
	__u32 alone; /* takes the state that its queues call for, without asking others */
};

struct prefix {
	__u32 length; /* 32 for the switch, and that of the address */
	__u32 switch_number;
	__be32 address;
};

/* All CANDIDATES places are filled, the n first ones again and again, so that a packet that meets a group while it is
 * being written finds a port of the old or of the new one. */
struct group {
	__u32 n;
	__u32 ports[CANDIDATES]; /* interface indexes; a port that is named twice gets twice as much */
};

struct memory {
	__u32 turn;
	__u32 winner; /* + 1 */
};

struct flowlet_entry {
	__u64 last_ns;
	__u32 candidate;
	__u32 unused;
};

struct counters {
	__u64 packets;
	__u64 bytes;
	__u64 moved; /* by TTC, away from their default */
	__u64 marked;
};

#define MAP(name, kind, entries, key_type, value_type)      \
	struct {                                            \
		__uint(type, BPF_MAP_TYPE_##kind);          \
		__uint(max_entries, entries);               \
		__type(key, key_type);                      \
		__type(value, value_type);                  \
	} name SEC(".maps")

/* dataplane.py sets the number of entries of all but the last. */
MAP(ports, ARRAY, 1, __u32, struct port);
MAP(switches, ARRAY, 1, __u32, struct switch_);
MAP(generations, ARRAY, 1, __u32, __u32); /* of a switch's routes, below 4096: what the cache holds of another is void */
MAP(wants, ARRAY, 1, __u32, __u32);  /* LBSP: the state that a switch's queues call for; the program writes it */
MAP(states, ARRAY, 1, __u32, __u32); /* and the one that it is in; its daemon does */
MAP(groups, ARRAY, 1, __u32, struct group);
MAP(memories, ARRAY, 1, __u32, struct memory);
MAP(cache, ARRAY, 1, __u32, __u64);
MAP(counted, PERCPU_ARRAY, 1, __u32, struct counters);
MAP(flowlets, ARRAY, FLOWLETS, __u32, struct flowlet_entry);
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u32);
} routes SEC(".maps");

#ifdef BLIND /* kernels without type information do not tell where to find a queue's length */
static __always_inline __u32 waiting(struct __sk_buff *ctx, __u32 ifindex, __u32 in_bytes)
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
	__u32 slot = hash & (FLOWLETS - 1);
	struct flowlet_entry *entry = bpf_map_lookup_elem(&flowlets, &slot);
	__u64 now = bpf_ktime_get_ns();

	if (!entry)
		return 0;
	entry->candidate = flowlet(choice, n, entry->candidate, now - entry->last_ns, s->gap_ns);
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

	if (!wanted || !state || zero == one) /* of a range that has only one */
		return own;
	next = next_state(*wanted, waiting(choice->ctx, zero, 0), waiting(choice->ctx, one, 0), s->crowded_packets,
			  s->crowded_percent);
	if (next != *wanted)
		*wanted = next;
	return group_in_state(s->alone ? next : *state, own, choice->input_port);
}

static __always_inline __u32 next_lbsp(struct choice *choice, const struct switch_ *s, __u32 n, const struct iphdr *ip,
				       const void *end)
{
	__u32 number = s->hashed ? hash_of(0, ip, end) : host_number(bpf_ntohl(ip->daddr), s->digits);
	__u32 own = number >> (s->shift & 31) & (s->groups - 1), index;
	struct port *first;

	if (s->crowded_percent)
		own = less_crowded(choice, s, own);
	index = port_of(choice->group, own) & 0xffff;
	first = bpf_map_lookup_elem(&ports, &index);
	return in_turn(own, first ? __sync_fetch_and_add(&first->turn, 1) : 0, n, s->groups);
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
	default:
		return below(draw(choice), n);
	}
}

/* Whether the packet is one that we forward; everything else is the kernel's. */
static __always_inline int is_ours(const struct __sk_buff *ctx, const struct iphdr *ip)
{
	return ctx->pkt_type == PACKET_HOST && ip->version == 4 && ip->ihl == 5 && ip->ttl > 1 &&
	       !(ip->frag_off & bpf_htons(FRAGMENT));
}

/* With the checksum, as RFC 1141 has it. */
static __always_inline void decrease_ttl(struct iphdr *ip)
{
	__u32 check = ip->check + bpf_htons(0x0100);

	ip->check = check + (check >= 0xffff);
	ip->ttl--;
}

static __always_inline void count(struct __sk_buff *ctx, __u32 out, int moved, int marked)
{
	__u32 index = out & 0xffff;
	struct counters *counters = bpf_map_lookup_elem(&counted, &index);

	if (!counters)
		return;
	counters->packets++;
	counters->bytes += ctx->len;
	counters->moved += moved;
	counters->marked += marked;
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
	int moved = 0, marked = 0;

	if (ctx->protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end || !is_ours(ctx, ip))
		return TC_ACT_OK;
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
	choice.in_bytes = s->in_bytes;
	choice.switch_number = number;
	choice.input_port = port->number;
	if (n > 1) {
		candidate = choose(&choice, s, n, memory, ip, end);
		if (s->rule == TTC) {
			__u32 preferred = candidate;

			candidate = ttc(&choice, n, preferred, s->delta, s->ties_redirect);
			moved = candidate != preferred;
		}
	}
	out = port_of(group, candidate);
	index = out & 0xffff;
	port = bpf_map_lookup_elem(&ports, &index);
	if (!port)
		return TC_ACT_OK;
	for (int i = 0; i < 6; i++)
		header[i] = port->addresses[i]; /* packets lie on even addresses, and no better on some machines */
	decrease_ttl(ip);
	if (s->ecn_packets && waiting(ctx, out, 0) >= s->ecn_packets)
		marked = bpf_skb_ecn_set_ce(ctx) == 1;
	count(ctx, out, moved, marked);
	if (!ctx->sk)
		return bpf_redirect(out, 0);
	/* A packet keeps its sender's socket across namespaces, and the sender's TCP would hold back for what waits in our
	 * queue as if it were its own.  Routing by the kernel lets go of the socket; so does a clone. */
	bpf_clone_redirect(ctx, out, 0);
	return TC_ACT_STOLEN;
}

char _license[] SEC("license") = "GPL";
