# shellcheck shell=bash
#
# What `start`, `stop`, `kill` and scripts/with-mysql share about processes.

# The status of `start` when another process has the port.
export PORT_IN_USE=98

# The command line of process $1; nothing when there is none, or only a zombie.
command_line() {
    if [[ -d /proc/self ]]; then
        { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null || true
    else
        ps -p "$1" -o command= || true
    fi
}

# Runs the server, or the program that makes its data directory, in the background, in a session of its own: the
# terminal's Ctrl-C is for the command. The process itself writes its number before it becomes the server,
# so there is no moment in which it runs unrecorded.
launch() {
    local session=(setsid)
    command -v setsid >/dev/null || session=(perl -MPOSIX=setsid -e 'setsid; exec @ARGV')
    # shellcheck disable=SC2016 # expanded by the inner shell
    "${session[@]}" bash -c 'echo $$ >server.pid && exec "$@"' launch "$@" </dev/null &
}

# Prints the server's process id, and fails when it does not run. The name of its directory is in its
# command line: a process that got its number later is not mistaken for it.
server_pid() {
    local pid
    [[ -f server.pid ]] || return 1
    read -r pid <server.pid && [[ $(command_line "$pid") = *"$NAME"* ]] && echo "$pid"
}

# Waits until the server is gone, for at most $1 seconds.
wait_until_gone() {
    local deadline=$((SECONDS + $1))
    while server_pid >/dev/null; do
        [[ $SECONDS -lt $deadline ]] || return 1
        sleep 0.1
    done
    rm -f server.pid
}
