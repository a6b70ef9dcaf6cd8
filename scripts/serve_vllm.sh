#!/usr/bin/env bash
# Start one real vLLM server on the CPU and wait until it has answered a request.
#
#   FLIPSCOPE_VLLM_PYTHON=VENV/bin/python scripts/serve_vllm.sh CHECKPOINT PORT [vLLM flags...]
#
# stdout: the id of the server's process group, and nothing else. Stop the server with: kill -- -ID
# stderr: what happens. The log goes to FLIPSCOPE_VLLM_LOG, else to a new file in the temporary folder.
# The venv is made by scripts/install_vllm.sh, checkpoints by scripts/make_checkpoints.py.
# Flags given here come after the script's own, so they win: `--max-model-len 512`, `--max-logprobs 50`, ...
set -euo pipefail

fail() {
    echo "serve_vllm: $1" >&2
    exit "${2:-1}"
}

[[ $# -ge 2 ]] || fail "usage: FLIPSCOPE_VLLM_PYTHON=VENV/bin/python $0 CHECKPOINT PORT [vLLM flags...]" 2
checkpoint=$1 port=$2
shift 2
python=${FLIPSCOPE_VLLM_PYTHON:-}
[[ -n $python ]] || fail "FLIPSCOPE_VLLM_PYTHON is not set; scripts/install_vllm.sh VENV makes a venv for it" 2
[[ -x $python ]] || fail "FLIPSCOPE_VLLM_PYTHON is $python, which cannot be run" 2
[[ -f $checkpoint/config.json ]] || fail "no config.json in $checkpoint; scripts/make_checkpoints.py makes checkpoints" 2
[[ $port =~ ^[0-9]+$ ]] || fail "PORT is '$port', not a number" 2
address=http://127.0.0.1:$port
# A stranger on the port would answer /health in our server's place.
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then fail "port $port is taken"; fi

log=${FLIPSCOPE_VLLM_LOG:-$(mktemp -t "vllm-$port-XXXXXX.log")}
wait_s=${FLIPSCOPE_VLLM_WAIT_S:-400} # 70 to 144 s were seen on two busy cores
context=$("$python" -c 'import json, sys
print(8192 if json.load(open(sys.argv[1])).get("max_position_embeddings", 0) >= 8192 else 4096)' "$checkpoint/config.json")

# One thread and no binding: the numbers do not depend on how many cores happen to be free.
# 1 GiB of KV space holds 8,192 float32 tokens of a 135M model three times over.
export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} \
    VLLM_CPU_OMP_THREADS_BIND=nobind HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1

# A session of its own: killing only the API server leaves its engine and worker processes running.
setsid "$python" -m vllm.entrypoints.openai.api_server --model "$checkpoint" --served-model-name smol \
    --host 127.0.0.1 --port "$port" --max-model-len "$context" --max-num-seqs 4 --enforce-eager "$@" \
    >"$log" 2>&1 </dev/null &
group=$!

stop() {
    kill -TERM -- "-$group" 2>/dev/null || return 0
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 -- "-$group" 2>/dev/null || return 0
        sleep 0.5
    done
    kill -KILL -- "-$group" 2>/dev/null || true
}
give_up() {
    echo "serve_vllm: $1; the end of $log:" >&2
    tail -n 30 "$log" >&2
    stop
    exit 1
}
trap 'stop; exit 130' INT TERM

echo "serve_vllm: starting $checkpoint on $address, log $log" >&2
SECONDS=0
until curl -sf --max-time 5 "$address/health" >/dev/null; do
    kill -0 "$group" 2>/dev/null || give_up "the server ended before it was ready"
    ((SECONDS < wait_s)) || give_up "no answer from $address/health in $wait_s s"
    sleep 1
done
# Health is not readiness: a checkpoint whose kernels do not run here dies on its first request. A server that
# refuses the request is alive (a checkpoint with a NaN refuses every one of these), so only 5xx and silence count.
status=$(curl -s --max-time 120 -o /dev/null -w '%{http_code}' -H 'Content-Type: application/json' \
    "$address/v1/completions" \
    -d '{"model": "smol", "prompt": [1, 2, 3], "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}') || true
case $status in
2??) ;;
4??) echo "serve_vllm: $address refused its first request with HTTP $status" >&2 ;;
*) give_up "$address is healthy but failed its first request (HTTP $status)" ;;
esac
echo "serve_vllm: ready after $SECONDS s; stop with: kill -- -$group" >&2
echo "$group"
