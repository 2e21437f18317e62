#!/usr/bin/env bash
# postgres-image.sh PG_CONFIG NAME: a Docker image out of PostgreSQL's files on this machine, without a base image.
#
# It carries the server at the paths that it has here, the shared libraries that it asks for, and the handful of
# programs that the entry point uses. For tests: whoever wants an image to deploy takes the official one.
set -euo pipefail

config=$1
name=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$("$config" --bindir)
stage=$(mktemp -d)
trap 'rm -rf -- "$stage"' EXIT

skeleton() {
    chmod 755 "$stage"
    mkdir -p "$stage"/{etc,usr/bin,usr/sbin,usr/lib,usr/lib64,var/lib/postgresql,run/postgresql}
    mkdir -m 1777 "$stage/tmp"
    local top
    for top in bin sbin lib lib64; do ln -s "usr/$top" "$stage/$top"; done
    ln -s /run "$stage/var/run"
    printf '%s\n' 'root:x:0:0::/:/bin/sh' 'postgres:x:999:999::/var/lib/postgresql:/bin/sh' >"$stage/etc/passwd"
    printf '%s\n' 'root:x:0:' 'postgres:x:999:' >"$stage/etc/group"
}

# Under its own path; links are followed at the top only, so that versioned library links stay links.
carry() { mkdir -p "$stage$(dirname "$1")" && cp -aHT "$1" "$stage$1"; }

server() {
    carry "$bin"
    carry "$("$config" --pkglibdir)"
    carry "$("$config" --sharedir)"
    # The JIT alone would triple the image.
    rm -rf -- "$stage$("$config" --pkglibdir)"/{bitcode,llvmjit*}
    # auditwheel wheels keep their libraries in a folder beside the package, found relative to the program.
    local libs
    for libs in "$(dirname "$bin")"/../../*.libs; do [ ! -d "$libs" ] || carry "$(realpath "$libs")"; done
    local extra
    for extra in /usr/share/zoneinfo /usr/lib/locale/C.utf8; do [ ! -e "$extra" ] || carry "$extra"; done
}

programs() {
    local program
    for program in sh cat chmod chown id mkdir mktemp rm setpriv; do
        cp -L "$(type -P "$program")" "$stage/usr/bin/"
    done
    install -m 755 "$here/entrypoint.sh" "$stage/usr/bin/entrypoint.sh"
}

# ldd asks on the machine, not in the stage: the paths are the same, and the files surely exist here.
libraries() {
    {
        find "$bin" "$("$config" --pkglibdir)" -type f \( -perm -u+x -o -name '*.so*' \) -not -name 'llvmjit*'
        type -P sh cat chmod chown id mkdir mktemp rm setpriv
    } | xargs -r ldd 2>/dev/null | grep -oE '/[^ :]+\.so[^ :]*' | sort -u | while read -r library; do
        [ -e "$stage$library" ] || { mkdir -p "$stage$(dirname "$library")" && cp -L "$library" "$stage$library"; }
    done
}

skeleton
server
programs
libraries || true
tar -C "$stage" --numeric-owner --owner=0 --group=0 -c . | docker import \
    --change "ENV PATH=$bin:/usr/bin LC_ALL=C.UTF-8 PGDATA=/var/lib/postgresql/data" \
    --change 'EXPOSE 5432' --change 'ENTRYPOINT ["entrypoint.sh"]' - "$name"
