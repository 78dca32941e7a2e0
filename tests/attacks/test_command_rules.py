"""A rule allows exactly its text: no other option, no path that leads up, no more arguments.

Each case is a rule that a careful person would write, and a command that the rule must not allow. A
case fails the test if the command is allowed.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.tools.builtin.shell import run_command
from perdure.tools.commands import is_allowed
from perdure.tools.permission_check import judge_call
from perdure.tools.permissions import Permissions
from tests.fakes.samples import case
from tests.fakes.tool_calls import Tools

OPTIONS = (
    ("git diff *", "git diff --output=/tmp/x"),
    ("git diff *", "git diff --no-index"),
    ("git diff *", "git diff --ext-diff"),
    ("git diff *", "git diff -O/etc/passwd"),
    ("git log *", "git log --output=x"),
    ("git log *", "git log -p"),
    ("git show *", "git show --textconv"),
    ("git branch *", "git branch -D"),
    ("git grep *", "git grep -Osh"),
    ("git grep *", "git grep --open-files-in-pager=sh"),
    ("git fetch *", "git fetch --upload-pack=evil"),
    ("git ls-remote *", "git ls-remote --upload-pack=evil"),
    ("git archive *", "git archive --exec=evil"),
    ("git clone *", "git clone -cprotocol.ext.allow=always"),
    ("git *", "git --version"),
    ("git *", "git -ccore.pager=evil"),
    ("rg *", "rg --pre=evil"),
    ("rg * src", "rg --pre=sh src"),
    ("fd *", "fd -xsh"),
    ("find src *", "find src -delete"),
    ("find * x", "find -exec x"),
    ("tar xf *", "tar xf --to-command=sh"),
    ("tar xf *", "tar xf --checkpoint-action=exec=sh"),
    ("sort *", "sort --output=x"),
    ("sort *", "sort -o/etc/x"),
    ("sed s/a/b/ *", "sed s/a/b/ -i"),
    ("pytest *", "pytest -pevil"),
    ("pytest *", "pytest --rootdir=/"),
    ("pytest tests/*", "pytest -c/tmp/evil"),
    ("python *", "python -c1"),
    ("python *", "python -mhttp.server"),
    ("node *", "node -e1"),
    ("perl *", "perl -e1"),
    ("sh *", "sh -cid"),
    ("bash *", "bash --rcfile=x"),
    ("make *", "make --eval=x"),
    ("make *", "make -fevil"),
    ("npm run *", "npm run --script-shell=evil"),
    ("npm *", "npm --prefix=/"),
    ("curl *", "curl -o/etc/x"),
    ("curl *", "curl --config=x"),
    ("wget *", "wget --output-document=x"),
    ("ssh host *", "ssh host -oProxyCommand=evil"),
    ("rsync * x", "rsync -eevil x"),
    ("zip * x", "zip -TTsh x"),
    ("man *", "man -Psh"),
    ("less *", "less -ofile"),
    ("vim *", "vim -c:!id"),
    ("docker run *", "docker run --privileged"),
    ("cargo test *", "cargo test --config=x"),
    ("go test *", "go test -exec=evil"),
    ("gcc *", "gcc -wrapper"),
    ("ls *", "ls --color=always"),
    ("ls ?", "ls -"),
    ("ls ??", "ls -l"),
    ("x ?*", "x -y"),
    ("x *y", "x -y"),
    ("x *=1", "x --a=1"),
    ("x a=*", "x -a=1"),
    ("x --a=*", "x --b=1"),
    ("x --a=*", "x --aa=1"),
    ("x --a=*", "x -a=1"),
    ("x --a *", "x --a --b"),
    ("x -- *", "x -- -y"),
)
LEADING_UP = (
    ("cat docs/*", "cat docs/../../etc/passwd"),
    ("cat docs/*", "cat docs/.."),
    ("cat docs/*", "cat docs/../.env"),
    ("cat docs/*", "cat docs/a/../../../x"),
    ("cat docs/*", "cat docs//../x"),
    ("cat docs/*", "cat docs/./../x"),
    ("cat docs/*.md", "cat docs/../../x.md"),
    ("cat docs*", "cat docs/../x"),
    ("cat *", "cat ../x"),
    ("cat *", "cat .."),
    ("cat *", "cat a/../../x"),
    ("cat */x", "cat ../x"),
    ("cat ?./x", "cat ../x"),
    ("cat .?/x", "cat ../x"),
    ("cat ??/x", "cat ../x"),
    ("cat .*/x", "cat ../x"),
    ("cat ../*", "cat ../../x"),
    ("cat ../*/x", "cat ../../x"),
    ("pytest tests/* -q", "pytest tests/../../x -q"),
    ("pytest tests/*", "pytest tests/../x.py::test"),
    ("tool --out=*", "tool --out=../x"),
    ("tool --out=build/*", "tool --out=build/../../x"),
    ("tool path=*", "tool path=../x"),
    ("tool *", "tool a=../x"),
    ("tool *", "tool a:../x"),
    ("tool *", "tool @../x"),
    ("tool *", "tool a,../x"),
    ("tool *", "tool 'a ../x'"),
    ("tool *", "tool a\\..\\x".replace("\\", "\\\\")),
    ("tool docs/*", "tool 'docs/..\\x'"),
)
MORE_ARGUMENTS = (
    ("cat *", "cat a b"),
    ("cat *", "cat"),
    ("cat docs/*", "cat docs/a /etc/passwd"),
    ("cat docs/*", "cat docs/a -n"),
    ("git diff *", "git diff /etc/passwd /dev/null"),
    ("npm run *", "npm run a -- --b"),
    ("pytest tests/* -q", "pytest tests/a tests/b -q"),
    ("cp * build", "cp a b build"),
    ("x **", "x a -b"),
    ("x **", "x --b"),
    ("x **", "x a ../b"),
    ("x y **", "x"),
    ("x y **", "x z a"),
    ("x ** y", "x a b y"),
    ("x a**", "x a b"),
    ("x *", "y a"),
    ("x *", "xy"),
    ("x *", "./x a"),
    ("x *", "/bin/x a"),
)
NO_PATTERNS = (
    ("x [ab]*", "x a1"),
    ("x [!a]*", "x b1"),
    ("x ?[a-z]", "x ab"),
    ("x []*", "x ']'"),
    ("x *{a,b}", "x a"),
    ("x *.A", "x a.a"),
)
NOT_MEANT = (*OPTIONS, *LEADING_UP, *MORE_ARGUMENTS, *NO_PATTERNS)
MEANT = (
    ("cat docs/*", "cat docs/guide.md"),
    ("cat docs/*", "cat docs/a/b/c.md"),
    ("cat docs/*", "cat docs/a..b"),
    ("cat docs/*", "cat docs/...x"),
    ("cat docs/*", "cat 'docs/a b.md'"),
    ("cat ../*", "cat ../x/y"),
    ("git log --oneline *", "git log --oneline main"),
    ("git log *", "git log a..b"),
    ("git log *", "git log a...b"),
    ("pytest tests/* -q", "pytest tests/a.py::test_b -q"),
    ("pytest -k *", "pytest -k 'not slow'"),
    ("tool --out=build/*", "tool --out=build/x"),
    ("tool --name=*", "tool --name=-x"),
    ("echo **", "echo"),
    ("echo **", "echo a b c"),
    ("npm run **", "npm run test unit"),
    ("touch *", "touch /tmp/x"),
    ("x ?", "x y"),
    ("x [ab]*", "x '[ab]1'"),
    ("x ?[!a]", "x 'b[!a]'"),
    ("x [[]*", "x '[[]]'"),
    ("x *.A", "x a.A"),
)


async def test_command_that_the_rule_does_not_cover_is_refused(tmp_path: Path) -> None:
    for rule, command in NOT_MEANT:
        with case((rule, command)):
            allowed = Permissions(allowed_command_globs=(rule,), approval="auto")
            assert judge_call(run_command, {"command": command}, allowed).decision == "refuse"
            run = await Tools(tmp_path, allowed).run(run_command, command=command)
            assert run.error_code == "tool_denied"


def test_command_that_the_rule_covers_is_allowed() -> None:
    for rule, command in MEANT:
        with case((rule, command)):
            allowed = Permissions(allowed_command_globs=(rule,), approval="auto")
            assert judge_call(run_command, {"command": command}, allowed).decision == "run"


@pytest.mark.parametrize(
    "rule", ["*", "** x", "?x a", "x -*", "x --*", "x -?", "x --a*=1", "gi* x"]
)
def test_command_rule_with_an_unclear_program_or_option_is_an_error(rule: str) -> None:
    with pytest.raises(ConfigError):
        Permissions(allowed_command_globs=(rule,))


def test_list_of_forbidden_commands_has_at_least_100_commands() -> None:
    assert len(set(NOT_MEANT)) >= 100


@pytest.mark.parametrize("unit", ["a", "../", "..", "/..", "=..", ".", "a/"])
def test_long_argument_is_judged_in_linear_time(unit: str) -> None:
    def seconds(count: int) -> float:
        word = unit * count + "x"
        started = time.process_time()
        for _ in range(5):
            is_allowed(("x", word), (), ("x *a*.b",))
        return time.process_time() - started

    small, large = seconds(2000), seconds(8000)
    assert large < 8 * small + 0.05
