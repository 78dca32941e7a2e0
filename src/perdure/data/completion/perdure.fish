# Completion of perdure for fish. Keep it:
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
