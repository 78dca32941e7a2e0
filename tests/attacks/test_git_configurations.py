"""A repository configured by another person runs nothing, fetches nothing, shows no other file.

Real git, real repositories. Every case prepares one repository, then the tools inspect the
repository and commit in it. A case fails the test if the program that the case names has run, or if
text from outside the working directory is shown.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.tools.git.keys import ALWAYS, WHERE_SET, Setting, fate_of
from tests.fakes.repositories import Scene, all_runs, git, require_harmless, scene_in, sign_head
from tests.fakes.samples import sampled


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return scene_in(tmp_path)


# ---------------------------------------------------------------- keys that name a program

EVIL = "evil"
ATTRIBUTES = "*.txt filter=evil diff=evil merge=evil\n"

KEYS: dict[str, tuple[tuple[str, str], ...]] = {
    "a clean filter": (("filter.evil.clean", "{program}"),),
    "a filter process": (("filter.evil.process", "{program}"),),
    "a smudge filter": (("filter.evil.smudge", "{program}"),),
    "a required filter": (("filter.evil.clean", "{program}"), ("filter.evil.required", "true")),
    "a signature checked by a program": (
        ("log.showSignature", "true"),
        ("gpg.program", "{program}"),
    ),
    "an OpenPGP signature": (
        ("log.showSignature", "true"),
        ("gpg.openpgp.program", "{program}"),
    ),
    "an SSH signature": (
        ("log.showSignature", "true"),
        ("gpg.format", "ssh"),
        ("gpg.ssh.program", "{program}"),
        ("gpg.ssh.allowedSignersFile", "/dev/null"),
    ),
    "an X.509 signature": (
        ("log.showSignature", "true"),
        ("gpg.format", "x509"),
        ("gpg.x509.program", "{program}"),
    ),
    "a signed commit": (("commit.gpgSign", "true"), ("gpg.program", "{program}")),
    "a signed commit with a key command": (
        ("commit.gpgSign", "true"),
        ("gpg.format", "ssh"),
        ("gpg.ssh.defaultKeyCommand", "{program}"),
        ("gpg.ssh.program", "{program}"),
    ),
    "a file system monitor": (("core.fsmonitor", "{program}"),),
    "a file system monitor of version 1": (
        ("core.fsmonitor", "{program}"),
        ("core.fsmonitorHookVersion", "1"),
    ),
    "a pager": (("core.pager", "{program}"),),
    "a pager for each command": (
        ("pager.status", "{program}"),
        ("pager.log", "{program}"),
        ("pager.diff", "{program}"),
        ("pager.config", "{program}"),
    ),
    "an editor": (("core.editor", "{program}"), ("sequence.editor", "{program}")),
    "a verbose commit with an editor": (
        ("commit.verbose", "true"),
        ("core.editor", "{program}"),
        ("commit.template", "{outside}/secret.txt"),
    ),
    "an external diff": (("diff.external", "{program}"),),
    "a diff driver": (("diff.evil.command", "{program}"),),
    "a text conversion": (("diff.evil.textconv", "{program}"),),
    "a cached text conversion": (
        ("diff.evil.textconv", "{program}"),
        ("diff.evil.cachetextconv", "true"),
    ),
    "a merge driver": (("merge.evil.driver", "{program}"), ("rerere.enabled", "true")),
    "an ssh command": (("core.sshCommand", "{program}"),),
    "a git proxy": (("core.gitProxy", "{program}"),),
    "a question for a password": (("core.askPass", "{program}"),),
    "a credential helper": (("credential.helper", "!{program}"),),
    "a credential helper of a site": (("credential.https://example.com.helper", "!{program}"),),
    "a hooks folder": (("core.hooksPath", "{hooks}"),),
    "an alias of a command": (
        ("alias.status", "!{program}"),
        ("alias.log", "!{program}"),
        ("alias.diff", "!{program}"),
        ("alias.commit", "!{program}"),
        ("alias.config", "!{program}"),
    ),
    "a summary of submodules": (("status.submoduleSummary", "true"),),
    "a filter of interactive diffs": (("interactive.diffFilter", "{program}"),),
    "a trailer that is a command": (
        ("trailer.sign.command", "{program}"),
        ("trailer.sign.cmd", "{program}"),
        ("trailer.sign.ifmissing", "add"),
    ),
    "garbage collection after a commit": (
        ("gc.auto", "1"),
        ("gc.recentObjectsHook", "{program}"),
        ("maintenance.auto", "true"),
    ),
    "a command for alternate references": (("core.alternateRefsCommand", "{program}"),),
    "tools for diffs and merges": (
        ("diff.tool", "evil"),
        ("difftool.evil.cmd", "{program}"),
        ("mergetool.evil.cmd", "{program}"),
        ("guitool.evil.cmd", "{program}"),
        ("browser.evil.cmd", "{program}"),
        ("man.evil.cmd", "{program}"),
    ),
    "a filter with an equals sign in its name": (("filter.e=vil.clean", "{program}"),),
    "a filter with a dot in its name": (("filter.e.vil.clean", "{program}"),),
    "a filter in capital letters": (("filter.EVIL.clean", "{program}"),),
    "a filter without a name": (("filter..clean", "{program}"),),
    "a hook of the configuration": (
        ("hook.evil.command", "{program}"),
        ("hook.evil.event", "pre-commit"),
    ),
}
NAMES_OF_FILTERS = {
    "a filter with an equals sign in its name": "e=vil",
    "a filter with a dot in its name": "e.vil",
    "a filter in capital letters": "EVIL",
}


@sampled("case", list(KEYS), kind=type, each=8)
async def test_program_named_by_a_git_key_does_not_run(scene: Scene, case: str) -> None:
    name = NAMES_OF_FILTERS.get(case, EVIL)
    scene.write(".gitattributes", ATTRIBUTES.replace("filter=evil", f"filter={name}"))
    git(scene.repository, "add", ".gitattributes")
    git(scene.repository, "commit", "--quiet", "-m", "attributes")
    if "ignature" in case:
        sign_head(scene)
    hooks = scene.outside / "hooks"
    hooks.mkdir()
    for hook in ("pre-commit", "post-commit", "reference-transaction", "post-index-change"):
        (hooks / hook).symlink_to(scene.program)
    for key, value in KEYS[case]:
        scene.configure(
            key, value.format(program=scene.program, outside=scene.outside, hooks=hooks)
        )
    require_harmless(scene, await all_runs(scene))


# ---------------------------------------------------------------- where keys come from


def through_include(scene: Scene) -> None:
    scene.write("shared.ini", f'[filter "evil"]\n\tclean = {scene.program}\n')
    scene.configure("include.path", "../shared.ini")


def through_absolute_include(scene: Scene) -> None:
    (scene.outside / "shared.ini").write_text(f"[core]\n\tfsmonitor = {scene.program}\n")
    scene.configure("include.path", str(scene.outside / "shared.ini"))


def through_conditional_include(scene: Scene) -> None:
    scene.write("shared.ini", f'[filter "evil"]\n\tclean = {scene.program}\n')
    scene.configure(f"includeIf.gitdir:{scene.repository}/.path", "../shared.ini")


def through_branch_include(scene: Scene) -> None:
    scene.write("shared.ini", f'[filter "evil"]\n\tprocess = {scene.program}\n')
    scene.configure("includeIf.onbranch:main.path", "../shared.ini")


def through_nested_include(scene: Scene) -> None:
    scene.write("one.ini", "[include]\n\tpath = two.ini\n")
    scene.write("two.ini", f'[filter "evil"]\n\tclean = {scene.program}\n')
    scene.configure("include.path", "../one.ini")


def through_worktree_configuration(scene: Scene) -> None:
    scene.configure("core.repositoryFormatVersion", "1")
    scene.configure("extensions.worktreeConfig", "true")
    scene.write(".git/config.worktree", f'[filter "evil"]\n\tclean = {scene.program}\n')


def through_attributes_of_the_repository(scene: Scene) -> None:
    (scene.repository / ".gitattributes").unlink()
    scene.write(".git/info/attributes", "*.txt filter=inner\n")
    scene.configure("filter.inner.clean", str(scene.program))


def through_attributes_outside(scene: Scene) -> None:
    (scene.outside / "attributes").write_text("*.txt filter=inner\n")
    scene.configure("core.attributesFile", str(scene.outside / "attributes"))
    scene.configure("filter.inner.clean", str(scene.program))


def through_link_to_configuration(scene: Scene) -> None:
    moved = scene.outside / "config"
    scene.configure("filter.evil.clean", str(scene.program))
    scene.config.rename(moved)
    scene.config.symlink_to(moved)


def through_fifo_as_configuration(scene: Scene) -> None:
    scene.config.unlink()
    os.mkfifo(scene.config)


def through_fifo_as_include(scene: Scene) -> None:
    os.mkfifo(scene.repository / "fifo")
    scene.configure("include.path", "../fifo")


def through_device_as_include(scene: Scene) -> None:
    scene.configure("include.path", "/dev/zero")


def through_large_include(scene: Scene) -> None:
    scene.write("large.ini", "[a]\n" + "\tb = c\n" * 200_000)
    scene.configure("include.path", "../large.ini")


def through_include_of_itself(scene: Scene) -> None:
    scene.write("self.ini", "[include]\n\tpath = self.ini\n")
    scene.configure("include.path", "../self.ini")


def through_the_persons_own_filter(scene: Scene) -> None:
    """The user's own program would run with a file of the repository as input."""
    git(scene.repository, "config", "--global", "filter.evil.clean", str(scene.program))


