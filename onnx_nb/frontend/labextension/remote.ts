/**
 * The container through which JupyterLab loads a prebuilt extension (module federation): JupyterLab passes the modules
 * that all extensions share, by name and version, and asks for the extension, which takes its modules from there. The
 * contract is small enough to need no bundler of JupyterLab's own.
 */

import type { Modules } from "./jupyter.d.ts";
import { pluginOf } from "./plugin.ts";

/** Versions of one shared module. */
type Versions = Readonly<
  Record<string, { readonly loaded?: boolean | number; get(): Promise<() => unknown> | (() => unknown) }>
>;

declare global {
  var _JUPYTERLAB: Record<string, object> | undefined;
}

let scope: Readonly<Record<string, Versions>> = {};

async function shareModule<N extends keyof Modules>(name: N): Promise<Modules[N]> {
  const versions = Object.values(scope[name] ?? {});
  // one copy a page: the one in use
  const version = versions.find(({ loaded }) => loaded) ?? versions.at(-1);
  if (version === undefined) throw new Error(`this page has no module ${name}`);
  return (await version.get())() as Modules[N];
}

globalThis._JUPYTERLAB ??= {};
globalThis._JUPYTERLAB["onnx-nb"] = {
  init(sharedScope: typeof scope): void {
    scope = sharedScope;
  },
  async get(): Promise<() => object> {
    const plugin = await pluginOf(shareModule);
    return () => ({ __esModule: true, default: plugin });
  },
};
