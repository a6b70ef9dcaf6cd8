#!/usr/bin/env bash
# Record captures/bundled/ from real vLLM on the CPU: one model, five configurations, prompts/samples.jsonl.
#
#   FLIPSCOPE_VLLM_PYTHON=VENV/bin/python scripts/record_captures.sh [OUT_DIR]
#
# FLIPSCOPE_CHECKPOINTS  folder of the checkpoints (default build/checkpoints); missing ones are made
# FLIPSCOPE_PYTHON       interpreter with flipscope's core dependencies (default .venv/bin/python, else python3)
# FLIPSCOPE_PORT         first of two ports to use (default 8101)
#
# Two servers at most run at once: each takes 5 GB. What OUT_DIR holds already is kept, and what it lacks is recorded.
# A capture names the path its server loaded, so keep FLIPSCOPE_CHECKPOINTS relative where captures are published.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-captures/bundled}
checkpoints=${FLIPSCOPE_CHECKPOINTS:-build/checkpoints}
port=${FLIPSCOPE_PORT:-8101}
python=${FLIPSCOPE_PYTHON:-$([[ -x .venv/bin/python ]] && echo .venv/bin/python || echo python3)}
vllm=${FLIPSCOPE_VLLM_PYTHON:?names the python of the vLLM environment: see scripts/install_vllm.sh}
prompts=prompts/samples.jsonl
groups=()

stop_servers() {
    for group in "${groups[@]}"; do kill -- "-$group" 2>/dev/null || true; done
    for group in "${groups[@]}"; do
        for _ in {1..40}; do
            kill -0 -- "-$group" 2>/dev/null || break
            sleep 0.5
        done
        kill -KILL -- "-$group" 2>/dev/null || true
    done
    groups=()
}
trap stop_servers EXIT
trap 'exit 130' INT TERM

# start OFFSET CHECKPOINT [flags...]: a server on port + OFFSET.
start() {
    local offset=$1 checkpoint=$2 group
    shift 2
    group=$(scripts/serve_vllm.sh "$checkpoints/$checkpoint" $((port + offset)) "$@")
    groups+=("$group")
}

at() { echo "http://127.0.0.1:$((port + $1))"; }

record() {
    "$python" main.py capture "$@" --prompts "$prompts" --top-k 20 --max-tokens 128 --out "$out"
}

"$vllm" scripts/make_checkpoints.py "$checkpoints" smol-f32 w8a8-int8 w4a16-g64
mkdir -p "$out"

# --dim says which flag was turned: `auto` leaves the KV cache in the dtype of the activations.
start 0 smol-f32 --dtype float32
start 1 smol-f32 --dtype bfloat16
record "f32=$(at 0)" "bf16=$(at 1)" --dim kv=auto --dim f32:weights=float32 --dim bf16:weights=bfloat16
stop_servers

start 0 w8a8-int8 --dtype bfloat16
start 1 w4a16-g64 --dtype bfloat16
record "int8=$(at 0)" "int4=$(at 1)" --ref "$out/f32.msgpack" --dim kv=auto --dim int8:weights=int8 --dim int4:weights=int4
stop_servers

start 0 smol-f32 --dtype float32 --kv-cache-dtype fp8
record "kv-fp8=$(at 0)" --ref "$out/f32.msgpack" --dim weights=float32 --dim kv=fp8
stop_servers

du -b "$out"/*.msgpack
du -cb "$out"/*.msgpack | tail -n 1
