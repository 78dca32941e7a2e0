"""Detected secrets, and similar text that is not secret."""

from __future__ import annotations

import pytest

from perdure.secrets import shapes
from tests.fakes.samples import case
from tests.fakes.secret_forms import CONTEXTS, MARKED


def found(text: str) -> dict[str, str]:
    return {text[find.start : find.end]: find.kind for find in shapes.finds(text)}


def test_keys_are_found_by_vendor_prefix() -> None:
    for kind, key in MARKED:
        for frame in ["{}", "use {} now", '"{}"', "x={};", "(\\n{}\\n)", "é{}…"]:
            with case((kind, key, frame)):
                assert found(frame.format(key)).get(key) == kind


def test_secret_values_are_found_by_their_context() -> None:
    for text, secret in CONTEXTS:
        with case((text, secret)):
            assert secret in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "“export DB_PASSWORD=tulip77”. No language",
        "„DB_PASSWORD=tulip77“, then",
        "»DB_PASSWORD=tulip77«",
        "(‘DB_PASSWORD=tulip77’).",  # noqa: RUF001, these marks are meant
        "「DB_PASSWORD=tulip77」。",
        "DB_PASSWORD=“tulip77”!",
        "“the password is tulip77”.",
        "“postgres://ann:tulip77@host and --password tulip77”.",
    ],
)
def test_quotation_marks_are_not_part_of_a_found_value(text: str) -> None:
    assert set(found(text)) == {"tulip77"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("my DB password: “Correcthorse”", "Correcthorse"),
        ("client_secret: „tulipan“", "tulipan"),
        ("API_KEY=“abcdefghij”", "abcdefghij"),
        ("Kennwort: „Sonnenblume“.", "Sonnenblume"),
        ("PASSWORD=“my_password”", "my_password"),
        ("API_KEY=“ab12c”", "ab12c"),
    ],
)
def test_value_in_quotation_marks_is_found_even_without_digits(text: str, value: str) -> None:
    assert set(found(text)) == {value}


@pytest.mark.parametrize("text", ["api_key=“$KEY”", "PASSWORD=“${X}”", "passwd: “the word after”"])
def test_quoted_reference_or_phrase_is_not_a_password(text: str) -> None:
    assert found(text) == {}


@pytest.mark.parametrize("value", ["tu”lip77", "tulip77.", "tulip77!", "tulip77)", "tulip”77."])
def test_punctuation_that_might_belong_to_a_password_is_masked(value: str) -> None:
    assert found(f"DB_PASSWORD={value} next") == {value: "password"}


def test_text_about_secrets_is_not_masked() -> None:
    for text in [
        "total_tokens=1234567, max_tokens: 4096000",
        "token: Optional[str] = None",
        "token = tokens[0]",
        "secret = self.secret",
        "password = getpass.getpass()",
        "password=os.environ['DB_PASSWORD']",
        "api_key=$OPENAI_API_KEY",
        "api_key: ${{ secrets.KEY }}",
        "password: required",
        "connect(password=password)",
        "key=lambda item: item.name",
        "sorted(rows, key=operator.itemgetter)",
        "The token is checked; the secret of good tea: patience.",
        "git@github.com:owner/repo.git",
        "https://example.com/a/b?page=12",
        "sk-learn and sk-image are libraries",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "media://sha256-" + "0a" * 32,
        "monkey=abcdefghij0123456789",
    ]:
        with case(text):
            assert found(text) == {}


@pytest.mark.parametrize("kind", ["RSA ", "OPENSSH ", "EC ", "ENCRYPTED ", ""])
@pytest.mark.parametrize("line_end", ["\n", "\\n", "\r\n"])
def test_private_keys_are_found_with_any_line_ends(kind: str, line_end: str) -> None:
    lines = [f"-----BEGIN {kind}PRIVATE KEY-----", "MIIEow==", f"-----END {kind}PRIVATE KEY-----"]
    key = line_end.join(lines)
    assert found(f"before {key} after") == {key: "private-key"}


def test_truncated_private_key_is_found() -> None:
    text = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowAbc/+=\nMIIEow"
    assert found(text) == {text: "private-key"}


def test_placeholders_are_not_secrets() -> None:
    for text in ("password=[password-1]", "Authorization: Bearer [authorization-2]"):
        assert found(text) == {}
    assert found("postgresql://me:[password-3]@db/x") == {}


def test_placeholder_at_the_end_of_a_sentence_is_no_secret() -> None:
    assert found("password=[password-1]. And (password=[password-1]).") == {}


