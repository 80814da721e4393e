#!/usr/bin/env bash
# Tests several ranks on this computer, in three parts:
# - texts: runs a model, and generated files of four kinds, on 1, 2, 3 and 4 ranks, and compares the texts;
# - predictions: measures one file, predicts another on two ranks, and fails if the prediction is off by more than a factor of 2;
# - servers: stops a rank of one server, and kills a rank of another.
#
#   tools/many_machines/check.sh [--only texts|predictions|servers]... [MILLRACE] [MODEL] [TOKENS]
#
# MILLRACE is a build with `--features mpi` (default: that of `cargo build --release`), MODEL any model (default: demo). If the MPI library
# is missing, the script installs Debian's if it may, or else reports it and exits with 3. Predictions are judged only if nothing else runs
# on the computer; with QUIET=required the script fails if they cannot be judged.
set -euo pipefail
parts=''
while [ "${1:-}" = --only ]; do
    case ${2:-} in
        texts | predictions | servers) parts="$parts $2 " ;;
        *) echo "check.sh: --only takes texts, predictions or servers, not '${2:-}'" >&2; exit 2 ;;
    esac
    shift 2
done
[ -n "$parts" ] || parts=' texts predictions servers '
root=$(cd "$(dirname "$0")/../.." && pwd)
millrace=${1:-${CARGO_TARGET_DIR:-$root/target}/release/millrace}
model=${2:-demo}
n_tokens=${3:-48}
[ -x "$millrace" ] || { echo "check.sh: no program $millrace (cargo build --release -p millrace-cli --features mpi)" >&2; exit 2; }

if ! command -v mpirun >/dev/null; then
    if [ "$(id -u)" != 0 ] || ! apt-get install -y -q openmpi-bin libopenmpi-dev libclang-dev >/dev/null 2>&1; then
        echo "no mpirun here; install OpenMPI (Debian: openmpi-bin libopenmpi-dev libclang-dev)" >&2
        exit 3
    fi
