"""The tables of NCCL's variables, and what is said of a profile's [env] from them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loading import load

from kimisvc.profile.knowledge.nccl.network import NCCL_NETWORK
from kimisvc.profile.knowledge.nccl.tuning import NCCL
from kimisvc.profile.knowledge.nccl.undocumented import NCCL_UNDOCUMENTED
from kimisvc.profile.knowledge.risk.limit import risk_findings
from kimisvc.profile.knowledge.variables import near_names
from kimisvc.profile.knowledge.variables.check import variable_findings
from kimisvc.profile.knowledge.variables.conflicts import conflicts
from kimisvc.profile.knowledge.variables.elsewhere import READ_BY_OTHERS
from kimisvc.profile.knowledge.variables.near_names import like_variable, near_variable
from kimisvc.profile.knowledge.variables.slips import edits, nearest
from kimisvc.profile.knowledge.variables.table import VARIABLES, ActsOn, Variable
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, HardwareSettings, Link, Profile, Risk, VllmSettings

SHIPPED = Path(__file__).parents[3] / "profiles"


def draft(env: dict[str, str], link: Link = Link.PCIE) -> Profile:
    args: dict[str, ArgValue] = {"tensor-parallel-size": 8}
    return Profile(
        name="p",
        vllm=VllmSettings("/v/bin/vllm", "/m"),
        args=args,
        env=env,
        hardware=HardwareSettings(gpus=8, link=link),
    )


def errors(**env: str) -> list[str]:
    return [
        f"{finding.path[-1]}: {finding.message}"
        for finding in variable_findings(draft(env))
        if finding.severity is Severity.ERROR
    ]


# ---------------------------------------------------------------- the tables


def test_no_variable_has_two_rows() -> None:
    rows = [row.name for row in (*NCCL, *NCCL_NETWORK, *NCCL_UNDOCUMENTED)]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("NCCL_SYM_CTAS", ""), ("NCCL_PAT_ENABLE", ""), ("NCCL_SYM_NOWIN_ENABLE", ""),
        ("NCCL_SHM_USE_CUDA_MEMCPY", "2.30"), ("NCCL_SHM_MEMCPY_MODE", "2.30"),
        ("NCCL_CREATE_THREAD_CONTEXT", "2.30"),
    ],
)  # fmt: skip
def test_what_nccl_reads_is_not_called_unread(name: str, gone: str) -> None:
    told = [finding.message for finding in variable_findings(draft({name: "1"}))]
    assert not any("known to read" in message for message in told)
    assert any(f"has no effect since NCCL {gone}." in message for message in told) == bool(gone)
    (finding,) = risk_findings(draft({name: "1"}))
    assert "is not documented" in finding.message


@pytest.mark.parametrize("row", VARIABLES.values(), ids=lambda row: row.name)
def test_every_row_says_what_why_and_where_from(row: Variable) -> None:
    assert row.does.endswith(".")
    assert row.why
    assert not row.why.endswith(".")
    assert row.source.endswith(f", {row.name}")
    assert len(row.document) > 5
    assert not (row.removed or row.deprecated) or row.instead
    for version in (row.since, row.removed, row.deprecated):
        assert re.fullmatch(r"|([A-Za-z_]+ )?[0-9]+(\.[0-9]+){1,2}", version)


@pytest.mark.parametrize("row", VARIABLES.values(), ids=lambda row: row.name)
def test_what_a_row_calls_harmless_is_legal(row: Variable) -> None:
    assert [value for value in row.harmless if row.syntax and row.syntax(value)] == []


def test_a_replacement_is_a_variable_that_is_known() -> None:
    for row in VARIABLES.values():
        if re.fullmatch("NCCL_[A-Z_]+", row.instead):
            assert row.instead in VARIABLES


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_BUFFSIZE",
        "NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_CROSS_NIC",
        "NCCL_SOCKET_NTHREADS", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_NTHREADS",
        "NCCL_GRAPH_FILE", "NCCL_TUNER_PLUGIN", "NCCL_ENV_PLUGIN", "NCCL_CHUNK_SIZE",
        "NCCL_IGNORE_DISABLED_P2P", "NCCL_LAUNCH_MODE", "NCCL_GRAPH_MIXING_SUPPORT",
        "NCCL_CHECKS_DISABLE", "NCCL_LL_BUFFSIZE", "NCCL_CONF_FILE",
    ],
)  # fmt: skip
def test_variables_that_people_set_are_known(name: str) -> None:
    assert name in VARIABLES


@pytest.mark.parametrize("row", NCCL_NETWORK, ids=lambda row: row.name)
def test_the_network_table_acts_on_the_network_or_the_start(row: Variable) -> None:
    assert row.acts_on in (ActsOn.NETWORK, ActsOn.START)


# ---------------------------------------------------------------- illegal values


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NCCL_BUFFSIZE", "16M", "would be read as 16.*Write 16777216$"),
        ("NCCL_BUFFSIZE", "16MB", "would be read as 16.*Write 16777216$"),
        ("NCCL_BUFFSIZE", "16_777_216", "would be read as 16.*Write 16777216$"),
        ("NCCL_BUFFSIZE", "1e7", "would be read as 1:.*Write 10000000$"),
        ("NCCL_BUFFSIZE", "16777216 # 16 MiB", "would be read as 16777216.*Write 16777216$"),
        ("NCCL_P2P_LEVEL", "sys", "ignored without a word.*Write SYS$"),
        ("NCCL_P2P_LEVEL", "NODE", "ignored without a word"),
        ("NCCL_P2P_LEVEL", "2", "read as PXB. Write PXB$"),
        ("NCCL_P2P_DISABLE", "true", "would read 0. Write 1$"),
        ("NCCL_ALGO", "Rings", "ncclInvalidUsage.*Write Ring$"),
        ("NCCL_ALGO", "ring;tree", "ncclInvalidUsage.*only the first list"),
        ("NCCL_PROTO", "LL64", 'ncclInvalidUsage.*"LL64" is no protocol.*LL, LL128, Simple'),
    ],
)
def test_public_case_30_is_refused_with_what_nccl_would_use(
    name: str, value: str, message: str
) -> None:
    (told,) = errors(**{name: value})
    assert re.search(f"^{name}: .*{message}", told)


READ_AS_TEXT = {
    "NCCL_GRAPH_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_THREAD_THRESHOLDS", "NCCL_SYM_KERNEL",
    "NCCL_HOSTID", "NCCL_PROXY_CPUSET", "NCCL_NO_CACHE", "NCCL_IBVERBS_LIB",
    "NCCL_NET_FORCE_MERGE", "NCCL_NET_MERGE_LEVEL",
}  # fmt: skip
READ_WHO_KNOWS_HOW = {
    "NCCL_PAT_NDIMS", "NCCL_CE_INTRA_GPU_MEMCPY_ENABLE", "NCCL_IB_EVENT_BASED_LB_REMOTE",
    "NCCL_IB_SORT_MERGE_NICS", "NCCL_RMA_IB_WR_BATCHSIZE", "NCCL_GIN_EXCLUSIVE_CONTEXTS",
    "NCCL_TOPO_SCATTER_START_NET",
}  # fmt: skip


@pytest.mark.parametrize("row", NCCL_UNDOCUMENTED, ids=lambda row: row.name)
def test_a_number_without_a_manual_is_read_as_every_other(row: Variable) -> None:
    told = [errors(**{row.name: value}) for value in ("16M", "1e6", "010", "yes")]
    if row.name in READ_AS_TEXT | READ_WHO_KNOWS_HOW:
        assert told == [[]] * 4
    else:
        assert [len(some) for some in told] == [1] * 4
    assert [errors(**{row.name: value}) for value in ("", "0", "1")] == [[]] * 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_PARAM_DUMP_ALL", "true"), ("NCCL_PARAM_DUMP_ALL", "F"), ("NCCL_PAT_ENABLE", "2"),
        ("NCCL_P2P_READ_ENABLE", "-2"), ("NCCL_GIN_TYPE", "-1"), ("NCCL_NVLS_UB_SIZE", "0x100000"),
        ("NCCL_HIER_CE_COLL_AG_RAIL_RING_ENABLE", "-1"), ("NCCL_PROXY_DUMP_SIGNAL", "10"),
        ("NCCL_WORK_ARGS_BYTES", str(2**63 - 1)),
    ],
)  # fmt: skip
def test_a_value_without_a_manual_that_nccl_takes_passes(name: str, value: str) -> None:
    assert errors(**{name: value}) == []


@pytest.mark.parametrize("value", ["true", "2"])
def test_a_switch_that_was_a_number_once_takes_what_every_version_reads(value: str) -> None:
    (told,) = errors(NCCL_WARN_ENABLE_DEBUG_INFO=value)
    assert "is neither 0 nor 1. Write" in told


def test_public_case_31_needs_a_list_for_all_collectives() -> None:
    (told,) = errors(NCCL_ALGO="allreduce:tree", NCCL_PROTO="Simple")
    assert "since NCCL 2.31" in told
    assert told.endswith("Write a list for all first: ring,tree;allreduce:tree")
    assert errors(NCCL_ALGO="ring,tree;allreduce:tree", NCCL_PROTO="Simple") == []
    assert errors(NCCL_ALGO="allreduce:tree", NCCL_PROTO="allreduce:Simple") == []
    assert errors(NCCL_ALGO="Ring", NCCL_PROTO="LL") == []


def test_a_collective_that_nobody_names_keeps_its_algorithms() -> None:
    """So say the rule (no error), the risk (no worse than the row) and what explain prints."""
    only = draft({"NCCL_ALGO": "allreduce:ring"})
    assert errors(NCCL_ALGO="allreduce:ring") == []
    assert list(risk_findings(only)) == []
    assert "a collective that NCCL_PROTO names and this does not" in VARIABLES["NCCL_ALGO"].changed
    assert errors(NCCL_ALGO="allreduce:ring", NCCL_PROTO="allgather:LL")


@pytest.mark.parametrize(
    ("env", "end"),
    [
        ({"NCCL_MAX_CTAS": "128"}, "NCCL would use 64 (32 before 2.25). Write a whole number "),
        ({"NCCL_MAX_NCHANNELS": "0"}, "NCCL would use 1. Write a whole number from 1 to 64"),
        ({"NCCL_NTHREADS": "1024"}, "NCCL would use 512"),
        ({"NCCL_BUFFSIZE": str(2**32)}, "NCCL keeps sizes in 32 bits"),
        ({"NCCL_DEBUG": "verbose"}, "NCCL would log nothing"),
        ({"NCCL_MIN_CTAS": "8", "NCCL_MAX_CTAS": "4"}, "Lower the one or raise the other"),
        ({"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}, "are 128 sockets"),
        ({"NCCL_SOCKET_NTHREADS": "13", "NCCL_NSOCKS_PERTHREAD": "5"}, "are 65 sockets"),
        ({"NCCL_DEBUG_FILE": "~/nccl.log"}, "no shell reads it"),
    ],
)
def test_other_mistakes_are_told_once(env: dict[str, str], end: str) -> None:
    (told,) = errors(**env)
    assert end in told


def test_as_many_sockets_as_nccl_takes_are_not_too_many() -> None:
    assert errors(NCCL_SOCKET_NTHREADS="16", NCCL_NSOCKS_PERTHREAD="4") == []


@pytest.mark.parametrize("none", ["0", "-1"])
def test_a_cap_that_caps_nothing_contradicts_no_floor(none: str) -> None:
    for unit in ("CTAS", "NCHANNELS"):
        env = {f"NCCL_MIN_{unit}": "4", f"NCCL_MAX_{unit}": none}
        assert list(conflicts(draft(env))) == []
        assert len(list(conflicts(draft(env | {f"NCCL_MAX_{unit}": "1"})))) == 1


def test_a_secret_is_refused_and_not_shown() -> None:
    (told,) = errors(NCCL_PSK="correct-horse-battery")
    assert "is a secret" in told
    assert "horse" not in told


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_PORTO", "NCCL_PROTO"),
        ("NCCL_BUFFER_SIZE", "NCCL_BUFFSIZE"),
        ("NCCL_MAX_CHANNELS", "NCCL_MAX_NCHANNELS"),
        ("NCCL_P2PLEVEL", "NCCL_P2P_LEVEL"),
        ("NCLL_PROTO", "NCCL_PROTO"),
        ("nccl_proto", "NCCL_PROTO"),
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("NCCL_PROTOCOL", "NCCL_PROTO"),
        ("NCCL_PROTOCOLS", "NCCL_PROTO"),
        ("NCCL_ALGORITHM", "NCCL_ALGO"),
        ("CDUA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        ("OMP_NUM_THREAD", "OMP_NUM_THREADS"),
        ("LD_PRELOAD_", "LD_PRELOAD"),
        ("PYTORCH_CUDA_ALLOC", "PYTORCH_CUDA_ALLOC_CONF"),
        ("PYTORCH_ALLOC", "PYTORCH_ALLOC_CONF"),
    ],
)
def test_near_names_are_refused(name: str, meant: str) -> None:
    assert errors(**{name: "1"}) == [
        (
            f"{name}: is read by nothing, and nothing says so. Did you mean {meant}? "
            f'If the name is meant: allow_risky = ["{name}"]'
        )
    ]


def test_a_name_that_is_meant_may_be_let_pass() -> None:
    profile = replace(draft({"NCCL_PORTO": "1"}), allow_risky=("NCCL_PORTO",))
    assert list(variable_findings(profile)) == []
    assert list(risk_findings(profile)) == []
    more = draft({"NCCL_PORTO": "1", "NCCL_ALGO": "Tree"})
    (finding,) = variable_findings(replace(more, allow_risky=("NCCL_ALGO", "NO_SUCH")))
    assert finding.message.endswith('allow_risky = ["NCCL_ALGO", "NCCL_PORTO"]')


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_no_known_name_would_have_been_a_slip_of_the_others(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the next NCCL brings is as like the names of today as those are like each other."""
    others = {other: row for other, row in VARIABLES.items() if other != name}
    monkeypatch.setattr(near_names, "VARIABLES", others)
    assert near_variable(name) == ""


