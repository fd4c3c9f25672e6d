"""Preflight, generations, apply, gate run, rollback, history: the order of things is here only."""