fi
# Ranks share this computer's cores, and containers have one user.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks() {
    local n=$1
    shift
    timeout 300 mpirun --oversubscribe --bind-to none -n "$n" "$@"
}
folder=$(mktemp -d)
server=''
# Ends a server that still runs.
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# All runs must write the text of one process without MPI, and give its perplexity to the last digit. Perplexity sums all logits of a text,
# so one different bit changes it. Texts are compared in JSON, because mpirun gives rank 0 a terminal, which changes control characters.
text_of() { python3 -c 'import json, sys; run = json.load(open(sys.argv[1])); print(json.dumps([run["text"], run["tokens"]]))' "$1"; }
for _ in $(seq 60); do echo "Once upon a time, there was a little girl named Lily. She lived in a small house near the woods."; done >"$folder/text.txt"
same_on_all() { # MODEL
    local n alone shared
    "$millrace" run "$1" "Once upon a time" --greedy -n "$n_tokens" --json --quiet >"$folder/alone.json" 2>"$folder/alone.err" ||
        fail "$(basename "$1") without MPI: $(tail -3 "$folder/alone.err")"
    alone=$("$millrace" perplexity "$1" "$folder/text.txt" -c 64 --chunks 2 --json 2>"$folder/alone.err" | grep mean_nll) ||
        fail "perplexity of $(basename "$1") without MPI: $(tail -3 "$folder/alone.err")"
    for n in 1 2 3 4; do
        ranks "$n" "$millrace" run "$1" "Once upon a time" --greedy -n "$n_tokens" --mpi --json >"$folder/$n.json" 2>"$folder/$n.err" ||
            fail "$(basename "$1") on $n ranks: $(tail -3 "$folder/$n.err")"
        [ "$(text_of "$folder/alone.json")" = "$(text_of "$folder/$n.json")" ] || fail "$(basename "$1") on $n ranks writes another text"
        # Every rank reports its traffic; mpirun may put two reports on one line.
        [ "$(grep -o 'rank [0-9]*: [0-9]* tokens' "$folder/$n.err" | sort -u | wc -l)" = "$n" ] || fail "not all of $n ranks say what they exchanged: $(tail -3 "$folder/$n.err")"
        shared=$(ranks "$n" "$millrace" perplexity "$1" "$folder/text.txt" -c 64 --chunks 2 --json --mpi 2>"$folder/$n.err" | grep mean_nll) ||
            fail "perplexity of $(basename "$1") on $n ranks: $(tail -3 "$folder/$n.err")"
        [ "$alone" = "$shared" ] || fail "perplexity of $(basename "$1") on $n ranks: $shared, alone $alone"
    done
    echo "$(basename "$1"): the same text and perplexity on 1, 2, 3 and 4 ranks"
}
texts() {
    local shape file
    same_on_all "$model"
    # Super-blocks of 256 weights, experts, layers with a state: random weights in real shapes, with few layers.
    for shape in 'llama-3.2-1b --layers 2 --type Q4_K_M' 'olmoe-1b-7b --layers 1 --type Q4_K_M' 'qwen35-tiny --type Q8_0' 'granitehybrid-tiny --type F16'; do
        file=$folder/${shape%% *}.gguf
        # shellcheck disable=SC2086 # A name and options.
        "$millrace" synth ${shape%% *} "$file" ${shape#* } --quiet >/dev/null
        same_on_all "$file"
        rm "$file"
    done
}

# Measures one file, and predicts another with more layers. The products on one rank and the exchanges on two ranks of the first file
# predict the time per token of the second on two ranks. The undivided work of every rank grows with the layers. The result is the median of
# three. Other programs change all times, most of all when two ranks wait for each other's turn on a core. If they use more than a tenth of
# the cores, the ratio is printed but not judged. Their share is measured before each run and after the last; the maximum counts.
others_percent() {
    python3 - <<'CODE'
import time

def times():
    with open("/proc/stat") as file:
        numbers = [int(number) for number in file.readline().split()[1:9]]
    return numbers[3] + numbers[4], sum(numbers)

idle, all_ = times()
time.sleep(2)
idle_now, all_now = times()
print(round(100 * (1 - (idle_now - idle) / (all_now - all_))))
CODE
}
profile() { ranks "$1" "$millrace" profile "$folder/$2.gguf" --mpi --threads 1 -n 24 --json 2>"$folder/profile.err"; }
measure_and_predict() {
    local run options
    "$millrace" synth llama-3.2-1b "$folder/measured.gguf" --layers 2 --type Q8_0 --quiet >/dev/null
    "$millrace" synth llama-3.2-1b "$folder/other.gguf" --layers 6 --type Q8_0 --quiet >/dev/null
    for run in 1 2 3; do
        others_percent >>"$folder/others"
        profile 1 measured >"$folder/one.json" || fail "profile on 1 rank: $(tail -3 "$folder/profile.err")"
        profile 2 measured >"$folder/two.json" || fail "profile on 2 ranks: $(tail -3 "$folder/profile.err")"
        options=$(
            python3 - "$folder/one.json" "$folder/two.json" <<'CODE'
import json, sys
one, two = (json.load(open(path))["predictor"] for path in sys.argv[1:])
print("--memory-gb-per-s", one["memory_gb_per_s"], "--undivided-us", one["undivided_us"] * 6 / 2, "--gather-us", two["gather_us"],
      "--message-us", two["message_us"], "--link-gbit-per-s", two["link_gbit_per_s"] or 1e6)
CODE
        )
        # shellcheck disable=SC2086 # Several options.
        "$millrace" info "$folder/other.gguf" --ranks 2 --json $options >"$folder/predicted-$run.json"
        profile 2 other >"$folder/other-$run.json" || fail "profile of the other file on 2 ranks: $(tail -3 "$folder/profile.err")"
    done
    others_percent >>"$folder/others"
    rm -f "$folder"/*.gguf
}
# Exits with 1 if predictions are off, and with 3 if they cannot be judged.
judge() {
    python3 - "$folder" "$(sort -n "$folder/others" | tail -1)" <<'CODE'
import json, statistics, sys
folder, others_percent = sys.argv[1], int(sys.argv[2])
read = lambda name: json.load(open(f"{folder}/{name}.json"))
ratios = []
for run in (1, 2, 3):
    other, predicted = read(f"other-{run}"), read(f"predicted-{run}")
    decode = other["decode"]
    measured_ms = decode["wall_ns"] / decode["n_tokens"] / 1e6
    (predicted_ms,) = next(row["token_ms"] for row in predicted["ranks"]["predictions"] if row["n_ranks"] == 2)
    ratios.append(predicted_ms / measured_ms)
    print(f"2 ranks, another file: {predicted_ms:.2f} ms a token predicted, {measured_ms:.2f} ms measured, ratio {ratios[-1]:.2f}")
for row in decode["ranks"]:
    each = {key: value / decode["n_tokens"] for key, value in row.items()}
    print(f"rank {row['rank']}: a token {each['products_ns'] / 1e6:.2f} ms of products, {each['waiting_ns'] / 1e6:.2f} ms waiting in "
          f"{each['n_gathers']:.0f} gathers, {each['sent_bytes']:.0f} bytes sent, {each['received_bytes']:.0f} received")
link = other["link"]
print(f"link: {link['gathers'][0]['median_ns'] / 1e3:.1f} us a gather of one number, {link['gbit_per_s'] or float('nan'):.1f} Gbit/s")
ratio = statistics.median(ratios)
is_judged = others_percent <= 10
print(f"median ratio {ratio:.2f}" + ("" if is_judged else f"; not judged, as other work takes {others_percent} % of the cores"))
sys.exit((0 if 0.5 <= ratio <= 2.0 else 1) if is_judged else 3)
CODE
}
predictions() {
    local code=0
    measure_and_predict
    judge || code=$?
    case $code in
        0) ;;
        3) [ "${QUIET:-}" != required ] || fail "predictions could not be judged: QUIET=required wants a machine on which nothing else runs" ;;
        *) fail "predictions are off by more than a factor of 2" ;;
    esac
}

# Finds the rank that does not listen, among the started processes.
descendants() {
    local child
    for child in $(pgrep -P "$1"); do
        echo "$child"
        descendants "$child"
    done
}
follower_of() {
    local pid
    for pid in $(descendants "$1"); do
        # A process that ended or belongs to somebody else shows no rank.
        if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx 'OMPI_COMM_WORLD_RANK=1'; then
            echo "$pid"
        fi
    done
}
# Starts a server on two ranks, with the given options of mpirun. Sets `server`, `address` and `follower`.
serve() {
    : >"$folder/serve.out"
    timeout 300 mpirun --oversubscribe --bind-to none "$@" -n 2 "$millrace" serve "$model" --mpi --rank-timeout 3 --port 0 --grace 2 \
        >"$folder/serve.out" 2>"$folder/serve.err" &
    server=$!
    for _ in $(seq 100); do
        grep -q '^http' "$folder/serve.out" && grep -q 'every model is loaded' "$folder/serve.err" && break
        kill -0 "$server" 2>/dev/null || fail "the server ended: $(tail -3 "$folder/serve.err")"
        sleep 0.3
    done
    address=$(grep -m1 '^http' "$folder/serve.out") || fail "the server did not say within 30 s that it listens: $(tail -3 "$folder/serve.err")"
    follower=$(follower_of "$server" | tail -1)
    [ -n "$follower" ] || fail "no process of rank 1"
    ask | grep -q '"text"' || fail "the server gives no text"
}
ask() { curl -s -m 60 "$address/v1/completions" -d '{"model": "'"$(basename "$model" .gguf)"'", "prompt": "Once", "max_tokens": 8, "temperature": 0}'; }

# Sets `code` to the server's exit code. A server that had to be killed counts as hung.
end_of_server() {
    code=0
    wait "$server" || code=$?
    server=''
    [ "$code" != 124 ] || fail "the server did not end within 300 s: $(tail -3 "$folder/serve.err")"
}
servers() {
    local answer code
    # If a rank stops answering, the server tells its client which one, and ends.
    serve
    kill -STOP "$follower"
    answer=$(ask || true)
    echo "$answer" | grep -q 'rank 1' || fail "the answer does not name rank 1: $answer"
    kill -CONT "$follower" 2>/dev/null || true
    end_of_server
    [ "$code" = 4 ] || fail "the server ended with $code, not with 4"
    grep -q 'the server ended, because a rank is lost' "$folder/serve.err" || fail "the server does not say why it ended: $(tail -3 "$folder/serve.err")"
    echo "a server names the rank that stopped, and ends with 4"

    # If a rank is killed, mpirun ends all others, unless an option forbids it. With the option, rank 0 reports the lost rank.
    serve --enable-recovery
    kill -KILL "$follower"
    answer=$(ask || true)
    echo "$answer" | grep -q 'rank 1' || fail "the answer does not name the rank that was killed: $answer; $(tail -3 "$folder/serve.err")"
    # With this option mpirun always exits with 0, so only the server's message is checked.
    end_of_server
    grep -q 'the server ended, because a rank is lost' "$folder/serve.err" || fail "the server does not say why it ended: $(tail -3 "$folder/serve.err")"
    echo "a server names the rank that was killed (mpirun --enable-recovery), and ends"

    # Without the option, mpirun names the rank and ends the server.
    serve
    kill -KILL "$follower"
    end_of_server
    [ "$code" != 0 ] || fail "mpirun ended as if nothing had been"
    grep -q 'signal 9' "$folder/serve.err" || fail "mpirun does not say what was killed: $(tail -3 "$folder/serve.err")"
    echo "mpirun alone names the rank that was killed, and ends the others"
}

for part in texts predictions servers; do
    case $parts in
        *" $part "*) "$part" ;;
    esac
done
