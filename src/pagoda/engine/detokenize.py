"""Text from tokens, one at a time: never half a character, never part of a stop string.

`Pieces` knows the bytes of every token, so a sequence's text is the UTF-8 decoding of their
concatenation whatever the split. `StopMatcher` withholds text while it may still become a stop
string. Both cost the same per token however long the answer is.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from pagoda.core.errors import UnsupportedModel

__all__ = ["Detokenizer", "Pieces", "StopMatcher", "Tokenizer"]

BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
SPACE_MARK = "\u2581"  # how sentencepiece vocabularies write a space


class Tokenizer(Protocol):
    """What is used of `tokenizers.Tokenizer`."""

    def to_str(self) -> str: ...

    def id_to_token(self, id: int) -> str | None: ...

    def get_added_tokens_decoder(self) -> dict[int, object]: ...


def _byte_of_letter() -> dict[str, int]:
    """Byte-level BPE writes every byte as one visible letter: printable Latin-1 stands for
    itself, the other bytes follow one another from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + at): byte for at, byte in enumerate(hidden)}


BYTE_OF_LETTER = _byte_of_letter()


def _kinds(decoder: object) -> set[str]:
    """The names of a tokenizer's decoding steps; `decoder` is that part of its JSON."""
    if not isinstance(decoder, dict):
        return set()
    steps = decoder.get("decoders") or [decoder]
    return {str(step.get("type")) for step in steps}


class Pieces:
    """The bytes of each token of a vocabulary, as they stand inside a sequence.

    Knows byte-level BPE (Llama 3, Qwen, SmolLM2) and sentencepiece with byte fallback (Llama 2,
    Mistral). Special tokens have no bytes. Raises UnsupportedModel for any other decoder.
    """

    def __init__(self, tokenizer: Tokenizer, *, path: str) -> None:
        kinds = _kinds(json.loads(tokenizer.to_str()).get("decoder"))
        self.byte_level = "ByteLevel" in kinds
        self._byte_fallback = "ByteFallback" in kinds
        if not self.byte_level and not kinds & {"ByteFallback", "Metaspace"}:
            raise UnsupportedModel(
                f"the tokenizer's decoder {sorted(kinds)} is not implemented",
                path=path,
                feature="tokenizer decoder",
                remedy="byte-level BPE and sentencepiece tokenizers are supported",
            )
        self._tokenizer = tokenizer
        self._added = tokenizer.get_added_tokens_decoder()
        self._cache: dict[int, bytes] = {}

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes a token adds to a text; none for special and unassigned ids."""
        found = self._cache.get(token_id)
        if found is None:
            found = self._cache[token_id] = self._spell(token_id)
        return found

    def text_of(self, token_id: int) -> str:
        """A token on its own, for log-probabilities: its text, a special token's name, or
        `bytes:\\xe4\\xbd` when it is no whole number of characters (as OpenAI writes it)."""
        added = self._added.get(token_id)
        if added is not None:
            return str(added)
        spelled = self.bytes_of(token_id)
        try:
            return spelled.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of a whole sequence; invalid UTF-8 becomes U+FFFD. A sentencepiece text
        loses the space that its encoder put in front."""
        text = b"".join(map(self.bytes_of, token_ids)).decode(errors="replace")
        return text if self.byte_level else text.removeprefix(" ")

    def _spell(self, token_id: int) -> bytes:
        added = self._added.get(token_id)
        if added is not None:
            return b"" if getattr(added, "special", False) else str(added).encode()
        piece = self._tokenizer.id_to_token(token_id) if token_id >= 0 else None
        if piece is None:
            return b""
        if self.byte_level:
            return _byte_level(piece)
        byte = BYTE_PIECE.fullmatch(piece) if self._byte_fallback else None
        return bytes([int(byte[1], 16)]) if byte else piece.replace(SPACE_MARK, " ").encode()


def _byte_level(piece: str) -> bytes:
    if all(letter in BYTE_OF_LETTER for letter in piece):
        return bytes(BYTE_OF_LETTER[letter] for letter in piece)
    return piece.encode()


class _Needle:
    """One stop string as a Knuth-Morris-Pratt automaton: `matched` is the length of its
    longest prefix that ends the text fed so far."""

    __slots__ = ("_back", "_text", "matched")

    def __init__(self, text: str) -> None:
        assert text, "an empty stop string stops everywhere; the front door refuses it"
        self._text = text
        self._back = [0] * len(text)
        self.matched = 0
        for at in range(1, len(text)):
            self._back[at] = self._advance(self._back[at - 1], text[at])

    def feed(self, letter: str) -> bool:
        """Takes one character; True when the whole stop string has just been seen."""
        self.matched = self._advance(self.matched, letter)
        return self.matched == len(self._text)

    def _advance(self, matched: int, letter: str) -> int:
        while matched and self._text[matched] != letter:
            matched = self._back[matched - 1]
        return matched + 1 if self._text[matched] == letter else 0


class StopMatcher:
    """Lets text through up to the first stop string.

    The first to be *completed* wins, whatever the size of the pieces fed; of several that end
    at one place, the longest is cut off. At most the longest stop string less one is withheld.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._needles = [_Needle(text) for text in stop]
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """What became certain by `text`; nothing any more once `stopped`."""
        if not self._needles or self.stopped:
            return "" if self.stopped else text
        self._held += text
        start = len(self._held) - len(text)
        for end, letter in enumerate(text, start=start + 1):
            ended = [needle.matched for needle in self._needles if needle.feed(letter)]
            if ended:
                self.stopped = True
                return self._release(end - max(ended), keep=False)
        return self._release(len(self._held) - max(n.matched for n in self._needles), keep=True)

    def flush(self) -> str:
        """What was withheld, when the text ends without a stop string."""
        return "" if self.stopped else self._release(len(self._held), keep=False)

    def _release(self, size: int, *, keep: bool) -> str:
        certain, rest = self._held[:size], self._held[size:]
        self._held = rest if keep else ""
        return certain


class Detokenizer:
    """The text of one growing sequence. Feed tokens that belong to the answer (not the
    end-of-sequence token); `stopped` turns True when a stop string was completed."""

    def __init__(self, pieces: Pieces, stop: Sequence[str] = ()) -> None:
        self._pieces = pieces
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._matcher = StopMatcher(stop)

    @property
    def stopped(self) -> bool:
        return self._matcher.stopped

    def feed(self, token_id: int) -> str:
        """Text that became certain with this token; may be empty."""
        return self._matcher.feed(self._characters.decode(self._pieces.bytes_of(token_id)))

    def flush(self) -> str:
        """The rest of the text, when the sequence ends for another reason than a stop string.
        An unfinished character becomes U+FFFD."""
        rest = self._matcher.feed(self._characters.decode(b"", final=True))
        return rest + self._matcher.flush()
