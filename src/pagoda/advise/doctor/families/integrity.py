"""Wrong bytes: blocks that do not match their seal, caches that outlive their weights."""

from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign

_FAULTS = "LMCache/LMCache#4385"


def _stale(facts: Facts) -> Check | None:
    """Weights changed, cached tokens still used, and answers or a witness say that they are old."""
    witness = facts.has("stale_told") or (
        facts.has("cache_hit_told") and facts.has("answers_differ")
    )
    return Check() if witness else None


def _layout(facts: Facts) -> Check | None:
    """A layout is named and restored answers differ, or the mismatch is said outright."""
    if facts.has("layout_error"):
        return Check("", 0.85)
    if facts.has("layout_named") and facts.has("answers_differ"):
        good = facts.has("control_matches")
        return Check("The control run matches." if good else "", 0.75 if good else 0.6)
    return None


def _wrong(facts: Facts) -> Check | None:
    """Answers differ with a cache in play, and no better reason is known."""
    return Check() if facts.has("cache_hit_told", "lmcache_named", "offload_named") else None


SIGNS = (
    Sign(
        "corrupt_block",
        (
            " damaged",
            "bad magic",
            "checksum",
            "corrupt",
            "crc mismatch",
            "crc32",
            "digest",
            "failed ",
            "fingerprint mismatch",
            "hash mismatch",
            "integrity",
            "seal mismatch",
            "sealbroken",
            "sealed",
            "sealerror",
            "sealmismatch",
        ),
        r"(?:block|page|chunk|slot|kv|cache|entry|payload|seal|object|shard|store)\b.{0,80}"
        r"(?:(?:is|are|was) (?:corrupt|damaged)|corrupted\b|bad magic|checksum mismatch"
        r"|checksum error|checksum fail|failed (?:its |the )?(?:checksum|digest|crc|seal)"
        r"|crc mismatch|digest mismatch|seal mismatch|hash mismatch|fingerprint mismatch)"
        r"|(?:checksum|digest|integrity|crc32c?|sealed)\w{0,8} (?:mismatch|error|check failed"
        r"|verification failed|failed).{0,100}"
        r"(?:block|page|chunk|slot|kv|cache|entry|payload|key)"
        r"|(?:Corrupt\w{0,20}|Integrity|Checksum|SealMismatch|SealBroken)(?:Error|Exception)\b"
        r"|\bSealError\b"
        r"|corrupt(?:ed)? (?:kv |cache |cached |stored )?(?:block|page|chunk|entry|slot|payload)"
        r"|\bCorrupt(?:Block|Page|Chunk|Entry)\b",
    ),
    Sign(
        "short_block",
        (
            " expected ",
            "short read",
            "truncated",
            "unexpected end of",
            "wrong size",
        ),
        r"(?:block|page|chunk|slot|kv|cache|payload|slab).{0,80}(?:(?<!\b0 )truncated|short read"
        r"|wrong size|unexpected end of)"
        r"|(?:[Ss]hort read|[Tt]runcated).{0,80}(?:block|page|chunk|slot|kv|cache|payload|slab)"
        r"|(?:read|got|returned) \d{1,15} (?:of \d{1,15} )?bytes,? expected \d{1,15}",
    ),
    Sign(
        "foreign_block",
        (
            " mismatch",
            "belongs to another",
            "foreign block",
            "foreign page",
            "of a different",
        ),
        r"(?:namespace|model|metadata|weights? fingerprint|key|dtype"
        r"|kv dtype) mismatch.{0,80}(?:block|page|cache|kv|store|chunk)"
        r"|(?:block|page|cache|kv|chunk).{0,80}(?:namespace|model|metadata|dtype"
        r"|fingerprint) mismatch"
        r"|[Ff]oreign (?:block|page)|(?:block|page|cache|kv).{0,60}(?:belongs to another"
        r"|of a different) (?:model|tenant|namespace)",
    ),
    Sign(
        "weights_changed",
        (
            "load_inplace",
            "load_lora_adapter",
            "reload",
            "replaced",
            "swapp",
            "updat",
        ),
        r"update_(?:weights|params)\w{0,30}|(?:[Ww]eights?|[Aa]dapter|LoRA).{0,30}(?:updated?"
        r"|reload\w{0,3}|swapped|replaced)"
        r"|(?:updat|reload|swapp)\w{0,4}.{0,20}(?:weights|adapter|LoRA)"
        r"|load_lora_adapter.{0,80}inplace|load_inplace.{0,4} ?[:=] ?true",
        role="context",
    ),
    Sign(
        "stale_told",
        (
            "flushed",
            "invalidated",
            "no cache invalidation",
            "outdated cache",
            "outdated kv",
            "outdated prefix",
            "stale",
        ),
        r"\b[Ss]tale\b.{0,60}(?:KV|kv|cache|prefix|block)|(?:KV|kv|cache"
        r"|prefix).{0,40}\b(?:is |are |was )?stale\b"
        r"|(?:prefix cache|cache|KV).{0,40}(?:not|NOT|never) (?:been )?(?:invalidated|flushed)"
        r"|NO cache invalidation"
        r"|outdated (?:KV|cache|prefix)",
    ),
    Sign(
        "cache_hit_told",
        (
            "cache",
            "hit tokens: ",
        ),
        r"cached[_-]tokens?\"?[=: ]{1,3}[1-9]|cache[- ]hit.{0,40}[1-9]"
        r"|[Pp]refix cache hit rate: (?!0\.0%)[\d.]{1,6}%"
        r"|hit tokens: [1-9]",
        role="context",
    ),
    Sign(
        "answers_differ",
        (
            "corrupt",
            "differ",
            "diverge",
            "first_diff=",
            "garbage",
            "garbled",
            "gibberish",
            "incorrect",
            "match",
            "nonsens",
            "not equal",
            "token salad",
            "wrong",
        ),
        r"\bMATCH:?=? ?False|first_diff=\d|(?:outputs?|answers?|tokens?|completions?|logits"
        r"|text|results?|greedy).{0,60}"
        r"(?:differ|do(?:es)? not match|mismatch|diverge|garbage|gibberish|wrong|nonsense"
        r"|not equal)"
        r"|(?:garbage|gibberish|wrong|incorrect|nonsens\w{0,4}|garbled"
        r"|corrupt\w{0,2}) (?:output|answer|text|token|completion|result)"
        r"|token salad",
        role="context",
    ),
    Sign(
        "control_matches",
        (
            "baseline",
            "control",
            "first_diff=-1",
            "match",
            "without ",
        ),
        r"MATCH:?=? ?True|first_diff=-1|(?:baseline|control"
        r"|without (?:the )?cache).{0,60}(?:match|correct|same|OK|ok)",
        role="context",
    ),
    Sign(
        "layout_named",
        (
            "fused",
            "interleaved",
            "layout",
            "packed kv",
        ),
        r"(?<![A-Za-z])fused|packed (?:kv|KV)|[Kk][Vv][_ ][Ll]ayout|interleaved|(?:kv|KV|cache"
        r"|tensor).{0,30}layout",
        role="context",
    ),
    Sign(
        "layout_error",
        (
            " not match",
            "differ",
            "incompatible",
            "mismatch",
            "not supported",
            "unexpected",
            "unknown",
            "unsupported",
        ),
        r"(?:KV|kv)[ _]?(?:cache )?(?:layout|shape|format)s?.{0,80}(?:mismatch|not supported"
        r"|unsupported|unexpected|do(?:es)? not match|differ)"
        r"|(?:mismatch\w{0,4}|unsupported|unexpected|incompatible|unknown) (?:KV"
        r"|kv)[ _]?(?:cache )?(?:layout|shape|format)",
    ),
)

