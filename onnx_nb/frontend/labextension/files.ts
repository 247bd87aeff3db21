/** New files on the server: a person is asked for the path first, and no file is replaced. */

import type { Application, ContentsManager, Modules } from "../hosts/jupyter.d.ts";

/** Bytes of one message of an upload. */
const CHUNK = 1 << 20;
/** Bytes of the largest model that is uploaded; the file browser takes larger ones. */
const MAX_UPLOAD = 100e6;

/** Asks for a path, has a file written there, and opens it. */
export async function makeFile(
  { commands, serviceManager: { contents } }: Application,
  { InputDialog, Notification, showErrorMessage }: Modules["@jupyterlab/apputils"],
  proposal: string,
  { title, okLabel, failure }: Readonly<Record<"title" | "okLabel" | "failure", string>>,
  write: (path: string) => Promise<unknown>,
): Promise<void> {
  const suffix = proposal.replace(/^.*\./, ".");
  let [path, label, note] = ["", "Path in Jupyter's folder", ""];
  try {
    let text = await freePath(contents, proposal);
    while (path !== text) {
      const { value } = await InputDialog.getText({ title, okLabel, label, text });
      if (!value) return;
      path = value.endsWith(suffix) ? value : value + suffix;
      text = await freePath(contents, path);
      label = `${path} exists already. Another path`;
    }
    note = Notification.emit(`Writing ${path}…`, "in-progress", { autoClose: false });
    await write(path);
    await commands.execute("docmanager:open", { path });
  } catch (error) {
    void showErrorMessage(failure, error);
  }
  Notification.dismiss(note);
}

/** Returns a path, with a number if a file has it. */
async function freePath(contents: ContentsManager, path: string): Promise<string> {
  const [, folder = "", stem = "", suffix = ""] = /^(.*[/:]|)(.*?)(\.\w+|)$/.exec(path) ?? [];
  const { content } = await contents.get(folder.replace(/\/$/, ""), { content: true });
  const names = new Set(content?.map(({ name }) => name));
  let name = stem + suffix;
  for (let next = 1; names.has(name); next += 1) name = `${stem}-${next}${suffix}`;
  return folder + name;
}

/** Has a model of this computer that is dropped on a graph uploaded beside its document; the graph refuses all else. */
export function takeDrops(app: Application, apputils: Modules["@jupyterlab/apputils"]): void {
  const { contents } = app.serviceManager;
  const take = (event: DragEvent): void => {
    const [target, file] = [event.target as Element, event.dataTransfer?.files[0]];
    if (!file?.name.endsWith(".onnx") || file.size > MAX_UPLOAD || target.closest(".onnx-nb-graph") === null) return;
    event.preventDefault();
    const tab = [...app.shell.widgets("main")].find(({ node }) => node.contains(target));
    const path = (tab?.context?.path ?? "").replace(/[^/:]*$/, file.name);
    const words = { title: `Show ${file.name}`, okLabel: "Upload and show", failure: "The model was not uploaded" };
    void makeFile(app, apputils, path, words, (path) => upload(contents, path, file));
  };
  document.addEventListener("drop", take, { capture: true }); // before the graph
}

/** Writes a file of this computer to a path of the server, in parts. */
async function upload(contents: ContentsManager, path: string, file: File): Promise<void> {
  for (let start = 0, number = 1; start === 0 || start < file.size; start += CHUNK, number += 1) {
    const bytes = new Uint8Array(await file.slice(start, start + CHUNK).arrayBuffer());
    const content = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    const chunk = start + CHUNK < file.size ? number : -1;
    await contents.save(path, { type: "file", format: "base64", content, ...(file.size > CHUNK && { chunk }) });
  }
}
