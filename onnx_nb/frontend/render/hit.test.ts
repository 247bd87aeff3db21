import { describe, expect, it } from "vitest";
import { buildScene, createCache } from "../layout/build.ts";
import type { Target } from "../protocol/columns.ts";
import { columnsOf, measure, scopeAt } from "../protocol/testing.ts";
import { BOX } from "../scene/scene.ts";
import { boxTarget, HitIndex } from "./hit.ts";

const columns = columnsOf(`
  input x batch×8 float32
  weight W 8×8 float32
  MatMul enc/a : x W -> p
  Split enc/split : p -> left right
  Add enc/sum : left right -> q
  type q batch×8 float32
  Relu out : q -> y
  MatMul tail/m : y W -> z
  output z
`);
const scene = buildScene(columns, new Set([0, scopeAt(columns, "enc")]), measure, createCache(), {});
const index = new HitIndex(scene, measure);
const REACH = 6;
const anywhere = (): boolean => true;
const target = (kind: Target["kind"], name: string): Target => columns.find(name, kind) as Target;
const hit = (x: number, y: number) => index.hit(x, y, REACH, 1);

describe("HitIndex", () => {
  it("finds each drawn box at its middle", () => {
    const { count, kind, x, y, w, h } = scene.boxes;
    for (let box = 0; box < count; box++) {
      if (kind[box] === BOX.OPEN) continue;
      expect(hit(x[box] + w[box] / 2, y[box] + h[box] / 2)).toMatchObject({
        part: "box",
        target: boxTarget(scene, box),
      });
    }
  });

  it("returns a click point for every tensor, even for parallel ones between two nodes", () => {
    for (const name of ["x", "p", "left", "right", "q", "y", "z"]) {
      const wanted = target("tensor", name);
      const at = index.pointOf(wanted, REACH, 1, anywhere);
      expect(at, name).not.toBeNull();
      expect(hit(at?.x ?? 0, at?.y ?? 0)?.target, name).toEqual(wanted);
    }
  });

  it("hits a tensor at the port of its node, the node just inside", () => {
    const [edge] = scene.edgesOf(target("tensor", "p").id);
    const { points, ptr } = scene.edges;
    const x = points[2 * ptr[edge + 1] - 2];
    const y = points[2 * ptr[edge + 1] - 1];
    expect(hit(x, y + 1)?.target).toEqual(target("tensor", "p"));
    expect(hit(x, y + 8)?.target).toEqual(target("node", "enc/split"));
  });

  it("opens and closes by the toggle, selects by the title, and treats the inside of a scope as background", () => {
    const box = scene.boxOf("scope", scopeAt(columns, "enc"));
    const { x, y, w, h } = scene.boxes;
    expect(hit(x[box] + 14, y[box] + 14)).toMatchObject({ part: "toggle", target: target("scope", "enc") });
    expect(hit(x[box] + 34, y[box] + 14)).toMatchObject({ part: "box", target: target("scope", "enc") });
    expect(hit(x[box] + 3, y[box] + h[box] - 3)).toBeNull();
    expect(hit(x[box] + w[box] + 500, y[box])).toBeNull();
    const closed = scene.boxOf("scope", scopeAt(columns, "tail"));
    expect(hit(x[closed] + 14, y[closed] + 14)?.part).toBe("toggle");
  });

  it("hits the text on an edge while it is legible", () => {
    const [edge] = scene.edgesOf(target("tensor", "q").id).filter((each) => !Number.isNaN(scene.edges.labelX[each]));
    const x = scene.edges.labelX[edge] + 20;
    const y = scene.edges.labelY[edge];
    expect(index.hit(x, y, 0.5, 1)).toMatchObject({ part: "label", target: target("tensor", "q") });
    expect(index.hit(x, y, 0.5, 0.2)).toBeNull();
  });

  it("locates nodes and scopes, but nothing hidden", () => {
    const point = index.pointOf(target("scope", "enc"), REACH, 1, anywhere);
    expect(hit(point?.x ?? 0, point?.y ?? 0)).toMatchObject({ part: "box", target: target("scope", "enc") });
    expect(index.pointOf(target("node", "tail/m"), REACH, 1, anywhere)).toBeNull();
    expect(index.pointOf(target("tensor", "W"), REACH, 1, anywhere)).toBeNull();
    expect(index.pointOf(target("node", "out"), REACH, 1, () => false)).toBeNull();
  });

  it("finds the boxes and edges that a view has to draw", () => {
    const { bounds } = scene;
    const all = index.itemsIn(bounds.x, bounds.y, bounds.x + bounds.w, bounds.y + bounds.h);
    expect(all.boxes).toEqual([...scene.boxes.kind.keys()]);
    expect(all.edges).toEqual([...scene.edges.value.keys()]);
    expect(index.itemsIn(1e6, 1e6, 2e6, 2e6)).toEqual({ boxes: [], edges: [] });
  });

  it("leaves out the content of scopes that are too small", () => {
    const { bounds, boxes, edges } = scene;
    const open = scene.boxOf("scope", scopeAt(columns, "enc"));
    const { boxes: found, edges: lines } = index.itemsIn(bounds.x, bounds.y, 1e6, 1e6, boxes.h[open] + 1);
    expect(found).toEqual([...boxes.kind.keys()].filter((box) => boxes.parent[box] < 0));
    const outside = [...edges.value.keys()].filter((edge) => edges.scope[edge] < 0);
    expect(lines).toEqual(outside);
    const narrow = index.itemsIn(bounds.x, bounds.y, 1e6, 1e6, 0, boxes.w[open] + 1);
    expect(narrow.boxes).toHaveLength(boxes.count);
    expect(narrow.edges).toEqual(outside);
  });

  it.each([40, 2600])("finds the same in any rectangle as a scan of all %i nodes", (nodes) => {
    // every tenth node reads a much earlier tensor, and the second half is a scope
    const lines = ["input v0 batch×768 float32"];
    for (let i = 0; i < nodes; i++) {
      const name = `${i < nodes / 2 ? "" : "half/"}n${i}`;
      lines.push(
        i % 10 === 9 ? `Add ${name} : v${i} v${Math.max(0, i - 8)} -> v${i + 1}` : `Relu ${name} : v${i} -> v${i + 1}`,
      );
    }
    const long = columnsOf([...lines, `output v${nodes}`].join("\n"));
    const drawn = buildScene(long, new Set([0, scopeAt(long, "half")]), measure, createCache(), {});
    const { boxes, edges, bounds } = drawn;
    const looked = new HitIndex(drawn, measure);
    const meets = (x0: number, y0: number, x1: number, y1: number, [a, b, c, d]: readonly number[]): boolean =>
      a <= x1 && b <= y1 && c >= x0 && d >= y0;
    for (let i = 0; i < 60; i++) {
      const y0 = bounds.y + ((i * 37) % 101) * 0.01 * bounds.h;
      const x0 = bounds.x + ((i * 13) % 17) * 0.05 * bounds.w;
      const rect = [x0, y0, x0 + 60 + 9 * i, y0 + (i % 3) * 700] as const;
      const { boxes: found, edges: lines } = looked.itemsIn(...rect);
      const { x, y, w, h } = boxes;
      expect(found).toEqual(
        [...x.keys()].filter((box) => meets(...rect, [x[box], y[box], x[box] + w[box], y[box] + h[box]])),
      );
      const passes = (edge: number): boolean => {
        for (let at = edges.ptr[edge]; at + 1 < edges.ptr[edge + 1]; at++) {
          const [ax, ay, bx, by] = edges.points.subarray(2 * at, 2 * at + 4);
          if (meets(...rect, [Math.min(ax, bx), Math.min(ay, by), Math.max(ax, bx), Math.max(ay, by)])) return true;
        }
        return false;
      };
      expect(lines).toEqual([...edges.value.keys()].filter(passes));
    }
  });

  it("handles an empty graph", () => {
    const none = columnsOf("weight W 2 float32");
    const nothing = new HitIndex(buildScene(none, new Set([0]), measure, createCache(), {}), measure);
    expect(nothing.hit(0, 0, 6, 1)).toBeNull();
    expect(nothing.itemsIn(0, 0, 1, 1)).toEqual({ boxes: [], edges: [] });
  });
});
