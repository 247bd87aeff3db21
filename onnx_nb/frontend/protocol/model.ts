/** The model of a widget as every anywidget host provides it, and bindings between its traits and a view. */

import { type Channel, type Comm, NO_KERNEL } from "./channel.ts";
import { bytesOf, bytesOfText, type Pack, release, unpack } from "./codec.ts";

/** Members that every host has; using only these, a widget also works in hosts other than JupyterLab. */
export type WidgetModel = Comm & {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: `change:${string}`, listener: () => void): void;
  off(event: `change:${string}`, listener: () => void): void;
  /** present in hosts based on the models of ipywidgets */
  readonly widget_manager?: { get_model(id: string): Promise<unknown> };
};

/**
 * Binds a trait to the state of a view. The last common value is remembered, so neither receives its own change.
 *
 * @param apply takes a value that changed in the kernel or in another view
 * @returns a function through which the view reports its own changes
 */
export function bindTrait<T>(
  model: WidgetModel,
  name: string,
  apply: (value: T) => void,
  signal: AbortSignal,
): (value: T) => void {
  let lastValue = model.get(name);
  const changed = (): void => {
    const value = model.get(name);
    if (equals(value, lastValue)) return;
    lastValue = value;
    apply(value as T);
  };
  model.on(`change:${name}`, changed);
  signal.addEventListener("abort", () => model.off(`change:${name}`, changed), { once: true });
  return (value) => {
    if (equals(value, lastValue)) return;
    lastValue = value;
    model.set(name, value);
    model.save_changes();
  };
}

/** Shows with which graph a view is linked: the kernel links them, as long as there is one. */
export function bindLink(
  model: WidgetModel,
  channel: Channel,
  show: (text: string) => void,
  signal: AbortSignal,
): void {
  const update = (): void => {
    const partner = String(model.get("_linked"));
    show(partner === "" || channel.live ? partner : NO_KERNEL);
  };
  update();
  bindTrait(model, "_linked", update, signal);
  channel.watch(update, signal);
}

/** Compares plain data; two buffers are different even if they hold the same bytes. */
export function equals(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (ArrayBuffer.isView(a) || ArrayBuffer.isView(b)) return false;
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const keys = Object.keys(left);
  return (
    keys.length === Object.keys(right).length && keys.every((key) => key in right && equals(left[key], right[key]))
  );
}

/** Returns one part, such as "columns" or "reference". */
export type Parts = (part: string) => Promise<Pack>;

/** Loads a part of a widget: from its state if it is small enough to be saved there, else from the kernel. */
export async function loadPart(model: WidgetModel, channel: Channel, part: string): Promise<Pack> {
  const savedPart = (model.get("_parts") as Readonly<Record<string, unknown>> | undefined)?.[part];
  if (savedPart instanceof DataView) return unpack(bytesOf(savedPart));
  const bytes = await channel.bytes("columns", { part });
  const pack = await unpack(bytes);
  release(bytes.buffer); // nothing else reads this reply
  return pack;
}

/** Loads a part of a page. */
export async function pagePart(part: string): Promise<Pack> {
  const text = textOf(part);
  if (text === null) throw new Error(`this page lacks its part '${part}'`);
  return unpack(bytesOfText(text));
}

/** Returns the content of an element of an exported page, null if the page has none. */
export function textOf(part: string): string | null {
  return document.getElementById(`onnx-nb-${part}`)?.textContent ?? null;
}
