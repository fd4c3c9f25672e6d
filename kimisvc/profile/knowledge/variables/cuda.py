"""The variables of CUDA and its driver: one row each (CUDA programming guide, appendix 5.2)."""

from __future__ import annotations

from functools import partial

from kimisvc.profile.knowledge.variables.devices import visible_devices
from kimisvc.profile.knowledge.variables.grammar import (
    absolute_path,
    exact_words,
    plain_number,
    switch,
    words,
)
from kimisvc.profile.knowledge.variables.row import ActsOn, Variable
from kimisvc.records.profile import Risk

_GUIDE = "CUDA programming guide, CUDA Environment Variables"
_IGNORED = "CUDA would ignore it"
_SPEED = "changes speed only, and goes away with the variable"
_CACHE = "changes where and whether compiled kernels are kept"
_DEBUG = "for debugging: costs much speed"

safe = partial(Variable, risk=Risk.SAFE, acts_on=ActsOn.CUDA, document=_GUIDE)
safe_ish = partial(Variable, risk=Risk.SAFE_ISH, acts_on=ActsOn.CUDA, document=_GUIDE)
risky = partial(Variable, risk=Risk.RISKY, acts_on=ActsOn.CUDA, document=_GUIDE)

CUDA: tuple[Variable, ...] = (
    # ------------------------------------------------------------ which GPUs
    safe("CUDA_VISIBLE_DEVICES", "Which GPUs vLLM sees, and in which order.", visible_devices,
         why="changes which GPUs are used only"),
    safe("CUDA_DEVICE_ORDER", "How GPUs are numbered: PCI_BUS_ID is nvidia-smi's way.",
         exact_words("PCI_BUS_ID", "FASTEST_FIRST", otherwise=_IGNORED),
         why="changes the numbers of the GPUs only"),
    safe_ish("NVIDIA_VISIBLE_DEVICES", "Which GPUs a container gets; read by its runtime.", None,
             why="has no meaning outside of a container",
             document="NVIDIA container toolkit, environment variables"),
    # ------------------------------------------------------------ how work reaches a GPU
    safe_ish("CUDA_DEVICE_MAX_CONNECTIONS", "Hardware queues from the host to a GPU, 8 by default.",
             plain_number(1, 32, "CUDA takes 1 to 32"),
             why="1 orders kernels strictly and may keep work from overlapping",
             harmless=("8",)),
    safe_ish("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "Hardware queues for copies.",
             plain_number(1, 32), why=_SPEED),
    safe_ish("CUDA_SCALE_LAUNCH_QUEUES", "Size of the queues for launches, as a factor.",
             words("0.25x", "0.5x", "2x", "4x", otherwise=_IGNORED), why=_SPEED),
    safe_ish("CUDA_LAUNCH_BLOCKING", "1 waits for each kernel.", switch, why=_DEBUG,
             harmless=("0",)),
    safe_ish("CUDA_GRAPHS_USE_NODE_PRIORITY", "1 lets nodes of a graph have priorities.", switch,
             why=_SPEED, harmless=("0",)),
    safe_ish("CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT",
             "Share of L2 cache set aside, in percent.", plain_number(0, 100), why=_SPEED),
    safe_ish("CUDA_AUTO_BOOST", "Whether old GPUs raise their clock.", switch, why=_SPEED),
    # ------------------------------------------------------------ modules and compilation
    safe_ish("CUDA_MODULE_LOADING", "When kernels are loaded.",
             exact_words("LAZY", "EAGER", "DEFAULT", otherwise=_IGNORED),
             why="EAGER takes memory for kernels that are never used", harmless=("LAZY", "DEFAULT")),
    safe_ish("CUDA_MODULE_DATA_LOADING", "When data of modules is loaded.",
             exact_words("LAZY", "EAGER", "DEFAULT", otherwise=_IGNORED), why=_SPEED),
    safe_ish("CUDA_BINARY_LOADER_THREAD_COUNT", "Threads that load modules.",
             plain_number(0, 1024), why=_SPEED),
    safe("CUDA_CACHE_DISABLE", "1 keeps no compiled kernels.", switch, why=_CACHE),
    safe("CUDA_CACHE_PATH", "Folder of compiled kernels.", absolute_path, why=_CACHE),
    safe("CUDA_CACHE_MAXSIZE", "Bytes of compiled kernels that are kept.",
         plain_number(0, 2**32), why=_CACHE),
    safe_ish("CUDA_FORCE_PTX_JIT", "1 compiles all kernels anew.", switch, why=_DEBUG,
             harmless=("0",)),
    safe_ish("CUDA_DISABLE_PTX_JIT", "1 never compiles PTX.", switch,
             why="kernels without code for the GPU then fail", harmless=("0",)),
    safe_ish("CUDA_FORCE_JIT", "1 compiles all kernels anew.", switch, why=_DEBUG,
             harmless=("0",)),
    safe_ish("CUDA_DISABLE_JIT", "1 never compiles.", switch,
             why="kernels without code for the GPU then fail", harmless=("0",)),
    # ------------------------------------------------------------ memory and errors
    safe_ish("CUDA_MANAGED_FORCE_DEVICE_ALLOC", "1 puts managed memory on the GPU.", switch,
             why=_SPEED, harmless=("0",)),
    safe_ish("CUDA_ENABLE_CRC_CHECK", "1 checks what is loaded.", switch, why=_SPEED,
             harmless=("0",)),
    safe_ish("CUDA_DEVICE_WAITS_ON_EXCEPTION", "1 halts at a fault for a debugger.", switch,
             why="a fault would then hang vLLM instead of ending it", harmless=("0",)),
    safe_ish("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1 writes GPU memory to a file at a fault.",
             switch, why="writes files as large as GPU memory", harmless=("0",),
             document="CUDA-GDB manual, GPU core dump support"),
    safe("CUDA_LOG_FILE", "Where CUDA writes its error log.", None, why="changes a log only"),
    risky("CUDA_INJECTION64_PATH", "Library that CUDA loads at its start.", absolute_path,
          why="loads code of another's into vLLM", document="CUPTI manual, injection"),
    # ------------------------------------------------------------ several processes on a GPU
    safe_ish("CUDA_MPS_PIPE_DIRECTORY", "Where the Multi-Process Service is found.", absolute_path,
             why="with it, a fault of one process ends all that share the GPU",
             document="Multi-Process Service manual, Environment Variables"),
    safe_ish("CUDA_MPS_LOG_DIRECTORY", "Where the Multi-Process Service logs.", absolute_path,
             why="changes a log only",
             document="Multi-Process Service manual, Environment Variables"),
    safe_ish("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "Share of a GPU that vLLM may use.",
             plain_number(1, 100), why=_SPEED,
             document="Multi-Process Service manual, Environment Variables"),
    # ------------------------------------------------------------ toolkit and libraries
    safe("CUDA_HOME", "Folder of the CUDA toolkit, for kernels compiled at start.", absolute_path,
         why="changes which compiler is found only", document="PyTorch, cpp_extension"),
    safe("CUDA_PATH", "Folder of the CUDA toolkit.", absolute_path,
         why="changes which compiler is found only", document="PyTorch, cpp_extension"),
    safe_ish("CUBLAS_WORKSPACE_CONFIG", "Buffers of cuBLAS; :4096:8 makes it repeatable.", None,
             why=_SPEED, document="cuBLAS manual, Results Reproducibility"),
    safe_ish("NVIDIA_TF32_OVERRIDE", "0 forbids TF32.", plain_number(0, 0),
             why="changes rounding and speed", document="cuBLAS manual, environment"),
)  # fmt: skip
"""Every documented variable of CUDA that can matter to vLLM."""
