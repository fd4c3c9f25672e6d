"""The variables of NCCL: tables of rows, and the lists NCCL_ALGO and NCCL_PROTO take."""
