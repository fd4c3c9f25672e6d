"""Which folders a unit opens for writing, as systemd reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from systemd_reading import assignments, specifiers, words

from kimisvc.records.profile import Profile, ServiceSettings, VllmSettings
from kimisvc.render.units import render
from kimisvc.render.writable import mounted_folders, read_write_paths, targets

if TYPE_CHECKING:
    from kimisvc.records.units import Installation

HUB = Profile("p", VllmSettings("/opt/vllm/bin/vllm", "org/model"))
LOCAL = Profile("p", VllmSettings("/opt/vllm/bin/vllm", "/srv/model"))


def opened(profile: Profile = HUB, **rest: Any) -> tuple[str, ...]:
    return read_write_paths(replace(profile, **rest))


def test_a_profile_that_names_nothing_opens_nothing(
    templates: dict[str, str], place: Installation
) -> None:
    assert opened() == ()
    assert "ReadWritePaths" not in "".join(unit.text for unit in render(HUB, templates, place))


@pytest.mark.parametrize(
    ("env", "paths"),
    [
        ({"HF_HOME": "/srv/hf"}, ("/srv/hf",)),
        ({"HF_HOME": "/srv/hf/"}, ("/srv/hf",)),
        ({"TMPDIR": "/srv/tmp", "CUDA_CACHE_PATH": "/srv/cuda"}, ("-/srv/cuda", "-/srv/tmp")),
        ({"TRITON_CACHE_DIR": "/srv/a/t", "VLLM_CACHE_ROOT": "/srv/a"}, ("/srv/a",)),
        ({"TRITON_CACHE_DIR": "/srv/a/t", "TMPDIR": "/srv/a"}, ("/srv/a",)),
        ({"NCCL_DEBUG_FILE": "/var/log/nccl/%h.%p"}, ("-/var/log/nccl",)),
        ({"NCCL_DEBUG_FILE": "/var/log/nccl/%h/%p"}, ("-/var/log/nccl",)),
        ({"NCCL_DEBUG_FILE": "/srv/%h/x/%p"}, ()),
        ({"NCCL_TOPO_DUMP_FILE": "/data/100%/x.xml"}, ("-/data/100%%",)),
        ({"VLLM_CACHE_ROOT": "/data/a b"}, ('"/data/a b"',)),
        ({"TMPDIR": "/data/a b"}, ('"-/data/a b"',)),
        ({"TMPDIR": "/tmp/x", "NCCL_DEBUG_FILE": "/dev/stderr"}, ()),
        ({"VLLM_CACHE_ROOT": "/var/cache/kimisvc/kimi/x"}, ()),
        ({"VLLM_CACHE_ROOT": "/var/cache/kimisvc/other"}, ("/var/cache/kimisvc/other",)),
        ({"VLLM_CACHE_ROOT": "/home/me/x", "TMPDIR": "/root", "HF_HOME": "/run/user/1/x"}, ()),
        ({"VLLM_CACHE_ROOT": "/", "TMPDIR": "/var", "HF_HOME": "/etc/x"}, ()),
        ({"VLLM_CACHE_ROOT": "/data/../etc"}, ()),
        ({"VLLM_CACHE_ROOT": "~/x", "CUDA_LOG_FILE": "stderr", "TMPDIR": ""}, ()),
        ({"HUGGINGFACE_HUB_CACHE": "/data/hub"}, ("/data/hub",)),
        ({"TILELANG_CACHE_DIR": "/data/t", "TVM_FFI_CACHE_DIR": "/data/f"}, ("/data/f", "/data/t")),
        ({"TIKTOKEN_CACHE_DIR": "/data/t", "DATA_GYM_CACHE_DIR": "/data/g"}, ("/data/g", "/data/t")),
        ({"TORCH_TRACE": "/data/t", "CUTE_DSL_CACHE_DIR": "/data/c"}, ("-/data/c", "-/data/t")),
        ({"TORCH_LOGS_OUT": "/data/log/x", "TORCH_COMPILE_DEBUG_DIR": "/data/d"},
         ("-/data/d", "-/data/log")),
        ({"HUGGINGFACE_ASSETS_CACHE": "/data/a", "FLASHINFER_CUBIN_DIR": "/data/c"},
         ("-/data/a", "-/data/c")),
        ({"OUTLINES_CACHE_DIR": "/data/o"}, ("-/data/o",)),
        ({"VLLM_RPC_BASE_PATH": "/data/rpc"}, ("/data/rpc",)),
        ({"NOT_KNOWN": "/data/x"}, ()),
    ],
)  # fmt: skip
def test_a_variable_opens_what_it_names(env: dict[str, str], paths: tuple[str, ...]) -> None:
    assert opened(env=env) == paths


@pytest.mark.parametrize(
    "args",
    [
        {"download-dir": "/data/x"},
        {"download_dir": "/data/x"},
        {"compilation-config": {"cache_dir": "/data/x"}},
        {"compilation_config": '{"cache_dir": "/data/x"}'},
        {"compilation-config.cache_dir": "/data/x"},
    ],
)
def test_an_option_opens_what_it_names(args: dict[str, Any]) -> None:
    assert opened(args=args) == ("/data/x",)


def test_a_relative_path_is_one_below_the_working_directory() -> None:
    env = {"VLLM_CACHE_ROOT": "cache"}
    assert opened(env=env) == ()
    assert opened(env=env, service=ServiceSettings(working_directory="/srv/w")) == ("/srv/w/cache",)


def test_what_is_only_read_may_be_missing() -> None:
    env = {"HF_HOME": "/srv/hf"}
    assert opened(LOCAL, env=env) == ("-/srv/hf",)
    assert opened(LOCAL, env=env, args={"trust-remote-code": True}) == ("/srv/hf",)
    draft = {"speculative-config": {"model": "org/draft"}}
    assert opened(LOCAL, env=env, args=draft) == ("/srv/hf",)
    assert opened(HUB, env={**env, "HF_HUB_OFFLINE": "1"}) == ("-/srv/hf",)
    assert opened(HUB, env={**env, "TRANSFORMERS_OFFLINE": "1"}) == ("-/srv/hf",)
    assert opened(LOCAL, env=env, args={"lora-modules": ["a=/srv/a"]}) == ("-/srv/hf",)
    assert opened(LOCAL, env=env, args={"lora-modules": ["a=org/a"]}) == ("/srv/hf",)


OFFLINE = {"HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize(
    ("env", "folders"),
    [
        ({}, ()),
        ({"HF_HOME": "/srv/hf"}, ("/srv/hf",)),
        ({**OFFLINE, "HF_HOME": "/srv/hf"}, ("/srv/hf",)),
        # What is the whole box's is not opened; to be read it has to be mounted all the same.
        ({**OFFLINE, "HF_HOME": "/mnt"}, ("/mnt",)),
        ({**OFFLINE, "HF_HUB_CACHE": "/opt"}, ("/opt",)),
        ({**OFFLINE, "HF_HOME": "/usr/share/models"}, ("/usr/share/models",)),
        # A mount below a folder that is opened is one of its own.
        ({"VLLM_CACHE_ROOT": "/data", "HF_HOME": "/data/hf"}, ("/data", "/data/hf")),
        ({**OFFLINE, "VLLM_CACHE_ROOT": "/data", "HF_HOME": "/data/hf"}, ("/data", "/data/hf")),
        ({**OFFLINE, "TMPDIR": "/data", "HF_HOME": "/data/hf"}, ("/data/hf",)),
        ({"VLLM_CACHE_ROOT": "/data/", "HF_HOME": "/data"}, ("/data",)),
        ({"VLLM_RPC_BASE_PATH": "/data/rpc"}, ("/data/rpc",)),
        # What the service does without, has of its own or is not shown.
        ({"TMPDIR": "/data/t", "NCCL_DEBUG_FILE": "/data/l/%h"}, ()),
        ({"VLLM_CONFIG_ROOT": "/data/c"}, ()),
        ({"VLLM_CACHE_ROOT": "/var/cache/kimisvc/kimi/x", "HF_HOME": "/tmp/hf"}, ()),
        ({"VLLM_CACHE_ROOT": "/dev/shm/x", "HF_HOME": "/home/me/hf"}, ()),
        ({"VLLM_CACHE_ROOT": "~/x", "HF_HOME": "/data/../x"}, ()),
    ],
)  # fmt: skip
def test_what_has_to_be_mounted_is_each_folder_that_is_needed(
    env: dict[str, str], folders: tuple[str, ...]
) -> None:
    assert tuple(map(str, mounted_folders(replace(HUB, env=env)))) == folders


def test_a_local_model_needs_no_mount_of_a_hubs_cache() -> None:
    assert mounted_folders(replace(LOCAL, env={"HF_HOME": "/mnt"})) == ()


def test_a_unit_waits_for_what_it_reads_though_it_does_not_open_it(
    templates: dict[str, str], place: Installation
) -> None:
    profile = replace(HUB, env={**OFFLINE, "HF_HOME": "/mnt", "VLLM_CACHE_ROOT": "/data/a b"})
    text = render(profile, templates, place)[0].text
    said = [value for _, name, value in assignments(text) if name == "RequiresMountsFor"]
    assert '/opt/vllm/bin/vllm "/data/a b" /mnt' in " ".join(said)
    opened_ = [value for _, name, value in assignments(text) if name == "ReadWritePaths"]
    assert opened_ == ['"/data/a b"']


PATHS = st.lists(
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="/\x7f",
                          exclude_categories=("Cc", "Cs")), min_size=1),
    min_size=2, max_size=4,
).map(lambda parts: "/data/" + "/".join(parts))  # fmt: skip


@given(PATHS)
def test_any_folder_is_opened_as_it_is_written(path: str) -> None:
    profile = replace(HUB, env={"VLLM_CACHE_ROOT": path, "TMPDIR": f"{path}/t"})
    wanted = [target.folder for target in targets(profile)][:1]
    read = [specifiers(word) for word in words(" ".join(read_write_paths(profile)))]
    assert read == [str(one) for one in wanted if one is not None]
    assert wanted[0] is None or wanted[0] == PurePosixPath(path)


def test_a_unit_says_what_it_opens_and_is_the_same_every_time(
    templates: dict[str, str], place: Installation
) -> None:
    profile = replace(HUB, env={"VLLM_CACHE_ROOT": "/data/a b", "TMPDIR": "/srv/t"})
    first, second = (render(profile, templates, place)[0].text for _ in range(2))
    assert first == second
    said = [value for _, name, value in assignments(first) if name == "ReadWritePaths"]
    assert said == ['"/data/a b" -/srv/t']
