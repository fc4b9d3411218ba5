# shellcheck shell=bash
#
# A Galera cluster of MariaDB nodes, for cluster.sh.

# shellcheck disable=SC2154 # place is set by find-server.sh

# Debian's names. The package of the server brings the program that copies data to a node; it starts a service where
# there is systemd.
require_cluster() {
    local packages='mariadb-server galera-4 rsync'
    ! has_galera || return 0
    if ! has apt-get || ! can_be_root; then
        die "Galera is not here: install $packages, or run this as root or where sudo works"
    fi
    say "installing $packages with apt"
    install_with_apt_get "$packages" || { refresh_apt && install_with_apt_get "$packages"; } ||
        die "Galera could not be installed"
    has_galera || die "Galera was installed, but is not where it was looked for"
}

has_galera() {
    [[ $place = here ]] && has wsrep_sst_rsync && has rsync && galera_library >/dev/null &&
        { [[ $(id -u) -ne 0 ]] || id mysql >/dev/null 2>&1; }
}

galera_library() {
    local library
    for library in /usr/lib/galera/libgalera_smm.so /usr/lib64/galera-4/libgalera_smm.so /usr/lib64/galera/libgalera_smm.so; do
        [[ ! -f $library ]] || { echo "$library" && return; }
    done
    return 1
}

# The nodes run as mysql and must get through to their directories.
prepare_cluster() {
    [[ $(id -u) -ne 0 ]] || { chgrp mysql "$RUN_DIRECTORY" && chmod 710 "$RUN_DIRECTORY"; }
}

bootstrap_option() { echo --wsrep-new-cluster; }

node_options() {
    local group
    group=$(port_of "$1" "$2" 1)
    # shellcheck disable=SC2034 # read by cluster.sh
    options=(
        "--server-id=$1"
        --default-storage-engine=InnoDB
        --innodb-autoinc-lock-mode=2
        --wsrep-on=ON
        "--wsrep-provider=$(galera_library)"
        --wsrep-cluster-name=tag-lock
        "--wsrep-cluster-address=gcomm://$(addresses "$2" 1)"
        "--wsrep-node-name=node$1"
        --wsrep-node-address=127.0.0.1
        "--wsrep-node-incoming-address=127.0.0.1:$(port_of "$1" "$2")"
        --wsrep-sst-method=rsync
        "--wsrep-sst-receive-address=127.0.0.1:$(port_of "$1" "$2" 5)"
        "--wsrep-provider-options=base_port=$group;gmcast.listen_addr=tcp://127.0.0.1:$group;gcache.size=32M"
    )
}
