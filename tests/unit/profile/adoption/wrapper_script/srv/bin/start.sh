#!/usr/bin/env bash
# Started by systemd. Two cards; the rest is for training.
set -euo pipefail
source /home/lex/venvs/vllm/bin/activate

export CUDA_VISIBLE_DEVICES=0,1
export HF_TOKEN=hf_topsecretTOPSECRET123
MODEL="${LEX_MODEL:-/home/lex/models/Lex-7B}"
PORT=${PORT:-8008}
EXTRA="--enforce-eager --disable-custom-all-reduce"
ulimit -n 65535

echo "serving $MODEL on $PORT"
exec vllm serve "$MODEL" \
  --host 127.0.0.1 --port "$PORT" \
  --tensor-parallel-size 2 --swap-space 12 \
  --gpu-memory-utilization 0.88 $EXTRA "$@" >>/var/log/vllm.log 2>&1
