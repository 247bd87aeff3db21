/**
 * The container through which JupyterLab loads a prebuilt extension (module federation): JupyterLab passes the modules
 * that all extensions share, by name and version, and asks for the extension, which takes its modules from there. The
 * contract is small enough to need no bundler of JupyterLab's own.
 *
 * Used: `_JUPYTERLAB` of the page, and webpack's table of shared modules with its mark `loaded`. Tried with JupyterLab
 * 4.6.6; the types of the modules are in jupyter.d.ts. Without them JupyterLab starts without the extension, and says so
 * in the console.
 */

import type { Modules } from "./jupyter.d.ts";

export type ShareModule = <N extends keyof Modules>(name: N) => Promise<Modules[N]>;

/** Versions of one shared module. */
type Versions = Readonly<
  Record<string, { readonly loaded?: boolean | number; get(): Promise<() => unknown> | (() => unknown) }>
>;

declare global {
  var _JUPYTERLAB: Record<string, object> | undefined;
}

/** Offers a plugin of this page's JupyterLab under the name of its extension. */
export function offerPlugin(name: string, pluginOf: (shareModule: ShareModule) => Promise<object>): void {
  let scope: Readonly<Record<string, Versions>> = {};
  const shareModule: ShareModule = async (name) => {
    const versions = Object.values(scope[name] ?? {});
    // one copy a page: the one in use
    const version = versions.find(({ loaded }) => loaded) ?? versions.at(-1);
    if (version === undefined) throw new Error(`this page has no module ${name}`);
    return (await version.get())() as Modules[typeof name];
  };
  globalThis._JUPYTERLAB ??= {};
  globalThis._JUPYTERLAB[name] = {
    init(sharedScope: typeof scope): void {
      scope = sharedScope;
    },
    async get(): Promise<() => object> {
      const plugin = await pluginOf(shareModule);
      return () => ({ __esModule: true, default: plugin });
    },
  };
}
