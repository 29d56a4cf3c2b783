"""From a Hugging Face folder to a decoder: memory-mapped safetensors, one file or sharded, with fused projections."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.interface import Kernels, Mlp
from headgate.engine.kernels.mixture import ExpertWeights, Mixture, MixtureWeights
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.decoder import Decoder, DecoderWeights, Layer
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.quant.linear import Linear, PackedWeight, WeightFormat
from headgate.engine.quant.packed_cache import PackedCache, content_digest, layout_digest

Dtype = Literal["auto", "float32", "bfloat16"]
_MLP_NAMES = ("gate_proj", "up_proj", "down_proj")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class LoadedDecoder:
    """A decoder and what is worth knowing of its checkpoint."""

    decoder: Decoder
    parameters: int
    active_parameters: int
    """Parameters a token uses: of the experts only the chosen ones."""
    revision: str
    """Hex digest that changes when the configuration or the weights' names, shapes, sizes or times do."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        CheckpointError: the file is missing, damaged, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: the file is missing; a model is a Hugging Face folder that has it") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: must hold a JSON object, holds {type(content).__name__}")
    return content


def load_decoder(
    folder: Path,
    kernels: Kernels,
    *,
    dtype: Dtype = "auto",
    fmt: WeightFormat = "native",
    device: torch.device | None = None,
    keep_packed: bool = False,
) -> LoadedDecoder:
    """Load the checkpoint in `folder`.

    `dtype` "auto" is bfloat16 unless the checkpoint is in float32. `fmt` is the format the linear layers are kept in;
    embedding, norms and routers stay in `dtype`. With `keep_packed` weights that are quantised here are written to disk
    for the next time, and those of the last time are used: see `quant.packed_cache`.

    Raises:
        CheckpointError: naming the file and the tensor or key that is missing, damaged, unexpected or misshapen.
    """
    config = read_json(folder / "config.json")
    spec = read_spec(config)
    stated = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    compute = _DTYPES[dtype] if dtype != "auto" else _DTYPES.get(stated, torch.bfloat16)
    with ExitStack() as stack, torch.inference_mode():
        source = _Tensors(folder, stack)
        device = device or torch.device("cpu")
        cache = None
        if keep_packed and device.type == "cpu":
            cache = _packed_cache(folder, source, config, kernels, compute, fmt)
        kept = cache.load() if cache is not None else None
        reader = _Reader(source, spec, kernels, compute, device, fmt, kept or {})
        weights = reader.weights()
        if cache is not None and reader.packed:
            cache.save({**(kept or {}), **reader.packed})
        source.refuse_leftovers(tied_head=spec.tied_head)
        parameters = source.parameters
    return LoadedDecoder(
        Decoder(spec, weights, kernels),
        parameters,
        parameters - _idle_expert_parameters(spec),
        _revision(config, source),
    )


