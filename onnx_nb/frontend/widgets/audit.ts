/** Mounts an audit of external data. */

import { type AuditData, createExternalData } from "../panels/audit.ts";
import { loadPacked } from "../protocol/parts.ts";
import { drawn } from "./mount.ts";
import type { Widget } from "./types.ts";

export const auditWidget: Widget = (model, channel) => async (root, signal) => {
  const { meta } = await loadPacked(model, channel, "columns");
  if (signal.aborted) return;
  createExternalData(root, meta as unknown as AuditData, { height: Number(model.get("height")) }, signal);
  drawn(root, signal);
};
