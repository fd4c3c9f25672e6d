"""Probe, statistics, golden answers and the gate rule. API, clock and sleep come as arguments."""
