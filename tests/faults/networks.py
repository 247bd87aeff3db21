"""Small torch modules of kinds that `architectures` lacks: graphs, detection, state spaces, speech, diffusion, latents.

What a fault may change inside of a ``forward`` is an attribute of the module: a factor, an axis, the order of halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its customary name)

from tests.faults.architectures import randomize

WIDTH: Final = 16
HEADS: Final = 2


class MessagePassing(nn.Module):
    """A layer of a graph network: messages along edges, summed at their targets."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU())
        self.update = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.factor = 0.5

    def forward(self, x: Tensor, adjacency: Tensor) -> Any:
        count = x.shape[1]
        source = x[:, None].expand(-1, count, -1, -1)
        target = x[:, :, None].expand(-1, -1, count, -1)
        messages = self.message(torch.cat((source, target), -1))
        total = (messages * adjacency[..., None]).sum(2) * self.factor
        return self.norm(x + self.update(torch.cat((x, total), -1)))


class GraphNetwork(nn.Module):
    """Three rounds of message passing and a readout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.rounds = nn.ModuleList([MessagePassing() for _ in range(3)])
        self.readout = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 3))

    def forward(self, x: Tensor, adjacency: Tensor) -> Any:
        x = self.embed(x)
        for layer in self.rounds:
            x = layer(x, adjacency)
        return self.readout(x.mean(1))


class ConvBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(after)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Any:
        return self.act(self.norm(self.conv(x)))


class SpatialPool(nn.Module):
    """Pools of the same map, one after another, joined."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 5
        self.before, self.after = ConvBlock(WIDTH, 8), ConvBlock(32, WIDTH)

    def forward(self, x: Tensor) -> Any:
        maps = [self.before(x)]
        for _ in range(3):
            maps.append(F.max_pool2d(maps[-1], self.size, 1, self.size // 2))
        return self.after(torch.cat(maps, 1))


class Detector(nn.Module):
    """A backbone, a pyramid, and heads whose boxes are decoded on a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = ConvBlock(3, 8, 2), ConvBlock(8, WIDTH, 2)
        self.pool = SpatialPool()
        self.up, self.lateral = nn.Upsample(scale_factor=2), nn.Conv2d(8, WIDTH, 1)
        self.boxes, self.classes = nn.Conv2d(WIDTH, 4, 1), nn.Conv2d(WIDTH, 5, 1)
        self.stride = 2.0

    def forward(self, image: Tensor) -> Any:
        shallow = self.stem(image)
        deep = self.pool(self.down(shallow))
        x = self.up(deep) + self.lateral(shallow)
        corner = self.boxes(x).sigmoid()
        rows = torch.arange(x.shape[2])[None, None, :, None]
        center = (corner[:, :2] * 2 - 0.5 + rows) * self.stride
        size = (corner[:, 2:] * 2) ** 2 * self.stride
        return torch.cat((center, size), 1).flatten(2), self.classes(x).sigmoid().flatten(2)


class StateSpace(nn.Module):
    """A gated state space: a convolution over time, a scan, and a gate from the other half of a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj = nn.Linear(WIDTH, 4 * WIDTH)
        self.conv = nn.Conv1d(2 * WIDTH, 2 * WIDTH, 3, padding=2, groups=2 * WIDTH)
        self.decay = nn.Parameter(torch.rand(2 * WIDTH))
        self.out_proj = nn.Linear(2 * WIDTH, WIDTH)
        self.skip, self.gate_first = 1.0, False

    def forward(self, x: Tensor) -> Any:
        values, gate = self.in_proj(x).chunk(2, -1)
        if self.gate_first:
            values, gate = gate, values
        values = self.conv(values.transpose(1, 2))[..., : x.shape[1]]
        values = F.silu(values.transpose(1, 2))
        rate = torch.exp(-F.softplus(self.decay))
        state, states = torch.zeros_like(values[:, 0]), []
        for time in range(x.shape[1]):
            state = rate * state + values[:, time]
            states.append(state)
        scan = torch.stack(states, 1) + self.skip * values
        return self.out_proj(scan * F.silu(gate))


class StateSpaces(nn.Module):
    """Two gated state spaces with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)])
        self.mixers = nn.ModuleList([StateSpace() for _ in range(2)])
        self.head = nn.Linear(WIDTH, 30)

    def forward(self, tokens: Tensor) -> Any:
        x = self.embed(tokens)
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x = x + mixer(norm(x))
        return self.head(x)


class AdditiveAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.energy = nn.Linear(WIDTH, 1)
        self.temperature = 1.0

    def forward(self, state: Tensor, memory: Tensor) -> Any:
        scores = self.energy(torch.tanh(self.query(state)[:, None] + self.key(memory)))[..., 0]
        weights = torch.softmax(scores / self.temperature, -1)
        return (weights[..., None] * memory).sum(1)


class Seq2Seq(nn.Module):
    """A GRU that encodes, and a cell that decodes with attention, in a loop that the exporter unrolls."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.attention = AdditiveAttention()
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 30)

    def forward(self, tokens: Tensor) -> Any:
        memory, _ = self.encoder(self.embed(tokens))
        state, outputs = memory[:, -1], []
        for time in range(3):
            context = self.attention(state, memory)
            state = self.cell(torch.cat((self.embed(tokens[:, time]), context), -1), state)
            outputs.append(self.head(state))
        return torch.stack(outputs, 1)


class TimeBlock(nn.Module):
    """A residual block of a diffusion model: scaled and shifted by the time."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, before), nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(WIDTH, 2 * after)
        self.norm2, self.conv2 = nn.GroupNorm(4, after), nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1)
        self.act = nn.SiLU()
        self.shift_first = False

    def forward(self, x: Tensor, time: Tensor) -> Any:
        y = self.conv1(self.act(self.norm1(x)))
        scale, shift = self.time(self.act(time))[:, :, None, None].chunk(2, 1)
        if self.shift_first:
            scale, shift = shift, scale
        y = self.norm2(y) * (1 + scale) + shift
        return self.skip(x) + self.conv2(self.act(y))


class TimeEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.period = 1000.0
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, time: Tensor) -> Any:
        rates = torch.exp(-math.log(self.period) * torch.arange(WIDTH // 2) / (WIDTH // 2))
        angles = time[:, None] * rates
        return self.layers(torch.cat((angles.cos(), angles.sin()), -1))


class PixelAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.GroupNorm(4, WIDTH), nn.Conv2d(WIDTH, 3 * WIDTH, 1)
        self.out = nn.Conv2d(WIDTH, WIDTH, 1)
        self.scale = WIDTH**-0.5

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.qkv(self.norm(x)).flatten(2).chunk(3, 1)
        weights = torch.softmax(q.transpose(1, 2) @ k * self.scale, -1)
        return x + self.out((v @ weights.transpose(1, 2)).reshape(x.shape))


class Diffusion(nn.Module):
    """A U-Net that is told the time, with attention in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.first = TimeEmbedding(), nn.Conv2d(3, 8, 3, padding=1)
        self.down, self.pool = TimeBlock(8, WIDTH), nn.AvgPool2d(2)
        self.middle, self.attention = TimeBlock(WIDTH, WIDTH), PixelAttention()
        self.up, self.ascent = nn.Upsample(scale_factor=2, mode="nearest"), TimeBlock(2 * WIDTH, 8)
        self.norm, self.act, self.last = nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, image: Tensor, time: Tensor) -> Any:
        embedding = self.time(time)
        high = self.down(self.first(image), embedding)
        low = self.attention(self.middle(self.pool(high), embedding))
        x = self.ascent(torch.cat((self.up(low), high), 1), embedding)
        return self.last(self.act(self.norm(x)))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Dropout(0.1), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.weight = 0.5

    def forward(self, x: Tensor) -> Any:
        return x + self.weight * self.layers(self.norm(x))


