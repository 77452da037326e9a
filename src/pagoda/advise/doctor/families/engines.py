"""vLLM and SGLang themselves: memory for the KV cache, pressure, ports, settings, hangs.

Longer than most files here: it is one list of causes, which are judged against each other.
"""

from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign

_CONSERVE = "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html"
_STORM_COUNT = 20
_TROUBLE = "https://docs.vllm.ai/en/latest/usage/troubleshooting.html"


def _preemptions(facts: Facts) -> float:
    """The larger of the counter the engine prints and of the lines counted."""
    printed = [*facts.numbers("preempted", "total"), *facts.numbers("preempted", "sum")]
    return max([*printed, float(facts.count("preempted"))])


def _storm(facts: Facts) -> Check | None:
    if facts.has("retracted"):
        return Check(f"{facts.count('retracted')} retractions are in the log.")
    total = _preemptions(facts)
    return Check(f"{total:.0f} preemptions are in the log.") if total >= _STORM_COUNT else None


def _few(facts: Facts) -> Check | None:
    total = _preemptions(facts)
    return Check(f"The count is {total:.0f}.") if total < _STORM_COUNT else None


SIGNS = (
    Sign(
        "kv_none_left",
        (
            "available kv cache memory: -",
            "no available memory for the cache blocks",
            "not enough memory. please try to increase",
        ),
        r"No available memory for the cache blocks|Not enough memory\. Please try to increase"
        r"|[Aa]vailable KV cache memory: -\d",
    ),
    Sign(
        "kv_below_length",
        (
            "kv cache is needed, which is larger than",
            "larger than the available kv",
            "larger than the maximum number of tokens",
        ),
        r"max(?:imum)? (?:seq|model)\w{0,3} len\w{0,4}.{0,120}larger than (?:the maximum "
        r"number of tokens|the available KV)"
        r"|KV cache is needed, which is larger than",
    ),
    Sign(
        "request_too_long",
        (
            "exceeds the ",
            "longer than the maximum model length",
            "longer than the model's context",
            "maximum context length is",
        ),
        r"maximum context length is|longer than the maximum model length"
        r"|exceeds the (?:model's )?(?:context|maximum)"
        r"|longer than the model's context",
        role="noise",
    ),
    Sign(
        "length_over_model",
        ("greater than the derived max_model_len",),
        r"greater than the derived max_model_len",
    ),
    Sign(
        "preempted",
        (
            "preempted",
            "preempting ",
            "preemption",
        ),
        r"(?:group|request|req)\b.{0,80}\bpreempted\b(?:.{0,400}total_num_cumulative_preemption=(?P<total>\d{1,9}))?"
        r"|[Nn]um_?preemptions?[=: ]{1,3}(?P<sum>[1-9]\d{0,8})|[Pp]reempting (?:request"
        r"|sequence|\d)",
        any_level=True,
    ),
    Sign(
        "retracted",
        (
            "decode out of memory happened",
            "kv cache pool is full",
            "retracted_reqs:",
        ),
        r"Decode out of memory happened|KV cache pool is full.{0,40}[Rr]etract"
        r"|#?retracted_reqs: ?[1-9]",
        any_level=True,
    ),
    Sign(
        "prefill_oom",
        (
            " out of memory.",
            "try to lower your batch size",
        ),
        r"(?:Prefill|Decode) out of memory\. ?(?:Try|$)|[Tt]ry to lower your batch size",
    ),
    Sign(
        "pool_leak",
        (
            " memory leak",
            "memory leak detected",
            "pool leak detected",
        ),
        r"memory leak detected|pool leak detected|pool(?:_allocator)? memory leak",
    ),
    Sign(
        "port_taken",
        (
            "[errno 98]",
            "eaddrinuse",
            "in use",
            "port is already allocated",
        ),
        r"[Aa]ddress already in use|EADDRINUSE|port is already allocated|\[Errno 98\]"
        r"|[Pp]ort \d{2,5} is (?:already )?in use",
    ),
    Sign(
        "tp_too_large",
        (
            " divisible",
            ") is larger than the number of available gpus",
            "not enough gpus",
        ),
        r"(?:attention heads|num_heads|vocab size|hidden size|intermediate_size"
        r"|head).{0,80}(?:must be|is not) divisible"
        r"|World size \(\d{1,5}\) is larger than the number of available GPUs|[Nn]ot enough GPUs"
        r"|\d{1,6} (?:is not|must be) divisible by (?:tensor|tp|\d)",
    ),
    Sign(
        "unsupported_dtype",
        (
            "bfloat16 is only supported on",
            "compute capability of at least",
            "minimum capability",
            "requires compute capability",
        ),
        r"Bfloat16 is only supported on|compute capability of at least|requires compute capability"
        r"|[Mm]inimum capability:? \d{1,3}",
    ),
    Sign(
        "model_access",
        (
            " client error",
            "cannot find any model weights",
            "does not appear to have ",
            "gated repo",
            "hfhubhttperror",
            "host='huggingface.co'",
            "invalid repository id",
            "is not a local folder and is not a valid model",
            "localentrynotfounderror",
            "offline mode is enabled",
            "repository not found",
            "resolve 'huggingface.co'",
            "we couldn't connect to",
        ),
        r"[Gg]ated [Rr]epo|40[13] Client Error|Repository Not Found"
        r"|is not a local folder and is not a valid model"
        r"|We couldn't connect to|LocalEntryNotFoundError|[Ii]nvalid [Rr]epository [Ii][Dd]"
        r"|does not appear to have (?:a file|files|any) named|[Oo]ffline mode is enabled"
        r"|Cannot find any model weights|HfHubHTTPError:|resolve 'huggingface\.co'"
        r"|host='huggingface\.co'.{0,200}(?:Max retries|timed out|refused|CERTIFICATE|certificate)",
    ),
    Sign(
        "bad_argument",
        (
            "error: argument ",
            "unknown quantization method",
            "unrecognized arguments:",
            "validation error",
        ),
        r"unrecognized arguments:|error: argument |validation errors? for \w{1,40}(?:Config|Args)"
        r"|Unknown quantization method",
    ),
    Sign(
        "shm_broadcast_wait",
        ("no available ",),
        r"No available shared memory broadcast block|No available block found in \d{1,5} ?second",
        role="symptom",
        title="a reader or writer of the engine's broadcast queue waits",
        passing=True,
        collect="py-spy dump of every worker process while it waits",
    ),
    Sign(
        "shm_broadcast_trace",
        ("shm_broadcast.py",),
        r"shm_broadcast\.py\", line \d{1,6}, in (?:acquire_read|acquire_write|dequeue|enqueue)",
        role="context",
    ),
    Sign(
        "timeout_error",
        (
            "rpc call to ",
            "timeouterror",
        ),
        r"^(?:.{0,80}\b)?(?<!/)TimeoutError\b|RPC call to \w{1,40} timed out",
        role="symptom",
        title="a call inside the engine timed out",
        collect="py-spy dump of every worker process while it waits",
    ),
    Sign("rpc_timeout", ("rpc call to ",), r"RPC call to (?P<call>\w{1,40}) timed out"),
    Sign(
        "engine_watchdog",
        (
            "engine iteration timed out",
            "health check failed.",
            "watchdog timeout",
        ),
        r"Engine iteration timed out|"
        r"[Ww]atchdog [Tt]imeout|Health check failed\. ?Server couldn't get"
        r"|watchdog timeout \(self\.watchdog_timeout",
        any_level=True,
    ),
    Sign(
        "engine_dead",
        (
            "background loop has errored",
            "child process unexpectedly",
            "core encountered",
            "core failed",
            "core initialization failed",
            "core proc",
            "died unexpectedly",
            "engine loop has died",
            "engine process failed",
            "enginedeaderror",
            "is dead. please check",
            "received sigquit",
            "scheduler hit an exception",
            "workerproc failed to start",
            "workerproc initialization failed",
        ),
        r"EngineDeadError|Engine ?[Cc]ore (?:proc|encountered|initialization failed|failed)"
        r"|Engine process failed"
        r"|Engine loop has died|WorkerProc (?:initialization failed|failed to start)"
        r"|Background loop has errored"
        r"|died unexpectedly|Received sigquit|Scheduler hit an exception|is dead\. Please check"
        r"|[Cc]hild process unexpectedly",
        role="symptom",
        title="the engine or one of its processes ended; the reason lies before it",
        collect="the engine's log from its start, all worker processes included",
    ),
    Sign(
        "segfault",
        (
            "exit code",
            "exitcode",
            "segfault at",
            "segfault encountered",
            "segmentation fault",
            "signal 11",
            "sigsegv",
        ),
        r"[Ss]egmentation fault|SIGSEGV|(?:exit code"
        r"|exitcode):? (?:139|-11)\b|signal 11\b|segfault (?:at"
        r"|encountered)",
        role="symptom",
        title="a process died of a segmentation fault",
        collect="the native backtrace above the Python one, and the kernel's "
        "segfault line (it names "
        "the library)",
    ),
    Sign(
        "leaked_shm",
        (
            "leaked semaphore",
            "leaked shared_memory",
            "resource_tracker",
        ),
        r"leaked (?:shared_memory|semaphore) objects|resource_tracker",
        role="noise",
    ),
    Sign(
        "worker_exiting",
        (
            "killing local vllm worker",
            "worker exiting",
        ),
        r"Worker exiting|Killing local vLLM worker",
        role="noise",
    ),
    Sign(
        "known_warnings",
        (
            "bigger than a reserved number",
            "cuda graph ",
            "custom allreduce is disabled",
            "default moe config",
            "flashinfer is not available",
            "format mismatch",
            "not implemented in <vllm",
            "overriding num_gpu_blocks",
            "packed_modules_mapping",
            "reducing torch parallelism",
            "sampling parameters have been overridden",
            "unable to register cu",
        ),
        r"not implemented in <vllm|Custom allreduce is disabled|FlashInfer is not available"
        r"|sampling parameters have been overridden|default MoE config|Overriding num_gpu_blocks"
        r"|packed_modules_mapping|bigger than a reserved number|CUDA graph (?:pool )?memory"
        r"|Reducing Torch parallelism"
        r"|format mismatch|Unable to register cu(?:DNN|FFT|BLAS) factory",
        role="noise",
    ),
    Sign(
        "cuda_forked",
        ("re-initialize cuda in forked subprocess",),
        r"re-initialize CUDA in forked subprocess",
    ),
    Sign(
        "settings_printed",
        (
            "args: namespace(",
            "engineargs(",
            "non-default args",
            "server_args=",
            "serverargs(",
            "vllmconfig(",
            "with config",
        ),
        r"non-default args|args: Namespace\(|ServerArgs\(|[Ee]ngine .{0,40}with config|VllmConfig\("
        r"|EngineArgs\(|server_args=",
        role="settings",
    ),
    Sign(
        "request_refused",
        (
            "error in preprocessing prompt inputs",
            "errorresponse(",
        ),
        r"Error in preprocessing prompt inputs|ErrorResponse\(.{0,400}\bcode=4\d\d\b",
        role="noise",
    ),
    Sign(
        "client_gone",
        (
            "aborted request",
            "asyncio.exceptions.cancellederror",
            "client disconnected",
            "invalid http request",
        ),
        r"[Cc]lient disconnected|[Aa]borted request|Invalid HTTP request"
        r"|asyncio\.exceptions\.CancelledError",
        role="noise",
    ),
)