def through_hooks(scene: Scene) -> None:
    for hook in ("pre-commit", "commit-msg", "post-commit", "post-index-change"):
        (scene.repository / ".git" / "hooks").mkdir(exist_ok=True)
        (scene.repository / ".git" / "hooks" / hook).symlink_to(scene.program)


def through_rerere(scene: Scene) -> None:
    scene.configure("rerere.enabled", "true")
    scene.configure("merge.evil.driver", str(scene.program))
    name = "0" * 40
    scene.write(".git/MERGE_RR", f"{name}\ta.txt\0")
    scene.write(f".git/rr-cache/{name}/preimage", "<<<<<<<\none\n=======\ntwo\n>>>>>>>\n")
    scene.write(f".git/rr-cache/{name}/postimage", "one\n")


SOURCES: dict[str, Callable[[Scene], None]] = {
    case.__name__.replace("_", " "): case
    for case in (
        through_include,
        through_absolute_include,
        through_conditional_include,
        through_branch_include,
        through_nested_include,
        through_worktree_configuration,
        through_attributes_of_the_repository,
        through_attributes_outside,
        through_link_to_configuration,
        through_fifo_as_configuration,
        through_fifo_as_include,
        through_device_as_include,
        through_large_include,
        through_include_of_itself,
        through_the_persons_own_filter,
        through_hooks,
        through_rerere,
    )
}


