"""A prompt or a tenant from the command line, as the server's bodies take it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pagoda.core.errors import SettingsError
from pagoda.settings.files import read_text


def prompt_body(text: str | None, file: Path | None, *, chat: bool) -> dict[str, object]:
    """{"prompt": …} or {"messages": …}; nothing when neither a text nor a file is named.

    A file that ends in .json holds token ids or a chat's messages; any other, and standard input
    for "-", is text. `chat` makes a text a user's message. Raises SettingsError.
    """
    if text is not None and file is not None:
        raise _fault("a prompt is given twice", "PROMPT", "give it as PROMPT or in --file")
    if file is not None:
        content = _read(file)
        if file.suffix == ".json":
            return _from_json(content, file)
        text = content
    if text is None:
        return {}
    return {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}


def required_prompt(text: str | None, file: Path | None, *, chat: bool) -> dict[str, object]:
    """As `prompt_body`; raises SettingsError when there is none."""
    body = prompt_body(text, file, chat=chat)
    if not body:
        raise _fault("no prompt is given", "PROMPT", "give a text, or name a file with --file")
    return body


def salt_of(salt: str | None, file: Path | None) -> str | None:
    """A tenant's salt: as it is, or the first line of a file."""
    if salt is not None and file is not None:
        raise _fault("a salt is given twice", "--salt", "give --salt or --salt-file")
    if file is None:
        return salt
    own = _read(file).split("\n")[0].strip()
    if not own:  # it would name those without a salt
        raise _fault(f"{file} holds no salt", str(file), "write it on the first line")
    return own


def _from_json(content: str, file: Path) -> dict[str, object]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _fault(f"{file} is not JSON: {error}", "--file", "correct the file") from error
    if isinstance(found, list) and found and all(type(item) is int for item in found):
        return {"prompt": found}
    if isinstance(found, list) and found and all(isinstance(item, dict) for item in found):
        return {"messages": found}
    remedy = "a JSON file holds a list of token ids, or a list of a chat's messages"
    raise _fault(f"{file} holds no prompt", "--file", remedy)


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise _fault(f"cannot read {file}", str(file), "name a readable text file") from error


def _fault(message: str, source: str, remedy: str) -> SettingsError:
    return SettingsError(message, key="prompt", source=source, remedy=remedy)
