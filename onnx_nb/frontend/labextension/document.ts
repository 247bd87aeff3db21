/** One tab: asks its kernel for the widget of its file and shows it, or says what is in the way. */

import { isBroken, modelOf, widgetManagerOf } from "../hosts/document.ts";
import type { ShareModule } from "../hosts/federation.ts";
import type {
  Application,
  Contents,
  Context,
  Dialogs,
  Evaluated,
  Kernel,
  Modules,
  Panel,
  RenderMime,
  WidgetManager,
} from "../hosts/jupyter.d.ts";
import { el } from "../ui/dom.ts";
import { makeFile } from "./files.ts";
import {
  CRASH,
  changed,
  failureNotice,
  isNotice,
  missingFile,
  NO_KERNEL,
  NO_RESTART,
  NO_WIDGETS,
  type Notice,
  type NoticeAction,
  resultOf,
  type ShownFile,
} from "./notices.ts";

export interface Jupyter {
  readonly app: Application;
  readonly dialogs: Dialogs;
  readonly rendermime: RenderMime;
  /** the server's folder */
  readonly root: string;
  readonly shareModule: ShareModule;
  readonly apputils: Modules["@jupyterlab/apputils"];
}

/**
 * Takes the working folder off the path of the tab's kernel, which starts in the folder of the file: a package that lies
 * beside a model of a stranger must not come before the one that is installed.
 */
const SAFE_PATH = '[__import__("sys").path.remove(folder) for folder in [""] if folder in __import__("sys").path]';
/** Milliseconds between two looks at the file. */
const LOOK_MS = 4000;
const ACTIONS: Readonly<Record<NoticeAction, string>> = {
  again: "Open again",
  restart: "Restart the kernel",
  choose: "Choose a kernel",
};

export class DocumentView {
  readonly #jupyter: Jupyter;
  readonly #panel: Panel;
  readonly #context: Context;
  readonly #notice = el("div.onnx-nb-notice", { role: "status" });
  readonly #manager: Promise<WidgetManager | null>;
  /** counts the attempts to open the file: an older one that ends later changes nothing */
  #attempt = 0;
  #opening = false;
  /** a person restarted the kernel */
  #restarting = false;
  /** the file was not there when it was last looked for */
  #isMissing = false;
  /** the file as the server had it when it was opened */
  #file: Contents | null = null;
  /** the file as the kernel sees it */
  #path = "";

  constructor(jupyter: Jupyter, panel: Panel, context: Context) {
    this.#jupyter = jupyter;
    this.#panel = panel;
    this.#context = context;
    panel.addClass("onnx-nb-document");
    panel.node.append(this.#notice);
    this.#wait("Starting the kernel …");
    this.#manager = widgetManagerOf(jupyter.shareModule, context, jupyter.rendermime);
    this.#begin().catch((error) => this.#say(failureNotice(error)));
  }

  get #name(): string {
    return this.#context.localPath.split("/").at(-1) ?? "";
  }