class ConvolutionModule(nn.Module):
    """The convolution of a Conformer: a gated linear unit, a depthwise convolution, a normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.point1, self.gate = nn.Conv1d(WIDTH, 2 * WIDTH, 1), nn.GLU(1)
        self.depth = nn.Conv1d(WIDTH, WIDTH, 5, padding=2, groups=WIDTH)
        self.batch, self.act = nn.BatchNorm1d(WIDTH), nn.SiLU()
        self.point2 = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: Tensor) -> Any:
        y = self.gate(self.point1(self.norm(x).transpose(1, 2)))
        return x + self.point2(self.act(self.batch(self.depth(y)))).transpose(1, 2)


class ConformerBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = FeedForward(), FeedForward()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.convolution, self.norm2 = ConvolutionModule(), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.norm2(self.last(self.convolution(x)))


class Conformer(nn.Module):
    """Two blocks of a recognizer of speech behind a subsampling of the spectrum."""

    def __init__(self) -> None:
        super().__init__()
        self.subsample, self.project = nn.Conv1d(10, WIDTH, 3, 2, 1), nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList([ConformerBlock() for _ in range(2)])
        self.head = nn.Linear(WIDTH, 20)

    def forward(self, spectrum: Tensor) -> Any:
        x = self.project(F.relu(self.subsample(spectrum)).transpose(1, 2))
        for block in self.blocks:
            x = block(x)
        return F.log_softmax(self.head(x), -1)


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_q, self.norm_kv = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.key_first = True

    def forward(self, latents: Tensor, memory: Tensor) -> Any:
        q = self.q(self.norm_q(latents))
        k, v = self.kv(self.norm_kv(memory)).chunk(2, -1)
        if not self.key_first:
            k, v = v, k
        mixed = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return latents + self.out(mixed)


class Perceiver(nn.Module):
    """Latents that read the input by cross attention, twice with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.latents = nn.Parameter(torch.randn(1, 4, WIDTH))
        self.read, self.process = CrossAttention(), CrossAttention()
        self.feed, self.head = FeedForward(), nn.Linear(WIDTH, 5)
        self.depth = 2

    def forward(self, x: Tensor) -> Any:
        memory, latents = self.embed(x), self.latents.expand(x.shape[0], -1, -1)
        for _ in range(self.depth):
            latents = self.read(latents, memory)
            latents = self.feed(self.process(latents, latents))
        return self.head(latents.mean(1))


