"""Measures one stream of a running server and judges it; the world comes as arguments."""
