# How the scripts speak to people: sourced, never run.
#
# What is missing is named in one line together with the command that installs
# it, because a person who has just cloned should not have to search.

say() {
    printf 'headrace: %s\n' "$*"
}

# stop WHAT HOW: one line that says what is missing and how to get it.
stop() {
    printf 'headrace: %s; %s\n' "$1" "$2" >&2
    exit 1
}

# need COMMAND WHAT HOW: stop unless COMMAND can be run.
need() {
    command -v "$1" >/dev/null 2>&1 || stop "$2 is missing" "$3"
}
