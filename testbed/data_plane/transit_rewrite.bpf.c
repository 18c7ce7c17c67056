/* What a packet carries when it goes on from a server (DFR, TAR), the first octet of its destination, and where to.
 *
 * At the ingress hook of each server's ports.  A server knows octets for flows, and what carries an octet without being of
 * such a flow carries 64 from there on; or for prefixes of destinations, and other packets go on as they are.  Then the
 * packet takes the kernel's own route for it, if that leads to a neighbour whom the kernel knows; whatever is not as
 * simple as that is left to the kernel, which has got the packet's new destination then: packets for the server itself,
 * refusals, the last hop that a packet may make, packets with options or too long.  transit_rewrite.py writes the maps.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#define DIRECT 64	    /* the first octet of what nothing is known of */
#define FRAGMENT 0x1fff	    /* the offset of one */
#define SLOTS_BITS 8	    /* of the cache, for each server */
#define GENERATION_BITS 24  /* in there */
#define NO_OCTET 0

#define AF_INET 2

enum { NOTHING, BY_FLOW, BY_PREFIX };

struct port {
	__u32 server; /* + 1 */
	__u32 delays; /* what arrives is to be held back first, which takes the kernel's way */
};

struct server {
	__u32 rule;
	__u32 generation; /* of its prefixes */
};

struct flow {
	__u32 server;
	__be32 source;
	__be32 label; /* of the destination: its address without the first octet */
	__be32 ports;
	__u32 protocol;
};

struct prefix {
	__u32 length; /* 64 for server and generation, and that of the address */
	__u32 server;
	__u32 generation;
	__be32 address;
};

