"""Talk to `pagoda serve` with the official OpenAI client.

pagoda serve --model MODEL_DIRECTORY &
python examples/openai_client.py http://127.0.0.1:8000/v1
"""

import sys

from openai import OpenAI


def main() -> None:
    """Ask twice; the second time the prompt's KV comes from the cache."""
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/openai_client.py URL, as http://127.0.0.1:8000/v1")
    client = OpenAI(base_url=sys.argv[1], api_key="none is needed on loopback")
    model = client.models.list().data[0].id
    question = "Explain in one sentence why the sky is blue. " * 8
    for _ in range(2):
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            temperature=0,
            max_tokens=32,
            stream=True,
            stream_options={"include_usage": True},
        )
        for chunk in stream:
            for choice in chunk.choices:
                print(choice.delta.content or "", end="", flush=True)
            if chunk.usage is not None and chunk.usage.prompt_tokens_details is not None:
                cached = chunk.usage.prompt_tokens_details.cached_tokens
                print(f"\n[{cached} of {chunk.usage.prompt_tokens} prompt tokens were cached]")


if __name__ == "__main__":
    main()