@pytest.mark.parametrize(
    ("text", "known", "near"),
    [
        ("MXA_CTAS", "MAX_CTAS", True),
        ("MIN_CTAS", "MAX_CTAS", False),
        ("WIN_ENABLE", "GIN_ENABLE", False),
        ("LL_BUFFSIZE", "BUFFSIZE", False),
        ("BUFSIZE", "BUFFSIZE", True),
        ("BUFFSZIES", "BUFFSIZE", True),
        ("CUFFSIZES", "BUFFSIZE", False),  # two slips, one of them in the first letter
        ("CUFFSIZE", "BUFFSIZE", True),
        ("ALGORITM", "ALGO", False),
        ("PRTOO", "PROTO", True),
        ("ENABLXX", "ENABLED", False),
        ("ENABLXXE", "ENABLEDE", True),
        ("PROXX", "PROTO", False),
    ],
)
def test_how_like_names_have_to_be(text: str, known: str, near: bool) -> None:  # noqa: FBT001 - a row
    assert nearest(text, [known]) == (known if near else "")


@pytest.mark.parametrize(
    "name",
    [
        "RCCL_PROTO", "NCCLX_ALGO", "GOMP_STACKSIZE", "HF_TOKEN_PATH", "HF_ASSETS_CACHE", "OFI_NCCL_X",
        "CUDNN_LOGINFO_DBG", "CUDA_VERSION", "OMP_NUM_TEAMS", "LD_BIND_NOW", "PYTORCH_JIT",
        "PATH", "HOME", "A", "_", "XPATH", "USERS", "HOMES", "KMP_NUM_THREADS",
        "TORCH_CUDA_ARCH_LIST", "VLLM_NCCL_PROTO", "VLLM_PORTS",
        "NVIDIA_DRIVER_CAPABILITIES", "TZ", "TMPDIR", "MY_APP_DEBUG", "UCX_TLS", "GLOO_SOCKET_IFNAME",
    ],
)  # fmt: skip
def test_names_of_others_are_left_alone(name: str) -> None:
    assert list(variable_findings(draft({name: "/x"}))) == []


