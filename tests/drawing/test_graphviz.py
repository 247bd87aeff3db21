"""The graph as DOT: against the graph and its scopes, and through dot."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphviz
import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from onnx import TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb import ModelGraph, OnnxNbError, to_graphviz
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import BODY_INPUT, GRAPH_INPUT
from onnx_nb.analysis.graph.operators import CATEGORIES, category
from onnx_nb.analysis.scopes.scopes import BODY, FUNCTION, Scopes, scopes
from onnx_nb.drawing.graphviz import _COLORS, BOX_LIMIT, view_to_graphviz
from tests import models
from tests.analysis.scopes.test_scopes import MODELS as EVERY
from tests.analysis.submodel.test_extraction import BRANCHES
from tests.dags import dags
from tests.depth import examples

FRONTEND = models.ROOT / "onnx_nb" / "frontend"
MODELS: dict[str, Callable[[], Path]] = {
    "one": models.one_node,
    "empty": models.empty,
    "functions": models.functions,
    "control_flow": models.control_flow,
    "chain": lambda: models.chain(1000),
    "densenet": lambda: models.light("densenet121"),
    "resnet": lambda: models.exported("resnet50", dynamo=True),
    "resnet torchscript": lambda: models.exported("resnet50", dynamo=False),
    "bert": lambda: models.exported("bert", dynamo=True),
    "llama": lambda: models.exported("llama", dynamo=True),
}
needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="the program dot is not installed")
SPACES = re.compile(r"[\s\xa0]+")


SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"


# ---------------------------------------------------------------- against the graph and its scopes


def graph_and_scopes(model: Any) -> tuple[Graph, Scopes]:
    graph = Graph.opened(model)
    return graph, scopes(graph)


def number_of(kind: str, name: str, model: Any) -> int:
    graph, tree = graph_and_scopes(model)
    return {"tensor": graph.value_names, "node": graph.names, "scope": tree.scope_path}[kind].index(name)


def clusters(source: str) -> set[int]:
    """Return the open scopes of a drawing, the root included."""
    return {0, *map(int, re.findall(r"subgraph cluster(\d+) ", source))}


def boxes_of(source: str) -> set[str]:
    """Return the boxes of a drawing: nodes, closed scopes, and what comes in and goes out."""
    return set(re.findall(r"^\s*((?:node|scope|input|output|result)\d+) \[", source, re.MULTILINE))


def drawn_edges(source: str) -> set[tuple[str, str]]:
    """Return the edges of a drawing as (source, target), those by way of stubs included."""
    lines = [line for line in source.splitlines() if "->" in line and "style=invis" not in line]
    pairs = [re.match(r"\s*(\w+)\S* -> (\w+)", line) for line in lines]
    edges = [(pair[1], pair[2]) for pair in pairs if pair]
    origin = {head: tail for tail, head in edges if head.startswith("stub")}
    return {(origin.get(tail.partition("_")[0], tail), head) for tail, head in edges if not head.startswith("stub")}


def expected_edges(model: Any, opened: set[int]) -> set[tuple[str, str]]:
    """Return an edge for each tensor from what shows its producer to what shows each of its readers, node by node."""
    graph, tree = graph_and_scopes(model)
    owned = {int(tree.scope_node[s]): s for s, k in enumerate(tree.scope_kind.tolist()) if k in (BODY, FUNCTION)}

    def box(node: int) -> str:
        scope = owned.get(node, int(tree.node_scope[node]))
        around = [scope]
        while around[-1]:
            around.append(int(tree.scope_parent[around[-1]]))
        closed = [each for each in around if each not in opened]
        return f"scope{closed[-1]}" if closed else f"open{node}" if node in owned else f"node{node}"

    def source(value: int) -> str:
        maker = int(graph.producer[value])
        if maker >= 0:
            shown = box(maker)
            return f"result{value}" if shown.startswith("open") else shown
        if graph.value_kind[value] == BODY_INPUT:
            owner = graph.subgraphs[graph.value_subgraph[value]].owner_node
            place = graph.bodies(owner).index(int(graph.value_subgraph[value]))
            branch = [s for s, parent in enumerate(tree.scope_parent.tolist()) if parent == owned[owner]][place]
            inside = f"scope{branch}" if branch not in opened else f"input{value}"
            return inside if box(owner).startswith("open") else box(owner)
        return f"{'input' if graph.value_kind[value] == GRAPH_INPUT else 'missing'}{value}"

    constant = graph.constant_values
    found = set()
    for node in np.flatnonzero(~graph.folded).tolist():
        reads = [value for value in graph.node_inputs(node).tolist() if value >= 0 and not constant[value]]
        found |= {(source(value), box(node)) for value in reads if not box(node).startswith("open")}
        if box(node).startswith("open"):
            handed_on = {
                value
                for inner in np.flatnonzero(~graph.folded & (np.arange(graph.node_count) != node)).tolist()
                for value in graph.node_inputs(inner).tolist()
                if tree.scope_kind[owned[node]] == FUNCTION
                and owned[node] in path_of(tree, int(tree.node_scope[inner]))
            }
            found |= {(source(value), f"enter{node}") for value in reads if value not in handed_on}
    for subgraph in graph.subgraphs[1:]:
        owner = subgraph.owner_node
        given = subgraph.outputs.tolist()[graph.nodes[owner].op_type == "Loop" :]
        for value, made in zip(given, graph.node_outputs(owner).tolist(), strict=False):
            if box(owner).startswith("open") and min(value, made) >= 0 and not constant[value]:
                found.add((source(value), f"result{made}"))
    outputs = enumerate(graph.outputs.tolist())
    found |= {(source(value), f"output{place}") for place, value in outputs if value >= 0 and not constant[value]}
    return {(tail, head) for tail, head in found if tail != head}


def path_of(tree: Scopes, scope: int) -> list[int]:
    found = [scope]
    while found[-1]:
        found.append(int(tree.scope_parent[found[-1]]))
    return found


@pytest.mark.parametrize(
    ("name", "opening"),
    [
        (name, opening)
        for name in MODELS
        for opening in ("first", "nothing", "everything", "every second")
        if (name, opening) != ("llama", "everything")  # has more boxes than are drawn
    ],
)
def test_every_box_and_edge_is_one_of_the_graph(name: str, opening: str) -> None:
    path = MODELS[name]()
    graph, tree = graph_and_scopes(path)
    every = {scope: f"{path}#{scope}" for scope, path in enumerate(tree.scope_path)}
    asked = {"nothing": {0}, "everything": set(every), "every second": set(list(every)[::2])}.get(opening)
    paths = None if asked is None else [every[scope] for scope in asked]
    source = view_to_graphviz(path, paths, (), direction="down", theme="light").source
    shown = clusters(source)
    if asked is not None:
        assert shown == {scope for scope in asked if asked.issuperset(path_of(tree, scope))}
    boxes = set(re.findall(r"^\s*(node\d+|scope\d+) \[", source, re.MULTILINE))
    closed = {s for s in range(1, len(tree.scope_path)) if s not in shown and int(tree.scope_parent[s]) in shown}
    owners = set(tree.scope_node.tolist())
    nodes = {n for n in np.flatnonzero(~graph.folded).tolist() if int(tree.node_scope[n]) in shown and n not in owners}
    assert boxes == {f"node{node}" for node in nodes} | {f"scope{scope}" for scope in closed}
    assert drawn_edges(source) == expected_edges(path, shown)


def test_every_edge_of_a_broken_graph_is_drawn() -> None:
    for proto in (cyclic(), dangling(), twice()):
        source = to_graphviz(proto).source
        assert drawn_edges(source) == expected_edges(proto, clusters(source))


def test_a_scope_that_also_reads_an_outer_value_itself_is_met_by_a_solid_line() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (bool c, float x) => (float z, float w) {
        y = If(c) <then_branch = t () => (float o) { o = Abs(x) }, else_branch = e () => (float p) { p = Neg(x) }>
        v = Exp(x) z = Add(v, y) w = Abs(c) }"""
    proto = onnx.parser.parse_model(text)
    for node, name in zip(proto.graph.node, ("/blk/If", "/blk/Exp", "/blk/Add", "/Abs"), strict=True):
        node.name = name
    for opened in ([], ["blk"]):
        source = to_graphviz(proto, open=opened).source
        assert drawn_edges(source) == expected_edges(proto, clusters(source))
    assert "style=dashed" not in to_graphviz(proto, open=[]).source


