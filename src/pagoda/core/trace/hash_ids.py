"""Formats of one JSON object a request: moment, lengths, and the names of the prompt's blocks."""

from __future__ import annotations

from pagoda.core.trace.chains import Chains
from pagoda.core.trace.fields import answer_tokens, fields_of, names, prompt_tokens, seconds
from pagoda.core.trace.generated import with_generated
from pagoda.core.trace.model import TraceRequest
from pagoda.core.trace.order import by_arrival


class HashIds:
    """Reads `timestamp`, `input_length`, `output_length` and `hash_ids`; other fields may be
    there. A subclass says in what unit of time, and how large a block is."""

    format: str
    per_second: float  # what a timestamp counts

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._chains = Chains()
        self._requests: list[TraceRequest] = []

    def take(self, line: str) -> None:
        fields = fields_of(line)
        at_s = seconds(fields.get("timestamp"), "timestamp", per_second=self.per_second)
        tokens = prompt_tokens(fields.get("input_length"), "input_length")
        answer = answer_tokens(fields.get("output_length"), "output_length")
        prompt = names(
            fields.get("hash_ids"), "hash_ids", tokens=tokens, block_tokens=self.block_tokens
        )
        self._chains.count(-(-(tokens + answer) // self.block_tokens))
        self._requests.append(
            TraceRequest(
                at_s=at_s,
                input_tokens=tokens,
                output_tokens=answer,
                prompt=self._chains.number(prompt),
            )
        )

    def requests(self) -> list[TraceRequest]:
        return with_generated(
            by_arrival(self._requests), block_tokens=self.block_tokens, chains=self._chains
        )


class Mooncake(HashIds):
    """Mooncake's traces: milliseconds, blocks of 512 tokens, `hash_ids` chained: equal ids mean
    equal prefixes up to and with that block. https://github.com/kvcache-ai/Mooncake"""

    format = "mooncake"
    per_second = 1000.0

    def __init__(self, block_tokens: int = 512) -> None:
        super().__init__(block_tokens)


class Bailian(HashIds):
    """Bailian's traces: seconds, blocks of 16 tokens, `hash_ids` that name each block by its
    content alone; what makes them a prefix is the chain that they are numbered as.
    https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon"""

    format = "bailian"
    per_second = 1.0

    def __init__(self, block_tokens: int = 16) -> None:
        super().__init__(block_tokens)
