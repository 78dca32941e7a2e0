"""One-time codes: each is valid once, for a short time, and creates a token that can be revoked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.apps.server.access.sign_in import CODE_S, SignIn
from perdure.apps.server.access.tokens import TokenFile
from perdure.apps.server.problems import Problem


def signing_in(folder: Path, times: list[int]) -> SignIn:
    return SignIn(TokenFile(folder / "tokens.json"), lambda: times[-1], os.urandom, "shop")


def test_sign_in_code_works_only_once(tmp_path: Path) -> None:
    here = signing_in(tmp_path, [0])
    code = here.code()
    token = here.by_code(code)
    found = here.tokens.principal(token, 1)
    assert found is not None
    assert (found.role, found.namespace) == ("admin", "shop")
    for wrong in (code, "", "x", here.code()[:-1]):
        with pytest.raises(Problem, match="unknown, used or expired"):
            here.by_code(wrong)


def test_sign_in_code_stays_valid_if_the_token_file_cannot_be_written(tmp_path: Path) -> None:
    here = signing_in(tmp_path / "tokens", [0])
    (tmp_path / "tokens").write_text("a file where the folder should be")
    code = here.code()
    with pytest.raises(Problem, match="cannot use its tokens now") as refused:
        here.by_code(code)
    assert (refused.value.status, refused.value.code) == (503, "tokens_unavailable")
    assert str(tmp_path) not in str(refused.value)
    (tmp_path / "tokens").unlink()
    assert here.by_token(here.by_code(code))


def test_sign_in_code_expires(tmp_path: Path) -> None:
    times = [0]
    here = signing_in(tmp_path, times)
    code = here.code()
    times.append(CODE_S * 1000)
    with pytest.raises(Problem, match="expired"):
        here.by_code(code)


def test_sign_out_revokes_the_token_of_the_console(tmp_path: Path) -> None:
    here = signing_in(tmp_path, [0])
    mine = here.by_code(here.code())
    here.out(mine)
    assert here.tokens.principal(mine, 1) is None
    here.out("pdr_unknown_00")
    with pytest.raises(Problem, match="unknown, expired or revoked"):
        here.by_token(mine)
