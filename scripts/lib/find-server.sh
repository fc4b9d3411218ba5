# shellcheck shell=bash
#
# Finds a server for scripts/with-mysql, or gets one. The result of find_server:
#
#   kind        mariadb or mysql
#   version     how the server's version must begin; empty for any, `unstable` for that of Debian unstable
#   cluster     galera, group-replication, or empty
#   place       here (installed), tree (in a directory that we chroot into), or docker
#   server, client, install_db   the programs, as they are called in that place
#   tree, image the directory, or Docker's image

# shellcheck disable=SC2034 # read by scripts/with-mysql
kind='' version='' cluster='' place='' server='' client='' install_db='' tree='' image=''

cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/tag-lock

say() { printf '%s: %s\n' "${program:-with-mysql}" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# $1: mariadb, mysql, a version or a cluster of one of them, or empty for whatever is there.
find_server() {
    case $1 in
        '' | mariadb | mysql) ;;
        mariadb-11.8) version=11.8. && set -- mariadb ;;
        mariadb-unstable) version=unstable && set -- mariadb ;;
        galera) cluster=$1 && set -- mariadb ;;
        group-replication) cluster=$1 && set -- mysql ;;
        *) die "TAG_LOCK_SERVER=$1 is not supported; use mariadb, mariadb-11.8, mariadb-unstable, mysql, galera" \
            "or group-replication" ;;
    esac
    ! use_installed "$1" || return 0
    kind=${1:-mariadb}
    ! use_tree || return 0

    lock_the_cache
    # Another run may have installed it while we waited.
    if use_installed "$kind" || use_tree; then
        :
    elif [[ -z $version ]] && install_package && use_installed "$kind"; then
        :
    elif build_tree && use_tree; then
        :
    elif ! use_docker; then
        die "no $kind $version server here, and no way to get one: install $kind, or run this as root or where sudo" \
            "works, or start Docker, or set TAG_LOCK_USE_SERVER to the URL of a server of your own"
    fi
    unlock_the_cache
}

# --- installed -------------------------------------------------------------------------------------------------

use_installed() {
    local directory name found
    while IFS= read -r -d : directory; do
        for name in mariadbd mysqld; do
            server=$directory/$name
            [[ -x $server && ! -d $server ]] || continue
            found=$(kind_and_version)
            [[ -n $found && ${found% *} = "${1:-${found% *}}" && ${found#* } = "$version"* ]] || continue
            kind=${found% *} place=here
            ! find_companions || return 0
        done
    done <<<"$PATH:/usr/sbin:/usr/libexec:/usr/local/sbin:/usr/local/bin:/usr/local/mysql/bin:$(homebrew_directories)"
    return 1
}

homebrew_directories() {
    local prefix formula
    for prefix in /opt/homebrew /usr/local /home/linuxbrew/.linuxbrew; do
        for formula in "$prefix"/opt/mariadb* "$prefix"/opt/mysql*; do
            printf '%s:' "$formula/bin"
        done
    done
}

# What $server is, as `mariadb 11.8.6`; nothing when it is no server. The file's name does not tell: MariaDB brings a
# mysqld too.
kind_and_version() {
    local told
    told=$("$server" --no-defaults --version 2>/dev/null) && [[ $told =~ Ver\ ([^ ]+) ]] || return 0
    case $told in
        *MariaDB*) echo "mariadb ${BASH_REMATCH[1]}" ;;
        *) echo "mysql ${BASH_REMATCH[1]}" ;;
    esac
}

# The client, and the program that makes a data directory, of the same installation as $server.
find_companions() {
    if [[ $kind = mariadb ]]; then
        client=$(beside_server mariadb mysql) && install_db=$(beside_server mariadb-install-db mysql_install_db)
    else
        install_db=$server && client=$(beside_server mysql)
    fi
}

beside_server() {
    local name directory
    for name; do
        for directory in "${server%/*}" "${server%/*}/../bin" "${server%/*}/../scripts"; do
            if [[ -x $directory/$name ]]; then
                echo "$directory/$name"
                return
            fi
        done
        ! command -v "$name" || return 0
    done
    return 1
}

# --- the system's package manager ------------------------------------------------------------------------------

install_package() {
    if has apt-get; then
        install_with_apt
    elif has dnf; then
        install_with_dnf
    elif has brew; then
        say "installing $kind with brew (no service is started)"
        brew install "$kind" >&2
    else
        return 1
    fi
}

# The packages named *-core hold the programs alone: no service, no system user.
install_with_apt() {
    local packages
    can_be_root || return 1
    if ! packages=$(core_packages); then
        # A fresh machine has no package lists yet.
        refresh_apt && packages=$(core_packages) || return 1
    fi
    say "installing $packages with apt (the programs only, no service)"
    install_with_apt_get "$packages" || { refresh_apt && install_with_apt_get "$packages"; }
}

refresh_apt() { as_root apt-get -q update >&2; }

# --no-remove: a server of another kind that is installed here stays.
install_with_apt_get() {
    # shellcheck disable=SC2086 # a list of packages
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o DPkg::Lock::Timeout=600 --no-install-recommends --no-remove install $1 >&2
}

core_packages() {
    local of_server of_client
    of_server=$(newest_package "$kind-server-core") && of_client=$(newest_package "$kind-client-core") &&
        echo "$of_server $of_client"
}

# The installable package named $1, or $1 and the highest version number.
newest_package() {
    local package
    for package in "$1" $(apt-cache pkgnames "$1-" | grep -E "^$1-[0-9.]+$" | sort -V -r); do
        # Not `grep -q`: it may end before its writer, which a pipe counts as a failure.
        if apt-cache policy "$package" | grep 'Candidate: [0-9]' >/dev/null; then
            echo "$package"
            return
        fi
    done
    return 1
}

# Installing starts no service on these systems.
install_with_dnf() {
    local package
    can_be_root || return 1
    for package in "$kind-server" "community-$kind-server"; do
        if dnf -q list "$package" >/dev/null 2>&1; then
            say "installing $package with dnf (no service is started)"
            as_root dnf -q -y install "$package" >&2
            return
        fi
    done
    return 1
}

# --- a tree: a small system of its own, for a server that cannot be installed beside the rest --------------------

# The release whose packages make the tree. Debian's stable releases package no MySQL; its unstable one does.
tree_suite() {
    local ID='' VERSION_CODENAME=''
    # shellcheck source=/dev/null
    ! [[ -r /etc/os-release ]] || . /etc/os-release
    case $ID-$kind-$version in
        debian-mysql- | debian-mariadb-unstable) echo sid ;;
        debian-mariadb-11.8.) echo trixie ;;
        debian-?*- | ubuntu-?*-) [[ -n $VERSION_CODENAME ]] && echo "$VERSION_CODENAME" ;;
        *) return 1 ;;
    esac
}