class GatedConvolution(nn.Module):
    """A layer of WaveNet: a dilated convolution, tanh times sigmoid, a residual and a skip."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.filter = nn.Conv1d(WIDTH, WIDTH, 2, dilation=dilation)
        self.gate = nn.Conv1d(WIDTH, WIDTH, 2, dilation=dilation)
        self.tanh, self.sigmoid = nn.Tanh(), nn.Sigmoid()
        self.residual, self.skip = nn.Conv1d(WIDTH, WIDTH, 1), nn.Conv1d(WIDTH, 8, 1)

    def forward(self, x: Tensor) -> Any:
        y = F.pad(x, (self.dilation, 0))
        y = self.tanh(self.filter(y)) * self.sigmoid(self.gate(y))
        return x + self.residual(y), self.skip(y)


class WaveNet(nn.Module):
    """Dilated causal convolutions whose skips are summed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(10, WIDTH, 1)
        self.layers = nn.ModuleList([GatedConvolution(2**depth) for depth in range(3)])
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(8, 8, 1), nn.ReLU(), nn.Conv1d(8, 10, 1))

    def forward(self, spectrum: Tensor) -> Any:
        x, total = self.first(spectrum), torch.zeros(())
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.last(total)


class PositionTable(nn.Module):
    """Sines of positions, which an exporter may fold into a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = 1.0

    def forward(self, count: int) -> Any:
        place = torch.arange(count).float()[:, None] * self.rate
        rates = torch.exp(-torch.arange(0, WIDTH, 2).float() / 4)
        return torch.cat((torch.sin(place * rates), torch.cos(place * rates)), -1)


class TabTransformer(nn.Module):
    """Columns of a table as tokens, with torch's own encoder layer and a fixed table of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.columns, self.positions = nn.Linear(WIDTH, WIDTH), PositionTable()
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True, norm_first=True)
        self.drop, self.norm = nn.Dropout(0.2), nn.LayerNorm(WIDTH)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(7 * WIDTH, WIDTH), nn.ELU(), nn.Linear(WIDTH, 2))

    def forward(self, x: Tensor) -> Any:
        x = self.columns(x) + self.positions(x.shape[1])
        return self.head(self.norm(self.layer(self.drop(x))))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.pool, self.reduce, self.expand = nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 4, 1), nn.Conv2d(4, width, 1)
        self.act, self.gate = nn.ReLU(), nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Any:
        return x * self.gate(self.expand(self.act(self.reduce(self.pool(x)))))


