"""What the preflight asks of the host, a module for each part of it."""
