#!/usr/bin/env bash
# Runs a model, and files of four kinds that it makes, on 1, 2, 3 and 4 ranks of this computer and compares what they write; measures one file,
# predicts another on two ranks, and refuses a prediction that is off by more than a factor of 2; then stops a rank of a server, and kills
# one of another.
#
#   tools/many_machines/check.sh [MILLRACE] [MODEL] [TOKENS]
#
# MILLRACE is a build with `--features mpi` (default: target/debug/millrace), MODEL any model (default: demo). Without
# an MPI library the script installs Debian's, if it may, and says so and ends with 3 otherwise.
set -euo pipefail
millrace=${1:-target/debug/millrace}
model=${2:-demo}
n_tokens=${3:-48}

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
# A server that is left ends with what started it.
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# The text of one process without MPI is what all must write, and to the last digit its perplexity, which sums all logits of a text: one bit
# that differs changes it. Texts are compared in JSON: mpirun gives rank 0 a terminal, for which control characters are written otherwise.
text_of() { python3 -c 'import json, sys; run = json.load(open(sys.argv[1])); print(json.dumps([run["text"], run["tokens"]]))' "$1"; }
for _ in $(seq 60); do echo "Once upon a time, there was a little girl named Lily. She lived in a small house near the woods."; done >"$folder/text.txt"
same_on_all() { # MODEL
    local n alone shared
    "$millrace" run "$1" "Once upon a time" --greedy -n "$n_tokens" --json --quiet >"$folder/alone.json" 2>/dev/null
    alone=$("$millrace" perplexity "$1" "$folder/text.txt" -c 64 --chunks 2 --json 2>/dev/null | grep mean_nll)
    for n in 1 2 3 4; do
        ranks "$n" "$millrace" run "$1" "Once upon a time" --greedy -n "$n_tokens" --mpi --json >"$folder/$n.json" 2>"$folder/$n.err" ||
            fail "$(basename "$1") on $n ranks: $(tail -3 "$folder/$n.err")"
        [ "$(text_of "$folder/alone.json")" = "$(text_of "$folder/$n.json")" ] || fail "$(basename "$1") on $n ranks writes another text"
        # Rank 0 and each that follows say what they exchanged; mpirun may put two of them on one line.
        [ "$(grep -o 'rank [0-9]*: [0-9]* tokens' "$folder/$n.err" | sort -u | wc -l)" = "$n" ] || fail "not all of $n ranks say what they exchanged: $(tail -3 "$folder/$n.err")"
        shared=$(ranks "$n" "$millrace" perplexity "$1" "$folder/text.txt" -c 64 --chunks 2 --json --mpi 2>/dev/null | grep mean_nll)
        [ "$alone" = "$shared" ] || fail "perplexity of $(basename "$1") on $n ranks: $shared, alone $alone"
    done
    echo "$(basename "$1"): the same text and perplexity on 1, 2, 3 and 4 ranks"
}
same_on_all "$model"
# Super-blocks of 256 weights, experts, layers with a state: random weights of real shapes, of few layers.
for shape in 'llama-3.2-1b --layers 2 --type Q4_K_M' 'olmoe-1b-7b --layers 1 --type Q4_K_M' 'qwen35-tiny --type Q8_0' 'granitehybrid-tiny --type F16'; do
    file=$folder/${shape%% *}.gguf
    # shellcheck disable=SC2086 # A name and options.
    "$millrace" synth ${shape%% *} "$file" ${shape#* } --quiet >/dev/null
    same_on_all "$file"
    rm "$file"
done

# Measured is one file, predicted another of more layers: one rank's products and two ranks' exchanges of the first say what a token of the
# second takes on two ranks. What every rank computes in full grows with the layers. The median of three is taken. Other work changes all of
# it, and most of all two ranks that wait for each other's turn on a core: beside more than a tenth of the cores the ratio is told and not judged.
others_percent=$(python3 - <<'CODE'
import time

def times():
    with open("/proc/stat") as file:
        numbers = [int(number) for number in file.readline().split()[1:9]]
    return numbers[3] + numbers[4], sum(numbers)

idle, all_ = times()
time.sleep(3)
idle_now, all_now = times()
print(round(100 * (1 - (idle_now - idle) / (all_now - all_))))
CODE
)
"$millrace" synth llama-3.2-1b "$folder/measured.gguf" --layers 2 --type Q8_0 --quiet >/dev/null
"$millrace" synth llama-3.2-1b "$folder/other.gguf" --layers 6 --type Q8_0 --quiet >/dev/null
profile() { ranks "$1" "$millrace" profile "$folder/$2.gguf" --mpi --threads 1 -n 24 --json 2>/dev/null; }
for run in 1 2 3; do
    profile 1 measured >"$folder/one.json" || fail "profile on 1 rank"
    profile 2 measured >"$folder/two.json" || fail "profile on 2 ranks"
    options=$(python3 - "$folder/one.json" "$folder/two.json" <<'CODE'
import json, sys
one, two = (json.load(open(path))["predictor"] for path in sys.argv[1:])
print("--memory-gb-per-s", one["memory_gb_per_s"], "--undivided-us", one["undivided_us"] * 6 / 2, "--gather-us", two["gather_us"],
      "--message-us", two["message_us"], "--link-gbit-per-s", two["link_gbit_per_s"] or 1e6)
CODE
)
    # shellcheck disable=SC2086 # Several options.
    "$millrace" info "$folder/other.gguf" --ranks 2 --json $options >"$folder/predicted-$run.json"
    profile 2 other >"$folder/other-$run.json" || fail "profile of the other file on 2 ranks"
done
python3 - "$folder" "$others_percent" <<'CODE' || fail "predictions are off by more than a factor of 2"
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
sys.exit(is_judged and not 0.5 <= ratio <= 2.0)
CODE
rm -f "$folder"/*.gguf

# The rank that does not listen, among what was started.
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
        # An environment that is gone or not ours has no rank.
        if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx 'OMPI_COMM_WORLD_RANK=1'; then
            echo "$pid"
        fi
    done
}
# Starts a server on two ranks, with the options of mpirun that are given; sets `server`, `address` and `follower`.
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

# A server whose rank stops answering tells its client which one, and ends.
serve
kill -STOP "$follower"
answer=$(ask || true)
echo "$answer" | grep -q 'rank 1' || fail "the answer does not name rank 1: $answer"
kill -CONT "$follower" 2>/dev/null || true
wait "$server" && fail "the server ended as if nothing had been"
grep -q 'rank' "$folder/serve.err" || fail "the server does not say why it ended"
echo "a server names the rank that stopped, and ends"

# One whose rank is killed: mpirun ends all others unless it is told to leave them alone. Then rank 0 says which one was lost.
serve --enable-recovery
kill -KILL "$follower"
answer=$(ask || true)
if echo "$answer" | grep -q 'rank 1'; then
    echo "a server names the rank that was killed (mpirun --enable-recovery)"
else
    fail "the answer does not name the rank that was killed: $answer; $(tail -3 "$folder/serve.err")"
fi
# With this option mpirun ends with 0 whatever ranks ended with; what the server says is left.
wait "$server" || true
grep -q 'the server ended, because a rank is lost' "$folder/serve.err" || fail "the server does not say why it ended: $(tail -3 "$folder/serve.err")"

# Without that option mpirun names it, and ends the server.
serve
kill -KILL "$follower"
wait "$server" && fail "mpirun ended as if nothing had been"
grep -q 'signal 9' "$folder/serve.err" || fail "mpirun does not say what was killed: $(tail -3 "$folder/serve.err")"
echo "mpirun alone names the rank that was killed, and ends the others"