# ---------------------------------------------------------------- the DOT, against a count of its own


def cyclic() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "c"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    return model_of(
        [*nodes, helper.make_node("Abs", ["b"], ["c"]), helper.make_node("Sum", ["c", "c", "self"], ["self"])], "c"
    )


def dangling() -> onnx.ModelProto:
    return model_of([helper.make_node("Add", ["x", "nobody"], ["y"], "add")], "y")


def twice() -> onnx.ModelProto:
    """Names that stand for two things, an input listed twice, an output nobody makes, two weights as outputs."""
    proto = model_of([helper.make_node("Neg", ["x"], ["y"], "n"), helper.make_node("Abs", ["y"], ["y"], "n")], "y")
    proto.graph.input.append(proto.graph.input[0])
    for name in ("nobody", "w", "y"):
        proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]))
    return proto


def model_of(nodes: list[onnx.NodeProto], output: str) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", output)]
    weights = [numpy_helper.from_array(np.zeros(2, np.float32), "w")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def laid_out(drawn: graphviz.Digraph) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """What dot makes of it: nodes and clusters by name, and edges with the names of their ends."""
    found = json.loads(drawn.pipe("json"))
    objects = found.get("objects", [])
    edges = [
        {**edge, "ends": (objects[edge["tail"]]["name"], objects[edge["head"]]["name"])}
        for edge in found.get("edges", [])
        if edge.get("style") != "invis"
    ]
    return {each["name"]: each for each in objects}, edges


def svg_of(drawn: graphviz.Digraph) -> ET.Element:
    return ET.fromstring(drawn.pipe("svg"))  # noqa: S314 (dot made it just now)


def flat_edges(proto: onnx.ModelProto) -> Counter[tuple[str, str]]:
    """Count for a model without bodies, by names alone: (maker, reader) of every tensor, once a reader."""
    graph = proto.graph
    weights = {w.name for w in graph.initializer}
    makers = {f"{v.name}": f"input:{v.name}" for v in graph.input}
    for place, node in enumerate(graph.node):
        makers |= {name: f"node{place}" for name in node.output if name}
    found: Counter[tuple[str, str]] = Counter()
    for place, node in enumerate(graph.node):
        for name in dict.fromkeys(node.input):
            if name and name not in weights:
                found[makers[name], f"node{place}"] += 1
    for place, output in enumerate(graph.output):
        if output.name not in weights:
            found[makers[output.name], f"output{place}"] += 1
    return found


def named_ends(proto: onnx.ModelProto, drawn: graphviz.Digraph) -> Counter[tuple[str, str]]:
    """The edges of the DOT text itself, without dot: identifiers as `flat_edges` has them."""
    graph = Graph.opened(proto)
    found: Counter[tuple[str, str]] = Counter()
    for line in drawn.source.splitlines():
        edge = re.match(r"\t(\w+?)(?::\w+)* -> (\w+?)(?::\w+)* \[", line)
        if edge and not edge[2].startswith("stub"):
            tail = edge[1]
            if tail.startswith("stub"):
                value = int(tail.partition("_")[0].removeprefix("stub"))
                tail = f"node{graph.producer[value]}" if graph.producer[value] >= 0 else f"input{value}"
            if tail.startswith("input"):
                tail = f"input:{graph.value_names[int(tail.removeprefix('input'))]}"
            found[tail, edge[2]] += 1
    return found


@pytest.mark.parametrize("seed", range(5))
def test_there_is_one_edge_for_each_tensor_and_reader(seed: int) -> None:
    random = np.random.default_rng(seed)
    tensors, nodes = ["x"], list[onnx.NodeProto]()
    for number in range(60):
        reads = [tensors[i] for i in random.integers(max(0, len(tensors) - 9), len(tensors), random.integers(1, 4))]
        made = [f"t{number}_{k}" for k in range(random.integers(1, 3))]
        weights = ["w"] * int(random.integers(0, 2))
        nodes.append(helper.make_node("Any", [*reads, "", *weights], made, f"n{number}", domain="my"))
        tensors += made
    proto = model_of(nodes, tensors[-1])
    proto.graph.output.append(helper.make_tensor_value_info("t20_0", TensorProto.FLOAT, [2]))
    proto.graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]))
    assert named_ends(proto, to_graphviz(proto, open=["*"])) == flat_edges(proto)


