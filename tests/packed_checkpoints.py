"""Checkpoints of packed integers, made of plain ones by the formats' definitions, one code after the other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Integers:
    """weight[o, i] = scales[o, g] * (codes[o, i] - zeros[o, g]) with g = groups[i]; codes from 0 on."""

    bits: int
    codes: Array
    zeros: Array
    scales: torch.Tensor
    groups: Array

    @classmethod
    def of(cls, weight: torch.Tensor, bits: int, groups: Array, *, symmetric: bool, dtype: torch.dtype) -> Integers:
        """`weight` rounded group by group, with scales in `dtype`."""
        values, top = weight.double().numpy(), 2**bits - 1
        count = int(groups.max()) + 1
        codes = np.zeros(values.shape, np.int64)
        zeros = np.zeros((values.shape[0], count), np.int64)
        scales = torch.ones(values.shape[0], count, dtype=dtype)
        for group in range(count):
            part = values[:, groups == group]
            if symmetric:
                step, zero = np.abs(part).max(1) * 2 / top, np.full(len(part), (top + 1) // 2)
            else:
                low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
                step = (high - low) / top
                zero = np.round(-low / step)
            scales[:, group] = torch.from_numpy(step).to(dtype)
            step = scales[:, group].double().numpy()
            zeros[:, group] = zero
            codes[:, groups == group] = np.clip(np.round(part / step[:, None]) + zero[:, None], 0, top)
        return cls(bits, codes, zeros, scales, groups)

    def weight(self) -> torch.Tensor:
        """What it stands for, float32."""
        whole = torch.from_numpy(self.codes - self.zeros[:, self.groups]).float()
        return whole * self.scales.float()[:, torch.from_numpy(self.groups)]


def pack(codes: Array, bits: int, axis: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """int32 words of `codes` along `axis`, the first in the lowest bits; the last word is filled up with zeros.

    `order`: which of a word's codes is in its first place, in its second and so on.
    """
    rows = np.moveaxis(codes, axis, -1)
    each = 32 // bits
    rows = np.concatenate((rows, np.zeros((*rows.shape[:-1], -rows.shape[-1] % each), rows.dtype)), axis=-1)
    words = np.zeros((*rows.shape[:-1], rows.shape[-1] // each), np.uint64)
    for word in range(words.shape[-1]):
        for place in range(each):
            code = rows[..., word * each + (order[place] if order is not None else place)]
            words[..., word] |= code.astype(np.uint64) << np.uint64(place * bits)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(words.astype(np.uint32).view(np.int32), -1, axis)))


def gptq(weight: Integers, *, version: int) -> dict[str, torch.Tensor]:
    """GPTQ's tensors. In version 1 one is taken from each zero; where it is 0, the word's next one lends."""
    zeros = pack(weight.zeros.T, weight.bits, 1)
    if version == 1:
        ones = sum(1 << place for place in range(0, 32, weight.bits))
        less = (zeros.numpy().astype(np.int64) - ones) % 2**32
        zeros = torch.from_numpy(less.astype(np.uint32).view(np.int32))
    return {
        "qweight": pack(weight.codes.T, weight.bits, 0),
        "qzeros": zeros,
        "scales": weight.scales.t().contiguous(),
        "g_idx": torch.from_numpy(weight.groups.astype(np.int32)),
    }


def awq(weight: Integers) -> dict[str, torch.Tensor]:
    """AWQ's tensors, of its version gemm."""
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {
        "qweight": pack(weight.codes.T, 4, 1, order),
        "qzeros": pack(weight.zeros.T, 4, 1, order),
        "scales": weight.scales.t().contiguous(),
    }


def compressed(weight: Integers, *, zeros: str) -> dict[str, torch.Tensor]:
    """The tensors of compressed-tensors' pack-quantized. `zeros`: 'words', 'bytes' or 'none'."""
    tensors = {
        "weight_packed": pack(weight.codes, weight.bits, 1),
        "weight_scale": weight.scales,
        "weight_shape": torch.tensor(weight.codes.shape),
    }
    if zeros == "words":
        tensors["weight_zero_point"] = pack(weight.zeros, weight.bits, 0)
    if zeros == "bytes":
        tensors["weight_zero_point"] = torch.from_numpy(weight.zeros - 2 ** (weight.bits - 1)).to(torch.int8)
    if (np.diff(weight.groups) < 0).any():
        tensors["weight_g_idx"] = torch.from_numpy(weight.groups.astype(np.int32))
    return tensors


def in_bytes(weight: Integers, *, zeros: bool) -> dict[str, torch.Tensor]:
    """The tensors of compressed-tensors' int-quantized."""
    tensors = {"weight": torch.from_numpy(weight.codes - 128).to(torch.int8), "weight_scale": weight.scales}
    if zeros:
        tensors["weight_zero_point"] = torch.from_numpy(weight.zeros - 128).to(torch.int8)
    return tensors


