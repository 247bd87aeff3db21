/**
 * What a tab of JupyterLab needs besides its public interfaces: a document without content, and the widget manager of
 * its kernel.
 *
 * Used: that JupyterLab neither copies nor saves the file of a model that says that it is collaborative, and reads none
 * whose file format is null; `registerWidgetManager` of jupyterlab-manager, which hands the manager to a renderer that
 * is none; its `restored` state, and the name of the view of a broken widget. Tried with JupyterLab 4.6.6, ipywidgets
 * 8.1.9 and jupyterlab_widgets 3.0.17. Without the first, opening a model reads all of its file; without the others, the
 * tab says that Jupyter shows no widgets.
 */

import type { ShareModule } from "./federation.ts";
import type { Context, Modules, RenderMime, WidgetManager, WidgetModel } from "./jupyter.d.ts";

/** Returns the factory of models of nothing. */
export function emptyModels(name: string, DocumentModel: Modules["@jupyterlab/docregistry"]["DocumentModel"]) {
  return {
    name,
    contentType: "file",
    fileFormat: null,
    collaborative: false,
    isDisposed: false,
    dispose: () => undefined,
    preferredLanguage: () => "python",
    createNew(): object {
      const model = new DocumentModel({ languagePreference: "python", collaborationEnabled: true });
      // the widget manager looks for saved widgets, and may mark what it belongs to as changed
      return Object.defineProperties(model, {
        getMetadata: { value: () => undefined },
        setMetadata: { value: () => undefined },
        dirty: { get: () => false, set: () => undefined },
        readOnly: { get: () => true, set: () => undefined },
      });
    },
  };
}

/** Returns the manager of the kernel's widgets; null if Jupyter has none. */
export async function widgetManagerOf(
  shareModule: ShareModule,
  context: Context,
  rendermime: RenderMime,
): Promise<WidgetManager | null> {
  const module = await shareModule("@jupyter-widgets/jupyterlab-manager").catch(() => null);
  if (module === null) return null;
  return new Promise((resolve) => {
    const renderer = {
      set manager(manager: WidgetManager) {
        resolve(manager);
      },
    };
    module.registerWidgetManager(context, rendermime.clone(), [renderer as { manager: WidgetManager }]);
  });
}

/** Returns a model that came over a comm, or that a reloaded page takes from the kernel. */
export async function modelOf(manager: WidgetManager, id: string): Promise<WidgetModel> {
  try {
    return await manager.get_model(id);
  } catch (error) {
    if (manager.restoredStatus) throw error;
    await new Promise<void>((resolve) => void manager.restored.connect(() => resolve()));
    return manager.get_model(id);
  }
}

/** Returns whether a model stands for one whose module Jupyter could not load. */
export function isBroken(model: WidgetModel): boolean {
  return model.get("_view_name") === "ErrorWidgetView";
}