@given(dags())
@examples(25)
def test_random_graphs_show_every_tensor_once_for_each_reader(proto: onnx.ModelProto) -> None:
    drawn = to_graphviz(proto, open=["*"])
    graph, tree = graph_and_scopes(proto)
    owned = {int(tree.scope_node[s]): s for s, k in enumerate(tree.scope_kind.tolist()) if k in (BODY, FUNCTION)}
    shown = np.flatnonzero(~graph.folded).tolist()
    expected = set()
    for node in shown:
        for value in graph.node_inputs(node).tolist():
            if value >= 0 and not graph.constant_values[value]:
                scope = owned.get(node, -1)
                if scope >= 0 and tree.scope_kind[scope] == FUNCTION:
                    readers = set(graph.consumers(value).tolist()) & set(shown)
                    if any(scope in path_of(tree, int(tree.node_scope[reader])) for reader in readers):
                        continue  # nodes inside the call read it
                reader = f"enter{node}" if scope >= 0 else f"node{node}"
                expected.add((graph.value_names[value], reader))
    lines = [line for line in drawn.source.splitlines() if "->" in line and "style=invis" not in line]
    found = [
        (re.search(r'tooltip="?([^"\n]+)', line + "\n")[1], re.search(r"-> (\w+)", line)[1])  # type: ignore[index]
        for line in lines
    ]
    reads = [end for end in found if end[1].startswith(("node", "enter"))]
    assert len(set(reads)) == len(reads)
    assert {(name.split(" ")[0], reader) for name, reader in reads} == expected


