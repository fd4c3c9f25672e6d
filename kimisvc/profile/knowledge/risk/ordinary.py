"""Options in [args] whose risk is the same whatever their value: what most profiles are made of.

One row for each reason. Options that cost by their value, or by the rest of
the profile, have a row in `options`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.risk.judgement import Judgement
from kimisvc.records.profile import Risk

if TYPE_CHECKING:
    from collections.abc import Mapping

ARGS = "https://docs.vllm.ai/en/stable/cli/serve/"
"""The manual of vLLM's options, which says what each of them does."""

_TABLE: tuple[tuple[Risk, str, str], ...] = (
    (Risk.SAFE, "divides the model and its work among GPUs: the same answers up to rounding",
     ("tensor-parallel-size pipeline-parallel-size data-parallel-size data-parallel-size-local "
     "data-parallel-rank data-parallel-start-rank data-parallel-address data-parallel-rpc-port "
     "data-parallel-backend data-parallel-hybrid-lb data-parallel-external-lb "
     "data-parallel-multi-port-external-lb nnodes node-rank master-addr master-port "
     "distributed-executor-backend device-ids")),
    (Risk.SAFE, "changes how much is served at once, and how soon: the same answers",
     ("max-model-len max-num-seqs max-num-active-seqs max-num-queued-reqs max-num-queued-tokens "
     "max-num-batched-tokens max-num-scheduled-tokens long-prefill-token-threshold "
     "enable-chunked-prefill enable-prefix-caching scheduling-policy stream-interval watermark "
     "block-size")),
    (Risk.SAFE, "changes how what the model says is cut up and sent, not what it says",
     ("tool-call-parser enable-auto-tool-choice exclude-tools-when-tool-choice-none "
     "reasoning-parser chat-template-content-format response-role return-tokens-as-token-ids "
     "enable-force-include-usage enable-prompt-tokens-details max-logprobs "
     "sse-keep-alive-interval")),
    (Risk.SAFE, "changes where and how files are found, not what is in them",
     ("revision code-revision tokenizer-revision download-dir safetensors-load-strategy "
     "safetensors-prefetch-num-threads safetensors-prefetch-block-size use-tqdm-on-load "
     "max-parallel-loading-workers")),
    (Risk.SAFE, "changes what may be asked besides text, and where that is worked on",
     ("language-model-only limit-mm-per-prompt mm-encoder-tp-mode mm-processor-cache-gb "
     "mm-processor-cache-type mm-shm-cache-max-object-size-mb allowed-media-domains")),
    (Risk.SAFE, "changes what is logged and counted, not what is computed",
     ("max-log-len log-error-stack log-level uvicorn-log-level disable-uvicorn-access-log "
     "disable-access-log-for-endpoints enable-server-load-tracking kv-cache-metrics "
     "kv-cache-metrics-sample cudagraph-metrics enable-mfu-metrics custom-histogram-buckets "
     "show-hidden-metrics-for-version enable-logging-iteration-details aggregate-engine-logging")),
    (Risk.SAFE, "changes how the HTTP server talks, not what the model says",
     ("ssl-keyfile ssl-certfile ssl-ca-certs ssl-cert-reqs ssl-ciphers enable-ssl-refresh "
     "root-path h11-max-incomplete-event-size h11-max-header-count enable-request-id-headers "
     "disable-fastapi-docs api-server-count shutdown-timeout")),
    (Risk.SAFE, "changes where threads of the processor run only",
     "numa-bind numa-bind-nodes numa-bind-cpus"),
    (Risk.SAFE, "sets where random numbers begin", "seed"),
    (Risk.SAFE, "ends the start on variables that vLLM does not know", "fail-on-environ-validation"),
    (Risk.SAFE_ISH, "changes what the model is asked, and so its answers",
     "chat-template default-chat-template-kwargs"),
    (Risk.SAFE_ISH, "changes how answers are drawn where a request does not say",
     "generation-config override-generation-config"),
    (Risk.SAFE_ISH, "with another tokenizer than the model's own the answers are nonsense",
     "tokenizer tokenizer-mode"),
)  # fmt: skip
ORDINARY: Mapping[str, Judgement] = MappingProxyType(
    {name: Judgement(risk, why, ARGS) for risk, why, names in _TABLE for name in names.split()}
)
"""How each of them is judged, by its name."""
