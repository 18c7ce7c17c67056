/* Layers at hosts: which layer a packet takes, the first octet of its destination, and the server's address again.
 *
 * At the egress hook of each host's port, what is for 10.x.y.z leaves for (64 + layer).x.y.z; at the ingress hook it
 * becomes 10.x.y.z again, before anything else of the host sees it, also where an ICMP error quotes it.  Applications,
 * ping, traceroute and the host's own routes know plain addresses alone.  What an application sends to an address with a
 * layer takes that one.
 *
 * When a flow takes another layer is layer_choice.h's to say.  A flow is addresses, protocol and, of TCP and UDP, ports;
 * fragments of a pair of hosts are one flow, with whatever else has no ports.  layer_program.py writes the settings.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "layer_choice.h"

#define SERVERS 10	      /* the first octet of a server's address */
#define FIRST_LAYER 64	      /* and that in layer 0 */
#define IS_FRAGMENT 0x3fff    /* offset, and whether there are more */
#define LATER_FRAGMENT 0x1fff /* which has no ports */
#define UNREACHABLE 3	      /* types of ICMP messages */
#define TIME_EXCEEDED 11
#define PAIR_BITS 12	      /* of pairs of hosts that are told apart, by hash */

struct key {
	__be32 source, destination; /* the servers' own addresses */
	__be32 ports;
	__u32 protocol;
};

struct icmp {
	__u8 type, code;
	__be16 check;
	__be32 rest;
};

enum { PROTOCOL_UNREACHABLE = 2, PORT_UNREACHABLE = 3, TOO_LONG = 4 }; /* codes of UNREACHABLE */

struct counters {
	__u64 packets[LAYERS]; /* that left, by layer */
	__u64 flows;
	__u64 gaps, cuts, echoes, errors; /* flows that drew another layer, by reason */
};

#define MAP(name, kind, entries, key_type, value_type) \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_##kind);     \
		__uint(max_entries, entries);          \
		__type(key, key_type);                 \
		__type(value, value_type);             \
	} name SEC(".maps")

MAP(chosen, ARRAY, 1, __u32, struct settings);
MAP(flows, LRU_HASH, 1, struct key, struct flow); /* layer_program.py sets the number of entries */
MAP(turns, ARRAY, 1 << PAIR_BITS, __u32, __u32);
MAP(marked, ARRAY, LAYERS << PAIR_BITS, __u32, __u32);
MAP(counted, PERCPU_ARRAY, 1, __u32, struct counters);

static __always_inline __u32 draw(void *of)
{
	return bpf_get_prandom_u32();
}

static __always_inline __u32 pair_of(const struct key *key)
{
	return ((__u32)key->source ^ (__u32)key->destination * 0x85ebca6bu) * 0x9e3779b1u >> (32 - PAIR_BITS);
}

static __always_inline __u32 *marks_of(void *of, __u32 layer)
{
	__u32 slot = pair_of(of) * LAYERS | (layer & (LAYERS - 1));

	return bpf_map_lookup_elem(&marked, &slot);
}

/* The layer of a flowlet.  Not static, so that the verifier checks the loop in it once and not at every call. */
__attribute__((noinline)) __u32 draw_layer(struct key *key)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&chosen, &zero);

	return key && set ? next_layer(key, set) : 0;
}

