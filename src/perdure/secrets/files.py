"""Patterns for secrets in files, addresses and commands: netrc, pgpass, XML, PEM, ``-p``, hashes.

Pure. Each pattern has one group, the secret. Each repetition in a pattern is bounded or can match
in only one way, so each pattern runs in linear time.
"""

from __future__ import annotations

NAME = (
    r"(?:passw(?:or)?[dt]|passphrase|(?<=[_.-])pass(?![a-z])|pwd|secret|token|credentials?"
    r"|kennwort|contrase(?:ñ|n)a|wachtwoord|mot[ _-]de[ _-]passe|senha"
    r"|(?:api|access|account|auth|client|deploy|encryption|master|private|secret|service|shared"
    r"|signing|storage)[_-]?key)"
)
"""Matches parts of field names that announce a secret, in lower case."""


def word(*words: str, no: str = r"\w") -> str:
    """Return a pattern for a word in `words` that does not follow a character in `no`.

    `re` finds a letter faster than a word boundary, so the pattern first matches the word and then
    looks back at the character before the word.
    """
    return "|".join(f"{each}(?<!{no}{each})" for each in words)


BY_NAME: tuple[tuple[str, str], ...] = (
    (  # a YAML block: password: |
        r":[ \t]{1,10}[|>]",
        (
            rf"(?i){NAME}[\w.-]{{0,30}}[\"']?:[ \t]{{1,10}}[|>][+-]?[ \t]{{0,10}}\r?\n"
            r"[ \t]{1,80}(\S{4,200})"
        ),
    ),
    (  # define('DB_PASSWORD', '…'), get("PASSWORD", "…")
        r"[\"']\s?,\s{0,20}[\"']",
        rf"(?i)(?<=[\w.\"'-]){NAME}[\w.-]{{0,30}}[\"']\s?,\s{{0,20}}[\"']([^\s\"']{{6,200}})[\"']\s?\)",
    ),
)
"""Pairs of patterns. The first pattern of a pair occurs in every match of the second pattern. The
second pattern starts with the name of a secret and has one group, the secret.
"""

_NAMED = rf"[\w.-]{{0,60}}{NAME}[\w.-]{{0,30}}"

