"""The data plane: selection, layers, rewriting and trimming, with the BPF programs beside their
loaders.
"""
