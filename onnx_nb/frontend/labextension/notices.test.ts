import { describe, expect, it } from "vitest";
import { isNotice, resultOf } from "./notices.ts";

const python = { status: "ok", data: { "text/plain": "'/opt/env/bin/python'" } } as const;

describe("what a kernel replies", () => {
  it("is the value of the expression", () => {
    const value = { file: "/m.onnx", widget: "1", parts: [] };
    expect(resultOf({ status: "ok", data: { "application/json": value } }, python)).toBe(value);
    expect(isNotice(value)).toBe(false);
  });

  it("says which package is missing, and with which Python to install it", () => {
    const evalue = "No module named 'onnx_nb'";
    const found = resultOf({ status: "error", ename: "ModuleNotFoundError", evalue, traceback: [] }, python);
    expect(found).toMatchObject({
      what: "onnx_nb is not installed where the kernel runs.",
      command: "/opt/env/bin/python -m pip install --upgrade onnx-nb",
      actions: ["restart", "choose"],
    });
  });

  it("tells an older version from none, and a dependency from both", () => {
    const without = (name: string): unknown =>
      resultOf({ status: "error", ename: "ModuleNotFoundError", evalue: `No module named '${name}'` }, python);
    expect(without("onnx_nb.notebook.document")).toMatchObject({ what: expect.stringContaining("is older") });
    expect(without("onnx")).toMatchObject({ what: expect.stringContaining("No module named 'onnx'") });
  });

  it("shows a traceback without the colors of a terminal", () => {
    const traceback = ["\x1b[31mValueError\x1b[0m", "no"];
    const found = resultOf({ status: "error", ename: "ValueError", evalue: "no", traceback }, undefined);
    expect(found).toMatchObject({ details: "ValueError\nno" });
  });

  it("is no JSON from a kernel of another language", () => {
    const other = { what: "The kernel of this tab does not run Python." };
    expect(resultOf(undefined, undefined)).toMatchObject(other);
    expect(resultOf({ status: "ok", data: { "text/plain": "1" } }, undefined)).toMatchObject(other);
  });
});