@needs_dot
@pytest.mark.parametrize("direction", ["down", "right"])
def test_inputs_keep_their_order_and_are_met_at_their_ports(direction: Any) -> None:
    """c − a − b … read in an order that is not that of the inputs."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] a, float[2] b, float[2] c, bool[2] d) => (float[2] y) { y = Where(d, c, a) z = Sum(c, b, a) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [2]))
    boxes, edges = laid_out(to_graphviz(proto, direction=direction))
    names_of = Graph.opened(proto).value_names
    axis = 0 if direction == "down" else 1
    for node, names in (("node0", "dca"), ("node1", "cba")):
        order = []
        for edge in edges:
            if edge["ends"][1] == node:
                tip = edge["pos"].split()[0].removeprefix("e,").split(",")
                at = float(tip[axis]) * (1 if direction == "down" else -1)
                order.append((at, names_of[int(edge["ends"][0].removeprefix("input"))]))
        assert "".join(name for _, name in sorted(order)) == names
        assert {edge["headport"][:2] for edge in edges if edge["ends"][1] == node} == {"i0", "i1", "i2"}
    assert len(boxes) == 4 + 2 + 2


@pytest.mark.parametrize("name", EVERY)
def test_a_model_opens_on_20_to_60_boxes(name: str) -> None:
    path = EVERY[name]()
    graph = Graph.of(path)
    boxes = len(boxes_of(to_graphviz(path).source))
    try:
        everything = len(boxes_of(to_graphviz(path, open=["*"]).source))
    except OnnxNbError:
        everything = BOX_LIMIT
    assert boxes == everything if everything <= 20 + len(graph.inputs) + len(graph.outputs) else 20 <= boxes <= 60


@needs_dot
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_dot_draws_every_box_and_edge(name: str, theme: Any) -> None:
    path = MODELS[name]()
    drawn = to_graphviz(path, theme=theme)
    graph, opened = Graph.opened(path), clusters(drawn.source)
    objects, edges = laid_out(drawn)
    shown = {each for each in objects if re.match(r"(node|scope|input|output|result)\d", each)}
    assert shown == boxes_of(drawn.source)
    assert {each for each in objects if each.startswith("cluster")} == {f"cluster{scope}" for scope in opened - {0}}
    stubs = {each["ends"][1] for each in edges if each["ends"][1].startswith("stub")}
    lines = [line for line in drawn.source.splitlines() if "->" in line and "style=invis" not in line]
    assert len(edges) - len(stubs) == sum("-> stub" not in line for line in lines) >= len(expected_edges(path, opened))
    svg = svg_of(drawn)
    words = SPACES.sub(" ", " ".join("".join(each.itertext()) for each in svg.iter(f"{SVG}text")))
    for node in (int(each.removeprefix("node")) for each in shown if each.startswith("node")):
        assert graph.operators[graph.op_index[node]][0] in words
    tips = (re.search(r'tooltip="?([^"\n ]+)', line) for line in lines if "-> stub" not in line)
    for tensor in {tip[1] for tip in tips if tip} & set(graph.value_names):
        shape = graph.type_of(graph.value_names.index(tensor)).shape_text
        assert len(shape) > 24 or shape in words
    colors = {_COLORS[category][theme == "dark"] for category in CATEGORIES}
    stripes = {polygon.get("fill") for polygon in svg.iter(f"{SVG}polygon")}
    operators = [graph.operators[graph.op_index[int(each[4:])]] for each in shown if each.startswith("node")]
    kinds = {CATEGORIES[category(*operator)] for operator in operators}
    assert stripes & colors == {_COLORS[category][theme == "dark"] for category in kinds}
    pictures = models.ROOT / "build" / "screenshots"
    pictures.mkdir(parents=True, exist_ok=True)
    (pictures / f"graphviz-{name.replace(' ', '-')}-{theme}.png").write_bytes(drawn.pipe("png"))


def test_weights_scalars_and_attributes_are_in_their_node() -> None:
    source = to_graphviz(models.functions()).source
    assert "block.0.weight" not in source.replace("tooltip", "")
    node = {n: next(line for line in source.splitlines() if line.strip().startswith(f"node{n} ")) for n in (4, 10)}
    words = {n: SPACES.sub(" ", re.sub("<[^>]*>|&#160;", " ", line)) for n, line in node.items()}
    # inside of calls, too
    assert "MatMul B 3×3" in words[4]
    assert "Mul B 0.5" in words[10]


def test_closed_scopes_show_their_contents_and_repeats() -> None:
    source = to_graphviz(models.chain(1000), open=[]).source
    words = SPACES.sub(" ", re.sub("<[^>]*>|&#160;", " ", source))
    assert "layers 0–57 ×58" in words
    assert "17 ops each" in words


def test_outer_scope_values_are_dashed_and_no_others() -> None:
    graph = Graph.opened(models.control_flow())
    hidden, x = graph.value_names.index("hidden"), graph.value_names.index("x")
    lines = [line for line in to_graphviz(models.control_flow()).source.splitlines() if "->" in line]
    dashed = [line for line in lines if "style=dashed" in line]
    owner = {name: node for node, name in enumerate(graph.names)}
    expected = {
        f"node{graph.producer[hidden]}:s -> node{owner['/choose/then/Add']}:n",
        f"node{graph.producer[hidden]}:s -> node{owner['/choose/else/Sub']}:n",
        f"input{x}:s -> node{owner['/loop/Add']}:i1:n",
    }
    assert {line.strip().split(" [")[0] for line in dashed} == expected


# ---------------------------------------------------------------- names that are not trusted

HOSTILE = [
    "<b>x</b>",
    'a"b\\',
    'a\\"b',
    "line\nbreak\r\tx",
    "x" * 10_000,
    "😀🤷🏽\u200d♀️",
    "\x01\x1b[31m",
    "&amp;&lt;&#78;",
    "\\N\\G\\E\\L",
    "\\\\N",
    "<>",
    "-->",
    "} digraph {",
    "\u202eabc",
    "node0:s",
    "%s{}",
    "'",
    "\ufffe\uffff",
    "]]>",
    "\u2028",
    "/*",
    "//",
    "#x",
    "\\",
    " ",
    "node",
    "\n",
]


@needs_dot
def test_hostile_names_are_text_and_nothing_else() -> None:
    nodes, tensor = [], "x"
    for number, name in enumerate(HOSTILE):
        made = f"{name}_{number}"
        nodes.append(helper.make_node(name, [tensor, "w<&"], [made], name, domain="d" + name, text=name))
        tensor = made
    weights = [numpy_helper.from_array(np.zeros((2, 2, 2), np.float32), "w<&")]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b<i>\\N", "😀\n"]),
        helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None),
    ]
    proto = helper.make_model(helper.make_graph(nodes, '../../"<g>\\', ends[:1], ends[1:], weights))
    drawn = to_graphviz(proto)
    assert Path(drawn.filepath).name == "model.gv"
    objects, edges = laid_out(drawn)
    assert {name for name in objects if name.startswith("node")} == {f"node{n}" for n in range(len(HOSTILE))}
    assert len(edges) == len(HOSTILE) + 1
    svg = svg_of(drawn)
    assert {element.tag.removeprefix(SVG) for element in svg.iter()} == {
        "svg",
        "g",
        "title",
        "polygon",
        "path",
        "text",
        "a",
    }
    words = "".join("".join(each.itertext()) for each in svg.iter(f"{SVG}text")).replace("\u2060", "")
    assert words.count("\\N\\G\\E\\L") == 3  # operator, domain and attribute
    links = list(svg.iter(f"{SVG}a"))
    assert {key for link in links for key in link.attrib} == {f"{LINK}title"}
    tips = {
        group.findtext(f"{SVG}title"): group.findall(f".//{SVG}a")[0].get(f"{LINK}title", "")
        for group in svg.iter(f"{SVG}g")
        if group.get("class") == "node"
    }
    for number, name in enumerate(HOSTILE):
        said = tips[f"node{number}"].replace("\u2060", "")
        plain = SPACES.sub(" ", re.sub("[\x00-\x1f\ufffe\uffff\u2028]", " ", name)).strip()
        assert (plain[:100] if len(plain) > 300 else plain) in SPACES.sub(" ", said), name
    assert max(map(len, drawn.source.splitlines())) < 6000


# ---------------------------------------------------------------- faults, nothing, too much


@needs_dot
def test_problems_are_marked_and_explained() -> None:
    drawn = to_graphviz(dangling())
    objects, edges = laid_out(drawn)
    assert "⚠" in objects["node0"]["label"]
    assert "nobody" in objects["node0"]["tooltip"]
    missing = next(name for name in objects if name.startswith("missing"))
    assert (missing, "node0") in [edge["ends"] for edge in edges]
    assert "⚠" not in to_graphviz(models.one_node()).source


@needs_dot
def test_cycles_are_drawn() -> None:
    _, edges = laid_out(to_graphviz(cyclic()))
    ends = [edge["ends"] for edge in edges]
    assert ("node2", "node0") in ends
    assert "⚠" in to_graphviz(cyclic()).source


@needs_dot
def test_problems_in_closed_scopes_mark_the_scope() -> None:
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], f"/{'abc'[i // 12]}/Relu_{i}") for i in range(36)]
    nodes[30].op_type = "Unheard"
    ends = [helper.make_tensor_value_info(f"t{i}", TensorProto.FLOAT, [2]) for i in (0, 36)]
    proto = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]))
    objects, _ = laid_out(to_graphviz(proto, open=[]))
    assert [name for name, each in objects.items() if "⚠" in each["label"]] == ["scope3"]
    assert "Unheard" in objects["scope3"]["tooltip"]
    opened, _ = laid_out(to_graphviz(proto, open=["c"]))
    assert [name for name, each in opened.items() if "⚠" in each.get("label", "")] == ["node30"]


@needs_dot
@pytest.mark.parametrize("readers", [8, 9])
def test_a_tensor_with_many_readers_is_drawn_as_stubs_with_its_name(readers: int) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["wide<b>"], "make")]
    nodes += [helper.make_node("Abs", ["wide<b>"], [f"a{number}"]) for number in range(readers)]
    nodes.append(helper.make_node("Sum", [f"a{number}" for number in range(readers)], ["y"]))
    objects, edges = laid_out(to_graphviz(model_of(nodes, "y")))
    stubs = [name for name in objects if name.startswith("stub")]
    ends = [edge["ends"] for edge in edges]
    if readers == 8:
        assert not stubs
        assert [("node0", f"node{number + 1}") for number in range(8)] == [end for end in ends if end[0] == "node0"]
    else:
        assert len(stubs) == 10
        tail = min(stubs, key=len)
        assert all("wide&lt;b&gt;" in objects[name]["label"] for name in stubs)
        assert [end for end in ends if end[0] == "node0"] == [("node0", tail)]
        assert {end for end in ends if end[0].startswith("stub")} == {
            (f"{tail}_node{number + 1}", f"node{number + 1}") for number in range(9)
        }


@needs_dot
def test_dot_finishes_with_all_of_a_transformer_open() -> None:
    """Masks and shapes that every layer reads made it run for minutes."""
    objects, _ = laid_out(to_graphviz(models.exported("bert", dynamo=True), open=["*"]))
    assert sum(name.startswith("node") for name in objects) > 400


@needs_dot
def test_an_empty_graph_says_so() -> None:
    objects, edges = laid_out(to_graphviz(models.empty()))
    assert [each["label"] for each in objects.values()] == ["This model has no nodes."]
    assert not edges


@needs_dot
def test_a_branch_without_nodes_is_drawn() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (bool c, float x) => (float y) {
        y = If(c) <then_branch = t () => (float o) { o = Abs(x) }, else_branch = e () => (float x) {} > }"""
    objects, _ = laid_out(to_graphviz(onnx.parser.parse_model(text)))
    assert sum(name.startswith("cluster") for name in objects) == 3


