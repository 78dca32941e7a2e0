"""Classify the keys of a git configuration for the git commands that perdure runs.

A key is allowed, overridden, or neither. An allowed key changes at most the output of the git
commands that perdure runs. An overridden key could start a program, fetch, or point outside the
working directory; `overrides_of` returns the value that disables the key. If a configuration sets a
key that is neither allowed nor overridden, perdure asks a person whether git is allowed to run. The
functions of this module are pure.

perdure runs the git commands status, log, diff, add, commit and ls-files.
Source: ``git help -c`` of git 2.39. If later versions of git add keys to sections that one of the
commands reads, the new keys need approval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

Fate = Literal["allowed", "overridden", "neither"]

ALWAYS: Mapping[str, str] = {
    "core.hookspath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.editor": "true",
    "sequence.editor": "true",
    "core.askpass": "true",
    "core.sshcommand": "false",
    "core.alternaterefscommand": "false",
    "core.prefersymlinkrefs": "false",
    "credential.helper": "",
    "protocol.allow": "never",
    "color.ui": "false",
    "commit.gpgsign": "false",
    "commit.template": "/dev/null",
    "commit.verbose": "false",
    "diff.external": "",
    "diff.ignoresubmodules": "all",
    "diff.orderfile": "/dev/null",
    "gpg.program": "false",
    "gpg.ssh.program": "false",
    "gpg.openpgp.program": "false",
    "gpg.x509.program": "false",
    "gpg.ssh.defaultkeycommand": "",
    "gpg.ssh.allowedsignersfile": "/dev/null",
    "gpg.ssh.revocationfile": "/dev/null",
    "gc.auto": "0",
    "interactive.difffilter": "",
    "log.mailmap": "false",
    "log.showsignature": "false",
    "mailmap.file": "/dev/null",
    "maintenance.auto": "false",
    "rerere.enabled": "false",
    "safe.barerepository": "explicit",
    "status.submodulesummary": "false",
    "submodule.recurse": "false",
    "uploadpack.packobjectshook": "",
}
"""Maps keys, in lower case as git lists them, to the values that override them in every call."""

WHERE_SET: Mapping[str, str] = {
    "browser.*.cmd": "",
    "browser.*.path": "",
    "core.attributesfile": "/dev/null",
    "core.excludesfile": "/dev/null",
    "core.gitproxy": "",
    "credential.*.helper": "",
    "diff.*.command": "",
    "diff.*.textconv": "",
    "difftool.*.cmd": "",
    "difftool.*.path": "",
    "filter.*.clean": "",
    "filter.*.process": "",
    "filter.*.smudge": "",
    "fsmonitor.socketdir": "",
    "gc.recentobjectshook": "",
    "gitcvs.logfile": "/dev/null",
    "gpg.*.program": "false",
    "guitool.*.cmd": "",
    "help.browser": "",
    "http.cookiefile": "",
    "imap.tunnel": "",
    "init.templatedir": "",
    "instaweb.browser": "",
    "instaweb.httpd": "",
    "instaweb.modulepath": "",
    "man.*.cmd": "",
    "man.*.path": "",
    "man.viewer": "",
    "merge.*.driver": "false",
    "mergetool.*.cmd": "",
    "mergetool.*.path": "",
    "pager.*": "false",
    "protocol.*.allow": "never",
    "receive.procreceiverefs": "",
    "remote.*.proxy": "",
    "remote.*.receivepack": "false",
    "remote.*.uploadpack": "false",
    "remote.*.vcs": "",
    "sendemail.*": "",
    "submodule.*.ignore": "all",
    "submodule.*.update": "none",
    "trailer.*.cmd": "",
    "trailer.*.command": "",
    "web.browser": "",
}
"""Maps patterns of keys to the values that override such keys if a configuration sets them."""

WORKSPACE_ONLY = frozenset(("core.attributesfile", "core.excludesfile"))
"""Keys that are overridden only if the repository sets them; the person's own settings apply."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


BY_ENVIRONMENT = frozenset(("core.worktree", "extensions.partialclone"))
"""Keys that the environment variables GIT_WORK_TREE and GIT_ALLOW_PROTOCOL override.

GIT_ALLOW_PROTOCOL forbids fetching.
"""

_UNREAD = _words(
    """
    alias am apply bitmap blame browser bundle checkout clean clone completion credential
    credentialcache credentialstore difftool fastimport fetch format fsck fsmonitor gc gitcvs gitweb
    grep gui guitool help http imap init instaweb interactive lsrefs mailinfo mailmap maintenance
    man mergetool pack pager promisor protocol pull push rebase receive reftable remote remotes
    repack rerere revert safe sendemail sendpack sequence showbranch ssh submodule tar trace2
    trailer transfer uploadarchive uploadpack uploadpackfilter url web worktree
    lfs gitflow gitbutler gitg gk github gitlab svn svn-remote vscode magit forge branchless jj town
    git-town hub tig
    """
)
"""Sections that these commands do not read; only other commands or programs use them."""

