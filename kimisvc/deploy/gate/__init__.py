"""The gate of one start: it waits, proves, hands its record over, and root settles it."""
