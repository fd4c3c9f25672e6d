"""kimisvc: one TOML tuning profile becomes one proven LLM service on one GPU box."""

__version__ = "0.1.0"
