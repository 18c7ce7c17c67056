"""Parts of every network: nodes and links as arrays, names and addresses, families and their
grammar, failed parts.
"""
