"""What NCCL, CUDA and vLLM make of the settings of a profile: the free tables [env] and [args].

Tables with one row a variable or option, and rules that read them. A value
that would be refused or misread at the end of a load is refused here.
"""