@pytest.mark.parametrize("name", sorted(READ_BY_OTHERS))
def test_no_name_that_others_read_is_a_slip(name: str) -> None:
    assert list(variable_findings(draft({name: "/x"}))) == []


ON_BOXES = """
AIRFLOW_HOME ANTHROPIC_API_BASE APP_ENV AZURE_CLIENT_ID BASH_ENV BROWSER CC CFLAGS CI
CONDA_PREFIX CXX DATABASE_URL DEBIAN_FRONTEND DISPLAY DOCKER_HOST EDITOR ENVIRONMENT ETCDCTL_API
FLASK_APP GCC_COLORS GIT_SSH_COMMAND GOMAXPROCS GOOGLE_CLOUD_PROJECT HISTSIZE HOSTNAME
JAVA_HOME JAX_PLATFORMS JOURNAL_STREAM KUBECONFIG LD_DEBUG LESS LITELLM_LOG LLM_LOGGING_LEVEL
LMCACHE_CHUNK_SIZE LMCACHE_CONFIG_FILE LS_COLORS MAILTO MAKEFLAGS MOONCAKE_CONFIG_PATH MPLBACKEND
NODE_ENV NO_COLOR NVCC_APPEND_FLAGS NVM_DIR OMPI_COMM_WORLD_RANK OPENAI_BASE_URL PAGER PIP_INDEX_URL
PKG_CONFIG_PATH PMIX_RANK PS1 PWD PYENV_ROOT RUSTFLAGS SGLANG_LOGGING_LEVEL SLURM_JOB_ID
SSH_AUTH_SOCK STREAMLIT_SERVER_PORT TF_CPP_MIN_LOG_LEVEL TRT_LLM_LOG_LEVEL UV_CACHE_DIR
VIRTUAL_ENV WANDB_MODE WATCHDOG_USEC XLA_FLAGS ZES_ENABLE_SYSMAN
"""
"""Names that were seen in environments of services, shells, schedulers and other servers."""


