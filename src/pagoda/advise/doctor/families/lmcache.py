"""LMCache: pools that fill, entries that vanish between lookup and load, hashes, remotes."""

from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign


def _fatal_follows(facts: Facts) -> Check | None:
    """Skipped stores are harmless until the engine ends as well."""
    return Check() if facts.has("engine_dead") else None


SIGNS = (
    Sign("lmcache_named", ("lmcache",), r"lmcache", role="context"),
    Sign(
        "lmcache_pool_full",
        (
            " evict",
            "because no memory is available",
            "failed to allocate memory during",
            "failed to allocate memory for tensor",
            "failed to allocate memory object",
        ),
        r"[Ff]ailed to allocate memory (?:for tensor|object|during)|because no memory is available"
        r"|[Nn]o eviction candidates|(?:cannot|failed to) evict",
    ),
    Sign(
        "lmcache_store_skipped",
        (
            " store",
            " storing",
            "failed to allocate memory for the kv cache",
        ),
        r"KV cache will not be stored|[Ff]ailed to allocate memory for the KV cache"
        r"|[Ss]kip(?:ping)? stor(?:e|ing)",
        role="symptom",
        title="a store was skipped because its staging memory was full: harmless by itself",
        collect="the cache's pool sizes and the bandwidth of its disk tier",
    ),
    Sign(
        "lmcache_object_gone",
        (
            "cacheenginekey",
            "in the storage, but it can",
            "memory_obj",
            "number of retrieved tokens is less than",
        ),
        r"memory_obj(?:ect)?s?\b.{0,40}(?:is not None|is None|NoneType)"
        r"|in the storage, but it can'?t be retrieved"
        r"|number of retrieved tokens is less than|KeyError: .{0,20}CacheEngineKey"
        r"|NoneType.{0,60}memory_obj",
    ),
    Sign(
        "lmcache_refcount",
        (
            " occurred",
            "below zero",
            "is negative",
        ),
        r"[Dd]ouble (?:free|unpin) occurred|(?:ref|pin)[ _]count.{0,60}(?:is negative|below zero)",
    ),
    Sign(
        "lookup_ranks_differ",
        ("lookup result",),
        r"[Ll]ookup results?.{0,80}(?:differ|inconsistent|not (?:the )?same|mismatch)",
    ),
    Sign(
        "hash_seed",
        (
            "builtin hash without",
            "pythonhashseed",
        ),
        r"PYTHONHASHSEED.{0,40}(?:not set|unset|is not|must)|without PYTHONHASHSEED"
        r"|[Bb]uiltin hash without",
        any_level=True,
    ),
    Sign(
        "remote_lost",
        (
            "connection to ",
            "failed to connect to ",
            "failed to initialize/re-establish remote",
            "no adapter found for url",
            "redis.exceptions.busyloading",
            "redis.exceptions.connectionerror",
            "remote connection failed",
            "to remote",
        ),
        r"[Rr]emote connection failed|[Ff]ailed to initialize/re-establish remote"
        r"|No adapter found for URL"
        r"|[Ff]ailed to (?:put|write|store) to remote"
        r"|redis\.exceptions\.(?:ConnectionError|BusyLoading)"
        r"|[Ff]ailed to connect to (?:the )?(?:remote|lmcache|redis)"
        r"|(?:[Ll]ost|[Cc]losed).{0,20}connection to (?:the )?(?:remote|lmcache|redis|cache)",
    ),
    Sign(
        "remote_slow",
        (
            "fallback to blackhole",
            "timed out",
            "timeout",
        ),
        r"[Ff]allback to blackhole|redis\.exceptions\.TimeoutError"
        r"|(?:[Rr]emote|[Pp]refetch|[Rr]etrieve|[Ll]ookup"
        r"|batched_get|kv ?cache server"
        r"|cache server).{0,80}(?:timed out|[Tt]imeout(?:Error| error| after| exceeded| while))"
        r"|[Tt]imeout (?:when|while) (?:getting|putting)",
    ),
    Sign(
        "remote_refuses",
        (
            "accessdenied",
            "can't write against a read only replica",
            "invalidaccesskeyid",
            "noauth authentication required",
            "nosuchbucket",
            "signaturedoesnotmatch",
            "wrongpass",
        ),
        r"\bWRONGPASS\b|NOAUTH Authentication required|can't write against a read only replica"
        r"|\b(?:AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket)\b",
    ),
    Sign(
        "remote_full",
        ("when used memory > 'maxmemory'",),
        r"command not allowed when used memory > 'maxmemory'",
    ),
    Sign("lmcache_need_negative", ("need to load: -",), r"need to load: -\d", role="noise"),
    Sign(
        "lmcache_hits",
        (
            "hit tokens: ",
            "retrieved ",
        ),
        r"hit tokens: \d|Retrieved \d",
        role="context",
    ),
)

