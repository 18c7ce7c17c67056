"""Data plane: selection, layers, rewriting, trimming; BPF programs beside their loaders."""
