"""Decisions of a node.

Pure: time, randomness and packets are arguments, and what to do comes back as data.
"""
