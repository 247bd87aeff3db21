/** Types of the modules that JupyterLab 4 and ipywidgets 8 share with the extension, as far as it uses them. */

export interface Signal<S, T> {
  connect(slot: (sender: S, args: T) => void): boolean;
}

export interface LuminoWidget {
  readonly node: HTMLElement;
  readonly title: { icon: unknown };
  readonly isDisposed: boolean;
  readonly disposed: Signal<LuminoWidget, void>;
  addClass(name: string): void;
  dispose(): void;
}

export interface Panel extends LuminoWidget {
  readonly widgets: readonly LuminoWidget[];
  addWidget(widget: LuminoWidget): void;
}

/** Metadata of a file. */
export interface Contents {
  readonly name: string;
  readonly size?: number;
  readonly last_modified: string;
  /** of a folder */
  readonly content?: readonly Contents[];
}

export interface ContentsManager {
  get(path: string, options: { content: boolean }): Promise<Contents>;
  save(path: string, model: object): Promise<Contents>;
  driveName(path: string): string;
}

/** One value of the `user_expressions` of a request. */
export interface Evaluated {
  readonly status: "ok" | "error";
  readonly data?: Readonly<Record<string, unknown>>;
  readonly ename?: string;
  readonly evalue?: string;
  readonly traceback?: readonly string[];
}

export interface Kernel {
  readonly id: string;
  readonly name: string;
  requestExecute(content: object): {
    readonly done: Promise<{ content: { user_expressions?: Readonly<Record<string, Evaluated>> } }>;
  };
}

export interface SessionContext {
  /** Starts a kernel or finds the one that runs; returns whether a person has to choose one. */
  initialize(): Promise<boolean>;
  readonly session: { readonly kernel: Kernel | null } | null;
  readonly kernelChanged: Signal<SessionContext, unknown>;
  readonly statusChanged: Signal<SessionContext, string>;
  kernelPreference: { readonly shutdownOnDispose?: boolean };
  restartKernel(): Promise<void>;
}

export interface Context {
  readonly path: string;
  readonly localPath: string;
  readonly ready: Promise<void>;
  readonly sessionContext: SessionContext;
  readonly pathChanged: Signal<Context, string>;
}

export interface Dialogs {
  selectKernel(session: SessionContext): Promise<void>;
}

export interface Application {
  readonly commands: { execute(command: string, args: object): Promise<unknown> };
  readonly docRegistry: {
    addFileType(type: object): void;
    addModelFactory(factory: object): void;
    addWidgetFactory(factory: object): void;
  };
  readonly shell: { widgets(area: "main"): Iterable<LuminoWidget & { readonly context?: Context }> };
  readonly serviceManager: {
    readonly contents: ContentsManager;
    readonly sessions: { running(): Iterable<{ readonly kernel: { readonly id: string } | null }> };
  };
}

export interface WidgetModel {
  get(name: string): unknown;
}

/** The widget manager of a kernel. */
export interface WidgetManager {
  readonly restoredStatus: boolean;
  readonly restored: Signal<WidgetManager, void>;
  get_model(id: string): Promise<WidgetModel>;
  create_view(model: WidgetModel): Promise<{ readonly luminoWidget: LuminoWidget }>;
}

export interface RenderMime {
  clone(): RenderMime;
}

export interface DocumentWidget extends LuminoWidget {
  readonly content: LuminoWidget;
  readonly context: Context;
}

interface WidgetTracker {
  add(widget: LuminoWidget): Promise<void>;
  save(widget: LuminoWidget): Promise<void>;
}

interface WidgetFactory {
  readonly widgetCreated: Signal<unknown, DocumentWidget>;
}

/** The modules by name. */
export interface Modules {
  "@jupyterlab/application": { readonly ILayoutRestorer: unknown };
  "@jupyterlab/apputils": {
    readonly ISessionContextDialogs: unknown;
    readonly SessionContextDialogs: new () => Dialogs;
    readonly Toolbar: {
      readonly createRestartButton: (session: SessionContext, dialogs: Dialogs) => LuminoWidget;
      readonly createKernelNameItem: (session: SessionContext, dialogs: Dialogs) => LuminoWidget;
      readonly createKernelStatusItem: (session: SessionContext) => LuminoWidget;
      readonly createSpacerItem: () => LuminoWidget;
    };
    readonly WidgetTracker: new (options: { namespace: string }) => WidgetTracker;
    readonly Notification: {
      emit(message: string, type: "in-progress", options: { autoClose: false }): string;
      dismiss(id: string): void;
    };
    readonly InputDialog: { getText(options: object): Promise<{ readonly value: string | null }> };
    readonly showErrorMessage: (title: string, error: unknown) => Promise<void>;
  };
  "@jupyterlab/coreutils": { readonly PageConfig: { getOption(name: string): string } };
  "@jupyterlab/docregistry": {
    readonly ABCWidgetFactory: abstract new (options: object) => WidgetFactory;
    readonly DocumentModel: new (options: { languagePreference: string; collaborationEnabled: boolean }) => object;
    readonly DocumentWidget: new (options: { content: LuminoWidget; context: Context }) => DocumentWidget;
  };
  "@jupyterlab/rendermime": { readonly IRenderMimeRegistry: unknown };
  "@jupyterlab/ui-components": {
    readonly LabIcon: new (options: { name: string; svgstr: string }) => object;
    readonly ToolbarButton: new (options: { label: string; tooltip: string; onClick: () => unknown }) => LuminoWidget;
  };
  "@lumino/widgets": { readonly Panel: new () => Panel };
  "@jupyter-widgets/jupyterlab-manager": {
    /** Hands the manager of the session's kernel to each of the `renderers`. */
    readonly registerWidgetManager: (
      context: Context,
      rendermime: RenderMime,
      renderers: Iterable<{ manager: WidgetManager }>,
    ) => unknown;
  };
}
