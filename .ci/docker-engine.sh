#!/usr/bin/env bash
# A throw-away Docker engine for the test suite, with no registry and no firewall rules.
#
#   eval "$(.ci/docker-engine.sh start)"    # an engine and an image; prints the variables to export
#   .ci/docker-engine.sh stop               # ends what start began, by its pid, and removes its folder
#
# Everything that it writes lies in SA_JOBQUEUE_ENGINE (a folder). An engine that answers already is used as it is,
# and stop leaves that one alone. Needs root and apt when it has to install or start something.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${SA_JOBQUEUE_ENGINE:-${TMPDIR:-/tmp}/sa-jobqueue-engine}
socket=unix://$folder/docker.sock
bridge=sajq0
subnet=172.31.255.1/24

say() { printf '%s\n' "$*" >&2; }

timed() {
    local label=$1 began=$EPOCHREALTIME
    shift
    "$@" >&2 || { say "$label: failed"; return 1; }
    say "$(awk -v a="$began" -v b="$EPOCHREALTIME" -v l="$label" 'BEGIN { printf "%s: %.1f s", l, b - a }')"
}

answers() { [ -n "$(type -P docker)" ] && docker "$@" version >/dev/null 2>&1; }

install_engine() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q=2
    apt-get install -q=2 -y --no-install-recommends docker.io iproute2
}

install_postgres() {
    # The package would otherwise start a cluster that nobody asked for.
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q=2
    apt-get install -q=2 -y --no-install-recommends postgresql
}

# A bridge of our own: with docker0 two engines on one machine would share, and delete, each other's.
make_bridge() {
    ip link show "$bridge" >/dev/null 2>&1 && return
    ip link add name "$bridge" type bridge
    ip addr add "$subnet" dev "$bridge"
    ip link set "$bridge" up
    touch "$folder/made-bridge"
}

run_engine() {
    mkdir -p "$folder"
    make_bridge
    # The userland proxy publishes ports without iptables; without forwarding a container has no way out.
    setsid dockerd --data-root "$folder/root" --exec-root "$folder/exec" --host "$socket" \
        --pidfile "$folder/docker.pid" --bridge "$bridge" --iptables=false --ip6tables=false \
        --ip-masq=false --ip-forward=false </dev/null >"$folder/log" 2>&1 &
    local engine=$!
    for _ in $(seq 300); do
        answers --host "$socket" && return
        runs "$engine" || break
        sleep 0.1
    done
    tail -n 20 "$folder/log" >&2
    return 1
}

start() {
    if answers --host "$socket"; then
        export DOCKER_HOST=$socket
    elif answers; then
        say "an engine answers already; it is used"
    else
        [ -n "$(type -P dockerd)" ] || timed "install docker.io" install_engine
        timed "start dockerd" run_engine
        export DOCKER_HOST=$socket
    fi
    image
}

image() {
    local name=${SA_JOBQUEUE_TEST_IMAGE:-}
    [ -n "$name" ] || name=$(docker image ls --format '{{.Repository}}:{{.Tag}}' sa-jobqueue/postgres | head -n 1)
    if [ -z "$name" ] || ! docker image inspect "$name" >/dev/null 2>&1; then
        local config=${SA_JOBQUEUE_PG_CONFIG:-}
        if [ -z "$config" ]; then
            [ -n "$(type -P pg_config)" ] && [ -x "$(pg_config --bindir)/initdb" ] ||
                timed "install postgresql" install_postgres
            # Without libpq-dev Debian has no pg_config on the path, only one per version.
            config=$(type -P pg_config || printf '%s\n' /usr/lib/postgresql/*/bin/pg_config | tail -n 1)
        fi
        name=sa-jobqueue/postgres:$("$config" --version | grep -oE '[0-9]+' | head -n 1)
        timed "build $name" "$here/postgres-image.sh" "$config" "$name"
    fi
    [ -z "${DOCKER_HOST:-}" ] || echo "export DOCKER_HOST=$DOCKER_HOST"
    # Ryuk would be pulled; and in a container testcontainers would hand out the gateway instead of localhost.
    echo "export TESTCONTAINERS_RYUK_DISABLED=true TESTCONTAINERS_CONNECTION_MODE=docker_host"
    echo "export SA_JOBQUEUE_TEST_SERVER=testcontainers SA_JOBQUEUE_TEST_IMAGE=$name"
}

runs() { grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$1/status"; }

stop() {
    [ -d "$folder" ] || return 0
    # A pid file that outlived its engine may name somebody else's process by now.
    local engine
    engine=$(cat "$folder/docker.pid" 2>/dev/null || echo none)
    if [ "$(cat "/proc/$engine/comm" 2>/dev/null)" = dockerd ]; then
        kill "$engine"
        for _ in $(seq 300); do
            runs "$engine" || break
            sleep 0.1
        done
        ! runs "$engine" || { say "dockerd $engine does not end"; return 1; }
    fi
    [ ! -e "$folder/made-bridge" ] || ip link del "$bridge" 2>/dev/null || true
    rm -rf -- "$folder"
}

case ${1:-} in
    start) start ;;
    stop) timed "stop dockerd" stop ;;
    *) say "usage: $0 start|stop"; exit 64 ;;
esac
