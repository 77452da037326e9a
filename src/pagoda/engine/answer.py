"""From drawn tokens to an answer: text, log-probabilities, and where it ends."""

from __future__ import annotations

from pagoda.engine.api import FinishReason, TokenLogprob
from pagoda.engine.codec import TokenizerCodec
from pagoda.engine.sampling import Draw
from pagoda.engine.sequence import Progress, Sequence


class AnswerReader:
    """Takes drawn tokens into sequences and says what they bring."""

    def __init__(self, codec: TokenizerCodec, *, context_tokens: int) -> None:
        self._codec = codec
        self._context_tokens = context_tokens

    def read(self, sequence: Sequence, draw: Draw) -> Progress:
        """Append a token to the sequence; the progress has `finish` if the answer ends with it."""
        if not draw.finite:
            return Progress(finish=FinishReason.ERROR, error="the model produced no finite logits")
        sequence.tokens.append(draw.token_id)
        finish, text = self._text(sequence, draw.token_id)
        return Progress(
            text=text, token_ids=(draw.token_id,), logprobs=self._logprobs(draw), finish=finish
        )

    def _text(self, sequence: Sequence, token_id: int) -> tuple[FinishReason | None, str]:
        sampling = sequence.request.sampling
        detokenizer = sequence.detokenizer
        ends = token_id in self._codec.eos_ids and not sampling.ignore_eos
        if ends or token_id in sampling.stop_token_ids:
            return FinishReason.STOP, detokenizer.flush()
        text = detokenizer.feed(token_id)
        if detokenizer.stopped:
            return FinishReason.STOP, text
        full = len(sequence.tokens) >= self._context_tokens
        if full or sequence.answer_tokens >= sampling.max_tokens:
            return FinishReason.LENGTH, text + detokenizer.flush()
        return None, text

    def _logprobs(self, draw: Draw) -> tuple[TokenLogprob, ...]:
        if draw.logprob is None:
            return ()
        text_of = self._codec.pieces.text_of
        top = tuple((token_id, text_of(token_id), logprob) for token_id, logprob in draw.top)
        chosen = TokenLogprob(
            token_id=draw.token_id, text=text_of(draw.token_id), logprob=draw.logprob, top=top
        )
        return (chosen,)
