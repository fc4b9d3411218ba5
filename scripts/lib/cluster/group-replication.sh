# shellcheck shell=bash
#
# Group Replication of MySQL servers, for cluster.sh.

# The plugin comes with the server.
require_cluster() { :; }
prepare_cluster() { :; }

bootstrap_option() { echo --loose-group-replication-bootstrap-group=ON; }

node_options() {
    # shellcheck disable=SC2034 # read by cluster.sh
    options=(
        "--server-id=$1"
        --gtid-mode=ON
        --enforce-gtid-consistency=ON
        --report-host=127.0.0.1
        "--report-port=$(port_of "$1" "$2")"
        --plugin-load-add=group_replication.so
        --loose-group-replication-group-name=7a671ac4-0000-4000-8000-7a671ac40000
        "--loose-group-replication-local-address=127.0.0.1:$(port_of "$1" "$2" 1)"
        "--loose-group-replication-group-seeds=$(addresses "$2" 1)"
        # `join` starts it, with the account that fetches the data.
        --loose-group-replication-start-on-boot=OFF
        # Until then whatever a client writes would be in this member alone. The group lifts it from the primary.
        --super-read-only=ON
        --loose-group-replication-recovery-get-public-key=ON
    )
    case ${TAG_LOCK_GROUP-} in
        '' | single-primary) ;;
        multi-primary)
            options+=(
                --loose-group-replication-single-primary-mode=OFF
                --loose-group-replication-enforce-update-everywhere-checks=ON
            )
            ;;
        *) die "TAG_LOCK_GROUP=$TAG_LOCK_GROUP is not supported; use single-primary or multi-primary" ;;
    esac
}
