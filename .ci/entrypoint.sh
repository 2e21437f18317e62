#!/bin/sh
# What testcontainers expects of a PostgreSQL image: POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB are honoured,
# and the server listens on 5432 only when that database exists (no first start that is stopped again, so a client
# that got an answer once keeps getting one).
set -eu

user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}

if [ "$(id -u)" -eq 0 ]; then
    mkdir -p -m 700 "$PGDATA"
    chown -R postgres:postgres "$PGDATA" /run/postgresql
    exec setpriv --reuid postgres --regid postgres --clear-groups "$0" "$@"
fi

create_cluster() {
    secret=$(mktemp)
    echo "${POSTGRES_PASSWORD:?the image needs a password}" >"$secret"
    initdb --username "$user" --pwfile "$secret" --auth-host scram-sha-256 --auth-local trust \
        --encoding UTF8 --no-sync >/dev/null
    rm "$secret"
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    [ "$database" = postgres ] || echo "CREATE DATABASE \"$database\"" | postgres --single -F postgres >/dev/null
}

[ -s "$PGDATA/PG_VERSION" ] || create_cluster
exec postgres -c 'listen_addresses=*' "$@"
