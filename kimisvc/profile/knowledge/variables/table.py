"""Every environment variable that is known, by name. One row each, in the tables below.

Which VLLM_* there are, and what they take, is known by the vLLM that will run.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.nccl.network import NCCL_NETWORK
from kimisvc.profile.knowledge.nccl.tuning import NCCL
from kimisvc.profile.knowledge.nccl.undocumented import NCCL_UNDOCUMENTED
from kimisvc.profile.knowledge.variables.cuda import CUDA
from kimisvc.profile.knowledge.variables.of_the_process import OF_THE_PROCESS
from kimisvc.profile.knowledge.variables.other_libraries import OTHER_LIBRARIES
from kimisvc.profile.knowledge.variables.python import PYTHON
from kimisvc.profile.knowledge.variables.row import ActsOn, Variable
from kimisvc.profile.knowledge.variables.vllm import VLLM

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VARIABLES", "ActsOn", "Variable"]

VARIABLES: Mapping[str, Variable] = MappingProxyType(
    {
        row.name: row
        for table in (
            NCCL,
            NCCL_NETWORK,
            NCCL_UNDOCUMENTED,
            CUDA,
            OTHER_LIBRARIES,
            PYTHON,
            OF_THE_PROCESS,
            VLLM,
        )
        for row in table
    }
)
"""Every known variable by its name."""
