"""Streaming text: the pieces add up to the whole, and stop strings never leak."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers")

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from pagoda.core.errors import UnsupportedModel
from pagoda.engine.detokenize import (
    BYTE_OF_LETTER,
    Detokenizer,
    Pieces,
    StopMatcher,
)

LETTER_OF_BYTE = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}


def letters(text: bytes) -> str:
    return "".join(LETTER_OF_BYTE[byte] for byte in text)


def byte_level() -> Tokenizer:
    """256 bytes, some pieces that end inside characters, one special and one added token."""
    pieces = [letters(bytes([byte])) for byte in range(256)]
    extra = [b" the", b"ab", " 😀".encode()[:3], "你".encode()[:2], "好".encode(), b"\n\n"]
    vocab = {piece: at for at, piece in enumerate([*pieces, *map(letters, extra)])}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|end|>", special=True)])
    made.add_tokens([AddedToken("<tag>", special=False)])
    return made


def byte_fallback() -> Tokenizer:
    """A sentencepiece-like vocabulary: words with marked spaces, bytes as <0xNN>."""
    words = ["<unk>", "▁the", "▁", "ab", "你", "▁😀", "▁▁"]
    words += [f"<0x{byte:02X}>" for byte in range(256)]
    made = Tokenizer(models.BPE(vocab={w: at for at, w in enumerate(words)}, merges=[]))
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    made.add_special_tokens([AddedToken("</s>", special=True)])
    return made


BYTE_LEVEL = byte_level()
BYTE_FALLBACK = byte_fallback()
byte_level_ids = st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() + 2), max_size=60)
byte_fallback_ids = st.lists(st.integers(0, BYTE_FALLBACK.get_vocab_size() + 2), max_size=60)


def streamed(pieces: Pieces, ids: list[int], stop: tuple[str, ...] = ()) -> list[str]:
    """The deltas of a stream, ended as an engine ends it."""
    detokenizer = Detokenizer(pieces, stop)
    deltas = []
    for token_id in ids:
        deltas.append(detokenizer.feed(token_id))
        if detokenizer.stopped:
            return deltas
    return [*deltas, detokenizer.flush()]


def cut_at_stop(text: str, stop: tuple[str, ...]) -> str:
    """Naive model: the shortest prefix that ends with a stop string, without the longest one
    that ends it; the whole text when there is none."""
    for end in range(1, len(text) + 1):
        found = [s for s in stop if text[:end].endswith(s)]
        if found:
            return text[: end - max(map(len, found))]
    return text


@settings(max_examples=300, deadline=None)
@given(byte_level_ids)
@example([226, 189, 160])
def test_deltas_of_any_byte_level_stream_equal_the_tokenizers_own_decoding(ids):
    """Random tokens, cut characters and invalid bytes included, add up to the full text."""
    whole = BYTE_LEVEL.decode(ids, skip_special_tokens=True)
    pieces = Pieces(BYTE_LEVEL, path="x")
    assert "".join(streamed(pieces, ids)) == whole
    assert pieces.decode(ids) == whole


@settings(max_examples=300, deadline=None)
@given(byte_fallback_ids)
def test_deltas_of_any_byte_fallback_stream_equal_the_decoding_in_place(ids):
    """The stream equals the whole, and differs from a stand-alone text by one leading space."""
    pieces = Pieces(BYTE_FALLBACK, path="x")
    text = "".join(streamed(pieces, ids))
    assert pieces.decode(ids) == text.removeprefix(" ")


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("ab 你😀é\n"), max_size=30))
def test_byte_fallback_of_valid_text_equals_the_tokenizers_own_decoding(text):
    """Wherever the bytes spell valid UTF-8, tokenizers agrees."""
    ids = [7 + byte for byte in text.encode()]
    expected = BYTE_FALLBACK.decode(ids)
    assert Pieces(BYTE_FALLBACK, path="x").decode(ids) == expected


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40), st.data())
def test_no_delta_ends_inside_a_character(text, data):
    """However the bytes of a valid text are split, U+FFFD never shows."""
    text = text.replace("\ufffd", "")
    deltas = streamed(Pieces(BYTE_LEVEL, path="x"), list(text.encode()))
    assert "".join(deltas) == text
    assert all("\ufffd" not in delta for delta in deltas)


stops = st.lists(st.text("ab😀\n", min_size=1, max_size=5), max_size=4).map(tuple)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.text("ab😀\n", max_size=6), max_size=20), stops)
@example(["abc"], ("abcd", "bc"))
@example(["aab"], ("aaab", "ab"))
def test_stop_strings_cut_the_text_where_a_naive_search_does(chunks, stop):
    """The result depends on the text alone, not on its pieces; nothing withheld is lost."""
    matcher = StopMatcher(stop)
    out = "".join(map(matcher.feed, chunks)) + matcher.flush()
    whole = "".join(chunks)
    assert out == cut_at_stop(whole, stop)
    assert matcher.stopped == any(s in whole for s in stop)


@settings(max_examples=200, deadline=None)
@given(st.text("ab", max_size=60), stops)
def test_only_what_may_become_a_stop_string_is_withheld(text, stop):
    """After each character, what is out plus a proper prefix of a stop string is the text."""
    matcher = StopMatcher(stop)
    out = ""
    for end, letter in enumerate(text, start=1):
        out += matcher.feed(letter)
        if matcher.stopped:
            break
        held = text[len(out) : end]
        assert out + held == text[:end]
        assert not held or any(s != held and s.startswith(held) for s in stop)


@settings(max_examples=200, deadline=None)
@given(byte_level_ids, stops)
def test_a_detokenizer_stops_where_its_text_does(ids, stop):
    """Tokens and stop strings together still add up to the text before the stop string."""
    whole = BYTE_LEVEL.decode(ids, skip_special_tokens=True)
    assert "".join(streamed(Pieces(BYTE_LEVEL, path="x"), ids, stop)) == cut_at_stop(whole, stop)


def test_the_text_of_a_token_alone_names_specials_and_spells_parts_of_characters():
    """Log-probabilities show what a token is, even when it is no text."""
    pieces = Pieces(BYTE_LEVEL, path="x")
    special, added = (BYTE_LEVEL.token_to_id(t) for t in ("<|end|>", "<tag>"))
    assert pieces.text_of(special) == "<|end|>"
    assert pieces.bytes_of(special) == b""
    assert (pieces.text_of(added), pieces.bytes_of(added)) == ("<tag>", b"<tag>")
    assert pieces.text_of(0xE4) == "bytes:\\xe4"
    assert pieces.text_of(10**9) == ""


def test_an_unknown_decoder_is_refused_by_name():
    """A tokenizer whose text could only be guessed is not served."""
    strange = Tokenizer(models.WordPiece(vocab={"[UNK]": 0}, unk_token="[UNK]"))
    strange.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedModel, match="WordPiece") as refusal:
        Pieces(strange, path="somewhere")
    assert refusal.value.path == "somewhere"
