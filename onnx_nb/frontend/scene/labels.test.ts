import { describe, expect, test } from "vitest";
import { columnsOf, measure, scopeAt } from "../protocol/testing.ts";
import { formatCompact } from "./formatting.ts";
import { briefly, briefType, elide, elideType, Labels, shortDtype, TEXT, typeText } from "./labels.ts";
import { BOX, type Label } from "./scene.ts";

function widthOf(label: Label, kind: number): number {
  if (kind === BOX.INPUT || kind === BOX.OUTPUT) {
    return (
      measure(label.title, TEXT.pill, true) + (label.sub === "" ? 0 : TEXT.gap + measure(label.sub, TEXT.pill, true))
    );
  }
  const rows = label.lines.map((row) =>
    row.reduce(
      (sum, [key, value]) =>
        sum +
        TEXT.gap +
        measure(value, TEXT.line, false) +
        (key === "" ? 0 : TEXT.keyGap + measure(key, TEXT.line, false)),
      -TEXT.gap,
    ),
  );
  const title =
    measure(label.title, TEXT.title, true) + (label.sub === "" ? 0 : TEXT.gap + measure(label.sub, TEXT.line, false));
  return Math.max(title, ...rows) + (kind === BOX.NODE ? TEXT.node.x : TEXT.scope.lineX);
}

