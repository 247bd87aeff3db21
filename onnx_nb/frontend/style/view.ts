/** What the stylesheets of one graph and of two share: the parts in the order in which they override each other. */

import bar from "./bar.css";
import base from "./base.css";
import inspector from "./inspector.css";
import narrow from "./narrow.css";
import stage from "./stage.css";
import summary from "./summary.css";
import tree from "./tree.css";
import values from "./values.css";

export const css = [base, bar, stage, tree, inspector, values, summary, narrow].join("");
