/* select.bpf.c for kernels without type information (BTF), which cannot tell where to find a queue's length. */
#define BLIND
#include "select.bpf.c"
