/** The plugin: what a .onnx file is, the tab that opens it, and the tabs that are opened again after a reload. */

import { emptyModels } from "../hosts/document.ts";
import type { ShareModule } from "../hosts/federation.ts";
import type { Application, Context, Dialogs, DocumentWidget, LuminoWidget, RenderMime } from "../hosts/jupyter.d.ts";
import { el } from "../ui/dom.ts";
import { DocumentView, type Jupyter } from "./document.ts";
import { takeDrops } from "./files.ts";
import icon from "./icon.svg";
import css from "./style.css";

const FACTORY = "ONNX model";

interface Restorer {
  restore(tracker: object, options: object): unknown;
}

export async function pluginOf(shareModule: ShareModule): Promise<object> {
  const [{ ILayoutRestorer }, apputils, { PageConfig }, docregistry, { IRenderMimeRegistry }, ui, { Panel }] =
    await Promise.all([
      shareModule("@jupyterlab/application"),
      shareModule("@jupyterlab/apputils"),
      shareModule("@jupyterlab/coreutils"),
      shareModule("@jupyterlab/docregistry"),
      shareModule("@jupyterlab/rendermime"),
      shareModule("@jupyterlab/ui-components"),
      shareModule("@lumino/widgets"),
    ]);
  const { ABCWidgetFactory, DocumentModel, DocumentWidget } = docregistry;
  const onnxIcon = new ui.LabIcon({ name: "onnx-nb:model", svgstr: icon });

  const modelFactory = emptyModels("onnx-nb", DocumentModel);

  return {
    id: "onnx-nb:documents",
    description: "Opens ONNX models in a tab with a kernel.",
    autoStart: true,
    requires: [IRenderMimeRegistry],
    optional: [ILayoutRestorer, apputils.ISessionContextDialogs],
    activate(app: Application, rendermime: RenderMime, restorer: Restorer | null, dialogsOfApp: Dialogs | null): void {
      document.head.append(el("style", css));
      const dialogs = dialogsOfApp ?? new apputils.SessionContextDialogs();
      const root = PageConfig.getOption("serverRoot");
      const jupyter: Jupyter = { app, dialogs, rendermime, root, shareModule, apputils };
      const views = new WeakMap<LuminoWidget, DocumentView>();

      class Factory extends ABCWidgetFactory {
        createNewWidget(context: Context): DocumentWidget {
          const content = new Panel();
          const view = new DocumentView(jupyter, content, context);
          views.set(content, view);
          const widget = new DocumentWidget({ content, context });
          widget.disposed.connect(() => view.spareKernel()); // before the document manager ends the session
          widget.title.icon = onnxIcon;
          return widget;
        }
      }
      const toolbarFactory = ({ content, context: { sessionContext } }: DocumentWidget): object[] => {
        const { Toolbar } = apputils;
        const onClick = (): unknown => views.get(content)?.openNotebook();
        const tooltip = "Make a notebook with cells that show, cut and compare this model";
        return [
          { name: "notebook", widget: new ui.ToolbarButton({ label: "Open in a notebook", tooltip, onClick }) },
          { name: "spacer", widget: Toolbar.createSpacerItem() },
          { name: "restart", widget: Toolbar.createRestartButton(sessionContext, dialogs) },
          { name: "kernelName", widget: Toolbar.createKernelNameItem(sessionContext, dialogs) },
          { name: "kernelStatus", widget: Toolbar.createKernelStatusItem(sessionContext) },
        ];
      };
      const factory = new (Factory as unknown as new (options: object) => InstanceType<typeof Factory>)({
        name: FACTORY,
        fileTypes: ["onnx"],
        defaultFor: ["onnx"],
        modelName: modelFactory.name,
        readOnly: true,
        preferKernel: true,
        canStartKernel: true,
        autoStartDefault: true,
        shutdownOnClose: true,
        toolbarFactory,
      });

      const tracker = new apputils.WidgetTracker({ namespace: "onnx-nb" });
      factory.widgetCreated.connect((_, widget) => {
        widget.context.pathChanged.connect(() => void tracker.save(widget));
        void tracker.add(widget);
      });
      restorer?.restore(tracker, {
        command: "docmanager:open",
        args: ({ context }: DocumentWidget) => ({ path: context.path, factory: FACTORY }),
        name: ({ context }: DocumentWidget) => context.path,
      });
      app.docRegistry.addFileType({
        name: "onnx",
        displayName: "ONNX model",
        extensions: [".onnx", ".ort", ".onnx.gz"], // of the last two, the tab says what to do with them
        mimeTypes: ["application/x-onnx"],
        contentType: "file",
        fileFormat: "base64",
        icon: onnxIcon,
      });
      app.docRegistry.addModelFactory(modelFactory);
      app.docRegistry.addWidgetFactory(factory);
      takeDrops(app, apputils);
    },
  };
}
