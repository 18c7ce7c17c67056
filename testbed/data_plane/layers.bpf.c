/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Layers at hosts: the first octet of a destination, outside the host only.
 *
 * At the egress hook of each host's port, destination 10.x.y.z becomes (64 + layer).x.y.z.  At the
 * ingress hook it becomes 10.x.y.z again before anything else of the host sees it, also where an
 * ICMP error quotes it.  Applications, ping, traceroute and the host's own routes use plain
 * addresses.  A packet that an application sends to an address with a layer keeps that layer.
 *
 * layer_choice.h chooses the layer of a flow.  A flow is addresses, protocol and, for TCP and UDP,
 * ports; all fragments between two hosts, and their packets without ports, are one flow.
 * layer_program.py writes the settings.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "layer_choice.h"
#include "packet.h"

#define SERVERS 10 /* first octet of a server's address */
#define FIRST_LAYER 64 /* first octet in layer 0 */
#define PAIR_BITS 12 /* of the hash of a pair of hosts */

enum { UNREACHABLE = 3, TIME_EXCEEDED = 11 }; /* types of ICMP messages */
enum { PROTOCOL_UNREACHABLE = 2, PORT_UNREACHABLE = 3, TOO_LONG = 4 }; /* codes of UNREACHABLE */

struct key {
	__be32 source;
	__be32 destination; /* both servers' own addresses */
	__be32 ports;
	__u32 protocol;
};

struct icmp {
	__u8 type;
	__u8 code;
	__be16 check;
	__be32 rest;
};

struct counters {
	__u64 packets[LAYERS]; /* that left, by layer */
	__u64 flows;
	__u64 gaps; /* flows that drew another layer, by reason */
	__u64 cuts;
	__u64 echoes;
	__u64 errors;
	__u64 drains;
	__u64 cells;
	__u64 repeats;
};

_Static_assert(sizeof(struct key) == 16, "layer_program.KEY");
_Static_assert(sizeof(struct counters) == 8 * (LAYERS + 8), "layer_program.COUNTERS");

MAP(all_settings, ARRAY, 1, 0, __u32, struct settings);
MAP(flows, LRU_HASH, 1, 0, struct key, struct flow); /* layer_program.py sets the size */
MAP(turns, ARRAY, 1 << PAIR_BITS, 0, __u32, __u32);
MAP(layer_marks, ARRAY, LAYERS << PAIR_BITS, 0, __u32, __u32);
MAP(counted, PERCPU_ARRAY, 1, 0, __u32, struct counters);

/* A packet, and what is known of its host. */
struct packet {
	struct __sk_buff *ctx;
	struct iphdr *ip;
	const void *end;
	const struct settings *settings;
	struct counters *counters;
};

static __always_inline __u32 pair_of(const struct key *key)
{
	__u32 both = (__u32)key->source ^ (__u32)key->destination * 0x85ebca6bu;

	return both * 0x9e3779b1u >> (32 - PAIR_BITS);
}

static __always_inline __u32 *marks_of(void *context, __u32 layer)
{
	__u32 slot = pair_of(context) * LAYERS | (layer & (LAYERS - 1));

	return bpf_map_lookup_elem(&layer_marks, &slot);
}

/* Return the layer of a flowlet whose flow leaves layer `left`.  Not static: the verifier checks its
 * loop once, not at every call. */
__attribute__((noinline)) __u32 draw_layer(struct key *key, __u32 left, __u32 draws)
{
	__u32 zero = 0;
	struct settings *settings = bpf_map_lookup_elem(&all_settings, &zero);
	__u32 flow;

	if (!key || !settings)
		return 0;
	flow = flow_hash(settings->seed, bpf_ntohl(key->source), bpf_ntohl(key->destination),
			 key->ports, key->protocol);
	return next_layer(key, settings, left, mix(flow, draws));
}

/* Let the flow leave its layer. */
static __always_inline void draw_again(struct flow *flow, struct key *key)
{
	flow->layer = draw_layer(key, flow->layer, ++flow->draws);
}

/* Replace the first octet of the packet's destination and update checksums.  Pointers into the
 * packet are invalid afterwards. */
static __always_inline void rewrite(struct __sk_buff *ctx, struct iphdr *ip, __u8 octet)
{
	__u16 *half = (__u16 *)&ip->daddr;
	__u16 before = *half;

	*(__u8 *)half = octet;
	ip->check = updated_checksum(ip->check, before, *half);
	update_transport_checksum(ctx, ip, before, *half);
}

static __always_inline __u8 octet_of(__be32 address)
{
	return *(__u8 *)&address;
}