@dataclass(frozen=True)
class Scheme:
    """How a checkpoint is packed.

    Attributes:
        stated: its quantization_config.
        bits: of a code.
        run: inputs of a group, or -1 for all.
        symmetric: zeros are the middle.
        pack: from integers to a module's tensors by name.
        dtype: that of scales.
        ordered: inputs are dealt out to groups in an order of their own.
    """

    stated: dict[str, Any]
    bits: int
    run: int
    symmetric: bool
    pack: Callable[[Integers], dict[str, torch.Tensor]]
    dtype: torch.dtype = torch.float16
    ordered: bool = False

    def integers(self, weight: torch.Tensor, seed: int = 0) -> Integers:
        """`weight` rounded so."""
        inputs = weight.shape[1]
        groups = np.arange(inputs) // (self.run if self.run > 0 else inputs)
        if self.ordered:
            groups = np.random.default_rng(seed).permutation(groups)
        return Integers.of(weight, self.bits, groups, symmetric=self.symmetric, dtype=self.dtype)


def gptq_scheme(
    bits: int, run: int, *, version: int = 1, symmetric: bool = True, ordered: bool = False, **more: Any
) -> Scheme:
    """GPTQ's first or second format."""
    stated = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": run,
        "sym": symmetric,
        "desc_act": ordered,
        "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
        **more,
    }
    return Scheme(stated, bits, run, symmetric, lambda weight: gptq(weight, version=version), ordered=ordered)


def awq_scheme(run: int) -> Scheme:
    """AWQ's version gemm."""
    stated = {"quant_method": "awq", "bits": 4, "group_size": run, "version": "gemm", "zero_point": True}
    return Scheme(stated, 4, run, False, awq)


def compressed_scheme(
    bits: int, run: int, *, zeros: str = "none", packed: bool = True, dtype: torch.dtype = torch.bfloat16
) -> Scheme:
    """compressed-tensors of words, or of bytes."""
    weights = {
        "num_bits": bits,
        "type": "int",
        "symmetric": zeros == "none",
        "strategy": "group" if run > 0 else "channel",
        "group_size": run if run > 0 else None,
    }
    stated = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized" if packed else "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    make = (lambda w: compressed(w, zeros=zeros)) if packed else (lambda w: in_bytes(w, zeros=zeros != "none"))
    return Scheme(stated, bits, run, zeros == "none", make, dtype)


_PACKED = ("_proj", ".w1", ".w2", ".w3")


def write_packed(
    plain: Path,
    folder: Path,
    scheme: Scheme,
    *,
    shards: int = 1,
    keep: str = "",
    also: tuple[str, ...] = (),
) -> tuple[Path, Path]:
    """`folder`/packed, in the format of the scheme, and `folder`/twin, with the values that its weights stand for.

    Projections are packed but for those named `keep`, and layers whose names end as one of `also` does. `plain` is in
    float32.
    """
    packed, twin = folder / "packed", folder / "twin"
    for target in (packed, twin):
        shutil.copytree(plain, target)
        (target / "model.safetensors").unlink()
    kept: dict[str, torch.Tensor] = {}
    values: dict[str, torch.Tensor] = {}
    for seed, (name, tensor) in enumerate(load_file(plain / "model.safetensors").items()):
        module = name.removesuffix(".weight")
        if not module.endswith((*_PACKED, *also)) or module == name or (keep and keep in name):
            kept[name] = values[name] = tensor
            continue
        weight = scheme.integers(tensor, seed)
        values[name] = weight.weight()
        kept |= {f"{module}.{part}": value for part, value in scheme.pack(weight).items()}
    save_file(values, twin / "model.safetensors")
    write_shards(kept, packed, shards)
    config = json.loads((plain / "config.json").read_text())
    (packed / "config.json").write_text(json.dumps({**config, "quantization_config": scheme.stated}))
    return packed, twin


def write_shards(tensors: dict[str, torch.Tensor], folder: Path, shards: int) -> None:
    """`tensors` as one file or as several with an index."""
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    names = sorted(tensors)
    files = {name: f"model-{1 + at % shards:05}-of-{shards:05}.safetensors" for at, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in names if files[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def put_experts_in_mxfp4(folder: Path) -> None:
    """Draw the experts of a gpt-oss, in place: blocks of 32 inputs with a scale that is a power of two."""
    path, generator = folder / "model.safetensors", torch.Generator().manual_seed(0)
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        shape = experts, outputs, inputs // 32
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=generator)
        tensors[f"{name}_scales"] = torch.randint(117, 124, shape, dtype=torch.uint8, generator=generator)
    save_file(tensors, path, {"format": "pt"})
    stated = {**json.loads((folder / "config.json").read_text()), "quantization_config": {"quant_method": "mxfp4"}}
    (folder / "config.json").write_text(json.dumps(stated))
