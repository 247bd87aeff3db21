// @vitest-environment jsdom

import { describe, expect, test } from "vitest";
import { buildScene, createCache } from "../layout/build.ts";
import type { Columns } from "../protocol/columns.ts";
import type { Direction, OverlayData } from "../protocol/host.ts";
import { columnsOf, measure } from "../protocol/testing.ts";
import { Overlay } from "../scene/overlay.ts";
import { BOX } from "../scene/scene.ts";
import { initialState } from "../scene/state.ts";
import type { Picture } from "./canvas.ts";
import { marksOf } from "./highlights.ts";
import { HitIndex } from "./hit.ts";
import { inkOf, toSvg } from "./svg.ts";
import { createRamp, type Theme } from "./theme.ts";

const THEME: Theme = {
  dark: false,
  background: "#ffffff",
  line: "#d0d0d0",
  text: "#111111",
  dim: "#666666",
  card: "#fefefe",
  scopes: ["#f4f4f4", "#eeeeee"],
  edge: "#999999",
  accent: "#0066cc",
  halo: "rgb(0 102 204 / 20%)",
  bad: "#cc0000",
  good: "#1a7f37",
  cut: "#7b3fb5",
  hit: "#e0a800",
  output: "#bc4c00",
  warn: "#ee9900",
  font: '"Segoe UI", sans-serif',
  categories: ["#0072b2", "#d55e00"],
  ramp: createRamp(false),
};

function pictureOf(columns: Columns, direction: Direction = "down"): Picture {
  const state = initialState(Array.from({ length: columns.scopeCount }, (_, scope) => scope));
  const scene = buildScene(columns, state.open, measure, createCache(), { direction });
  const index = new HitIndex(scene, measure);
  return {
    scene,
    columns,
    index,
    marks: marksOf(scene, columns, state, new Map()),
    theme: THEME,
    measure,
    overlay: null,
  };
}

function parsed(text: string): Document {
  const document = new DOMParser().parseFromString(text, "image/svg+xml");
  expect(document.querySelector("parsererror")?.textContent).toBeUndefined();
  return document;
}

const PLAIN = columnsOf(`
  input x batch×8 float32
  weight W 8×8 float32
  MatMul enc/mm : x W -> p
  Relu enc/act : p -> q
  Add out : q x -> y
  output y
`);

/** Returns width and dashes of each line of the color of wires. */
function wiresIn(columns: Columns): [width: string | null, dashes: string | null][] {
  const lines = parsed(toSvg(pictureOf(columns))).querySelectorAll(`path[stroke="${THEME.edge}"]`);
  return Array.from(lines, (line) => [line.getAttribute("stroke-width"), line.getAttribute("stroke-dasharray")]);
}