@sampled("case", list(SOURCES), kind=type, each=5)
async def test_program_configured_through_another_git_file_does_not_run(
    scene: Scene, case: str
) -> None:
    scene.write(".gitattributes", ATTRIBUTES)
    SOURCES[case](scene)
    require_harmless(scene, await all_runs(scene))


# ---------------------------------------------------------------- promisors, and what they fetch


def promisor(scene: Scene, url: str, **more: str) -> None:
    """Make `url` the source of missing objects, and remove an object."""
    scene.configure("core.repositoryFormatVersion", "1")
    scene.configure("extensions.partialClone", "origin")
    scene.configure("remote.origin.promisor", "true")
    scene.configure("remote.origin.url", url)
    for key, value in more.items():
        scene.configure(key.replace("__", "."), value)
    blob = git(scene.repository, "rev-parse", "HEAD:a.txt").strip()
    place = scene.repository / ".git" / "objects" / blob[:2] / blob[2:]
    place.chmod(0o644)
    place.unlink()


def ext_promisor(scene: Scene) -> None:
    promisor(scene, f"ext::{scene.program}", protocol__ext__allow="always")


def default_allowed_promisor(scene: Scene) -> None:
    promisor(scene, f"ext::{scene.program}", protocol__allow="always")


def ssh_promisor(scene: Scene) -> None:
    promisor(
        scene,
        "ssh://localhost/x",
        protocol__ssh__allow="always",
        core__sshCommand=str(scene.program),
    )


