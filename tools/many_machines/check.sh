#!/usr/bin/env bash
# Runs one model on 1, 2, 3 and 4 ranks of this computer and compares what they write; puts the predicted time of a token on two ranks
# beside what two ranks take; then stops a rank of a server.
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
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# The text of one process without MPI is what all must write.
"$millrace" run "$model" "Once upon a time" --greedy -n "$n_tokens" --quiet >"$folder/alone.txt"
for n in 1 2 3 4; do
    ranks "$n" "$millrace" run "$model" "Once upon a time" --greedy -n "$n_tokens" --mpi >"$folder/$n.txt" 2>"$folder/$n.err" ||
        fail "$n ranks: $(tail -3 "$folder/$n.err")"
    cmp -s "$folder/alone.txt" "$folder/$n.txt" || fail "$n ranks write another text"
    echo "$n ranks: the same text; $(grep -c '^\[rank' "$folder/$n.err") of them told what they exchanged"
done

# Perplexity sums all logits of a text: one bit that differs changes its digits.
for _ in $(seq 60); do cat "$folder/alone.txt"; done >"$folder/text.txt"
alone=$("$millrace" perplexity "$model" "$folder/text.txt" -c 64 --chunks 2 --json | grep mean_nll)
for n in 2 3; do
    shared=$(ranks "$n" "$millrace" perplexity "$model" "$folder/text.txt" -c 64 --chunks 2 --json --mpi 2>/dev/null | grep mean_nll)
    [ "$alone" = "$shared" ] || fail "perplexity on $n ranks: $shared, alone $alone"
    echo "$n ranks: the same perplexity to the last digit"
done

# One rank's products and two ranks' exchanges predict a token on two ranks. Whatever else runs here changes both numbers, so none is refused.
profile() { ranks "$1" "$millrace" profile "$model" --mpi --threads 1 -n "$n_tokens" --json 2>/dev/null; }
profile 1 >"$folder/one.json" || fail "profile on 1 rank"
profile 2 >"$folder/two.json" || fail "profile on 2 ranks"
options=$(python3 - "$folder/one.json" "$folder/two.json" <<'CODE'
import json, sys
one, two = (json.load(open(path))["predictor"] for path in sys.argv[1:])
print("--memory-gb-per-s", one["memory_gb_per_s"], "--undivided-us", one["undivided_us"], "--gather-us", two["gather_us"],
      "--message-us", two["message_us"], "--link-gbit-per-s", two["link_gbit_per_s"] or 1e6)
CODE
)
# shellcheck disable=SC2086 # Several options.
"$millrace" info "$model" --ranks 2 --json $options >"$folder/predicted.json"
python3 - "$folder/two.json" "$folder/predicted.json" <<'CODE'
import json, sys
two, predicted = (json.load(open(path)) for path in sys.argv[1:])
decode, link = two["decode"], two["link"]
measured_ms = decode["wall_ns"] / decode["n_tokens"] / 1e6
(predicted_ms,) = next(row["token_ms"] for row in predicted["ranks"]["predictions"] if row["n_ranks"] == 2)
for row in decode["ranks"]:
    each = {key: value / decode["n_tokens"] for key, value in row.items()}
    print(f"rank {row['rank']}: a token {each['products_ns'] / 1e6:.2f} ms of products, {each['waiting_ns'] / 1e6:.2f} ms waiting in "
          f"{each['n_gathers']:.0f} gathers, {each['sent_bytes']:.0f} bytes sent, {each['received_bytes']:.0f} received")
print(f"link: {link['gathers'][0]['median_ns'] / 1e3:.1f} us a gather of one number, {link['gbit_per_s'] or float('nan'):.1f} Gbit/s")
print(f"2 ranks: {predicted_ms:.2f} ms a token predicted, {measured_ms:.2f} ms measured, ratio {predicted_ms / measured_ms:.2f}")
CODE

# A server whose rank stops answering tells its client which one, and ends.
ranks 2 "$millrace" serve "$model" --mpi --rank-timeout 3 --port 0 --grace 2 >"$folder/serve.out" 2>"$folder/serve.err" &
server=$!
for _ in $(seq 100); do
    grep -q '^http' "$folder/serve.out" && grep -q 'every model is loaded' "$folder/serve.err" && break
    kill -0 "$server" 2>/dev/null || fail "the server ended: $(tail -3 "$folder/serve.err")"
    sleep 0.3
done
address=$(grep -m1 '^http' "$folder/serve.out")
ask() { curl -s -m 60 "$address/v1/completions" -d '{"model": "'"$(basename "$model" .gguf)"'", "prompt": "Once", "max_tokens": 8, "temperature": 0}'; }
ask | grep -q '"text"' || fail "the server gives no text"
# The rank that does not listen, among what the script has started.
descendants() {
    local child
    for child in $(pgrep -P "$1"); do
        echo "$child"
        descendants "$child"
    done
}
follower=
for pid in $(descendants "$server"); do
    # An environment that is gone or not ours has no rank.
    if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx 'OMPI_COMM_WORLD_RANK=1'; then
        follower=$pid
    fi
done
[ -n "$follower" ] || fail "no process of rank 1"
kill -STOP "$follower"
answer=$(ask || true)
echo "$answer" | grep -q 'rank 1' || fail "the answer does not name rank 1: $answer"
kill -CONT "$follower" 2>/dev/null || true
wait "$server" && fail "the server ended as if nothing had been"
grep -q 'rank' "$folder/serve.err" || fail "the server does not say why it ended"
echo "a server names the rank that stopped, and ends"
