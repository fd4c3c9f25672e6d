"""Variables of vLLM that people set, or had better not: one row each.

Which there are, and how each is read, the vLLM that will run tells by itself
(knowledge.vllm); here is what they do and may cost. A VLLM_* without a row is
not judged, which counts as safe-ish. Read in vllm/envs.py of 0.32 and 0.33, and
where the variable is used.
"""

from __future__ import annotations

from functools import partial

from kimisvc.profile.knowledge.variables.row import ActsOn, Variable
from kimisvc.records.profile import Risk

_ENVS = "vLLM, envs.py"
_SECURITY = "vLLM documentation, Security"
_LOG = "changes what is logged only"
_FILES = "changes where files are found only"
_NOTHING_SENT = "changes what is reported to vLLM's makers only"
_KERNELS = "other kernels: the same answers up to rounding, another speed, or no start at all"
_ALL_REDUCE = "another all-reduce: the same answers up to rounding, another speed, or no start"
_COMPILE = "another way to compile: another speed and time to start"
_DEADLINE = "changes when something slow counts as dead"
_EFFORT = "whoever may ask the model may make it work longer, or fill its memory"

_row = partial(Variable, syntax=None, acts_on=ActsOn.PROCESS, document=_ENVS)
safe = partial(_row, risk=Risk.SAFE)
safe_ish = partial(_row, risk=Risk.SAFE_ISH)
danger = partial(
    _row, risk=Risk.RISKY, document=_SECURITY, harmless=("0", "false", "False", "FALSE")
)

