import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const FRONTEND = fileURLToPath(new URL("..", import.meta.url));
/** Names of other people's parts, each used by one file of this folder only. */
const PRIVATE_PARTS: Readonly<Record<string, readonly RegExp[]>> = {
  "comm.ts": [/_handle_comm_msg/, /_pending_msgs/, /_handle_status/, /request_state/],
  "kernel.ts": [/connectionStatusChanged/],
  "code.ts": [/IPY_MODEL_/, /allFunctionsCalledOnLoad/, /\bimport\((?!["'])/],
  "output.ts": [/jp-OutputArea/],
  "federation.ts": [/\b_JUPYTERLAB\b/],
  "document.ts": [/registerWidgetManager/, /restoredStatus/, /ErrorWidgetView/, /collaborationEnabled/],
};

const sources = readdirSync(FRONTEND, { recursive: true, encoding: "utf8" })
  .map((path) => path.replaceAll("\\", "/"))
  .filter((path) => path.endsWith(".ts") && !/^node_modules\/|\.test\.ts$|\.d\.ts$/.test(path))
  .map((path) => [path, readFileSync(FRONTEND + path, "utf8")] as const);

for (const [owner, parts] of Object.entries(PRIVATE_PARTS)) {
  it.each(parts)(`only hosts/${owner} uses %s`, (part) => {
    const users = sources.filter(([, text]) => part.test(text)).map(([path]) => path);
    expect(users).toEqual([`hosts/${owner}`]);
  });
}

it("each says with which versions it was tried", () => {
  const hosts = sources.filter(([path]) => path.startsWith("hosts/"));
  expect(hosts.map(([path]) => path.replace("hosts/", "")).sort()).toEqual(Object.keys(PRIVATE_PARTS).sort());
  for (const [, text] of hosts) expect(text).toMatch(/^\/\*\*[^/]*\bUsed: [^/]*\bTried with\s[^/]*\*\/\n/);
});
