/** What the entries of both bundles share: how a view comes into a cell, follows the theme, fails, and goes. */

import { keepFocus } from "./panels/focus.ts";
import type { Comm } from "./protocol/channel.ts";
import { failure } from "./protocol/host.ts";

/** What every anywidget host gives; nothing else is used, so that marimo will do as well as JupyterLab. */
export interface WidgetModel extends Comm {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  on(event: `change:${string}`, listener: () => void): void;
  off(event: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  off(event: `change:${string}`, listener: () => void): void;
  /** only where ipywidgets' own models are behind */
  readonly widget_manager?: { get_model(id: string): Promise<CommModel> };
}

/** What a model of ipywidgets is besides. */
export interface CommModel {
  readonly comm?: { on_msg(heard: (message: unknown) => unknown): void; send(content: unknown): unknown };
  _handle_comm_msg(message: unknown): Promise<unknown>;
}

const heard = new WeakSet<CommModel>();

/**
 * Lets a widget hear its kernel also where the page was too busy to start it. anywidget gives a module 2 s; of one that
 * was not there by then (a large notebook, a slow machine) it shows the view, and hands on nothing of the kernel, ever.
 */
export async function hearKernel(model: WidgetModel): Promise<void> {
  const raw = await model.widget_manager?.get_model(String(model.get("_own")));
  if (raw?.comm === undefined || heard.has(raw)) return;
  heard.add(raw);
  try {
    await raw._handle_comm_msg({ content: { data: {} }, buffers: [] }); // means nothing, and waits as all others do
  } catch {
    let waits: CommModel = raw;
    while (!Object.hasOwn(waits, "_handle_comm_msg")) waits = Object.getPrototypeOf(waits);
    const ipywidgets: CommModel = Object.getPrototypeOf(waits);
    raw.comm.on_msg((message) => ipywidgets._handle_comm_msg.call(raw, message));
    raw.comm.send({ method: "request_state" }); // what changed until now went by
  }
}

export interface Mount {
  readonly model: WidgetModel;
  readonly el: HTMLElement;
}

/** Fills a root of its own in the cell; what the returned function ends hears of it by the signal. */
export function mount(
  { model, el }: Mount,
  css: string,
  show: (root: HTMLElement, signal: AbortSignal) => void | Promise<void>,
): () => void {
  const view = new AbortController();
  style(el, css);
  const root = rootIn(el, String(model.get("_kind")));
  hearKernel(model).catch((error) => console.error(error));
  const theme = (): void => {
    root.dataset.theme = String(model.get("theme"));
  };
  theme();
  model.on("change:theme", theme);
  view.signal.addEventListener("abort", () => model.off("change:theme", theme));
  const failed = (error: unknown): void => {
    if (!view.signal.aborted) fail(root, error);
  };
  (async () => show(root, view.signal))().catch(failed);
  return () => view.abort();
}

export function style(el: HTMLElement, css: string): void {
  const sheet = document.createElement("style");
  sheet.textContent = css;
  el.append(sheet);
}

/** Hides the picture that stands in for a widget, and the output it is in, as long as the widget lives on this page. */
export function hidePicture(el: HTMLElement, model: WidgetModel): void {
  const id = String(model.get("_picture_id"));
  if (!/^\w+$/.test(id)) return;
  const sheet = document.createElement("style");
  const picture = `.onnx-nb-picture-${id}`;
  sheet.textContent = `${picture}, .jp-OutputArea-child:has(${picture}) { display: none !important; }`;
  el.append(sheet);
}

export function rootIn(el: HTMLElement, kind: string): HTMLElement {
  const root = document.createElement("div");
  root.className = "onnx-nb";
  root.dataset.widget = kind;
  root.dataset.state = "loading";
  keepFocus(root);
  el.append(root);
  return root;
}

export function fail(root: HTMLElement, error: unknown): void {
  const { message, advice } = failure(error);
  root.dataset.state = "error";
  const text = document.createElement("p");
  text.setAttribute("role", "alert");
  text.textContent = advice === "" ? message : `${message} ${advice}`;
  root.replaceChildren(text);
}

export function bytesOf(view: DataView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

/** What an element of an exported page holds. */
export function bytesIn(element: HTMLElement): Uint8Array {
  const text = atob(element.textContent ?? "");
  const packed = new Uint8Array(text.length);
  for (let at = 0; at < packed.length; at++) packed[at] = text.charCodeAt(at);
  return packed;
}
