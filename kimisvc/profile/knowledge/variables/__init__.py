"""The variables in [env], but for VLLM_*: rows, the grammar of values, and rules between them."""
