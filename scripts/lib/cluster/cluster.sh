# shellcheck shell=bash
#
# Three nodes for scripts/with-mysql, each in a directory of its own inside the temporary one, with the same programs
# as a single server. What is particular to a kind of cluster stands in galera.sh and group-replication.sh:
#
#   require_cluster           gets what the server's own package does not bring
#   node_options NUMBER BASE  the options of a node
#   bootstrap_option          the option with which the first node makes the cluster

# shellcheck disable=SC2154 # set by with-mysql, find-server.sh and node_options

# Each node has ten ports; the first is for clients.
PORTS=10
NODES=3

start_cluster() {
    local file=$lib/cluster/$cluster.sh base node told
    # shellcheck source=/dev/null
    . "$file"
    [[ $place != docker ]] || die "TAG_LOCK_SERVER=$cluster needs a server on the machine itself: install $kind"
    require_cluster
    base=$(free_ports) || die "no $((NODES * PORTS)) free ports in a row found"
    for node in $(seq $NODES); do
        mkdir "$RUN_DIRECTORY/node$node"
        cp "$lib/server/"* "$RUN_DIRECTORY/node$node/"
        cp "$lib/cluster/$cluster-join" "$RUN_DIRECTORY/node$node/join"
        write_accounts "$RUN_DIRECTORY/node$node"
        node_options "$node" "$base"
        write_settings "$(port_of "$node" "$base")" "node$node" "${options[@]}"
    done
    prepare_cluster
    "$RUN_DIRECTORY/node1/create" || die "the first node's data directory could not be made"
    for node in $(seq 2 $NODES); do
        cp -Rp "$RUN_DIRECTORY/node1/data" "$RUN_DIRECTORY/node1/tmp" "$RUN_DIRECTORY/node$node/"
        # The first node's identity.
        rm -f "$RUN_DIRECTORY/node$node/data/auto.cnf"
    done
    "$RUN_DIRECTORY/node1/start" "$(bootstrap_option)" || die "the cluster's first node did not start"
    for node in $(seq 2 $NODES); do
        "$RUN_DIRECTORY/node$node/start" || die "the cluster's node $node did not start"
    done
    told=$(running_version "$RUN_DIRECTORY/node1") || exit
    say "$cluster: $NODES nodes of $kind $told, the first on port $(port_of 1 "$base")"
    export_cluster "$base"
}

export_cluster() {
    local node url
    TAG_LOCK_NODE_URLS='' TAG_LOCK_NODE_DIRS=''
    for node in $(seq $NODES); do
        url=mysql://tag_lock:$password@127.0.0.1:$(port_of "$node" "$1")/tag_lock
        TAG_LOCK_NODE_URLS+=${TAG_LOCK_NODE_URLS:+,}$url
        TAG_LOCK_NODE_DIRS+=${TAG_LOCK_NODE_DIRS:+,}$RUN_DIRECTORY/node$node
    done
    export TAG_LOCK_NODE_URLS TAG_LOCK_NODE_DIRS TAG_LOCK_SERVER_KIND=$cluster
    export DATABASE_URL=${TAG_LOCK_NODE_URLS%%,*} TAG_LOCK_SERVER_DIR=${TAG_LOCK_NODE_DIRS%%,*}
}

port_of() { echo $(($2 + PORTS * ($1 - 1) + ${3:-0})); }

# `host:port` of every node, at distance $2 from its first port; $3 stands before each.
addresses() {
    local node list=
    for node in $(seq $NODES); do
        list+=${list:+,}127.0.0.1:$(port_of "$node" "$1" "$2")
    done
    echo "$list"
}

# The first of enough ports on which nobody listens, below the range of outgoing connections. Every node must know
# the others' ports before it starts, so they are looked at beforehand.
free_ports() {
    local base port
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        base=$((12000 + PORTS * (RANDOM % 1900)))
        for ((port = base; port < base + NODES * PORTS; port++)); do
            ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || continue 2
        done
        echo "$base"
        return
    done
    return 1
}