def test_too_many_boxes_are_refused_with_advice() -> None:
    with pytest.raises(OnnxNbError, match=r"would have [\d,]+ boxes.*Close scopes") as caught:
        to_graphviz(models.chain(10_000), open=["*"])
    assert f"{BOX_LIMIT:,}" in caught.value.message
    assert len(to_graphviz(models.chain(100_000)).source) < 200_000


def test_without_dot_the_text_is_there_and_drawing_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    drawn = to_graphviz(models.one_node())
    assert drawn.source.startswith("digraph model {")
    with pytest.raises(graphviz.ExecutableNotFound):
        drawn.pipe("svg")


def test_wrong_arguments_are_explained() -> None:
    with pytest.raises(OnnxNbError, match=r"no direction 'up'.* Use 'down' or 'right'"):
        to_graphviz(models.one_node(), direction="up")  # type: ignore[arg-type]
    with pytest.raises(OnnxNbError, match=r"no theme 'auto'.* Use 'light' or 'dark'"):
        to_graphviz(models.one_node(), theme="auto")  # type: ignore[arg-type]
    with pytest.raises(OnnxNbError, match=r"no scope is called 'layers.60'.*'layers.6'"):
        to_graphviz(models.chain(1000), open=["layers.60"])
    with pytest.raises(OnnxNbError, match=r"called '/layers.0/attn/sofmax'.*'/layers.0/attn/Softmax'"):
        to_graphviz(models.chain(1000), highlight=["/layers.0/attn/sofmax"])


