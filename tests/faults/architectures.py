"""Small torch modules of many architectures, each with inputs of lengths equal and unequal to the size of a head.

Code that one operation of ONNX may come from has its own line, so that a line of Python names the operation.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its customary name)

from tests import modules

WIDTH: Final = 32
HEADS: Final = 4
SIZE: Final = WIDTH // HEADS
"""Size of a head."""
LENGTHS: Final = {"equal": SIZE, "unequal": 13}


def divided(x: Tensor) -> Tensor:
    """Divide the last axis into heads."""
    y = x.view(x.shape[0], x.shape[1], HEADS, SIZE)
    return y.transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    """Join the heads."""
    y = x.transpose(1, 2)
    return y.reshape(y.shape[0], y.shape[1], WIDTH)


class Attention(nn.Module):
    def __init__(self, *, eager: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.eager = eager
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.k_proj = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.v_proj = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.out_proj = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, memory: Tensor | None = None) -> Any:
        source = x if memory is None else memory
        q = divided(self.q_proj(x))
        k = divided(self.k_proj(source))
        v = divided(self.v_proj(source))
        if not self.eager:
            return self.out_proj(joined(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))
        scores = q @ k.transpose(2, 3)
        scores = scores * SIZE**-0.5
        if mask is not None:
            scores = scores + mask
        weights = scores.softmax(-1)
        mixed = weights @ v
        return self.out_proj(joined(mixed))


class EncoderLayer(nn.Module):
    def __init__(self, *, eager: bool, first: bool) -> None:
        super().__init__()
        self.first = first
        self.attn = Attention(eager=eager)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(2 * WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        if self.first:  # normalization first
            x = x + self.attn(self.norm1(x), mask)
            return x + self.fc2(self.act(self.fc1(self.norm2(x))))
        x = self.norm1(x + self.attn(x, mask))
        return self.norm2(x + self.fc2(self.act(self.fc1(x))))


class Encoder(nn.Module):
    """An encoder of text with learned positions and a padding mask."""

    def __init__(self, *, eager: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, WIDTH)
        self.positions = nn.Embedding(64, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList([EncoderLayer(eager=eager, first=eager) for _ in range(2)])
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor, keep: Tensor) -> Any:
        place = torch.arange(tokens.shape[1])
        x = self.norm(self.tokens(tokens) + self.positions(place))
        mask = 1 - keep[:, None, None, :]
        mask = mask * -1e4
        mask = mask.expand(-1, -1, tokens.shape[1], -1)
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Any:
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x


class Rotary(nn.Module):
    """The table of rotary positions."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", 100.0 ** -(torch.arange(0, SIZE, 2) / SIZE))

    def forward(self, places: Tensor) -> Any:
        angles = places[:, :, None] * self.frequencies
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions to heads."""
    low, high = x.chunk(2, -1)
    turned = torch.cat((-high, low), -1)
    straight = x * cos[:, None]
    turned = turned * sin[:, None]
    return straight + turned


class RotaryAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj = nn.Linear(WIDTH, WIDTH // 2, bias=False)
        self.v_proj = nn.Linear(WIDTH, WIDTH // 2, bias=False)
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Any:
        b, t, _ = x.shape
        q = rotated(divided(self.q_proj(x)), cos, sin)
        k = rotated(self.k_proj(x).view(b, t, HEADS // 2, SIZE).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(b, t, HEADS // 2, SIZE).transpose(1, 2)
        k = k[:, :, None].expand(b, HEADS // 2, 2, t, SIZE).reshape(b, HEADS, t, SIZE)
        v = v[:, :, None].expand(b, HEADS // 2, 2, t, SIZE).reshape(b, HEADS, t, SIZE)
        return self.o_proj(joined(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


class GatedMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up_proj = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down_proj = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Any:
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_norm = RMSNorm()
        self.attn = RotaryAttention()
        self.post_norm = RMSNorm()
        self.mlp = GatedMLP()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Any:
        x = x + self.attn(self.input_norm(x), cos, sin, mask)
        return x + self.mlp(self.post_norm(x))


class Decoder(nn.Module):
    """A decoder with rotary positions, a causal mask, RMSNorm, SwiGLU and grouped heads."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, WIDTH)
        self.rotary = Rotary()
        self.layers = nn.ModuleList([DecoderLayer() for _ in range(2)])
        self.norm = RMSNorm()
        self.head = nn.Linear(WIDTH, 50, bias=False)

    def forward(self, tokens: Tensor, places: Tensor) -> Any:
        x = self.tokens(tokens)
        t = tokens.shape[1]
        mask = torch.full((t, t), -1e4).triu(1)
        cos, sin = self.rotary(places)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.head(self.norm(x))


