"""Variables of what runs beside NCCL and CUDA in vLLM's processes: one row each.

The loader, OpenMP, PyTorch and Hugging Face; no secrets, which belong in the
file that `service.secrets_file` names.
"""

from __future__ import annotations

from functools import partial

from kimisvc.profile.knowledge.variables.allocator import allocator_options
from kimisvc.profile.knowledge.variables.grammar import (
    absolute_path,
    flag,
    folders,
    libraries,
    plain_number,
    several,
    switch,
    words,
)
from kimisvc.profile.knowledge.variables.row import ActsOn, Variable
from kimisvc.records.profile import Risk

_LOADER = "ld.so(8)"
_OPENMP = "OpenMP specification, Environment Variables"
_TORCH = "PyTorch, CUDA Environment Variables"
_TORCH_NCCL = "PyTorch, ProcessGroupNCCL Environment Variables"
_HUB = "huggingface_hub manual, Environment variables"
_THREADS = "changes how many processor threads work, and where"
_MEMORY = "changes how GPU memory is cut up; may end in out of memory sooner or later"
_FILES = "changes where files are found only"
_WATCH = "changes when a stuck collective ends vLLM"

process = partial(Variable, acts_on=ActsOn.PROCESS)
gone = partial(
    Variable,
    acts_on=ActsOn.PROCESS,
    document=_TORCH_NCCL,
    risk=Risk.SAFE_ISH,
    why=_WATCH,
    syntax=flag,
    deprecated="PyTorch 2.2",
)