def test_the_model_is_not_changed() -> None:
    proto = onnx.parser.parse_model(BRANCHES)
    before = proto.SerializeToString(deterministic=True)
    onnx_nb.to_graphviz(proto, highlight=[proto.graph.input[0].name])
    assert proto.SerializeToString(deterministic=True) == before


# ---------------------------------------------------------------- what is open, what is lit


def test_scopes_open_by_path_with_those_around_them_and_by_pattern() -> None:
    path = models.chain(1000)
    tree = graph_and_scopes(path)[1]
    layer = number_of("scope", "layers.3/attn", path)

    def opened(patterns: Any) -> set[int]:
        return clusters(to_graphviz(path, open=patterns).source)

    assert opened(["layers.3/attn"]) == opened(f"layers.3/attn#{layer}") == set(path_of(tree, layer))
    assert {tree.scope_path[scope] for scope in opened(["layers.?/attn"])} == {
        "",
        "layers 0–57",
        *(f"layers.{i}" for i in range(10)),
        *(f"layers.{i}/attn" for i in range(10)),
    }
    assert opened(["*"]) == set(range(len(tree.scope_path)))
    assert opened([]) == {0}


def accented(drawn: graphviz.Digraph, theme: str = "light") -> set[str]:
    """What is drawn in the accent's color, or in that of what is missing."""
    accent, bad = (_COLORS[name][theme == "dark"] for name in ("accent", "bad"))
    lines = [line.strip() for line in drawn.source.splitlines() if re.search(r"\w+ (\[|->)", line)]
    lines = [line for line in lines if re.search(f'(?i)color="?({accent}|{bad})', line)]
    return {re.sub(r":\w+", "", line.split(" [")[0]) for line in lines if not line.startswith(("node [", "edge ["))}