  async #begin(): Promise<void> {
    const { sessionContext, pathChanged } = this.#context;
    await this.#context.ready;
    if (await sessionContext.initialize())
      this.#say(NO_KERNEL); // Jupyter asks which kernel
    else void this.#open();
    sessionContext.kernelChanged.connect(() => void this.#open());
    sessionContext.statusChanged.connect((_, status) => this.#follow(status));
    pathChanged.connect(() => void this.#open());
    const look = window.setInterval(() => void this.#look(), LOOK_MS);
    this.#panel.disposed.connect(() => window.clearInterval(look));
  }

  async #open(): Promise<void> {
    this.#attempt += 1;
    const attempt = this.#attempt;
    const notice = await this.#show(attempt).catch(failureNotice);
    if (attempt !== this.#attempt || this.#panel.isDisposed) return;
    this.#opening = false;
    this.#isMissing = notice?.gone === true;
    if (notice !== null) this.#say(notice);
  }

  /** Shows the file; returns what to say if that fails. */
  async #show(attempt: number): Promise<Notice | null> {
    const kernel = this.#context.sessionContext.session?.kernel;
    if (!kernel) return NO_KERNEL;
    const manager = await this.#manager;
    if (manager === null) return NO_WIDGETS;
    this.#opening = true;
    this.#wait(`Opening ${this.#name} …`);
    const { path, localPath } = this.#context;
    const file = await this.#stat();
    if (file === null) return missingFile(this.#name);
    this.#file = file;
    const drive = this.#jupyter.app.serviceManager.contents.driveName(path);
    const root = drive === "" || drive === "RTC" ? this.#jupyter.root : "";
    performance.mark("onnx_nb:asked");
    const parameters = `root=${literal(root)}, size=${file.size ?? "None"}, before=${literal(this.#path)}`;
    const reply = await evaluate<ShownFile>(kernel, `view(${literal(localPath)}, ${parameters})`);
    performance.mark("onnx_nb:replied");
    if (attempt !== this.#attempt) return null;
    if (isNotice(reply)) return reply;
    const [widget, ...parts] = await Promise.all([reply.widget, ...reply.parts].map((id) => modelOf(manager, id)));
    if (widget === undefined || parts.some(isBroken)) return NO_WIDGETS;
    const { luminoWidget } = await manager.create_view(widget);
    if (attempt !== this.#attempt || this.#panel.isDisposed) {
      luminoWidget.dispose();
      return null;
    }
    this.#path = reply.file;
    this.#notice.replaceChildren();
    for (const shownWidget of [...this.#panel.widgets]) shownWidget.dispose();
    this.#panel.addWidget(luminoWidget);
    return null;
  }

  /** Follows what happens to the kernel. */
  #follow(status: string): void {
    if (status === "restarting") {
      this.#restarting = true;
      this.#wait("Restarting the kernel …");
    } else if (status === "autorestarting") {
      this.#attempt += 1; // a file that ends the kernel must not end it again and again
      this.#restarting = false;
      this.#say(CRASH);
    } else if (status === "dead") {
      this.#attempt += 1;
      this.#say(NO_RESTART);
    } else if (status === "idle" && this.#restarting) {
      this.#restarting = false;
      void this.#open();
    }
  }

  /** Returns the file as the server has it; null if it is gone. */
  #stat(): Promise<Contents | null> {
    const reply = this.#jupyter.app.serviceManager.contents.get(this.#context.path, { content: false });
    return reply.catch((error) => (error.response?.status === 404 ? null : Promise.reject(error)));
  }

  /** Looks whether the file is still the one that is shown. */
  async #look(): Promise<void> {
    const before = this.#file;
    if (before === null || this.#opening || document.hidden || this.#panel.node.offsetParent === null) return;
    const { path } = this.#context;
    const attempt = this.#attempt;
    const now = await this.#stat().catch(() => before); // the server may be away
    if (attempt !== this.#attempt || path !== this.#context.path || this.#panel.isDisposed) return;
    if (now === null) {
      if (!this.#isMissing) this.#say(missingFile(this.#name));
      this.#isMissing = true;
      return;
    }
    const differs = now.last_modified !== before.last_modified || now.size !== before.size;
    if (this.#isMissing || (differs && this.#panel.widgets.length === 0)) return this.#open();
    if (!differs) return;
    this.#file = now; // said once
    this.#say(changed(this.#name));
  }

  /** Says that work is under way. */
  #wait(text: string): void {
    this.#notice.setAttribute("role", "status");
    this.#notice.replaceChildren(el("p.onnx-nb-busy", text));
  }

  /** Says what is in the way, above the last picture if there is one. */
  #say({ what, now, command, details, actions }: Notice): void {
    const buttons = actions.map((action) => {
      const button = el("button.jp-mod-styled.jp-mod-accept", { type: "button" }, ACTIONS[action]);
      button.addEventListener("click", () => void this.#act(action));
      return button;
    });
    this.#notice.setAttribute("role", "alert");
    this.#notice.replaceChildren(
      el("h2", what),
      el("p", now),
      ...(command === undefined ? [] : [el("pre", command)]),
      ...(details === undefined ? [] : [el("details", el("summary", "Details"), el("pre", details))]),
      el("div.onnx-nb-actions", ...buttons),
    );
  }

  async #act(action: NoticeAction): Promise<void> {
    const { sessionContext } = this.#context;
    if (action === "choose") return this.#jupyter.dialogs.selectKernel(sessionContext);
    if (action === "again") return this.#open();
    this.#wait("Restarting the kernel …");
    try {
      await sessionContext.restartKernel();
    } catch (error) {
      this.#say(failureNotice(error));
    }
  }

  /** Keeps a kernel that another document uses, too, from being shut down with this tab, which is about to close. */
  spareKernel(): void {
    const { sessionContext } = this.#context;
    const kernel = sessionContext.session?.kernel?.id;
    const sessions = [...this.#jupyter.app.serviceManager.sessions.running()];
    if (sessions.filter((session) => session.kernel?.id === kernel).length < 2) return;
    sessionContext.kernelPreference = { ...sessionContext.kernelPreference, shutdownOnDispose: false };
  }

  /** Makes a notebook with cells that show, cut and compare the model, and opens it. */
  openNotebook(): Promise<void> {
    const { app, apputils } = this.#jupyter;
    const words = { title: "Open in a notebook", okLabel: "Make the notebook", failure: "No notebook was made" };
    const proposal = this.#context.path.replace(/(\.onnx)?$/i, ".ipynb");
    return makeFile(app, apputils, proposal, words, async (path) => {
      const kernel = this.#context.sessionContext.session?.kernel;
      const reply = kernel ? await evaluate<{ cells: string[] }>(kernel, `cells(${literal(this.#path)})`) : NO_KERNEL;
      if (isNotice(reply)) throw new Error(`${reply.what} ${reply.now}`);
      const content = notebookOf(reply.cells, kernel);
      await app.serviceManager.contents.save(path, { type: "notebook", format: "json", content });
    });
  }
}

/** Returns the value of a call of the kernel's side, or what to say instead. */
async function evaluate<T>(kernel: Kernel, call: string): Promise<T | Notice> {
  const { done } = kernel.requestExecute({
    code: "",
    silent: true,
    store_history: false,
    user_expressions: {
      path: SAFE_PATH, // evaluated in this order
      value: `__import__("onnx_nb.notebook.document", fromlist=["view"]).${call}`,
      python: '__import__("sys").executable',
    },
  });
  const { content } = await done;
  const { value, python }: Readonly<Record<string, Evaluated>> = content.user_expressions ?? {};
  return resultOf(value, python);
}

/** Returns a text as Python writes it. */
const literal = (text: string): string => JSON.stringify(text);

function notebookOf(cells: readonly string[], kernel: Kernel | null | undefined): object {
  const cell = { cell_type: "code", metadata: {}, execution_count: null, outputs: [] };
  return {
    cells: cells.map((source, index) => ({ ...cell, id: `cell-${index}`, source })),
    metadata: { kernelspec: { name: kernel?.name ?? "python3", display_name: "Python 3", language: "python" } },
    nbformat: 4,
    nbformat_minor: 5,
  };
}