/* A checksum, when 16 bits of what it covers have changed (RFC 1624). */
static __always_inline __u16 changed(__u16 check, __u16 before, __u16 after)
{
	__u32 sum = (__u16)~check + (__u16)~before + after;

	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* Let a packet's destination begin with `octet`; the packet moves in memory, and its checksums follow. */
static __always_inline void rewrite(struct __sk_buff *ctx, struct iphdr *ip, __u8 octet)
{
	__u16 *half = (__u16 *)&ip->daddr, before = *half, after;
	__u32 at = sizeof(struct ethhdr) + sizeof(*ip), protocol = ip->protocol;

	*(__u8 *)half = octet;
	after = *half;
	ip->check = changed(ip->check, before, after);
	if (ip->frag_off & bpf_htons(LATER_FRAGMENT))
		return;
	if (protocol == IPPROTO_TCP)
		bpf_l4_csum_replace(ctx, at + offsetof(struct tcphdr, check), before, after, BPF_F_PSEUDO_HDR | 2);
	else if (protocol == IPPROTO_UDP)
		bpf_l4_csum_replace(ctx, at + offsetof(struct udphdr, check), before, after,
				    BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | 2);
}

static __always_inline __u8 octet_of(__be32 address)
{
	return *(__u8 *)&address;
}

static __always_inline int in_layer(__be32 address)
{
	return (octet_of(address) & 0xc0) == FIRST_LAYER;
}

static __always_inline __be32 own(__be32 address)
{
	*(__u8 *)&address = SERVERS;
	return address;
}

/* The flow that a packet from `source` belongs to; 0 if it ends too early. */
static __always_inline int key_of(struct key *key, const struct iphdr *ip, const void *end)
{
	const __be32 *ports = (const void *)(ip + 1);

	key->source = ip->saddr;
	key->destination = own(ip->daddr);
	key->protocol = ip->protocol;
	if (ip->frag_off & bpf_htons(IS_FRAGMENT) || (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP))
		return 1;
	if ((const void *)(ports + 1) > end)
		return 0;
	key->ports = *ports;
	return 1;
}

/* The time in ns.  TCP has noted it with its packets, which saves 40 ns. */
static __always_inline __u64 now_at(struct __sk_buff *ctx)
{
	return ctx->tstamp ?: bpf_ktime_get_ns();
}

/* A flow of which nothing is known yet, in its first layer; 0 if there is no room. */
static __always_inline struct flow *begin(struct key *key, const struct settings *set, __u64 now,
					  struct counters *counters)
{
	__u32 pair = pair_of(key), *turn = bpf_map_lookup_elem(&turns, &pair);
	struct flow flow = { .last_ns = now };

	if (set->start == START_RANDOM)
		flow.layer = draw_layer(key);
	else if (set->start == START_IN_TURN && turn)
		flow.layer = __sync_fetch_and_add(turn, 1) % set->layers;
	counters->flows++;
	bpf_map_update_elem(&flows, key, &flow, BPF_ANY);
	return bpf_map_lookup_elem(&flows, key);
}

/* Whether a TCP packet shows that its flow's window was cut.  Pure acknowledgements show nothing. */
static __always_inline int was_cut(struct flow *flow, const struct iphdr *ip, const void *end)
{
	const struct tcphdr *tcp = (const void *)(ip + 1);
	__u32 seq, bytes;

	if ((const void *)(tcp + 1) > end)
		return 0;
	seq = bpf_ntohl(tcp->seq);
	bytes = bpf_ntohs(ip->tot_len) - sizeof(*ip) - tcp->doff * 4 + tcp->syn + tcp->fin;
	return bytes && shows_cut(flow, seq, seq + bytes, tcp->cwr && !tcp->syn);
}

/* The layer for a packet. */
static __always_inline __u32 layer_for(struct __sk_buff *ctx, struct key *key, const struct settings *set,
				       const struct iphdr *ip, const void *end, struct counters *counters)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, key);
	int again;

	if (!flow)
		flow = begin(key, set, now_at(ctx), counters);
	if (!flow)
		return 0;
	again = flow->layer >= set->layers; /* there were more of them */
	if (set->trigger & ON_GAP) {
		__u64 now = now_at(ctx);

		if (now - flow->last_ns > set->gap_us * 1000ULL) {
			counters->gaps++;
			again = 1;
		}
		flow->last_ns = now;
	}
	if (set->trigger & (ON_CUT | ON_ECN) && ip->protocol == IPPROTO_TCP && key->ports) {
		if (was_cut(flow, ip, end) && set->trigger & ON_CUT) {
			counters->cuts++;
			again = 1;
		}
	}
	if (again)
		flow->layer = draw_layer(key);
	return flow->layer;
}

