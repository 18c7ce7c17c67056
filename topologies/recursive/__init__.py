"""Server-centric networks built recursively: DCell, beta-DCell, FiConn, and their common
arithmetic.
"""