class _Tensors:
    """The tensors of a folder by name, whatever file they are in. Each is to be used; what is left is an error."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._files: dict[Path, Any] = {}
        self._file_of: dict[str, Path] = {}
        self._used: set[str] = set()
        self.parameters = 0
        for path in self._paths():
            try:
                self._files[path] = stack.enter_context(safe_open(path, framework="pt", device="cpu"))
            except FileNotFoundError:
                raise CheckpointError(f"{path}: the file is missing") from None
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{path}: not a readable safetensors file: {error}") from error
            self._file_of.update(dict.fromkeys(self._files[path].keys(), path))

    @property
    def files(self) -> list[Path]:
        """The checkpoint's weight files."""
        return sorted(self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor, still memory-mapped."""
        path = self._file_of.get(name)
        if path is None:
            where = ", ".join(p.name for p in self.files)
            raise CheckpointError(f"{self._folder}: tensor {name!r} is missing from {where}")
        try:
            tensor: Tensor = self._files[path].get_tensor(name)
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{path}: tensor {name!r} cannot be read: {error}") from error
        if tuple(tensor.shape) != shape:
            raise CheckpointError(f"{path}: tensor {name!r} has shape {tuple(tensor.shape)}, config.json means {shape}")
        if not tensor.is_floating_point():
            raise CheckpointError(f"{path}: tensor {name!r} has dtype {tensor.dtype}, floating point is needed")
        if name not in self._used:
            self._used.add(name)
            self.parameters += tensor.numel()
        return tensor

    def refuse_leftovers(self, *, tied_head: bool) -> None:
        """Weights that nothing used would mean that the model is not what it was trained as."""
        ignored = {"lm_head.weight"} if tied_head else set()
        left = sorted(
            n for n in self._file_of.keys() - self._used - ignored if not n.endswith((".inv_freq", ".masked_bias"))
        )
        if left:
            raise CheckpointError(
                f"{self._file_of[left[0]]}: tensor {left[0]!r} and {len(left) - 1} more belong to no part of the "
                "architecture that config.json names"
            )

    def _paths(self) -> Iterator[Path]:
        index = self._folder / "model.safetensors.index.json"
        if not index.exists():
            yield self._folder / "model.safetensors"
            return
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict):
            raise CheckpointError(f"{index}: weight_map must be an object of tensor names to file names")
        for name in sorted(set(names.values())):
            yield self._folder / name


class _Reader:
    """Assembles the decoder's parts from named tensors."""

    def __init__(
        self,
        source: _Tensors,
        spec: DecoderSpec,
        kernels: Kernels,
        dtype: torch.dtype,
        device: torch.device,
        fmt: WeightFormat,
        kept: Mapping[str, Tensor],
    ) -> None:
        self._source = source
        self._spec = spec
        self._kernels = kernels
        self._dtype = dtype
        self._device = device
        self._format = fmt
        self._kept = kept
        self.packed: dict[str, Tensor] = {}
        """Parts of all packed weights by name, if any had to be packed; empty if all were kept."""

    def weights(self) -> DecoderWeights:
        spec = self._spec
        embedding = self._tensor("model.embed_tokens.weight", spec.vocab_size, spec.hidden)
        if spec.tied_head:
            head = self._pack("lm_head", lambda: embedding, spec.vocab_size, None)
        else:
            head = self._linear(("lm_head",), (spec.vocab_size,), spec.hidden, bias=False)
        return DecoderWeights(
            embedding=embedding,
            layers=[self._layer(number) for number in range(spec.layers)],
            norm=self._tensor("model.norm.weight", spec.hidden),
            head=head,
        )

    def _layer(self, number: int) -> Layer:
        spec, at = self._spec, f"model.layers.{number}"
        attention = f"{at}.self_attn"
        q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        norm_widths = {"none": (0, 0), "head": (spec.head_dim, spec.head_dim), "projection": (q_width, kv_width)}
        q_norm_width, k_norm_width = norm_widths[spec.qk_norm]
        return Layer(
            input_norm=self._tensor(f"{at}.input_layernorm.weight", spec.hidden),
            qkv=self._linear(
                tuple(f"{attention}.{p}_proj" for p in "qkv"), (q_width, kv_width, kv_width), spec.hidden, spec.qkv_bias
            ),
            output=self._linear((f"{attention}.o_proj",), (spec.hidden,), q_width, spec.output_bias),
            mlp_norm=self._tensor(f"{at}.post_attention_layernorm.weight", spec.hidden),
            mlp=self._experts(at) if number in spec.moe_layers else self._mlp(f"{at}.mlp", spec.mlp_width),
            q_norm=self._tensor(f"{attention}.q_norm.weight", q_norm_width) if q_norm_width else None,
            k_norm=self._tensor(f"{attention}.k_norm.weight", k_norm_width) if k_norm_width else None,
        )

    def _mlp(self, at: str, width: int) -> Mlp:
        gate, up, down = (f"{at}.{name}" for name in _MLP_NAMES)
        hidden, bias = self._spec.hidden, self._spec.mlp_bias
        return Mlp(
            self._linear((gate, up), (width, width), hidden, bias), self._linear((down,), (hidden,), width, bias)
        )

    def _experts(self, at: str) -> Mixture:
        spec, names, hidden = self._spec.experts, self._spec.names, self._spec.hidden
        assert spec is not None
        parts = (names.expert_gate, names.expert_up, names.expert_down)
        shared = spec.shared_width
        weights = MixtureWeights(
            router=self._tensor(f"{at}.{names.router}.weight", spec.count, hidden),
            experts=(self._expert(f"{at}.{names.experts}.{e}", spec.width, parts) for e in range(spec.count)),
            per_token=spec.per_token,
            normalize=spec.normalize,
            shared=self._expert(f"{at}.mlp.shared_expert", shared, _MLP_NAMES) if shared else None,
            shared_gate=self._tensor(f"{at}.mlp.shared_expert_gate.weight", 1, hidden) if shared else None,
        )
        return self._kernels.mixture(weights, self._format)

    def _expert(self, at: str, width: int, names: tuple[str, str, str]) -> ExpertWeights:
        gate, up, down = (f"{at}.{name}.weight" for name in names)
        hidden = self._spec.hidden
        gate_up = torch.cat((self._tensor(gate, width, hidden), self._tensor(up, width, hidden)))
        return ExpertWeights(gate_up, self._tensor(down, hidden, width))

    def _linear(self, names: tuple[str, ...], widths: tuple[int, ...], inputs: int, bias: bool) -> Linear:
        """One layer of the checkpoint's layers `names` stacked, in one matrix product instead of several."""
        # Looked up even where a packed form was kept: what the checkpoint must have is checked the same.
        sources = [self._source.get(f"{n}.weight", (w, inputs)) for n, w in zip(names, widths, strict=True)]
        biases = [self._tensor(f"{n}.bias", w) for n, w in zip(names, widths, strict=True)] if bias else None
        return self._pack(
            "+".join(names),
            lambda: _stack([self._convert(source) for source in sources]),
            sum(widths),
            _stack(biases) if biases else None,
        )

    def _pack(self, name: str, weight: Callable[[], Tensor], outputs: int, bias: Tensor | None) -> Linear:
        """The layer of `weight`, which is not read where its packed form was kept."""
        parts = [self._kept.get(f"{name}/{field.name}") for field in fields(PackedWeight)]
        packed = PackedWeight(*kept) if len(kept := [p for p in parts if p is not None]) == len(parts) else None
        if packed is None:
            read = weight()
            packed = self._kernels.pack(read, self._format)
            if packed is None:
                return self._kernels.linear(read, bias, self._format)
            for field in fields(PackedWeight):
                self.packed[f"{name}/{field.name}"] = getattr(packed, field.name)
        return self._kernels.packed_linear(packed, outputs, bias, self._format)

    def _tensor(self, name: str, *shape: int) -> Tensor:
        return self._convert(self._source.get(name, shape))

    def _convert(self, tensor: Tensor) -> Tensor:
        return tensor.to(device=self._device, dtype=self._dtype)


def _stack(tensors: list[Tensor]) -> Tensor:
    # A single tensor stays memory-mapped where its dtype and device allow.
    return torch.cat(tensors) if len(tensors) > 1 else tensors[0]


def _packed_cache(
    folder: Path,
    source: _Tensors,
    config: Mapping[str, Any],
    kernels: Kernels,
    dtype: torch.dtype,
    fmt: WeightFormat,
) -> PackedCache | None:
    """The cache of this checkpoint's weights in a format that can be kept; None if it cannot."""
    layout = layout_digest(lambda probe: kernels.pack(probe, fmt))
    if layout is None:
        return None
    name = f"{fmt}-{str(dtype).removeprefix('torch.')}"
    made_of = json.dumps([name, layout, content_digest(source.files), config], sort_keys=True)
    return PackedCache(folder, name, sha256(made_of.encode()).hexdigest())


def _idle_expert_parameters(spec: DecoderSpec) -> int:
    if spec.experts is None:
        return 0
    idle = spec.experts.count - spec.experts.per_token
    return len(spec.moe_layers) * idle * 3 * spec.hidden * spec.experts.width


def _revision(config: Mapping[str, Any], source: _Tensors) -> str:
    digest = sha256(json.dumps(config, sort_keys=True).encode())
    for path in source.files:
        # The header names every tensor with shape and offsets; size and time stand for the rest without reading it.
        stat = path.stat()
        digest.update(f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}".encode())
        with path.open("rb") as file:
            digest.update(file.read(1 << 16))
    return digest.hexdigest()