SEC("tc")
int leave(struct __sk_buff *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u32 zero = 0, layer;
	struct settings *set;
	struct counters *counters;
	struct key key = {};

	if (ctx->protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end || ip->ihl != 5 ||
	    octet_of(ip->daddr) != SERVERS)
		return TC_ACT_UNSPEC;
	set = bpf_map_lookup_elem(&chosen, &zero);
	counters = bpf_map_lookup_elem(&counted, &zero);
	if (!set || !set->layers || !counters || !key_of(&key, ip, end))
		return TC_ACT_UNSPEC;
	layer = layer_for(ctx, &key, set, ip, end, counters) & (LAYERS - 1);
	counters->packets[layer]++;
	rewrite(ctx, ip, FIRST_LAYER + layer);
	return TC_ACT_UNSPEC;
}

/* An acknowledgement of a flow of this host's own. */
static __always_inline void acknowledge(const struct settings *set, const struct iphdr *ip, const void *end,
					struct counters *counters)
{
	const struct tcphdr *tcp = (const void *)(ip + 1);
	struct key key = {};
	struct flow *flow;

	if ((const void *)(tcp + 1) > end || !tcp->ack || tcp->syn)
		return;
	key.source = own(ip->daddr);
	key.destination = ip->saddr;
	key.ports = (__u32)tcp->source << 16 | tcp->dest; /* of the other direction */
	key.protocol = IPPROTO_TCP;
	flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow)
		return;
	if (set->choice == TAKE_LEAST_MARKED)
		note_echo(&key, flow->layer, tcp->ece);
	if (set->trigger & ON_ECN && ends_congested_rounds(flow, set, bpf_ntohl(tcp->ack_seq), tcp->ece)) {
		flow->layer = draw_layer(&key);
		counters->echoes++;
	}
}

/* Whether this ICMP error says that the packet's path is broken, which another port or a longer packet would not. */
static __always_inline int tells_of_path(const struct icmp *icmp)
{
	return icmp->type == UNREACHABLE && icmp->code != PROTOCOL_UNREACHABLE && icmp->code != PORT_UNREACHABLE &&
	       icmp->code != TOO_LONG;
}

/* An ICMP error about a packet that this host sent in a layer: it quotes the server's own address from here on.  The
 * sum over a quoted header is what it was, and so is that over the whole error. */
static __always_inline void quote(struct __sk_buff *ctx, const struct settings *set, struct counters *counters)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr), *quoted;
	struct icmp *icmp = (void *)(ip + 1);
	struct key key = {};
	struct flow *flow;
	__u16 before;

	quoted = (void *)(icmp + 1);
	if ((void *)(quoted + 1) > end || quoted->ihl != 5 || !in_layer(quoted->daddr) ||
	    (icmp->type != UNREACHABLE && icmp->type != TIME_EXCEEDED))
		return;
	before = *(__u16 *)&quoted->daddr;
	*(__u8 *)&quoted->daddr = SERVERS;
	quoted->check = changed(quoted->check, before, *(__u16 *)&quoted->daddr);
	if (!set->layers || !tells_of_path(icmp) || !key_of(&key, quoted, end))
		return;
	flow = bpf_map_lookup_elem(&flows, &key);
	if (flow) {
		flow->layer = draw_layer(&key);
		counters->errors++;
	}
}

SEC("tc")
int arrive(struct __sk_buff *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct counters *counters;
	struct settings *set;
	__u32 zero = 0;
	int layered;

	if (ctx->protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end || ip->ihl != 5)
		return TC_ACT_UNSPEC;
	set = bpf_map_lookup_elem(&chosen, &zero);
	counters = bpf_map_lookup_elem(&counted, &zero);
	if (!set || !counters)
		return TC_ACT_UNSPEC;
	layered = in_layer(ip->daddr);
	if (ip->protocol == IPPROTO_TCP && (set->trigger & ON_ECN || set->choice == TAKE_LEAST_MARKED))
		acknowledge(set, ip, end, counters);
	if (ip->protocol == IPPROTO_ICMP)
		quote(ctx, set, counters);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ip = data + sizeof(struct ethhdr);
	if (layered && (void *)(ip + 1) <= end)
		rewrite(ctx, ip, SERVERS);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "GPL";