def test_highlights_light_tensors_nodes_and_the_closed_scopes_around_them() -> None:
    path = models.chain(1000)
    scope, node = number_of("scope", "layers 0–57", path), number_of("node", "/head.0/Tanh", path)
    assert accented(to_graphviz(path, open=[])) == set()
    assert accented(to_graphviz(path, open=[], highlight="/layers.5/attn/Softmax")) == {f"scope{scope}"}
    assert accented(to_graphviz(path, open=[], highlight=["/head.0/Tanh"])) == {f"node{node}"}
    made = "/head.0/Tanh_output_0"
    lit = {f"node{node}", f"node{node + 1}", f"node{node} -> node{node + 1}"}
    assert accented(to_graphviz(path, open=[], highlight=[made])) == lit


def test_a_widget_draws_what_it_shows() -> None:
    path = models.chain(1000)
    g = ModelGraph(path, theme="dark")
    tree = graph_and_scopes(path)[1]
    layer = number_of("scope", "layers.3", path)
    row = int(tree.scope_parent[layer])
    assert g.to_graphviz().source == to_graphviz(path, theme="dark").source
    # what the browser writes: paths with numbers, the root among them
    g.view = {"open": ["#0", f"layers 0–57#{row}", f"layers.3#{layer}", "gone#99999"]}
    assert g.to_graphviz().source == to_graphviz(path, open=["layers.3"], theme="dark").source
    # all but one
    g.view = {"open": ["*", f"-layers.3#{layer}"]}
    inside = {scope for scope in range(len(tree.scope_path)) if layer in path_of(tree, scope)}
    assert clusters(g.to_graphviz().source) == set(range(len(tree.scope_path))) - inside
    g.view = {"open": ["#0"]}
    g.selection = [{"kind": "node", "name": "", "id": number_of("node", "/head.0/Tanh", path)}]
    light = g.to_graphviz(theme="light", direction="right")
    assert light.source == to_graphviz(path, open=[], direction="right", highlight=["/head.0/Tanh"]).source
    g.selection = [{"kind": "tensor", "name": "gone"}, {"kind": "tensor", "name": "x", "id": 10**9}, {}]
    assert g.to_graphviz().source == to_graphviz(path, open=[], highlight=["x"], theme="dark").source
    g.close()


