"""Variables that NCCL 2.32 reads and its manual does not tell of: by subject, one line each.

Their names are those the libraries 2.27.5, 2.28.9, 2.29.7, 2.30.7, 2.31.2 and
2.32.3 ask their environment for (the strings of libnccl.so). What no manual
promises may change its meaning with any version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.variables.grammar import flag, switch, whole_number, words
from kimisvc.profile.knowledge.variables.row import ActsOn, Variable
from kimisvc.records.profile import Risk

if TYPE_CHECKING:
    from kimisvc.profile.knowledge.variables.grammar import Grammar

_DOCUMENT = "NCCL 2.32 source"
_OLDER_DOCUMENT = "NCCL 2.27 to 2.31 source"
_WHY = (
    "is not documented: NCCL promises nothing about it, and wrong results were reported of such "
    "(nccl#2408)"
)

_SUBJECTS: tuple[tuple[str, ActsOn, str], ...] = (
    ("Bytes of each buffer of the LL protocol.", ActsOn.LL, "NCCL_LL_BUFFSIZE"),
    ("Buffers and threads of the LL128 protocol.", ActsOn.LL128,
     "NCCL_LL128_BUFFSIZE NCCL_LL128_NTHREADS NCCL_LL128_C2C"),
    ("Replaces the rings and trees that NCCL searches.", ActsOn.COLLECTIVES, "NCCL_GRAPH_FILE"),
    ("Writes the rings and trees that NCCL found to a file.", ActsOn.LOG,
     "NCCL_GRAPH_DUMP_FILE NCCL_GRAPH_DUMP_FILE_RANK NCCL_TOPO_DUMP_FILE_RANK"),
    ("Sizes and limits of the collectives.", ActsOn.COLLECTIVES,
     ("NCCL_PAT_ENABLE NCCL_SYM_CTAS NCCL_SYM_NOWIN_ENABLE "
     "NCCL_CHUNK_SIZE NCCL_THREAD_THRESHOLDS NCCL_WORK_FIFO_BYTES NCCL_WORK_ARGS_BYTES "
     "NCCL_PAT_NDIMS NCCL_SYM_KERNEL NCCL_SYM_CE_THRESHOLD NCCL_SYM_TMA_ENABLE "
     "NCCL_SYM_RS_GIN_CHUNK_SIZE NCCL_SYM_REUSE_SYSMEM_HANDLES NCCL_ALLGATHERV_ENABLE "
     "NCCL_ENQUEUE_REARCH_ENABLE NCCL_GRAPH_HELPER_DISABLE NCCL_L1_SHARED_MEMORY_CARVEOUT "
     "NCCL_CE_CHUNK_SIZE NCCL_CE_COLL_AG_MULTICAST_THRESHOLD NCCL_CE_INTRA_GPU_MEMCPY_ENABLE "
     "NCCL_HIER_CE_COLL_AG_RAIL_RING_ENABLE NCCL_HIER_CE_COLL_NUM_CTX NCCL_CFT_ENABLE "
     "NCCL_DEV_API_JIT NCCL_LSA_TEAM_SIZE NCCL_WIN_STRIDE NCCL_UNPACK_DOUBLE_NCHANNELS")),
    ("Sizes and ways of traffic between two GPUs.", ActsOn.P2P,
     ("NCCL_P2P_PCI_CHUNKSIZE NCCL_P2P_NVL_CHUNKSIZE NCCL_P2P_USE_CUDA_MEMCPY "
     "NCCL_P2P_READ_ENABLE NCCL_P2P_SCHEDULE_GROUP_SIZE NCCL_P2P_EPOCH_ENABLE NCCL_P2P_MAX_PEERS "
     "NCCL_P2P_PER_CHANNEL_NET_BW NCCL_P2P_PER_CHANNEL_REG_NET_BW NCCL_MIN_P2P_NCHANNELS "
     "NCCL_MAX_P2P_NCHANNELS NCCL_NCHANNELS_PER_NET_PEER")),
    ("1 keeps silent where P2P should work and does not.", ActsOn.P2P, "NCCL_IGNORE_DISABLED_P2P"),
    ("Ways of traffic through host memory.", ActsOn.COLLECTIVES, "NCCL_SHM_LOCALITY"),
    ("Sizes and channels of NVLink SHARP, and use of NVLink.", ActsOn.NVLINK,
     ("NCCL_NVLS_NCHANNELS NCCL_NVLS_CHUNKSIZE NCCL_NVLS_UB_SIZE NCCL_NVLSTREE_MAX_CHUNKSIZE "
     "NCCL_NVB_PRECONNECT NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE")),
    ("How memory is registered, kept and shared.", ActsOn.COLLECTIVES,
     ("NCCL_SINGLE_PROC_MEM_REG_ENABLE NCCL_MULTI_SEGMENT_REGISTER NCCL_ELASTIC_BUFFER_REGISTER "
     "NCCL_DISABLE_MEM_MANAGER NCCL_SHADOW_MEMPOOL_MAX_SIZE NCCL_COMM_SPLIT_SHARE_RESOURCES "
     "NCCL_COMM_SHRINK_SHARE_RESOURCES")),
    ("How NCCL starts, and how its threads run.", ActsOn.START,
     ("NCCL_GROUP_CUDA_STREAM NCCL_HOSTID NCCL_PROXY_CPUSET NCCL_PROXY_APPEND_BATCH_SIZE "
     "NCCL_PROGRESS_APPENDOP_FREQ NCCL_SET_CPU_STACK_SIZE NCCL_CONNECT_ROUND_MAX_PEERS "
     "NCCL_NET_PLUGIN_REF_COUNT NCCL_GIN_PLUGIN_REF_COUNT NCCL_RMA_PLUGIN_REF_COUNT "
     "NCCL_TOPO_SPLIT_MLOPART NCCL_ENABLE_VERSION_CHECK NCCL_NO_CACHE NCCL_IBVERBS_LIB")),
    ("What NCCL reports of itself.", ActsOn.LOG,
     ("NCCL_NVTX_DISABLE NCCL_WARN_ENABLE_DEBUG_INFO NCCL_PARAM_DUMP_ALL "
     "NCCL_REPORT_CONNECT_PROGRESS NCCL_PROXY_DUMP_SIGNAL NCCL_RMA_PROXY_DUMP_SIGNAL "
     "NCCL_PROGRESS_COUNTERS NCCL_PROGRESS_COUNTER_MONITOR_POLL_MS "
     "NCCL_PROGRESS_COUNTER_MONITOR_STALE_MS NCCL_PROGRESS_COUNTER_MONITOR_STALE_WARN_SEC "
     "NCCL_RUN_DIAGNOSTICS NCCL_RUN_RAS_DIAGNOSTICS NCCL_DIAGNOSTICS_ECC_THRESHOLD "
     "NCCL_DIAGNOSTICS_IB_BW_TIMEOUT")),
    ("Traffic between boxes.", ActsOn.NETWORK,
     ("NCCL_NET_OVERHEAD NCCL_NET_DISABLE_INTRA NCCL_NET_FORCE_FLUSH NCCL_NET_FORCE_MERGE "
     "NCCL_NET_MERGE_LEVEL NCCL_NET_OPTIONAL_RECV_COMPLETION NCCL_SOCKET_INLINE "
     "NCCL_SOCKET_MIN_TASKSIZE NCCL_SOCKET_RCVBUF NCCL_SOCKET_SNDBUF NCCL_GDR_FLUSH_DISABLE "
     "NCCL_GDRCOPY_USE_INTERNAL_DMABUF NCCL_MNNVL_CROSS_CLIQUE NCCL_MNNVL_RAIL_PER_HOST "
     "NCCL_MNNVL_SCATTER_NETS_ENABLE")),
    ("InfiniBand.", ActsOn.NETWORK,
     ("NCCL_IB_DATA_DIRECT NCCL_IB_DEVICE_PCI_ORDER NCCL_IB_EVENT_BASED_LB_REMOTE "
     "NCCL_IB_MERGE_VFS NCCL_IB_MQP_RETRY_ALL NCCL_IB_MQP_RETRY_CNT NCCL_IB_MQP_RETRY_SLEEP_MSEC "
     "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS NCCL_IB_QUERY_PORT_SPEED "
     "NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME NCCL_IB_RESILIENCY_PORT_FAILOVER "
     "NCCL_IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS NCCL_IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY NCCL_IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT "
     "NCCL_IB_RESILIENCY_PORT_RECOVERY_START_DELAY NCCL_IB_ROUTABLE_FLID_GID_INDEX "
     "NCCL_IB_SORT_MERGE_NICS NCCL_IB_SUBNET_AWARE_ROUTING NCCL_IB_SUBNET_PREFIX_LEN "
     "NCCL_IB_USE_INLINE NCCL_IB_WARN_RAIL_LOCAL NCCL_IB_WQE_LATENCY_REPORT "
     "NCCL_IB_WQE_LATENCY_THRESHOLD_NS")),
    ("Networking from the GPU, and one-sided operations.", ActsOn.NETWORK,
     ("NCCL_GIN_ENABLE NCCL_GIN_TYPE NCCL_GIN_NCONNECTIONS NCCL_GIN_ERROR_QUERY_SEC "
     "NCCL_GIN_IB_TC NCCL_GIN_IB_OOO_OPT NCCL_GIN_GDAKI_NIC_HANDLER NCCL_GIN_GDAKI_QP_DEPTH "
     "NCCL_GIN_GDAKI_LAG_AWARE_DISABLE NCCL_GIN_GDAKI_MAX_DEST_RD_ATOMIC "
     "NCCL_GIN_GDAKI_MAX_QP_RD_ATOMIC NCCL_GIN_PROXY_NTHREADS NCCL_GIN_PROXY_POLL_BATCH "
     "NCCL_GIN_PROXY_QUEUE_SIZE NCCL_GDAKI_FORCE_MCST NCCL_GDAKI_USE_RELIABLE_DB "
     "NCCL_RMA_DISABLE NCCL_RMA_IB_WR_BATCHSIZE NCCL_RMA_MULTI_CTX_THRESHOLD "
     "NCCL_RMA_PROXY_QUEUE_SIZE NCCL_NUM_RMA_CTX NCCL_NUM_RMA_INT_CTX")),
)  # fmt: skip

_GONE: tuple[tuple[str, ActsOn, str, str], ...] = (
    ("Copies through host memory with the GPU's copy engines, and on which side.",
     ActsOn.COLLECTIVES, "2.30", "NCCL_SHM_USE_CUDA_MEMCPY NCCL_SHM_MEMCPY_MODE"),
    ("Gave the proxy thread a CUDA context of its own.", ActsOn.START, "2.30",
     "NCCL_CREATE_THREAD_CONTEXT"),
    ("Sizes of networking from the GPU.", ActsOn.NETWORK, "2.30",
     ("NCCL_GIN_COUNTER_POOL_SIZE NCCL_GIN_SIGNAL_POOL_SIZE NCCL_GIN_NCONTEXTS "
     "NCCL_GIN_EXCLUSIVE_CONTEXTS")),
    ("Which network cards GPUs, and parts of one, use.", ActsOn.NETWORK, "2.32",
     "NCCL_MLOPART_RDMA_ENABLE NCCL_NET_GDR_MLOPART NCCL_TOPO_SCATTER_START_NET"),
)  # fmt: skip
"""What NCCL 2.27 to 2.31 read, the first version that does not, and the variables."""

_whole = whole_number()
_OTHER_GRAMMARS: dict[str, Grammar | None] = {
    # Text: a file, a host, a list, a word (ncclGetEnv in src/graph, src/misc, src/tuning).
    **dict.fromkeys(
        ("NCCL_GRAPH_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_THREAD_THRESHOLDS", "NCCL_SYM_KERNEL",
         "NCCL_HOSTID", "NCCL_PROXY_CPUSET", "NCCL_NO_CACHE", "NCCL_IBVERBS_LIB",
         "NCCL_NET_FORCE_MERGE", "NCCL_NET_MERGE_LEVEL")
    ),
    # How NCCL reads these is in no source that was at hand.
    **dict.fromkeys(
        ("NCCL_PAT_NDIMS", "NCCL_CE_INTRA_GPU_MEMCPY_ENABLE", "NCCL_IB_EVENT_BASED_LB_REMOTE",
         "NCCL_IB_SORT_MERGE_NICS", "NCCL_RMA_IB_WR_BATCHSIZE", "NCCL_GIN_EXCLUSIVE_CONTEXTS",
         "NCCL_TOPO_SCATTER_START_NET")
    ),
    # More than on and off: 2 or less than 0 leaves the choice to NCCL.
    **dict.fromkeys(
        ("NCCL_PAT_ENABLE", "NCCL_P2P_READ_ENABLE", "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE",
         "NCCL_HIER_CE_COLL_AG_RAIL_RING_ENABLE"), _whole
    ),
    # Truth since they are typed (src/include/param/parser_default.h); the second was a number
    # before, as which "true" is 0: only 0 and 1 mean the same to every version.
    "NCCL_PARAM_DUMP_ALL": words("1", "0", "true", "false", "T", "F",
                                 otherwise="NCCL would keep its default"),
    "NCCL_WARN_ENABLE_DEBUG_INFO": switch,
}  # fmt: skip
"""The grammar of each that is not read as a number is by NCCL_PARAM; None takes every text."""


def _syntax(name: str) -> Grammar | None:
    """A number as NCCL_PARAM reads it, and of *_ENABLE and *_DISABLE 0 or 1 (src/misc/param.cc)."""
    if name in _OTHER_GRAMMARS:
        return _OTHER_GRAMMARS[name]
    return flag if name.endswith(("_ENABLE", "_DISABLE")) else _whole


def _judged(name: str, does: str, acts_on: ActsOn, removed: str = "") -> Variable:
    if acts_on is ActsOn.LOG:
        risk, why = Risk.SAFE_ISH, "is not documented; changes what NCCL reports only"
    elif acts_on is ActsOn.NETWORK:
        risk, why = Risk.SAFE_ISH, "is not documented; acts on traffic between boxes only"
    else:
        risk, why = Risk.RISKY, _WHY
    return Variable(
        name, does, _syntax(name), risk, why, acts_on,
        document=_DOCUMENT if not removed else _OLDER_DOCUMENT,
        removed=removed, instead="nothing: no version since has it" if removed else "",
    )  # fmt: skip


NCCL_UNDOCUMENTED: tuple[Variable, ...] = (
    *(_judged(name, does, on) for does, on, names in _SUBJECTS for name in names.split()),
    *(_judged(name, does, on, gone) for does, on, gone, names in _GONE for name in names.split()),
)
"""Every variable that NCCL reads without documenting it."""
