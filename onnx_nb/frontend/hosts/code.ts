/**
 * The text of the bundle, and how it becomes a module.
 *
 * Used: the reference `IPY_MODEL_<id>`, as ipywidgets writes a model in a trait; the import of a Blob's address, which a
 * page's security policy may forbid; V8's comment that compiles a text at once. Tried with anywidget 0.11.0 and
 * ipywidgets 8.1.9. Where no model is found, the kernel is asked for the text; other engines ignore the comment; where
 * Blobs cannot be imported no widget is shown, and the cell shows the error.
 */

import type { ModelReference } from "./comm.ts";

/** Returns the id of the model that holds the code of a widget. */
export function codeId(model: ModelReference): string {
  return String(model.get("_code")).replace("IPY_MODEL_", "");
}

/** Has V8 compile every function at once, on a thread of its own, while the kernel works; else it would when drawing. */
const EAGER_COMPILATION = "//# allFunctionsCalledOnLoad\n";

export async function importCode<T>(code: string): Promise<T> {
  const url = URL.createObjectURL(new Blob([EAGER_COMPILATION, code], { type: "text/javascript" }));
  try {
    return (await import(url)).default;
  } finally {
    URL.revokeObjectURL(url);
  }
}