CAUSES = (
    Cause(
        id="kv_none_left",
        kind="kv_too_small",
        sentence="No memory is left for the KV cache after the weights and the profiling run.",
        remedy="Raise gpu_memory_utilization (--mem-fraction-static), free the GPU of other "
        "processes, "
        "lower max_num_batched_tokens or max_model_len, use more GPUs or smaller weights.",
        will_not_help=(
            ("a larger host KV pool", "the engine needs some blocks on the GPU to run at all"),
            ("a restart", "the sum is the same"),
        ),
        collect=("the engine's memory lines at start (weights, peak, non-torch, KV)", "nvidia-smi"),
        confidence=0.9,
        reference="vllm-project/vllm#2248",
        depth=61,
        any=("kv_none_left",),
        explains=("gpu_occupied",),
    ),
    Cause(
        id="kv_below_context",
        kind="kv_too_small",
        sentence="The KV cache is smaller than one request of the longest allowed length.",
        remedy="Lower max_model_len to what is needed, raise gpu_memory_utilization, use an fp8 KV "
        "cache or more GPUs.",
        will_not_help=(("a larger host KV pool", "one request must fit on the GPU at once"),),
        collect=("the KV cache's size in tokens", "max_model_len", "pagoda plan for this model"),
        confidence=0.95,
        reference=_CONSERVE,
        depth=61,
        any=("kv_below_length",),
    ),
    Cause(
        id="length_over_model",
        kind="configuration",
        sentence="max_model_len is larger than the model was made for.",
        remedy="Lower it, or set the model's own rope scaling; do not force it.",
        will_not_help=(("more memory", "positions beyond the training length give wrong answers"),),
        collect=("the model's config.json",),
        confidence=0.9,
        reference=_TROUBLE,
        depth=63,
        any=("length_over_model",),
    ),
    Cause(
        id="preemption_storm",
        kind="preemption",
        sentence="The KV pool is full: requests are preempted or retracted "
        "and computed again. It is "
        "not a crash, but throughput is lost.",
        remedy="Lower max_num_seqs (--max-running-requests), raise --schedule-conservativeness or "
        "the "
        "KV memory; aim for 70 % occupancy.",
        will_not_help=(
            ("longer client time-outs", "the recomputed tokens are still paid for"),
            ("a larger batch", "it fills the pool even sooner"),
        ),
        collect=("KV usage and waiting requests over time", "lengths of input and output"),
        confidence=0.85,
        reference="sgl-project/sglang#4184",
        depth=8,
        any=("preempted", "retracted"),
        check=_storm,
    ),
    Cause(
        id="preemption_rare",
        kind="preemption",
        sentence="Information only: a few requests were preempted. That is the scheduler's normal "
        "answer to a full pool, not a storm; the rate matters, not the presence.",
        remedy="Nothing now; watch the rate.",
        will_not_help=(("a restart", "nothing is broken"),),
        collect=("the preemption counter over an hour of load",),
        confidence=0.8,
        reference="rllm-org/rllm#93",
        depth=4,
        any=("preempted",),
        none=("retracted",),
        check=_few,
    ),
    Cause(
        id="kv_allocation_failed",
        kind="kv_too_small",
        sentence="The engine could not find KV slots for a batch that it had admitted.",
        remedy="Lower --max-running-requests or --chunked-prefill-size; raise "
        "--mem-fraction-static; "
        "upgrade: newer versions retract instead of ending.",
        will_not_help=(("a restart", "the same load fills the pool again"),),
        collect=("token usage before the failure", "the engine's version"),
        confidence=0.75,
        reference="sgl-project/sglang#26265",
        depth=53,
        any=("prefill_oom",),
    ),
    Cause(
        id="kv_pool_leak",
        kind="kv_leak",
        sentence="The engine's own accounting found KV slots that nobody owns.",
        remedy="Upgrade the engine; without upgrade, restart it and switch "
        "off the feature that the "
        "trace names.",
        will_not_help=(("a larger pool", "a leak fills any pool, only later"),),
        collect=(
            "the numbers in the line (available, evictable, protected)",
            "the engine's version",
        ),
        confidence=0.8,
        reference="sgl-project/sglang#11970",
        depth=52,
        any=("pool_leak",),
    ),
    Cause(
        id="port_in_use",
        kind="port_conflict",
        sentence="The port is taken by another process: the engine was started twice, an old one "
        "still runs, or a probe holds the port.",
        remedy="Find it with ss -ltnp and end it, or choose another --port.",
        will_not_help=(
            ("cleaning leaked shared memory", "that warning is only noise of the shutdown"),
            ("reinstalling", "the model had loaded; only the bind failed"),
        ),
        collect=("ss -ltnp | grep PORT", "ps for a second engine"),
        confidence=0.95,
        reference="vllm-project/vllm#9556",
        depth=69,
        any=("port_taken",),
    ),
    Cause(
        id="parallel_size_misfit",
        kind="rank_mismatch",
        sentence="The parallel size does not fit the model or the machine: "
        "heads cannot be divided, "
        "or "
        "there are fewer GPUs than ranks.",
        remedy="Choose a tensor-parallel size that divides the number of attention (and KV) heads "
        "and "
        "is at most the number of GPUs.",
        will_not_help=(("more memory", "the layers cannot be cut that way at all"),),
        collect=("the model's config.json", "nvidia-smi -L"),
        confidence=0.85,
        reference="https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html",
        depth=70,
        any=("tp_too_large",),
    ),
    Cause(
        id="gpu_too_old",
        kind="configuration",
        sentence="This GPU does not support a data type or a method that the model asks for.",
        remedy="Use --dtype half, another quantisation, or a newer GPU.",
        will_not_help=(("a newer driver", "the instruction is missing in the silicon"),),
        collect=("nvidia-smi --query-gpu=name,compute_cap --format=csv",),
        confidence=0.9,
        reference=_TROUBLE,
        depth=64,
        any=("unsupported_dtype",),
    ),
    Cause(
        id="model_not_reachable",
        kind="model_access",
        sentence="The model's files cannot be had: no permission, a wrong name, or no network.",
        remedy="Check the name, the token and its access; on a closed network point to a local "
        "directory and set HF_HUB_OFFLINE=1.",
        will_not_help=(("GPU settings", "the failure comes before any weight is loaded"),),
        collect=("the HTTP status in the line", "ls of the model directory"),
        confidence=0.85,
        reference="https://huggingface.co/docs/huggingface_hub/guides/download",
        depth=67,
        any=("model_access",),
    ),
    Cause(
        id="bad_arguments",
        kind="configuration",
        sentence="The command line or the configuration is refused.",
        remedy="Correct the argument named; compare with the version's --help.",
        will_not_help=(("a restart", "the same arguments are refused again"),),
        collect=("the full command line and the version",),
        confidence=0.8,
        reference="https://docs.vllm.ai/en/latest/cli/",
        depth=62,
        any=("bad_argument",),
    ),
    Cause(
        id="cuda_forked",
        kind="configuration",
        sentence="CUDA was used before the workers were forked; a forked child cannot use it.",
        remedy="Set VLLM_WORKER_MULTIPROC_METHOD=spawn, guard the script's main part, and touch no "
        "GPU before the engine starts.",
        will_not_help=(("reinstalling CUDA", "the driver forbids a context across a fork"),),
        collect=("what runs before the engine is created",),
        confidence=0.95,
        reference="https://docs.vllm.ai/en/latest/usage/troubleshooting.html",
        depth=65,
        any=("cuda_forked",),
    ),
    Cause(
        id="worker_unresponsive",
        kind="hang_watchdog",
        sentence="The driver waited for a worker until its patience ended: a "
        "worker is stuck or dead. "
        "The time-out is the symptom; the worker's own log holds the cause.",
        remedy="Look for the first error in the workers' lines; with none there, take py-spy dump "
        "of "
        "every worker while it hangs and compare them: the one that differs is to blame.",
        will_not_help=(
            ("a longer time-out", "a worker that is stuck stays stuck"),
            ("a larger /dev/shm alone", "the queue is waiting for a reader, not for space"),
        ),
        collect=(
            "py-spy dump of every worker",
            "the workers' logs before the wait",
            "journalctl -k (OOM, Xid, segfault)",
        ),
        confidence=0.5,
        reference="vllm-project/vllm#17965",
        depth=10,
        any=("shm_broadcast_trace", "shm_broadcast_wait", "rpc_timeout", "engine_watchdog"),
        role="symptom",
        check=lambda facts: (
            None
            if not facts.has("rpc_timeout", "engine_watchdog", "timeout_error")
            and (
                facts.count("shm_broadcast_wait") < 2 or facts.recovered("shm_broadcast_wait")
            )  # once is usual while kernels compile
            else Check()
        ),
    ),
)

FAMILY = Family("engines", "vLLM and SGLang", SIGNS, CAUSES)
