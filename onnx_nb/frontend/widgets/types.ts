/** What a kind of widget provides: how it is shown in cells, and on pages if it can be exported. */

import type { Channel } from "../protocol/channel.ts";
import type { WidgetModel } from "../protocol/model.ts";
import type { Parts } from "../protocol/parts.ts";

/** Fills the root of one view, which lives until the signal aborts. */
export type View = (root: HTMLElement, signal: AbortSignal) => void | Promise<void>;

/** Called once a widget: loads what its views share. */
export type Widget = (model: WidgetModel, channel: Channel) => View;

/** Fills the root of a page from the page's JSON and its packed columns. */
export type Page = (root: HTMLElement, about: unknown, part: Parts, signal: AbortSignal) => void | Promise<void>;
