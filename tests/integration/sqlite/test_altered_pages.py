"""An altered page of an encrypted store is never read as other text."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import open as open_store
from perdure import user
from perdure.errors import StoreError

pytestmark = pytest.mark.full_only

PAGE = 4_096
KEY = "0a" * 32
TEXT = "".join(f"line {number} of the text\n" for number in range(600))


async def texts(file: Path) -> list[str]:
    async with open_store(f"sqlite:///{file}", key=KEY) as store:
        return [message.text for message in await (await store.open("s")).messages()]


async def test_altered_page_of_an_encrypted_store_never_returns_wrong_text(
    tmp_path: Path,
) -> None:
    file, altered = tmp_path / "s.db", tmp_path / "altered.db"
    async with open_store(f"sqlite:///{file}", key=KEY) as store:
        await (await store.create(id="s")).append(user(TEXT))
    content = file.read_bytes()
    refused = 0
    for offset in range(PAGE // 2, len(content), PAGE):
        altered.write_bytes(content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :])
        try:
            assert await texts(altered) == [TEXT], offset
        except StoreError:
            refused += 1
    assert await texts(file) == [TEXT]
    assert refused >= len(TEXT) // PAGE
