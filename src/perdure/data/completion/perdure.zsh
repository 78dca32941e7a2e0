#compdef perdure
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