static __always_inline int is_in_layer(__be32 address)
{
	return (octet_of(address) & 0xc0) == FIRST_LAYER;
}

static __always_inline __be32 own_address(__be32 address)
{
	*(__u8 *)&address = SERVERS;
	return address;
}

/* Fill in the flow of a packet from `source`; 0 if the packet ends too early. */
static __always_inline int fill_key(struct key *key, const struct iphdr *ip, const void *end)
{
	const __be32 *ports = (const void *)(ip + 1);

	key->source = ip->saddr;
	key->destination = own_address(ip->daddr);
	key->protocol = ip->protocol;
	if (ip->frag_off & bpf_htons(FRAGMENT) || !has_ports(ip))
		return 1;
	if ((const void *)(ports + 1) > end)
		return 0;
	key->ports = *ports;
	return 1;
}

/* Return the time in ns.  TCP has noted it with its packets, which saves 40 ns. */
static __always_inline __u64 now_ns(struct __sk_buff *ctx)
{
	return ctx->tstamp ?: bpf_ktime_get_ns();
}

/* Insert a new flow in its first layer; 0 if the map is full. */
static __always_inline struct flow *new_flow(struct key *key, const struct packet *packet)
{
	const struct settings *settings = packet->settings;
	__u32 pair = pair_of(key);
	__u32 *turn = bpf_map_lookup_elem(&turns, &pair);
	struct flow flow = { .last_ns = now_ns(packet->ctx) };

	if (settings->start == START_RANDOM)
		flow.layer = draw_layer(key, LAYERS, 0);
	else if (settings->start == START_IN_TURN && turn)
		flow.layer = __sync_fetch_and_add(turn, 1) % settings->layers;
	packet->counters->flows++;
	bpf_map_update_elem(&flows, key, &flow, BPF_ANY);
	return bpf_map_lookup_elem(&flows, key);
}

/* Return the sequence numbers that a TCP packet takes up. */
static __always_inline __u32 length_of(const struct iphdr *ip, const struct tcphdr *tcp)
{
	return bpf_ntohs(ip->tot_len) - sizeof(*ip) - tcp->doff * 4 + tcp->syn + tcp->fin;
}

/* Return which triggers a TCP packet shows of its flow.  Pure acknowledgements show none. */
static __always_inline __u32 events_of(struct flow *flow, const struct packet *packet)
{
	const struct iphdr *ip = packet->ip;
	const struct tcphdr *tcp = (const void *)(ip + 1);
	__u32 bytes;
	__u32 seq;

	if ((const void *)(tcp + 1) > packet->end)
		return 0;
	if (tcp->ack)
		note_answer(flow, bpf_ntohl(tcp->ack_seq));
	seq = bpf_ntohl(tcp->seq);
	bytes = length_of(ip, tcp);
	if (!bytes)
		return 0;
	return events_shown(flow, packet->settings, seq, seq + bytes, tcp->cwr && !tcp->syn);
}

/* Return the layer of a packet that leaves. */
static __always_inline __u32 layer_of(const struct packet *packet, struct key *key)
{
	const struct settings *settings = packet->settings;
	struct flow *flow = bpf_map_lookup_elem(&flows, key);
	__u32 events = 0;
	int is_drawn_again;

	if (!flow)
		flow = new_flow(key, packet);
	if (!flow)
		return 0;
	is_drawn_again = flow->layer >= settings->layers; /* the number of layers has fallen */
	if (settings->trigger & ON_GAP && ends_gap(flow, settings->gap_us, now_ns(packet->ctx))) {
		packet->counters->gaps++;
		is_drawn_again = 1;
	}
	if (settings->trigger & ON_BYTES &&
	    begins_cell(flow, settings->cell_kb, bpf_ntohs(packet->ip->tot_len))) {
		packet->counters->cells++;
		is_drawn_again = 1;
	}
	/* ON_ECN and ON_REPEAT need the numbers that events_of() notes */
	if (settings->trigger & (ON_CUT | ON_ECN | ON_DRAINED | ON_REPEAT) &&
	    key->protocol == IPPROTO_TCP && key->ports)
		events = events_of(flow, packet);
	if (events & ON_CUT)
		packet->counters->cuts++;
	if (events & ON_DRAINED)
		packet->counters->drains++;
	is_drawn_again |= events != 0;
	if (is_drawn_again)
		draw_again(flow, key);
	return flow->layer;
}