describe("labels", () => {
  test("show the op, weights by formal name and attributes of a node", () => {
    const columns = columnsOf(
      "input x\nweight W 64×3×7×7 float32\nweight b scalar float32 = 0.125\nConv c : x W b -> y | strides 2×2 · group 1",
    );
    const { label, h } = new Labels(columns, measure).of(BOX.NODE, 0);
    expect(label.title).toBe("Conv");
    expect(label.lines.flat()).toEqual([
      ["W", "64×3×7×7"],
      ["B", "0.125"],
      ["strides", "2×2"],
      ["group", "1"],
    ]);
    expect(h).toBe(24 + 14 * label.lines.length);
  });

  test("name the module of which a node is all, unless that only repeats the op", () => {
    const named = (text: string): string => {
      const columns = columnsOf(`input x\nweight W 8×8 float32\n${text}`);
      return new Labels(columns, briefly(measure)).of(BOX.NODE, 0).label.sub;
    };
    expect(named("MatMul attn/mm:k_proj : x W -> y")).toBe("k_proj");
    expect(named("MatMul attn/mm : x W -> y")).toBe("8×8");
    expect(named("Conv stem:conv : x W -> y")).toBe("8×8");
    expect(named("Conv stem:0 : x W -> y")).toBe("8×8");
    const columns = columnsOf("input x\nRelu act:second_act : x -> y");
    expect(new Labels(columns, measure).of(BOX.NODE, 0).label.sub).toBe("second_act");
  });

  test("are those of each node, even if others are nearly equal", () => {
    const weights = Array.from({ length: 1200 }, (_, at) => `weight w${at} scalar float32 = ${at}`);
    const nodes = weights.map((_, at) => `Mul m${at} : x w${at} -> y${at} | axis ${at % 2}`);
    const columns = columnsOf(["input x", ...weights, ...nodes, "Mul swapped : w7 x -> z | axis 1"].join("\n"));
    const labels = new Labels(columns, measure);
    const lines = (node: number): readonly (readonly string[])[] => labels.of(BOX.NODE, node).label.lines.flat();
    const expected = (at: number): string[][] => [
      ["B", `${at}`],
      ["axis", `${at % 2}`],
    ];
    const all = weights.map((_, at) => at);
    expect(all.map(lines)).toEqual(all.map(expected));
    expect(all.map(lines)).toEqual(all.map(expected)); // the second time some are cached
    expect(lines(1200)).toEqual([
      ["A", "7"],
      ["axis", "1"],
    ]);
  });

  test("show class, number of ops and repeats of a scope", () => {
    const columns = columnsOf(
      "scope layers kind=REPEAT repeat=2 class=Layer\nRelu layers/0/a : x -> y\nRelu layers/1/a : y -> z",
    );
    const { label } = new Labels(columns, measure).of(BOX.SCOPE, scopeAt(columns, "layers"));
    expect(label).toEqual({ title: "layers", sub: "Layer ×2", lines: [[["", "1 op each"]]] });
  });

  test("if brief, show the essentials in one line and keep the rest for the tooltip", () => {
    const columns = columnsOf(
      [
        "input ids batch×seq int64",
        "weight W 64×3×7×7 float32",
        "scope layers kind=REPEAT repeat=2 class=Layer",
        "Conv c : ids W -> v 8×8 float32 | strides 2×2",
        "Relu layers/0/a : v -> y",
        "Relu layers/1/a : y -> z",
      ].join("\n"),
    );
    const labels = new Labels(columns, briefly(measure));
    const node = labels.of(BOX.NODE, 0);
    expect(node.label).toMatchObject({ title: "Conv", sub: "64×3×7×7", lines: [] });
    const scope = labels.of(BOX.SCOPE, scopeAt(columns, "layers"));
    expect(scope.label).toMatchObject({ title: "layers", sub: "×2", lines: [] });
    const pill = labels.of(BOX.INPUT, 0);
    expect(pill.label).toMatchObject({ title: "ids", sub: "" });
    for (const { label, w, h } of [node, scope, pill]) {
      expect(h).toBeLessThan(24);
      expect(w).toBeGreaterThan(widthOf(label, BOX.INPUT));
    }
    expect(briefType(columns, 0)).toBe("batch×seq i64");
  });

  test("show name and type of an input", () => {
    const columns = columnsOf("input ids batch×seq int64");
    expect(new Labels(columns, measure).of(BOX.INPUT, 0).label).toMatchObject({ title: "ids", sub: "batch×seq int64" });
    expect(typeText(columns, 0)).toBe("batch×seq i64");
  });

  test.each([
    "x".repeat(10_000),
    "🦊".repeat(5_000),
    "a\\nb\\nc",
    "<img src=x onerror=alert(1)>".repeat(50).replaceAll(" ", "_"),
    "\u202e".repeat(3_000),
  ])("never leave the box, for any names (%#)", (name) => {
    const columns = columnsOf(
      `input ${name} ${name} ${name}\nweight ${name}w ${name} float32\n${name} ${name}/${name} : ${name} ${name}w -> ${name}y | ${name}`,
    );
    for (const [kind, id] of [
      [BOX.NODE, 0],
      [BOX.INPUT, columns.graphInputs[0]],
      [BOX.SCOPE, 1],
      [BOX.OPEN, 1],
    ] as const) {
      const { label, w } = new Labels(columns, measure).of(kind, id);
      expect(widthOf(label, kind)).toBeLessThanOrEqual(w);
      expect(w).toBeLessThanOrEqual(320);
    }
  });

  test("elide at the end or in the middle, never within a character", () => {
    expect(elide("short", 100, 10, false, measure)).toBe("short");
    expect(elide("abcdefghijklmnop", 56, 10, false, measure)).toBe("abcdefghi…");
    expect(elide("abcdefghijklmnop", 56, 10, false, measure, "middle")).toBe("abcde…mnop");
    expect(elide("🦊".repeat(100), 60, 10, false, measure)).toMatch(/^🦊+…$/u);
    expect(elide("a\nb\tc", 100, 10, false, measure)).toBe("a b c");
    expect(elide("anything", 1, 10, false, measure)).toBe("…");
  });

  test.each([
    ["p2o.DynamicDimension.0×192×?×?", 80, "d0×192×?×?"],
    ["p2o.DynamicDimension.0×192×p2o.DynamicDimension.1×? f32", 120, "d0×192×d1×? f32"],
    ["batch×6*((height−1)//2)×768", 100, "batch×6*((…×768"],
    ["batch×sequence_length×1024×1280", 92, "b…×s…×1024×1280"],
    ["1×3×224×224", 60, "1×3×224×…"],
    ["batch×64×floor(height/2 - 1/2) + 1×floor(width/2) + 1", 80, "b…×64×f…×f…"],
    ["batch×64×height + width", 70, "ba…×64×he…"],
    ["1280×1280", 20, "…"],
    ["batch×768", 200, "batch×768"],
  ])("shorten the symbols of %s, and never its digits", (type, width, text) => {
    expect(elideType(type, width, 10, false, (shown) => 6 * shown.length)).toBe(text);
  });

  test("shorten dtypes and count large numbers", () => {
    expect(
      ["float32", "bfloat16", "int64", "uint8", "bool", "float8e4m3fn", "complex64", "seq(float32)"].map(shortDtype),
    ).toEqual(["f32", "bf16", "i64", "u8", "bool", "f8e4m3fn", "c64", "seq(f32)"]);
    expect([7, 999, 1000, 7_087_872, 109_482_240, 1.3e9].map(formatCompact)).toEqual([
      "7",
      "999",
      "1.0 k",
      "7.1 M",
      "109 M",
      "1.3 G",
    ]);
  });
});
