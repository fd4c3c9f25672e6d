"""The variables of NCCL for traffic between boxes: one row each.

A service of kimisvc runs on one box, where NCCL uses its network for the first
handshake alone (or for all, if P2P and shared memory are both off).
"""

from __future__ import annotations

from functools import partial

from kimisvc.profile.knowledge.variables.grammar import (
    INT,
    distance,
    exact_words,
    flag,
    whole_number,
    words,
)
from kimisvc.profile.knowledge.variables.row import ActsOn, Variable
from kimisvc.records.profile import Risk

_FAMILY = exact_words("AF_INET", "AF_INET6", otherwise="NCCL would ignore it")
_natural = whole_number(0, INT)
_positive = whole_number(1, INT)
_byte = whole_number(0, 255)

network = partial(
    Variable,
    risk=Risk.SAFE,
    why="acts on traffic between boxes only",
    acts_on=ActsOn.NETWORK,
)
start = partial(
    Variable,
    risk=Risk.SAFE,
    why="acts on the handshake at NCCL's start only",
    acts_on=ActsOn.START,
)

NCCL_NETWORK: tuple[Variable, ...] = (
    # ------------------------------------------------------------ the handshake at start
    start("NCCL_SOCKET_IFNAME", "Network interfaces NCCL may use.", None),
    start("NCCL_SOCKET_FAMILY", "IPv4 or IPv6.", _FAMILY),
    start("NCCL_SOCKET_MAGIC", "Number both ends of a socket must agree on.", whole_number(0)),
    start("NCCL_SOCKET_RETRY_CNT", "How often NCCL tries to connect.", _positive, since="2.24"),
    start("NCCL_SOCKET_RETRY_SLEEP_MSEC", "Milliseconds between two tries.", _positive,
          since="2.24"),
    start("NCCL_SOCKET_POLL_TIMEOUT_MSEC", "Milliseconds NCCL waits in a poll.", _natural,
          since="2.28"),
    start("NCCL_COMM_ID", "Address where the first rank is found.", None),
    start("NCCL_UID_STAGGER_THRESHOLD", "Ranks above which connecting is spread out.", _positive,
          since="2.23"),
    start("NCCL_UID_STAGGER_RATE", "Messages a second when it is spread out.", _positive,
          since="2.23"),
    start("NCCL_OOB_NET_ENABLE", "1 shakes hands over NCCL's own network.", flag, since="2.23"),
    start("NCCL_OOB_NET_IFNAME", "Interfaces for that handshake.", None, since="2.23"),
    start("NCCL_NET", "Name of the network NCCL must use.", None, since="2.10"),
    start("NCCL_IB_DISABLE", "1 leaves InfiniBand alone.", flag),
    # ------------------------------------------------------------ sockets
    network("NCCL_SOCKET_NTHREADS", "Helper threads of a connection.", whole_number(1, 16)),
    network("NCCL_NSOCKS_PERTHREAD", "Sockets of a helper thread.", whole_number(1, 64)),
    network("NCCL_CROSS_NIC", "Whether a ring may change its network card.", whole_number(0, 2)),
    network("NCCL_NETDEVS_POLICY", "How network cards are given to GPUs.", None, since="2.28"),
    # ------------------------------------------------------------ InfiniBand and RoCE
    network("NCCL_IB_HCA", "Which cards NCCL may use.", None),
    network("NCCL_IB_RAIL_POLICY", "How rails are found.", None, since="2.30.5"),
    network("NCCL_IB_TIMEOUT", "Timeout of a message, as a power of two.",
            whole_number(0, 31, above="NCCL would wait for ever")),
    network("NCCL_IB_RETRY_CNT", "How often a message is sent again.", whole_number(0, 7)),
    network("NCCL_IB_GID_INDEX", "Index of the address in RoCE.", whole_number(-1, INT)),
    network("NCCL_IB_ADDR_FAMILY", "IPv4 or IPv6 of that address.", _FAMILY, since="2.21"),
    network("NCCL_IB_ADDR_RANGE", "Range that address must be in.", None, since="2.21"),
    network("NCCL_IB_ROCE_VERSION_NUM", "Version of RoCE.", _natural, since="2.21"),
    network("NCCL_IB_PKEY", "Index of the partition key.", _natural),
    network("NCCL_IB_PKEY_VALUE", "Value of the partition key.", whole_number(-1, 0xFFFF),
            since="2.31"),
    network("NCCL_IB_SL", "Service level.", whole_number(0, 15)),
    network("NCCL_IB_TC", "Traffic class.", _byte),
    network("NCCL_IB_FIFO_TC", "Traffic class of control messages.", _byte, since="2.22.3"),
    network("NCCL_IB_RETURN_ASYNC_EVENTS", "Whether fatal events end the traffic.", flag,
            since="2.23"),
    network("NCCL_IB_EVENT_BASED_LB", "1 shares load by the speed of the links.", flag,
            since="2.31"),
    network("NCCL_IB_AR_THRESHOLD", "Bytes above which routing adapts.", _natural, since="2.6"),
    network("NCCL_IB_OOO_RQ", "1 takes receive requests in any order.", flag, since="2.30"),
    network("NCCL_IB_QPS_PER_CONNECTION", "Queue pairs of a connection.", whole_number(1, 128),
            since="2.10"),
    network("NCCL_IB_SPLIT_DATA_ON_QPS", "1 splits each message over them.", flag, since="2.18"),
    network("NCCL_IB_CUDA_SUPPORT", "Forced GPU Direct RDMA.", flag, removed="2.4.0",
            instead="NCCL_NET_GDR_LEVEL"),
    network("NCCL_IB_GDR_LEVEL", "Old name of NCCL_NET_GDR_LEVEL.", distance, deprecated="2.4.0",
            instead="NCCL_NET_GDR_LEVEL"),
    network("NCCL_IB_PCI_RELAXED_ORDERING", "Whether PCI writes may be reordered.",
            whole_number(0, 2), since="2.12"),
    network("NCCL_IB_ADAPTIVE_ROUTING", "Whether routing adapts.", flag, since="2.16"),
    network("NCCL_IB_ECE_ENABLE", "Whether connections agree on options.", flag, since="2.23"),
    network("NCCL_IB_MERGE_NICS", "Whether two ports count as one card.", flag, since="2.20"),
    network("NCCL_NET_MERGE_POLICY", "Which cards may count as one.",
            words("ALL", "RAIL", otherwise="its manual knows two"), since="2.30.5"),
    # ------------------------------------------------------------ GPU memory and the network
    network("NCCL_NET_GDR_LEVEL", "Greatest distance of card and GPU for GPU Direct RDMA.",
            distance, since="2.3.4"),
    network("NCCL_NET_GDR_READ", "Whether cards read GPU memory.", flag),
    network("NCCL_NET_GDR_C2C", "Whether they do so over C2C.", flag, since="2.26"),
    network("NCCL_GDRCOPY_ENABLE", "1 maps GPU memory for the processor.", flag),
    network("NCCL_GDRCOPY_FIFO_ENABLE", "Whether the work queue lies there.", flag),
    network("NCCL_GDRCOPY_SYNC_ENABLE", "Whether heads and tails lie there.", flag),
    network("NCCL_GDRCOPY_FLUSH_ENABLE", "1 flushes by reading it.", flag),
    network("NCCL_DMABUF_ENABLE", "Whether dma-buf registers GPU memory.", flag, since="2.13"),
    network("NCCL_NET_SHARED_BUFFERS", "Whether peers share buffers.", flag, since="2.8"),
    network("NCCL_NET_SHARED_COMMS", "Whether connections are shared.", flag, since="2.12"),
    network("NCCL_P2P_NET_CHUNKSIZE", "Bytes of a message of send and receive.", _positive,
            since="2.14"),
    network("NCCL_ALLOC_P2P_NET_LL_BUFFERS", "1 gives each connection LL buffers.", flag,
            since="2.14"),
    network("NCCL_PXN_DISABLE", "1 forbids the card of another GPU.", flag, since="2.12"),
    network("NCCL_P2P_PXN_LEVEL", "When the card of another GPU is used.", whole_number(0, 2),
            since="2.12"),
    network("NCCL_PXN_C2C", "Whether that goes over C2C.", flag, since="2.27"),
    network("NCCL_IGNORE_NET_MISMATCH", "0 fails where boxes have other cards.", flag,
            since="2.30"),
    # ------------------------------------------------------------ several boxes as one
    network("NCCL_COLLNET_ENABLE", "1 lets the network reduce.", flag, since="2.6"),
    network("NCCL_COLLNET_NODE_THRESHOLD", "Boxes from which it does.", _natural, since="2.9.9"),
    network("NCCL_IGNORE_COLLNET_MISMATCH", "1 goes on where boxes differ.", flag, since="2.30"),
    network("NCCL_MNNVL_ENABLE", "Whether NVLink spans boxes.", whole_number(0, 2), since="2.21"),
    network("NCCL_MNNVL_UUID", "Identity of such a domain.", whole_number(), since="2.25"),
    network("NCCL_MNNVL_CLIQUE_ID", "Part of such a domain.", whole_number(), since="2.25"),
    network("NCCL_SYM_GIN_KERNELS_ENABLE", "Whether kernels use the network.", flag,
            since="2.29"),
    network("NCCL_RMA_EAGER_INIT", "1 sets up signals at start.", flag, since="2.31"),
    # ------------------------------------------------------------ gone
    network("NCCL_SINGLE_RING_THRESHOLD", "Bytes up to which one ring was used.", _natural,
            removed="2.3", instead="nothing: NCCL chooses by message size"),
    network("NCCL_LL_THRESHOLD", "Bytes up to which LL was used.", _natural, removed="2.5",
            instead="NCCL_PROTO"),
    network("NCCL_TREE_THRESHOLD", "Bytes up to which trees were used.", _natural,
            removed="2.5", instead="NCCL_ALGO"),
)  # fmt: skip
"""Every documented variable of NCCL's network, and those that the manual calls removed."""