OTHER_LIBRARIES: tuple[Variable, ...] = (
    # ------------------------------------------------------------ the loader
    process("LD_PRELOAD", "Libraries loaded before all others.", libraries, Risk.RISKY,
            "loads code of another's into vLLM and all it starts", document=_LOADER),
    process("LD_AUDIT", "Libraries that watch the loader.", libraries, Risk.RISKY,
            "loads code of another's into vLLM and all it starts", document=_LOADER),
    process("LD_LIBRARY_PATH", "Folders where libraries are looked for first.", folders(":;"),
            Risk.SAFE_ISH, "may put another NCCL or CUDA in the place of vLLM's own",
            document=_LOADER),
    process("VLLM_NCCL_SO_PATH", "The NCCL library that vLLM loads.", libraries, Risk.RISKY,
            "puts another NCCL in the place of the one vLLM was tested with",
            document="vLLM, envs.py"),
    process("VLLM_CUDART_SO_PATH", "The CUDA runtime library that vLLM loads.", libraries,
            Risk.RISKY, "puts another library in the place of the one vLLM was tested with",
            document="vLLM, envs.py"),
    process("VLLM_RUST_FRONTEND_PATH", "The program that answers in the place of vLLM's own.",
            absolute_path, Risk.RISKY, "runs a program of another's that sees every request",
            document="vLLM, envs.py"),
    # ------------------------------------------------------------ OpenMP
    process("OMP_NUM_THREADS", "Threads of each process on the processor.",
            several(plain_number(1, 4096)), Risk.SAFE, _THREADS, document=_OPENMP),
    process("OMP_PROC_BIND", "Whether threads stay on their processor.",
            several(words("true", "false", "close", "spread", "primary", "master",
                          otherwise="OpenMP would ignore it")), Risk.SAFE, _THREADS, document=_OPENMP),
    process("OMP_PLACES", "Processors that threads stay on.", None, Risk.SAFE, _THREADS,
            document=_OPENMP),
    process("OMP_DYNAMIC", "Whether the number of threads may change.",
            words("true", "false", otherwise="OpenMP would ignore it"), Risk.SAFE, _THREADS,
            document=_OPENMP),
    process("OMP_SCHEDULE", "How loops are shared out.", None, Risk.SAFE, _THREADS,
            document=_OPENMP),
    process("OMP_STACKSIZE", "Stack of each thread.", None, Risk.SAFE_ISH, _THREADS,
            document=_OPENMP),
    process("OMP_WAIT_POLICY", "Whether waiting threads spin.",
            words("active", "passive", otherwise="OpenMP would ignore it"), Risk.SAFE_ISH,
            "ACTIVE takes processor time from vLLM's own threads", document=_OPENMP),
    process("OMP_THREAD_LIMIT", "Most threads of the process.", plain_number(1, 65536),
            Risk.SAFE_ISH, _THREADS, document=_OPENMP),
    process("OMP_MAX_ACTIVE_LEVELS", "How deep parallel work may nest.", plain_number(0, 255),
            Risk.SAFE, _THREADS, document=_OPENMP),
    process("OMP_DISPLAY_ENV", "Whether OpenMP shows its settings.", None, Risk.SAFE, _THREADS,
            document=_OPENMP),
    process("MKL_NUM_THREADS", "Threads of MKL.", plain_number(1, 4096), Risk.SAFE, _THREADS,
            document="oneMKL manual, Intel-specific Environment Variables"),
    # ------------------------------------------------------------ PyTorch
    process("PYTORCH_ALLOC_CONF", "How PyTorch takes GPU memory.", allocator_options,
            Risk.SAFE_ISH, _MEMORY, document=_TORCH),
    process("PYTORCH_CUDA_ALLOC_CONF", "The same, as older PyTorch calls it.", allocator_options,
            Risk.SAFE_ISH, _MEMORY, document=_TORCH),
    process("PYTORCH_NO_CUDA_MEMORY_CACHING", "1 gives all GPU memory back at once.", switch,
            Risk.SAFE_ISH, "for debugging: costs much speed, and CUDA graphs cannot be recorded",
            document=_TORCH),
    process("PYTORCH_NVML_BASED_CUDA_CHECK", "How PyTorch looks for GPUs.", switch, Risk.SAFE,
            "changes how GPUs are looked for only", document=_TORCH),
    process("TORCH_NCCL_ASYNC_ERROR_HANDLING", "What becomes of a failed collective.",
            plain_number(0, 3), Risk.SAFE_ISH, _WATCH, document=_TORCH_NCCL),
    process("TORCH_NCCL_BLOCKING_WAIT", "Whether waiting blocks.", switch, Risk.SAFE_ISH, _WATCH,
            document=_TORCH_NCCL),
    gone("NCCL_ASYNC_ERROR_HANDLING", "Old name in PyTorch.",
         instead="TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    gone("NCCL_BLOCKING_WAIT", "Old name in PyTorch.", instead="TORCH_NCCL_BLOCKING_WAIT"),
    gone("NCCL_DESYNC_DEBUG", "Old name in PyTorch.", instead="TORCH_NCCL_DESYNC_DEBUG"),
    gone("NCCL_ENABLE_TIMING", "Old name in PyTorch.", instead="TORCH_NCCL_ENABLE_TIMING"),
    # ------------------------------------------------------------ Hugging Face
    process("HF_HOME", "Folder of Hugging Face's caches.", absolute_path, Risk.SAFE, _FILES,
            document=_HUB),
    process("HF_HUB_CACHE", "Folder of downloaded models.", absolute_path, Risk.SAFE, _FILES,
            document=_HUB),
    process("HF_HUB_OFFLINE", "1 downloads nothing.",
            words("0", "1", "true", "false", "yes", "no", "on", "off",
                  otherwise="it would count as off"), Risk.SAFE, _FILES, document=_HUB),
    process("HF_HUB_DISABLE_TELEMETRY", "1 reports nothing to Hugging Face.", None, Risk.SAFE,
            _FILES, document=_HUB),
    process("HF_HUB_DOWNLOAD_TIMEOUT", "Seconds a download may stand still.",
            plain_number(1, 86400), Risk.SAFE, _FILES, document=_HUB),
    process("HF_HUB_ENABLE_HF_TRANSFER", "Fast downloads of old.", None, Risk.SAFE, _FILES,
            document=_HUB, removed="huggingface_hub 1.0", instead="HF_XET_HIGH_PERFORMANCE"),
    process("HF_XET_HIGH_PERFORMANCE", "1 downloads with all the box has.", None, Risk.SAFE,
            _FILES, document=_HUB),
    process("HF_ENDPOINT", "Server models are downloaded from.", None, Risk.SAFE_ISH,
            "models, and code they bring, come from there", document=_HUB),
)  # fmt: skip
"""Every variable of theirs that is known here."""