@pytest.mark.parametrize("name", ON_BOXES.split())
def test_names_that_boxes_have_are_no_slips(name: str) -> None:
    assert list(variable_findings(draft({name: "x"}))) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TORCH_NCCL_BLOCKING_WAT", "TORCH_NCCL_BLOCKING_WAIT"),
        ("MKL_NUM_THREAD", "MKL_NUM_THREADS"),
        ("PYTHONPTH", "PYTHONPATH"),
        ("CUBLAS_WORKSPACE_CONFG", "CUBLAS_WORKSPACE_CONFIG"),
        ("NVIDIA_TF32_OVRIDE", "NVIDIA_TF32_OVERRIDE"),
        ("TRITON_CACHE_DR", "TRITON_CACHE_DIR"),
        ("TRITN_CACHE_DR", "TRITON_CACHE_DIR"),
        ("GLOO_SOCKET_IFNAM", "GLOO_SOCKET_IFNAME"),
        ("KMP_AFFINTY", "KMP_AFFINITY"),
        ("KMP_BLOCKTIM", "KMP_BLOCKTIME"),
        ("GOMP_CPU_AFINITY", "GOMP_CPU_AFFINITY"),
        ("LANGG", "LANG"),
        ("HOOME", "HOME"),
        ("VLMM_LOGGING_LEVEL", "VLLM_LOGGING_LEVEL"),
        ("VLL_LOGGING_LEVEL", "VLLM_LOGGING_LEVEL"),
    ],
)
def test_a_name_of_any_family_may_be_a_slip(name: str, meant: str) -> None:
    (finding,) = variable_findings(draft({name: "1"}))
    assert finding.severity is Severity.WARNING
    assert finding.message == (
        f"is read by nothing known here. Did you mean {meant}? "
        f'If the name is meant: allow_risky = ["{name}"]'
    )
    assert list(variable_findings(replace(draft({name: "1"}), allow_risky=(name,)))) == []


