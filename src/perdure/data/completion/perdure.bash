# Completion of perdure for bash. In ~/.bashrc:
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
