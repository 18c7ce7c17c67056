/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* select.bpf.c for kernels before 6.2, which read other memory by a helper: 240 ns instead of 20
 * for each queue. */
#define PROBE_READ
#include "select.bpf.c"