/* Fill in an IPv4 packet without options; 0 for any other packet. */
static __always_inline int read_packet(struct packet *packet, struct __sk_buff *ctx)
{
	__u32 zero = 0;

	packet->ctx = ctx;
	packet->ip = (void *)(long)ctx->data + sizeof(struct ethhdr);
	packet->end = (void *)(long)ctx->data_end;
	if (ctx->protocol != bpf_htons(ETH_P_IP) || (const void *)(packet->ip + 1) > packet->end ||
	    packet->ip->ihl != 5)
		return 0;
	packet->settings = bpf_map_lookup_elem(&all_settings, &zero);
	packet->counters = bpf_map_lookup_elem(&counted, &zero);
	return packet->settings && packet->counters;
}

SEC("tc")
int leave(struct __sk_buff *ctx)
{
	struct packet packet;
	struct key key = {};
	__u32 layer;

	if (!read_packet(&packet, ctx) || octet_of(packet.ip->daddr) != SERVERS)
		return TC_ACT_UNSPEC;
	if (!packet.settings->layers || !fill_key(&key, packet.ip, packet.end))
		return TC_ACT_UNSPEC;
	layer = layer_of(&packet, &key) & (LAYERS - 1);
	packet.counters->packets[layer]++;
	rewrite(ctx, packet.ip, FIRST_LAYER + layer);
	return TC_ACT_UNSPEC;
}

/* Let a flow of this host learn from a TCP packet of the other direction. */
static __always_inline void hear(const struct packet *packet)
{
	const struct settings *settings = packet->settings;
	const struct iphdr *ip = packet->ip;
	const struct tcphdr *tcp = (const void *)(ip + 1);
	struct key key = {};
	struct flow *flow;
	__u32 bytes, seq;
	int hears;

	if ((const void *)(tcp + 1) > packet->end)
		return;
	hears = tcp->ack && hears_acknowledgements(settings);
	bytes = settings->trigger & ON_REPEAT ? length_of(ip, tcp) : 0;
	if (!hears && !bytes)
		return;
	key.source = own_address(ip->daddr);
	key.destination = ip->saddr;
	key.ports = (__u32)tcp->source << 16 | tcp->dest; /* of the other direction */
	key.protocol = IPPROTO_TCP;
	flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow)
		return;
	if (hears && hear_acknowledgement(&key, flow, settings, bpf_ntohl(tcp->ack_seq), tcp->syn,
					  tcp->ece)) {
		draw_again(flow, &key);
		packet->counters->echoes++;
	}
	seq = bpf_ntohl(tcp->seq);
	if (bytes && shows_lost_answers(flow, seq, seq + bytes)) {
		draw_again(flow, &key);
		packet->counters->repeats++;
	}
}

/* Return 1 for an ICMP error that reports a broken path: another port or length would not help. */
static __always_inline int is_path_error(const struct icmp *icmp)
{
	return icmp->type == UNREACHABLE && icmp->code != PROTOCOL_UNREACHABLE &&
	       icmp->code != PORT_UNREACHABLE && icmp->code != TOO_LONG;
}

/* Restore the server's own address in an ICMP error about a packet that this host sent in a layer.
 * The checksums over the quoted header and over the whole error stay as they were. */
static __always_inline void restore_quoted(const struct packet *packet)
{
	struct icmp *icmp = (void *)(packet->ip + 1);
	struct iphdr *quoted = (void *)(icmp + 1);
	struct key key = {};
	struct flow *flow;
	__u16 *half;
	__u16 before;

	if ((const void *)(quoted + 1) > packet->end || quoted->ihl != 5 ||
	    !is_in_layer(quoted->daddr) ||
	    (icmp->type != UNREACHABLE && icmp->type != TIME_EXCEEDED))
		return;
	half = (__u16 *)&quoted->daddr;
	before = *half;
	*(__u8 *)half = SERVERS;
	quoted->check = updated_checksum(quoted->check, before, *half);
	if (!packet->settings->layers || !is_path_error(icmp) ||
	    !fill_key(&key, quoted, packet->end))
		return;
	flow = bpf_map_lookup_elem(&flows, &key);
	if (flow) {
		draw_again(flow, &key);
		packet->counters->errors++;
	}
}

SEC("tc")
int arrive(struct __sk_buff *ctx)
{
	struct packet packet;

	if (!read_packet(&packet, ctx))
		return TC_ACT_UNSPEC;
	if (packet.ip->protocol == IPPROTO_TCP && !(packet.ip->frag_off & bpf_htons(FRAGMENT)))
		hear(&packet);
	if (packet.ip->protocol == IPPROTO_ICMP)
		restore_quoted(&packet);
	if (is_in_layer(packet.ip->daddr))
		rewrite(ctx, packet.ip, SERVERS);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual MIT/GPL";
