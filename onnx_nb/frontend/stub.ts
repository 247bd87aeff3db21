/**
 * The `_esm` of every widget, small because it is sent and saved with each of them. The bundle comes from the model in
 * the trait `_code`, once for each page; in a host that resolves no references it comes from the kernel. That model has
 * this module, too, which compiles the bundle while the kernel still makes the first widget.
 */

import { codeId, importCode } from "./hosts/code.ts";
import type { WidgetModel } from "./protocol/model.ts";
import type { Mount } from "./widgets/mount.ts";

interface Module {
  initialize(context: { model: WidgetModel }): () => void;
  render(context: Mount): () => void;
}

declare global {
  /** modules of bundles on this page, by the id of the model that holds the code */
  var onnxNbModules: Map<string, Promise<() => Module>> | undefined;
}

globalThis.onnxNbModules ??= new Map();
const modules = globalThis.onnxNbModules;

async function load(model: WidgetModel): Promise<Module> {
  const id = codeId(model);
  let loading = modules.get(id);
  if (loading === undefined) {
    loading = codeOf(model, id).then(importCode<() => Module>);
    modules.set(id, loading);
    loading.catch(() => modules.delete(id)); // another widget may succeed
  }
  return (await loading)();
}

async function codeOf(model: WidgetModel, id: string): Promise<string> {
  try {
    const code = model.get("code");
    const codeModel = (code === undefined
      ? await model.widget_manager?.get_model(id)
      : model) as unknown as WidgetModel;
    return String(codeModel.get("code"));
  } catch {
    return requestCode(model);
  }
}

function requestCode(model: WidgetModel): Promise<string> {
  const id = Math.floor(Math.random() * 2 ** 40);
  return new Promise((resolve) => {
    const receive = (content: unknown): void => {
      const answer = content as { id?: number; value?: string } | null;
      if (answer?.id !== id) return;
      model.off("msg:custom", receive);
      resolve(String(answer.value));
    };
    model.on("msg:custom", receive);
    model.send({ id, verb: "code" });
  });
}

export default () => {
  let module: Promise<Module> | undefined;
  const moduleFor = (model: WidgetModel): Promise<Module> => {
    module ??= load(model);
    return module;
  };
  return {
    initialize: async (context: { model: WidgetModel }) => {
      const { initialize } = await moduleFor(context.model);
      return context.model.get("code") === undefined ? initialize(context) : undefined;
    },
    render: async (context: Mount) => (await moduleFor(context.model)).render(context),
  };
};