class CachedGPT(nn.Module):
    """A decoder with one projection for queries, keys and values, a boolean causal mask and a tanh GELU of its own."""

    causal: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(50, WIDTH)
        self.wpe = nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList([GPTBlock() for _ in range(2)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.register_buffer("causal", torch.ones(64, 64, dtype=torch.bool).tril())

    def forward(self, tokens: Tensor) -> Any:
        t = tokens.shape[1]
        x = self.wte(tokens) + self.wpe(torch.arange(t))
        allowed = self.causal[:t, :t]
        for block in self.blocks:
            x = block(x, allowed)
        return self.ln_f(x) @ self.wte.weight.T


class TanhGELU(nn.Module):
    def forward(self, x: Tensor) -> Any:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + torch.tanh(inner))


class GPTBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), TanhGELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor, allowed: Tensor) -> Any:
        q, k, v = self.qkv(self.ln_1(x)).split(WIDTH, -1)
        scores = divided(q) @ divided(k).transpose(-2, -1)
        scores = scores / math.sqrt(SIZE)
        scores = scores.masked_fill(~allowed, -1e4)
        weights = torch.softmax(scores, -1)
        mixed = weights @ divided(v)
        x = x + self.proj(joined(mixed))
        return x + self.mlp(self.ln_2(x))


class RelativeBias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, HEADS)

    def forward(self, length: int) -> Any:
        places = torch.arange(length)
        distance = places[None, :] - places[:, None]
        distance = distance.clamp(-15, 15) + 15
        return self.table(distance).permute(2, 0, 1).unsqueeze(0)


class CrossLayer(nn.Module):
    def __init__(self, *, cross: bool) -> None:
        super().__init__()
        self.norm1, self.attn = RMSNorm(), Attention(eager=True, bias=False)
        self.norm2 = RMSNorm() if cross else None
        self.cross = Attention(eager=True, bias=False) if cross else None
        self.norm3, self.wi, self.wo = RMSNorm(), nn.Linear(WIDTH, 64, bias=False), nn.Linear(64, WIDTH, bias=False)
        self.act = nn.ReLU()

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor | None = None) -> Any:
        x = x + self.attn(self.norm1(x), bias)
        if self.cross is not None and self.norm2 is not None:
            x = x + self.cross(self.norm2(x), None, memory)
        return x + self.wo(self.act(self.wi(self.norm3(x))))


class EncoderDecoder(nn.Module):
    """An encoder and a decoder with cross attention and relative positions, like T5."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Embedding(50, WIDTH)
        self.encoder_bias, self.decoder_bias = RelativeBias(), RelativeBias()
        self.encoder = nn.ModuleList([CrossLayer(cross=False) for _ in range(2)])
        self.encoder_norm = RMSNorm()
        self.decoder = nn.ModuleList([CrossLayer(cross=True) for _ in range(2)])
        self.decoder_norm = RMSNorm()

    def forward(self, tokens: Tensor, targets: Tensor) -> Any:
        memory, bias = self.shared(tokens), self.encoder_bias(tokens.shape[1])
        for layer in self.encoder:
            memory = layer(memory, bias)
        memory = self.encoder_norm(memory)
        t = targets.shape[1]
        x = self.shared(targets)
        bias = self.decoder_bias(t)
        bias = bias + torch.full((t, t), -1e4).triu(1)
        for layer in self.decoder:
            x = layer(x, bias, memory)
        return self.decoder_norm(x)


class ViT(nn.Module):
    """Patches, a class token, learned positions, and torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.5)
        self.positions = nn.Parameter(torch.randn(1, 65, WIDTH) * 0.5)
        self.blocks = nn.ModuleList([ViTBlock() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, image: Tensor) -> Any:
        x = self.patch(image).flatten(2)
        x = x.transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1)
        x = x + self.positions[:, : x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class ViTBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(approximate="tanh"), nn.Linear(64, WIDTH))

    def forward(self, x: Tensor) -> Any:
        b, t, _ = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, t, 3, HEADS, SIZE)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.proj(joined(F.scaled_dot_product_attention(q, k, v)))
        return x + self.mlp(self.norm2(x))


