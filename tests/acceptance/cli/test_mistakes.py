"""Typical mistakes: one sentence with cause and remedy for each, and the documented exit code."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.acceptance.cli.conftest import SAMPLE_ID, World

MISTAKES = (
    # what is typed (S: an id), the exit code, what the message says
    ("list", 2, "there is no command 'list': use `perdure sessions list`"),
    ("search hotel", 2, "there is no command 'search': use `perdure sessions search`"),
    ("resume 01jd", 2, "use `perdure chat --continue`, or `perdure chat --session ID` for"),
    ("read 01jd", 2, "there is no command 'read': use `perdure sessions read`"),
    ("branch 3", 2, "there is no command 'branch': use `perdure sessions branch`"),
    ("archive", 2, "there is no command 'archive': use `perdure export --all`"),
    ("undo", 2, "there is no command 'undo': use `perdure sessions branch`"),
    ("sessions move S", 2, "there is no command 'move' of `perdure sessions`: use `perdure"),
    ("fork", 2, "there is no command 'fork': use `perdure sessions fork`"),
    ("version", 2, "there is no command 'version': use `perdure --version`"),
    ("sesions list", 2, "unknown command 'sesions'. Did you mean 'sessions'?"),
    ("sessions lsit", 2, "unknown command 'lsit'. Did you mean 'list'?"),
    ("sessions delete S", 2, "there is no command 'delete' of `perdure sessions`: use"),
    ("sessions remove S", 2, "there is no command 'remove' of `perdure sessions`: use"),
    ("sessions open S", 2, "there is no command 'open' of `perdure sessions`: use `perdure"),
    ("chat --promt hi", 2, "unknown option --promt (Possible options: --approve,"),
    ("chat -p", 2, "Option '-p' requires an argument; see --help"),
    ('chat -p ""', 2, "there is nothing to say after -p; leave it out to talk line by"),
    ("chat -m gpt-5 -p hi", 2, "Invalid value for '-m' / '--model': 'gpt-5' names no provider"),
    ("chat -m opnai:gpt-5 -p hi", 2, "cannot call the model opnai:gpt-5: unknown model provider"),
    (
        "chat -m openai:gpt-5 -p hi",
        2,
        "cannot call the model openai:gpt-5: openai models are not set",
    ),
    ("chat -m scripted:nope -p hi", 2, "cannot call the model scripted:nope: unknown scenario;"),
    (
        "chat --session nope -p hi",
        3,
        "no session 'nope' here; `perdure sessions list --all` shows them",
    ),
    (
        "chat --session a --continue -p hi",
        2,
        "--session, --continue and --pick exclude each other; keep one",
    ),
    ("chat --agent nope -p hi", 3, "there is no agent 'nope'; there are: none"),
    (
        "chat --agent nope.agent.yaml -p hi",
        3,
        "there is no agent 'nope.agent.yaml'; there are: none",
    ),
    ("chat --cwd /nope -p hi", 3, "no such file or folder: /nope"),
    ("chat --cwd file.txt -p hi", 2, "file.txt is a file: name a folder after --cwd"),
    ("chat --approve yes -p hi", 2, "Invalid value for '--approve': 'yes' is not one of 'ask',"),
    ("chat --scope all -p hi", 2, "Invalid value for '--scope': 'all' is not one of 'sandboxed',"),
    (
        'chat --allow-command "ls; rm x" -p hi',
        2,
        "'ls; rm x' is no rule for commands: ';' has no meaning here",
    ),
    (
        'chat --allow-domain "http://x y" -p hi',
        2,
        "'http://x y' is no domain: the host of the URL cannot be read",
    ),
    ("chat --var a -p hi", 2, "--var 'a' has no value: write --var NAME=VALUE"),
    ('chat --var "a b=c" -p hi', 2, "--var 'a b' is no name: use letters, digits and _"),
    (
        "chat --scenario nope.yaml -p hi",
        3,
        "there is no scenario nope.yaml: name its file after --scenario",
    ),
    (
        "chat --scenario file.txt -p hi",
        2,
        "the scenario 'file' cannot be used: line 1: expected a mapping",
    ),
    ("chat --display screen", 2, "--display screen needs a terminal; use --display lines"),
    ("chat --display big", 2, "Invalid value for '--display': 'big' is not one of 'auto',"),
    ("sessions list --limt 3", 2, "unknown option --limt (Possible options: --limit); see --help"),
    ("sessions list --last 5", 2, "unknown option --last; did you mean --limit?"),
    ("sessions read S --limit 5", 2, "unknown option --limit; did you mean --last?"),
    (
        "sessions list --limit x",
        2,
        "Invalid value for '--limit': 'x' is no whole number; see --help",
    ),
    ("sessions list --limit -1", 2, "Invalid value for '--limit': -1 is not from 0 to 1000000000;"),
    (
        "sessions list --since soon",
        2,
        "Invalid value for '--since': 'soon' is no date or time: write",
    ),
    (
        "sessions list --since 2026-13-40",
        2,
        "Invalid value for '--since': '2026-13-40' is no date or time:",
    ),
    ("sessions list --cwd /nope", 3, "no such file or folder: /nope"),
    (
        "sessions list --store sqlite:///nope.db",
        3,
        "there is no store sqlite:///nope.db yet; `perdure import` or",
    ),
    (
        "sessions list --store sqlite:///nope/dir/x.db",
        3,
        "there is no store sqlite:///nope/dir/x.db yet; `perdure",
    ),
    (
        "chat -p hello --store sqlite:///nope/x.db",
        3,
        "the folder nope does not exist: create it, or correct the address",
    ),
    (
        "chat -p hello --store sqlite:///tmp/x.db",
        3,
        "the folder tmp does not exist: did you mean sqlite:////tmp/x.db?",
    ),
    (
        'sessions list --store ""',
        2,
        "--store is empty: write an address, such as sqlite:///agents.db",
    ),
    (
        "sessions list --store file.txt",
        2,
        "'file.txt' is no address of a store: write sqlite:///file.txt",
    ),
    (
        "chat --store /nope/x.db -p hi",
        2,
        "'/nope/x.db' is no address of a store: write sqlite:////nope/x.db",
    ),
    (
        "sessions list --store mysql://x/y",
        2,
        "there is no store 'mysql://x/y': use sqlite:///FILE,",
    ),
    ('sessions list --namespace ""', 2, "'' is no namespace: give it a name"),
    (
        "sessions list --after nope",
        3,
        "no session 'nope' here; `perdure sessions list --all` shows them",
    ),
    ("sessions list extra", 2, "unexpected argument: extra; see --help"),
    ("sessions show", 2, "missing argument ID; see --help"),
    ("sessions show nope", 3, "no session 'nope' here; `perdure sessions list --all` shows them"),
    ('sessions show ""', 3, "no session '' here; `perdure sessions list --all` shows them"),
    ("sessions show nope.jsonl", 3, "no such file or folder: nope.jsonl"),
    ("sessions show file.txt", 3, "no session 'file.txt' here; `perdure sessions list --all`"),
    ("sessions show .", 3, "no session '.' here; `perdure sessions list --all` shows them"),
    ("sessions read nope", 3, "no session 'nope' here; `perdure sessions list --all` shows them"),
    ("sessions read S 99999", 3, "no entry '99999' in session 'S'; `perdure sessions tree S`"),
    (
        "sessions read S --last x",
        2,
        "Invalid value for '--last': 'x' is no whole number; see --help",
    ),
    ("sessions tree nope", 3, "no session 'nope' here; `perdure sessions list --all` shows them"),
    (
        "sessions context S --budget x",
        2,
        "Invalid value for '--budget': 'x' is no whole number; see --help",
    ),
    ("sessions branch S 99999", 3, "no entry '99999' in session 'S'; `perdure sessions tree S`"),
    ("sessions branch S", 2, "missing argument ENTRY; see --help"),
    (
        "sessions pin S",
        2,
        "missing argument ENTRY; a pin keeps one entry in the context of the model, and does not",
    ),
    ("sessions label S 99999 x", 3, "no entry '99999' in session 'S'; `perdure sessions tree S`"),
    ("sessions rename S", 2, "missing argument TITLE; see --help"),
    ("sessions diff S 1 99999", 3, "no entry '99999' in session 'S'; `perdure sessions tree S`"),
    ("sessions fork nope", 3, "no session 'nope' here; `perdure sessions list --all` shows them"),
    ("sessions fork S --at 99999", 3, "no entry '99999' in session 'S'; `perdure sessions tree S`"),
    (
        "sessions compact nope",
        3,
        "no session 'nope' here; `perdure sessions list --all` shows them",
    ),
    ("sessions end nope", 3, "no session 'nope' here; `perdure sessions list --all` shows them"),
    ('sessions search ""', 2, "cannot search for '': it holds no word to look for"),
    ("sessions search hotel --cwd /nope", 3, "no such file or folder: /nope"),
    ("sessions erase", 2, "say what to erase: an ID, --subject NAME or --everything, one"),
    ("sessions erase S", 2, "erasing cannot be undone: add --yes to confirm"),
    ("sessions erase 0196 --yes", 3, "erasing needs a whole session id; '0196' only matches S"),
    (
        "sessions erase nope --yes",
        3,
        "no session 'nope' here; `perdure sessions list --all` shows them",
    ),
    (
        "sessions erase S --everything --yes",
        2,
        "say what to erase: an ID, --subject NAME or --everything, one",
    ),
    (
        "sessions erase --dry-run",
        2,
        "say what to erase: an ID, --subject NAME or --everything, one",
    ),
    (
        "sessions erase S --dry-run --certificate c.json",
        2,
        "--dry-run erases nothing, so there is no certificate: leave out one",
    ),
    (
        "sessions erase S --query tea --yes",
        2,
        "filters select sessions: omit the ID, --subject, --everything and --certificate",
    ),
    (
        "sessions erase S --keep-for-forks --with-forks",
        2,
        "--keep-for-forks and --with-forks exclude each other",
    ),
    ("sessions erase --query= --yes", 2, "--query is empty; name what to erase, or leave it out"),
    ("sessions resume", 2, "name sessions, or add --all for every interrupted one"),
    ("sessions resume nope", 3, "no session 'nope' here; `perdure sessions list --all` shows them"),
    ("import /nope/f.jsonl", 3, "no such file or folder: /nope/f.jsonl"),
    (
        "--store sqlite:///x.db sessions list",
        2,
        "--store is an option of commands: write it after the command",
    ),
    ("import empty.jsonl", 2, "empty.jsonl: the file is empty"),
    ("import file.txt", 2, "file.txt: not a recognized session file (supported: perdure,"),
    ("import empty", 3, "nothing to import: no .jsonl file in empty"),
    (
        "import file.txt --format nope",
        2,
        "Invalid value for '--format': 'nope' is not one of 'auto',",
    ),
    ("import --watch /nope", 3, "no such file or folder: /nope"),
    ("export", 2, "name a session, or add --all for an archive of every session"),
    ("export nope", 3, "no session 'nope' here; `perdure sessions list --all` shows them"),
    ("export S --format nope", 2, "Invalid value for '--format': 'nope' is not one of 'perdure',"),
    ("export S --format jsonl", 2, "'html'; did you mean perdure, which is JSON lines?"),
    ("export S --format MD", 2, "'html'; did you mean markdown?"),
    ("export S --format md", 2, "Invalid value for '--format': 'md' is not one of 'perdure',"),
    ("export S -o file.txt", 4, "file.txt exists already; choose another name, or add --force"),
    ("export S --format html -o .", 2, ". is a folder; name a file"),
    (
        "store rekey --new-key-file nope",
        2,
        "the key file nope cannot be read: No such file or directory",
    ),
    ("export S -o nope/x.html", 3, "no such file or folder: nope"),
    ("export --all --format pi", 2, "an archive of many sessions is made of HTML pages: omit"),
    ("export --all", 2, "name the folder of the archive: -o DIR"),
    ("export S --redact all", 2, "Invalid value for --redact: 'all' is none of secrets, paths;"),
    ("export S --leaf 99999", 3, "no entry '99999' in session 'S'; `perdure sessions tree S`"),
    (
        "export S --format perdure --dialect relavium",
        2,
        "--dialect is about workflows: add --format workflow",
    ),
    ("continue-in S nope", 2, "Invalid value for 'PROGRAM': 'nope' is not one of"),
    (
        "continue-in nope codex",
        3,
        "no session 'nope' here; `perdure sessions list --all` shows them",
    ),
    ("inbox answer nope allow", 3, "no question 'nope' waits here; `perdure inbox` lists those"),
    ("inbox answer", 2, "missing argument ID; see --help"),
    ("inbox show nope", 3, "no question 'nope' waits here; `perdure inbox` lists those"),
    ('memory search ""', 2, "the question holds no word to look for: ''"),
    ("memory forget nope", 3, "no fact 'nope' here; `perdure memory facts --all` lists the"),
    ("memory import /nope", 3, "no such file or folder: /nope"),
    ("agents validate nope.yaml", 3, "no such file or folder: nope.yaml"),
    ("agents show nope", 3, "there is no agent 'nope'; there are: none"),
    ("config set chat.modle x", 2, "there is no command 'set' of `perdure config`: use `perdure"),
    (
        "config set chat.model openai:x",
        2,
        """'set' of `perdure config`: write model = "openai:x" in the section [chat] of /""",
    ),
    ("config set chat.allowed_commands 'git log'", 2, 'write allowed_commands = ["git log"] in'),
    ("config set chat.turn_cap 80", 2, "write turn_cap = 80 in the section [chat] of /"),
    ("config get nope", 2, "there is no command 'get' of `perdure config`: use `perdure config"),
    ("config explain nope", 2, "unknown setting 'nope'; there are: chat.model, chat.agent,"),
    ("flow run nope.yaml", 3, "no such file or folder: nope.yaml"),
    ("flow show nope", 3, "no flow 'nope' here; `perdure flow list` lists the flows"),
    ("flow resume nope", 3, "no flow 'nope' here; `perdure flow list` lists the flows"),
    (
        "store verify --store sqlite:///nope.db",
        3,
        "there is no store sqlite:///nope.db yet; `perdure import` or",
    ),
    ("store backup", 2, "missing argument FOLDER; see --help"),
    ("store restore nope.db", 3, "no such file or folder: nope.db"),
    (
        "store copy sqlite:///nope2.db --store sqlite:///nope.db",
        3,
        "there is no store sqlite:///nope.db yet; `perdure import` or",
    ),
    (
        "store rekey --store sqlite:///nope.db",
        3,
        "there is no store sqlite:///nope.db yet; `perdure import` or",
    ),
    ("token delete nope", 2, "there is no command 'delete' of `perdure token`: use `perdure token"),
    ("token view nope", 2, "'view' of `perdure token`; its commands: create, list, revoke"),
    ("token revoke pds_", 2, "this is the signing key of the token ID: end both with `perdure"),
    ("grants remove nope", 2, "there is no command 'remove' of `perdure grants`: use `perdure"),
    ("grants revoke nope", 3, "no grant 'nope'; `perdure grants list` lists the grants"),
    ("schedule delete nope", 2, "use `perdure schedule cancel ID`"),
    ("sessions export S", 2, "there is no command 'export' of `perdure sessions`: use `perdure"),
    ("sessions erase-entries S 2", 2, "use `perdure sessions erase ID ENTRY`"),
    ("sessions help", 2, "`perdure sessions --help` prints the help of the group"),
    ("sessions erase S S --yes", 2, "S is a session, and after the first ID come its entries:"),
    ("sessions erase S nope --yes", 3, "no entry 'nope' in session 'S'; `perdure sessions tree"),
    ("sessions erase S --certificate . --yes", 2, ". is a folder: name a new file for the"),
    (
        "sessions erase S --certificate file.txt --yes",
        4,
        "file.txt exists already; choose another name for the certificate",
    ),
    (
        "store rekey --generate --new-key-file file.txt",
        4,
        "file.txt exists already; choose another name for the key file",
    ),
    (
        "demo --cluster --store sqlite:///new.db",
        2,
        "sqlite:///new.db is no PostgreSQL: --cluster needs --store postgresql://",
    ),
    ("token revoke nope", 3, "no token 'nope'; `perdure token list` lists the tokens"),
    ("serve nope", 2, "'nope' is not MODULE:FACTORY, for example shop.agents:runtime"),
    ("serve --port x", 2, "Invalid value for '--port': 'x' is no whole number; see --help"),
    ("serve --port 99999", 2, "Invalid value for '--port': 99999 is not from 0 to 65535; see"),
    ("serve --host 0.0.0.0", 2, "listening on 0.0.0.0 needs TLS (--tls-certificate and"),
    (
        'sessions list --namespace " "',
        2,
        "' ' is no namespace: use a name without control characters, and without blanks at its",
    ),
    ("sessions show S/3", 2, "S/3 is an entry: name its session, which is S"),
    (
        "continue-in S",
        2,
        "missing argument PROGRAM: one of claude-code, codex, pi, operator, openco",
    ),
    ("memory episodes --after nope", 3, "no episode 'nope' here; `perdure memory episodes --all`"),
    ("sessions show LONG.jsonl", 2, "LONG is too long for a path: correct it"),
    ("import LONG", 2, "LONG is too long for a path: correct it"),
    ("chat --cwd LONG -p hi", 2, "LONG is too long for a path: correct it"),
    ("chat --store jsonl:///LONG -p hi", 2, "is too long for a path: correct it"),
    ("store backup LONG", 2, "is too long for a path: correct it"),
    ("store copy jsonl:///LONG", 2, "is too long for a path: correct it"),
    ("chat -m ollama: -p hi", 2, "'ollama:' names a provider, but no model of it: write ollama:N"),
    ("usage hourly", 2, "Invalid value for 'GROUP': 'hourly' is not one of 'daily',"),
    (
        "usage --since today --until yesterday",
        2,
        "Invalid value for '--until': no time is between --since and --until: give an earlier",
    ),
    (
        "activity --until yesterday --since today",
        2,
        "Invalid value for '--since': no time is between --since and --until: give an earlier",
    ),
    (
        "sessions list --since 0001-01-02 --until 0001-01-01",
        2,
        "Invalid value for '--until': no time is between --since and --until: give an earlier",
    ),
    (
        "sessions search tide --since 7d --until 30d",
        2,
        "Invalid value for '--until': no time is between --since and --until: give an earlier",
    ),
    (
        "flow run nope.workflow.yaml --scenario nope.yaml",
        3,
        "no such file or folder: nope.workflow.yaml",
    ),
    ("sessions resume --all --scenario nope.yaml", 3, "there is no scenario nope.yaml: name its"),
    ("usage --since soon", 2, "Invalid value for '--since': 'soon' is no date or time: write"),
    ("grants list nope", 3, "no session 'nope' here; `perdure sessions list --all` shows them"),
    ("grants revoke S", 2, "name a grant of this session (`perdure grants list S`), or use --all"),
    ("mcp serve extra", 2, "unexpected argument: extra; see --help"),
    ("completion powershell", 2, "Invalid value for 'SHELL': 'powershell' is not one of 'bash',"),
    ("doctor extra", 2, "unexpected argument: extra; see --help"),
    ("demo nope.jsonl", 3, "no such file or folder: nope.jsonl"),
    ("sessions list --format json", 2, "unknown option --format; did you mean --json?"),
    ("sessions search", 2, "missing argument QUERY; see --help"),
    ("export S -o trip.pdf", 2, "no format has files that end with .pdf: name one with --format"),
    ("export S --all --format html -o x", 2, "an archive has many sessions: omit the ID and"),
    (
        "export S --format workflow --all-branches",
        2,
        "a workflow is one branch: leave --all-branches out",
    ),
    ("schedule add S hello --at 2h", 2, "session S has no agent that is in force here and could"),
    ("schedule add S hello", 2, "Missing option '--at'; see --help"),
    (
        "schedule add S hello --at soon",
        2,
        "'soon' is no date or time: write 2026-11-21T09:30, tomorrow 09:30, 30s, 30m, 2h or 7d;",
    ),
    ("answer S/5 allow", 2, "there is no command 'answer': use `perdure inbox answer`"),
    ("schedule add S hello --at yesterday", 2, "'yesterday' has passed: write 2026-11-21T09:30,"),
    ("schedule cancel 9", 3, "'9' is not a scheduled message: it was sent or cancelled, or never"),
    ("store retention set --max-idle soon", 2, "'soon' is no time: say 90d, 12h, 30m or 4w, or"),
    ("store quota set --max-bytes lots", 2, "'lots' is no size: say"),
    ("store rekey", 2, "say which key: --generate, --new-key-file FILE, or --plain for none"),
    ("store rekey --plain --generate", 2, "--plain takes no key; leave out --new-key-file and"),
    ("token create --days 0", 2, "--days 0: give more than 0 and at most 36500"),
    ("models test nope:x", 2, "unknown model provider 'nope'; available: anthropic, google,"),
    ("models set-key nope", 2, "unknown provider 'nope'; known: openai, openai-responses,"),
    ('memory remember ""', 2, "the text of a fact is empty: say what to remember"),
    ("activity --map --hours", 2, "a heat map has days: leave out --hours"),
    ("activity --map --last 3", 2, "a heat map has no rows: leave out --last, or use --since"),
    ("grants revoke S nope", 3, "no grant 'nope'; `perdure grants list` lists the grants"),
    ("mcp test nope", 3, "there is no MCP server 'nope'; there are: none"),
    ("worker x:y", 2, "there is no module 'x' here or installed"),
    ("cluster status", 2, "workers share a store on PostgreSQL, and "),
    ("flow init --greenfield --takeover", 2, "use only one of --greenfield and --takeover"),
    ("store restore file.txt", 2, "file.txt is a file: name the folder of a backup"),
    ("flow run .", 2, ". is a folder: name the file of a workflow"),
    ("flow validate .", 2, ". is a folder: name the file of a workflow"),
    ("serve --project nope", 3, "no such file or folder: nope"),
    ("serve --project file.txt", 2, "file.txt is a file: name a folder in which flows can start"),
    ("init file.txt", 2, "file.txt is a file: name the folder of a project"),
    ("chat --agent nope -p hi", 3, "there are: none; `perdure init` writes an example to"),
    ("mcp test nope", 3, "there are: none; add one as [mcp.servers.NAME] to your settings"),
    ("inbox answer S/3 allow", 3, "no question 'S/3' waits here; `perdure inbox` lists those"),
    ("sessions diff S 0 99999", 3, "no entry 'S/0' in session 'S'; `perdure sessions tree S`"),
    (
        "import http://example.com/x.jsonl",
        2,
        "http://example.com/x.jsonl is an address, and addresses are not fetched: download the",
    ),
    ("store trust nope.db", 3, "nope.db: name an existing store or its file"),
    ("chat --agent wrong.agent.yaml -p hi", 2, ":4: 'modle' is unknown here; did you mean 'model'"),
    (
        "sessions list --store postgresql://me@127.0.0.1:99999/x",
        1,
        "is the server running? Check host and port of its address",
    ),
    ("models test ollama:qwen3", 1, "is the server running, and is this its address?"),
)
LONG = "long" * 75
"""A name with more characters than a file system accepts."""

SAMPLE_OF = 6
"""`make test` tests only every sixth mistake."""


def check(world: World, typed: str, code: int, told: str) -> None:
    """Run the mistaken command line `typed`; check its exit code and its one-line message."""
    named = [re.sub(r"^S(?=$|/)", SAMPLE_ID, word) for word in shlex.split(typed)]
    words = [word.replace("LONG", LONG) for word in named]
    ended = world.run(*words)
    said = re.sub(f"{LONG[:60]}… \\(\\d+ characters\\)", "LONG", ended.err.replace(SAMPLE_ID, "S"))
    assert ended.code == code, (typed, said)
    assert told in said, (typed, said)
    assert len(said.splitlines()) == 1, (typed, said)
    assert said.startswith("perdure: "), (typed, said)


@pytest.fixture
def made(sample: World) -> World:
    """A world with two sessions, files that are not stores, and an empty folder."""
    sample.ok("sessions", "fork", SAMPLE_ID)
    (sample.folder / "file.txt").write_text("just text\n")
    (sample.folder / "empty").mkdir()
    (sample.folder / "empty.jsonl").touch()
    whole = "id: wrong\nmodel: scripted:echo\nsystem_prompt: hi\n"
    (sample.folder / "wrong.agent.yaml").write_text(f"{whole}modle: x\n")
    return sample


@pytest.mark.full_only
def test_sample_of_typical_mistakes_prints_one_sentence_each(made: World) -> None:
    for typed, code, told in MISTAKES[::SAMPLE_OF]:
        check(made, typed, code, told)


@pytest.mark.all_only
def test_every_typical_mistake_prints_one_sentence_and_sets_the_exit_code(made: World) -> None:
    assert len({told for _, _, told in MISTAKES}) >= 100  # different ones: some have one answer
    for typed, code, told in MISTAKES:
        check(made, typed, code, told)


@pytest.mark.full_only
def test_every_error_in_an_agent_file_is_printed_on_a_separate_line(world: World) -> None:
    text = "modle: x\ninstructions: hi\ntools: [raed_file]\n"
    (world.folder / "broken.agent.yaml").write_text(text)
    ended = world.run("chat", "--agent", "broken.agent.yaml", "-p", "hi")
    assert ended.code == 2
    assert ended.err.splitlines() == [
        "perdure: broken.agent.yaml has 6 errors:",
        "    line 1: 'modle' is unknown here; did you mean 'model'?",
        "    line 1: 'id' is missing",
        "    line 1: 'model' is missing",
        "    line 1: 'system_prompt' is missing",
        "    line 2: 'instructions' is unknown here; did you mean 'system_prompt'?",
        "    line 3: there is no built-in tool 'raed_file'; did you mean 'read_file'?",
    ]
    as_json = world.run("chat", "--agent", "broken.agent.yaml", "-p", "hi", "--json")
    assert "broken.agent.yaml:1: 'modle'" in as_json.error["message"]
    assert len(as_json.error["faults"]) == 6