use_tree() {
    local suite
    suite=$(tree_suite) || return 1
    tree=$cache/$kind-$suite
    [[ -f $tree/complete ]] || return 1
    if [[ $(id -u) -ne 0 ]]; then
        say "the $kind server in $tree can be used by root only"
        return 1
    fi
    # The programs' names inside the tree.
    place=tree
    if [[ $kind = mariadb ]]; then
        server=/usr/sbin/mariadbd client=/usr/bin/mariadb install_db=/usr/bin/mariadb-install-db
    else
        server=/usr/sbin/mysqld client=/usr/bin/mysql install_db=/usr/sbin/mysqld
    fi
}

# Makes the tree under another name first: whoever finds it, finds it complete.
build_tree() {
    local suite packages components=main
    has apt-get && suite=$(tree_suite) || return 1
    if [[ $(id -u) -ne 0 ]]; then
        say "$kind cannot be installed beside the other packages here, and only root can unpack and run it apart"
        return 1
    fi
    packages=$kind-server-core,$kind-client-core
    if [[ $suite != sid && $suite != trixie ]]; then
        # The system's own release, whose packages may have a version in their names.
        packages=$(core_packages) || return 1
        packages=${packages// /,}
        components=main,universe
    fi
    has debootstrap || install_with_apt_get debootstrap || { refresh_apt && install_with_apt_get debootstrap; } || return 1

    local final=$cache/$kind-$suite partial=$cache/$kind-$suite.partial
    say "unpacking $kind of $suite into $final with debootstrap (once; about 650 MB)"
    remove_tree "$final"
    remove_tree "$partial"
    if debootstrap --variant=minbase --components="$components" --include="$packages" "$suite" "$partial" >&2 &&
        rm -rf "$partial"/var/cache/apt/archives/*.deb "$partial"/var/lib/apt/lists/* &&
        touch "$partial/complete" && mv "$partial" "$final"; then
        return 0
    fi
    say "debootstrap failed; $partial/debootstrap/debootstrap.log may tell why"
    return 1
}

# debootstrap that was killed leaves its mounts behind.
remove_tree() {
    umount "$1/proc" "$1/sys" 2>/dev/null || true
    rm -rf --one-file-system "$1"
}

# --- Docker ------------------------------------------------------------------------------------------------------

# A client without a running engine does not count.
use_docker() {
    has docker && docker info >/dev/null 2>&1 || return 1
    place=docker image=$kind:lts
    case $version in
        unstable) image=$kind:latest ;;
        ?*) image=$kind:${version%.} ;;
    esac
    if [[ $kind = mariadb ]]; then
        server=mariadbd client=mariadb install_db=mariadb-install-db
    else
        server=mysqld client=mysql install_db=mysqld
    fi
    say "using Docker's image $image"
    docker image inspect "$image" >/dev/null 2>&1 || docker pull "$image" >&2
}

# --- helpers -----------------------------------------------------------------------------------------------------

has() { command -v "$1" >/dev/null; }

can_be_root() { [[ $(id -u) -eq 0 ]] || has sudo; }

as_root() {
    if [[ $(id -u) -eq 0 ]]; then
        "$@"
    else
        sudo "$@"
    fi
}

# One run at a time installs. macOS has no flock, but brew has a lock of its own.
lock_the_cache() {
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    has flock || return 0
    flock -n 9 || { say "another run is getting a server, waiting for it" && flock 9; }
}

unlock_the_cache() { exec 9>&-; }
