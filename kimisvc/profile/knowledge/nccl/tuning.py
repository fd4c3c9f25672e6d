"""The variables of NCCL that change something on one box: one row each.

From the user guide of NCCL 2.32, and from its source where the guide does not
say what becomes of a bad value. Most stand in the guide's section Debugging,
which asks not to keep them set in production.
"""

from __future__ import annotations

from functools import partial

from kimisvc.profile.knowledge.nccl.selections import algorithms, protocols
from kimisvc.profile.knowledge.variables.grammar import (
    INT,
    absolute_path,
    distance,
    flag,
    secret,
    whole_number,
    word_list,
    words,
)
from kimisvc.profile.knowledge.variables.row import ActsOn, Variable
from kimisvc.records.profile import Risk

_CHANNELS = 64

_SPEED = "changes speed and memory only, and goes away with the variable"
_LOG = "changes what is logged, not what is computed"
_CODE = "loads code of another's into vLLM"
_UNSET = "changes how NCCL talks between GPUs; wrong for the box, it costs speed or the start"

safe = partial(Variable, risk=Risk.SAFE)
safe_ish = partial(Variable, risk=Risk.SAFE_ISH)
risky = partial(Variable, risk=Risk.RISKY)

_channels = whole_number(
    1, _CHANNELS, below="NCCL would use 1", above="NCCL would use 64 (32 before 2.25)"
)
_ctas = whole_number(
    1, _CHANNELS, below="NCCL would ignore it", above="NCCL would use 64 (32 before 2.25)"
)
_size = whole_number(1024, INT, below="no message would fit", above="NCCL keeps sizes in 32 bits")
_natural = whole_number(0, INT)
_SILENT = "NCCL would log nothing"

_LEVELS = ("VERSION", "WARN", "ATTN", "INFO", "ABORT", "TRACE")
_SUBSYSTEMS = (
    "INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST", "CALL",
    "PROXY", "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL",
)  # fmt: skip

