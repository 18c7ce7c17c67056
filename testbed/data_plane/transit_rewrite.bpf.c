/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The first octet of the destination of packets in transit through a server (DFR, TAR), and their
 * next hop.
 *
 * At the ingress hook of each port of a server.  A server has octets for flows; a packet with an
 * octet whose flow is unknown gets 64.  Or it has octets for prefixes of destinations, and other
 * packets stay unchanged.  Then the packet takes the kernel's route, if that leads to a neighbour
 * whose MAC address the kernel knows.
 *
 * The kernel gets every other packet, with its new destination: packets to the server itself,
 * refusals, the last hop that a TTL allows, packets with options or too long.  transit_rewrite.py
 * writes the maps.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_packet.h>

#include "packet.h"

#define DIRECT 64 /* first octet of a packet of an unknown flow */
#define SLOTS_BITS 8 /* of the cache, for each server */
#define GENERATION_BITS 24 /* in the cache */
#define OCTET_BITS 8
#define OCTET_MASK ((1 << OCTET_BITS) - 1)
#define NO_OCTET 0

#define AF_INET 2

enum { NOTHING, BY_FLOW, BY_PREFIX };

struct port {
	__u32 server; /* + 1 */
	__u32 delays; /* 1: another filter delays packets here, so the kernel must forward them */
};

struct server {
	__u32 rule;
	__u32 generation; /* of its prefixes */
};

struct flow {
	__u32 server;
	__be32 source;
	__be32 label; /* destination without the first octet */
	__be32 ports;
	__u32 protocol;
};

struct prefix {
	__u32 length; /* of the address, + 64 for server and generation */
	__u32 server;
	__u32 generation;
	__be32 address;
};

_Static_assert(sizeof(struct port) == 8, "transit_rewrite.py");
_Static_assert(sizeof(struct server) == 8, "transit_rewrite.SERVER");
_Static_assert(sizeof(struct flow) == 20, "transit_rewrite.FLOW");
_Static_assert(sizeof(struct prefix) == 16, "transit_rewrite.PREFIX");

/* transit_rewrite.py sets the number of entries. */
MAP(ports, ARRAY, 1, 0, __u32, struct port); /* by the lower half of an interface's index */
MAP(servers, ARRAY, 1, 0, __u32, struct server);
MAP(flows, HASH, 1, BPF_F_NO_PREALLOC, struct flow, __u32);
MAP(prefixes, LPM_TRIE, 1, BPF_F_NO_PREALLOC, struct prefix, __u32);
MAP(cache, ARRAY, 1, 0, __u32, __u64);

/* Return the octet of a packet's flow.
 *
 * A later fragment has payload in place of ports.  Its flow is then unknown, or another between the
 * same servers, whose path is as good. */
static __always_inline __u32 octet_by_flow(__u32 server, const struct iphdr *ip, const void *end)
{
	struct flow flow = {
		.server = server,
		.source = ip->saddr,
		.label = ip->daddr & bpf_htonl(0xffffff),
		.protocol = ip->protocol,
	};
	const __be32 *ports = (const void *)ip + ip->ihl * 4;
	__u32 *octet;

	if (has_ports(ip) && (const void *)(ports + 1) <= end)
		flow.ports = *ports;
	octet = bpf_map_lookup_elem(&flows, &flow);
	if (octet)
		return READ_ONCE(*octet);
	return (ip->daddr & bpf_htonl(0xc0000000)) == bpf_htonl(DIRECT << 24) ? DIRECT : NO_OCTET;
}

/* Return the octet of the longest prefix of a destination.
 *
 * A lookup in the trie takes 110 ns, so results are cached: one word with destination, generation
 * and octet, written at once. */
static __always_inline __u32 octet_by_prefix(__u32 server, __u32 generation, __be32 destination)
{
	__u32 slot = server << SLOTS_BITS | destination * 0x9e3779b1u >> (32 - SLOTS_BITS);
	__u32 version = generation & ((1 << GENERATION_BITS) - 1);
	__u64 tag = (__u64)destination << GENERATION_BITS | version;
	__u64 *cached = bpf_map_lookup_elem(&cache, &slot);
	__u32 octet = NO_OCTET;
	__u64 word;

	if (!cached)
		return NO_OCTET;
	word = READ_ONCE(*cached);
	if (word >> OCTET_BITS == tag)
		return word & OCTET_MASK;
	struct prefix prefix = {
		.length = 96, .server = server, .generation = generation, .address = destination
	};
	__u32 *entry = bpf_map_lookup_elem(&prefixes, &prefix);

	if (entry)
		octet = READ_ONCE(*entry);
	WRITE_ONCE(*cached, tag << OCTET_BITS | octet);
	return octet;
}

/* Rewrite MAC addresses and TTL for the kernel's route; return its interface, or 0 if the packet is
 * left to the kernel. */
static __always_inline __u32 follow_route(struct __sk_buff *ctx, struct iphdr *ip)
{
	struct ethhdr *ethernet = (void *)ip - sizeof(*ethernet);
	struct bpf_fib_lookup route = {
		.family = AF_INET,
		.l4_protocol = ip->protocol,
		.tos = ip->tos,
		.ifindex = ctx->ifindex,
		.ipv4_src = ip->saddr,
		.ipv4_dst = ip->daddr,
	};
	__be16 *half = (__be16 *)&ip->ttl;
	__be16 before = *half;

	if (ip->ihl != 5 || ip->ttl <= 1 ||
	    bpf_fib_lookup(ctx, &route, sizeof(route), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	ip->ttl--;
	ip->check = updated_checksum(ip->check, before, *half);
	__builtin_memcpy(ethernet->h_dest, route.dmac, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, route.smac, ETH_ALEN);
	return route.ifindex;
}

SEC("tc")
int transit_rewrite(struct __sk_buff *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = (void *)(long)ctx->data + sizeof(struct ethhdr);
	__be16 *half = (__be16 *)&ip->daddr;
	__u32 index = ctx->ifindex & 0xffff;
	struct server *server;
	struct port *port;
	__be16 before;
	__be16 after;
	__u32 octet;
	__u32 number;
	__u32 out = 0;

	if (ctx->protocol != bpf_htons(ETH_P_IP) || ctx->pkt_type != PACKET_HOST ||
	    (void *)(ip + 1) > end)
		return TC_ACT_UNSPEC;
	port = bpf_map_lookup_elem(&ports, &index);
	if (!port || !port->server)
		return TC_ACT_UNSPEC;
	number = port->server - 1;
	server = bpf_map_lookup_elem(&servers, &number);
	if (!server || server->rule == NOTHING)
		return TC_ACT_UNSPEC;
	octet = server->rule == BY_FLOW ?
			octet_by_flow(number, ip, end) :
			octet_by_prefix(number, READ_ONCE(server->generation), ip->daddr);
	before = *half;
	if (octet != NO_OCTET) {
		*(__u8 *)half = octet;
		ip->check = updated_checksum(ip->check, before, *half);
	}
	after = *half;
	if (!port->delays)
		out = follow_route(ctx, ip);
	if (before != after)
		update_transport_checksum(ctx, ip, before, after);
	if (!out)
		return TC_ACT_UNSPEC; /* to other filters, and then to the kernel */
	return transmit(ctx, out);
}

char _license[] SEC("license") = "Dual MIT/GPL";