VLLM: tuple[Variable, ...] = (
    # ------------------------------------------------------------ open doors, wrong answers
    danger("VLLM_SERVER_DEV_MODE", "1 opens endpoints for development.",
           why="opens endpoints that put the model to sleep and run code in the workers to all who "
           "reach the port"),
    danger("VLLM_ALLOW_INSECURE_SERIALIZATION", "1 lets processes send each other any object.",
           why="lets messages between processes carry code that is run"),
    danger("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1 loads adapters while serving.",
           why="lets all who reach the port load adapters into the server"),
    # No danger by being set: without it the code of every installed plugin runs (plugins/__init__.py).
    safe_ish("VLLM_PLUGINS", "The only plugins that are loaded; unset: all that are installed, but "
             "for those that add endpoints; empty: none.", empty="loads no plugin",
             document="vLLM, plugins/__init__.py",
             why="fewer plugins run than without it, but one that it names may add endpoints, which "
             "is never loaded unnamed"),
    danger("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "1 keeps a server up whose engine died.",
           why="keeps a server up whose engine is dead, so that systemd never starts it again",
           document=_ENVS),
    danger("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "1 logs every answer.", risk=Risk.SAFE_ISH,
           why="writes all answers of the model into the journal", document=_ENVS),
    danger("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1 takes a max-model-len beyond what the model says.",
           why="beyond what the model was made for answers turn to nonsense, or the GPU reads "
           "where nothing is", document=_ENVS),
    danger("VLLM_V1_USE_OUTLINES_CACHE", "1 keeps compiled grammars on disk.",
           why="whoever may ask the model may fill the disk with it", document=_ENVS),
    danger("VLLM_ENABLE_RESPONSES_API_STORE", "1 keeps what is asked and answered in memory.",
           why="keeps messages of all who ask, and never drops them", document=_ENVS),
    danger("VLLM_LORA_RESOLVER_CACHE_DIR", "Folder where unknown adapters are looked for.",
           why="whoever may ask the model may have any adapter of that folder loaded", harmless=()),
    danger("VLLM_LORA_RESOLVER_HF_REPO_LIST", "Repositories that unknown adapters come from.",
           why="whoever may ask the model may have adapters fetched and loaded", harmless=()),
    danger("VLLM_MODEL_REDIRECT_PATH", "File that says where models really lie.",
           why="another model than the profile names may be served", document=_ENVS, harmless=()),
    danger("VLLM_MOE_ROUTING_SIMULATION_STRATEGY", "Chooses experts by a made up rule.",
           why="made for measuring: every answer is nonsense", document=_ENVS, harmless=()),
    danger("VLLM_TEST_FORCE_LOAD_FORMAT", "Load format of tests.",
           why="may load random weights: every answer is nonsense", document=_ENVS, harmless=()),
    danger("VLLM_USE_MODELSCOPE", "1 fetches models from ModelScope.", risk=Risk.SAFE_ISH,
           why="models, and code they bring, come from there", document=_ENVS),
    danger("VLLM_SKIP_MODEL_NAME_VALIDATION", "1 answers whatever model is asked for.",
           risk=Risk.SAFE_ISH, why="who asks for another model is not told so", document=_ENVS),
    # ------------------------------------------------------------ all-reduce
    safe_ish("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC",
             "1 has FlashInfer reduce over PCIe on one box.", harmless=("0",),
             why="young, and opt-in while vLLM's makers qualify it: " + _ALL_REDUCE),
    safe_ish("VLLM_ALLREDUCE_USE_FLASHINFER", "1 has FlashInfer reduce.", why=_ALL_REDUCE),
    safe_ish("VLLM_ALLREDUCE_USE_SYMM_MEM", "1 has PyTorch's symmetric memory reduce.",
             why=_ALL_REDUCE),
    safe_ish("VLLM_FLASHINFER_ALLREDUCE_BACKEND", "Which all-reduce of FlashInfer.",
             why=_ALL_REDUCE),
    safe_ish("VLLM_USE_NCCL_SYMM_MEM", "1 registers symmetric memory with NCCL.", harmless=("0",),
             why=_ALL_REDUCE),
    safe_ish("VLLM_DISABLE_PYNCCL", "1 has PyTorch call NCCL in the place of vLLM.",
             harmless=("0", "false"), why=_ALL_REDUCE),
    safe_ish("VLLM_SKIP_P2P_CHECK", "1 believes the driver that P2P works; 0 tries it out.",
             harmless=("0",),
             why="where the driver is wrong, vLLM's own all-reduce hangs or reads nonsense"),
    # ------------------------------------------------------------ kernels and compilation
    safe_ish("VLLM_BATCH_INVARIANT", "1 gives the same answer whatever else is in the batch.",
             harmless=("0",), why="slower kernels, and NCCL is set up anew by vLLM"),
    safe_ish("VLLM_USE_FLASHINFER_SAMPLER", "Whether FlashInfer samples.", why=_KERNELS),
    safe_ish("VLLM_USE_DEEP_GEMM", "0 uses no kernels of DeepGEMM.", why=_KERNELS),
    safe_ish("VLLM_MOE_USE_DEEP_GEMM", "0 uses none of them for experts.", why=_KERNELS),
    safe_ish("VLLM_USE_DEEP_GEMM_E8M0", "Whether DeepGEMM scales by powers of two.", why=_KERNELS),
    safe_ish("VLLM_DEEP_GEMM_WARMUP", "How many kernels are compiled before the first request.",
             why="without it the first requests wait for kernels to be compiled"),
    safe_ish("VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER", "1 multiplies FP8 blocks with FlashInfer.",
             why=_KERNELS),
    safe_ish("VLLM_USE_FLASHINFER_MOE_INT4", "1 computes INT4 experts with FlashInfer.",
             why=_KERNELS),
    safe_ish("VLLM_MARLIN_USE_ATOMIC_ADD", "1 has Marlin add up atomically.", harmless=("0",),
             why=_KERNELS + "; no two runs add in the same order"),
    safe_ish("VLLM_MARLIN_INPUT_DTYPE", "8-bit activations for Marlin.",
             why="fewer bits of activations cost accuracy"),
    safe_ish("VLLM_MLA_DISABLE", "1 turns the optimizations for latent attention off.",
             harmless=("0",), why="much more memory for the cache, and slower"),
    safe_ish("VLLM_KV_CACHE_LAYOUT", "How the cache lies in memory.", why=_KERNELS),
    safe_ish("VLLM_DISABLED_KERNELS", "Kernels that are not used.", why=_KERNELS),
    safe_ish("VLLM_TUNED_CONFIG_FOLDER", "Folder of tuned settings of Triton's kernels.",
             why="settings for another GPU are slow, or do not run"),
    safe_ish("VLLM_FLOAT32_MATMUL_PRECISION", "How exactly 32-bit numbers are multiplied.",
             why="less than highest is faster and less exact", harmless=("highest",)),
    safe_ish("VLLM_USE_V2_MODEL_RUNNER", "1 has the newer model runner.", why=_KERNELS),
    safe_ish("VLLM_USE_AOT_COMPILE", "Whether compiled models are kept whole.", why=_COMPILE),
    safe_ish("VLLM_DISABLE_COMPILE_CACHE", "1 keeps nothing that was compiled.", harmless=("0",),
             why="every start compiles anew"),
    safe_ish("VLLM_ENABLE_INDUCTOR_MAX_AUTOTUNE", "Whether Inductor tries kernels out.",
             why=_COMPILE),
    safe_ish("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0 leaves no memory for CUDA graphs.",
             harmless=("1",), why="out of memory while graphs are captured"),
    safe_ish("VLLM_ENABLE_CUDA_COMPATIBILITY", "1 runs with a driver older than its CUDA.",
             harmless=("0",), why="made for data center GPUs; others do not start with it"),
    safe_ish("VLLM_USE_RUST_FRONTEND", "1 has a program in Rust answer requests.", harmless=("0",),
             why="young: not every option and metric of the other is there"),
    safe("VLLM_WORKER_MULTIPROC_METHOD", "How workers are started: fork or spawn.",
         why="vLLM itself takes spawn where CUDA was touched before"),
    safe_ish("VLLM_ENABLE_V1_MULTIPROCESSING", "0 runs the engine in the server's own process.",
             harmless=("1",), why="the server stands still while the engine computes"),
    safe_ish("VLLM_PP_LAYER_PARTITION", "How many layers each stage has.",
             why="an uneven split is slow, or does not fit"),
    # ------------------------------------------------------------ safe: speed on the processor
    safe("VLLM_CPU_KVCACHE_SPACE", "GiB of cache of the processor's backend.",
         why="what is taken at the start is all that is taken"),
    safe("VLLM_CPU_OMP_THREADS_BIND", "Processors that its threads stay on.",
         why="changes how many processor threads work, and where"),
    safe("VLLM_CPU_NUM_OF_RESERVED_CPU", "Processors that it leaves alone.",
         why="changes how many processor threads work, and where"),
    # ------------------------------------------------------------ deadlines and limits
    safe("VLLM_ENGINE_READY_TIMEOUT_S", "Seconds engines may take to be ready.",
         why="made from load_timeout, which ends a load that hangs"),
    safe_ish("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "Seconds a step of the workers may take.",
             why=_DEADLINE),
    safe_ish("VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS", "Seconds workers may take to end.",
             why=_DEADLINE),
    safe("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "Seconds an idle connection stays open.",
         why="changes how often clients connect anew only"),
    safe("VLLM_RINGBUFFER_WARNING_INTERVAL", "Seconds between warnings of a full buffer.", why=_LOG),
    safe_ish("VLLM_REGEX_COMPILATION_TIMEOUT_S", "Seconds a pattern may take to compile.",
             why=_EFFORT),
    safe_ish("VLLM_MAX_N_SEQUENCES", "Most answers to one request.", why=_EFFORT),
    safe_ish("VLLM_MAX_COMPLETION_PROMPTS", "Most prompts of one request.", why=_EFFORT),
    safe_ish("VLLM_MAX_STOP_STRINGS", "Most stop strings of one request.", why=_EFFORT),
    safe_ish("VLLM_IMAGE_FETCH_TIMEOUT", "Seconds an image may take to come.", why=_EFFORT),
    safe_ish("VLLM_MAX_IMAGE_PIXELS", "Largest image that is decoded.", why=_EFFORT),
    safe_ish("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "1 follows redirects of URLs of media.",
             harmless=("0",), document=_SECURITY,
             why="whoever may ask the model may have it fetch what only this box reaches"),
    safe("VLLM_XGRAMMAR_CACHE_MB", "MiB of compiled grammars.",
         why="changes how much main memory grammars take"),
    # ------------------------------------------------------------ network between processes
    safe_ish("VLLM_HOST_IP", "Address at which processes of vLLM meet.", document=_SECURITY,
             why="whoever reaches that address reaches vLLM's own processes, unencrypted"),
    safe("VLLM_PORT", "First port of vLLM's own processes.", why="changes ports only"),
    safe("VLLM_LOOPBACK_IP", "Address of this box for itself.", why="changes an address only"),
    safe("VLLM_RPC_BASE_PATH", "Folder of sockets between processes.", why=_FILES),
    # ------------------------------------------------------------ files
    safe("VLLM_CACHE_ROOT", "Folder of vLLM's caches.", why=_FILES),
    safe("VLLM_CONFIG_ROOT", "Folder of vLLM's settings.", why=_FILES),
    safe("VLLM_ASSETS_CACHE", "Folder of downloaded assets.", why=_FILES),
    safe("VLLM_MEDIA_CACHE", "Folder of media that requests named.", why=_FILES),
    safe("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", "Folder of what FlashInfer tried out.", why=_FILES),
    safe_ish("VLLM_DEBUG_DUMP_PATH", "Folder that compiled graphs are dumped into.",
             why="takes time and room at each start"),
    # ------------------------------------------------------------ the log and statistics
    safe("VLLM_LOGGING_LEVEL", "Least level that is logged.", why=_LOG),
    safe("VLLM_LOGGING_PREFIX", "What each line of the log begins with.", why=_LOG),
    safe("VLLM_LOGGING_COLOR", "Whether the log is coloured.", why=_LOG),
    safe("VLLM_LOGGING_STREAM", "Stream that is logged to.", why=_LOG),
    safe("VLLM_LOGGING_CONFIG_PATH", "File that sets the log up.", why=_LOG),
    safe("VLLM_CONFIGURE_LOGGING", "0 leaves the log as Python has it.", why=_LOG),
    safe("VLLM_LOG_STATS_INTERVAL", "Seconds between lines of statistics.", why=_LOG),
    safe("VLLM_PROCESS_NAME_PREFIX", "What names of processes begin with.",
         why="changes names of processes only"),
    safe_ish("VLLM_TRACE_FUNCTION", "1 logs every call.", harmless=("0",),
             why="for debugging: slow, and fills the disk"),
    safe_ish("VLLM_COMPUTE_NANS_IN_LOGITS", "1 looks for answers that are no numbers.",
             harmless=("0",), why="takes a little time at each step"),
    safe("VLLM_NO_USAGE_STATS", "1 sends no statistics of use.", why=_NOTHING_SENT),
    safe("VLLM_DO_NOT_TRACK", "1 sends no statistics of use.", why=_NOTHING_SENT),
    safe("VLLM_USAGE_SOURCE", "What statistics of use call this server.", why=_NOTHING_SENT),
    safe_ish("VLLM_USAGE_STATS_SERVER", "Server that statistics of use are sent to.",
             why="what this box serves is told to that server"),
)  # fmt: skip
"""Every variable of vLLM that is judged here."""