describe("toSvg", () => {
  test("draws wires by the bytes of their tensors, and dashes those of shape arithmetic", () => {
    const model = `
      input x N×256×256×256 float32
      type a ?×? float32
      Relu act : x -> a
      Shape shape : x -> s
      type s 4 int64
      Reshape re : a s -> y
      output y 4 float32
    `;
    const widths = (wires: ReturnType<typeof wiresIn>) => new Set(wires.map(([width]) => width));
    expect(widths(wiresIn(columnsOf(model)))).toEqual(new Set(["4", "1"]));
    expect(new Set(wiresIn(columnsOf(model)).map(([, dashes]) => dashes))).toEqual(new Set([null]));
    const dashed = wiresIn(columnsOf(`${model}\nshapes shape`)).filter(([, dashes]) => dashes === "2 3");
    expect(dashed, "into the Shape, although the tensor is large, and out of it").toEqual([["1", "2 3"]]);
  });

  test("has one path for each width, however many wires there are", () => {
    const names = Array.from({ length: 200 }, (_, at) => `t${at}`);
    const types = names.map((name, at) => `type ${name} ${10 ** (at % 9)} float32`);
    const nodes = names.slice(1).map((name, at) => `Relu n${at} : ${names[at]} -> ${name}`);
    const wires = wiresIn(columnsOf(["input t0", ...types, ...nodes, `output ${names.at(-1)}`].join("\n")));
    expect(new Set(wires.map(([width]) => width)).size).toBe(6);
    expect(wires.length, "lines and arrows").toBe(12);
  });

  test("draws a thousand equal tensors as one band, each of which can be hit", () => {
    const names = Array.from({ length: 1000 }, (_, i) => `s${i}`);
    const columns = columnsOf(`
input x 1000 float32
Split split : x -> ${names.join(" ")}
${names.map((name) => `type ${name} 1 float32`).join("\n")}
Concat concat : ${names.join(" ")} -> y
output y
`);
    const picture = pictureOf(columns);
    const svg = toSvg(picture);
    const lines = Array.from(parsed(svg).querySelectorAll('path[fill="none"]'), (path) => path.getAttribute("d") ?? "");
    expect(svg).toContain("1,000 tensors 1 f32");
    expect(lines.join("").match(/M/g)?.length).toBeLessThan(30);
    const at = (name: string) => {
      const target = columns.find(name, "tensor") ?? expect.fail(name);
      return picture.index.pointOf(target, 6, 1, () => true);
    };
    expect(at("s3")?.x).toBeLessThan(at("s990")?.x ?? 0);
    for (const name of ["s0", "s3", "s500", "s990", "s999"]) expect(at(name), name).not.toBeNull();

    // single lines when there are few
    const few = names.slice(0, 20);
    const sparse = columnsOf(`
input x 20 float32
Split split : x -> ${few.join(" ")}
${few.map((name) => `type ${name} 1 float32`).join("\n")}
Concat concat : ${few.join(" ")} -> y
output y
`);
    const each = Array.from(parsed(toSvg(pictureOf(sparse))).querySelectorAll('path[fill="none"]'), (path) =>
      path.getAttribute("d"),
    );
    expect(each.join("").match(/M/g)?.length).toBeGreaterThan(40);
  });

  test("centers the text of a box that is higher than its text", () => {
    const columns = columnsOf(`
input a 2 float32
input b 2 float32
input c 2 float32
input d 2 float32
Concat join : a b c d -> y
output y
`);
    const picture = pictureOf(columns, "right");
    const { boxes } = picture.scene;
    const box = picture.scene.boxOf("node", 0);
    const title = Array.from(parsed(toSvg(picture)).querySelectorAll("text")).find(
      (each) => each.textContent === "Concat",
    );
    expect(boxes.h[box]).toBeGreaterThan(40);
    // the baseline is a third of the letters' height below the middle
    const middle = boxes.y[box] + boxes.h[box] / 2;
    expect(Math.abs(Number(title?.getAttribute("y")) - 4 - middle)).toBeLessThan(2);
  });

  test("draws every box with its text", () => {
    const picture = pictureOf(PLAIN);
    const document = parsed(toSvg(picture));
    const texts = Array.from(document.querySelectorAll("text"), (element) => element.textContent);
    const { boxes } = picture.scene;
    for (let box = 0; box < boxes.count; box++) expect(texts).toContain(picture.scene.label(box).title);
    expect(texts.filter((text) => text === "–").length).toBe(
      Array.from(boxes.kind).filter((kind) => kind === BOX.OPEN).length,
    );
    const { width, height } = (document.documentElement as unknown as SVGSVGElement).attributes as never as Record<
      string,
      Attr
    >;
    expect(Number(width.value)).toBeGreaterThanOrEqual(picture.scene.bounds.w);
    expect(Number(height.value)).toBeGreaterThanOrEqual(picture.scene.bounds.h);
  });

  test("lists the labels of an overlay below a narrow picture; more than eight share the last color", () => {
    const listed = (count: number): { texts: string[]; width: number; ends: number[] } => {
      const labels = Array.from({ length: count }, (_, at) => `provider number ${at}`);
      const nodes = Float64Array.from({ length: 2 }, (_, at) => at);
      const data = { label: "by", scale: "linear", reduce: "max", unmatched: 0, labels, nodes, scopes: nodes };
      const svg = parsed(toSvg({ ...pictureOf(PLAIN), overlay: new Overlay(data as OverlayData) }));
      const shown = [...svg.querySelectorAll("text")].filter((each) => /provider|others/.test(each.textContent ?? ""));
      const ends = shown.map((each) => Number(each.getAttribute("x")));
      return {
        texts: shown.map((each) => each.textContent ?? ""),
        width: Number(svg.documentElement.getAttribute("width")),
        ends,
      };
    };
    const { texts, width, ends } = listed(8);
    expect(texts).toEqual(Array.from({ length: 8 }, (_, at) => `provider number ${at}`));
    expect(Math.max(...ends)).toBeLessThan(width);
    expect(new Set(ends).size).toBeLessThan(8); // in rows
    expect(listed(30).texts.slice(6)).toEqual(["provider number 6", "23 others"]);
  });

  test("puts a ground under each title and each label of an edge, above all edges", () => {
    const shapes = [...parsed(toSvg(pictureOf(PLAIN))).querySelectorAll("path, rect, text")];
    const lastLine = shapes.findLastIndex((each) => each.getAttribute("stroke") === THEME.edge);
    for (const text of ["enc", "batch×8 f32"]) {
      const at = shapes.findIndex((each) => each.textContent === text);
      const ground = shapes.findLastIndex((each, place) => place < at && each.tagName === "rect");
      expect(ground).toBeGreaterThan(lastLine);
      expect(at - ground).toBeLessThanOrEqual(2); // the sign before a title
    }
  });

  test("has the scale of the numbers that color it", () => {
    const nodes = Float64Array.of(1, 5, 25);
    const data = { label: "error", scale: "linear", reduce: "max", unmatched: 0, nodes, scopes: Float64Array.of(0, 0) };
    const overlay = new Overlay(data as OverlayData);
    const [plain, colored] = [pictureOf(PLAIN), { ...pictureOf(PLAIN), overlay }].map((each) => parsed(toSvg(each)));
    const texts = [...colored.querySelectorAll("text")].map((each) => each.textContent);
    expect(texts).toEqual(expect.arrayContaining(["error", "max over scopes", "1", "25"]));
    const height = (svg: Document): number => Number(svg.documentElement.getAttribute("height"));
    expect(height(colored)).toBeGreaterThan(height(plain) + 20);
  });

  test("names chosen tensors, and is wide enough for the names", () => {
    const name = "a_rather_long_name_of_a_tensor";
    const columns = columnsOf(
      `input x 8 float32\nRelu n : x -> ${name}\ntype ${name} 8 float32\nExp o : ${name} -> y\noutput y`,
    );
    const picture = pictureOf(columns);
    const { id } = columns.find(name, "tensor") ?? expect.fail(name);
    const state = { ...initialState([]), boundary: { inputs: [id], outputs: [] } };
    const svg = parsed(toSvg({ ...picture, marks: marksOf(picture.scene, columns, state, new Map()) }));
    const text = [...svg.querySelectorAll("text")].find((each) => each.textContent === `in  ${name}  8 f32`);
    const end = Number(text?.getAttribute("x")) + measure(text?.textContent ?? "", 10, true);
    expect(Number(svg.documentElement.getAttribute("width"))).toBeGreaterThan(end - picture.scene.bounds.x);
  });

  test("has colors that every reader of SVG knows", () => {
    expect(inkOf("color(srgb 0.5 1 0)")).toBe("#80ff00");
    expect(inkOf("rgb(0 102 204 / 0.2)")).toBe("rgba(0,102,204,0.2)");
    expect(inkOf("rgba(1, 2, 3, 0.5)")).toBe("rgba(1,2,3,0.5)");
    expect(inkOf("rgb(1, 2, 3)")).toBe("#010203");
    expect(inkOf("#abcdef")).toBe("#abcdef");
  });

  test("contains only the boxes in view", () => {
    const picture = pictureOf(PLAIN);
    const { bounds } = picture.scene;
    const camera = { x: bounds.x, y: bounds.y, k: 1 };
    const document = parsed(toSvg(picture, { camera, view: { w: bounds.w, h: 30 } }));
    const texts = Array.from(document.querySelectorAll("text"), (element) => element.textContent);
    expect(texts).toContain("x");
    expect(texts).not.toContain("y");
  });

  test("stays well-formed and inert for any names", () => {
    const hostile = [
      "<script>alert(1)</script>",
      '"><image href="x" onerror="a()"/>',
      "&amp;&#0;",
      "a\u0000b\u001fc\ud800d",
    ];
    for (const name of hostile) {
      const columns = columnsOf(
        `input ${name.replaceAll(" ", "_")} 8 float32\nRelu n : ${name.replaceAll(" ", "_")} -> y\noutput y`,
      );
      const document = parsed(toSvg(pictureOf(columns)));
      expect(document.querySelectorAll("script, image, foreignObject, a").length).toBe(0);
      for (const element of document.querySelectorAll("*")) {
        for (const { name: attribute } of element.attributes) expect(attribute).not.toMatch(/^on|href/);
      }
    }
  });
});
