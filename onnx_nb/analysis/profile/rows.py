"""The tables of a profile: a row for each kernel, node, operator, scope, provider or fallback."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from onnx_nb.analysis.profile.mapping import shape_nodes
from onnx_nb.analysis.profile.trace import MEMCPY, OWNERS
from onnx_nb.analysis.scopes.scopes import scopes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.profile.result import Kernel, Profile

By = Literal["kernel", "node", "operator", "scope", "provider", "fallback"]
Split = Literal["macs"]
COLUMNS: Final[Mapping[By, Sequence[str]]] = {
    "kernel": (
        *("kernel", "op", "provider", "seconds", "spread", "share", "calls", "nodes", "how", "edge", "inside"),
        *("gflops", "gbs", "memory", "threads"),
    ),
    "node": ("node", "op", "scope", "provider", "kernel", "seconds", "set_seconds", "set_size", "status"),
    "operator": ("op", "kernels", "seconds", "spread", "share"),
    "scope": ("scope", "class", "kernels", "seconds", "spread", "share"),
    "provider": ("provider", "kernels", "nodes", "seconds", "spread", "share"),
    "fallback": ("kernel", "op", "nodes", "provider", "wanted", "assigned", "reason", "seconds", "share"),
}


def rows(profile: Profile, by: By, split: Split | None) -> list[dict[str, Any]]:
    """Return the rows of a table, as `Profile.rows` describes them."""
    if by == "node":
        return _node_rows(profile, split)
    if by == "kernel":
        return _kernel_rows(profile)
    if by == "scope":
        return _scope_rows(profile)
    if by == "fallback":
        return _fallback_rows(profile)
    keys = [kernel.op if by == "operator" else kernel.provider for kernel in profile.kernels]
    name = "op" if by == "operator" else "provider"
    table = []
    for key in dict.fromkeys(keys):
        members = [number for number, label in enumerate(keys) if label == key]
        row = {name: key, "kernels": len(members)}
        if by == "provider":
            kernels = [profile.kernels[number] for number in members]
            row["nodes"] = len({node for kernel in kernels if not kernel.edge for node in kernel.nodes})
        table.append(row | _sums(profile, members))
    return sorted(table, key=lambda row: -row["seconds"])


def _kernel_rows(profile: Profile) -> list[dict[str, Any]]:
    order = np.argsort(-profile.shares, kind="stable").tolist()
    return [_kernel_row(profile, profile.kernels[number], float(profile.shares[number])) for number in order]


def _fallback_rows(profile: Profile) -> list[dict[str, Any]]:
    target, shapes, table = profile.wanted, shape_nodes(profile.graph), []
    for row, number in zip(_kernel_rows(profile), np.argsort(-profile.shares, kind="stable").tolist(), strict=True):
        kernel = profile.kernels[number]
        if kernel.provider in ("", target) or kernel.op in MEMCPY:
            continue
        owners = {profile.assigned[node] for node in kernel.nodes if node in profile.assigned}
        small = bool(kernel.nodes) and kernel.op not in OWNERS and all(shapes[node] for node in kernel.nodes)
        reason = "probably for want of a kernel for their type, attributes or shape"
        if small:
            reason = "probably because they compute shapes, which onnxruntime leaves on the CPU"
        if owners == {kernel.provider}:
            reason = f"onnxruntime gave them to {short(kernel.provider)}, {reason}"
        else:
            reason = f"{short(target)} did not take them, {reason}"
        about = {**row, "wanted": target, "assigned": ", ".join(sorted(owners)), "reason": reason}
        table.append({name: about[name] for name in COLUMNS["fallback"]})
    return table


def _sums(profile: Profile, kernels: Sequence[int]) -> dict[str, float]:
    seconds = np.sum([profile.kernels[number].seconds for number in kernels], axis=0)
    share = float(profile.shares[list(kernels)].sum())
    return {"seconds": float(np.median(seconds)), "spread": spread_of(seconds), "share": share}


def _kernel_row(profile: Profile, kernel: Kernel, share: float) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "op": kernel.op,
        "provider": kernel.provider,
        "seconds": kernel.median,
        "spread": kernel.spread,
        "share": share,
        "calls": kernel.calls,
        "nodes": [profile.graph.names[node] for node in kernel.nodes],
        "how": kernel.how,
        "edge": kernel.edge,
        "inside": profile.kernels[kernel.parent].name if kernel.parent >= 0 else "",
        "gflops": kernel.rate(kernel.flops),
        "gbs": kernel.rate(kernel.nbytes),
        "memory": kernel.memory,
        "threads": kernel.threads,
    }


def _node_rows(profile: Profile, split: Split | None) -> list[dict[str, Any]]:
    graph, tree = profile.graph, scopes(profile.graph)
    macs = None if split is None else profile.costs.macs
    alone, together = np.full(graph.node_count, np.nan), np.full(graph.node_count, np.nan)
    kernels: dict[int, list[Kernel]] = {}
    status = [""] * graph.node_count
    for kernel in profile.kernels:
        inner = {call for node in kernel.opened for call in _calls(graph, node)}
        for node in (*kernel.nodes, *sorted(inner - set(kernel.nodes)), *kernel.opened):
            kernels.setdefault(node, []).append(kernel)
    for node, members in kernels.items():
        together[node] = sum(kernel.median for kernel in members)
        alone[node] = 0.0
        for kernel in members:
            part = _part(graph, kernel, node, macs)
            alone[node] += math.nan if part is None else kernel.median * part
        sizes = max(len(_set(graph, kernel, node)) for kernel in members)
        status[node] = "measured" if sizes == 1 else "in a set" if math.isnan(alone[node]) else "split by MACs"
    rows = []
    for node, name in enumerate(graph.names):
        members = kernels.get(node, [])
        rows.append(
            {
                "node": name,
                "op": graph.operators[graph.op_index[node]][0],
                "scope": tree.scope_path[tree.node_scope[node]],
                "provider": next((k.provider for k in members if not k.edge), profile.assigned.get(node, "")),
                "kernel": ", ".join(dict.fromkeys(kernel.name for kernel in members)),
                "seconds": None if math.isnan(alone[node]) else float(alone[node]),
                "set_seconds": None if math.isnan(together[node]) else float(together[node]),
                "set_size": max((len(_set(graph, kernel, node)) for kernel in members), default=0),
                "status": status[node] or ("constant" if graph.folded[node] else "did not run"),
            }
        )
    return rows


def _scope_rows(profile: Profile) -> list[dict[str, Any]]:
    tree = scopes(profile.graph)
    members: dict[int, list[int]] = {}
    for number, scope in enumerate(profile.kernel_scopes):
        above = scope
        while above >= 0:
            members.setdefault(above, []).append(number)
            above = int(tree.scope_parent[above])
    table = [
        {"scope": tree.scope_path[scope], "class": tree.scope_class[scope], "kernels": len(inside)}
        | _sums(profile, inside)
        for scope, inside in sorted(members.items())
    ]
    return sorted(table, key=lambda row: -row["seconds"])


def _calls(graph: Graph, node: int) -> list[int]:
    """Return the calls of local functions that a node is inside, the innermost first."""
    calls, frame = list[int](), int(graph.node_subgraph[node])
    while frame > 0:
        place = graph.subgraphs[frame]
        if place.function is not None:
            calls.append(place.owner_node)
        frame = place.parent
    return calls


def _set(graph: Graph, kernel: Kernel, node: int) -> tuple[int, ...]:
    """Return the nodes that share the time of a kernel with a node, and that: a call in place of what is inside it."""
    if node in kernel.nodes:
        return kernel.nodes
    return node, *(n for n in kernel.opened if n != node and node not in _calls(graph, n))


def _part(graph: Graph, kernel: Kernel, node: int, macs: NDArray[np.float64] | None) -> float | None:
    """Return the share of a kernel's time that a node has; None if it is unknown."""
    together = _set(graph, kernel, node)
    if len(together) == 1:
        return 1.0
    if macs is None:
        return None
    inside = macs[list(together)]
    total = float(inside.sum())
    return None if math.isnan(total) or not total else float(macs[node]) / total


def spread_of(seconds: NDArray[np.float64]) -> float:
    """Return half the interquartile range."""
    low, high = np.quantile(seconds, (0.25, 0.75))
    return float(high - low) / 2


def short(provider: str) -> str:
    """Return a provider as people call it."""
    return provider.removesuffix("ExecutionProvider")
