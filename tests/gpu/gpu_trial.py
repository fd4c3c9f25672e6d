"""A small program that needs of a box what vLLM needs: run as a unit, it shows what hardening allows.

Every GPU multiplies, one compiles a kernel and runs it, and all add up their ranks through NCCL.
Prints one line of JSON. `gpu_trial.py 0` does the same on the processor.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import traceback
from typing import Any


def work(rank: int, gpus: int, meeting: str, folder: str) -> None:
    """Do the part of one rank; leave what came of it in a file of its own."""
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    found: dict[str, Any] = {}
    try:
        ranks = max(gpus, 1)
        device = torch.device("cuda", rank) if gpus else torch.device("cpu")
        if gpus:
            torch.cuda.set_device(device)
        ones = torch.ones(512, 512, device=device)
        found["multiplies"] = bool((ones @ ones == 512).all())
        dist.init_process_group(
            "nccl" if gpus else "gloo", f"file://{meeting}", rank=rank, world_size=ranks
        )
        sum_of_ranks = torch.tensor([float(rank)], device=device)
        dist.all_reduce(sum_of_ranks)
        found["adds_up"] = sum_of_ranks.item() == sum(range(ranks))
        if rank == 0 and gpus:
            doubled = torch.compile(lambda x: (x * 2 + 1).relu())(ones)
            found["compiles"] = bool((doubled == 3).all())
        dist.destroy_process_group()
    except Exception:  # noqa: BLE001 - what failed, and with which words, is the finding
        found["error"] = traceback.format_exc()[-1500:]
    with open(os.path.join(folder, f"{rank}.json"), "w", encoding="utf-8") as file:  # noqa: PTH118, PTH123
        json.dump(found, file)


def main() -> int:
    """Run all ranks; print what came of each."""
    gpus = int(sys.argv[1])
    mp: Any = importlib.import_module("torch.multiprocessing")
    with tempfile.TemporaryDirectory() as folder:
        words = ""
        try:
            mp.spawn(work, (gpus, f"{folder}/meeting", folder), nprocs=max(gpus, 1))
        except Exception as error:  # noqa: BLE001 - as above
            words = str(error)[-1500:]
        ranks = {}
        for rank in range(max(gpus, 1)):
            path = f"{folder}/{rank}.json"
            if os.path.exists(path):  # noqa: PTH110 - runs with a plain Python
                with open(path, encoding="utf-8") as file:  # noqa: PTH123
                    ranks[rank] = json.load(file)
    well = len(ranks) == max(gpus, 1) and not any("error" in told for told in ranks.values())
    print(json.dumps({"well": well and not words, "ranks": ranks, "error": words}))  # noqa: T201
    return 0 if well and not words else 1


if __name__ == "__main__":
    sys.exit(main())