CAUSES = (
    Cause(
        id="cache_pool_exhausted",
        kind="lmcache",
        sentence="The cache's host pool is full and nothing in it can be "
        "evicted (entries pinned or "
        "leaked): caching stops while serving goes on.",
        remedy="Enlarge the pool (max_local_cpu_size); upgrade LMCache; lower the number of "
        "requests "
        "that hold entries at once.",
        will_not_help=(
            ("more GPU memory", "the pool lies in host memory"),
            ("a restart without a change", "the pool fills again under the same load"),
        ),
        collect=(
            "pool size and chunk size",
            "LMCache's version",
            "the number of requests in flight",
        ),
        confidence=0.8,
        reference="LMCache/LMCache#745",
        depth=44,
        any=("lmcache_pool_full",),
    ),
    Cause(
        id="cache_staging_exhausted",
        kind="lmcache",
        sentence="The memory in front of the disk tier is exhausted: stores "
        "come faster than the disk "
        "takes them. Skipped stores alone are harmless; here the engine ended on its load path.",
        remedy="Enlarge the staging memory, use a faster drive, or admit fewer blocks; upgrade "
        "LMCache.",
        will_not_help=(
            ("more GPU memory", "the staging memory is the host's"),
            ("a larger disk", "bandwidth is missing, not space"),
        ),
        collect=(
            "iostat -x 1 of the drive",
            "staging size",
            "the trace under the engine's fatal error",
        ),
        confidence=0.65,
        reference="LMCache/LMCache#969",
        depth=43,
        any=("lmcache_store_skipped",),
        check=_fatal_follows,
    ),
    Cause(
        id="cache_stores_skipped",
        kind="lmcache",
        sentence="The cache skips stores because its memory is full: serving "
        "goes on, hits are lost.",
        remedy="Enlarge the pool or the staging memory, or admit fewer blocks.",
        will_not_help=(("a restart", "the pool fills again"),),
        collect=("pool sizes", "hit rate over time"),
        confidence=0.6,
        reference="LMCache/LMCache#969",
        depth=14,
        any=("lmcache_store_skipped",),
        check=lambda facts: None if _fatal_follows(facts) else Check(),
    ),
    Cause(
        id="cache_entry_gone",
        kind="lmcache",
        sentence="The cache's load path found nothing where its lookup had "
        "promised an entry: lookup "
        "and load are not one step. The first request works, an identical one later fails.",
        remedy="Upgrade LMCache; until then enlarge the pool so that entries are not evicted "
        "between "
        "lookup and load, or switch the remote tier off.",
        will_not_help=(
            ("more GPU memory", "the entry is gone from the cache, not from the GPU"),
            ("a retry of the same request", "the hit is what fails"),
        ),
        collect=(
            "both requests' log lines (cold and warm)",
            "LMCache and engine versions",
            "evictions between lookup and load",
        ),
        confidence=0.8,
        reference="LMCache/LMCache#2238",
        depth=47,
        any=("lmcache_object_gone", "lookup_ranks_differ"),
        explains=("cache_stores_skipped",),
    ),
    Cause(
        id="cache_reference_counts",
        kind="lmcache",
        sentence="The cache's reference or pin counts went wrong: entries are "
        "freed twice or never, "
        "so that memory is reused under a reader or leaks.",
        remedy="Upgrade LMCache; until then switch asynchronous loading or "
        "the remote tier off, and "
        "distrust answers from restored prefixes.",
        will_not_help=(
            ("a larger pool", "a leak fills it later, and a double free damages it at any size"),
        ),
        collect=("the first such line with the lines before it", "LMCache's version"),
        confidence=0.7,
        reference="LMCache/LMCache#5095",
        depth=46,
        any=("lmcache_refcount",),
    ),
    Cause(
        id="hash_seed_differs",
        kind="hash_seed",
        sentence="Keys are made with Python's own hash and no fixed PYTHONHASHSEED: every process "
        "names the same tokens differently, so nothing is ever shared.",
        remedy="Set the same PYTHONHASHSEED for every process on every node "
        "before start (or a hash "
        "algorithm that does not depend on it), then flush the remote tier.",
        will_not_help=(
            ("a larger or faster remote tier", "the names never match"),
            ("more warm-up", "each process warms names of its own"),
        ),
        collect=(
            "env | grep PYTHONHASHSEED in every worker",
            "the hash algorithm printed at start",
        ),
        confidence=0.85,
        reference="LMCache/LMCache#2581",
        depth=12,
        any=("hash_seed",),
    ),
    Cause(
        id="remote_cache_lost",
        kind="kv_remote_timeout",
        sentence="The connection to the remote cache is lost: every lookup is a miss plus a delay. "
        "Answers stay right but slow: degraded, not failed.",
        remedy="Check the server and its address; correct the URL's scheme; set short time-outs so "
        "that a dead remote costs little.",
        will_not_help=(
            ("a larger local pool alone", "each lookup still waits for the dead remote"),
            ("restarting the engine", "the remote is as unreachable as before"),
        ),
        collect=(
            "the server's log and memory",
            "nc -vz HOST PORT from the worker",
            "the remote URL",
        ),
        confidence=0.8,
        reference="LMCache/LMCache#1938",
        depth=39,
        any=("remote_lost",),
    ),
    Cause(
        id="remote_cache_refuses",
        kind="kv_remote_refused",
        sentence="The remote cache answers and refuses: a wrong password or key, a missing right "
        "or bucket, or a replica that only reads.",
        remedy="Correct the credentials or the bucket's name, or point to the primary; try with "
        "the server's own client from the same host.",
        will_not_help=(
            ("longer time-outs", "the answer came at once, and it was no"),
            ("a larger remote", "nothing is stored there at all"),
        ),
        collect=("the refusal's code", "the URL without its password", "INFO replication (Redis)"),
        confidence=0.85,
        reference="https://redis.io/docs/latest/operate/oss_and_stack/management/security/acl/",
        depth=40,
        any=("remote_refuses",),
        explains=("remote_cache_lost",),
    ),
    Cause(
        id="remote_cache_full",
        kind="kv_remote_full",
        sentence="The remote cache is full and was not told to evict: it refuses every write.",
        remedy="Set a policy that evicts (Redis: maxmemory-policy allkeys-lru) or raise maxmemory.",
        will_not_help=(("a restart of the engine", "the remote stays as full as it is"),),
        collect=("INFO memory and CONFIG GET maxmemory-policy of the server",),
        confidence=0.9,
        reference="https://redis.io/docs/latest/develop/reference/eviction/",
        depth=40,
        any=("remote_full",),
        explains=("remote_cache_lost",),
    ),
    Cause(
        id="remote_cache_slow",
        kind="kv_remote_timeout",
        sentence="The remote cache does not answer in time.",
        remedy="Measure the link and the server; send fewer or larger objects; recompute when a "
        "load "
        "would be slower than prefill.",
        will_not_help=(("longer time-outs", "each request then waits longer for less"),),
        collect=("the remote's latency and CPU", "object size and bandwidth of the link"),
        confidence=0.65,
        reference="LMCache/LMCache#5047",
        depth=38,
        any=("remote_slow",),
    ),
)

FAMILY = Family("lmcache", "LMCache", SIGNS, CAUSES)
