// @vitest-environment jsdom

import { beforeEach, expect, it, vi } from "vitest";
import type { Application, Modules } from "../hosts/jupyter.d.ts";
import { makeFile, takeDrops } from "./files.ts";

type Saved = { readonly content: string; readonly chunk?: number };

const answers: (string | null)[] = [];
const questions: { readonly label: string; readonly text: string }[] = [];
const saves: (readonly [path: string, model: Saved])[] = [];
const apputils = {
  InputDialog: {
    async getText(options: (typeof questions)[number]) {
      questions.push(options);
      return { value: answers.shift() ?? null };
    },
  },
  Notification: { emit: vi.fn(() => "note"), dismiss: vi.fn() },
  showErrorMessage: vi.fn(),
};
const tab = document.createElement("div");
const app = {
  commands: { execute: vi.fn() },
  shell: { widgets: () => [{ node: tab, context: { path: "RTC:folder/shown.onnx" } }] },
  serviceManager: {
    contents: {
      get: async (folder: string) => ({
        content: folder === "folder" ? [{ name: "a.b.ipynb" }, { name: "c.ipynb" }] : [],
      }),
      save: async (path: string, model: Saved) => saves.push([path, model]),
    },
  },
};
const [fakeApp, modules] = [app as unknown as Application, apputils as unknown as Modules["@jupyterlab/apputils"]];
const words = { title: "Make", okLabel: "OK", failure: "None was made" };
const make = vi.fn(async (_path: string): Promise<void> => undefined);

beforeEach(() => {
  for (const list of [answers, questions, saves]) list.length = 0;
  vi.clearAllMocks();
});

it("asks for a path until no file has it, and keeps the ending", async () => {
  answers.push("folder/c", "folder/d");
  await makeFile(fakeApp, modules, "folder/a.b.ipynb", words, make);
  expect(questions.map(({ text }) => text)).toEqual(["folder/a.b-1.ipynb", "folder/c-1.ipynb"]);
  expect(questions[1].label).toContain("folder/c.ipynb exists already");
  expect(make).toHaveBeenCalledExactlyOnceWith("folder/d.ipynb");
  expect(app.commands.execute).toHaveBeenCalledExactlyOnceWith("docmanager:open", { path: "folder/d.ipynb" });
  expect(apputils.Notification.dismiss).toHaveBeenCalledExactlyOnceWith("note");
});

it("writes nothing if a person cancels, and says what failed", async () => {
  await makeFile(fakeApp, modules, "c.ipynb", words, make);
  expect(make).not.toHaveBeenCalled();
  answers.push("c.ipynb");
  const error = new Error("full");
  make.mockRejectedValueOnce(error);
  await makeFile(fakeApp, modules, "c.ipynb", words, make);
  expect(apputils.showErrorMessage).toHaveBeenCalledExactlyOnceWith("None was made", error);
  expect(app.commands.execute).not.toHaveBeenCalled();
});

it("uploads a dropped model in parts beside what its tab shows, and leaves all else to the graph", async () => {
  takeDrops(fakeApp, modules);
  document.body.append(tab);
  const graph = tab.appendChild(document.createElement("div"));
  graph.className = "onnx-nb-graph";
  const bytes = Uint8Array.from({ length: (2 << 20) + 3 }, (_, at) => at % 251);
  const drop = (target: Element, name: string, size = bytes.length): boolean => {
    const slice = (from: number, to: number) => ({ arrayBuffer: async () => bytes.slice(from, to).buffer });
    const event = new Event("drop", { bubbles: true, cancelable: true });
    return !target.dispatchEvent(Object.assign(event, { dataTransfer: { files: [{ name, size, slice }] } }));
  };
  expect([drop(tab, "m.onnx"), drop(graph, "m.txt"), drop(graph, "m.onnx", 1e9)]).toEqual([false, false, false]);
  answers.push("RTC:folder/m.onnx");
  expect(drop(graph, "m.onnx")).toBe(true);
  await vi.waitFor(() => expect(app.commands.execute).toHaveBeenCalled());
  expect(questions.map(({ text }) => text)).toEqual(["RTC:folder/m.onnx"]);
  expect(saves.map(([path, { chunk }]) => [path, chunk])).toEqual(
    [1, 2, -1].map((chunk) => ["RTC:folder/m.onnx", chunk]),
  );
  const sent = saves.map(([, { content }]) => atob(content)).join("");
  expect(Array.from(sent, (char) => char.charCodeAt(0))).toEqual([...bytes]);
});
