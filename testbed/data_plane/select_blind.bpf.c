/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* select.bpf.c for kernels without type information (BTF): for schemes that compare no queues. */
#define BLIND
#include "select.bpf.c"