@given(st.sampled_from(sorted(VARIABLES)), st.data())
def test_a_known_name_without_one_of_its_letters_is_not_passed_over(
    name: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(1, len(name) - 1))
    slip = name[:at] + name[at + 1 :]
    family = slip.partition("_")[0]
    if len(slip) < 5 or slip in VARIABLES or family in ("KMP", "LLM", "VLLM", *near_names.FAMILIES):
        return
    assert near_variable(slip) or like_variable(slip)


def test_an_unknown_name_of_nccl_is_warned_of() -> None:
    (finding,) = variable_findings(draft({"NCCL_FASTER": "1"}))
    assert finding.severity is Severity.WARNING
    assert "ignores unknown names" in finding.message


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_a_known_name_is_never_a_near_miss(name: str) -> None:
    assert near_variable(name) == name


@given(st.text("ABC", max_size=6), st.text("ABC", max_size=6))
def test_edits_are_few_or_not_whichever_text_comes_first(one: str, other: str) -> None:
    for most in (0, 1, 2):
        assert edits(one, other, most) == edits(other, one, most)
    assert edits(one, other, 0) == (one == other)
    for at in range(len(one) - 1):
        assert edits(one, one[:at] + one[at + 1] + one[at] + one[at + 2 :], 1)
    for at in range(len(one)):
        assert edits(one, one[:at] + one[at + 1 :], 1)