NCCL: tuple[Variable, ...] = (
    # ------------------------------------------------------------ algorithm, protocol, channels
    safe_ish("NCCL_ALGO", "Which algorithms NCCL may use, by collective.", algorithms,
             why="NCCL can no longer choose the fastest algorithm by message size", since="2.5",
             changed="before 2.24 unknown names were ignored; since 2.31 a collective that NCCL_PROTO "
             "names and this does not has no algorithm"),
    safe_ish("NCCL_PROTO", "Which protocols NCCL may use, by collective.", protocols,
             why="NCCL can no longer choose by message size: LL alone halves the bandwidth of "
             "prefill", since="2.5", changed="before 2.24 unknown names were ignored"),
    safe_ish("NCCL_MAX_NCHANNELS", "Most channels (thread blocks) NCCL uses.", _channels,
             why=_SPEED, deprecated="2.17", instead="NCCL_MAX_CTAS",
             changed="64 at most, 32 before 2.25"),
    safe_ish("NCCL_MIN_NCHANNELS", "Fewest channels (thread blocks) NCCL sets up.", _channels,
             why=_SPEED, deprecated="2.17", instead="NCCL_MIN_CTAS",
             changed="64 at most, 32 before 2.25"),
    safe_ish("NCCL_MAX_NRINGS", "Old name of NCCL_MAX_NCHANNELS.", _channels,
             why=_SPEED, deprecated="2.5", instead="NCCL_MAX_CTAS"),
    safe_ish("NCCL_MIN_NRINGS", "Old name of NCCL_MIN_NCHANNELS.", _channels,
             why=_SPEED, deprecated="2.5", instead="NCCL_MIN_CTAS"),
    safe_ish("NCCL_MAX_CTAS", "Most thread blocks (channels) NCCL uses.", _ctas,
             why=_SPEED, since="2.17", changed="64 at most, 32 before 2.25"),
    safe_ish("NCCL_MIN_CTAS", "Fewest thread blocks (channels) NCCL sets up.", _ctas,
             why=_SPEED, since="2.17", changed="64 at most, 32 before 2.25"),
    safe_ish("NCCL_NTHREADS", "Threads in a thread block of NCCL.",
             whole_number(64, 512, below="NCCL would use 64", above="NCCL would use 512",
                          multiple_of=32, uneven="NCCL would use 512"), why=_SPEED),
    safe_ish("NCCL_BUFFSIZE", "Bytes of each buffer of the Simple protocol, 4194304 by default.",
             _size, why="takes memory of every GPU, by channel and peer", acts_on=ActsOn.SIMPLE,
             harmless=("4194304",)),
    safe_ish("NCCL_CGA_CLUSTER_SIZE", "Thread blocks NCCL groups into a cluster.",
             whole_number(0, 8, above="NCCL would use 8"), why=_SPEED, since="2.16"),
    safe_ish("NCCL_CTA_POLICY", "Whether NCCL spares thread blocks.",
             word_list("DEFAULT", "EFFICIENCY", "ZERO", "0", "1", "2", separator="|",
                       otherwise="NCCL would use DEFAULT"), why=_SPEED, since="2.27"),
    safe_ish("NCCL_MEM_SYNC_DOMAIN", "Memory sync domain of NCCL's kernels.", flag, why=_SPEED,
             harmless=("1",), since="2.16"),
    safe_ish("NCCL_P2P_LL_THRESHOLD", "Bytes up to which send and receive use LL.", _natural,
             why=_SPEED, since="2.14", harmless=("16384",)),
    safe_ish("NCCL_LAUNCH_ORDER_IMPLICIT", "Orders the work of several communicators.", flag,
             why="may serialize what ran side by side", since="2.26", harmless=("0",)),
    # ------------------------------------------------------------ how GPUs reach each other
    safe_ish("NCCL_P2P_DISABLE", "1 keeps GPUs from reaching each other's memory.", flag,
             why="all traffic then goes through host memory: slower, yet cures hangs of P2P",
             acts_on=ActsOn.P2P, harmless=("0",)),
    safe_ish("NCCL_P2P_LEVEL", "Greatest distance over which GPUs reach each other's memory.",
             distance, why=_UNSET, acts_on=ActsOn.P2P, since="2.3.4"),
    safe_ish("NCCL_P2P_DIRECT_DISABLE", "1 forbids direct access between GPUs of one process.",
             flag, why=_SPEED, acts_on=ActsOn.P2P, harmless=("0",)),
    safe_ish("NCCL_SHM_DISABLE", "1 forbids traffic through host memory (/dev/shm).", flag,
             why="GPUs that cannot reach each other then talk through the network",
             harmless=("0",)),
    safe_ish("NCCL_CUMEM_ENABLE", "Whether NCCL takes GPU memory with cuMem.", flag, why=_UNSET,
             since="2.18", changed="on by itself where supported since 2.19"),
    safe_ish("NCCL_CUMEM_HOST_ENABLE", "Whether NCCL takes host memory with cuMem.", flag,
             why=_UNSET, since="2.23", changed="on by itself where supported since 2.24"),
    safe_ish("NCCL_NVLS_ENABLE", "Whether NVSwitch reduces in its network (NVLink SHARP).",
             whole_number(0, 2), why=_UNSET, acts_on=ActsOn.NVLINK, harmless=("2",),
             since="2.17"),
    safe_ish("NCCL_NVB_DISABLE", "1 forbids hops over a third GPU's NVLink.", flag, why=_SPEED,
             acts_on=ActsOn.NVLINK, harmless=("0",), since="2.11"),
    safe_ish("NCCL_TOPO_FILE", "File with the topology NCCL starts from.", absolute_path,
             why="a topology that is not the box's makes NCCL choose badly or fail", since="2.6"),
    safe("NCCL_IGNORE_CPU_AFFINITY", "1 binds threads to the processors near the GPU.", flag,
         why="changes on which processors NCCL's threads run only", acts_on=ActsOn.START,
         since="2.4.6"),
    # ------------------------------------------------------------ memory and CUDA graphs
    safe_ish("NCCL_GRAPH_REGISTER", "Whether buffers in CUDA graphs are registered.", flag,
             why="registered buffers stay pinned; vLLM turns it off itself to let a model sleep",
             harmless=("1",), since="2.11"),
    safe_ish("NCCL_LOCAL_REGISTER", "Whether buffers the program names are registered.", flag,
             why=_SPEED, harmless=("1",), since="2.19"),
    risky("NCCL_LEGACY_CUDA_REGISTER", "1 registers memory of cudaMalloc.", flag,
          why="the manual: unsafe, may hang", harmless=("0",), since="2.24"),
    safe_ish("NCCL_WIN_ENABLE", "Whether memory windows may be registered.", flag, why=_SPEED,
             harmless=("1",), since="2.27"),
    risky("NCCL_GRAPH_MIXING_SUPPORT", "Whether a communicator may work in and out of graphs.",
          flag, why="without it NCCL calls of parallel CUDA graphs are not supported",
          harmless=("1",), since="2.13"),
    risky("NCCL_GRAPH_STREAM_ORDERING", "Whether NCCL orders its kernels in CUDA graphs.", flag,
          why="without it the program has to order NCCL's kernels, which vLLM does not promise",
          harmless=("1",), since="2.30"),
    risky("NCCL_MULTI_RANK_GPU_ENABLE", "1 lets several ranks share a GPU.", flag,
          why="experimental, and may exhaust a GPU and hang", harmless=("0",), since="2.30"),
    safe_ish("NCCL_SET_STACK_SIZE", "1 sets the stack size of NCCL's kernels.", flag, why=_SPEED,
             harmless=("0",), since="2.9"),
    safe_ish("NCCL_RUNTIME_CONNECT", "0 connects all GPUs at start, not at first use.", flag,
             why="takes memory for connections that may never be used", acts_on=ActsOn.START,
             harmless=("1",), since="2.22"),
    risky("NCCL_COMM_BLOCKING", "0 lets calls of NCCL return before they are done.", flag,
          why="overrides what vLLM and PyTorch ask of each communicator", harmless=("1",),
          since="2.14"),
    risky("NCCL_LAUNCH_MODE", "How NCCL launches its kernels.",
          words("PARALLEL", "GROUP", otherwise="its manual knows two"),
          why="GROUP is for processes with several GPUs, and on its way out",
          harmless=("PARALLEL",), since="2.1.0", deprecated="2.9", instead="nothing"),
    safe("NCCL_LAUNCH_RACE_FATAL", "Whether threads that race to launch are an error.", flag,
         why="turns a race into an error, or leaves it", acts_on=ActsOn.START, since="2.26"),
    # ------------------------------------------------------------ checks and logs
    risky("NCCL_CHECKS_DISABLE", "1 skips the check of arguments.", flag,
          why="a wrong call is then not noticed", harmless=("0",), deprecated="2.2.12",
          instead="nothing: checks are off by default"),
    safe_ish("NCCL_CHECK_POINTERS", "1 checks pointers at each call.", flag,
             why="costs latency at every collective", harmless=("0",), deprecated="2.29.7",
             instead="NCCL_CHECK_MODE"),
    safe_ish("NCCL_CHECK_MODE", "How arguments are checked at each call.",
             words("DEFAULT", "DEBUG_LOCAL", "DEBUG_GLOBAL", otherwise="NCCL would not check"),
             why="costs latency at every collective", harmless=("DEFAULT",), since="2.29.7"),
    safe("NCCL_DEBUG", "How much NCCL logs.",
         words(*_LEVELS, "NONE", otherwise=_SILENT), why=_LOG, acts_on=ActsOn.LOG,
         changed="ATTN since 2.32"),
    safe("NCCL_DEBUG_LEVELS", "Levels NCCL logs besides those of NCCL_DEBUG.",
         word_list(*_LEVELS, "ALL", otherwise="NCCL would ignore it"), why=_LOG,
         acts_on=ActsOn.LOG, since="2.32"),
    safe("NCCL_DEBUG_SUBSYS", "Parts of NCCL whose INFO lines are logged.",
         word_list(*_SUBSYSTEMS, otherwise="NCCL would ignore it"), why=_LOG,
         acts_on=ActsOn.LOG, since="2.3.4"),
    safe("NCCL_DEBUG_FILE", "File for NCCL's log: %h the host, %p the process.", absolute_path,
         why=_LOG, acts_on=ActsOn.LOG, since="2.2.12"),
    safe("NCCL_DEBUG_TIMESTAMP_FORMAT", "How times are written in the log.", None, why=_LOG,
         acts_on=ActsOn.LOG, since="2.26"),
    safe("NCCL_DEBUG_TIMESTAMP_LEVELS", "Which log lines have a time.",
         word_list(*_LEVELS, "ALL", otherwise="NCCL would ignore it"), why=_LOG,
         acts_on=ActsOn.LOG, since="2.26"),
    safe("NCCL_TOPO_DUMP_FILE", "File NCCL writes the topology it found to.", absolute_path,
         why=_LOG, acts_on=ActsOn.LOG, since="2.6"),
    safe("NCCL_SET_THREAD_NAME", "1 names NCCL's threads.", flag, why=_LOG, acts_on=ActsOn.LOG,
         since="2.12"),
    safe("NCCL_RAS_ENABLE", "0 turns off the service that reports NCCL's health.", flag,
         why=_LOG, acts_on=ActsOn.LOG, since="2.24"),
    safe_ish("NCCL_RAS_ADDR", "Where that service listens, localhost:28028 by default.", None,
             why="an address others reach shows NCCL's state to them", acts_on=ActsOn.LOG,
             harmless=("localhost:28028",), since="2.24"),
    safe("NCCL_RAS_TIMEOUT_FACTOR", "Factor for the timeouts of that service.", None,
         why=_LOG, acts_on=ActsOn.LOG, since="2.24"),
    # ------------------------------------------------------------ files, code and secrets
    safe_ish("NCCL_CONF_FILE", "File with further variables, instead of ~/.nccl.conf.",
             absolute_path, why="what it sets is not seen by any check of this profile",
             acts_on=ActsOn.START, since="2.23"),
    risky("NCCL_NET_PLUGIN", "Library with another network.", None, why=_CODE,
          acts_on=ActsOn.START, harmless=("none",), since="2.11"),
    risky("NCCL_TUNER_PLUGIN", "Library that chooses algorithm and protocol.", None, why=_CODE,
          acts_on=ActsOn.START, harmless=("none",)),
    risky("NCCL_PROFILER_PLUGIN", "Library that watches NCCL.", None, why=_CODE,
          acts_on=ActsOn.START, harmless=("none",)),
    risky("NCCL_ENV_PLUGIN", "Library that answers for variables.", None, why=_CODE,
          acts_on=ActsOn.START, harmless=("none",), since="2.28"),
    risky("NCCL_GIN_PLUGIN", "Library for networking from the GPU.", None, why=_CODE,
          acts_on=ActsOn.START, harmless=("none",), since="2.29.3"),
    risky("NCCL_RMA_PLUGIN", "Library for one-sided operations.", None, why=_CODE,
          acts_on=ActsOn.START, harmless=("none",), since="2.30.7"),
    safe("NCCL_PSK", "Key that encrypts NCCL's TCP traffic.", secret,
         why="encrypts the traffic of sockets only", acts_on=ActsOn.START),
    safe("NCCL_IPC_USE_ABSTRACT_SOCKET", "How processes of a box find each other.", flag,
         why="changes how NCCL starts only", acts_on=ActsOn.START, since="2.29"),
)  # fmt: skip
"""Every documented variable of NCCL that can matter on one box."""
