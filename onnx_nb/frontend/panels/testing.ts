/** What jsdom lacks for a graph view: a 2-D context, sizes, ResizeObserver, streams. Only for tests. */

import { Blob } from "node:buffer";
import type { Target } from "../model/columns.ts";
import { columnsOf } from "../model/testing.ts";
import type { ExtractReply, GraphHost, InspectReply, Patch } from "../scene/host.ts";
import type { Plan } from "../scene/state.ts";

export interface Drawn {
  /** texts that were drawn since the last clear */
  readonly texts: string[];
}

/** Gives every canvas a context that remembers its texts, and every element a size. */
export function furnish(width = 1000, height = 600): Drawn {
  const texts: string[] = [];
  const context = new Proxy(
    {},
    {
      get(target: Record<string | symbol, unknown>, key) {
        if (key in target) return target[key];
        if (key === "measureText") return (text: string) => ({ width: 60 * text.length });
        if (key === "getLineDash") return () => [];
        if (key === "fillText") return (text: string) => texts.push(text);
        return () => undefined;
      },
      set(target: Record<string | symbol, unknown>, key, value) {
        target[key] = value;
        return true;
      },
    },
  );
  HTMLCanvasElement.prototype.getContext = (() => context) as never;
  HTMLCanvasElement.prototype.setPointerCapture = () => undefined;
  Object.defineProperty(HTMLElement.prototype, "clientWidth", { configurable: true, get: () => width });
  Object.defineProperty(HTMLElement.prototype, "clientHeight", { configurable: true, get: () => height });
  globalThis.ResizeObserver = class {
    readonly #changed: () => void;
    constructor(changed: () => void) {
      this.#changed = changed;
    }
    observe(): void {
      this.#changed();
    }
    unobserve(): void {}
    disconnect(): void {}
  } as never;
  globalThis.Blob = Blob as never; // jsdom's has no stream
  return { texts };
}

export const settled = (ms = 60): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A small model with a scope, a weight and two tensors between the same nodes. */
export const MODEL = columnsOf(
  `
  input x batch×8 float32
  weight W 8×8 float32
  MatMul enc/mm : x W -> p
  type p batch×8 float32
  Split enc/split : p -> left right
  Add sum : left right -> q | axis 1
  type q batch×8 float32
  Relu act : q -> y
  output y batch×8 float32
`,
  "small.onnx",
);

/** A host that remembers what it was asked. */
export class FakeHost implements GraphHost {
  live = true;
  readonly cancellable = true;
  readonly patches: Patch[] = [];
  readonly planned: [inputs: string[], outputs: string[]][] = [];
  readonly extracted: [inputs: string[], outputs: string[], signal: AbortSignal][] = [];
  reply: Partial<Plan> = {};
  answer: () => Promise<ExtractReply> = () => Promise.reject(new Error("nothing to extract"));
  inspection: InspectReply = { rows: [], attributes: [], documentation: "", source: "" };

  plan(inputs: string[], outputs: string[]): Promise<Plan> {
    this.planned.push([inputs, outputs]);
    const none: Plan = {
      nodes: Int32Array.of(),
      missing: [],
      redundant: [],
      suggestion: [],
      alternative: [],
      nbytes: 0,
      message: "",
    };
    return Promise.resolve({ ...none, ...this.reply });
  }

  extract(inputs: string[], outputs: string[], signal: AbortSignal): Promise<ExtractReply> {
    this.extracted.push([inputs, outputs, signal]);
    return this.answer();
  }

  inspect(_target: Target): Promise<InspectReply> {
    return Promise.resolve(this.inspection);
  }

  changed(patch: Patch): void {
    this.patches.push(patch);
  }
}

/** The one button of this text. */
export function buttonIn(root: ParentNode, name: string): HTMLButtonElement {
  const found = [...root.querySelectorAll("button")].filter((each) => each.textContent?.trim() === name);
  if (found.length !== 1) throw new Error(`${found.length} buttons '${name}'`);
  return found[0];
}