#define MAP(name, kind, entries, flags, key_type, value_type) \
	struct {                                              \
		__uint(type, BPF_MAP_TYPE_##kind);            \
		__uint(max_entries, entries);                 \
		__uint(map_flags, flags);                     \
		__type(key, key_type);                        \
		__type(value, value_type);                    \
	} name SEC(".maps")

/* transit_rewrite.py sets the number of entries. */
MAP(ports, ARRAY, 1, 0, __u32, struct port); /* by the lower half of an interface's index */
MAP(servers, ARRAY, 1, 0, __u32, struct server);
MAP(flows, HASH, 1, BPF_F_NO_PREALLOC, struct flow, __u32);
MAP(prefixes, LPM_TRIE, 1, BPF_F_NO_PREALLOC, struct prefix, __u32);
MAP(cache, ARRAY, 1, 0, __u32, __u64);

/* A fragment without ports has what lies in their place: a flow between the same servers, if any, and as good a path. */
static __always_inline __u32 of_flow(__u32 server, const struct iphdr *ip, const void *end)
{
	struct flow flow = { server, ip->saddr, ip->daddr & bpf_htonl(0xffffff), 0, ip->protocol };
	const __be32 *ports = (const void *)ip + ip->ihl * 4;
	int has_ports = ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP;
	__u32 *found;

	if (has_ports && (const void *)(ports + 1) <= end)
		flow.ports = *ports;
	found = bpf_map_lookup_elem(&flows, &flow);
	if (found)
		return *found;
	return (ip->daddr & bpf_htonl(0xc0000000)) == bpf_htonl(DIRECT << 24) ? DIRECT : NO_OCTET;
}

/* The trie takes 110 ns, so its answers are kept: one word with destination, generation and octet, written at once. */
static __always_inline __u32 of_prefix(__u32 server, __u32 generation, __be32 destination)
{
	__u32 slot = server << SLOTS_BITS | destination * 0x9e3779b1u >> (32 - SLOTS_BITS), octet;
	__u64 wanted = (__u64)destination << GENERATION_BITS | (generation & ((1 << GENERATION_BITS) - 1));
	__u64 *kept = bpf_map_lookup_elem(&cache, &slot), word;

	if (!kept)
		return NO_OCTET;
	word = *(volatile __u64 *)kept;
	octet = word & 0xff;
	if (word >> 8 != wanted) {
		struct prefix prefix = { 96, server, generation, destination };
		__u32 *found = bpf_map_lookup_elem(&prefixes, &prefix);

		octet = found ? *found : NO_OCTET;
		*(volatile __u64 *)kept = wanted << 8 | octet;
	}
	return octet;
}

/* A checksum, when 16 bits of what it covers have changed (RFC 1624). */
static __always_inline __u16 changed(__u16 check, __u16 before, __u16 after)
{
	__u32 sum = (__u16)~check + (__u16)~before + after;

	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* Let the packet's transport follow when the first half of its destination has changed; it moves in memory. */
static __always_inline void follow(struct __sk_buff *ctx, struct iphdr *ip, __u16 before, __u16 after)
{
	__u32 at = sizeof(struct ethhdr) + ip->ihl * 4;

	if (before == after || ip->frag_off & bpf_htons(FRAGMENT))
		return;
	if (ip->protocol == IPPROTO_TCP)
		bpf_l4_csum_replace(ctx, at + offsetof(struct tcphdr, check), before, after, BPF_F_PSEUDO_HDR | 2);
	else if (ip->protocol == IPPROTO_UDP)
		bpf_l4_csum_replace(ctx, at + offsetof(struct udphdr, check), before, after,
				    BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | 2);
}

/* Rewrite Ethernet addresses and TTL for the kernel's route; the interface that it leads to, 0 if it is the kernel's. */
static __always_inline __u32 routed(struct __sk_buff *ctx, struct ethhdr *ethernet, struct iphdr *ip)
{
	struct bpf_fib_lookup route = {
		.family = AF_INET,
		.l4_protocol = ip->protocol,
		.tos = ip->tos,
		.ifindex = ctx->ifindex,
		.ipv4_src = ip->saddr,
		.ipv4_dst = ip->daddr,
	};
	__be16 *lives = (__be16 *)&ip->ttl, before = *lives;

	if (ip->ihl != 5 || ip->ttl <= 1 || bpf_fib_lookup(ctx, &route, sizeof(route), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	ip->ttl--;
	ip->check = changed(ip->check, before, *lives);
	__builtin_memcpy(ethernet->h_dest, route.dmac, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, route.smac, ETH_ALEN);
	return route.ifindex;
}

SEC("tc")
int transit_rewrite(struct __sk_buff *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u32 index = ctx->ifindex & 0xffff, number, octet = NO_OCTET, out = 0;
	struct server *server;
	struct port *port;
	__be16 *half, before, after;

	if (ctx->protocol != bpf_htons(ETH_P_IP) || ctx->pkt_type != PACKET_HOST || (void *)(ip + 1) > end)
		return TC_ACT_UNSPEC;
	port = bpf_map_lookup_elem(&ports, &index);
	if (!port || !port->server)
		return TC_ACT_UNSPEC;
	number = port->server - 1;
	server = bpf_map_lookup_elem(&servers, &number);
	if (!server || server->rule == NOTHING)
		return TC_ACT_UNSPEC;
	if (server->rule == BY_FLOW)
		octet = of_flow(number, ip, end);
	else
		octet = of_prefix(number, server->generation, ip->daddr);
	half = (__be16 *)&ip->daddr;
	after = before = *half;
	if (octet != NO_OCTET) {
		*(__u8 *)half = octet;
		after = *half;
		ip->check = changed(ip->check, before, after);
	}
	if (!port->delays)
		out = routed(ctx, data, ip);
	follow(ctx, ip, before, after);
	if (!out)
		return TC_ACT_UNSPEC; /* to other filters, and then to the kernel */
	if (!ctx->sk)
		return bpf_redirect(out, 0);
	/* A packet keeps its sender's socket across namespaces, and the sender's TCP would hold back for what waits in our
	 * queue as if it were its own.  Routing by the kernel lets go of the socket; so does a clone. */
	bpf_clone_redirect(ctx, out, 0);
	return TC_ACT_STOLEN;
}

char _license[] SEC("license") = "GPL";
