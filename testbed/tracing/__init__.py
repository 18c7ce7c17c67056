"""What happens to packets on their way through the kernel, seen by BPF programs."""
