#!/usr/bin/python3
r"""A stand-in for `vllm serve`: it prints and answers what vLLM does, and fails on demand.

    FAKE_VLLM_SCRIPT=/etc/fake.json ./vllm serve MODEL --host 127.0.0.1 --port 8000 ...

One file, standard library only, so that a copy of it can be the `executable` of
a profile anywhere (`vllm` beside it is a link to it). What it does is a JSON
object with the fields of `Script`, read from the file in FAKE_VLLM_SCRIPT; an
environment variable FAKE_VLLM_DECODE_TOK_S=50 sets the one field `decode_tok_s`.
Command line options of vLLM are accepted whatever they are.

SIGUSR1 ends it as a dead engine does (exit `die_status`, 0 unless said); so does
GET /die?code=N. SIGUSR2 wedges the engine: /health stays 200, streams fall silent. SIGHUP reads the
script anew, for the requests to come.
Held against what real servers answered by tests/unit/fake_vllm.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass, field, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# ---------------------------------------------------------------------- script


@dataclass(frozen=True)
class Script:
    """What this server does. Times in seconds, speeds in tokens per second.

    `fault` is one of: silent, stall, error, drop, no_usage, early_stop,
    invalid_utf8, not_json, no_done. It sets in after `fault_after` tokens, in
    the requests whose serial number (1 is the first) is in `fault_requests`,
    or in all where that is empty. `other_*` play other clients, during the
    requests in `other_during` (empty: all).
    """

    version: str = "0.32.0"
    # start
    exit_at_once: int | None = None
    refused_options: Sequence[str] = ()
    load_seconds: float = 0.0
    shards: int = 4
    never_ready: bool = False
    die_during_load: int | None = None
    # life
    die_after_requests: int = 0
    die_status: int = 0
    die_file: str = ""
    health: int = 200
    # answers
    max_model_len: int = 2048
    answers: Mapping[str, str] = field(default_factory=dict)
    default_answer: str = "The capital of France is Paris."
    reasoning: str = ""
    reasoning_field: str = "reasoning"  # or reasoning_content, or both
    # speed
    decode_tok_s: float = 200.0
    jitter: float = 0.0
    seed: int = 0
    ttft_s: float = 0.02
    tokens_per_chunk: int = 1
    # stream
    continuous_usage: bool = False
    keep_alive_s: float = 0.0
    empty_choices: bool = False
    fault: str = ""
    fault_after: int = 0
    fault_requests: Sequence[int] = ()
    error_status: int = 0
    # counters
    log_stats: bool = True
    counter_lag_s: float = 0.0
    engine_time_factor: float = 1.0
    other_running: int = 0
    other_requests: int = 0
    other_tokens: int = 0
    other_during: Sequence[int] = ()

    def faulty(self, serial: int) -> str:
        """Given a request's serial number, return its fault, or nothing."""
        return self.fault if not self.fault_requests or serial in self.fault_requests else ""

    def disturbed(self, serial: int) -> bool:
        """Given a request's serial number, return whether others are at work meanwhile."""
        return not self.other_during or serial in self.other_during


def read_script(environment: Mapping[str, str]) -> Script:
    """Given the environment, return the script it names, single variables winning."""
    values: dict[str, Any] = {}
    if path := environment.get("FAKE_VLLM_SCRIPT"):
        values.update(json.loads(Path(path).read_text(encoding="utf-8")))
    for one in fields(Script):
        text = environment.get(f"FAKE_VLLM_{one.name.upper()}")
        if text is not None:
            values[one.name] = text if one.type == "str" else json.loads(text)
    return Script(**values)


@dataclass(frozen=True)
class Options:
    """What of the command line matters here."""

    model: str
    host: str = "127.0.0.1"
    port: int = 8000
    served: str = ""
    api_key: str = ""
    max_model_len: int = 0

    @property
    def name(self) -> str:
        """The name clients ask for."""
        return self.served or self.model


