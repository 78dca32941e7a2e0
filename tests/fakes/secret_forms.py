"""Forms in which secrets stand in text, each with a secret of its own.

A template is filled with `PW` (a password), `KEY` (a random key) or `B64` (a line of a key file).
"""

from __future__ import annotations

from collections.abc import Iterator

TEMPLATES: tuple[tuple[str, str], ...] = (
    (".netrc line", "machine api.example.com login ana password {PW}"),
    (".netrc lines", "machine api.example.com\n  login ana\n  password {PW}\n"),
    (".netrc default", "default login anonymous password {PW}"),
    (".netrc account", "machine h login a account b password {PW}"),
    (".pgpass", "db.example.com:5432:shop:ana:{PW}"),
    (".pgpass wildcard", "*:*:*:ana:{PW}"),
    (".pgpass escaped", "db:5432:*:ana:{PW}\\:x"),
    (".my.cnf", "[client]\nuser=ana\npassword={PW}"),
    (".my.cnf quoted", '[client]\npassword="{PW}"'),
    ("upper-case scheme", "POSTGRESQL://ana:{PW}@db/shop"),
    ("mixed-case scheme", "Https://ana:{PW}@host/x"),
    ("address without user", "redis://:{PW}@cache:6379/0"),
    ("address with at sign", "mysql://ana:{PW}@x@db/"),
    ("token as user", "https://{KEY}@github.com/x/y.git"),
    ("token as user with x-oauth-basic", "https://{KEY}:x-oauth-basic@github.com/x"),
    ("x-access-token", "https://x-access-token:{KEY}@github.com/x"),
    ("jdbc", "jdbc:postgresql://db/shop?user=ana&password={PW}"),
    ("jdbc sqlserver", "jdbc:sqlserver://db;user=sa;password={PW};encrypt=true"),
    ("jdbc oracle", "jdbc:oracle:thin:ana/{PW}@db:1521:x"),
    ("short password in a query", "postgresql://db/x?password={ABC}"),
    ("conninfo", "host=db user=ana password={PW} dbname=x"),
    ("conninfo quoted", "host=db password='{PW} y' dbname=x"),
    ("ado.net", "Server=db;User Id=sa;Password={PW};"),
    ("ado.net pwd", "Server=db;Uid=sa;Pwd={PW};"),
    ("XML element", "<password>{PW}</password>"),
    ("XML element with a namespace", "<ns:Password>{PW}</ns:Password>"),
    ("XML attribute", '<server username="ana" password="{PW}"/>'),
    ("XML key value", '<add key="ApiKey" value="{KEY}"/>'),
    ("XML maven", "<server><id>x</id><username>a</username><password>{PW}</password></server>"),
    ("plist", "<key>api_token</key>\n<string>{KEY}</string>"),
    ("escaped XML", "&lt;password&gt;{PW}&lt;/password&gt;"),
    ("PEM", "-----BEGIN PRIVATE KEY-----\n{B64}\n{B64}\n-----END PRIVATE KEY-----"),
    ("PEM in JSON", '"-----BEGIN RSA PRIVATE KEY-----\\n{B64}\\n-----END RSA PRIVATE KEY-----"'),
    ("PEM quoted in mail", "> -----BEGIN PRIVATE KEY-----\n> {B64}\n> -----END PRIVATE KEY-----"),
    (
        "PEM with line numbers",
        "1\t-----BEGIN PRIVATE KEY-----\n2\t{B64}\n3\t-----END PRIVATE KEY-----",
    ),
    ("PEM in a diff", "+-----BEGIN PRIVATE KEY-----\n+{B64}\n+-----END PRIVATE KEY-----"),
    ("PEM in code", "'-----BEGIN PRIVATE KEY-----' +\n'{B64}' +\n'-----END PRIVATE KEY-----'"),
    ("PEM in a comment", "# -----BEGIN PRIVATE KEY-----\n# {B64}\n# -----END PRIVATE KEY-----"),
    ("PEM in a table", "| -----BEGIN PRIVATE KEY-----\n| {B64}\n| -----END PRIVATE KEY-----"),
    (
        "PEM indented in YAML",
        "key: |\n    -----BEGIN EC PRIVATE KEY-----\n    {B64}\n    -----END EC PRIVATE KEY-----",
    ),
    ("PEM that is cut", "-----BEGIN OPENSSH PRIVATE KEY-----\n{B64}\n{B64}"),
    (
        "PGP",
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n{B64}\n"
            "-----END PGP PRIVATE KEY BLOCK-----"
        ),
    ),
    (
        "PuTTY",
        "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 2\n{B64}\n{B64}\nPrivate-MAC: {KEY}",
    ),
    ("bearer", "Authorization: Bearer {KEY}"),
    ("basic", "Authorization: Basic {KEY}=="),
    ("lower-case header", "authorization: bearer {KEY}"),
    ("token header", "Authorization: token {KEY}"),
    ("header as a tuple", "('Authorization', 'Bearer {KEY}')"),
    ("x-api-key", "x-api-key: {KEY}"),
    ("x-auth-token", "X-Auth-Token: {KEY}"),
    ("proxy-authorization", "Proxy-Authorization: Basic {KEY}"),
    ("cookie", "Cookie: session={KEY}; theme=dark"),
    ("set-cookie", "Set-Cookie: sid={KEY}; HttpOnly"),
    ("digest", 'Authorization: Digest username="a", response="{KEY}"'),
    ("curl -u", "curl -u ana:{PW} https://x"),
    ("curl --user", "curl --user 'ana:{PW}' https://x"),
    ("curl -H", 'curl -H "X-Api-Key: {KEY}" https://x'),
    ("mysql -p", "mysql -uroot -p{PW} shop"),
    ("sshpass", "sshpass -p {PW} ssh ana@h"),
    ("psql env", "PGPASSWORD={PW} psql -h db"),
    ("--password", "tool --password {PW}"),
    ("--password=", "tool --password={PW}"),
    ("--api-key", "tool --api-key {KEY}"),
    ("--client-secret", "tool --client-secret {KEY}"),
    ("docker login", "docker login -u ana -p {PW} registry.example.com"),
    ("docker config", '{"auths": {"r.example.com": {"auth": "{KEY}"}}}'),
    ("htpasswd", "ana:$apr1$Zx81Qw2e${LOW}."),
    ("shadow", "ana:$6$saltsalt${KEY}:19000:0:99999:7:::"),
    (".env", "SECRET_KEY={KEY}"),
    (".env export", "export API_TOKEN='{KEY}'"),
    (".env PASS", "SMTP_PASS={PW}"),
    ("windows set", "set DB_PASSWORD={PW}"),
    ("powershell", '$env:API_KEY = "{KEY}"'),
    ("YAML", "password: {PW}"),
    ("YAML list", "- name: API_TOKEN\n  value: {KEY}"),
    ("TOML", 'api_key = "{KEY}"'),
    ("JSON", '{"password": "{PW}"}'),
    ("JSON in JSON", '{\\"client_secret\\": \\"{KEY}\\"}'),
    ("JSON camel case", '{"accessToken": "{KEY}"}'),
    ("JSON name and value", '{"name": "DB_PASSWORD", "value": "{PW}"}'),
    ("python dict", "{'passwd': '{PW}'}"),
    ("python call", "connect(user='a', password='{PW}')"),
    ("ruby hash", ":password => '{PW}'"),
    ("go", 'Password: "{PW}",'),
    ("java properties", "spring.datasource.password={PW}"),
    ("npmrc", "//registry.example.com/:_authToken={KEY}"),
    ("npmrc password", "//registry.example.com/:_password={KEY}"),
    ("pypirc", "[pypi]\nusername = __token__\npassword = pypi-{KEY}{KEY}"),
    ("git credentials", "https://ana:{PW}@git.example.com"),
    ("aws credentials", "aws_secret_access_key = {KEY}"),
    ("aws key id", "aws_access_key_id = {AWS}"),
    ("azure connection", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={KEY}==;"),
    ("azure sas", "https://a.blob.example.com/c?sv=2022&sig={KEY}%3D"),
    (
        "gcp service account",
        (
            '"private_key_id": "x", "private_key": "-----BEGIN PRIVATE KEY-----\\n{B64}\\n'
            '-----END PRIVATE KEY-----\\n"'
        ),
    ),
    ("kubeconfig", "client-key-data: {B64}"),
    ("kube secret", "kind: Secret\ndata:\n  password: {KEY}"),
    ("terraform", 'password = "{PW}"'),
    ("slack hook", "https://hooks.slack.com/services/T000/B000/{KEY}"),
    ("discord hook", "https://discord.com/api/webhooks/1234567890/{KEY}"),
    ("telegram", "https://api.telegram.org/bot123456789:AA{KEY}/x"),
    ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{KEY}"),
    ("url token", "https://x.example/cb?access_token={KEY}"),
    ("url fragment token", "https://x.example/cb#access_token={KEY}&x=1"),
    ("form body", "grant_type=password&username=a&password={PW}"),
    ("mfa secret", "otpauth://totp/x?secret={UP}&issuer=x"),
    ("wifi", "WIFI:S:home;T:WPA;P:{PW};;"),
    ("ini spaces", "smtp_password   =   {PW}"),
    ("german", "Passwort: {PW}"),
    ("sentence", "the password is {PW}"),
    ("ssh config", "sshpass -p '{PW}' scp x"),
    ("ansible", "ansible_become_pass: {PW}"),
    ("rails master key", "RAILS_MASTER_KEY={LOW}"),
)


def forms() -> Iterator[tuple[str, str, str]]:
    """Each form: its name, a text in that form, and the secret in it, which no other form has."""
    for number, (name, template) in enumerate(TEMPLATES):
        values = {
            "{PW}": f"Tr0ub4dor-{number}x",
            "{KEY}": f"Ab3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF{number:04}",
            "{B64}": f"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIB{number:04}",
            "{UP}": f"AB3DE6GH2JK2MN5PQ6ST3VW4YZ7BC{number:03}",
            "{ABC}": f"a{number}",
            "{AWS}": f"AKIAIOSFODNN7EXAM{number:03}",
            "{LOW}": f"0a3b6c9d2e5f8a1b4c7d0e3f6a9b2c{number:03}",
        }
        placed = next(value for mark, value in values.items() if mark in template)
        text = template
        for mark, value in values.items():
            text = text.replace(mark, value)
        yield name, text, placed