def test_value_containing_placeholder_is_still_secret() -> None:
    assert "x[ab-1]yz9" in found('password="x[ab-1]yz9"')


@pytest.mark.parametrize("name", ["password", "apiKey", "api_key", "ACCESS_TOKEN", "clientSecret"])
def test_secret_field_names_are_recognized(name: str) -> None:
    assert shapes.is_secret_name(name)


@pytest.mark.parametrize("name", ["idempotency_key", "tokens_before", "key", "passing", "path"])
def test_field_name_without_a_secret_word_is_not_secret(name: str) -> None:
    assert not shapes.is_secret_name(name)


@pytest.mark.full_only
@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a-",
        "key=",
        "token ",
        "-----BEGIN PRIVATE KEY-----",
        "eyJ",
        "://u:",
        "sk-",
        '\\"',
        "é=",
    ],
)
def test_secret_patterns_take_linear_time_on_repeated_text(piece: str) -> None:
    list(
        shapes.finds((piece * 150_000)[:150_000])
    )  # a quadratic pattern would exceed the time limit


def test_password_that_ends_like_a_field_name_is_found() -> None:
    for text in (
        "password=hunter2secret",
        "password: hunter2secret",
        "DB_PASSWORD=hunter2secret",
        '{"password": "hunter2secret"}',
        "api_key = 9fa81token",
    ):
        assert found(text), text
    for text in ("password = user_password", "token = self_token", '"secret": "db_secret"'):
        assert not found(text), text


def test_password_after_a_short_field_name_is_found() -> None:
    for text, secret in [
        ("pass: hunter22", "hunter22"),
        ("Pass: Tr0ub4dor&3", "Tr0ub4dor&3"),
        ("pass=hunter22", "hunter22"),
        ("PASS=hunter22", "hunter22"),
        ("pw = hunter22", "hunter22"),
        ("PW: s3cr3t!", "s3cr3t!"),
        ("pw: Xk$mQ!v", "Xk$mQ!v"),
        ("pw := 'hunter22'", "hunter22"),
        ("user: ana\npass: hunter22\n", "hunter22"),
        ('{\\n\\"pass\\": \\"hunter22\\"}', "hunter22"),
        ('"pw":"abcd1234"', "abcd1234"),
        ("the pw is hunter22", "hunter22"),
        ("passwd: hunter22", "hunter22"),
        ("passwd = hunter22", "hunter22"),
        ("pwd=correcthorse", "correcthorse"),
        ("pwd: hunter22", "hunter22"),
        ("Server=db;Uid=sa;Pwd=/Xk92jfPq81aa;", "/Xk92jfPq81aa"),
        ("Server=db;Uid=sa;Pwd=/Xk92/fPq81aa;", "/Xk92/fPq81aa"),
        ("pwd=/Xk92jfPq81aa", "/Xk92jfPq81aa"),
        ("PWD=~Tr0ub4dor&3", "~Tr0ub4dor&3"),
    ]:
        with case((text, secret)):
            assert found(text) == {secret: "password"}


def test_ordinary_text_after_pass_or_pwd_is_not_a_password() -> None:
    for text in [
        "pass: the test passed",
        "pass: 3, fail: 0",
        "pass: 100%",
        "pass: 1200ms",
        "pass: 2026-11-21",
        "pass: v1.2.3",
        "pass: test_login_2",
        "pass: tests/unit/test_x1.py::test_y2",
        "pass: https://x.example/a1",
        "pass=1/3",
        "pass=True",
        "pass=$PASSWORD1",
        "PASS: TestLogin22 (0.00s)",
        "--- PASS: TestLogin22 (0.00s)",
        "first pass: solve(n2x3)",
        "compass: north33",
        "bypass: rule177",
        "pw = x1",
        "pw = tf.Variable(33)",
        "pw=12.5px",
        "pwd=/home/ana/app2",
        "PWD=/srv/app22",
        "OLDPWD=/srv/app22",
        "pwd: ~/app22",
        "PWD=/workspace",
    ]:
        with case(text):
            assert found(text) == {}


def test_short_field_name_is_secret_only_with_a_secret_value() -> None:
    for name in ("pass", "pw", "Pass"):
        assert shapes.is_secret_field(name, "hunter22")
        assert not shapes.is_secret_field(name, "skipped")
        assert not shapes.is_secret_field(name, "true")
    assert shapes.is_secret_field("passwd", "correcthorse")
    assert not shapes.is_secret_field("path", "hunter22")