class DoubleConv(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(2, after)
        self.conv2, self.norm2 = nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(2, after)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Any:
        x = self.act(self.norm1(self.conv1(x)))
        return self.act(self.norm2(self.conv2(x)))


class UNet(nn.Module):
    """Downs and ups with skips, by transposed convolution and by interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = DoubleConv(3, 8), DoubleConv(8, 16), DoubleConv(16, 16)
        self.pool = nn.MaxPool2d(2)
        self.up2, self.conv2 = nn.ConvTranspose2d(16, 16, 2, 2), DoubleConv(32, 8)
        self.up1, self.conv1 = nn.Upsample(scale_factor=2, mode="bilinear"), DoubleConv(16, 8)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, image: Tensor) -> Any:
        one = self.down1(image)
        two = self.down2(self.pool(one))
        x = self.middle(self.pool(two))
        x = self.conv2(torch.cat((two, self.up2(x)), 1))
        x = self.conv1(torch.cat((one, self.up1(x)), 1))
        return self.out(x).sigmoid()


class SharedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.n1, self.b, self.n2 = (
            nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Any:
        x = self.n1(x + self.a(x))
        return self.n2(x + self.b(x).tanh())


class Repeated(nn.Module):
    """One block called four times, as in ALBERT."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.block, self.out = nn.Linear(16, WIDTH), SharedBlock(), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Any:
        x = self.inp(x)
        for _ in range(4):
            x = self.block(x)
        return self.out(x)


class Nested(nn.Module):
    """Module lists in module lists, with an alias, a module that two lists hold, and a dict of heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(16, WIDTH)
        linears = [nn.Linear(WIDTH, WIDTH) for _ in range(6)]
        self.stages = nn.ModuleList(
            [nn.ModuleList([linears[2 * i], nn.LayerNorm(WIDTH), linears[2 * i + 1]]) for i in range(3)]
        )
        self.last = self.stages[2]
        self.first = linears[0]
        self.heads = nn.ModuleDict({"mean": nn.Linear(WIDTH, 4), "scale": nn.Linear(WIDTH, 4)})

    def forward(self, x: Tensor) -> Any:
        x = torch.relu(self.stem(x))
        for stage in list(self.stages)[:2]:
            inner, norm, outer = stage.children()
            x = x + outer(F.gelu(norm(inner(x))))
        inner, norm, outer = self.last.children()
        x = x + outer(F.elu(norm(inner(x))))
        x = x * torch.sigmoid(self.first(x))
        return self.heads["mean"](x), F.softplus(self.heads["scale"](x))


class Mixer(nn.Module):
    """Blocks that mix tokens, then channels; their number of tokens is fixed."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.embed = nn.Linear(16, WIDTH)
        self.blocks = nn.ModuleList([MixerBlock(tokens) for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Any:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x).mean(1)


class MixerBlock(nn.Module):
    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix = nn.Sequential(nn.Linear(tokens, 24), nn.GELU(), nn.Linear(24, tokens))
        self.channels = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x: Tensor) -> Any:
        y = self.norm1(x).transpose(1, 2)
        x = x + self.mix(y).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class SegformerStage(nn.Module):
    def __init__(self, before: int, stride: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(before, WIDTH, 2 * stride - 1, stride, stride - 1)
        self.norm0, self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.reduce, self.reduced = nn.Conv2d(WIDTH, WIDTH, 2, 2), nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)
        self.depthwise = nn.Conv2d(48, 48, 3, 1, 1, groups=48)
        self.act = nn.GELU()

    def forward(self, image: Tensor) -> Any:
        x = self.patch(image)
        b, c, h, w = x.shape
        x = self.norm0(x.flatten(2).transpose(1, 2))
        y = self.norm1(x)
        small = y.permute(0, 2, 1).reshape(b, c, h, w)
        small = self.reduced(self.reduce(small).reshape(b, c, -1).permute(0, 2, 1))
        q, k, v = divided(self.query(y)), divided(self.key(small)), divided(self.value(small))
        scores = torch.matmul(q, k.transpose(-1, -2))
        weights = F.softmax(scores / math.sqrt(SIZE), dim=-1)
        x = x + self.out(joined(torch.matmul(weights, v)))
        y = self.fc1(self.norm2(x))
        y = self.depthwise(y.transpose(1, 2).view(b, 48, h, w)).flatten(2)
        x = x + self.fc2(self.act(y.transpose(1, 2)))
        return x.transpose(1, 2).reshape(b, c, h, w)


class Segformer(nn.Module):
    """Stages of attention over a reduced image, and a head over all of them resized."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([SegformerStage(3, 2), SegformerStage(WIDTH, 2)])
        self.heads = nn.ModuleList([nn.Linear(WIDTH, 16), nn.Linear(WIDTH, 16)])
        self.fuse, self.norm, self.classify = nn.Conv2d(32, 16, 1, bias=False), nn.BatchNorm2d(16), nn.Conv2d(16, 4, 1)

    def forward(self, image: Tensor) -> Any:
        found: list[Tensor] = []
        x = image
        for stage, head in zip(self.stages, self.heads, strict=True):
            x = stage(x)
            y = head(x.flatten(2).transpose(1, 2)).permute(0, 2, 1)
            y = y.reshape(x.shape[0], 16, x.shape[2], x.shape[3])
            size = found[0].shape[2:] if found else y.shape[2:]
            found.append(F.interpolate(y, size=size, mode="bilinear", align_corners=False))
        x = self.fuse(torch.cat(found[::-1], 1))
        return self.classify(torch.relu(self.norm(x)))


class Whisper(nn.Module):
    """A convolutional front end on spectrograms and fixed sinusoidal positions."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(10, WIDTH, 3, padding=1)
        self.conv2 = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        angles = torch.arange(64)[:, None] * 100.0 ** -(torch.arange(WIDTH // 2) / (WIDTH // 2))
        self.register_buffer("positions", torch.cat((angles.sin(), angles.cos()), 1))
        self.layers = nn.ModuleList([EncoderLayer(eager=index == 1, first=True) for index in range(2)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, spectrum: Tensor) -> Any:
        x = F.gelu(self.conv1(spectrum))
        x = F.gelu(self.conv2(x))
        x = x.permute(0, 2, 1)
        x = x + self.positions[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Recurrent(nn.Module):
    """An LSTM in both directions, a GRU, and attention over what they return."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 8, bidirectional=True, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.gru = nn.GRU(16, WIDTH, batch_first=True)
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, tokens: Tensor) -> Any:
        x, (hidden, _) = self.lstm(self.embed(tokens))
        x, _ = self.gru(self.norm(x))
        y, _ = self.attn(x, x, x, need_weights=False)
        return self.head(torch.tanh(x + y)), hidden


def _configured(cls: str, **options: Any) -> nn.Module:
    transformers = importlib.import_module("transformers")
    module: nn.Module = getattr(transformers, cls)(
        getattr(transformers, f"{cls.removesuffix('Model')}Config")(**options)
    )
    return module


def _t5() -> nn.Module:
    sizes = {"d_model": WIDTH, "d_ff": 64, "num_layers": 2, "num_heads": HEADS, "d_kv": SIZE}
    return _configured("T5Model", **sizes, vocab_size=50, use_cache=False)


def _gpt2() -> nn.Module:
    return _configured(
        "GPT2Model",
        n_embd=WIDTH,
        n_layer=2,
        n_head=HEADS,
        vocab_size=50,
        n_positions=64,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )


ARCHITECTURES: Final[dict[str, tuple[Callable[[int], nn.Module], str]]] = {
    "conv": (lambda _: modules.ConvNet(), "x:image"),
    "resnet": (lambda _: modules.ConvBN(), "x:image"),
    "encoder": (lambda _: Encoder(eager=False), "tokens keep"),
    "encoder-eager": (lambda _: Encoder(eager=True), "tokens keep"),
    "decoder": (lambda _: Decoder(), "tokens places"),
    "gpt": (lambda _: CachedGPT(), "tokens"),
    "encoder-decoder": (lambda _: EncoderDecoder(), "tokens targets"),
    "vit": (lambda _: ViT(), "image:patches"),
    "unet": (lambda _: UNet(), "image"),
    "recurrent": (lambda _: Recurrent(), "tokens"),
    "repeated": (lambda _: Repeated(), "x"),
    "nested": (lambda _: Nested(), "x"),
    "mixer": (Mixer, "x"),
    "segformer": (lambda _: Segformer(), "image"),
    "whisper": (lambda _: Whisper(), "spectrum"),
    "bert": (lambda _: modules._bert("sdpa"), "input_ids:tokens attention_mask"),
    "t5": (lambda _: _t5(), "input_ids:tokens decoder_input_ids:targets"),
    "gpt2": (lambda _: _gpt2(), "input_ids:tokens"),
    "llama": (lambda _: modules._llama(), "input_ids:tokens attention_mask"),
}
"""Architecture → what makes the module for a length, and its arguments, each with its kind if that is not its name."""
IMPOSSIBLE: Final = {("t5", "dynamo"), ("t5", "plain"), ("gpt2", "torchscript")}
"""Architectures of transformers that torch's exporter refuses."""


def randomize(module: nn.Module) -> None:
    """Set normalizations and biases far from identities, and weights far from each other."""
    for part in module.modules():
        for key, parameter in part.named_parameters(recurse=False):
            if "bias" in key:
                nn.init.uniform_(parameter, -0.5, 0.5)
            elif parameter.dim() == 1:
                nn.init.uniform_(parameter, 0.5, 1.5)
            elif isinstance(part, nn.Linear | nn.Conv2d | nn.Conv1d):  # far from each other, so that attention matters
                nn.init.normal_(parameter, std=1.5 / math.sqrt(parameter[0].numel()))
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            nn.init.uniform_(part.running_mean, -0.5, 0.5)
            nn.init.uniform_(part.running_var, 0.5, 2)


def built(name: str, length: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return a module in eval mode, with normalizations and biases far from identities, and its arguments."""
    make, arguments = ARCHITECTURES[name]
    size = LENGTHS[length]
    torch.manual_seed(0)
    module = make(size).eval()
    randomize(module)
    torch.manual_seed(1)
    given = (argument.rpartition(":")[::2] for argument in arguments.split())
    return module, {argument or kind: _input(kind, size) for argument, kind in given}


def _input(kind: str, size: int) -> Tensor:
    if kind in ("keep", "attention_mask"):
        keep = torch.ones(2, size, dtype=torch.float if kind == "keep" else torch.long)
        keep[1, -2:] = 0
        return keep
    if kind == "image":  # one side, or the number of reduced positions, is the size of a head
        return torch.randn(2, 3, *((8, 16) if size == SIZE else (20, 28)))
    if kind == "patches":  # with the class token
        return torch.randn(2, 3, 4, 4 * (size - 1))
    if kind == "spectrum":
        return torch.randn(2, 10, 2 * size)
    if kind == "x":
        return torch.randn(2, size, 16)
    if kind == "places":
        return torch.arange(size)[None].expand(2, -1).float()
    if kind == "targets":  # another length than that of the encoder
        return torch.randint(0, 50, (2, size - 2 if size != SIZE else size))
    return torch.randint(0, 50, (2, size))
