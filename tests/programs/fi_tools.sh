#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# libfabric's own tools (libfabric-bin of Debian, unmodified): fi_info and fi_pingpong.
# Called by: make check. Calls: fi_info, fi_pingpong.
set -u
: "${FI_PROVIDER_PATH:?set by make check}"
export FI_PROVIDER=tofu
failures=0
fail()
{
    echo "FAIL: $*"
    failures=$((failures + 1))
}
command -v fi_info >/dev/null || { echo "skipped: no fi_info (install libfabric-bin)"; exit 77; }

info=$(timeout 20 fi_info -p tofu 2>&1) || fail "fi_info -p tofu: $info"
echo "$info" | grep -q '^provider: tofu' || fail "fi_info does not show the provider: $info"
echo "$info" | grep -q 'type: FI_EP_RDM' || fail "no reliable datagram endpoint: $info"
# Stacked on top of us, rxm or rxd would hide what we are.
echo "$info" | grep -qE 'ofi_rx[md]' && fail "rxm or rxd sits on top: $info"
timeout 20 fi_info -p tofu -t FI_EP_MSG >/dev/null 2>&1 && fail "fi_info -t FI_EP_MSG finds something"
timeout 20 fi_info -e 2>/dev/null | grep -q FI_TOFU_BACKEND || fail "fi_info -e does not list FI_TOFU_BACKEND"

# A backend that is none: an error, a line that says so, and no other library instead.
for backend in /no/such/library.so nonsense /etc/passwd; do
    if text=$(FI_TOFU_BACKEND=$backend FI_LOG_LEVEL=warn timeout 20 fi_info -p tofu 2>&1); then
        fail "FI_TOFU_BACKEND=$backend is accepted"
    fi
    echo "$text" | grep -q "${backend##*/}" || fail "FI_TOFU_BACKEND=$backend is not reported: $text"
done

# What each spelling means on a machine without Tofu that has the simulator: where it is not asked for, there is none.
simulator=${FI_TOFU_BACKEND:?set by make check}
ask() # fi_info with FI_PROVIDER=$1 and FI_TOFU_BACKEND=$2 (-: not set); the loader finds the simulator
{
    (
        export LD_LIBRARY_PATH=${simulator%/*}
        if [ "$1" = - ]; then unset FI_PROVIDER; else export FI_PROVIDER=$1; fi
        if [ "$2" = - ]; then unset FI_TOFU_BACKEND; else export FI_TOFU_BACKEND=$2; fi
        timeout 20 fi_info 2>&1
    )
}
expect_simulator() # yes or no, said (how often the one line stands there), FI_PROVIDER, FI_TOFU_BACKEND
{
    local text
    text=$(ask "$3" "$4")
    if [ "$1" = yes ]; then
        echo "$text" | grep -q 'domain: tofu-sim' || fail "no simulator for FI_PROVIDER=$3 FI_TOFU_BACKEND=$4: $text"
    else
        echo "$text" | grep -q '^provider: tofu' && fail "a simulator for FI_PROVIDER=$3 FI_TOFU_BACKEND=$4: $text"
    fi
    [ "$(echo "$text" | grep -c 'Tofu interface')" = "$2" ] || fail "lines for FI_PROVIDER=$3 FI_TOFU_BACKEND=$4: $text"
}
echo "$info" | grep -q 'domain: tofu-sim' || fail "fi_info does not tell that it is the simulator: $info"
expect_simulator no 0 - -
expect_simulator no 0 - auto
expect_simulator no 0 - ''
expect_simulator no 1 tofu,tcp -
expect_simulator yes 1 tofu -
expect_simulator yes 1 tofu auto
expect_simulator yes 0 tofu sim
expect_simulator yes 0 - sim
expect_simulator yes 0 - "$simulator"
for backend in SIM Auto 'sim ' utofu libtofucom.so "${simulator%/*}" "${simulator%/*}/nothing.so" "/$(printf '%0300d' 7)"; do
    expect_simulator no 0 tofu "$backend"
done

pingpong()
{
    local port=$1 server status
    shift
    timeout 60 fi_pingpong -p tofu -e rdm -B "$port" "$@" &
    server=$!
    # The client comes too early now and then: it says so by its status, and tries again, for a while.
    for _ in $(seq 50); do
        timeout 60 fi_pingpong -p tofu -e rdm -P "$port" "$@" 127.0.0.1
        status=$?
        [ $status = 0 ] && break
        kill -0 $server 2>/dev/null || break
        read -r -t 0.1 <> <(:)
    done
    wait $server || fail "the server of fi_pingpong $*"
    [ $status = 0 ] || fail "the client of fi_pingpong $*: $status"
}
if command -v fi_pingpong >/dev/null; then
    # fi_pingpong talks over TCP to agree on addresses: a free port.
    port=$((20000 + $$ % 20000))
    pingpong "$port" -c -I 10 -S all
    pingpong $((port + 1)) -c -I 20 -S 1048576
fi
[ "$failures" = 0 ] || { echo "$failures checks failed"; exit 1; }
echo "all checks passed"
