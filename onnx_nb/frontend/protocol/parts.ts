/** Packed columns by name: saved with a widget, asked from its kernel, or written into a page. */

import type { Channel } from "./channel.ts";
import { bytesOf, type Packed, unpack } from "./codec.ts";
import type { WidgetModel } from "./model.ts";

/** Returns one part, such as "columns" or "reference". */
export type Parts = (part: string) => Promise<Packed>;

/** Loads a part of a widget: from its state if it is small enough to be saved there, else from the kernel. */
export async function loadPacked(model: WidgetModel, channel: Channel, part: string): Promise<Packed> {
  const saved = (model.get("_parts") as Readonly<Record<string, unknown>> | undefined)?.[part];
  return unpack(saved instanceof DataView ? bytesOf(saved) : await channel.bytes("columns", { part }));
}

/** Loads a part of a page. */
export async function pagePart(part: string): Promise<Packed> {
  const text = textOf(part);
  if (text === null) throw new Error(`this page lacks its part '${part}'`);
  return unpack(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)));
}

/** Returns what an element of an exported page holds, null if the page has none. */
export function textOf(part: string): string | null {
  return document.getElementById(`onnx-nb-${part}`)?.textContent ?? null;
}
