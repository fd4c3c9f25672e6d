"""Rules between a model, the parsers for it, and the GPUs it is divided among."""
