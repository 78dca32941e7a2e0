"""The completion scripts of the shells, and the answer format of each shell.

A script calls ``perdure __complete SHELL`` with the text typed so far.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from perdure.apps.cli.surface.completion import Completion, split
from perdure.apps.terminal.text import one_line, safe

Shell = Literal["bash", "zsh", "fish"]

_BASH = r"""# Completion of perdure for bash. In ~/.bashrc:
#   eval "$(perdure completion bash)"
_perdure() {
    local mode value
    COMPREPLY=()
    {
        IFS= read -r mode
        while IFS= read -r value; do COMPREPLY+=("$value"); done
    } < <("${1/#\~/$HOME}" __complete bash "$COMP_WORDBREAKS" "${COMP_TYPE:-9}" \
        "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    case $mode in
        words*) compopt -o nosort 2>/dev/null ;;
        files*) compopt -o default 2>/dev/null ;;
        folders*) compopt -o dirnames 2>/dev/null ;;
    esac
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}
complete -F _perdure perdure
"""

_ZSH = r"""#compdef perdure
# Completion of perdure for zsh. In ~/.zshrc, after compinit:
#   eval "$(perdure completion zsh)"
_perdure() {
    local mode value
    local -a replies values shown
    replies=("${(@f)$(
        ${(Q)words[1]} __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null
    )}")
    mode=$replies[1]
    for value in "${(@)replies[2,-1]}"; do
        [[ -n $value ]] || continue
        values+=("${value%%$'\t'*}")
        shown+=("${value/$'\t'/  -- }")
    done
    if (( $#values )); then
        if [[ $mode == *found ]]; then
            compadd -U -l -V perdure -d shown -a values
            (( $#values > 1 )) && compstate[insert]=menu compstate[list]='list force'
        else
            compadd -l -V perdure -d shown -a values
        fi
    fi
    case $mode in
        files*) _files ;;
        folders*) _files -/ ;;
    esac
}
if [[ $funcstack[1] == _perdure ]]; then _perdure "$@"; else compdef _perdure perdure; fi
"""

_FISH = r"""# Completion of perdure for fish. Keep it:
#   perdure completion fish > ~/.config/fish/completions/perdure.fish
function __perdure_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l replies ($before[1] __complete fish $before[2..] "$current" 2>/dev/null)
    printf '%s\n' $replies[2..]
    switch "$replies[1]"
        case 'files*'
            __fish_complete_path "$current"
        case 'folders*'
            __fish_complete_directories "$current"
    end
end
complete -c perdure -k -f -a '(__perdure_complete)'
"""

SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""Shell -> the script that it must run once."""

_MOST_HELP = 80
_MENU_TYPES = frozenset({"37", "42"})
"""Values of bash's $COMP_TYPE for completion without a list, which inserts candidates unchanged."""


def split_typed(shell: str, words: Sequence[str]) -> tuple[list[str], str]:
    """Split the arguments of the script of `shell` into the words and the word being typed.

    The first word, ``perdure``, is omitted.
    """
    if shell == "bash":
        before, typed = split(words[-1] if words else "")
        return before[1:], typed
    return list(words[:-1]), words[-1] if words else ""


def answer(shell: str, words: Sequence[str], typed: str, found: Completion) -> Iterator[str]:
    """Format `found` for the script of `shell`; `words` are the arguments of the script.

    The shells show the completion candidates in the order in which this function yields them.
    Candidates without `is_ordered` are sorted alphabetically.
    """
    yield f"{found.mode} found" if found.is_replacing else found.mode
    fit = [each for each in found.candidates if safe(each.value) == each.value]
    if not found.is_ordered:
        fit.sort(key=lambda each: each.value)
    found = msgspec.structs.replace(
        found, candidates=tuple(each for each in fit if not {"\n", "\t"} & set(each.value))
    )
    if shell == "bash":
        yield from _for_bash(words, typed, found)
        return
    for each in found.candidates:
        help = one_line(each.help, _MOST_HELP)
        yield f"{each.value}\t{help}" if help else each.value


def _for_bash(words: Sequence[str], typed: str, found: Completion) -> Iterator[str]:
    """Format `found` for bash, which replaces only the text after the last word-break character.

    Bash inserts exactly the text that it shows for a candidate. A description would be inserted,
    too, so descriptions are added only if several candidates are listed.
    """
    breaks = words[0] if words else ""
    cut = max((typed.rfind(mark) + 1 for mark in breaks if not mark.isspace()), default=0)
    is_listed = len(found.candidates) > 1 and words[1:2] and words[1] not in _MENU_TYPES
    for each in found.candidates:
        value = shlex.quote(each.value[cut if each.value.startswith(typed) else 0 :])
        help = one_line(each.help, _MOST_HELP)
        yield f"{value}  ({help})" if is_listed and help else value
