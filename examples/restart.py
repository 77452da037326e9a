"""Ask an embedded engine, close it, open another over the same drive, and ask again.

    python examples/restart.py MODEL_DIRECTORY

The second engine restores the prompt's KV from the drive, verified, and gives the same answer.
"""

import queue
import sys
import tempfile
import time

from pagoda.engine.api import Request, Sampling, Update
from pagoda.machine.leave import leave
from pagoda.serve.compose import open_engine
from pagoda.settings.tree import Settings

STORY = "Every evening the keeper climbs the tower, lights the lamp and writes down the wind. "


def ask(model: str, drive: str) -> str:
    """Open an engine, ask it once, close it (which writes what is pending)."""
    settings = Settings.model_validate(
        {
            "model": {"path": model},
            "engine": {"kv_memory": "128MiB"},
            "drive": {"path": drive, "capacity": "256MiB", "free_floor": "64MiB"},
        }
    )
    engine = open_engine(settings)
    try:
        question = [{"role": "user", "content": STORY * 20 + "What does the keeper write down?"}]
        prompt = tuple(engine.codec.render_chat(question))
        updates: queue.Queue[Update] = queue.Queue()
        started_s = time.perf_counter()
        engine.submit(
            Request(id="example", prompt=prompt, sampling=Sampling(temperature=0.0, max_tokens=24)),
            updates.put,
        )
        update = updates.get()
        first_s = time.perf_counter() - started_s
        answer = update.text
        while update.finish is None:
            update = updates.get()
            answer += update.text
    finally:
        engine.close()
    usage = update.usage
    print(
        f"{usage.prompt_tokens} prompt tokens, {usage.cached_restored} restored, "
        f"first token after {first_s * 1000:.0f} ms: {answer.strip()!r}"
    )
    return answer


def main() -> None:
    """Two engines, one drive."""
    if len(sys.argv) != 2:
        sys.exit('usage: python examples/restart.py MODEL_DIRECTORY, as "$(pagoda model path)"')
    with tempfile.TemporaryDirectory() as drive:
        computed, restored = (ask(sys.argv[1], drive) for _ in range(2))
    assert restored == computed, "a restored answer differs from the computed one"


if __name__ == "__main__":
    main()
    leave(0)  # after torch, without the interpreter's teardown
