// live pages, once loaded, follow the theme that the reader chose for the site
const root = document.documentElement;
const loaded = new Set();
function follow() {
  for (const frame of loaded) {
    const address = `${frame.src.split("#")[0]}#theme=${root.dataset.theme}`;
    if (frame.src !== address) frame.src = address;
  }
}
for (const frame of document.querySelectorAll(".live-pages iframe")) {
  frame.addEventListener("load", () => {
    loaded.add(frame);
    follow();
  });
}
new MutationObserver(follow).observe(root, { attributeFilter: ["data-theme"] });
