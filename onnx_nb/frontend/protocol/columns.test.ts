import { expect, test } from "vitest";
import { columnsOf } from "./testing.ts";

test("finds targets by name: tensors before nodes before scopes, and the first of equals", () => {
  const names = ["x", "größe", "🦊", "enc/0/b", "enc/0/a", "enc", "x".repeat(300)];
  const columns = columnsOf(
    [
      ...names.slice(0, 4).map((name) => `input ${name} 2 float32`),
      ...names.slice(4).map((name) => `Relu ${name} : x -> ${name}_out`),
      "Relu enc/0/b : x -> twice",
      "Relu x/same : x -> z",
      "Relu x/same : z -> zz",
    ].join("\n"),
  );
  for (const name of names) {
    const found = columns.find(name);
    expect(found && columns.nameOf(found)).toBe(name);
  }
  expect(columns.find("x")).toEqual({ kind: "tensor", id: 0 });
  expect(columns.find("enc/0/b")?.kind).toBe("tensor");
  expect(columns.find("enc/0/b", "node")?.kind).toBe("node");
  expect(columns.find("enc/0", "scope")?.kind).toBe("scope");
  expect(columns.nodeCount - (columns.find("x/same")?.id ?? 0)).toBe(2);
  for (const absent of ["", "xx", "X", "x".repeat(299), "enc/"]) expect(columns.find(absent)).toBeUndefined();
});