def file_promisor(scene: Scene) -> None:
    promisor(
        scene,
        f"file://{scene.outside}",
        protocol__file__allow="always",
        remote__origin__uploadpack=str(scene.program),
    )


def path_promisor(scene: Scene) -> None:
    promisor(
        scene,
        str(scene.outside),
        protocol__file__allow="always",
        remote__origin__uploadpack=str(scene.program),
    )


def helper_promisor(scene: Scene) -> None:
    promisor(
        scene,
        "http://127.0.0.1:9/x",
        protocol__ext__allow="always",
        remote__origin__vcs="ext",
    )
    scene.configure("remote.origin.url", str(scene.program))


def proxied_promisor(scene: Scene) -> None:
    promisor(
        scene,
        "git://localhost/x",
        protocol__git__allow="always",
        core__gitProxy=str(scene.program),
    )


def rewritten_promisor(scene: Scene) -> None:
    promisor(scene, "https://example.com/x", protocol__ext__allow="always")
    scene.configure(f"url.ext::{scene.program} .insteadOf", "https://example.com/x")


PROMISORS = {
    case.__name__.replace("_", " "): case
    for case in (
        ext_promisor,
        default_allowed_promisor,
        ssh_promisor,
        file_promisor,
        path_promisor,
        helper_promisor,
        proxied_promisor,
        rewritten_promisor,
    )
}


@sampled("case", list(PROMISORS), kind=type, each=3)
async def test_git_with_a_promisor_remote_fetches_nothing(scene: Scene, case: str) -> None:
    PROMISORS[case](scene)
    require_harmless(scene, await all_runs(scene))


def test_list_of_attacked_git_keys_has_at_least_60_keys() -> None:
    assert len((*KEYS, *SOURCES, *PROMISORS)) >= 60


# ---------------------------------------------------------------- every key that git documents

NOT_PROGRAMS = frozenset(
    ("commit.gpgsign", "commit.verbose", "core.fsmonitor", "gc.auto", "log.mailmap")
) | frozenset(("log.showsignature", "maintenance.auto", "rerere.enabled", "safe.barerepository"))
BOOLEANS = NOT_PROGRAMS | {"core.prefersymlinkrefs", "status.submodulesummary", "submodule.recurse"}


async def test_git_keys_that_perdure_overrides_run_no_program(scene: Scene) -> None:
    scene.write(".gitattributes", ATTRIBUTES)
    for key in (*ALWAYS, *WHERE_SET):
        if key in BOOLEANS or key in ("color.ui", "diff.ignoresubmodules", "sendemail.*"):
            continue
        name = "status" if key == "pager.*" else EVIL
        value = "none" if key.endswith((".update", ".allow", ".ignore")) else str(scene.program)
        scene.configure(key.replace("*", name), value)
    scene.configure("log.showSignature", "true")
    sign_head(scene)
    runs = await all_runs(scene)
    assert [run.outcome for run in runs[:3]] == ["ok"] * 3
    require_harmless(scene, runs)


def test_every_documented_git_key_is_allowed_or_overridden() -> None:
    """Every key that the installed git documents is allowed or overridden, except includes."""
    documented = subprocess.run(
        ["git", "help", "-c"], check=True, capture_output=True, text=True
    ).stdout.split("\n")
    keys = [line.strip().lower() for line in documented if "." in line and " " not in line.strip()]
    asked = [key for key in keys if fate_of(Setting(re.sub("<.*>", "x", key), "x")) == "neither"]
    assert len(keys) > 800
    assert sorted(asked) == ["include.path", "includeif.<condition>.path"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hook.x.command", "x"),
        ("unknown.key", "x"),
        ("core.invented", "x"),
        ("diff.evil.invented", "x"),
        ("extensions.refstorage", "files:///elsewhere"),
        ("extensions.invented", "x"),
        ("include.path", "x"),
        ("includeif.gitdir:/x.path", "x"),
    ],
)
def test_unknown_git_key_is_neither_allowed_nor_overridden(key: str, value: str) -> None:
    assert fate_of(Setting(key, value)) == "neither"