def read_options(argv: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Given what follows `serve`, return the options that matter; all others are let pass."""
    given: dict[str, str] = {}
    positional: list[str] = []
    name = ""
    for word in argv:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            name = name.replace("_", "-")
            given[name] = value
        elif name and not given[name]:
            given[name] = word
        elif not name:
            positional.append(word)
    return Options(
        model=(positional or [given.get("--model", "model")])[0],
        host=given.get("--host") or "127.0.0.1",
        port=int(given.get("--port") or 8000),
        served=given.get("--served-model-name", ""),
        api_key=given.get("--api-key") or environment.get("VLLM_API_KEY", ""),
        max_model_len=int(given.get("--max-model-len") or 0),
    )


# --------------------------------------------------------------------- metrics

TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
STEP = tuple(8 * 2**i for i in range(12))
FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75)
FIRST_LONG = (1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
GAP = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
LONG = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)
ENGINE = {"engine": "0"}


@dataclass(frozen=True)
class Family:
    """One metric as vLLM 0.32.0 prints it: `values` of an extra label, or `buckets`."""

    name: str
    help: str
    kind: str = "counter"
    label: str = ""
    values: Sequence[str] = ()
    buckets: Sequence[float] = ()
    common: Mapping[str, str] = field(default_factory=lambda: ENGINE)


def _histogram(name: str, text: str, *buckets: float) -> Family:
    return Family(name, text, "histogram", buckets=buckets)


FAMILIES = (
    Family("num_requests_running", "Number of requests in model execution batches.", "gauge"),
    Family("num_requests_waiting", "Number of requests waiting to be processed.", "gauge"),
    Family(
        "num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for "
        "scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV "
        "transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
        "gauge",
        "reason",
        ("capacity", "deferred"),
    ),
    Family(
        "engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        "gauge",
        "sleep_state",
        ("awake", "weights_offloaded", "discard_all"),
    ),
    Family("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", "gauge"),
    Family(
        "prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens."
    ),
    Family("prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens."),
    Family("num_preemptions_total", "Cumulative number of preemption from the engine."),
    Family("prompt_tokens_total", "Number of prefill tokens processed."),
    Family(
        "prompt_tokens_by_source_total",
        "Number of prompt tokens by source.",
        label="source",
        values=("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    Family("prompt_tokens_cached_total", "Number of cached prompt tokens (local + external)."),
    Family("generation_tokens_total", "Number of generation tokens processed."),
    Family(
        "request_success_total",
        "Count of successfully processed requests.",
        label="finished_reason",
        values=("stop", "length", "abort", "error", "repetition"),
    ),
    Family(
        "admission_rejections_total",
        "Number of admission attempts rejected by a queue limit, by reason.",
        label="reason",
        values=("max_num_queued_reqs", "max_num_queued_tokens"),
        common={},
    ),
    _histogram("request_prompt_tokens", "Number of prefill tokens processed.", *TOKENS),
    _histogram("request_generation_tokens", "Number of generation tokens processed.", *TOKENS),
    _histogram(
        "iteration_tokens_total", "Histogram of number of tokens per engine_step.", 1, *STEP
    ),
    _histogram(
        "request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        *TOKENS,
    ),
    _histogram("request_params_n", "Histogram of the n request parameter.", 1, 2, 5, 10, 20),
    _histogram(
        "request_params_max_tokens", "Histogram of the max_tokens request parameter.", *TOKENS
    ),
    _histogram(
        "time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        *FIRST,
        *FIRST_LONG,
    ),
    _histogram(
        "inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        *GAP,
        20,
        40,
        80,
    ),
    _histogram(
        "request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        *GAP,
        20,
        40,
        80,
    ),
    *(
        _histogram(name, f"Histogram of {what} for request.", *LONG, 1920, 7680)
        for name, what in (
            ("request_queue_time_seconds", "time spent in WAITING phase"),
            ("request_inference_time_seconds", "time spent in RUNNING phase"),
            ("request_prefill_time_seconds", "time spent in PREFILL phase"),
            ("request_decode_time_seconds", "time spent in DECODE phase"),
        )
    ),
    _histogram(
        "e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        *LONG,
        1920,
        7680,
    ),
)
CACHE_TOKENS = 1_000_000
"""Tokens for which the engine has room in its KV cache."""
READ_AT_ONCE = 0.1
"""How long a step takes that reads a part of a prompt (s)."""
HISTOGRAMS = {family.name: family for family in FAMILIES if family.kind == "histogram"}


class Counters:
    """What the engine has counted. Every method is atomic, as one engine step is in vLLM."""

    def __init__(self, model: str) -> None:
        self._lock = threading.RLock()
        self._model = model
        self._born = time.time()
        self._values: dict[tuple[str, str], float] = {("engine_sleep_state", "awake"): 1.0}
        self._observed: dict[str, list[float]] = {}
        self._sums: dict[str, float] = {}
        self._held: dict[int, float] = {}

    def hold(self, serial: int, tokens: float) -> None:
        """Given a request, note how many tokens of it are in the KV cache; 0: it is gone."""
        with self._lock:
            self._held[serial] = tokens
            if not tokens:
                del self._held[serial]
            self._values["kv_cache_usage_perc", ""] = sum(self._held.values()) / CACHE_TOKENS

    def add(self, name: str, amount: float, value: str = "") -> None:
        """Given a counter or gauge and perhaps its label's value, add to it."""
        with self._lock:
            key = (name, value)
            self._values[key] = self._values.get(key, 0.0) + amount

    def observe(self, name: str, amount: float, times: int = 1) -> None:
        """Given a histogram, note `amount` so many times."""
        with self._lock:
            buckets = HISTOGRAMS[name].buckets
            counts = self._observed.setdefault(name, [0.0] * (len(buckets) + 1))
            for index, edge in enumerate((*buckets, float("inf"))):
                if amount <= edge:
                    counts[index] += times
            self._sums[name] = self._sums.get(name, 0.0) + amount * times

    def step(self, tokens: int, prefilled: int = 0) -> None:
        """Given the tokens that one engine step made and prefilled, count them.

        vLLM counts no step that made none: what reads a part of a prompt only fills the cache.
        """
        with self._lock:
            self.add("generation_tokens_total", tokens)
            self.observe("iteration_tokens_total", tokens + prefilled)

    def admit(self, prompt_tokens: int) -> None:
        """Given a request's prompt, count it and the request as running."""
        with self._lock:
            self.add("num_requests_running", 1)
            self.add("prompt_tokens_total", prompt_tokens)
            self.add("prompt_tokens_by_source_total", prompt_tokens, "local_compute")
            self.add("prefix_cache_queries_total", prompt_tokens)

    def finish(self, done: Done) -> None:
        """Given how a request ended, count that."""
        with self._lock:
            self.add("num_requests_running", -1)
            self.add("request_success_total", 1, done.reason)
            if done.reason == "abort":
                return
            self.observe("request_prompt_tokens", done.prompt_tokens)
            self.observe("request_generation_tokens", done.tokens)
            self.observe("request_max_num_generation_tokens", done.tokens)
            self.observe("request_params_n", 1)
            self.observe("request_params_max_tokens", done.max_tokens)
            self.observe("time_to_first_token_seconds", done.ttft)
            gaps = max(done.tokens - 1, 0)
            per_token = done.decode / gaps if gaps else 0.0
            if gaps:
                self.observe("inter_token_latency_seconds", per_token, gaps)
            self.observe("request_time_per_output_token_seconds", per_token)
            self.observe("e2e_request_latency_seconds", done.ttft + done.decode)
            self.observe("request_queue_time_seconds", 0.0)
            self.observe("request_inference_time_seconds", done.ttft + done.decode)
            self.observe("request_prefill_time_seconds", done.ttft)
            self.observe("request_decode_time_seconds", done.decode)

    def text(self) -> str:
        """Return the page of /metrics."""
        with self._lock:
            lines = [
                "# HELP process_start_time_seconds Start time of the process.",
                "# TYPE process_start_time_seconds gauge",
                f"process_start_time_seconds {self._born!r}",
            ]
            for family in FAMILIES:
                lines += self._family(family)
            return "\n".join(lines) + "\n"

    def _family(self, family: Family) -> Iterator[str]:
        name = f"vllm:{family.name}"
        yield f"# HELP {name} {family.help}"
        yield f"# TYPE {name} {family.kind}"
        labels = [
            {**family.common, **({family.label: value} if family.label else {})}
            for value in family.values or ("",)
        ]
        if family.kind == "histogram":
            counts = self._observed.get(family.name, [0.0] * (len(family.buckets) + 1))
            for edge, count in zip((*family.buckets, float("inf")), counts, strict=True):
                le = "+Inf" if edge == float("inf") else repr(float(edge))
                yield f"{name}_bucket{self._labels({**ENGINE, 'le': le})} {float(count)!r}"
            yield f"{name}_count{self._labels(ENGINE)} {float(counts[-1])!r}"
            yield f"{name}_sum{self._labels(ENGINE)} {self._sums.get(family.name, 0.0)!r}"
        else:
            for label, value in zip(labels, family.values or ("",), strict=True):
                amount = float(self._values.get((family.name, value), 0.0))
                yield f"{name}{self._labels(label)} {amount!r}"
        if family.kind != "gauge":
            created = f"{name.removesuffix('_total')}_created"
            if family.kind == "histogram":
                created = f"{name}_created"
            yield f"# HELP {created} {family.help}"
            yield f"# TYPE {created} gauge"
            for label in labels:
                yield f"{created}{self._labels(label)} {self._born!r}"

    def _labels(self, labels: Mapping[str, str]) -> str:
        pairs = sorted({**labels, "model_name": self._model}.items())
        return "{" + ",".join(f'{key}="{value}"' for key, value in pairs) + "}"


@dataclass(frozen=True)
class Done:
    """How a request ended, for the counters."""

    reason: str
    prompt_tokens: int = 0
    max_tokens: int = 0
    tokens: int = 0
    ttft: float = 0.0
    decode: float = 0.0


# ---------------------------------------------------------------------- answer

FILLER = ("the", "ring", "moves", "a", "token", "past", "eight", "cards", "and", "back")


@dataclass(frozen=True)
class Answer:
    """What one request is answered: tokens with the field each belongs to, and when they come."""

    serial: int
    chat: bool
    prompt_tokens: int
    max_tokens: int
    tokens: Sequence[tuple[str, str]]
    reason: str
    speed: float


def compose(script: Script, body: Mapping[str, Any], serial: int, chat: str) -> Answer:
    """Given a request's body, return its answer. `chat` is "chat" or nothing."""
    prompt = body.get("prompt", "")
    if chat:
        messages = body.get("messages") or [{"content": ""}]
        prompt = str(messages[-1].get("content", ""))
    prompt = prompt if isinstance(prompt, str) else " ".join(map(str, prompt))
    limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
    least = limit if body.get("ignore_eos") else int(body.get("min_tokens") or 0)
    tokens: list[tuple[str, str]] = []
    if chat:
        said = next((a for q, a in script.answers.items() if q in prompt), script.default_answer)
        tokens += [("reasoning", text) for text in split(script.reasoning)]
        tokens += [("content", text) for text in split(said)]
        tokens.append(("content", ""))  # the end-of-text token: counted, and no text
    else:
        least = max(least, limit)
    if script.faulty(serial) == "early_stop":
        least, limit = 0, max(1, script.fault_after)
        tokens = tokens or [("text", "")] * limit
    kind = "content" if chat else "text"
    if least and tokens and len(tokens) <= least:
        tokens.pop()
    while len(tokens) < least:
        tokens.append((kind, " " + FILLER[(serial + len(tokens)) % len(FILLER)]))
    reason = "length" if len(tokens) > limit or len(tokens) <= least else "stop"
    if script.faulty(serial) == "early_stop":
        reason = "stop"
    noise = random.Random(f"{script.seed}/{serial}").gauss(0.0, 1.0)  # noqa: S311 - a repeatable jitter
    speed = script.decode_tok_s * max(0.01, 1.0 + script.jitter * noise)
    count = len(prompt.split()) + (30 if chat else 0)
    return Answer(serial, bool(chat), max(1, count), limit, tokens[:limit], reason, speed)


def split(text: str) -> list[str]:
    """Given a text, return it in tokens, as many as it has words."""
    words = text.split(" ")
    return [word if i == 0 else " " + word for i, word in enumerate(words)] if text else []


def schedule(answer: Answer, script: Script) -> list[tuple[float, int, int]]:
    """Given an answer, return (seconds after arrival, first token, one past the last) a chunk.

    Absolute times, so that the delivered speed does not drift: the tokens after
    the first chunk arrive at exactly `speed`.
    """
    size = max(1, script.tokens_per_chunk)
    total = len(answer.tokens)
    first = min(size, total)
    chunks = []
    for start in range(0, total, size):
        end = min(start + size, total)
        chunks.append((script.ttft_s + (end - first) / answer.speed, start, end))
    return chunks


# ---------------------------------------------------------------------- server

GUARDED = ("/v1", "/v2", "/inference")
REFUSALS = {
    400: ("BadRequestError", "this request cannot be served"),
    404: ("NotFoundError", "Not Found"),
    405: ("Method Not Allowed", "Method Not Allowed"),
    429: ("TooManyRequestsError", "too many requests are waiting"),
    500: ("InternalServerError", "EngineCore encountered an issue. See stack trace for the cause."),
    503: ("ServiceUnavailableError", "the server is overloaded"),
}


class FakeVllm(ThreadingHTTPServer):
    """The server. Bound at once, listening only when loaded: as vLLM does."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, options: Options, script: Script) -> None:
        super().__init__((options.host, options.port), Handler, bind_and_activate=False)
        self.options = options
        self.script = script
        self.counters = Counters(options.name)
        self.wedged = threading.Event()
        self.closing = threading.Event()
        self._serials = 0
        self._lock = threading.Lock()
        self.server_bind()

    @property
    def max_model_len(self) -> int:
        """The longest prompt and answer together, in tokens."""
        return self.options.max_model_len or self.script.max_model_len

    def next_serial(self) -> int:
        """Return the serial number of a new generation request; the first is 1."""
        with self._lock:
            self._serials += 1
            return self._serials

    def handle_error(self, *_: object) -> None:
        """Given a client that went away, say nothing: vLLM does not either."""

    def served(self, serial: int) -> None:
        """Given the serial of a finished request, die if the script says so."""
        if self.script.die_after_requests and serial >= self.script.die_after_requests:
            die(self.script.die_status)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeVllm

    def log_message(self, *_: object) -> None:
        """Write no line of http.server's own; log_request writes uvicorn's."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Given an answer's status, log it in uvicorn's words."""
        del size
        host, port = self.client_address[:2]
        phrase = self.responses.get(int(code), ("",))[0]
        log(f'INFO:     {host}:{port} - "{self.requestline}" {int(code)} {phrase}')

    def do_GET(self) -> None:
        """Answer what vLLM answers without its engine."""
        path = urlsplit(self.path).path
        if self._refused(path):
            return
        server = self.server
        if path in ("/health", "/ping"):
            self._send(server.script.health, b"")
        elif path == "/version":
            self._json(200, {"version": server.script.version})
        elif path == "/load":
            self._json(200, {"server_load": 0})
        elif path == "/metrics":
            text = server.counters.text() if server.script.log_stats else "python_info 1.0\n"
            self._send(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/v1/models":
            self._json(200, self._models())
        elif path == "/die":
            code = int(parse_qs(urlsplit(self.path).query).get("code", ["0"])[0])
            self._json(200, {"dying": code})
            die(code)
        else:
            self._refuse(404)

    def do_POST(self) -> None:
        """Answer a generation request, or a count of tokens."""
        path = urlsplit(self.path).path
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self._refused(path):
            return
        try:
            body = json.loads(raw or b"{}")
        except ValueError as error:
            self._refuse(400, str(error))
            return
        if path == "/tokenize":
            count = len(str(body.get("prompt", "")).split())
            answer = {"count": count, "max_model_len": self.server.max_model_len}
            self._json(200, {**answer, "tokens": list(range(count)), "token_strs": None})
        elif path in ("/v1/completions", "/v1/chat/completions"):
            self._generate(body, "chat" if "chat" in path else "")
        else:
            self._refuse(404)

    # ------------------------------------------------------------- plain answers

    def _send(self, status: int, data: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value, separators=(",", ":")).encode())

    def _refuse(self, status: int, message: str = "", param: str | None = None) -> None:
        kind, text = REFUSALS.get(status, REFUSALS[500])
        error = {"message": message or text, "type": kind, "param": param, "code": status}
        self._json(status, {"error": error})

    def _refused(self, path: str) -> bool:
        """Given a path, answer 401 where vLLM's guard does and return whether it did."""
        key = self.server.options.api_key
        if not key or not path.startswith(GUARDED):
            return False
        if self.headers.get("Authorization") == f"Bearer {key}":
            return False
        self._json(401, {"error": "Unauthorized"})
        return True

    def _models(self) -> dict[str, object]:
        options = self.server.options
        permission = {
            "id": "modelperm-0000000000000001",
            "object": "model_permission",
            "created": int(time.time()),
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        model = {
            "id": options.name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": options.model,
            "parent": None,
            "max_model_len": self.server.max_model_len,
            "permission": [permission],
        }
        return {"object": "list", "data": [model]}

    # ---------------------------------------------------------------- generation

    def _generate(self, body: Mapping[str, Any], chat: str) -> None:
        server = self.server
        script = server.script
        serial = server.next_serial()
        if script.error_status and (not script.fault_requests or serial in script.fault_requests):
            self._refuse_by_script(script.error_status)
            return
        if body.get("model") not in (None, server.options.name):
            known = server.options.name
            asked = body["model"]
            self._refuse(
                404, f"The model `{asked}` does not exist. Valid aliases: {known}.", "model"
            )
            return
        answer = compose(script, body, serial, chat)
        if answer.max_tokens > server.max_model_len:
            self._refuse(
                400,
                f"max_tokens={answer.max_tokens} cannot be greater than "
                f"max_model_len={server.max_model_len}. Please request fewer output tokens. "
                f"(parameter=max_tokens, value={answer.max_tokens})",
                "max_tokens",
            )
            return
        if int(body.get("min_tokens") or 0) > answer.max_tokens:
            self._refuse(400, "min_tokens must be less than or equal to max_tokens", "min_tokens")
            return
        Play(self, answer, body).run()
        server.served(serial)

    def _refuse_by_script(self, status: int) -> None:
        if 300 <= status < 400:
            self.send_response(status)
            self.send_header("Location", "http://192.0.2.1/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif status == 401:  # the one error whose body is a string
            self._json(401, {"error": "Unauthorized"})
        else:
            self._refuse(status)


class ClientGoneError(Exception):
    """The client closed the connection: vLLM aborts its request."""


class Play:
    """One request while it is answered."""

    def __init__(self, handler: Handler, answer: Answer, body: Mapping[str, Any]) -> None:
        self._handler = handler
        self._server = handler.server
        self._script = handler.server.script
        self._answer = answer
        self._body = body
        self._fault = self._script.faulty(answer.serial)
        options = body.get("stream_options") or {}
        self._usage_wanted = bool(options.get("include_usage")) and self._fault != "no_usage"
        self._continuous = self._script.continuous_usage or (
            self._usage_wanted and bool(options.get("continuous_usage_stats"))
        )
        self._head = {
            "id": f"{'chatcmpl' if answer.chat else 'cmpl'}-{answer.serial:016x}",
            "object": "chat.completion.chunk" if answer.chat else "text_completion",
            "created": int(time.time()),
            "model": handler.server.options.name,
        }
        self._began = time.monotonic()
        self._times: list[float] = []

    def run(self) -> None:
        """Answer, and count what was answered as the engine does."""
        counters = self._server.counters
        counters.admit(self._answer.prompt_tokens)
        disturbed = self._script.disturbed(self._answer.serial)
        others = self._script.other_running if disturbed else 0
        counters.add("num_requests_running", others)
        try:
            complete = self._stream() if self._body.get("stream") else self._whole()
        except (ClientGoneError, ConnectionError):
            complete = None
        counters.add("num_requests_running", -others)
        counters.hold(self._answer.serial, 0)
        if complete is None:
            self._handler.close_connection = True
            counters.finish(Done("abort"))
            return
        if disturbed:
            self._count_others()
        if self._script.counter_lag_s:
            threading.Timer(self._script.counter_lag_s, counters.finish, (complete,)).start()
        else:
            counters.finish(complete)
        if self._body.get("stream") and self._fault != "drop":
            # vLLM counts before its last bytes leave: a client that saw the end sees the counts.
            self._end_stream()

    def _count_others(self) -> None:
        counters = self._server.counters
        counters.add("generation_tokens_total", self._script.other_tokens)
        for _ in range(self._script.other_requests):
            counters.add("num_requests_running", 1)
            counters.finish(Done("stop", 1, 16, 2, 0.01, 0.01))

    def _done(self, tokens: int) -> Done:
        answer = self._answer
        first, last = (self._times[0], self._times[-1]) if self._times else (0.0, 0.0)
        decode = (last - first) * self._script.engine_time_factor
        ttft = first - self._began
        return Done(answer.reason, answer.prompt_tokens, answer.max_tokens, tokens, ttft, decode)

    def _whole(self) -> Done:
        answer = self._answer
        self._prefill()
        for at, start, end in schedule(answer, self._script):
            self._wait(self._began + at)
            self._step(start, end)
        said = {k: "".join(t for f, t in answer.tokens if f == k) for k in ("reasoning", "content")}
        message: dict[str, object] = {"role": "assistant", **said}
        choice: dict[str, object] = {"index": 0, "finish_reason": answer.reason}
        if answer.chat:
            choice["message"] = message
        else:
            choice["text"] = "".join(text for _, text in answer.tokens)
        kind = self._head["object"]
        body = {**self._head, "object": str(kind).removesuffix(".chunk"), "choices": [choice]}
        self._handler._json(200, {**body, "usage": self._usage(len(answer.tokens))})  # noqa: SLF001
        return self._done(len(answer.tokens))

    def _stream(self) -> Done | None:
        handler = self._handler
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        answer = self._answer
        if self._fault == "silent" or self._server.wedged.is_set():
            self._hang()
        self._prefill()
        for at, start, end in schedule(answer, self._script):
            if self._fault and start >= self._script.fault_after and self._breaks():
                return None if self._fault == "drop" else Done("error", self._answer.prompt_tokens)
            self._wait(self._began + at)
            if self._server.wedged.is_set():
                self._hang()
            self._step(start, end)
            self._chunks(start, end)
        if self._usage_wanted:
            fingerprint = f"vllm-{self._script.version}-00000001"
            usage = self._usage(len(answer.tokens))
            last: dict[str, object] = {
                **self._head,
                "choices": [],
                "usage": usage,
                "system_fingerprint": fingerprint,
            }
            self._event(last)
        return self._done(len(answer.tokens))

    def _prefill(self) -> None:
        """Read the prompt part by part; an engine that is wedged reads no further."""
        prompt, lasts = self._answer.prompt_tokens, self._script.ttft_s
        parts = max(1, round(lasts / READ_AT_ONCE))
        for part in range(parts):
            self._wait(self._began + lasts * part / parts)
            if self._server.wedged.is_set():
                return
            self._server.counters.hold(self._answer.serial, prompt * (part + 1) / parts)

    def _step(self, start: int, end: int) -> None:
        """Count a step that made the tokens from `start` to `end`."""
        self._times.append(time.monotonic())
        prompt = self._answer.prompt_tokens
        self._server.counters.step(end - start, 0 if start else prompt)
        self._server.counters.hold(self._answer.serial, prompt + end)

    def _breaks(self) -> bool:
        """Play the fault; return whether the stream ends here."""
        if self._fault == "stall":
            self._hang()
        if self._fault == "error":
            message = REFUSALS[500][1]
            error = {"message": message, "type": "InternalServerError", "param": None, "code": 500}
            self._event({"error": error})
            return True
        if self._fault == "drop":
            self._handler.connection.shutdown(socket.SHUT_RDWR)
            return True
        if self._fault == "invalid_utf8":
            self._bytes(b'data: {"choices":[{"index":0,"text":"\xff\xfe"}]}\n\n')
        if self._fault == "not_json":
            self._bytes(b"data: <html>\n\n")
        return False

    def _chunks(self, start: int, end: int) -> None:
        answer = self._answer
        total = len(answer.tokens)
        reason = answer.reason if end == total else None
        ids = list(range(1000 + start, 1000 + end)) if self._body.get("return_token_ids") else None
        if self._script.keep_alive_s and start == 0:
            self._bytes(b": keep-alive\n\n")
        if self._script.empty_choices and start == 0:
            self._event({**self._head, "choices": []})
        if not answer.chat:
            text = "".join(text for _, text in answer.tokens[start:end])
            choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
            prompt = list(range(answer.prompt_tokens)) if ids and start == 0 else None
            choice |= {"stop_reason": None, "prompt_token_ids": prompt, "token_ids": ids}
            self._choice(choice, end)
            return
        if start == 0:
            role = {"role": "assistant", "content": ""}
            choice = {"index": 0, "delta": role, "logprobs": None, "finish_reason": None}
            self._choice(choice, 0, {"prompt_token_ids": None, "prompt_text": None})
        deltas: dict[str, str] = {}
        for kind, text in answer.tokens[start:end]:
            for name in self._spellings(kind):
                deltas[name] = deltas.get(name, "") + text
        choice = {"index": 0, "delta": deltas, "logprobs": None, "finish_reason": reason}
        if reason:
            choice["stop_reason"] = None
        self._choice({**choice, "token_ids": ids}, end)

    def _spellings(self, kind: str) -> Sequence[str]:
        if kind != "reasoning":
            return (kind,)
        spelling = self._script.reasoning_field
        return ("reasoning", "reasoning_content") if spelling == "both" else (spelling,)

    def _choice(
        self, choice: Mapping[str, object], so_far: int, more: Mapping[str, object] | None = None
    ) -> None:
        usage = {"usage": self._usage(so_far)} if self._continuous else {}
        self._event({**self._head, "choices": [choice], **(more or {}), **usage})

    def _usage(self, completion: int) -> dict[str, int]:
        prompt = self._answer.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
        }

    # -------------------------------------------------------------------- bytes

    def _event(self, value: object) -> None:
        self._bytes(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")

    def _bytes(self, data: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _end_stream(self) -> None:
        try:
            if self._fault != "no_done":
                self._bytes(b"data: [DONE]\n\n")
            self._handler.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self._handler.close_connection = True

    def _wait(self, moment: float) -> None:
        """Given a moment of the monotonic clock, wait for it: absolute, so no delay adds up."""
        left = moment - time.monotonic()
        if left > 0:
            time.sleep(left)

    def _hang(self) -> None:
        """Send nothing more (but comments, where asked for) until the client goes."""
        pause = self._script.keep_alive_s or 0.2
        while not self._server.closing.is_set():
            readable, _, _ = select.select([self._handler.connection], [], [], pause)
            if readable and not self._handler.connection.recv(1, socket.MSG_PEEK):
                break
            if self._script.keep_alive_s:
                self._bytes(b": keep-alive\n\n")
        raise ClientGoneError


# ------------------------------------------------------------------------ main


def log(line: str) -> None:
    """Given a line, write it where vLLM writes its log."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def vllm_log(text: str, source: str, process: str = "APIServer") -> None:
    """Given a text and the source line that says it, log it as vLLM does."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    log(f"({process} pid={os.getpid()}) INFO {stamp} [{source}] {text}")


def die(status: int) -> None:
    """Given an exit status, end as a server whose engine died: at once."""
    vllm_log("EngineCore died unexpectedly, shutting down.", "launcher.py:120")
    os._exit(status)


def clock_face(seconds: float) -> str:
    """Given seconds, return them as tqdm writes them."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def load(server: FakeVllm) -> None:
    """Given a bound server, load its model as long as the script says, shard by shard."""
    script = server.script
    model = server.options.model
    began = time.monotonic()
    vllm_log(f"Starting to load model {model}...", "cpu_model_runner.py:68", "Worker")
    shards = max(1, script.shards)
    for done in range(shards + 1):
        time.sleep(max(0.0, began + script.load_seconds * done / shards - time.monotonic()))
        spent = time.monotonic() - began
        pace = (
            f"{clock_face(spent)}<00:00, {done / spent:5.2f}it/s"
            if done and spent > 0
            else "00:00<?, ?it/s"
        )
        log(
            f"\rLoading safetensors checkpoint shards: {100 * done // shards:3d}% Completed "
            f"| {done}/{shards} [{pace}]"
        )
        if script.die_during_load is not None and 2 * done >= shards:
            log("RuntimeError: Engine core initialization failed. See root cause above.")
            os._exit(script.die_during_load)
    took = time.monotonic() - began
    vllm_log(f"Loading weights took {took:.2f} seconds", "default_loader.py:501", "Worker")
    # Not signal.pause(): a signal just before it would set its flag and never wake it.
    while script.never_ready:
        server.closing.wait(0.05)


def listen(server: FakeVllm) -> None:
    """Given a loaded server, begin to listen and say so as vLLM and uvicorn do."""
    host, port = server.server_address[:2]
    server.server_activate()
    vllm_log(f"Starting vLLM server on http://{host!s}:{port}", "entry.py:140")
    log(f"INFO:     Started server process [{os.getpid()}]")
    log("INFO:     Waiting for application startup.")
    log("INFO:     Application startup complete.")


def watch_die_file(server: FakeVllm) -> None:
    """Given a server with a `die_file`, end it when that file appears."""
    while not server.closing.wait(0.05):
        if Path(server.script.die_file).exists():
            die(server.script.die_status)


def interrupted(*_: object) -> None:
    """End as vLLM does on SIGTERM before it serves: by SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def stopped(*_: object) -> None:
    """End as vLLM does on SIGTERM while it serves: with 0."""
    log("INFO:     Shutting down")
    raise SystemExit(0)


def help_text() -> str:
    """Return what `vllm serve --help=all` prints, in short."""
    options = (
        "--model --host --port --served-model-name --api-key --dtype --enforce-eager "
        "--max-model-len --tensor-parallel-size --pipeline-parallel-size --data-parallel-size "
        "--gpu-memory-utilization --trust-remote-code --tool-call-parser --reasoning-parser "
        "--enable-auto-tool-choice --max-num-seqs --max-num-batched-tokens --kv-cache-dtype "
        "--enable-expert-parallel --speculative-config --compilation-config --load-format "
        "--disable-custom-all-reduce --mm-encoder-tp-mode --language-model-only --config "
        "--fail-on-environ-validation --attention-backend"
    )
    lines = "\n".join(f"  {name} VALUE" for name in options.split())
    return f"usage: vllm serve [model_tag] [options]\n\noptions:\n{lines}\n"


def main(argv: Sequence[str]) -> int:
    """Given the command line, serve until told to stop; return the exit status."""
    script = read_script(os.environ)
    if "--version" in argv or "-v" in argv:
        sys.stdout.write(f"{script.version}\n")
        return 0
    if any(word.startswith("--help") or word == "-h" for word in argv):
        sys.stdout.write(help_text())
        return 0
    if not argv or argv[0] != "serve":
        log("usage: vllm serve [model_tag] [options]")
        return 2
    refused = [word for word in argv if word.split("=")[0] in script.refused_options]
    if refused:
        log(f"vllm: error: unrecognized arguments: {' '.join(refused)}")
        return 2
    if script.exit_at_once is not None:
        log("vllm: error: the script says so")
        return script.exit_at_once
    options = read_options(argv[1:], os.environ)
    signal.signal(signal.SIGTERM, interrupted)
    server = FakeVllm(options, script)
    vllm_log(f"version {script.version}", "api_utils.py:347")
    signal.signal(signal.SIGUSR1, lambda *_: die(script.die_status))
    signal.signal(signal.SIGUSR2, lambda *_: server.wedged.set())
    signal.signal(signal.SIGHUP, lambda *_: setattr(server, "script", read_script(os.environ)))
    load(server)
    signal.signal(signal.SIGTERM, stopped)
    listen(server)
    if script.die_file:
        threading.Thread(target=watch_die_file, args=(server,), daemon=True).start()
    try:
        server.serve_forever(poll_interval=0.05)
    except KeyboardInterrupt:
        log("INFO:     Shutting down")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