def test_a_widget_draws_the_chosen_inputs_and_outputs() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {
        a = Abs(x) b = Neg(a) c = Mul(b, a) d = Relu(c) y = Exp(d) }"""
    proto = onnx.parser.parse_model(text)
    g = ModelGraph(proto, inputs=["a"], outputs=["d"])
    assert g.to_graphviz().source == to_graphviz(proto, highlight=["a", "d"]).source
    assert accented(g.to_graphviz()) >= {"node0 -> node1", "node0 -> node2", "node3 -> node4"}
    g.close()


# ---------------------------------------------------------------- colors


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colors_are_those_of_the_stylesheet(theme: str) -> None:
    css = (FRONTEND / "style" / "base.css").read_text()
    blocks = re.findall(r"^\.onnx-nb(?:-dark)? \{(.*?)^\}", css, re.DOTALL | re.MULTILINE)
    found: dict[str, str] = dict(re.findall(r"--nb-([\w-]+): (.*?);", blocks[0]))
    if theme == "dark":
        found |= dict(re.findall(r"--nb-([\w-]+): (.*?);", blocks[1]))
    own = {name: pair[theme == "dark"] for name, pair in _COLORS.items()}
    names = {"bg-own": "background", "text-own": "text", "accent-own": "accent", "bad": "bad", "warn": "warn"}
    names |= {f"cat-{category}": category for category in CATEGORIES}
    assert {name: own[ours] for name, ours in names.items()} == {name: found[name] for name in names}

    def color(variable: str) -> list[int]:
        given: str = found.get(f"{variable}-own", found[variable])
        if given.startswith("#"):
            return [int(given[at : at + 2], 16) for at in (1, 3, 5)]
        one = re.fullmatch(r"var\(--nb-(\w+)\)", given)
        if one:
            return color(one[1])
        mix = re.fullmatch(r"color-mix\(in srgb, var\(--nb-(\w+)\) ([\d.]+)%, var\(--nb-(\w+)\)\)", given)
        assert mix
        share = float(mix[2]) / 100
        return [round(a * share + b * (1 - share)) for a, b in zip(color(mix[1]), color(mix[3]), strict=True)]

    mixed = ("line", "card", "scope0", "scope1", "dim", "edge")
    assert {name: own[name] for name in mixed} == {name: "#" + bytes(color(name)).hex() for name in mixed}
