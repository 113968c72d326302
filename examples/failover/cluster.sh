#!/usr/bin/env bash
# A primary, two replicas and three Sentinels on this machine, for docs/replication.md.
#
#   cluster.sh start [plain]   start them; plain: replication as in Redis, which may lose what it has acknowledged
#   cluster.sh status          show the role of each server
#   cluster.sh kill-primary    kill -9
#   cluster.sh restart         start the killed server again; Sentinel turns it into a replica
#   cluster.sh stop            stop them and remove their files
#
# STREAMD, REDIS_SERVER and REDIS_CLI name the programs, RUN the folder of the files, PORT the first of six ports, DOWN_AFTER after
# how many milliseconds of silence Sentinels replace the primary.
set -euo pipefail

RUN=${RUN:-/tmp/streamd-failover}
PORT=${PORT:-7001}
DOWN_AFTER=${DOWN_AFTER:-2000}
STREAMD=${STREAMD:-streamd}
REDIS_SERVER=${REDIS_SERVER:-redis-server}
REDIS_CLI=${REDIS_CLI:-redis-cli}
NODES="$PORT $((PORT + 1)) $((PORT + 2))"
SENTINELS="$((PORT + 3)) $((PORT + 4)) $((PORT + 5))"

ask() { "$REDIS_CLI" -p "$@"; }

wait_for() { # wait_for WHAT COMMAND...
    local what=$1 until=$((SECONDS + 60))
    shift
    until "$@" > /dev/null 2>&1; do
        if ((SECONDS > until)); then
            echo "timed out waiting for: $what" >&2
            exit 1
        fi
        sleep 0.1
    done
}

launch() { # launch PORT PROGRAM...
    local port=$1
    shift
    nohup "$@" >> "$RUN/$port/log" 2>&1 < /dev/null &
    echo $! > "$RUN/$port/pid"
    wait_for "port $port" ask "$port" ping
}

start_node() { launch "$1" "$STREAMD" server "$RUN/$1/node.conf"; }

alive() { [[ -e $RUN/$1/pid ]] && kill -0 "$(cat "$RUN/$1/pid")" 2> /dev/null; }

has_replicas() { (($(ask "$PORT" info replication | grep -c state=online) == 2)); }

knows_all() { # knows_all PORT
    local fields
    fields=$(ask "$1" sentinel master service)
    grep -A1 -x num-slaves <<< "$fields" | grep -qx 2 && grep -A1 -x num-other-sentinels <<< "$fields" | grep -qx 2
}

primary() {
    local port
    for port in $SENTINELS; do
        ask "$port" sentinel get-master-addr-by-name service | tail -1
        return
    done
}

start() {
    local port
    for port in $NODES; do
        mkdir -p "$RUN/$port"
        {
            echo "bind 127.0.0.1"
            echo "port $port"
            echo "dir $RUN/$port"
            echo "appendonly yes"
            echo "repl-diskless-sync-delay 0"
            if [[ ${1:-} != plain ]]; then
                echo "appendfsync always"
                echo "min-replicas-durable 1"
                echo "min-replicas-durable-timeout 1000"
                echo "min-replicas-durable-sentinel-timeout 1500" # below the Sentinels' down-after-milliseconds
            fi
            if ((port != PORT)); then echo "replicaof 127.0.0.1 $PORT"; fi
        } > "$RUN/$port/node.conf"
        start_node "$port"
    done
    wait_for "the replicas" has_replicas
    for port in $SENTINELS; do
        mkdir -p "$RUN/$port"
        cat > "$RUN/$port/sentinel.conf" <<- END
			bind 127.0.0.1
			port $port
			dir $RUN/$port
			sentinel monitor service 127.0.0.1 $PORT 2
			sentinel down-after-milliseconds service $DOWN_AFTER
			sentinel failover-timeout service 5000
		END
        launch "$port" "$REDIS_SERVER" "$RUN/$port/sentinel.conf" --sentinel
    done
    for port in $SENTINELS; do wait_for "Sentinel $port" knows_all "$port"; done
    status
}

status() {
    local port
    for port in $NODES; do
        if alive "$port"; then
            echo "port $port: $(ask "$port" role | head -1)"
        else
            echo "port $port: not running"
        fi
    done
}

kill_primary() {
    local port
    port=$(primary)
    echo "kill -9 the primary, port $port"
    kill -9 "$(cat "$RUN/$port/pid")"
}

restart() {
    local port
    for port in $NODES; do alive "$port" || start_node "$port"; done
    status
}

stop() {
    local port
    for port in $NODES $SENTINELS; do if alive "$port"; then kill -9 "$(cat "$RUN/$port/pid")"; fi; done
    rm -rf "$RUN"
}

case ${1:-} in
    start) start "${2:-}" ;;
    status) status ;;
    kill-primary) kill_primary ;;
    restart) restart ;;
    stop) stop ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0" ;;
esac
