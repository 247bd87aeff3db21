/**
 * The state of the kernel behind a widget.
 *
 * Used: `kernel` of JupyterLab's widget manager, which no contract of anywidget names, with its signals. Tried with
 * JupyterLab 4.6.6. Other hosts have none: a kernel that is gone is then known by a failing send only, and a lost
 * connection by requests that time out.
 */

export interface Kernel {
  readonly status: string;
  readonly statusChanged?: Signal<string>;
  readonly connectionStatusChanged?: Signal<string>;
  readonly disposed?: Signal<unknown>;
}

interface Signal<T> {
  connect(slot: (sender: unknown, value: T) => void): unknown;
  disconnect(slot: (sender: unknown, value: T) => void): unknown;
}

/** Reports that the kernel is gone, or connected again, until the signal aborts. */
export function watchKernel(
  kernel: Kernel | null | undefined,
  events: { onLoss(): void; onConnect(): void },
  signal: AbortSignal,
): void {
  const { statusChanged, connectionStatusChanged, disposed } = kernel ?? {};
  const follow = (_: unknown, status: unknown): void => {
    if (/^(undefined|restarting|dead)$/.test(String(status))) events.onLoss();
    if (status === "connected") events.onConnect();
  };
  for (const source of [statusChanged, connectionStatusChanged, disposed]) {
    source?.connect(follow);
    signal.addEventListener("abort", () => source?.disconnect(follow));
  }
}
