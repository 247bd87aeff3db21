import { describe, expect, it } from "vitest";
import type { Target } from "../model/columns.ts";
import { columnsOf, groupAt, measure } from "../model/testing.ts";
import { BOX, buildScene, createCache } from "../scene/scene.ts";
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
const scene = buildScene(columns, new Set([0, groupAt(columns, "enc")]), measure, createCache(), {});
const index = new HitIndex(scene, measure);
const REACH = 6;
const anywhere = (): boolean => true;
const target = (kind: Target["kind"], name: string): Target => columns.find(name, kind) as Target;
const hit = (x: number, y: number) => index.hit(x, y, REACH, 1);

describe("HitIndex", () => {
  it("gives each drawn box at its middle", () => {
    const { count, kind, x, y, w, h } = scene.boxes;
    for (let box = 0; box < count; box++) {
      if (kind[box] === BOX.OPEN) continue;
      expect(hit(x[box] + w[box] / 2, y[box] + h[box] / 2)).toMatchObject({
        part: "box",
        box,
        target: boxTarget(scene, box),
      });
    }
  });

  it("gives every tensor a place of its own, parallel ones between two nodes too", () => {
    for (const name of ["x", "p", "left", "right", "q", "y", "z"]) {
      const wanted = target("value", name);
      const at = index.pointOf(wanted, REACH, 1, anywhere);
      expect(at, name).not.toBeNull();
      expect(hit(at?.x ?? 0, at?.y ?? 0)?.target, name).toEqual(wanted);
    }
  });

  it("hits a tensor at the port of its node, the node just inside", () => {
    const [edge] = scene.edgesOf(target("value", "p").id);
    const { points, ptr } = scene.edges;
    const x = points[2 * ptr[edge + 1] - 2];
    const y = points[2 * ptr[edge + 1] - 1];
    expect(hit(x, y + 1)?.target).toEqual(target("value", "p"));
    expect(hit(x, y + 8)?.target).toEqual(target("node", "enc/split"));
  });

  it("opens and closes by the sign, selects by the title, and lets the inside of a scope be background", () => {
    const box = scene.boxOf("group", groupAt(columns, "enc"));
    const { x, y, w, h } = scene.boxes;
    expect(hit(x[box] + 14, y[box] + 14)).toMatchObject({ part: "toggle", target: target("group", "enc") });
    expect(hit(x[box] + 34, y[box] + 14)).toMatchObject({ part: "box", target: target("group", "enc") });
    expect(hit(x[box] + 3, y[box] + h[box] - 3)).toBeNull();
    expect(hit(x[box] + w[box] + 500, y[box])).toBeNull();
    const closed = scene.boxOf("group", groupAt(columns, "tail"));
    expect(hit(x[closed] + 14, y[closed] + 14)?.part).toBe("toggle");
  });

  it("hits the words on an edge while they can be read", () => {
    const [edge] = scene.edgesOf(target("value", "q").id).filter((each) => !Number.isNaN(scene.edges.labelX[each]));
    const x = scene.edges.labelX[edge] + 20;
    const y = scene.edges.labelY[edge];
    expect(index.hit(x, y, 0.5, 1)).toMatchObject({ part: "label", target: target("value", "q") });
    expect(index.hit(x, y, 0.5, 0.2)).toBeNull();
  });

  it("says where nodes and scopes can be clicked, and nowhere for what is hidden", () => {
    const point = index.pointOf(target("group", "enc"), REACH, 1, anywhere);
    expect(hit(point?.x ?? 0, point?.y ?? 0)).toMatchObject({ part: "box", target: target("group", "enc") });
    expect(index.pointOf(target("node", "tail/m"), REACH, 1, anywhere)).toBeNull();
    expect(index.pointOf(target("value", "W"), REACH, 1, anywhere)).toBeNull();
    expect(index.pointOf(target("node", "out"), REACH, 1, () => false)).toBeNull();
  });

  it("finds what a view has to draw", () => {
    const { bounds } = scene;
    expect(index.boxesIn(bounds.x, bounds.y, bounds.x + bounds.w, bounds.y + bounds.h)).toHaveLength(scene.boxes.count);
    expect(index.edgesIn(bounds.x, bounds.y, bounds.x + bounds.w, bounds.y + bounds.h)).toHaveLength(scene.edges.count);
    expect(index.boxesIn(1e6, 1e6, 2e6, 2e6)).toEqual([]);
  });

  it("stands an empty graph", () => {
    const none = columnsOf("weight W 2 float32");
    const nothing = new HitIndex(buildScene(none, new Set([0]), measure, createCache(), {}), measure);
    expect(nothing.hit(0, 0, 6, 1)).toBeNull();
    expect(nothing.boxesIn(0, 0, 1, 1)).toEqual([]);
  });
});
