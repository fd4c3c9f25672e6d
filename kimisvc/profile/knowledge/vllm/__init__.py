"""What a vLLM makes of the options in [args] and of its VLLM_* variables."""
