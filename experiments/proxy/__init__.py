"""CCRDN on the kernel: PR, DFR and TAR beside the graph."""
