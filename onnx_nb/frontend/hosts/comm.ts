/**
 * The connection between a widget and its kernel, past anywidget. anywidget gives a module 2 s; if it starts later (a
 * large notebook, a slow machine), anywidget shows the view, but never passes on anything from the kernel.
 *
 * Used: `_handle_comm_msg`, also of the class below anywidget's, `_pending_msgs` and `_handle_status` of the models of
 * ipywidgets. Tried with anywidget 0.11.0, ipywidgets 8.1.9 and JupyterLab 4.6.6. Without `_handle_comm_msg` a host
 * counts as one with models of its own, as marimo: late widgets stay without news. Without `_pending_msgs` a change of a
 * trait may wait after a lost connection until the page is loaded again; requests of the channel do not.
 */

/** A widget, as far as its model can be found. */
export interface ModelReference {
  get(name: string): unknown;
  readonly widget_manager?: { get_model(id: string): Promise<unknown> } | undefined;
}

/** The members that hosts with ipywidgets add to a model. */
export interface CommModel {
  readonly comm?: { on_msg(handler: (message: unknown) => unknown): void; send(content: unknown): unknown };
  _handle_comm_msg(message: unknown): Promise<unknown>;
  /** number of messages to which the kernel has not replied; later ones wait */
  _pending_msgs?: number;
  _handle_status?(message: { content: { execution_state: string } }): void;
}

const connectedModels = new WeakSet<CommModel>();

const rawModelOf = (model: ModelReference): Promise<CommModel | undefined> =>
  Promise.resolve(model.widget_manager?.get_model(String(model.get("_own"))) as Promise<CommModel> | undefined);

/**
 * Connects a widget to its kernel even if the page was too busy to start it.
 *
 * @returns false if it has no kernel: its notebook was opened, and the cell not run since
 */
export async function hearKernel(model: ModelReference): Promise<boolean> {
  const raw = await rawModelOf(model);
  if (raw === undefined || !("_handle_comm_msg" in raw)) return true;
  if (raw.comm === undefined || connectedModels.has(raw)) return raw.comm !== undefined;
  connectedModels.add(raw);
  try {
    await raw._handle_comm_msg({ content: { data: {} }, buffers: [] }); // an empty message, which waits like all others
  } catch {
    let waits: CommModel = raw;
    while (!Object.hasOwn(waits, "_handle_comm_msg")) waits = Object.getPrototypeOf(waits);
    const ipywidgets: CommModel = Object.getPrototypeOf(waits);
    raw.comm.on_msg((message) => ipywidgets._handle_comm_msg.call(raw, message));
    raw.comm.send({ method: "request_state" }); // changes until now were lost
  }
  return true;
}

/** Sends what ipywidgets holds back: it waits for the reply to a message that was lost with the connection. */
export async function release(model: ModelReference): Promise<void> {
  const raw = await rawModelOf(model);
  if (!raw?._pending_msgs) return;
  raw._pending_msgs = 1;
  raw._handle_status?.({ content: { execution_state: "idle" } });
}
