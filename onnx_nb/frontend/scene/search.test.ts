import { describe, expect, it } from "vitest";
import { columnsOf } from "../model/testing.ts";
import { search } from "./search.ts";

const columns = columnsOf(`
  input x batch×8 float32
  weight W 8×8 float32
  group encoder class=BertEncoder
  MatMul encoder/query : x W -> encoder/query_out
  MatMul : encoder/query_out W -> y
  Relu act : y -> MatMul_3
  Constant c : -> hidden
  fold c
  output MatMul_3
`);
const found = (text: string): string[] =>
  search(columns, text).map((target) => `${target.kind} ${columns.nameOf(target) || columns.opOf(target.id)}`);

describe("search", () => {
  it("finds ops, names and scopes in any case, exact matches first", () => {
    expect(found("matmul")).toEqual(["node encoder/query", "node MatMul", "value MatMul_3"]);
    expect(found("BERT")).toEqual(["group encoder"]);
    expect(found("query")).toEqual(["node encoder/query", "value encoder/query_out"]);
  });

  it("finds weights but not nodes that are folded away", () => {
    expect(found("w")).toEqual(["value W"]);
    expect(found("constant")).toEqual([]);
  });

  it("finds nothing for nothing", () => {
    expect(found("  ")).toEqual([]);
    expect(found("no such thing")).toEqual([]);
  });
});
