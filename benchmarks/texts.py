"""Long texts in typical forms of pasted text, all ASCII except one form."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from random import Random

_WORDS = (
    *("the", "session", "keeps", "what", "a", "turn", "said", "and", "its", "tools", "return"),
    *("numbers", "model", "commit", "stores", "lease", "key", "token", "secret", "access", "api"),
)


def _prose(random: Random) -> str:
    return "".join(
        f"{' '.join(random.choices(_WORDS, k=14))}, {random.random()}.\n" for _ in "a" * 5_000
    )


def _source(random: Random) -> str:
    return "".join(
        f"    self._token_key_{n} = api_key.get(password={random.choice(_WORDS)},"
        f" secret=config['token'][{n}])\n"
        for n in range(5_000)
    )


def _base64(random: Random) -> str:
    return base64.b64encode(random.randbytes(3 * 2**18)).decode()


def _one_line(_: Random) -> str:
    return "var a=function(b,c){return b.key==c?d[0]:e&&f||g;};if(h<i){j.k(l=m)};"


def _json(random: Random) -> str:
    return "".join(
        json.dumps(
            {"id": n, "token": random.choice(_WORDS), "url": f"https://ex.org/?code=12&q={n}"}
        )
        for n in range(5_000)
    )


def _chinese(random: Random) -> str:
    return "".join(
        chr(random.randrange(0x4E00, 0x9000)) + "。" * (n % 12 == 0) for n in range(99_999)
    )


def _secrets(random: Random) -> str:
    forms = ("sk-ant-{0}", "ghp_{0}{0}", "password={0}", "api_key: '{0}'", "Bearer {0}", "{0}")
    return "\n".join(
        random.choice(forms).format(f"{random.getrandbits(128):032x}") for _ in range(20_000)
    )


def _short_lines(_: Random) -> str:
    return "a\nbc\n\nd e\n12\n"


FORMS: dict[str, Callable[[Random], str]] = {
    "prose": _prose,
    "source code": _source,
    "base64": _base64,
    "one line": _one_line,
    "json": _json,
    "chinese": _chinese,
    "like secrets": _secrets,
    "short lines": _short_lines,
}


def text_of(form: str, size: int, seed: int) -> str:
    """Return a text of `form`. Units: `size` is bytes of UTF-8."""
    piece = FORMS[form](Random(seed))
    whole = piece.encode()
    return (whole * (size // len(whole) + 1))[:size].decode(errors="ignore")