CAUSES = (
    Cause(
        id="corrupt_block",
        kind="cache_integrity",
        sentence="The cache store read back a block that does not match its checksum: the stored "
        "bytes "
        "are damaged, and everything that asks for this prefix meets them again.",
        remedy="Quarantine or delete the block (pagoda scrub, or empty that tier), let it be "
        "recomputed, "
        "and find the medium that damaged it: the kernel's log and smart-log of its drive.",
        will_not_help=(
            ("longer NCCL time-outs", "no collective is late; a worker raised an error"),
            ("restarting pods", "the damaged block is on the drive and is read again"),
            ("a healthy nvidia-smi", "the damage is in storage or host memory, not in the GPU"),
            ("retrying the request", "the same prefix leads to the same block"),
        ),
        collect=(
            "the block's key, tier, drive and slot",
            "smart-log and journalctl -k of that drive",
            "ECC counters of host and GPU",
            "whether other blocks of the same drive fail",
        ),
        confidence=0.9,
        reference=_FAULTS,
        depth=85,
        any=("corrupt_block", "short_block"),
        explains=(
            "worker_unresponsive",
            "collective_stopped",
            "collective_never_worked",
            "nccl_remote_died",
            "cache_entry_gone",
            "kv_load_failed",
            "hicache_bug",
            "offload_bug",
        ),
    ),
    Cause(
        id="foreign_block",
        kind="kv_identity",
        sentence="The store holds blocks of another model, dtype, layout or tenant under the same "
        "names.",
        remedy="Give each model and version a directory or prefix of its own; empty the tier; use "
        "keys "
        "that contain the weights' fingerprint.",
        will_not_help=(
            ("a restart", "the foreign blocks stay in the store"),
            ("a larger pool", "the names collide at any size"),
        ),
        collect=("the configurations of all engines that share the store", "one block's metadata"),
        confidence=0.8,
        reference="sgl-project/sglang#24758",
        depth=57,
        any=("foreign_block",),
        explains=("kv_load_failed",),
    ),
    Cause(
        id="stale_prefix_cache",
        kind="stale_cache",
        sentence="The weights changed while the prefix cache lived on: "
        "answers are built on KV of the "
        "old weights, silently.",
        remedy="Flush the prefix cache at every weight or adapter update; "
        "use keys that contain the "
        "weights' version.",
        will_not_help=(
            ("a lower temperature", "the context itself is wrong"),
            ("a larger cache", "it keeps stale blocks even longer"),
        ),
        collect=(
            "the times of update and flush",
            "the same prompt cold and warm, before and after",
        ),
        confidence=0.8,
        reference="InternLM/lmdeploy#4917",
        depth=50,
        any=("weights_changed",),
        check=_stale,
        explains=("kv_layout_misread", "wrong_answers"),
    ),
    Cause(
        id="kv_layout_misread",
        kind="kv_layout",
        sentence="A connector reads the KV tensor in another layout than the engine writes (split "
        "beside fused or packed): bytes come back in the wrong places without an error.",
        remedy="Pin versions of engine and cache that name each other as "
        "compatible; put the layout "
        "into the key; compare restored with recomputed answers.",
        will_not_help=(
            ("a restart", "the same bytes are restored in the same wrong places"),
            ("checksums alone", "the bytes are intact, only their meaning is wrong"),
        ),
        collect=(
            "versions of engine and connector",
            "the layout and shape each prints at start",
            "the same prompt with and without the cache",
        ),
        confidence=0.75,
        reference="LMCache/LMCache#4463",
        depth=49,
        any=("layout_error", "layout_named"),
        check=_layout,
        explains=("wrong_answers",),
    ),
    Cause(
        id="wrong_answers",
        kind="cache_integrity",
        sentence="Answers differ with the cache in use, and the log does not say why.",
        remedy="Run the prompt cold, warm and without the cache; switch tiers off one by one until "
        "the answers agree.",
        will_not_help=(("a restart", "a warm tier brings the same bytes back"),),
        collect=("the three answers with cached token counts", "versions of engine and cache"),
        confidence=0.5,
        reference=_FAULTS,
        depth=16,
        any=("answers_differ",),
        check=_wrong,
    ),
)

FAMILY = Family("integrity", "Wrong bytes in the cache", SIGNS, CAUSES)
