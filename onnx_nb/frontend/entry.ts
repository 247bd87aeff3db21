/**
 * Entry of the bundle. As an anywidget module it shows the kind of widget that the trait `_kind` names; on a page that
 * `drawing/html.py` wrote it mounts itself on the data in the page, without a kernel.
 */

import { hearKernel, release } from "./hosts/comm.ts";
import { Channel } from "./protocol/channel.ts";
import { pagePart, textOf, type WidgetModel } from "./protocol/model.ts";
import css from "./style/index.css";
import { comparisonPage, comparisonWidget } from "./widgets/comparison.ts";
import { decodingPage, decodingWidget } from "./widgets/decoding.ts";
import { graphPage, graphWidget } from "./widgets/graph.ts";
import { fillRoot, type Mount, mount, type Page, rootIn, style, type View, type Widget } from "./widgets/mount.ts";
import { diffPage, diffWidget, simplificationPage, simplificationWidget } from "./widgets/pair.ts";
import { profilePage, profileWidget } from "./widgets/profile.ts";
import { createReport } from "./widgets/report.ts";
import { auditPage, auditWidget, capturePage, captureWidget, summaryPage, summaryWidget } from "./widgets/tables.ts";

/** Widget and page of each kind, which is also the id of the element that holds a page's JSON. */
const KINDS: Readonly<Record<string, readonly [Widget, Page]>> = {
  capture: [captureWidget, capturePage],
  comparison: [comparisonWidget, comparisonPage],
  decoding: [decodingWidget, decodingPage],
  external_data: [auditWidget, auditPage],
  graph: [graphWidget, graphPage],
  pair: [diffWidget, diffPage],
  profile: [profileWidget, profilePage],
  simplification: [simplificationWidget, simplificationPage],
  summary: [summaryWidget, summaryPage],
};

export default () => {
  const closing = new AbortController();
  let channel: Channel | undefined;
  let view: View | undefined;
  const channelOf = (model: WidgetModel): Channel => {
    if (channel === undefined) {
      channel = new Channel(model, closing.signal);
      channel.onReconnect = () => release(model);
    }
    return channel;
  };
  const viewOf = (model: WidgetModel): View => {
    const kind = String(model.get("_kind"));
    const [widget] = KINDS[kind] ?? [];
    if (widget === undefined) throw new Error(`this bundle has no widget of the kind '${kind}'`);
    view ??= widget(model, channelOf(model));
    return view;
  };
  return {
    initialize({ model }: { model: WidgetModel }): () => void {
      const checkKernel = (hasKernel: boolean): void => void (hasKernel || channelOf(model).lose());
      hearKernel(model).then(checkKernel, (error) => console.error(error)); // before the first request
      if (String(model.get("_kind")) in KINDS) viewOf(model);
      return () => closing.abort();
    },
    render({ model, el }: Mount): () => void {
      return mount({ model, el }, css, channelOf(model), (root, signal) => viewOf(model)(root, signal));
    },
  };
};

for (const [kind, [, page]] of Object.entries(KINDS)) {
  const about = textOf(kind);
  if (about === null) continue;
  style(document.body, css);
  const root = rootIn(document.body, kind);
  const { signal } = new AbortController();
  fillRoot(root, signal, async () => void (await page(root, JSON.parse(about), pagePart, signal)));
}

const report = textOf("report");
if (report !== null) {
  style(document.body, css);
  createReport(JSON.parse(report), (kind) => KINDS[kind]?.[1]);
}
