/* The kernel's structures as far as our programs look into them.  libbpf finds each field's place in the running kernel
 * when it loads a program (CO-RE), so neither kernel headers nor a generated vmlinux.h are needed. */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net_device {
	int ifindex;
};

struct netdev_queue {
	struct net_device *dev;
};

struct qdisc_skb_head {
	__u32 qlen;
};

/* Begins with bytes and packets sent, eight bytes each; their types differ between kernels. */
struct gnet_stats_basic_sync {
};

struct Qdisc {
	struct qdisc_skb_head q;
	struct gnet_stats_basic_sync bstats;
};

struct sk_buff {
	unsigned int len;
	__be16 protocol;
	__u16 network_header;
	unsigned char *head;
};

#pragma clang attribute pop
