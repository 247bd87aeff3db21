/** Parts of a browser that jsdom lacks and a graph view needs: 2-D context, sizes, ResizeObserver, streams. */

import { Blob } from "node:buffer";
import { deflateSync } from "node:zlib";
import { afterEach } from "vitest";
import type { Columns, Target } from "../protocol/columns.ts";
import type { CellsPage, Extraction, GraphHost, Patch, Place, Plan, ValueHost } from "../protocol/host.ts";
import { columnsOf, describedPack } from "../protocol/testing.ts";
import type {
  CaptureReply,
  EditRequest,
  Inspection,
  SaveReply,
  SelectReply,
  StatisticsReply,
} from "../protocol/wire.ts";
import { type Action, type Command, initialState, reduce, type State } from "../scene/state.ts";
import type { Panel, ViewContext } from "./viewcontext.ts";

/** Ends what a test opened: no timer of a panel may outlive the page of its test. */
export let stop = new AbortController();
afterEach(() => {
  stop.abort();
  stop = new AbortController();
});

export interface Drawing {
  /** texts that were drawn since the last clear */
  readonly texts: string[];
}

/** Gives every canvas a context that records its texts, and every element a size. */
export function furnish(width = 1000, height = 600): Drawing {
  const texts: string[] = [];
  const context = new Proxy(
    {},
    {
      get(target: Record<string | symbol, unknown>, key) {
        if (key in target) return target[key];
        if (key === "measureText") return (text: string) => ({ width: 60 * text.length });
        if (key === "getLineDash") return () => [];
        if (key === "createImageData") return (w: number, h: number) => ({ data: new Uint8ClampedArray(4 * w * h) });
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
  globalThis.OffscreenCanvas = class {
    getContext = () => context;
    transferToImageBitmap = () => undefined;
  } as never;
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
  localStorage.setItem("onnx-nb-hints", "read");
  globalThis.Blob = Blob as never; // jsdom's has no stream
  return { texts };
}

export const settle = (ms = 60): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

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

/** A host that records its requests. */
export class FakeHost implements GraphHost {
  live = true;
  readonly reason = "No kernel is connected.";
  readonly values = new FakeValues();
  readonly patches: Patch[] = [];
  readonly plans: [inputs: string[], outputs: string[]][] = [];
  readonly extractions: [inputs: string[], outputs: string[], signal: AbortSignal][] = [];
  reply: Partial<Plan> = {};
  answer: (request?: EditRequest, signal?: AbortSignal) => Promise<Extraction> = () =>
    Promise.reject(new Error("nothing to extract"));
  inspection: Inspection = { rows: [], attributes: [], documentation: "", source: "" };

  plan(inputs: string[], outputs: string[]): Promise<Plan> {
    this.plans.push([inputs, outputs]);
    const emptyPlan: Plan = {
      nodes: Int32Array.of(),
      missing: [],
      redundant: [],
      suggestion: [],
      alternative: [],
      nbytes: 0,
      message: "",
    };
    return Promise.resolve({ ...emptyPlan, ...this.reply });
  }

  extract(inputs: string[], outputs: string[], signal: AbortSignal): Promise<Extraction> {
    this.extractions.push([inputs, outputs, signal]);
    return this.answer();
  }

  readonly edits: EditRequest[] = [];
  readonly saves: [path: string, replace: boolean][] = [];

  edit(request: EditRequest, _progress?: unknown, signal?: AbortSignal): Promise<Extraction> {
    this.edits.push(request);
    return this.answer(request, signal);
  }

  async save(path: string, replace: boolean): Promise<SaveReply> {
    this.saves.push([path, replace]);
    return { path, exists: !replace, size: "12 kB" };
  }

  discardCount = 0;
  async discard(): Promise<void> {
    this.discardCount++;
  }

  inspect(_target: Target): Promise<Inspection> {
    return Promise.resolve(this.inspection);
  }

  selectionReply: SelectReply = { rows: [], inputs: [], outputs: [], obstacle: "" };
  readonly selections: (readonly Target[])[] = [];

  select(targets: readonly Target[]): Promise<SelectReply> {
    this.selections.push(targets);
    return Promise.resolve(this.selectionReply);
  }

  changed(patch: Patch): void {
    this.patches.push(patch);
  }
}

/** A host that knows the numbers 0 … 23 as a tensor of 2×3×4, once captured. */
export class FakeValues implements ValueHost {
  readonly captures: (number | null)[] = [];
  /** name, chosen size, usual size */
  rows: (readonly [string, string, string])[] = [];
  readonly chosen: unknown[] = [];
  sizes = async (shapes: unknown): Promise<(readonly [string, string, string])[]> => {
    if (shapes !== null) this.chosen.push(JSON.parse(JSON.stringify(shapes)));
    return this.rows;
  };
  readonly places: Place[] = [];
  kinds = ["Values"];
  runCapture: () => Promise<string> = () => Promise.resolve("captured");
  profile = (): Promise<string> => Promise.resolve("90% of 1 ms in Conv");

  /** the first tensor with NaN */
  origin: number | null = null;

  async capture(value: number | null, progress: (fraction: number, message: string) => void): Promise<CaptureReply> {
    progress(0.5, "MatMul and 3 more");
    const message = await this.runCapture();
    this.captures.push(value);
    return { message, origin: this.origin };
  }

  statistics(): Promise<StatisticsReply | null> {
    if (this.captures.length === 0) return Promise.resolve(null);
    const counts = Array.from({ length: 100 }, (_, at) => at);
    const edges = Array.from({ length: 101 }, (_, at) => at - 50);
    const numbers = {
      count: 24,
      nan: 1,
      posinf: 0,
      neginf: 0,
      zeros: 6,
      min: -50,
      max: 49.5,
      mean: 0.0021,
      std: "nan",
    };
    return Promise.resolve({ ...numbers, counts, edges, source: "captured, 1 run" });
  }

  page(_value: number, place: Place): Promise<CellsPage> {
    this.places.push(place);
    const cells = [
      ["0", "1", "2", "3"],
      ["4", "5", "6", "7"],
    ];
    const pixels = Uint8Array.of(0, 1, 128, 255, 1, 2);
    return Promise.resolve({
      dtype: "float32",
      shape: [2, 3, 4],
      ...place,
      index: [0],
      cells,
      trailing: 0,
      looks: ["slice", "channels"],
      kinds: this.kinds,
      picture: { look: "slice", shape: [1, 2, 3], first: 0, low: -1, high: 23 },
      pixels,
    });
  }

  npy(): Promise<Uint8Array> {
    return Promise.resolve(Uint8Array.of(1, 2, 3));
  }
}

/** Returns the only button with this text. */
export function buttonIn(root: ParentNode, name: string): HTMLButtonElement {
  const buttons = [...root.querySelectorAll("button")].filter((candidate) => candidate.textContent?.trim() === name);
  if (buttons.length !== 1) throw new Error(`${buttons.length} buttons '${name}'`);
  return buttons[0];
}

/** Returns the context of one panel with the real reducer. */
export class FakeView implements ViewContext {
  readonly columns: Columns;
  readonly host: GraphHost;
  readonly signal: AbortSignal;
  now: State;
  /** the panel that follows the state */
  panel: Pick<Panel, "update"> | null = null;
  readonly actions: (Action | Command)[] = [];

  constructor(host: GraphHost, columns: Columns, open: Iterable<number>, signal = stop.signal) {
    this.columns = columns;
    this.host = host;
    this.signal = signal;
    this.now = initialState(open);
  }

  readonly state = (): State => this.now;
  readonly canEdit = (): boolean => this.host.live && this.host.edit !== undefined;
  readonly announce = (): void => undefined;
  readonly dispatch = (action: Action | Command): void => {
    this.actions.push(action);
    const before = this.now;
    this.now = reduce(before, action, this.columns);
    if (this.now !== before) this.panel?.update(this.now);
  };

  /** Adds a panel to the page and updates it with the state. */
  show<T extends Panel>(panel: T, root: HTMLElement): T {
    root.replaceChildren(panel.element);
    this.panel = panel;
    panel.update(this.now);
    return panel;
  }
}

/** Returns columns of a one-node model as the kernel packs them. */
export function packOf(): Uint8Array {
  const { meta, arrays } = describedPack("input a float32\nRelu : a -> b\noutput b", "sub.onnx");
  const dtypes = new Map<unknown, string>([
    [Uint8Array, "u1"],
    [Uint32Array, "u4"],
    [Int32Array, "i4"],
    [Float64Array, "f8"],
  ]);
  const headers = [];
  const chunks: Uint8Array[] = [];
  let offset = 0;
  for (const [name, array] of arrays) {
    headers.push({ name, dtype: dtypes.get(array.constructor), length: array.length, offset });
    const chunk = new Uint8Array(Math.ceil(array.byteLength / 8) * 8);
    chunk.set(new Uint8Array(array.buffer));
    chunks.push(chunk);
    offset += chunk.length;
  }
  let header = JSON.stringify({ meta, arrays: headers });
  header += " ".repeat((8 - ((4 + new TextEncoder().encode(header).length) % 8)) % 8);
  const head = new TextEncoder().encode(header);
  const size = new Uint8Array(4);
  new DataView(size.buffer).setUint32(0, head.length, true);
  const bytes = join([size, head, ...chunks]);
  const length = new Uint8Array(Uint32Array.of(bytes.length).buffer);
  return join([new TextEncoder().encode("ONB2"), length, new Uint8Array(deflateSync(bytes))]);
}

function join(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
