# shellcheck shell=bash
#
# A server whose defaults are as bad as an administrator may make them: TAG_LOCK_SERVER_DEFAULTS=hostile. Each is allowed,
# and each changes what statements mean, what they may be, or how long.

# shellcheck disable=SC2034 # read by with-mysql
hostile_options() {
    local mode=ANSI_QUOTES,PIPES_AS_CONCAT,IGNORE_SPACE,NO_BACKSLASH_ESCAPES
    hostile=(
        --transaction-isolation=SERIALIZABLE
        --autocommit=0
        --default-time-zone=+05:45
        --max-allowed-packet=65536
        --character-set-server=latin1
        --lower-case-table-names=1
        --group-concat-max-len=100
    )
    if [[ $1 = mariadb ]]; then
        hostile+=("--sql-mode=ORACLE,$mode")
    else
        hostile+=("--sql-mode=$mode" --sql-require-primary-key=ON --sql-generate-invisible-primary-key=ON)
    fi
}
