"""The tables of a profile: a row for each kernel, node, operator, scope, provider or fallback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.graph.dataflow import followers, shape_nodes
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.profile.mapping import calls_around
from onnx_nb.analysis.profile.trace import MEMCPY, OWNERS
from onnx_nb.analysis.scopes.scopes import scopes, scopes_around

if TYPE_CHECKING:
    from onnx_nb.analysis.profile.result import Kernel, Profile

By = Literal["kernel", "node", "operator", "scope", "provider", "fallback"]
FALLBACK: Final = ("kernel", "op", "nodes", "provider", "wanted", "assigned", "reason", "seconds", "share")
"""Columns of the only table that may be without rows."""


def rows(profile: Profile, by: By) -> list[dict[str, Any]]:
    """Return the rows of a table, as `Profile.rows` describes them."""
    if by == "node":
        return _node_rows(profile)
    if by in ("kernel", "fallback"):
        order = np.argsort(-profile.shares, kind="stable").tolist()
        table = [_kernel_row(profile, profile.kernels[number], float(profile.shares[number])) for number in order]
        return table if by == "kernel" else _fallback_rows(profile, order, table)
    tree, table = scopes(profile.graph), []
    members = kernels_by(profile, by)
    classes = dict(zip(tree.scope_path, tree.scope_class, strict=True))
    for key in dict.fromkeys(filter(members.__contains__, tree.scope_path)) if by == "scope" else members:
        kernels = [profile.kernels[number] for number in members[key]]
        row = {"op" if by == "operator" else by: key, "kernels": len(kernels)}
        if by == "scope":
            row = {"scope": key, "class": classes[key], "kernels": len(kernels)}
        elif by == "provider":
            row["nodes"] = len({node for kernel in kernels if not kernel.edge for node in kernel.nodes})
        seconds = np.sum([kernel.seconds for kernel in kernels], axis=0)
        share = float(profile.shares[members[key]].sum())
        table.append({**row, "seconds": float(np.median(seconds)), "spread": spread_of(seconds), "share": share})
    return sorted(table, key=lambda row: -row["seconds"])


def kernels_by(profile: Profile, by: str) -> dict[str, list[int]]:
    """Return the kernels of each operator, provider, or path of a scope."""
    if by != "scope":
        return followers((k.op if by == "operator" else k.provider, n) for n, k in enumerate(profile.kernels))
    tree, places = scopes(profile.graph), enumerate(profile.kernel_scopes)
    return followers((tree.scope_path[scope], number) for number, at in places for scope in scopes_around(tree, at))


def _fallback_rows(
    profile: Profile, order: Sequence[int], of_kernels: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    target, shapes, table = profile.wanted, shape_nodes(profile.graph), []
    for number, row in zip(order, of_kernels, strict=True):
        kernel = profile.kernels[number]
        if kernel.provider in ("", target) or kernel.op in MEMCPY:
            continue
        owners = {profile.assigned[node] for node in kernel.nodes if node in profile.assigned}
        small = bool(kernel.nodes) and kernel.op not in OWNERS and all(shapes[node] for node in kernel.nodes)
        why = "because they compute shapes, which onnxruntime leaves on the CPU"
        why = why if small else "for want of a kernel for their type, attributes or shape"
        gave, took = f"onnxruntime gave them to {short(kernel.provider)}", f"{short(target)} did not take them"
        reason = f"{gave if owners == {kernel.provider} else took}, probably {why}"
        about = {**row, "wanted": target, "assigned": ", ".join(sorted(owners)), "reason": reason}
        table.append({name: about[name] for name in FALLBACK})
    return table


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


def _node_rows(profile: Profile) -> list[dict[str, Any]]:
    graph, tree = profile.graph, scopes(profile.graph)
    kernels: dict[int, list[Kernel]] = {}
    for kernel in profile.kernels:
        inner = {call for node in kernel.opened for call in calls_around(graph, node)}
        for node in (*kernel.nodes, *sorted(inner - set(kernel.nodes)), *kernel.opened):
            kernels.setdefault(node, []).append(kernel)
    rows = []
    for node, name in enumerate(graph.names):
        members = kernels.get(node, [])
        size = max((len(_set(graph, kernel, node)) for kernel in members), default=0)
        seconds = float(sum(kernel.median for kernel in members)) if members else None
        status = "measured" if size == 1 else "in a set"
        if not members:
            status = "constant" if graph.folded[node] else "did not run"
        rows.append(
            {
                "node": name,
                "op": graph.operators[graph.op_index[node]][0],
                "scope": tree.scope_path[tree.node_scope[node]],
                "provider": next((k.provider for k in members if not k.edge), profile.assigned.get(node, "")),
                "kernel": ", ".join(dict.fromkeys(kernel.name for kernel in members)),
                "seconds": seconds if size == 1 else None,
                "set_seconds": seconds,
                "set_size": size,
                "status": status,
            }
        )
    return rows


def _set(graph: Graph, kernel: Kernel, node: int) -> tuple[int, ...]:
    """Return the nodes that share the time of a kernel with a node, and that: a call in place of what is inside it."""
    if node in kernel.nodes:
        return kernel.nodes
    return node, *(n for n in kernel.opened if n != node and node not in calls_around(graph, n))


def spread_of(seconds: NDArray[np.float64]) -> float:
    """Return half the interquartile range."""
    low, high = np.quantile(seconds, (0.25, 0.75))
    return float(high - low) / 2


def short(provider: str) -> str:
    """Return a provider as people call it."""
    return provider.removesuffix("ExecutionProvider")