_READ = _words(
    """
    add advice author branch color column commitgraph committer feature i18n merge notes pretty
    sparse splitindex stash tag user versionsort
    """
)
"""Sections that these commands read and that contain no programs, addresses or paths."""

_NAMES: Mapping[str, frozenset[str]] = {
    "attr": frozenset(("tree",)),
    "commit": frozenset(("cleanup", "status")),
    "core": _words(
        """
        abbrev alternaterefsprefixes autocrlf bare bigfilethreshold checkroundtripencoding checkstat
        commentchar commentstring commitgraph compression createobject deltabasecachelimit eol
        filemode filesreflocktimeout fsmonitorhookversion fsync fsyncmethod fsyncobjectfiles
        hidedotfiles ignorecase ignorestat logallrefupdates loosecompression maxtreedepth
        multipackindex notesref packedgitlimit packedgitwindowsize packedrefstimeout
        precomposeunicode preloadindex protecthfs protectntfs quotepath repositoryformatversion
        restrictinheritedhandles safecrlf sharedrepository sparsecheckout sparsecheckoutcone
        splitindex symlinks trustctime unsetenvvars untrackedcache usereplacerefs warnambiguousrefs
        whitespace
        """
    ),
    "diff": _words(
        """
        algorithm autorefreshindex binary cachetextconv colormoved colormovedws context dirstat
        dstprefix guitool indentheuristic interhunkcontext mnemonicprefix name noindex noprefix
        relative renamelimit renames srcprefix statgraphwidth statnamewidth submodule
        suppressblankempty tool trustexitcode wordregex wserrorhighlight xfuncname
        """
    ),
    "filter": frozenset(("required",)),
    "gpg": frozenset(("format", "mintrustlevel")),
    "index": _words("recordendofindexentries recordoffsettable skiphash sparse threads version"),
    "log": _words(
        """
        abbrevcommit date decorate diffmerges excludedecoration follow graphcolors
        initialdecorationset showroot
        """
    ),
    "status": _words(
        """
        aheadbehind branch displaycommentprefix relativepaths renamelimit renames short showstash
        showuntrackedfiles
        """
    ),
}
"""Maps sections to the last words of their allowed keys; their other keys are not allowed."""

_ALLOWED_EXTENSIONS: Mapping[str, frozenset[str] | None] = {
    "extensions.noop": None,
    "extensions.noop-v1": None,
    "extensions.objectformat": None,
    "extensions.compatobjectformat": None,
    "extensions.preciousobjects": None,
    "extensions.relativeworktrees": None,
    "extensions.worktreeconfig": None,
    "extensions.refstorage": frozenset(("files", "reftable")),
}
"""Maps extensions to the values that cannot point outside the repository; None means all values."""


class Setting(msgspec.Struct, frozen=True):
    """A key of a configuration, as git lists it, and its value, which can be None."""

    key: str
    value: str | None

    @property
    def pattern_key(self) -> str:
        """Return the key, with ``*`` in place of its subsection, if it has one."""
        section, _, rest = self.key.partition(".")
        between, dot, name = rest.rpartition(".")
        return f"{section}.*.{name}" if dot or between else f"{section}.{name}"


def fate_of(setting: Setting) -> Fate:
    """Return how perdure handles `setting`."""
    if inert_value(setting) is not None or setting.key in BY_ENVIRONMENT:
        return "overridden"
    if setting.key in _ALLOWED_EXTENSIONS:
        values = _ALLOWED_EXTENSIONS[setting.key]
        return "allowed" if values is None or setting.value in values else "neither"
    section, name = setting.key.partition(".")[0], setting.key.rpartition(".")[2]
    is_known = section in _UNREAD or section in _READ or name in _NAMES.get(section, ())
    return "allowed" if is_known else "neither"


def inert_value(setting: Setting) -> str | None:
    """Return the value that disables the key of `setting`; None if it need not be disabled."""
    if setting.key in ALWAYS:
        return ALWAYS[setting.key]
    shape = setting.pattern_key
    if shape in WHERE_SET:
        return WHERE_SET[shape]
    for pattern, value in WHERE_SET.items():
        if pattern.endswith(".*") and fnmatchcase(setting.key, pattern):
            return value
    return None


def overrides_of(
    settings: Iterable[Setting], own: Iterable[Setting], *, requires_filters: bool
) -> dict[str, str]:
    """Return the keys to override, with the values that disable unsafe settings.

    `settings` are all settings that apply in the repository; `own` are the settings from the
    repository's own files. The overrides disable every git filter, a program that changes files
    before git stores them. If `requires_filters` is True, git refuses to store a file to which a
    filter applies; if it is False, git stores the file without running the filter.
    """
    found = dict(ALWAYS)
    local = {setting.key for setting in own}
    for setting in settings:
        value = inert_value(setting)
        if value is None or (setting.key in WORKSPACE_ONLY and setting.key not in local):
            continue
        found[setting.key] = value
        if setting.key.startswith("filter."):
            required = f"{setting.key.rpartition('.')[0]}.required"
            found[required] = "true" if requires_filters else "false"
    return found