IN_FILES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # required literals (any of them), in lower case; the kind; a pattern whose group is the secret
    (
        ("machine", "default"),
        "password",  # .netrc
        (
            rf"(?i)(?:{word('machine')}\s{{1,4}}\S{{1,200}}|{word('default')})"
            r"(?:\s{1,80}(?:login|account)\s{1,4}\S{1,100}){0,3}\s{1,80}password\s{1,4}(\S{3,200})"
        ),
    ),
    (
        (":",),
        "password",  # .pgpass
        (
            r"(?m)^[^\s:]{1,200}:(?:[0-9]{4,5}|\*):[^\s:]{1,100}:[^\s:]{1,100}"
            r":((?:\\[\\:]|[^\s\\:]){3,200})$"
        ),
    ),
    (
        ("<", "&lt;"),
        "secret",  # <password>…</password>
        (
            rf"(?i)(?:<|&lt;)(?:[\w.-]{{1,40}}:)?{_NAMED}(?:\s[^<>&]{{0,200}})?(?:>|&gt;)\s{{0,80}}"
            r"(?![0-9.,]{0,40}(?:<|&lt;))([^<>&\s][^<>&]{2,400})(?=<|&lt;)"
        ),
    ),
    (
        ("value",),
        "secret",  # name: API_TOKEN, value: …
        (
            rf"(?i)(?:{word('key', 'name')})"
            rf"[\\\"']{{0,2}}\s{{0,3}}[=:]\s{{0,3}}[\\\"']{{0,2}}{_NAMED}"
            r"[\\\"']{0,2},?\s{1,80}[\\\"']{0,2}value[\\\"']{0,2}\s{0,3}[=:]\s{0,3}[\\\"']{0,2}"
            r"([^\s\"'\\<>,;{}]{4,400})"
        ),
    ),
    (
        ("<string>",),
        "secret",  # a property list
        rf"(?i)<key>{_NAMED}</key>\s{{0,80}}<string>([^<>\s][^<>]{{2,400}})</string>",
    ),
    (
        ("private-lines", "private-mac"),
        "private-key",  # PuTTY
        (
            r"(?i)private-(?:lines:\s[0-9]{1,4}\s{1,4}|mac:\s)"
            r"((?:[A-Za-z0-9+/=]{1,200}(?:\s{1,4}|$)){1,200})"
        ),
    ),
    (
        ("://",),
        "password",  # a token in place of the user's name
        r"://(?<=[A-Za-z0-9+.-]://)([\w.~%+-]{20,200})(?::[^\s/\"'<>@]{0,80})?@",
    ),
    (
        ("jdbc:oracle",),
        "password",
        r"(?i)jdbc:oracle:\w{1,10}:[^\s/\"']{1,80}/([^\s@\"']{1,200})@",
    ),
    (
        ("digest",),
        "authorization",
        r"(?i)digest\s[^\r\n]{0,400}?response=\\?\"?([^\"\s,\\]{16,200})",
    ),
    (
        ("sshpass", "mysql", "mariadb", "login"),
        "password",  # -p PASSWORD
        (
            r"(?:sshpass|mysql(?:dump|admin)?|mariadb(?:-dump)?|(?:docker|podman|registry) login)"
            r"(?:\s{1,3}(?!-p)[^\s|;&]{1,100}){0,10}\s{1,3}-p\s{0,3}[\"']?([^\s\"'|;&]{3,200})"
        ),
    ),
    (
        ("$",),
        "password-hash",
        (
            r"(\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|argon2(?:id|i|d)|scrypt|sha1|pbkdf2[\w-]{0,20})\$"
            r"[\w./+=,$-]{16,300})"
        ),
    ),
    (
        ("wifi:",),
        "password",
        r"WIFI:[^\s]{0,200}?;P:((?:\\.|[^;\\\s]){3,100});",
    ),
    (
        ("pass", "pw", "token", "secret", "api key", "api-key"),
        "password",  # the password is …
        (
            rf"(?i)(?:{word('password', 'passwd', 'pwd', 'pw', 'passphrase', 'passwort')}"
            rf"|{word('token', 'secret')}"
            rf"|{word('api[ -]key')})\s(?:is|was|lautet)"
            r"\s{1,3}[\"'`]?(?=[^\s\"'`]{0,80}[0-9])(?=[^\s\"'`]{0,80}[a-z])([^\s\"'`]{6,200})"
        ),
    ),
    (
        ("identified", "password"),
        "password",  # SQL
        (
            rf"(?i)(?:{word('identified')}(?:\swith\s\w{{1,40}})?\sby|{word('password')})\s{{1,4}}"
            r"'([^'\s]{4,200})'"
        ),
    ),
    (
        ("<input",),
        "password",  # a form that is filled in
        (
            r"(?i)<input\s(?=[^<>]{0,200}\btype=[\"']?password)[^<>]{0,200}?\bvalue=[\"']?([^\"'\s<>]{4,200})"
        ),
    ),
    (
        ("redis-cli", "sqlcmd", "zip", "7z", "ldap", "curl"),
        "password",  # options of one letter
        (
            r"\b(?:redis-cli(?=\s)(?:\s{1,3}(?!-a)[^\s|;&]{1,100}){0,10}\s{1,3}-a"
            r"|(?:sqlcmd|zip|unzip)(?=\s)(?:\s{1,3}(?!-P)[^\s|;&]{1,100}){0,10}\s{1,3}-P"
            r"|7z[ar]?(?=\s)(?:\s{1,3}(?!-p)[^\s|;&]{1,100}){0,10}\s{1,3}-p"
            r"|ldap[a-z]{3,10}(?=\s)(?:\s{1,3}(?!-w)[^\s|;&]{1,100}){0,10}\s{1,3}-w"
            r"|curl(?=\s)(?:\s{1,3}(?!-u)[^\s|;&]{1,100}){0,10}\s{1,3}-u[^\s:\"'$]{1,60}:)"
            r"\s{0,3}[\"']?([^\s\"'|;&$-][^\s\"'|;&]{2,200})"
        ),
    ),
    (
        ("pass:", "passphrase"),
        "password",  # of openssl and gpg
        r"(?:-pass(?:in|out)?\s{1,3}pass:|--passphrase[ =])[\"']?([^\s\"'$]{3,200})",
    ),
    (
        ("setenv", "set", "env"),
        "secret",  # a variable of a shell or an image
        (
            rf"(?im)^[ \t]{{0,20}}(?:setenv|set\s-[a-z]{{1,4}}|env)\s{{1,4}}{_NAMED}\s{{1,4}}[\"']?"
            r"([^\s\"'$=][^\s\"']{3,200})"
        ),
    ),
    (
        ("|", "**"),
        "secret",  # Markdown: a table, bold
        (
            rf"(?i)(?:\|\s{{0,20}}{NAME}\s{{0,20}}\||\*\*{NAME}:?\*\*:?)\s{{0,20}}`?"
            r"(?=[^\s`|]{0,80}[0-9])([^\s`|*]{6,200})"
        ),
    ),
)