class InvertedResidual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.expand, self.norm1 = nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24)
        self.depth, self.norm2 = nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False), nn.BatchNorm2d(24)
        self.squeeze, self.act = SqueezeExcite(24), nn.Hardswish()
        self.project, self.norm3 = nn.Conv2d(24, 8, 1, bias=False), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Any:
        y = self.act(self.norm1(self.expand(x)))
        y = self.squeeze(self.act(self.norm2(self.depth(y))))
        return x + self.norm3(self.project(y))


class MobileNet(nn.Module):
    """Inverted residuals with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.padding = (0, 1, 0, 1)
        self.stem, self.norm, self.act = nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.Hardswish()
        self.blocks = nn.Sequential(InvertedResidual(), InvertedResidual())
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 6)

    def forward(self, image: Tensor) -> Any:
        x = self.act(self.norm(self.stem(F.pad(image, self.padding))))
        return self.head(self.pool(self.blocks(x)).flatten(1))


class Recalled(nn.Module):
    """One block called four times, whose number of calls a fault may change."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head, self.calls = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4), 4
        self.block = FeedForward()

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        for _ in range(self.calls):
            x = self.block(x)
        return self.head(x)


class RadianceField(nn.Module):
    """Fourier features of points, a skip back to them, and a density with an exponential."""

    def __init__(self) -> None:
        super().__init__()
        self.octaves, self.factor = 3, math.pi
        self.layer1, self.layer2 = nn.Linear(6 * WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.layer3, self.act = nn.Linear(7 * WIDTH, WIDTH), nn.Softplus()
        self.density, self.color = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Any:
        angles = torch.cat([2.0**octave * self.factor * x for octave in range(self.octaves)], -1)
        features = torch.cat((angles.sin(), angles.cos()), -1)
        y = self.act(self.layer2(self.act(self.layer1(features))))
        y = self.act(self.layer3(torch.cat((y, features), -1)))
        return torch.exp(-self.density(y).abs()), self.color(y).sigmoid()


NETWORKS: Final[dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]]] = {
    "graph": (GraphNetwork, ("x", "adjacency")),
    "detector": (Detector, ("image",)),
    "state spaces": (StateSpaces, ("tokens",)),
    "seq2seq": (Seq2Seq, ("tokens",)),
    "diffusion": (Diffusion, ("image", "time")),
    "conformer": (Conformer, ("spectrum",)),
    "perceiver": (Perceiver, ("x",)),
    "wavenet": (WaveNet, ("spectrum",)),
    "tables": (TabTransformer, ("x",)),
    "mobilenet": (MobileNet, ("image",)),
    "recalled": (Recalled, ("x",)),
    "radiance": (RadianceField, ("x",)),
}
"""Network → what makes it, and its arguments."""
INPUTS: Final[dict[str, Callable[[], Tensor]]] = {
    "x": lambda: torch.randn(2, 7, WIDTH),
    "adjacency": lambda: torch.rand(2, 7, 7).round(),
    "image": lambda: torch.randn(2, 3, 16, 16),
    "tokens": lambda: torch.randint(0, 30, (2, 6)),
    "time": lambda: torch.rand(2) * 100,
    "spectrum": lambda: torch.randn(2, 10, 14),
}


def network(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return a network in eval mode, with normalizations and biases far from identities, and its arguments."""
    make, arguments = NETWORKS[name]
    torch.manual_seed(0)
    module = make().eval()
    randomize(module)
    return module, {argument: INPUTS[argument]() for argument in arguments}