def test_old_names_are_told_with_the_new() -> None:
    found = {
        finding.path[-1]: finding.message
        for finding in variable_findings(
            draft({"NCCL_MIN_NCHANNELS": "4", "NCCL_TREE_THRESHOLD": "0"})
        )
    }
    assert found == {
        "NCCL_MIN_NCHANNELS": "is deprecated since NCCL 2.17. Use NCCL_MIN_CTAS",
        "NCCL_TREE_THRESHOLD": "has no effect since NCCL 2.5. Use NCCL_ALGO",
    }


# ---------------------------------------------------------------- everything


@given(
    st.dictionaries(
        st.sampled_from(sorted(VARIABLES)) | st.from_regex("(NCCL|CUDA|X)_[A-Z_0-9]{0,30}"),
        st.text(max_size=30) | st.text("0123456789xkMLSimpleRing,;:^ ", max_size=30),
        max_size=6,
    ),
    st.sampled_from(Link),
)
def test_no_environment_makes_it_raise(env: dict[str, str], link: Link) -> None:
    profile = draft(env, link)
    for finding in (*variable_findings(profile), *risk_findings(profile)):
        assert finding.message
        assert finding.path[1] in env


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_profiles_have_warnings_at_most(path: Path) -> None:
    profile = load(path, SHIPPED)
    found = [*variable_findings(profile), *risk_findings(profile)]
    assert profile.max_risk is Risk.SAFE_ISH
    assert [finding.message for finding in found if finding.severity is Severity.ERROR] == []


def test_a_caret_before_all_names_leaves_nothing() -> None:
    (fault,) = errors(NCCL_PROTO="^LL,LL128,Simple")
    assert '"^LL,LL128,Simple" leaves nothing for AllReduce' in fault
    (fault,) = errors(NCCL_PROTO="ll;allgather:^ll,ll128,simple")
    assert "leaves nothing for AllGather, and" in fault
    (fault,) = errors(NCCL_ALGO="^Ring,Tree,CollNetChain,CollNetDirect,NVLS,NVLSTree,PAT")
    assert "leaves nothing" in fault
    assert errors(NCCL_PROTO="^LL,LL128") == []
