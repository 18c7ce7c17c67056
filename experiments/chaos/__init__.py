"""Campaigns of faults against networks of routing daemons: drawn, carried out, judged, and made
smaller.
"""
